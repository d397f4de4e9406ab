"""The demo: its runs, the sentences about them, and runs that fail."""

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import demo
from experiments.papers import PAPERS, demo_agreement, sentences
from experiments.papers.demo_headlines import HEADLINES, Headline, Part
from experiments.schedule import launch, running
from experiments.schedule.launch import Outcome
from jaxformer.io.atomic_files import write_json
from tests.experiments import pretended

CONFIG = "configs/mixit/retrieval.py:variant={},scale=tiny"


def test_every_paper_has_one_headline_of_configs_that_exist(tmp_path):
    assert sorted(headline.paper for headline in HEADLINES) == sorted(PAPERS)
    for headline in HEADLINES:
        assert headline.item in [item.name for item in PAPERS[headline.paper].items]
        for part in headline.parts.values():
            launch.make_job(part.name, part.config, part.overrides, tmp_path)
    assert sum(map(Headline.seconds, HEADLINES)) < 250  # of 300, the page needs some


def run(metrics, baselines=None, steps=None, **config):
    values = {name: {"mean": m, "sem": s, "n": 3} for name, (m, s) in metrics.items()}
    return SimpleNamespace(
        metrics=values, baselines=baselines or {}, config=config, members=[], steps=steps
    )


def test_sentences_state_the_numbers_of_their_runs():
    variants = {
        cell: run(
            {"accuracy": (0.1, 0.02) if "mixit" in cell else (0.9, 0.01)},
            {"in_context_guess": 0.4},
            steps=300,
        )
        for cell in HEADLINES[0].parts
    }
    of_retrieval = {cell: variants[cell] for cell in ("standard", "frozen_qk", "mixit")}
    distances = {"log_trace": (0.02, None), "correlation": (0.03, None)}
    paths = run({f"ks/{name}/tau=1/n=200": value for name, value in distances.items()})
    border = {"critical_alpha_at_beta_0": (1.25, None), "exact_on_their_side": (0.97, 0.01)}
    noise = {
        "p_correct": (0.47, 0.03),
        "p_correct_without_f2": (0.79, 0.01),
        "p_noise": (0.47, 0.03),
        "p_noise_without_f2": (0.06, None),
    }
    U = {"good,good": (9.0, 0.1), "denoising,denoising": (4.0, 0.1)}
    U["good,denoising"] = (-5.193, 0.0625)
    posterior = run(
        {f"U/{name}": value for name, value in U.items()} | {"accuracy": (0.955, 0.0066)},
        {"accuracy_gp_limit": 0.85},
        posterior={"width": [10]},
    )
    expected = (
        (sentences.freezing, variants, "looks up 90.0 ± 1.0 % of the facts"),
        (sentences.freezing, variants, "it is 10.0 ± 2.0 % after 300 steps"),
        (sentences.freezing, variants, "the context gives 40.0 %. Of random facts"),
        (sentences.freezing, variants, "memorises 10.0 ± 2.0 %, a transformer 90.0 ± 1.0 %."),
        (sentences.freezing, of_retrieval, "the context gives 40.0 %."),
        (sentences.stochastic_equation, {"paths": paths}, "by 0.0200 and 0.0300 (Kolmogorov"),
        (
            sentences.collapse_border,
            {"diagram": run(border, figure={"layers": 9})},
            "of 9 layers make all tokens alike (rank collapse) if their skip connections are "
            "weaker than 1.25",
        ),
        (
            sentences.noise,
            {"run": run(noise, model={"width": 128})},
            "from 47.0 ± 3.0 % to 79.0 ± 1.0 %, that of the noise from 47.0 ± 3.0 % to 6.00 %.",
        ),
        (sentences.order_parameter, {"sampled": posterior}, "-5.193 ± 0.062 between them"),
        (sentences.order_parameter, {"sampled": posterior}, "of infinite width 85.0 %."),
    )
    wrong = [f"{text} in: {of(runs)}" for of, runs, text in expected if text not in of(runs)]
    assert not wrong, "\n".join(wrong)
    assert sentences.freezing(of_retrieval).endswith("40.0 %.")
    with pytest.raises(KeyError):
        sentences.noise({"run": run({}, model={"width": 128})})


def finding(runs):
    return f"a finding of {', '.join(runs)}."


SHOWN = (
    Headline(
        "mixit", "Table 2, retrieval", {"one": Part("one", CONFIG.format("mixit"), 12)}, finding
    ),
    Headline("associations", "Figure 3", {"two": Part("two", CONFIG.format("random"), 6)}, finding),
)
# Stands in for report.py: a page that shows the first run in its section and the other elsewhere.
PAGE = """
import pathlib, sys
flags = dict(flag.partition("=")[::2] for flag in sys.argv[1:])
one, two = sorted(str(f) for f in pathlib.Path(flags["--runs"]).iterdir() if f.is_dir())
text = f'<section id="mixit-table-2-retrieval">{one}</section><section id="associations-figure-3">'
open(flags["--page"], "w").write(text + f'</section><h2 id="paper-associations">{two}')
"""


