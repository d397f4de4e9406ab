"""Measurements on published models, run on random tiny models."""

import functools
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.special

from configs.associations import published as config
from experiments.papers.associations import (
    chosen_layer,
    gsm8k,
    next_token,
    paper_prompts,
    published,
)
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
    tokenizer = published.open_model("tiny:gpt2", "", 0, "float32")[2]

    def prompts_of(kind, seed=0):
        return paper_prompts.prompts_of(kind, 0, seed, tokenizer)

    number = {kind: len(prompts_of(kind)) for kind in paper_prompts.KINDS}
    assert number == dict(madrid=1, mary=1, facts=20, words=30, sentences=40, ioi=100)
    last_words = {prompt.text.split()[-1] for prompt in prompts_of("sentences")}
    assert last_words <= {prompt.text for prompt in prompts_of("words")}
    stores = prompts_of("ioi")
    assert len({prompt.text for prompt in stores}) > 90 and stores != prompts_of("ioi", seed=1)
    right_first = 0
    for prompt in stores:
        assert prompt.text.count(prompt.wrong) == 2 and prompt.text.count(prompt.target) == 1
        assert len(tokenizer.pieces(f" {prompt.target}")) == 1
        right_first += prompt.text.startswith(f"When {prompt.target}")
    assert 30 < right_first < 70


def test_the_config_has_154_revisions():
    assert len(config.STEPS) == 154 and config.STEPS[:4] == (0, 1, 2, 4)
    assert set(config.SOME_STEPS) <= set(config.STEPS)


def next_probabilities(model, params, tokenizer, text):
    """Returns the probabilities after a text, which is padded so that one program serves all."""
    ids = tokenizer.encode(text)
    padded = np.zeros((1, 40), int)
    padded[0, : len(ids)] = ids
    logits = apply(model)({"params": params}, padded)
    return scipy.special.softmax(np.asarray(logits[0, len(ids) - 1]))


@functools.cache
def apply(model):
    return jax.jit(model.apply)


def test_metrics_are_those_by_hand_and_are_read_from_the_cache_afterwards(monkeypatch):
    outcome = published.measure_published(**SETTINGS)
    with jax.enable_x64(False):
        model, params, tokenizer = published.open_model("tiny:gpt_neox", "step1", 1, "float32")
        prompts = paper_prompts.prompts_of("ioi", 4, 0, tokenizer)
        cut = surgery.laser(params, "block_1/mlp/in", 0.2)
        for weights, suffix in ((params, ""), (cut, "/block_1/mlp/in@0.2")):
            by_prompt = []
            for prompt in prompts:
                p = next_probabilities(model, weights, tokenizer, prompt.text)
                words = (prompt.target, prompt.wrong, "the")
                by_prompt.append([p[tokenizer.pieces(f" {word}")[0]] for word in words])
            right, wrong, the = np.mean(by_prompt, 0)
            metrics = outcome.metrics
            assert metrics[f"p_target{suffix}"].mean == pytest.approx(right, rel=1e-3)
            assert metrics[f"p_wrong{suffix}"].mean == pytest.approx(wrong, rel=1e-3)
            assert metrics[f"ratio{suffix}"].mean == pytest.approx(right / the, rel=1e-3)
    assert metrics["step_of_the"].mean == published.NEVER
    assert outcome.arrays["p_the"].shape == (2, 2) and [*outcome.arrays["steps"]] == [0, 1]
    monkeypatch.setattr(published, "open_model", None)
    again = published.measure_published(**SETTINGS)
    assert str(again.metrics) == str(metrics)


