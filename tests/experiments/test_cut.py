"""cut.py: both distributions, the cut model on disk, and a search that resumes."""

import json
import re

import jax
import numpy as np
import pytest

import jaxformer
from experiments import export, generate, look
from experiments.cut import main
from experiments.papers.associations import blockwise, laser_search, next_token
from jaxformer import surgery
from jaxformer.core import paths
from jaxformer.models.pretrained import save_folder, text, tiny
from tests.models.tiny_configs import CONFIGS
from theory.advise import main as advise

PROMPT = "Madrid is located in"
LINES = f"{PROMPT}\tSpain\nParis is located in the southern one\tFrance\nRome is\tSouthampton\n"
SEARCH = ("--search", "--fraction=0.1,1", "--against=the")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save("gpt2", tmp_path_factory.mktemp("model") / "gpt2", tiny.TEXTS)


def fails(capsys, *arguments):
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


def test_a_cut_prints_both_distributions_and_saves_the_model(folder, tmp_path, capsys):
    arguments = [
        "--matrix=block_1/mlp/in",
        "--fraction=0.1",
        f"--prompt={PROMPT}",
        "--target=Spain",
    ]
    assert main([str(folder), *arguments, f"--save={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "block_1/mlp/in/kernel: 16 x 64, rank 1 kept" in printed
    model, params, _ = jaxformer.load(folder)
    cut = jaxformer.load(tmp_path)[1]
    expected = surgery.laser(params, "block_1/mlp/in", 0.1)
    for path, leaf in paths.flatten(expected).items():
        np.testing.assert_array_equal(paths.flatten(cut)[path], leaf)
    kernel = cut["block_1"]["mlp"]["in"]["kernel"]
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == 1
    tokenizer = text.Text(folder, model.spec.vocab_size)
    tokens = np.array([tokenizer.encode(PROMPT)])
    (row,) = [line for line in printed.splitlines() if line.startswith("' Spain'")]
    for weights, shown in ((params, row.split()[2]), (cut, row.split()[4])):
        p = jax.nn.softmax(model.apply({"params": weights}, tokens)[0, -1])
        assert float(shown) == pytest.approx(float(p[tokenizer.pieces(" Spain")[0]]), abs=1e-4)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_a_search_scores_each_cut_of_laser_and_resumes(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "p.txt").write_text(LINES)
    model, params, _ = jaxformer.load(folder)
    arguments = [
        str(folder),
        *SEARCH,
        f"--prompts={tmp_path / 'p.txt'}",
        f"--out={tmp_path / 'out'}",
    ]
    blockwise._programs.cache_clear()
    traces = []

    def recorded(name, function):
        return lambda *args, **options: (traces.append(name), function(*args, **options))[1]

    for name in ("capture", "run", "intervene"):  # enter, advance and leave call one each
        monkeypatch.setattr(blockwise, name, recorded(name, getattr(blockwise, name)))
    decompose, shapes = surgery.decompose, []

    def counted(matrix):
        if len(shapes) == 2:
            raise KeyboardInterrupt
        shapes.append(matrix.shape)
        return decompose(matrix)

    monkeypatch.setattr(surgery, "decompose", counted)
    assert main(arguments) == 130
    file = tmp_path / "out" / "rows.jsonl"
    assert len(file.read_text().splitlines()) == 1 + 2 * 2
    file.write_text(file.read_text()[:-9])  # a line that was cut off
    monkeypatch.setattr(surgery, "decompose", decompose)
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "'Southampton' is" in printed  # a target of several tokens has a note
    assert "The best layer by ratio on every other prompt" in printed
    assert sorted(traces) == ["capture", "intervene", "run"]  # every program was traced once
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 1 + 4 * 2 and [*rows[0]][:3] == ["matrix", "fraction", "rank"]
    pairs = [line.split("\t") for line in LINES.splitlines()]
    batch = next_token.encode(text.Text(folder, model.spec.vocab_size), *zip(*pairs))
    for row in rows[1:]:
        cut = surgery.laser(params, row["matrix"], row["fraction"])
        logs = next_token.log_probabilities(model, cut, batch)
        log_p = logs[np.arange(3), batch.targets_B]
        assert row["p_target"] == pytest.approx(np.exp(log_p).mean(), rel=1e-4)
        assert row["rank"] == (1 if row["fraction"] == 0.1 else 16)
    full = [row["p_target"] for row in rows if row["fraction"] == 1]
    np.testing.assert_allclose(full, rows[0]["p_target"], rtol=1e-4)
    assert "holds rows of other settings" in fails(capsys, *arguments, "--dtype=bfloat16")


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("gpt_neox", marks=pytest.mark.slow)])
def test_blockwise_probabilities_are_those_of_the_whole_model(kind, monkeypatch):
    """Blocks below a changed one are not computed again."""
    model, params, _ = tiny.tiny(CONFIGS[kind], 24)
    tokens = np.random.RandomState(0).randint(0, 24, (5, 7))
    prompts = next_token.PromptBatch(tokens, np.array([[6], [3], [6], [5], [6]]), tokens[:, 0], ())
    log_probabilities = blockwise.make_log_probabilities(model, params, prompts, 2)
    programs, calls = blockwise._programs(model), []

    def counted(*arguments):
        calls.append(arguments)
        return programs.advance(*arguments)

    monkeypatch.setattr(blockwise, "_programs", lambda _: programs._replace(advance=counted))
    changed = {"": 2, "block_0/mlp/in/kernel": 2, "block_1/attn/out/kernel": 2}
    changed |= {"block_1/mlp/in/kernel": 1, "block_0/attn/key/kernel": 2, "embed/embedding": 2}
    if kind == "gpt_neox":
        changed["unembed/kernel"] = 2
    for path, blocks in changed.items():
        cut = paths.replace(params, {path: 0.5 * paths.flatten(params)[path]}) if path else params
        calls.clear()
        logs = log_probabilities(cut, path)
        assert len(calls) == blocks * 3, path  # three parts of two prompts
        expected = next_token.log_probabilities(model, cut, prompts)
        np.testing.assert_allclose(logs, expected, atol=1e-5)


