"""Advice was applied to the network, which was then judged again."""

import json

import pytest

from jaxformer.core.errors import UserError
from tests.theory import config_json
from theory import advise
from theory.advise import boundaries
from theory.advise.question import parse

# A post-norm network of 24 layers with small weights, in flags.
SMALL = ["--width", "256", "--heads", "4", "--length", "64", "--sigma-v2", "0.2"]


def answer(*flags, config=None, folder=None):
    """Judges the network of a config.json, or of flags alone."""
    words = [*flags]
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
        words.insert(0, str(folder / "config.json"))
    _, question = parse("", words)
    return question, advise.judge(question)


def test_one_change_is_advised_where_it_mends_two_faults(tmp_path):
    """Too large queries make gradients explode too. Smaller ones mend both."""
    config = config_json.GPT2 | {"initializer_range": 0.2, "n_layer": 24}
    question, judged = answer("--length", "128", config=config, folder=tmp_path)
    assert judged["regime"] == "entropy collapse and exploding gradients"
    (line,) = judged["advice"]
    factor = float(line.split("less than ")[1].removesuffix(" each"))
    assert line.startswith("multiply the query and key weights by less than 0.2")
    net = question.architecture
    for scale, regime in ((0.99, "trainable"), (1.02, "entropy collapse")):
        smaller = net.replace(std_q=scale * factor * net.std_q, std_k=scale * factor * net.std_k)
        changed = advise.Question(smaller, question.length)
        assert advise.judge(changed)["regime"] == regime


def test_normalised_queries_get_another_scale_of_the_scores():
    """Their norm undoes any scale of the weights."""
    question, _ = answer(*SMALL, "--layers", "2")
    net = question.architecture.replace(qk_norm=True, score_scale=2.0)
    judged = advise.judge(advise.Question(net, 64, rho0=0.0))
    assert judged["regime"] == "entropy collapse"
    (line,) = judged["advice"]
    factor = float(line.removeprefix("multiply the scale of the scores by less than "))
    changed = net.replace(score_scale=0.99 * factor * 2.0)
    assert advise.judge(advise.Question(changed, 64, rho0=0.0))["regime"] == "trainable"


@pytest.mark.slow
def test_pre_norm_is_advised_to_post_norm_networks_that_it_helps():
    steep = ["--layers", "48", *SMALL, "--sigma-w2", "4", "--activation", "tanh", "--beta", "0.5"]
    steep += ["--sigma-b2", "0.05"]
    _, judged = answer(*steep)
    assert judged["regime"] == "exploding gradients"
    assert judged["advice"] == ["use pre-norm", "or multiply W_V and W_2 of each layer by 0.5"]
    _, changed = answer(*steep, "--pre-norm")
    assert changed["regime"] == "trainable"
    # A residual weight of 2 multiplies the gradient by 2 in each layer of a pre-norm network.
    _, doubled = answer(*steep, "--pre-norm", "--alpha", "2")
    assert doubled["advice"] == ["set both residual weights to 1 (--alpha 1 --alpha-mlp 1)"]


def test_a_second_fault_is_judged_after_the_first_is_mended(tmp_path):
    config = config_json.BERT | {"num_hidden_layers": 40, "initializer_range": 0.2}
    question, judged = answer("--length", "128", config=config, folder=tmp_path)
    assert judged["regime"] == "rank collapse and entropy collapse and exploding gradients"
    first, second, *others = judged["advice"]
    assert first.startswith("multiply the query and key weights by less than 0.3")
    assert second.startswith("then raise alpha from 1 to above ")
    assert others[1:] == [
        "or use at most 2 layers",
        "or multiply W_O and W_2 of each layer by 0.0078",
    ]
    assert others[0].startswith("or multiply the value variance by ") and "e-05" in others[0]
    # The boundary of alpha is that of the network with the smaller queries.
    beta = 0.99 * boundaries.critical_beta(question)
    _, after = answer("--length", "128", "--beta", str(beta), config=config, folder=tmp_path)
    assert f"above {after['critical_alpha']:.3f} " in second


def test_no_weight_separates_tokens_that_enter_alike(tmp_path):
    _, judged = answer("--rho0", "0.999", config=config_json.BERT, folder=tmp_path)
    assert judged["advice"] == [
        "no change of the weights helps: the tokens are alike before the first layer"
    ]


def test_an_existing_mlp_residual_is_not_advised():
    deep = [*SMALL, "--sigma-w2", "0.2", "--layers", "60"]
    _, without = answer(*deep, "--alpha-mlp", "0")
    assert without["advice"][0].startswith(
        "no alpha helps: give the MLP a residual (--alpha-mlp 1)"
    )
    _, with_one = answer(*deep)
    assert with_one["regime"] == "rank collapse"
    assert not any("residual" in line for line in with_one["advice"])


def test_names_of_published_models_are_those_of_load(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXFORMER_MODELS", str(tmp_path))
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2/config.json").write_text(json.dumps(config_json.GPT2))
    _, question = parse("", ["gpt2"])
    assert question is not None and question.architecture.layers == 12
    with pytest.raises(UserError, match="has no folder gpt3"):
        parse("", ["gpt3"])
    with pytest.raises(UserError, match=r"expected a config\.json, the folder of a run or a model"):
        parse("", [str(tmp_path / "nothing")])
