"""A loaded model knows its tokenizer: prompts are texts, and words have tokens and positions."""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import capture, lens
from jaxformer.core.errors import UserError
from jaxformer.data import datasets, preparation
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import tiny
from jaxformer.models.words import Letters
from jaxformer.tasks.language import NextToken

CLEAN, CORRUPTED = "jaxformejaxf", "jaofxrmejaof"


@pytest.fixture(scope="module")
def toy():
    return jaxformer.load("toy:induction")[:2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save("gpt2", tmp_path_factory.mktemp("tiny") / "gpt2", tiny.TEXTS)


def tokens(text):
    return jnp.array([["abcdefghijklmnopqrstuvwxyz".index(letter) for letter in text]])


def margin(logits):
    return logits[0, -1, 14] - logits[0, -1, 23]  # "o" and "x"


# {function: its result for prompts, as a list of arrays}
CALLS = {
    "run": lambda m, p, x, y: [capture.run(m, p, x, names=["pattern"])[0]],
    "intervene": lambda m, p, x, y: [capture.intervene(m, p, x, {"block_1/attn/output": 0})],
    "shapes": lambda m, p, x, y: [s.shape for s in capture.shapes(m, p, x).values()],
    "patch": lambda m, p, x, y: capture.patch(m, p, x, y, "z", margin, by=["head"]).values(),
    "attribute": lambda m, p, x, y: capture.attribute(m, p, x, y, "z", margin).values(),
    "gradients": lambda m, p, x, y: capture.gradients(m, p, x, names="z", metric=margin).values(),
    "lens": lambda m, p, x, y: lens.logit_lens(m, p, x, positions=-1).values(),
    "ablate": lambda m, p, x, y: capture.ablate(m, p, x, "z", margin, how="zero").values(),
    "generate": lambda m, p, x, y: [jaxformer.generate(m, p, x, new=2).tokens],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_text_is_taken_wherever_tokens_are(call, toy):
    by_text, by_tokens = (
        call(*toy, *prompts) for prompts in ((CLEAN, CORRUPTED), (tokens(CLEAN), tokens(CORRUPTED)))
    )
    for one, other in zip(by_text, by_tokens, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_list_of_texts_is_a_batch(toy, tmp_path):
    model, params = toy
    prompts = [CLEAN, CORRUPTED]
    both = np.concatenate([tokens(prompt) for prompt in prompts])
    capture.store(tmp_path / "texts", model, params, prompts, names=["z"])
    capture.store(tmp_path / "tokens", model, params, both, names=["z"])
    by_text, by_tokens = (capture.load_stored(tmp_path / name) for name in ("texts", "tokens"))
    for address, values in by_text.items():
        np.testing.assert_array_equal(values, by_tokens[address])


def test_generated_texts_need_no_tokenizer(toy):
    model, params = toy
    assert jaxformer.generate(model, params, CLEAN, new=4).texts == ["orme"]


def test_a_published_model_knows_its_tokenizer(folder):
    model, params, _ = jaxformer.load(folder)
    text = jaxformer.text(model)
    prompt = "When Mary and John went to a store, John gave a drink to"
    assert text.decode([text.single(" Mary")]) == " Mary"
    shown = text.tokens(prompt)
    first, second = (text.position(prompt, "John", i) for i in (1, -1))
    assert first < second and shown[first] == shown[second] == "' John'"
    assert text.position(prompt, "John", 2) == second
    logits = capture.run(model, params, prompt, names=["pattern"])[0]
    assert logits.shape[1] == len(shown)
    edits = {"block_1/attn/heads": capture.at(0, positions=[second])}
    changed = capture.intervene(model, params, prompt, edits)
    np.testing.assert_array_equal(changed[:, :second], logits[:, :second])
    assert repr(jaxformer.text(folder)).startswith("Text('") and jaxformer.text(model) is text


def test_a_run_on_a_prepared_text_knows_the_tokenizer_of_the_text(tmp_path):
    (tmp_path / "t.txt").write_text("To be or not to be.\n" * 200)
    corpus = datasets.corpus(f"text:{tmp_path / 't.txt'}", documents="line")
    preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0.1, 0.1))
    task = NextToken(tokens=str(tmp_path / "out"), window=8)
    model = decoder(**task.sizes, width=8, layers=1, heads=1, mlp_width=8)
    options = {"steps": 2, "batch_size": 4, "progress": False, "workdir": tmp_path / "run"}
    jaxformer.train(task, model, **options)
    model, params, _ = jaxformer.load(tmp_path / "run")
    assert jaxformer.text(model).single("b") == ord("b")
    out = jaxformer.generate(model, params, "To", new=3)
    assert out.texts and jaxformer.text(model).encode("To") == [84, 111]
    with pytest.raises(UserError, match="is a run: load it"):
        jaxformer.text(tmp_path / "run")


def test_other_models_of_the_class_know_no_tokenizer(toy):
    other = decoder(**vars(toy[0].spec))
    assert other == toy[0]
    with pytest.raises(UserError, match="knows no tokenizer"):
        jaxformer.text(other)


def test_a_copy_in_another_process_has_the_same_spec(toy):
    for copied in (copy.deepcopy(toy[0]), pickle.loads(pickle.dumps(toy[0]))):
        assert copied.spec == toy[0].spec


def test_a_position_is_that_of_the_last_token_of_a_word():
    class Pairs(Letters):  # two letters are a token
        def encode(self, text):
            return [text[i : i + 2] for i in range(0, len(text), 2)]

        def decode(self, ids):
            return "".join(map(str, ids))

    assert Pairs("").position("abcdef", "bcd") == 1
    assert Pairs("").position("abcdef", "e") == 2


PARAMS, MODEL = (
    {"embed": {}},
    decoder(vocab_size=4, length=4, width=8, layers=1, heads=1, mlp_width=8),
)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda toy: capture.capture(toy[1], toy[0], CLEAN, names=["z"]), "Are they exchanged"),
        (lambda toy: capture.names(toy[1]), "the model comes first"),
        (lambda toy: capture.patch(toy[1], toy[0], CLEAN, CLEAN, "z", margin), "exchanged"),
        (lambda toy: jaxformer.generate(toy[1], toy[0], CLEAN, new=1), "exchanged"),
        (lambda toy: capture.run(toy, toy[1], CLEAN), "the model is a tuple"),
        (lambda toy: capture.run(toy[0], {"params": toy[1]}, CLEAN), "one level too deep"),
        (lambda toy: capture.run(toy[0], toy[1], "", names=["z"]), "prompt '' has no token"),
        (
            lambda toy: capture.run(toy[0], toy[1], [CLEAN, "jax"], names=["z"]),
            "have 3 to 12 tokens",
        ),
        (lambda toy: capture.run(toy[0], toy[1], "Jax", names=["z"]), "'J' is none of the letters"),
        (lambda toy: capture.run(MODEL, PARAMS, CLEAN), "Decoder knows no tokenizer"),
        (lambda toy: jaxformer.generate(MODEL, PARAMS, CLEAN, new=1), "load the model with jaxf"),
        (lambda toy: jaxformer.text(toy[0]).single("jax"), r"'jax' is 3 tokens \(j, a, x\)"),
        (lambda toy: jaxformer.text(toy[0]).position("jax", "y"), "'y' is not in the prompt"),
        (lambda toy: jaxformer.text(toy[0]).position("jax", "a", 2), "occurs 1 time in the prompt"),
        (lambda toy: jaxformer.text(toy[0]).position("jax", ""), "is not in the prompt"),
        (lambda toy: jaxformer.text(3), "int knows no tokenizer"),
        (lambda toy: jaxformer.text(toy[0]).decode([[9, 0]]), r"of one text, .* shape \(1, 2\)"),
        (lambda toy: jaxformer.generate(*toy, 5, new=1), "a list of token ids for each prompt"),
        (
            lambda toy: jaxformer.generate(*toy, "jax", new=1, tokenizer=Letters("xaj")),
            r"not belong to the model: .* not at all \(Letters\('xaj'\)\), the model's own",
        ),
    ],
)
def test_a_wrong_call_is_a_one_line_error(call, message, toy):
    with pytest.raises(UserError, match=message) as error:
        call(toy)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_model_is_refused(folder, tmp_path):
    model, params, _ = jaxformer.load(folder)

    class Other(type(jaxformer.text(model))):
        def pieces(self, text):
            return super().pieces(text)[::-1]

    with pytest.raises(UserError, match="the tokenizer does not belong to the model"):
        jaxformer.generate(model, params, "Mary", new=1, tokenizer=Other(folder, 10**6))
    with pytest.raises(UserError, match="does not belong to the model"):
        jaxformer.generate(model, params, "Mary", new=1, tokenizer=Letters("Mary"))
    text = jaxformer.text(folder)
    out = jaxformer.generate(model, params, "Mary", new=2, tokenizer=text)
    assert text.decode(out.tokens[0]) == out.texts[0]  # an array is a list of tokens, too
    with pytest.raises(UserError, match="expected a text, got int"):
        text.encode(5)
