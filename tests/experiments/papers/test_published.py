"""The paper's questions to published models, walked through on random tiny ones."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from configs.associations import published as config
from experiments.papers.associations import gsm8k, prompting, prompts, published
from experiments.run import main
from jaxformer import surgery
from jaxformer.core import paths
from jaxformer.core.errors import NotFiniteError, UserError
from jaxformer.models.pretrained import text, tiny

SETTINGS = dict(
    source="tiny:gpt_neox", revisions=("step0", "step1"), prompt="ioi", sentences=4,
    matrix="block_1/mlp/in", fractions=(0.2,), dtype="float32", seed=0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_prompts_are_those_of_the_paper():
    words = published.open_model("tiny:gpt2", "", 0, "float32")[2]
    number = {kind: len(prompting.asked(kind, 0, 0, words)) for kind in prompting.KINDS}
    assert number == dict(madrid=1, mary=1, facts=20, words=30, sentences=40, ioi=100)
    lines = prompting.asked("sentences", 0, 0, words)
    assert {one.prompt.split()[-1] for one in lines} <= {
        one.prompt for one in prompting.asked("words", 0, 0, words)
    }
    stores = prompting.asked("ioi", 0, 0, words)
    assert len({one.prompt for one in stores}) > 90 and stores != prompting.asked(
        "ioi", 0, 1, words
    )
    first = 0
    for one in stores:
        assert one.prompt.count(one.wrong) == 2 and one.prompt.count(one.target) == 1
        assert len(words.pieces(f" {one.target}")) == 1
        first += one.prompt.startswith(f"When {one.target}")
    assert 30 < first < 70


def test_the_154_revisions():
    assert len(config.STEPS) == 154 and config.STEPS[:4] == (0, 1, 2, 4)
    assert set(config.FEW) <= set(config.STEPS)


def test_numbers_by_hand_and_a_second_call_reads_them(monkeypatch):
    outcome = published.measure_published(**SETTINGS)
    with jax.enable_x64(False):
        model, params, words = published.open_model("tiny:gpt_neox", "step1", 1, "float32")
        asked = prompting.asked("ioi", 4, 0, words)
        cut = surgery.laser(params, "block_1/mlp/in", 0.2)
        for weights, suffix in ((params, ""), (cut, "/block_1/mlp/in@0.2")):
            found = []
            for one in asked:
                logits = model.apply({"params": weights}, np.array([words.encode(one.prompt)]))
                p = np.asarray(jax.nn.softmax(logits[0, -1]))
                found.append([p[words.pieces(f" {w}")[0]] for w in (one.target, one.wrong, "the")])
            right, wrong, the = np.mean(found, 0)
            metrics = outcome.metrics
            assert metrics[f"p_target{suffix}"].mean == pytest.approx(right, rel=1e-3)
            assert metrics[f"p_wrong{suffix}"].mean == pytest.approx(wrong, rel=1e-3)
            assert metrics[f"ratio{suffix}"].mean == pytest.approx(right / the, rel=1e-3)
    assert metrics["step_of_the"].mean == published.NEVER
    assert outcome.arrays["p_the"].shape == (2, 2) and [*outcome.arrays["steps"]] == [0, 1]
    monkeypatch.setattr(published, "open_model", None)
    again = published.measure_published(**SETTINGS)
    assert str(again.metrics) == str(metrics)


def test_them_is_followed_where_the_paper_shows_it():
    """After the prompt of Figure 17 and after no other; whole and cut."""
    found = published.measure_published(**SETTINGS | dict(prompt="mary", revisions=("",)))
    assert found.arrays["p_them"].shape == (1, 2) and found.metrics["p_them"].mean > 0
    with jax.enable_x64(False):
        model, params, words = published.open_model("tiny:gpt_neox", "", 0, "float32")
        cut = surgery.laser(params, "block_1/mlp/in", 0.2)
        (asked,) = prompting.asked("mary", 0, 0, words)
        logits = model.apply({"params": cut}, np.array([words.encode(asked.prompt)]))
        p = np.asarray(jax.nn.softmax(logits[0, -1]))[words.pieces(" them")[0]]
    cut_name = "block_1/mlp/in@0.2"
    assert found.metrics[f"p_them/{cut_name}"].mean == pytest.approx(p, rel=1e-3)
    gain = found.metrics[f"p_them_gain/{cut_name}"].mean
    assert gain == pytest.approx(p - found.metrics["p_them"].mean, rel=1e-2)
    published.draw_published(found.arrays, "mary", "block_1/mlp/in", (0.2,))
    assert "p_them" not in published.measure_published(**SETTINGS | dict(revisions=("",))).metrics


def test_answers_of_gsm8k():
    assert gsm8k.number("so 3 + 4 = 7. #### 1,234.5 and 8") == 1234.5
    assert gsm8k.number("it is 12 or -3") == -3
    assert gsm8k.number("none") is None
    assert gsm8k.is_right(" so 7", "2 + 5 = <<2+5=7>>7\n#### 7")
    assert not gsm8k.is_right("no idea", "#### 7")
    text = gsm8k.prompt([{"question": "A?", "answer": "1 <<1=1>>1"}], "B?")
    assert text == "Question: A?\nAnswer: 1 1\n\nQuestion: B?\nAnswer:"


def test_a_question_is_a_line_whatever_signs_are_in_it(tmp_path):
    rows = [{"question": "A\u2028B?", "answer": "#### 1"}, {"question": "Ä\x85?", "answer": "2"}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert gsm8k.read(str(tmp_path / "test.jsonl")) == rows
    (tmp_path / "broken.jsonl").write_text(lines[0] + "\n{}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"broken\.jsonl, line 2: expected"):
        gsm8k.read(str(tmp_path / "broken.jsonl"))


def test_a_prompt_is_a_line_whatever_signs_are_in_it(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_bytes("Rome\u2028is in\tItaly\r\n\r\nParis\x0cis in\tFrance\n".encode())
    assert prompts.pairs(file) == [("Rome\u2028is in", "Italy"), ("Paris\x0cis in", "France")]


def test_an_answer_ends_where_the_model_ends_it(tmp_path):
    """After the end of a text a base model goes on, and what it then says is no answer."""
    folder = tiny.save("gpt2", tmp_path, tiny.TEXTS)
    config = json.loads((folder / "config.json").read_text())
    for end in (0, [0], None):
        (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": end}))
        words = text.Text(folder, 10_000)
        ids = [*words.pieces(" Spain"), 0, *words.pieces(" Paris")]
        assert words.decode(ids) == (" Spain" if end is not None else " Spain Paris")
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert text.Text(folder, 10_000).decode(ids) == " Spain"


def test_what_is_known_of_a_folder_counts_while_its_files_are_the_same(tmp_path, monkeypatch):
    folder = tiny.save("gpt_neox", tmp_path / "model", prompting.texts())
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return {"revision": "", "values": {"whole": {"p_target": [0.5], "p_the": [len(calls)],
                                                     "rank_the": [1]}}, "notes": []}  # fmt: skip

    monkeypatch.setattr(published, "_measure_revision", counted)
    settings = SETTINGS | dict(source=str(folder), revisions=("",), fractions=())
    for seed, seen in ((0, 1), (0, 1), (1, 2)):
        if seed:
            tiny.save("gpt_neox", folder, prompting.texts(), seed=seed)
        assert published.measure_published(**settings).metrics["p_the"].mean == seen
    assert len(calls) == 2
    assert published.files_of("tiny:gpt2", "") == published.files_of("no/folder", "") == ""


@pytest.mark.slow  # test_pretrained has the same of the cache and the padding alone
def test_a_batch_of_questions_says_what_each_says_alone():
    model, params, words = published.open_model("tiny:phi3", "", 0, "float32")
    texts = ["Madrid is located in", "The city of Mumbai is in the"]
    both = gsm8k.answers(model, params, words, texts, 5, 3)
    for asked, said in zip(texts, both):
        ids = words.encode(asked)
        for _ in range(5):
            logits = prompts._program(model)(params, np.array([ids]), np.array([[len(ids) - 1]]))
            ids.append(int(logits[0].argmax()))
        assert said == words.decode(ids[-5:]).split("Question:")[0]


@pytest.mark.slow  # a whole run of the command, twice
def test_gsm8k_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    words = ["--config=configs/associations/gsm8k.py:model=phi3,scale=tiny"]
    words += ["--config.figure.questions=2", f"--workdir={tmp_path / 'run'}"]
    answers, calls = gsm8k.answers, []

    def counted(*args):
        calls.append(len(args[3]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers(*args)

    monkeypatch.setattr(gsm8k, "answers", counted)
    assert main(words) == 130
    assert main(words) == 0 and calls == [2, 2, 2]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert set(result["metrics"]) == {"accuracy", "accuracy_cut", "accuracy_gain"}
    with pytest.raises(UserError, match="no file nowhere: download"):
        gsm8k.read("nowhere")
    (tmp_path / "bad").write_text('{"question": "a"}\n')
    with pytest.raises(UserError, match=r"bad, line 1: expected .*question"):
        gsm8k.read(str(tmp_path / "bad"))


def test_models_from_a_shelf(tmp_path, monkeypatch):
    """Named as on the hub, a revision behind an @; without a network."""
    tiny.save("gpt_neox", tmp_path / "Eleuther/tiny@step1", tiny.TEXTS)
    monkeypatch.setenv("JAXFORMER_MODELS", str(tmp_path))
    assert published.open_model("Eleuther/tiny", "step1", 0, "float32")[0].spec.family == "gpt_neox"
    with pytest.raises(UserError, match="has no folder Eleuther/tiny@step2"):
        published.open_model("Eleuther/tiny", "step2", 0, "float32")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("source", "tiny:gpt5", "unknown kind of tiny model"),
        ("source", "../x", "no name of a model"),
        ("matrix", "block_9/mlp/in", "matches no path"),
        ("matrix", "final_norm", "needs a matrix"),
        ("dtype", "float3", "unknown dtype"),
        ("fraction", 1.5, "must be in"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(field, value, said):
    asked = {"source": "tiny:gpt2", "matrix": "block_1/mlp/in", "dtype": "float32", "fraction": 0.1}
    files = {"train": "", "test": "", "shots": 1}
    gsm8k.check_gsm8k(**asked, **files)
    with pytest.raises(UserError, match=said):
        gsm8k.check_gsm8k(**asked | files | {field: value})
    rest = {name: part for name, part in (asked | {field: value}).items() if name != "fraction"}
    fractions = [value if field == "fraction" else 0.1]
    with pytest.raises(UserError, match=said):
        published.check_published(**rest, prompt="madrid", fractions=fractions)


def test_the_folder_of_a_model_is_asked_for_its_matrices(tmp_path):
    from jaxformer.models.pretrained import tiny

    tiny.save("gpt_neox", tmp_path, tiny.TEXTS)
    published.check_matrix(str(tmp_path), "block_0/mlp/in")
    with pytest.raises(UserError, match="matches no path"):
        published.check_matrix(str(tmp_path), "block_9/mlp/in")


def test_a_network_without_finite_logits_fails_and_its_row_is_null(monkeypatch):
    """All revisions are measured and their rows kept before the run fails."""
    opened = published.open_model

    def broken(source, revision, number, dtype):
        model, params, words = opened(source, revision, number, dtype)
        bias = {"block_1/mlp/in/bias": np.full(40, np.nan, np.float32)}
        return model, paths.replace(params, bias) if number == 0 else params, words

    monkeypatch.setattr(published, "open_model", broken)
    for _ in ("measured", "read from the cache"):
        with pytest.raises(NotFiniteError, match=r"got nan or infinity at step0.*dtype=float32"):
            published.measure_published(**SETTINGS)
        monkeypatch.setattr(published, "open_model", None)
    (file,) = (Path(os.environ["XDG_CACHE_HOME"]) / "jaxformer/published").glob("*/rows.jsonl")
    first, second = (json.loads(line)["values"]["whole"] for line in file.read_text().splitlines())
    assert first["p_target"] == first["rank_target"] == [None] * 4
    assert None not in second["p_target"] + second["rank_target"]


def test_answers_of_a_network_without_finite_logits_are_refused():
    model, params, words = published.open_model("tiny:phi3", "", 0, "float32")
    weights = paths.replace(params, {"final_norm/scale": np.full(16, np.nan, np.float32)})
    with pytest.raises(NotFiniteError, match="expected finite logits"):
        gsm8k.answers(model, weights, words, ["Madrid is located in"], 3, 1)