def test_them_is_measured_after_the_prompt_of_figure_17_only():
    outcome = published.measure_published(**SETTINGS | dict(prompt="mary", revisions=("",)))
    metrics = outcome.metrics
    assert outcome.arrays["p_them"].shape == (1, 2) and metrics["p_them"].mean > 0
    with jax.enable_x64(False):
        model, params, tokenizer = published.open_model("tiny:gpt_neox", "", 0, "float32")
        cut = surgery.laser(params, "block_1/mlp/in", 0.2)
        (prompt,) = paper_prompts.prompts_of("mary", 0, 0, tokenizer)
        probabilities = next_probabilities(model, cut, tokenizer, prompt.text)
        p = probabilities[tokenizer.pieces(" them")[0]]
    cut_name = "block_1/mlp/in@0.2"
    assert metrics[f"p_them/{cut_name}"].mean == pytest.approx(p, rel=1e-3)
    gain = metrics[f"p_them_gain/{cut_name}"].mean
    assert gain == pytest.approx(p - metrics["p_them"].mean, rel=1e-2)
    published.draw_published(outcome.arrays, "mary", "block_1/mlp/in", (0.2,))
    assert "p_them" not in published.measure_published(**SETTINGS | dict(revisions=("",))).metrics


def test_one_uncut_checkpoint_is_drawn_as_bars():
    """There is no curve, since neither the training step nor the rank varies (Figure 14)."""
    arrays = {"p_target": [[0.23]], "rank_target": [[5.2]], "p_the": [[0.1]], "rank_the": [[9.0]]}
    arrays = {name: np.array(values) for name, values in arrays.items()}
    arrays |= {"steps": np.zeros(1, int), "matrices": np.array([], str)}
    figure = published.draw_published(arrays, "words", "", ())
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == [0.23, 0.1]
    assert [bar.get_width() for bar in right.patches] == [5.2, 9.0]
    assert [label.get_text() for label in left.get_yticklabels()] == ["the right word", '"the"']
    # The right word of these prompts is "the", so the published records have equal numbers.
    arrays |= {"p_the": arrays["p_target"], "rank_the": arrays["rank_target"]}
    figure = published.draw_published(arrays, "words", "", ())
    assert [len(axis.patches) for axis in figure.axes] == [1, 1]
    assert figure.axes[0].get_yticklabels()[0].get_text() == 'the right word, "the"'


def test_numbers_and_prompts_of_gsm8k():
    assert gsm8k.number("so 3 + 4 = 7. #### 1,234.5 and 8") == 1234.5
    assert gsm8k.number("it is 12 or -3") == -3
    assert gsm8k.number("none") is None
    assert gsm8k.is_right(" so 7", "2 + 5 = <<2+5=7>>7\n#### 7")
    assert not gsm8k.is_right("no idea", "#### 7")
    text = gsm8k.prompt([{"question": "A?", "answer": "1 <<1=1>>1"}], "B?")
    assert text == "Question: A?\nAnswer: 1 1\n\nQuestion: B?\nAnswer:"


