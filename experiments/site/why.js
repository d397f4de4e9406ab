// Why a rule held: a line of differences with the part asked for, the interval and its middle.
// The words beside it say the same, so it is drawn only where somebody looks.
"use strict";
(() => {
  const WIDTH = 340, MARGIN = 16, LINE = 14;

  function draw(why) {
    const [gap, half, ...edges] = why.dataset.rule.split(" ").map(Number);
    const ends = [gap - half, gap + half], all = [...ends, ...edges];
    const first = Math.min(...all), last = Math.max(...all);
    const room = 0.12 * (last - first || Math.abs(last) || 1);
    const low = first - room, high = last + room;
    const at = (value) => MARGIN + ((value - low) / (high - low)) * (WIDTH - 2 * MARGIN);
    const box = { class: "rule", viewBox: `0 0 ${WIDTH} 40`, "aria-hidden": "true" };
    const svg = charts.element(why, "svg", box);
    const begin = at(edges[0]), end = edges.length > 1 ? at(edges[1]) : WIDTH - MARGIN;
    charts.element(svg, "path", { class: "asked", d: `M${begin} 4H${end}V24H${begin}Z` });
    charts.element(svg, "path", { class: "axis", d: `M${MARGIN} 24H${WIDTH - MARGIN}` });
    charts.element(svg, "path", { class: "interval", d: `M${at(ends[0])} ${LINE}H${at(ends[1])}` });
    charts.element(svg, "circle", { cx: at(gap), cy: LINE, r: 4 });
    for (const edge of edges)
      charts.element(svg, "text", { x: at(edge), y: 37, "text-anchor": "middle" }, `${edge}`);
  }

  for (const why of document.querySelectorAll("details.why[data-rule]"))
    why.open ? draw(why) : why.addEventListener("toggle", () => draw(why), { once: true });
})();
