// Axes, lines and dots as SVG, for the pictures that follow a slider.
"use strict";
const charts = (() => {
  const LEFT = 46, TOP = 10, BOTTOM = 36, RIGHT = 12;

  function element(parent, name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  }

  function scale({ low, high, log = false }, start, end) {
    const by = log ? Math.log : (value) => value;
    return (value) => start + ((by(value) - by(low)) / (by(high) - by(low))) * (end - start);
  }

  // Draws the axes anew; gives the places of values. An axis is {low, high, label, ticks, log}.
  function frame(svg, x, y) {
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const toX = scale(x, LEFT, width - RIGHT), toY = scale(y, height - BOTTOM, TOP);
    svg.replaceChildren();
    const back = element(svg, "g"), front = element(svg, "g");
    for (const tick of y.ticks) {
      const at = toY(tick);
      element(front, "path", { class: "grid", d: `M${LEFT} ${at}H${width - RIGHT}` });
      element(front, "text", { x: LEFT - 5, y: at + 4, "text-anchor": "end" }, `${tick}`);
    }
    for (const tick of x.ticks)
      element(
        front, "text", { x: toX(tick), y: height - BOTTOM + 14, "text-anchor": "middle" }, `${tick}`
      );
    const ends = `M${LEFT} ${TOP}V${height - BOTTOM}H${width - RIGHT}`;
    element(front, "path", { class: "axis", d: ends });
    const middle = (LEFT + width - RIGHT) / 2, side = (TOP + height - BOTTOM) / 2;
    element(front, "text", { x: middle, y: height - 4, "text-anchor": "middle" }, x.label);
    const turned = `translate(11 ${side}) rotate(-90)`;
    element(front, "text", { transform: turned, "text-anchor": "middle" }, y.label);
    const box = { x: LEFT, y: TOP, width: width - RIGHT - LEFT, height: height - BOTTOM - TOP };
    return { toX, toY, back, front, box };
  }

  function line(frame, points, kind) {
    const inside = points.filter(([, y]) => Number.isFinite(y));
    const d = inside.map(([x, y]) => `${frame.toX(x).toFixed(1)} ${frame.toY(y).toFixed(1)}`);
    if (d.length) element(frame.front, "path", { class: kind, d: `M${d.join("L")}` });
  }

  function dot(frame, x, y, kind, r = 4) {
    return element(frame.front, "circle", { class: kind, cx: frame.toX(x), cy: frame.toY(y), r });
  }

  // Sets the sliders to the values in the address, #beta=0.5&alpha=1.1. Returns a function that
  // writes their values into the address and into the link.
  function permalink(form, link) {
    const inputs = [...form.elements].filter((input) => input.name);
    const given = new URLSearchParams(location.hash.slice(1));
    for (const input of inputs.filter(({ name }) => given.has(name)))
      if (input.type === "checkbox") input.checked = given.get(input.name) === "1";
      else input.value = given.get(input.name);
    return () => {
      const values = inputs.map((input) =>
        [input.name, input.type === "checkbox" ? Number(input.checked) : input.value].join("=")
      );
      link.href = `#${values.join("&")}`;
      history.replaceState(null, "", link.href);
    };
  }

  // The data that the page carries for a picture.
  const data = (id) => JSON.parse(document.getElementById(id).textContent);

  return { element, frame, line, dot, permalink, data };
})();