def test_matrices_are_sorted_by_block_number():
    kernel = {"in": {"kernel": np.ones((2, 2))}, "out": {"kernel": np.ones((2, 2))}}
    params = {f"block_{i}": {"mlp": kernel} for i in range(11)}
    matrices = laser_search.matching_matrices(params, r"block_\d+/mlp")
    assert [path[:8] for path in matrices[:4]] == ["block_0/", "block_0/", "block_1/", "block_1/"]
    assert matrices[-1] == "block_10/mlp/out/kernel"


def test_cuts_are_ranked_by_the_ratio_and_layers_chosen_on_the_first_half():
    def row(matrix, target, against):
        halves = [
            {"p_target": p, "log_p_target": np.log(p), "p_against": q}
            for p, q in zip(target, against, strict=True)
        ]
        return {"matrix": matrix, "fraction": 0.1, **halves[0], "halves": halves}

    rows = [
        row("block_0/mlp/in/kernel", (0.5, 0.1), (0.5, 0.1)),
        row("block_1/mlp/in/kernel", (0.2, 0.9), (0.01, 0.1)),
        row("block_1/mlp/out/kernel", (0.1, 0.1), (0.001, 0.1)),
    ]
    for sort, order in (("target", [0, 1, 2]), ("ratio", [2, 1, 0]), ("against", [2, 1, 0])):
        ranked = sorted(range(3), key=lambda i: -laser_search.rank_value(rows[i], sort))
        assert ranked == order
    best = laser_search.best_by_kind(rows, "ratio")
    assert {kind: row["matrix"][:7] for kind, row in best.items()} == {
        "mlp/in": "block_1",
        "mlp/out": "block_1",
    }
    assert laser_search.best_by_kind(rows, "target")["mlp/in"]["matrix"][:7] == "block_0"


def test_a_search_of_another_model_is_refused(folder, tmp_path, capsys):
    model = tiny.save("gpt2", tmp_path / "model", tiny.TEXTS)
    (tmp_path / "p.txt").write_text("Madrid is\tSpain\n")
    arguments = [model, "--search", "--fraction=1", "--matrix=block_0/mlp/in"]
    arguments += [f"--prompts={tmp_path / 'p.txt'}", f"--out={tmp_path / 'out'}"]
    assert main([*map(str, arguments)]) == 0
    tiny.save("gpt2", model, tiny.TEXTS, seed=1)
    assert "nothing cut" in capsys.readouterr().out
    assert "holds rows of other settings" in fails(capsys, *arguments)
    (tmp_path / "out/search.json").write_text("{")
    assert "holds rows of other settings" in fails(capsys, *arguments)
    arguments[-1] = f"--out={folder}"
    assert "holds other files" in fails(capsys, *arguments)


def test_a_padded_prompt_has_the_probabilities_of_the_prompt_alone(folder):
    model, params, _ = jaxformer.load(folder)
    tokenizer = text.Text(folder, model.spec.vocab_size)
    both = next_token.encode(tokenizer, [PROMPT, f"{PROMPT} the southern one of Italy"])
    alone = next_token.encode(tokenizer, [PROMPT])
    first = next_token.log_probabilities(model, params, both)[0]
    np.testing.assert_allclose(
        first, next_token.log_probabilities(model, params, alone)[0], atol=1e-5
    )