def test_a_question_may_contain_unicode_line_separators(tmp_path):
    rows = [{"question": "A\u2028B?", "answer": "#### 1"}, {"question": "Ä\x85?", "answer": "2"}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert gsm8k.read(str(tmp_path / "test.jsonl")) == rows
    (tmp_path / "broken.jsonl").write_text(lines[0] + "\n{}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"broken\.jsonl, line 2: expected"):
        gsm8k.read(str(tmp_path / "broken.jsonl"))


def test_a_prompt_may_contain_unicode_line_separators(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_bytes("Rome\u2028is in\tItaly\r\n\r\nParis\x0cis in\tFrance\n".encode())
    assert next_token.read_prompts(file) == [
        ("Rome\u2028is in", "Italy"),
        ("Paris\x0cis in", "France"),
    ]


def test_decoding_stops_at_the_end_token_of_the_model(tmp_path):
    """A base model continues after the end of a text; that continuation is no answer."""
    folder = tiny.save("gpt2", tmp_path, tiny.TEXTS)
    config = json.loads((folder / "config.json").read_text())
    for end in (0, [0], None):
        (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": end}))
        tokenizer = text.Text(folder, 10_000)
        ids = [*tokenizer.pieces(" Spain"), 0, *tokenizer.pieces(" Paris")]
        assert tokenizer.decode(ids) == (" Spain" if end is not None else " Spain Paris")
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert text.Text(folder, 10_000).decode(ids) == " Spain"


def test_cached_numbers_of_a_folder_are_used_until_its_files_change(tmp_path, monkeypatch):
    folder = tiny.save("gpt_neox", tmp_path / "model", paper_prompts.texts())
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return {"revision": "", "values": {"whole": {"p_target": [0.5], "p_the": [len(calls)],
                                                     "rank_the": [1]}}, "notes": []}  # fmt: skip

    monkeypatch.setattr(published, "_measure_revision", counted)
    settings = SETTINGS | dict(source=str(folder), revisions=("",), fractions=())
    for seed, number_of_calls in ((0, 1), (0, 1), (1, 2)):
        if seed:
            tiny.save("gpt_neox", folder, paper_prompts.texts(), seed=seed)
        assert published.measure_published(**settings).metrics["p_the"].mean == number_of_calls
    assert len(calls) == 2
    assert published.files_of("tiny:gpt2", "") == published.files_of("no/folder", "") == ""


@pytest.mark.slow  # test_pretrained has the same of the cache and the padding alone
def test_answers_of_a_batch_are_those_of_single_questions():
    model, params, tokenizer = published.open_model("tiny:phi3", "", 0, "float32")
    texts = ["Madrid is located in", "The city of Mumbai is in the"]
    both = gsm8k.answers(model, params, tokenizer, texts, 5, 3)
    for question, answer in zip(texts, both):
        ids = tokenizer.encode(question)
        for _ in range(5):
            logits = next_token._program(model)(params, np.array([ids]), np.array([[len(ids) - 1]]))
            ids.append(int(logits[0].argmax()))
        assert answer == tokenizer.decode(ids[-5:]).split("Question:")[0]


@pytest.mark.slow  # a whole run of the command, twice
def test_a_stopped_run_of_gsm8k_resumes(tmp_path, monkeypatch, capsys):
    arguments = ["--config=configs/associations/gsm8k.py:model=phi3,scale=tiny"]
    arguments += ["--config.figure.questions=2", f"--workdir={tmp_path / 'run'}"]
    answers, calls = gsm8k.answers, []

    def counted(*args):
        calls.append(len(args[3]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers(*args)

    monkeypatch.setattr(gsm8k, "answers", counted)
    assert main(arguments) == 130
    assert main(arguments) == 0 and calls == [2, 2, 2]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert set(result["metrics"]) == {"accuracy", "accuracy_cut", "accuracy_gain"}
    with pytest.raises(UserError, match="no file nowhere: download"):
        gsm8k.read("nowhere")
    (tmp_path / "bad").write_text('{"question": "a"}\n')
    with pytest.raises(UserError, match=r"bad, line 1: expected .*question"):
        gsm8k.read(str(tmp_path / "bad"))


def test_models_are_read_from_the_folder_in_jaxformer_models(tmp_path, monkeypatch):
    """Folders are named as on the hub, with @REVISION; no network is used."""
    tiny.save("gpt_neox", tmp_path / "Eleuther/tiny@step1", tiny.TEXTS)
    monkeypatch.setenv("JAXFORMER_MODELS", str(tmp_path))
    assert published.open_model("Eleuther/tiny", "step1", 0, "float32")[0].spec.family == "gpt_neox"
    with pytest.raises(UserError, match="has no folder Eleuther/tiny@step2"):
        published.open_model("Eleuther/tiny", "step2", 0, "float32")


WRONG_SETTINGS = (
    ("source", "tiny:gpt5", "unknown kind of tiny model"),
    ("source", "../x", "neither a folder nor the name of a model"),
    ("matrix", "block_9/mlp/in", "matches no path"),
    ("matrix", "final_norm", "needs a matrix"),
    ("dtype", "float3", "unknown dtype"),
    ("fraction", 1.5, r"must be a number in \[0, 1\]"),
)


def test_a_dry_run_refuses_what_a_run_refuses():
    right = {"source": "tiny:gpt2", "matrix": "block_1/mlp/in", "dtype": "float32", "fraction": 0.1}
    files = {"train": "", "test": "", "shots": 1}
    gsm8k.check_gsm8k(**right, **files)
    for field, value, message in WRONG_SETTINGS:
        settings = right | {field: value}
        with pytest.raises(UserError, match=message):
            gsm8k.check_gsm8k(**settings, **files)
        fractions = [settings.pop("fraction")]
        with pytest.raises(UserError, match=message):
            published.check_published(**settings, prompt="madrid", fractions=fractions)


def test_the_matrices_of_a_local_folder_are_checked(tmp_path):
    tiny.save("gpt_neox", tmp_path, tiny.TEXTS)
    published.check_matrix(str(tmp_path), "block_0/mlp/in")
    with pytest.raises(UserError, match="matches no path"):
        published.check_matrix(str(tmp_path), "block_9/mlp/in")


def test_a_network_without_finite_logits_fails_and_its_row_is_null(monkeypatch):
    """All revisions are measured and their rows kept before the run fails."""
    opened = published.open_model

    def broken(source, revision, number, dtype):
        model, params, tokenizer = opened(source, revision, number, dtype)
        bias = {"block_1/mlp/in/bias": np.full(40, np.nan, np.float32)}
        return model, paths.replace(params, bias) if number == 0 else params, tokenizer

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
    model, params, tokenizer = published.open_model("tiny:phi3", "", 0, "float32")
    weights = paths.replace(params, {"final_norm/scale": np.full(16, np.nan, np.float32)})
    with pytest.raises(NotFiniteError, match="expected finite logits"):
        gsm8k.answers(model, weights, tokenizer, ["Madrid is located in"], 3, 1)


def test_a_layer_is_chosen_on_one_half_and_judged_on_the_other():
    """Two halves that choose different blocks, and a constructed answer for each number."""
    p_Cx2xB = np.full((3, 2, 4), 0.1)
    p_Cx2xB[1, 0, 0::2] = 0.5  # block 0 helps the even prompts,
    p_Cx2xB[2, 0, 1::2] = 0.3  # block 1 the odd ones
    assert [chosen_layer.choose(p_Cx2xB[..., i::2]) for i in (0, 1)] == [0, 1]
    metrics = chosen_layer._outcome(p_Cx2xB, p_Cx2xB, False, {}).metrics
    assert metrics["p_target/cut"].mean == pytest.approx(0.1)  # neither helps the other half
    assert metrics["p_target_gain/last"].mean == pytest.approx(0.1)
    apart = chosen_layer._outcome(p_Cx2xB, p_Cx2xB, True, {}).metrics
    assert apart["p_target/cut"].mean == pytest.approx(0.3)


def test_chosen_layers_of_a_tiny_model_and_the_explanation_of_its_last_block():
    outcome = chosen_layer.measure_chosen_layer(
        "tiny:llama", "facts", "", 4, fraction=0.2, dtype="float32", seed=0
    )
    with jax.enable_x64(False):
        model, params, tokenizer = published.open_model("tiny:llama", "", 0, "float32")
        prompts = paper_prompts.prompts_of("facts", 4, 0, tokenizer)
        last = surgery.laser(params, "block_1/mlp/in", 0.2)
        rights, margins = [], []
        for prompt in prompts:
            target = tokenizer.pieces(f" {prompt.target}")[0]
            rights.append(next_probabilities(model, last, tokenizer, prompt.text)[target])
            p = next_probabilities(model, params, tokenizer, prompt.text)
            margins.append(np.log(p[target] / p[tokenizer.pieces(" the")[0]]))
    metrics = outcome.metrics
    assert metrics["p_target/last"].mean == pytest.approx(np.mean(rights), rel=1e-3)
    assert metrics["margin_after"].mean == pytest.approx(np.mean(margins), rel=1e-3)
    rise = metrics["margin_after"].mean - metrics["margin_before"].mean
    assert metrics["margin_rise"].mean == pytest.approx(rise, rel=1e-3)
    chosen_layer.draw_chosen_layer(outcome.arrays, "facts", "", 0.2)


def test_gsm8k_without_its_files_is_refused():
    settings = dict(shots=1, matrix="block_0/mlp/out", fraction=0.1, dtype="float32")
    with pytest.raises(UserError, match="GSM8K needs its two files"):
        gsm8k.check_gsm8k("org/name", train="", test="", **settings)
