// The pictures that follow a slider: the phase diagram, and the order parameter against N.
"use strict";
(() => {
  const CIVIDIS = [
    [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
    [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
  ];
  const colour = (share) => {
    const place = Math.min(0.9999, Math.max(0, share)) * (CIVIDIS.length - 1);
    const i = Math.floor(place), s = place - i;
    return CIVIDIS[i].map((value, c) => value + s * (CIVIDIS[i + 1][c] - value));
  };
  const byId = (id) => document.getElementById(id);

  function showPhase() {
    const held = charts.data("phase-data"), form = byId("phase-controls");
    const svg = byId("phase-map"), depth = byId("phase-depth"), told = byId("phase-told");
    const BETA = { low: 0, high: 2.5, label: "score scale β", ticks: [0, 0.5, 1, 1.5, 2, 2.5] };
    const ALPHA = { low: 0, high: 2.5, label: "residual strength α", ticks: [0, 0.5, 1, 1.5, 2, 2.5] };
    const NB = 64, NA = 64;
    let map = { key: "" };
    const store = charts.permalink(form, byId("phase-link"));

    // A picture of the whole plane, remembered until the length or the depth changes.
    function plane(T, layers) {
      const key = `${T} ${layers}`;
      if (map.key === key) return map;
      const table = phase.overlaps(held, T), canvas = document.createElement("canvas");
      canvas.width = NB;
      canvas.height = NA;
      const context = canvas.getContext("2d"), image = context.createImageData(NB, NA);
      for (let i = 0; i < NB; i++)
        for (let j = 0; j < NA; j++) {
          const beta = (BETA.high * (i + 0.5)) / NB, alpha = (ALPHA.high * (j + 0.5)) / NA;
          const rho = phase.cosine(table, beta, alpha, layers);
          image.data.set([...colour(rho), 255], 4 * ((NA - 1 - j) * NB + i));
        }
      context.putImageData(image, 0, 0);
      const edge = Array.from({ length: 26 }, (_, i) => {
        const beta = (BETA.high * i) / 25;
        return [beta, phase.critical(table, beta, layers, ALPHA.high)];
      });
      map = { key, table, edge, url: canvas.toDataURL() };
      return map;
    }

    function draw() {
      const { beta, alpha, layers, tokens, limit } = form.elements;
      const T = limit.checked ? null : 2 ** Number(tokens.value);
      const b = Number(beta.value), a = Number(alpha.value), L = Number(layers.value);
      const { table, edge, url } = plane(T, L);
      const view = charts.frame(svg, BETA, ALPHA);
      charts.element(view.back, "image", { href: url, preserveAspectRatio: "none", ...view.box });
      charts.line(view, edge, "edge");
      const at = view.toX(Math.SQRT2);
      charts.element(view.front, "path", {
        class: "condensed", d: `M${at} ${view.box.y}V${view.box.y + view.box.height}`,
      });
      const same = held.dots && held.dots.layers === L && held.dots.length === T;
      for (const [x, y, rho] of same ? held.dots.points : [])
        charts.dot(view, x, y, rho > phase.ALIKE ? "network alike" : "network", 4.5);
      charts.dot(view, b, a, "chosen", 7);
      const rhos = phase.cosines(table, b, a, L);
      const ticks = [0, Math.round(L / 2), L];
      const side = charts.frame(
        depth,
        { low: 0, high: L, label: "layer", ticks },
        { low: 0, high: 1, label: "cosine of two tokens", ticks: [0, 0.5, 1] }
      );
      charts.line(side, rhos.map((rho, l) => [l, rho]), "line s0");
      const critical = phase.critical(table, b, L, ALPHA.high);
      const where = critical === Infinity ? `no α up to ${ALPHA.high} prevents it`
        : critical === 0 ? "they do not collapse at any α" : `they collapse below α = ${critical.toFixed(2)}`;
      const word = rhos[L] > phase.ALIKE ? "Collapsed" : "Not collapsed";
      const of = T === null ? "of very many tokens" : `of ${T.toLocaleString("en")} tokens`;
      told.value =
        `${word}: two ${of} that start orthogonal have cosine ${rhos[L].toFixed(3)} after ` +
        `${L} layers (β = ${b.toFixed(2)}, α = ${a.toFixed(2)}). At this β ${where}. A row of ` +
        `attention keeps ${(100 * phase.entropy(table, b)).toFixed(0)} % of the largest entropy ` +
        "in the first layer." + (same ? " Dots are networks that we built; black ones collapsed." : "");
      for (const input of [beta, alpha, layers, tokens])
        byId(`phase-${input.name}`).value =
          input === tokens ? (T === null ? "∞" : T.toLocaleString("en")) : input.value;
      tokens.disabled = limit.checked;
    }

    const update = () => {
      draw();
      store();
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    svg.addEventListener("click", (event) => {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const view = charts.frame(svg, BETA, ALPHA), { x, y, width, height } = view.box;
      form.elements.beta.value = (BETA.high * (place.x - x)) / width;
      form.elements.alpha.value = ALPHA.high * (1 - (place.y - y) / height);
      update();
    });
    draw();
  }

  function showOrder() {
    const held = charts.data("order-data"), form = byId("order-controls");
    const { names, widths } = held, n = names.length;
    const place = (i, j) => (i > j ? place(j, i) : i * n - (i * (i - 1)) / 2 + j - i);
    const lines = [["good", 0, 0], ["denoising", 2, 2], ["good × denoising", 0, 2], ["a1", 1, 1]];
    const store = charts.permalink(form, byId("order-link"));
    const N = { low: widths[0], high: widths.at(-1), label: "width N", log: true, ticks: [10, 100, 1000] };

    function heat(svg, row) {
      svg.replaceChildren();
      const size = 52, left = 72, top = 26, most = Math.max(...row.map(Math.abs));
      for (let i = 0; i < n; i++) {
        charts.element(svg, "text", { x: left - 6, y: top + size * (i + 0.55), "text-anchor": "end" }, names[i]);
        charts.element(svg, "text", { x: left + size * (i + 0.5), y: top - 8, "text-anchor": "middle" }, names[i]);
        for (let j = 0; j < n; j++) {
          const value = row[place(i, j)], share = Math.abs(value) / most;
          const box = { x: left + size * j, y: top + size * i, width: size - 2, height: size - 2 };
          const cell = charts.element(svg, "rect", { ...box, class: value < 0 ? "below" : "above" });
          cell.style.fillOpacity = 0.06 + 0.8 * share; // through the style: the policy forbids no script
          const at = { x: box.x + size / 2 - 1, y: box.y + size / 2 + 4, "text-anchor": "middle" };
          charts.element(svg, "text", { ...at, class: "value" }, value.toFixed(2));
        }
      }
    }

    function draw() {
      const k = Number(form.elements.place.value), row = held.U[k];
      heat(byId("order-heat"), row);
      const all = lines.flatMap(([, i, j]) => held.U.map((u) => u[place(i, j)]));
      const low = Math.floor(Math.min(...all)) - 1, high = Math.ceil(Math.max(...all)) + 1;
      const view = charts.frame(byId("order-lines"), N, {
        low, high, label: "order parameter U", ticks: [-5, 0, 5, 10].filter((t) => t > low && t < high),
      });
      lines.forEach(([, i, j], c) =>
        charts.line(view, widths.map((w, m) => [w, held.U[m][place(i, j)]]), `line s${c}`)
      );
      for (const [width, entry, value] of held.sampled)
        lines.forEach(([, i, j], c) => place(i, j) === entry && charts.dot(view, width, value, `dot s${c}`, 3.5));
      const mark = view.toX(widths[k]);
      charts.element(view.front, "path", { class: "condensed", d: `M${mark} ${view.box.y}V${view.box.y + view.box.height}` });
      const right = charts.frame(byId("order-accuracy"), N, {
        low: 0.75, high: 1, label: "test accuracy", ticks: [0.8, 0.9, 1],
      });
      charts.line(right, [[widths[0], held.gp_limit], [widths.at(-1), held.gp_limit]], "level");
      const below = { x: right.box.x + 6, y: right.toY(held.gp_limit) + 14 };
      charts.element(right.front, "text", below, "infinite width");
      charts.line(right, widths.map((w, m) => [w, held.accuracy[m]]), "line s0");
      charts.dot(right, widths[k], held.accuracy[k], "chosen", 6);
      byId("order-place").value = widths[k];
      const [good, denoising, both] = [[0, 0], [2, 2], [0, 2]].map(([i, j]) => row[place(i, j)]);
      byId("order-told").value =
        `At width ${widths[k]} the good path counts ${good.toFixed(2)}, the denoising one ` +
        `${denoising.toFixed(2)}, and ${both.toFixed(2)} stands between them (correlation ` +
        `${(both / Math.sqrt(good * denoising)).toFixed(2)}); as N grows every path counts 1 and ` +
        `none is combined. Accuracy ${(100 * held.accuracy[k]).toFixed(1)} %, in the limit ` +
        `${(100 * held.gp_limit).toFixed(1)} %.`;
    }

    const update = () => {
      draw();
      store();
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    draw();
  }

  for (const [id, show] of [["phase", showPhase], ["order", showOrder]]) {
    const section = byId(id);
    if (!section) continue;
    section.hidden = false;
    // Drawn when it is about to be seen, so that the page itself is there first.
    new IntersectionObserver((seen, watcher) => {
      if (!seen.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      show();
    }, { rootMargin: "300px" }).observe(section);
  }
})();
