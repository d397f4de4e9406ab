"""A recorded run says which claims it belongs to, and what these say now."""

from experiments.site import after_record
from tests.experiments import made_up


def lines_after(monkeypatch, tmp_path, cell, *records):
    monkeypatch.setattr(after_record, "PAPERS", {"made_up": made_up.PAPER})
    monkeypatch.setattr(after_record, "WORKSPACE", tmp_path)
    (tmp_path / "results").mkdir(exist_ok=True)
    for i, content in enumerate(records):
        made_up.write(tmp_path / "results", f"record-{i}", content)
    last = made_up.record(cell, 0.0)
    return after_record.verdict_lines(last["config"], last["config_file"])


def test_a_record_prints_the_verdict_of_each_of_its_rows_and_the_next_command(
    monkeypatch, tmp_path
):
    lines = lines_after(monkeypatch, tmp_path, made_up.A, made_up.record(made_up.A, 0.99))
    held = "held (explored only): 0.9900 ± 0.0010 against 0.9, required above"
    assert lines == [
        f"Table 1 (made_up): {held}",
        "Table 2 (made_up): not run; 1 of its 2 runs are missing",
        f"Table 1, again (made_up): {held}",
        'next: jaxformer report --only="Table 1"',
    ]


def test_a_run_of_no_claim_prints_nothing_more(monkeypatch, tmp_path):
    other = made_up.A._replace(overrides={"task.max_pairs": "5"})
    assert lines_after(monkeypatch, tmp_path, other) == []
