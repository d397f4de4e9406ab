"""The demo: its headlines, its sentences, and failing parts."""

import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import demo
from experiments.papers import PAPERS, headlines
from experiments.papers.headlines import HEADLINES, Headline, Part
from experiments.schedule import launch, running
from experiments.schedule.launch import Outcome
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from tests.experiments import pretended

CONFIG = "configs/mixit/retrieval.py:variant={},scale=tiny"


def test_every_paper_has_one_headline_of_configs_that_exist(tmp_path):
    assert sorted(headline.paper for headline in HEADLINES) == sorted(PAPERS)
    for headline in HEADLINES:
        assert headline.item in [item.name for item in PAPERS[headline.paper].items]
        for name, part in headline.parts.items():
            launch.make_job(name, part.config, part.overrides, tmp_path)
    assert sum(map(Headline.seconds, HEADLINES)) < 250  # of 300, the page needs some


def run(folder, metrics, arrays=None, baselines=None, **config):
    folder.mkdir()
    values = {name: {"mean": m, "sem": s, "n": 3} for name, (m, s) in metrics.items()}
    result = {"metrics": values, "baselines": baselines or {}, "config": config, "members": []}
    write_json(folder / "result.json", result)
    if arrays:
        np.savez(folder / "arrays.npz", **arrays)
    return Workdir(folder)


def test_the_sentence_about_freezing(tmp_path):
    names = HEADLINES[0].parts
    runs = {
        name: run(
            tmp_path / name,
            {"accuracy": (0.9, 0.01) if "MixiT" not in name else (0.1, 0.02)},
            baselines={"in_context_guess": 0.4},
        )
        for name in names
    }
    text = headlines.freezing(runs)
    assert "never trained answers 90.0 ± 1.0 % of look-ups" in text
    assert "in place of attention it is 10.0 ± 2.0 %" in text
    assert "naming any value of the context gives 40.0 %" in text


def test_the_sentence_about_the_equation(tmp_path):
    paths = np.linspace(-1, 1, 101)[:, None]
    workdir = run(
        tmp_path / "sde",
        {"ks/a/tau=1/n=20": (0.02, None), "ks/a/tau=1/n=5": (0.4, None), "ks_noise": (0.05, None)},
        {"sde/log_trace": paths, "n=20/log_trace": paths + 0.5, "times": [1.0]},
        figure={"widths": [5, 20]},
    )
    text = headlines.stochastic_equation({"SDE and networks": workdir})
    assert (
        "width 20 and depth 20" in text
        and "size is 0.500 ± 0.058; the stochastic" in text
        and "at most 0.020" in text
    )


def test_the_diagram_in_words(tmp_path):
    measured = np.array([[[1.0, 1.0], [0.5, 0.7]], [[0.8, 0.8], [0.5, 0.7]]])
    workdir = run(
        tmp_path / "signal",
        {},
        {
            "measured": measured,
            "measured_beta": [0.0, 2.0],
            "measured_alpha": [0.5, 1.5],
            "beta": [0.0, 2.0],
            "critical_alpha": [1.0, 0.8],
        },
        figure={"layers": 9, "epsilon": 0.01},
    )
    text = headlines.trainability({"trainability diagram": workdir})
    assert (
        "after 9 layers" in text
        and "1.000 ± 0.000 (1: all alike) with skip connections of strength 0.5" in text
    )
    assert (
        "0.600 ± 0.100 with 1.5. Theory puts the border at 1.00. Of 4 measured networks 3" in text
    )


def test_paths_and_noise_in_words(tmp_path):
    saddle = np.zeros((4, 4))
    saddle[0, 2] = -4.65
    posterior = run(
        tmp_path / "posterior",
        {"U/good,denoising": (-5.193, 0.0625), "accuracy": (0.955, 0.0066)},
        {"U_theory": saddle},
        {"accuracy_gp_limit": 0.85},
        posterior={"width": [10]},
    )
    text = headlines.order_parameter({"collapsed posterior": posterior})
    assert "width 10" in text and "-5.19 ± 0.06, below zero (the theory" in text
    values = {
        "p_correct": (0.47, 0.03),
        "p_correct_without_f2": (0.79, 0.01),
        "p_noise": (0.47, 0.03),
        "p_noise_without_f2": (0.06, None),
    }
    text = headlines.noise({"noisy recall": run(tmp_path / "recall", values)})
    assert "from 0.470 ± 0.030 to 0.790 ± 0.010, that of the noise from 0.470 ± 0.030" in text


