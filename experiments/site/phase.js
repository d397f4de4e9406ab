// Where tokens become alike (arXiv 2505.24333): the cosine of two tokens after L post-norm blocks,
// computed here from the tables of theory.rem. The same equations are in theory/signal/maps.py.
"use strict";
const phase = (() => {
  const SCALE = 0.5, SOFTEN = 0.02, REACH = 6, LONGEST = 2 ** 24;
  const END = 1 - 1 / Math.sqrt(1 + (REACH / SCALE) ** 2);
  const LOW = Math.log(Math.log(2)), HIGH = Math.log(Math.log(LONGEST));
  const SOFT_LOW = Math.sqrt(SOFTEN), SOFT_HIGH = Math.sqrt(1 + SOFTEN);
  const ROWS = 1024, SPREADS = 160, COSINES = 96; // points of the grids
  const BLOCK = { v: 0.2, w: 0.2, b: 4e-4, mlp: 1 }; // variances times fan-in, and alpha_MLP
  const ALIKE = 0.99; // collapsed: a larger cosine

  // T_0 .. T_{n-1} of 2x - 1.
  const basis = (x, n) =>
    Array.from({ length: n }, (_, k) => Math.cos(k * Math.acos(Math.min(1, Math.max(-1, 2 * x - 1)))));
  const dot = (one, other) => one.reduce((sum, value, k) => sum + value * other[k], 0);

  // ln(T Y_q) and ln(T Y_p) of rows of T tokens, on grids; null is the paper's limit.
  function overlaps(held, T) {
    if (T === null) return { limit: true };
    const at = basis((Math.log(Math.log(T)) - LOW) / (HIGH - LOW), held.overlap.length);
    const mean = (tables) => tables[0].map((_, m) => dot(at, tables.map((table) => table[m])));
    const overlap = mean(held.overlap), entropy = mean(held.entropy);
    const pair = held.pair[0].map((_, m) =>
      held.pair[0][m].map((_, r) => dot(at, held.pair.map((table) => table[m][r])))
    );
    const row = Float64Array.from({ length: ROWS + 1 }, (_, i) =>
      dot(overlap, basis(i / ROWS, overlap.length))
    );
    const inRho = Array.from({ length: COSINES + 1 }, (_, k) => {
      const known = basis(k / COSINES, pair[0].length);
      return pair.map((line) => dot(line, known));
    });
    const grid = new Float64Array((SPREADS + 1) * (COSINES + 1));
    for (let j = 0; j <= SPREADS; j++) {
      const known = basis(j / SPREADS, pair.length);
      for (let k = 0; k <= COSINES; k++) grid[j * (COSINES + 1) + k] = dot(known, inRho[k]);
    }
    return { limit: false, T, row, grid, entropy };
  }

  const spread = (square) => 1 - 1 / Math.sqrt(1 + square / SCALE ** 2);

  // [Y_q, Y_p] of tokens with cosine rho.
  function pairOf(table, beta, rho) {
    const square = beta * beta * (1 - rho);
    if (table.limit) return [square > 2 ? 1 - Math.sqrt(2 / square) : 0, 0];
    const x = spread(square), width = COSINES + 1;
    let place = x * ROWS, i = Math.min(ROWS - 1, Math.floor(place)), s = place - i;
    const y_q = Math.exp((1 - s) * table.row[i] + s * table.row[i + 1]) / table.T;
    const soft = (Math.sqrt(1 - rho + SOFTEN) - SOFT_LOW) / (SOFT_HIGH - SOFT_LOW);
    place = Math.min(1, x / END) * SPREADS;
    const j = Math.min(SPREADS - 1, Math.floor(place)), t = place - j;
    place = Math.min(1, Math.max(0, soft)) * COSINES;
    const k = Math.min(COSINES - 1, Math.floor(place)), u = place - k, at = j * width + k;
    const low = (1 - u) * table.grid[at] + u * table.grid[at + 1];
    const high = (1 - u) * table.grid[at + width] + u * table.grid[at + width + 1];
    return [y_q, Math.exp((1 - t) * low + t * high) / table.T];
  }

  const ratio = (p, q) => (q > 0 ? p / q : 1);

  // The cosine after one block.
  function step(table, rho, beta, alpha) {
    const [y_q, y_p] = pairOf(table, beta, rho), { v, w, b, mlp } = BLOCK;
    const q = v * ((1 - rho) * y_q + rho) + alpha ** 2;
    const p = v * ((1 - rho) * y_p + rho) + alpha ** 2 * rho;
    const r0 = ratio(p, q), q1 = w + b;
    const c = Math.min(1, Math.max(0, (w * r0 + b) / q1));
    const kernel = ((q1 / 2) * (Math.sqrt(1 - c * c) + c * (Math.PI - Math.acos(c)))) / Math.PI;
    const q2 = (w * q1) / 2 + b + mlp ** 2, p2 = w * kernel + b;
    return Math.min(1, (p2 + mlp ** 2 * r0) / q2);
  }

  function cosines(table, beta, alpha, layers) {
    const found = [0];
    for (let l = 0; l < layers; l++) found.push(step(table, found[l], beta, alpha));
    return found;
  }

  const cosine = (table, beta, alpha, layers) => cosines(table, beta, alpha, layers)[layers];

  // The smallest alpha without collapse in [0, most]; Infinity if there is none.
  function critical(table, beta, layers, most) {
    let low = 0, high = most;
    if (cosine(table, beta, most, layers) > ALIKE) return Infinity;
    if (cosine(table, beta, 0, layers) <= ALIKE) return 0;
    for (let i = 0; i < 14; i++) {
      const middle = (low + high) / 2;
      if (cosine(table, beta, middle, layers) > ALIKE) low = middle;
      else high = middle;
    }
    return high;
  }

  // The entropy of a row of attention over ln T, for orthogonal tokens.
  function entropy(table, beta) {
    if (table.limit) return Math.max(0, 1 - beta ** 2 / 2);
    const x = spread(beta ** 2);
    return (dot(table.entropy, basis(x, table.entropy.length)) * (1 - x)) / Math.log(table.T);
  }

  return { overlaps, cosines, cosine, critical, entropy, ALIKE };
})();