class FakeExecutor(pretended.FakeExecutor):
    failing: tuple[str, ...] = ()
    stopping = False

    def run(self, jobs):
        for job in jobs:
            if self.stopping:
                self.signal = signal.SIGINT
                yield Outcome(job, 128 + signal.SIGTERM, 1.0, "")
                return
            if job.name in self.failing:
                yield Outcome(job, 2, 1.0, "no such number")
                continue
            job.workdir.mkdir(parents=True)
            result = {"config": {}, "metrics": {}, "members": [], "seeds": [0, 1]}
            write_json(job.workdir / "result.json", result)
            yield Outcome(job, 0, 1.0, "")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    monkeypatch.setattr(demo, "REPORT", (sys.executable, "-c", PAGE))

    def command(page=PAGE, **launcher):
        monkeypatch.setattr(demo, "REPORT", (sys.executable, "-c", page))
        for name, value in ({"failing": (), "stopping": False} | launcher).items():
            monkeypatch.setattr(FakeExecutor, name, value)
        code = demo.main([f"--workdir={tmp_path / 'demo'}"], SHOWN)
        return code, capsys.readouterr().out

    return command


def test_the_demo_ends_with_a_sentence_and_a_link_for_each_paper(command, tmp_path):
    code, out = command()
    assert code == 0 and "2 runs, about 18 s of CPU time" in out
    assert "a finding of one." in out and "report.html#mixit-table-2-retrieval" in out
    assert "a finding of two." in out and "report.html#paper-associations" in out
    assert "a finding of one. (scale tiny, 2 seeds)" in out
    # Before the longer run has ended the finding of the shorter one is on the screen.
    printed = " ".join(out.split())
    early = printed.index(f"{PAPERS['associations'].title} a finding of two.")
    assert early < printed.index("one: 1 s") < printed.index("ran 2 of 2")
    entries = json.loads((tmp_path / "demo/sentences.json").read_text())
    assert [entry["sentence"] for entry in entries] == ["a finding of one.", "a finding of two."]
    assert entries[0]["made"] == "scale tiny, 2 seeds" and len(entries[1]["runs"]) == 1
    assert "jaxformer look" in out and "jaxformer compare" in out
    code, out = command()
    assert code == 0 and "0 runs" in out and "a finding of two." in out


def test_a_failed_run_is_named_and_the_other_sentences_are_shown(command):
    code, out = command(page="", failing=("one",))
    assert code == 1 and "failed: one: no such number" in out
    assert "not shown: one did not finish." in out and "a finding of two." in out


def test_a_failed_page_is_named_and_the_sentences_are_shown(command):
    code, out = command(page="import sys; sys.exit('error: no paper')")
    assert code == 1 and "failed: the page: no paper" in out and "a finding of one." in out
    code, out = command(page="1 +")
    assert code == 1 and "failed: the page: SyntaxError" in out


def test_an_interrupted_demo_names_the_command_that_resumes_it(command):
    code, out = command(stopping=True)
    assert code == 130 and "Run the same command again: it resumes" in out
    code, out = command()
    assert code == 0 and "2 runs" in out


def test_the_demo_compares_its_runs_with_the_recorded_verdict():
    """Each headline has a recorded verdict, and a demo result that contradicts it is reported."""
    for headline in HEADLINES:
        assert demo.recorded_verdict(headline.paper, headline.item), headline.item
    assert demo.recorded_verdict("mixit", "Table 99") == ""
    above, below = (
        {"p_correct": (0.5, 0.01), "p_correct_without_f2": (x, 0.01)} for x in (0.8, 0.2)
    )
    assert demo_agreement.noise({"run": run(above)})
    assert not demo_agreement.noise({"run": run(below)})
    assert demo_agreement.order_parameter({"sampled": run({"U/good,denoising": (-5.0, 0.1)})})
    guess = {"in_context_guess": 0.4}
    runs = {name: run({"accuracy": (0.9, 0.01)}, guess) for name in ("standard", "frozen_qk")}
    assert demo_agreement.freezing(runs | {"mixit": run({"accuracy": (0.3, 0.02)})})
    assert not demo_agreement.freezing(runs | {"mixit": run({"accuracy": (0.9, 0.01)})})


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_sentence_breaks_between_words_in_any_terminal(columns, monkeypatch):
    text = "the posterior of block_0/attn/weights is well-mixed and lies at 0.97 ± 0.01. " * 3
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = demo.indented(text).splitlines()
    assert " ".join(lines).split() == text.split() and len(lines) > 2
    assert all(line.startswith("  ") and len(line) < columns for line in lines)


def test_the_number_of_changed_settings_is_shown():
    headline = next(headline for headline in HEADLINES if headline.paper == "associations")
    jobs = {
        p.name: launch.make_job(p.name, p.config, p.overrides, Path("nowhere"))
        for p in headline.parts.values()
    }
    assert demo.provenance(headline, jobs) == "scale tiny; 9 settings differ from it"


def test_wrong_arguments_are_one_line_errors(capsys):
    assert demo.main(["--workdri=x"]) == 2
    assert "Did you mean '--workdir'" in capsys.readouterr().err
    assert demo.main(["--help"]) == 0


@pytest.mark.slow
def test_the_demo_shows_a_result_of_each_paper(tmp_path, capsys):
    assert demo.main([f"--workdir={tmp_path}"]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert out.count(" ± ") >= len(PAPERS) and out.count("report.html#") == len(PAPERS)
    assert len([*tmp_path.glob("*/result.json")]) == 9