def said(runs):
    return "a finding of " + ", ".join(runs)


SHOWN = (
    Headline("mixit", "Table 2, retrieval", {"one": Part(CONFIG.format("mixit"), 12)}, said),
    Headline("associations", "Figure 3", {"two": Part(CONFIG.format("random"), 6)}, said),
)
# Stands in for report.py: a page that shows the first run in its section and the other elsewhere.
PAGE = """
import pathlib, sys
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
one, two = sorted(str(f) for f in pathlib.Path(words["--runs"]).iterdir() if f.is_dir())
text = f'<section id="mixit-table-2-retrieval">{one}</section><section id="associations-figure-3">'
open(words["--page"], "w").write(text + f'</section><h2 id="paper-associations">{two}')
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
            held = {"config": {}, "metrics": {}, "members": [], "seeds": [0, 1]}
            write_json(job.workdir / "result.json", held)
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


def test_it_ends_with_a_sentence_for_each_paper_and_where_it_stands(command, tmp_path):
    code, out = command()
    assert code == 0 and "2 runs, about 18 s of CPU time" in out
    assert "a finding of one." in out and "report.html#mixit-table-2-retrieval" in out
    assert "a finding of two." in out and "report.html#paper-associations" in out
    assert "a finding of one. (scale tiny, 2 seeds)" in out
    # Before the longer run has ended the finding of the shorter one is on the screen.
    words = " ".join(out.split())
    early = words.index(f"{PAPERS['associations'].title}: a finding of two.")
    assert early < words.index("one: 1 s") < words.index("ran 2 of 2")
    held = json.loads((tmp_path / "demo/sentences.json").read_text())
    assert [one["sentence"] for one in held] == ["a finding of one.", "a finding of two."]
    assert held[0]["made"] == "scale tiny, 2 seeds" and len(held[1]["runs"]) == 1
    code, out = command()
    assert code == 0 and "0 runs" in out and "a finding of two." in out


def test_a_part_that_fails_says_so_and_the_others_are_shown(command):
    code, out = command(page="", failing=("one",))
    assert code == 1 and "failed: one: no such number" in out
    assert "not shown: one did not finish." in out and "a finding of two." in out


def test_a_page_that_fails_says_so_and_the_sentences_stand(command):
    code, out = command(page="import sys; sys.exit('error: no paper')")
    assert code == 1 and "failed: the page: no paper" in out and "a finding of one." in out
    code, out = command(page="1 +")
    assert code == 1 and "failed: the page: SyntaxError" in out


def test_an_interrupted_demo_says_how_to_go_on(command):
    code, out = command(stopping=True)
    assert code == 130 and "Run the same command again: it resumes" in out
    code, out = command()
    assert code == 0 and "2 runs" in out


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_sentence_breaks_between_words_in_any_terminal(columns, monkeypatch):
    text = "the posterior of block_0/attn/weights is well-mixed and lies at 0.97 ± 0.01. " * 3
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = demo.indented(text).splitlines()
    assert " ".join(lines).split() == text.split() and len(lines) > 2
    assert all(line.startswith("  ") and len(line) < columns for line in lines)


def test_a_part_with_changed_settings_says_so():
    headline = next(headline for headline in HEADLINES if headline.paper == "associations")
    jobs = {
        name: launch.make_job(name, p.config, p.overrides, Path("nowhere"))
        for name, p in headline.parts.items()
    }
    assert demo.provenance(headline, jobs) == "scale tiny; 9 settings differ from it"


def test_wrong_arguments(capsys):
    assert demo.main(["--workdri=x"]) == 2
    assert "Did you mean '--workdir'" in capsys.readouterr().err
    assert demo.main(["--help"]) == 0


@pytest.mark.slow
def test_the_whole_demo(tmp_path, capsys):
    assert demo.main([f"--workdir={tmp_path}"]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert out.count(" ± ") >= len(PAPERS) and out.count("report.html#") == len(PAPERS)
    assert len([*tmp_path.glob("*/result.json")]) == 9