def test_a_run_is_cut_with_prompts_of_token_ids(finished, capsys):
    arguments = ["--matrix=block_1/mlp/in", "--fraction=0.5", "--prompt=5 9 5", "--target=9"]
    assert main([str(finished), *arguments]) == 0
    assert "block_1/mlp/in/kernel: 16 x 64, rank 8 kept" in capsys.readouterr().out
    arguments[2] = "--prompt=five nine"
    assert "a prompt is token ids such as '5 17 2'" in fails(capsys, finished, *arguments)
    assert "dtype, place and devices are options of published models" in fails(
        capsys, finished, *arguments, "--dtype=bfloat16"
    )


def test_commands_for_runs_refuse_a_published_model(folder, tmp_path, capsys):
    """They need the task of a run, which a published model lacks."""
    for command, message in (
        (export.main, [folder, tmp_path / "out"]),
        (advise, ["--run", folder]),
    ):
        assert command([*map(str, message)]) == 2
        assert "is a published model, not a run: " in capsys.readouterr().err


def test_saving_never_overwrites_the_model_or_other_files(folder, tmp_path, capsys):
    arguments = ["--matrix=block_1/mlp/in", "--fraction=0.1", f"--prompt={PROMPT}"]
    assert "write over the model" in fails(capsys, folder, *arguments, f"--save={folder}")
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "has other files" in fails(capsys, folder, *arguments, f"--save={tmp_path}")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


WRONG_OPTIONS = (
    (["--fraction=0"], "--fraction must be in (0, 1], got '0'"),
    (["--fraction=1.2"], "--fraction must be in (0, 1], got '1.2'"),
    (["--fraction=x"], "--fraction must be in (0, 1], got 'x'"),
    ([], "give --matrix, one --fraction and --prompt, or --search"),
    (["--matrix=block_9/mlp", "--fraction=.1", "--prompt=the"], "matches no path"),
    (["--matrix=block_1/mlp/in", "--fraction=.1", "--prompt="], "give --matrix"),
    (["--search"], "--search needs --prompts=FILE and --out=FOLDER"),
    (["--search", "--prompts=p", "--out=o", "--sort=ratio"], "--sort=ratio needs --against=TEXT"),
    (["--dtype=banana"], "dtype must be one of"),
    (["--dtype=int32"], "dtype must be one of"),
    (["--dtype=a:b=c,d=e"], "dtype must be one of"),
    (["--revision=step1"], "is no name on the hub: only these have revisions"),
)


def test_wrong_options_are_refused_in_one_line(folder, capsys):
    for options, message in WRONG_OPTIONS:
        assert message in fails(capsys, folder, *options), options


