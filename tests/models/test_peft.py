"""Adapters in the format of peft: theirs here, ours there, and what is refused.

tests/reference/peft.npz has adapters that peft wrote, and their logits.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxformer
from jaxformer import adapters
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.pretrained import load_adapter, save_adapter, save_folder, tiny
from tests.models.families import TOKENS, VOCAB
from tests.models.tiny_configs import CONFIGS

REFERENCE = np.load(Path(__file__).parents[1] / "reference/peft.npz")
KINDS = ("gpt2", "gpt_neox", "llama", "phi3", "qwen3")
TOLERANCE = 1e-5  # of the logits' standard deviation


def write_reference(kind, folder, tensors=(), **fields):
    """Writes the folder of peft for a kind, with other tensors or fields of the config."""
    folder.mkdir(exist_ok=True)
    prefix = f"{kind}/tensors/"
    stored = {n.removeprefix(prefix): REFERENCE[n] for n in REFERENCE if n.startswith(prefix)}
    stored = {name: tensor for name, tensor in {**stored, **dict(tensors)}.items() if tensor.size}
    save_file(stored, folder / "adapter_model.safetensors")
    config = json.loads(str(REFERENCE[f"{kind}/config"])) | fields
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def error_of(logits, expected):
    return np.abs(np.asarray(logits) - expected).max() / expected.std()


def logits_of(model, params):
    return model.apply({"params": params}, TOKENS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_of_peft_has_its_logits_here_also_merged_and_saved_again(kind, tmp_path):
    model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
    expected = REFERENCE[f"{kind}/logits"]
    adapted = load_adapter(write_reference(kind, tmp_path / "theirs"), model, params)
    assert error_of(logits_of(model, adapted), expected) < TOLERANCE
    assert error_of(logits_of(model, adapters.merge(adapted)), expected) < TOLERANCE
    assert error_of(logits_of(model, params), expected) > 0.05
    save_adapter(tmp_path / "ours", model, adapted, base=kind)
    theirs, ours = (
        load_file(tmp_path / name / "adapter_model.safetensors") for name in ("theirs", "ours")
    )
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor)
    again = load_adapter(tmp_path / "ours", model, params)
    for path, leaf in paths.flatten(adapted).items():
        np.testing.assert_allclose(paths.flatten(again)[path], leaf, rtol=1e-6)


SOME_EXPERTS = (
    (".*/attn/.*/kernel", "lora(3, alpha=2)"),
    ("block_1/mlp/expert_0/in/kernel", "lora(2, alpha=5)"),
    ("block_1/mlp/expert_2/out/kernel", "lora(1, alpha=3)"),
    (".*", "frozen"),
)


def of_our_own(kind, rules=None):
    """A model with adapters of other ranks and scales in each kernel of a joined tensor."""
    model, params, config = tiny.tiny(CONFIGS[kind], VOCAB)
    rules = rules or (
        ("block_0/attn/query/kernel", "lora(2, alpha=3)"),
        (".*/attn/value/kernel", "lora(3)"),
        (".*/mlp/.*/kernel", "lora(1, alpha=2, stabilised)"),
        (".*", "frozen"),
    )
    added = adapters.add(params, Partition(rules).adapters(params), jax.random.key(0))

    def moved(path, leaf):
        key = jax.random.key(len(path))
        noise = jax.random.normal(key, leaf.shape)
        return leaf + 0.3 * noise if path.endswith("lora_b") else leaf

    return model, paths.map_with_path(moved, added), params, config


@pytest.mark.parametrize("kind", ("gpt2", "gpt_neox", "phi3"))
def test_kernels_that_are_one_tensor_on_disk_keep_their_own_adapters(kind, tmp_path):
    model, adapted, params, _ = of_our_own(kind)
    again = load_adapter(save_adapter(tmp_path / "ours", model, adapted), model, params)
    expected = np.asarray(logits_of(model, adapted))
    assert error_of(logits_of(model, again), expected) < TOLERANCE
    assert error_of(logits_of(model, params), expected) > 0.05


ATTENTION = (".*/attn/.*/kernel", "lora(3, alpha=2)")
ONE_EXPERT = (".*/mlp/expert_3/(gate|out)/kernel", "lora(2, alpha=5)")
ROUTERS = (".*/mlp/router/kernel", "lora(4, alpha=64)")
# {name: (kind, rules)}; each family of mixtures, its routers alone, and with experts.
MIXTURES = {
    "some experts": ("mixtral", SOME_EXPERTS[:-1]),
    "mixtral, one router": ("mixtral", (("block_1/mlp/router/kernel", "lora(2)"),)),
    "mixtral, routers": ("mixtral", (ATTENTION, ROUTERS)),
    "mixtral, all": ("mixtral", (ATTENTION, ONE_EXPERT, ROUTERS)),
    "olmoe, routers": ("olmoe", ((".*/mlp/router/kernel", "lora(2, stabilised)"), ATTENTION)),
    "olmoe, all": ("olmoe", (ATTENTION, ONE_EXPERT, ROUTERS)),
    "qwen3_moe, routers": ("qwen3_moe", (ATTENTION, ROUTERS)),
    "qwen3_moe, all": ("qwen3_moe", (ATTENTION, ONE_EXPERT, ROUTERS)),
    "qwen2_moe": ("qwen2_moe", (ATTENTION, (".*/mlp/(shared/)?(gate|in|out)/kernel", "lora(2)"))),
    "gpt_oss": ("gpt_oss", (ATTENTION,)),
}


@pytest.mark.filterwarnings("ignore")  # their deprecations
@pytest.mark.parametrize("name", [*KINDS, *MIXTURES])
def test_peft_and_transformers_read_our_folders(name, tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch, a reference only")
    peft = pytest.importorskip("peft", reason="needs peft, a reference only")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    kind, rules = MIXTURES.get(name, (name, None))
    rules = rules and (*rules, (".*", "frozen"))
    model, adapted, params, config = of_our_own(kind, rules)
    expected = np.asarray(logits_of(model, adapted))
    save_folder(tmp_path / "base", model, params, config)
    save_folder(tmp_path / "merged", model, adapters.merge(adapted), config)
    save_adapter(tmp_path / "adapter", model, adapted, base=str(tmp_path / "base"))

    def theirs(folder):
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        )

    with_adapter = peft.PeftModel.from_pretrained(theirs(tmp_path / "base"), tmp_path / "adapter")
    for network in (with_adapter, theirs(tmp_path / "merged")):
        with torch.no_grad():
            logits = network.eval()(input_ids=torch.tensor(TOKENS)).logits.numpy()
        assert error_of(logits, expected) < TOLERANCE


def test_all_experts_of_a_block_are_written_with_one_rank_and_scale(tmp_path):
    """peft joins them and reads no pattern for one: their scales were wrong in silence."""
    model, adapted, params, _ = of_our_own("mixtral", SOME_EXPERTS)
    folder = save_adapter(tmp_path / "ours", model, adapted)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (2, 5)
    patterns = config["rank_pattern"] | config["alpha_pattern"]
    assert patterns and not any("experts" in name for name in patterns)
    tensors = load_file(folder / "adapter_model.safetensors")
    ranks = {t.shape[0] for name, t in tensors.items() if "experts" in name and "lora_A" in name}
    assert ranks == {2}
    n_written = sum("layers.1" in name and "experts" in name for name in tensors)
    assert n_written == 2 * 3 * model.spec.experts
    again = load_adapter(folder, model, params)
    assert error_of(logits_of(model, again), np.asarray(logits_of(model, adapted))) < TOLERANCE


@pytest.mark.parametrize("kind", ["mixtral", "olmoe", "qwen3_moe"])
def test_routers_are_written_with_the_rank_and_scale_that_peft_reads(kind, tmp_path):
    """peft reads those of a router from r and lora_alpha alone."""
    model, adapted, params, _ = of_our_own(kind, (ATTENTION, ONE_EXPERT, ROUTERS, (".*", "frozen")))
    folder = save_adapter(tmp_path / "ours", model, adapted)
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    routers = [t for name, t in tensors.items() if ".gate.lora_A" in name]
    experts = [t for name, t in tensors.items() if ".experts." in name and "lora_A" in name]
    assert routers and experts
    assert {tensor.shape[0] for tensor in (*routers, *experts)} == {config["r"]} == {4}
    patterns = config["rank_pattern"] | config["alpha_pattern"]
    assert patterns and all("attn" in name for name in patterns)
    again = load_adapter(folder, model, params)
    assert error_of(logits_of(model, again), np.asarray(logits_of(model, adapted))) < TOLERANCE


@pytest.mark.parametrize(
    "kind, pattern",
    [
        ("qwen2_moe", "block_1/mlp/expert_0/out/kernel"),
        ("qwen2_moe", "block_1/mlp/router/kernel"),
        ("gpt_oss", "block_0/mlp/router/kernel"),
        ("gpt_oss", "block_0/mlp/expert_0/(in|out)/kernel"),
        ("qwen3_moe", "block_1/mlp/out/kernel"),  # of a block without experts
    ],
)
def test_an_adapter_that_peft_would_drop_is_refused(kind, pattern, tmp_path):
    rules = (ATTENTION, (pattern, "lora(2)"), (".*", "frozen"))
    model, adapted, _, _ = of_our_own(kind, rules)
    with pytest.raises(UserError, match=f"peft reads no adapter of {pattern} of a {kind}.*merge"):
        save_adapter(tmp_path / "ours", model, adapted)
    assert not (tmp_path / "ours").exists()


MODULE = "base_model.model.model.layers.0.self_attn.q_proj"
EMPTY = np.zeros(0)


@pytest.mark.parametrize(
    "fields, tensors, message",
    [
        ({"peft_type": "IA3"}, {}, "peft_type 'IA3' is not supported; only LORA is"),
        ({"use_dora": True}, {}, r"use_dora = True is not supported \(DoRA\)"),
        ({"bias": "all"}, {}, "bias = 'all' is not supported"),
        ({"init_lora_weights": "pissa"}, {}, "init_lora_weights = 'pissa' is not supported"),
        ({"modules_to_save": ["lm_head"]}, {}, "modules_to_save = .* is not supported"),
        ({"r": None}, {}, "r must be a number from 1 to 1,000,000, got None"),
        ({"r": 0}, {}, "r must be a number from 1 to 1,000,000, got 0"),
        ({"r": True}, {}, "r must be a number from 1 to 1,000,000, got True"),
        ({"r": 10**400}, {}, r"r must be a number from 1 to 1,000,000, got 1000.*\.\."),
        ({"r": 5}, {}, r"gives .*layers.0.* the rank 5, but its lora_A has the rank 2"),
        ({"lora_alpha": "8"}, {}, "lora_alpha must be a number below 1e.30, got '8'"),
        ({"lora_alpha": float("nan")}, {}, "lora_alpha must be a number below 1e.30, got nan"),
        ({"lora_alpha": float("inf")}, {}, "lora_alpha must be a number below 1e.30, got inf"),
        ({"lora_alpha": 10**400}, {}, r"lora_alpha must be a number .* got 1000.*\.\."),
        ({"lora_alpha": True}, {}, "lora_alpha must be a number below 1e.30, got True"),
        ({"use_rslora": "false"}, {}, "use_rslora must be true or false, got 'false'"),
        ({"use_rslora": 1}, {}, "use_rslora must be true or false, got 1"),
        ({"rank_pattern": [1]}, {}, r"rank_pattern must be an object, got \[1\]"),
        ({"alpha_pattern": "x"}, {}, "alpha_pattern must be an object, got 'x'"),
        ({"rank_pattern": {"q_proj": 0}}, {}, r"rank_pattern\['q_proj'\] must be a number from 1"),
        ({"alpha_pattern": {"q_proj": None}}, {}, r"alpha_pattern\['q_proj'\] must be a number be"),
        ({"alpha_pattern": {"q_proj": float("nan")}}, {}, "must be a number below 1e.30, got nan"),
        ({"rank_pattern": {"(": 4}}, {}, r"rank_pattern: '\(' is not a regular expression"),
        ({"alpha_pattern": {"a)|(b": 4}}, {}, r"alpha_pattern: 'a\)\|\(b' is not a regular expres"),
        ({"alpha_pattern": {"(([a-z._0-9]+)+)+!": 4}}, {}, "can match in too many ways"),
        (
            {},
            {f"{MODULE}.lora_A.weight": np.full((2, 16), np.nan)},
            "lora_A of .* has numbers that",
        ),
        (
            {},
            {f"{MODULE}.lora_B.weight": np.full((32, 2), np.inf)},
            "lora_B of .* has numbers that",
        ),
        (
            {},
            {f"{MODULE}.lora_A.weight": np.full((2, 16), 1e300)},
            "are nan, infinite or beyond fl",
        ),
        (
            {},
            {f"{MODULE}.lora_{x}.weight": EMPTY for x in "AB"},
            r"tensors of \d+ modules, but target_modules of .* names \d+, such as model.layers.0.s",
        ),
        ({"rank_pattern": {"q_proj": 3}}, {}, "gives .*q_proj the rank 3, but its lora_A has the"),
        (
            {},
            {f"{MODULE}.lora_B.weight": EMPTY},
            "needs matrices lora_A and lora_B of model.layers",
        ),
        ({}, {f"{MODULE}.lora_A.weight": np.ones((3, 16))}, "lora_A and lora_B of .* do not fit"),
        ({}, {f"{MODULE}.lora_A.weight": np.ones((2, 9))}, "the adapter of another model, such as"),
        ({}, {"base_model.model.x.lora_magnitude_vector": np.ones(3)}, "is no lora_A or lora_B of"),
        (
            {},
            {
                f"base_model.model.model.layers.0.mlp.experts.lora_{x}.weight": np.ones((2, 2))
                for x in "AB"
            },
            "mlp.experts, where peft joins all experts into one adapter, which is not supported",
        ),
        (
            {},
            {f"base_model.model.head.lora_{x}.weight": np.ones((2, 2)) for x in "AB"},
            "adapts head, which is no linear map of a llama model: is it the adapter of another",
        ),
    ],
)
def test_a_folder_of_peft_that_does_not_fit_is_a_one_line_error(fields, tensors, message, tmp_path):
    model, params, _ = tiny.tiny(CONFIGS["llama"], VOCAB)
    folder = write_reference("llama", tmp_path / "bad", tensors, **fields)
    with pytest.raises(UserError, match=message):
        load_adapter(folder, model, params)


ONE_LAYER = {"target_modules": ["q_proj", "k_proj"], "layers_to_transform": [0], "r": 2}


def one_layer(folder, modules, **fields):
    """Writes a folder of peft with adapters of some modules of the first layer."""
    tensors = {}
    for module in modules:
        n_outputs = 32 if module == "q_proj" else 16
        stem = f"base_model.model.model.layers.0.self_attn.{module}"
        tensors |= {f"{stem}.lora_A.weight": np.ones((2, 16), np.float32)}
        tensors |= {f"{stem}.lora_B.weight": np.ones((n_outputs, 2), np.float32)}
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "lora_alpha": 4} | ONE_LAYER | fields
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "modules, fields",
    [
        (("q_proj", "k_proj"), {}),
        (("q_proj", "k_proj"), {"layers_pattern": "layers"}),
        (("q_proj",), {"exclude_modules": ["k_proj"]}),
        (("q_proj",), {"exclude_modules": r".*\.k_proj"}),
        (
            ("q_proj",),
            {"target_modules": r"model\.layers\.0\..*q_proj", "layers_to_transform": None},
        ),
        (("q_proj",), {"target_modules": None}),  # then the tensors alone say it
    ],
)
def test_a_folder_with_the_tensors_that_its_config_names_is_read(modules, fields, tmp_path):
    model, params, _ = tiny.tiny(CONFIGS["llama"], VOCAB)
    loaded = load_adapter(one_layer(tmp_path / "a", modules, **fields), model, params)
    assert len(adapters.adapted_kernels(loaded)) == len(modules)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"layers_pattern": ["blocks", "layers"]},
        {"target_modules": r".*\.(q|k)_proj", "layers_to_transform": 0},
        {"target_modules": ["q_proj"], "layers_to_transform": None},  # of both layers
        {"target_modules": "all-linear"},
    ],
)
def test_a_part_of_an_upload_is_refused(fields, tmp_path):
    model, params, _ = tiny.tiny(CONFIGS["llama"], VOCAB)
    folder = one_layer(tmp_path / "a", ["q_proj"], **fields)
    with pytest.raises(UserError, match=r"tensors of 1 modules, but .* is it a part of an upload"):
        load_adapter(folder, model, params)


def test_a_slow_pattern_of_target_modules_is_not_tried(tmp_path):
    model, params, _ = tiny.tiny(CONFIGS["llama"], VOCAB)
    folder = one_layer(tmp_path / "a", ["q_proj"], target_modules="(([a-z._0-9]+)+)+!")
    with pytest.warns(UserWarning, match="not checked whether all .* can match in too many ways"):
        load_adapter(folder, model, params)


def test_what_cannot_be_saved_or_loaded_says_what_to_do(tmp_path):
    model, adapted, params, config = of_our_own("llama")
    with pytest.raises(UserError, match=r"would leave out the adapter of .* merge it first"):
        save_folder(tmp_path / "model", model, adapted, config)
    with pytest.raises(UserError, match="no adapter to save"):
        save_adapter(tmp_path / "adapter", model, params)
    members = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), adapted)
    with pytest.raises(UserError, match=r"one member, such as run.member"):
        save_adapter(tmp_path / "adapter", model, members)
    folder = write_reference("llama", tmp_path / "theirs")
    with pytest.raises(UserError, match="has an adapter already: merge it before you load"):
        load_adapter(folder, model, adapted)
    with pytest.raises(UserError, match=r"not a model: load its base model \(llama\), then add"):
        jaxformer.load(folder)
    with pytest.raises(UserError, match=r"model has no adapter of peft: .* adapter_config.json"):
        load_adapter(tmp_path / "model", model, params)
    tensors = folder / "adapter_model.safetensors"
    save_file({}, tensors)
    with pytest.raises(UserError, match=r"adapter_model.safetensors is empty: it adapts nothing"):
        load_adapter(folder, model, params)
    tensors.rename(folder / "adapter_model.bin")
    with pytest.raises(UserError, match=r"theirs has no adapter of peft: .* pickle, which is ref"):
        load_adapter(folder, model, params)
