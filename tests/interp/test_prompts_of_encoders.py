"""An encoder answers in place of the mask token, and is trained on masked words of a text."""

import jax
import numpy as np
import pytest
import tokenizers

import jaxformer
from experiments import look
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.data import datasets, preparation
from jaxformer.models.pretrained import tiny
from jaxformer.models.pretrained.text import Text
from jaxformer.models.pretrained_init import from_params
from jaxformer.studies.anatomy.inside import measure
from jaxformer.studies.anatomy.pairs import pairs_of_task, read_pairs
from jaxformer.tasks import Arrays
from jaxformer.tasks.language import MaskedTokens
from jaxformer.tasks.source import make_source
from tests.models.tiny_configs import CONFIGS

WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK]",
    *["the", "cat", "dog", "sat", "ran", "on", "a", "mat", ",", "."],
]
VOCAB = {word: i for i, word in enumerate(WORDS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with a tokenizer of words, which puts a text between [CLS] and [SEP]."""
    folder = tiny.save(CONFIGS["bert"], tmp_path_factory.mktemp("tiny") / "bert", vocab=len(WORDS))
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCAB, unk_token="[UNK]"))
    model.add_special_tokens(WORDS[:5])
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    model.save(str(folder / "tokenizer.json"))
    return folder


def pairs(folder, tmp_path, *lines):
    file = tmp_path / "prompts.tsv"
    file.write_text("\n".join("\t".join(line) for line in lines))
    return read_pairs(file, Text(folder, len(WORDS)), causal=False)


def test_the_score_is_read_at_the_mask(folder, tmp_path):
    read = pairs(folder, tmp_path, ("the cat [MASK] on", "a dog [MASK] on", "sat", "ran"))
    assert read.clean.tolist() == [[1, 5, 6, 3, 10, 2]] and read.position.tolist() == [[3]]
    model, params, _ = jaxformer.load(folder)
    logits = np.asarray(model.apply({"params": params}, read.clean))
    margin = logits[0, 3, VOCAB["sat"]] - logits[0, 3, VOCAB["ran"]]
    assert measure(model, params, read, methods=(), heads=False).score == pytest.approx(margin)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("the cat", "a cat", "sat", "ran"), r"needs one '\[MASK\]' in place .* got 0"),
        (("[MASK] [MASK]", "[MASK] a", "sat", "ran"), "got 2"),
        (("the [MASK]", "[MASK] cat", "sat", "ran"), "their mask at one place"),
    ],
)
def test_a_prompt_without_its_mask_is_a_one_line_error(folder, tmp_path, line, words):
    with pytest.raises(UserError, match=words) as error:
        pairs(folder, tmp_path, line)
    assert "\n" not in str(error.value)


def test_an_encoder_is_not_scored_on_next_tokens(folder):
    model, params, _ = jaxformer.load(folder)
    task = Arrays(np.random.default_rng(0).integers(5, len(WORDS), (200, 6)))
    pairs = pairs_of_task(task)
    with pytest.raises(UserError, match="ask for the next token"):
        measure(model, params, pairs, methods=())


@pytest.mark.slow
def test_look_shows_what_the_blocks_predict_at_the_mask(folder, tmp_path, capsys):
    prompt = "the cat [MASK] on a mat"
    assert look.main([str(folder), "--prompt", prompt, f"--plot={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    model, params, _ = jaxformer.load(folder)
    tokens = np.array([Text(folder, len(WORDS)).encode(prompt)])
    p_V = jax.nn.softmax(model.apply({"params": params}, tokens)[0, 3])
    row = next(line for line in printed.splitlines() if line.startswith("block_1"))
    assert row.split()[1] == repr(WORDS[int(p_V.argmax())])
    assert row.split()[2] == f"{p_V.max():.4f}"[: len(row.split()[2])]
    assert "attention from '[MASK]'" in printed and "next token" not in printed
    assert look.main([str(folder), "--prompt", "the cat", f"--plot={tmp_path}"]) == 2
    assert "needs one '[MASK]'" in capsys.readouterr().err


@pytest.mark.slow
def test_an_encoder_is_tuned_on_masked_words_of_its_own_tokens(folder, tmp_path):
    lines = (" ".join(np.random.default_rng(i).choice(WORDS[5:], 9)) for i in range(200))
    (tmp_path / "words.txt").write_text("\n".join(lines))
    corpus = datasets.corpus(f"text:{tmp_path / 'words.txt'}", documents="line")
    kind = str(folder / "tokenizer.json")
    preparation.prepare(corpus, tmp_path / "words", kind=kind, shares=(0.1, 0.1))
    task = MaskedTokens(tokens=str(tmp_path / "words"), window=8)
    inputs = make_source(task, DataSettings(), 4).heldout().test.inputs
    assert (inputs[:, 0] == VOCAB["[CLS]"]).all() and (inputs[:, -1] == VOCAB["[SEP]"]).all()
    assert (inputs == VOCAB["[MASK]"]).any()
    model, params, _ = jaxformer.load(folder)
    run = jaxformer.train(
        task,
        from_params(model, params),
        steps=60,
        batch_size=16,
        learning_rate=1e-2,
        progress=False,
    )
    # The words are random, so their frequencies are all there is to know.
    assert run.result.metrics["loss"].mean == pytest.approx(np.log(10), abs=0.3)