def test_wrong_files_of_prompts_and_tokenizers_are_refused(folder, tmp_path, capsys):
    lines = tmp_path / "p.txt"
    for content, message in (
        (b"no target\n", "line 1: expected prompt, tab, target"),
        (b"a\tb\nno target\t \n", "line 2: expected prompt, tab, target"),
        (b"\n\n", "has no prompt"),
        (b"\xff\tx\n", "is no text in UTF-8"),
    ):
        lines.write_bytes(content)
        arguments = ["--search", f"--prompts={lines}", f"--out={tmp_path / 'out'}"]
        assert message in fails(capsys, folder, *arguments)
    arguments[1] = "--prompts=/dev/zero"
    assert "no file '/dev/zero'" in fails(capsys, folder, *arguments)
    small = tiny.save("gpt2", tmp_path / "small", vocab=24)
    (small / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    arguments = ["--matrix=block_1/mlp/in", "--fraction=.1", "--prompt=the"]
    assert "does not match the model" in fails(capsys, small, *arguments)
    (small / "tokenizer.json").write_text(json.dumps({"a": 1}))
    assert "is not a tokenizer" in fails(capsys, small, *arguments)


@pytest.fixture
def large(folder, tmp_path):
    """Returns a model whose activations exceed float16, but not float32."""
    model, params, config = jaxformer.load(folder)
    flat = paths.flatten(params)
    mlp = {path: 400 * leaf for path, leaf in flat.items() if "/mlp/" in path and leaf.ndim == 2}
    params = paths.replace(params, mlp)
    return save_folder(tmp_path / "large", model, params, config, folder)


def refuse_constant(name):
    raise AssertionError(f"{name} is no JSON")


def test_a_search_without_finite_logits_has_null_scores_and_fails(large, tmp_path, capsys):
    (tmp_path / "p.txt").write_text(LINES)
    arguments = [str(large), *SEARCH, "--matrix=block_1/mlp/in", f"--prompts={tmp_path / 'p.txt'}"]
    assert main([*arguments, f"--out={tmp_path / 'float32'}"]) == 0
    for _ in ("measured", "read from rows.jsonl"):
        assert main([*arguments, f"--out={tmp_path / 'float16'}", "--dtype=float16"]) == 1
        printed = capsys.readouterr()
        assert printed.err.count("error: ") == 1 and printed.err.endswith(
            "error: expected finite logits, got nan or infinity in 3 of 3 rows, which have no "
            "probability, rank or top-1. Try --dtype=float32.\n"
        )
        assert "all 3 rows: " in printed.out and "nan" not in printed.out
    lines = (tmp_path / "float16/rows.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse_constant) for line in lines]
    assert len(rows) == 3
    for row in rows:
        assert row["reason"] == "the logits after 3 of 3 prompts are not finite"
        assert {row[name] for name in ("p_target", "log_p_target", "rank_target", "top_1")} == {
            None
        }


def test_a_comparison_without_finite_logits_shows_no_numbers_and_fails(large, tmp_path, capsys):
    arguments = [str(large), "--matrix=block_1/mlp/in", "--fraction=0.5", f"--prompt={PROMPT}"]
    arguments += ["--target=Spain", f"--save={tmp_path / 'cut'}"]
    assert main([*arguments, "--dtype=float16"]) == 1
    printed = capsys.readouterr()
    (row,) = [line for line in printed.out.splitlines() if line.startswith("' Spain'")]
    assert row.split()[2:] == ["-"] * 4
    assert printed.err.endswith(
        "error: expected finite logits, got nan or infinity from the full model and the cut model "
        "(not saved), which have no probability, rank or top-1. Try --dtype=float32.\n"
    )
    assert not (tmp_path / "cut").exists()
    assert main(arguments) == 0


def test_weights_that_are_not_finite_are_named_as_the_cause(folder, tmp_path, capsys):
    model, params, config = jaxformer.load(folder)
    bias = {"block_1/mlp/out/bias": np.full(16, np.nan, np.float32)}
    broken = save_folder(tmp_path / "broken", model, paths.replace(params, bias), config, folder)
    arguments = ["--matrix=block_1/mlp/in", "--fraction=0.5", f"--prompt={PROMPT}"]
    assert main([str(broken), *arguments]) == 1
    warning, error = capsys.readouterr().err.splitlines()  # the model warns when it is loaded
    assert warning.startswith("warning: parameters of ") and "The weights of " in error
    assert "block_1/mlp/out/bias are not finite" in error and "dtype" not in error


def test_tied_tokens_share_their_rank_in_the_table(folder, tmp_path, capsys):
    model, params, config = jaxformer.load(folder)
    zeros = jax.tree.map(np.zeros_like, params)
    equal = save_folder(tmp_path / "equal", model, zeros, config, folder)
    arguments = [
        "--matrix=block_1/mlp/in",
        "--fraction=0.5",
        f"--prompt={PROMPT}",
        "--target=Spain",
    ]
    assert main([str(equal), *arguments]) == 0
    (row,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("' Spain'")]
    assert float(row.split()[3]) == float(row.split()[5]) == (model.spec.vocab_size + 1) / 2


@pytest.mark.slow  # test_generation.py and test_look.py have both functions
def test_look_and_generate_read_a_published_model(folder, tmp_path, capsys):
    arguments = [str(folder), f"--prompt={PROMPT}"]
    assert look.main([*arguments, "--target=Spain", f"--plot={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"block_1 +' \w+' .*\n", printed) and "p of ' Spain'" in printed
    assert {file.name for file in tmp_path.iterdir()} == {"lens.png", "attention.png"}
    for options in (["--temperature=0"], ["--samples=2", "--top-p=0.9"]):
        assert generate.main([*arguments, "--tokens=4", *options]) == 0
        printed = capsys.readouterr().out
        assert printed.count(PROMPT) == (2 if "--samples=2" in options else 1)
    for command, options, message in (
        (look.main, [str(folder)], "give its text as --prompt=TEXT"),
        (generate.main, [*arguments, "--member=1"], "it has no members"),
        (generate.main, [*arguments, "--chat"], "has no chat template"),
        (generate.main, [*arguments, "--temperature=-1"], "temperature must be at least 0"),
    ):
        assert command(options) == 2
        assert message in capsys.readouterr().err
