"""The pages name what exists; the walks of docs/adding.md have tests of their own."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import cut
from experiments.shared import flags
from jaxformer.models.pretrained import load_folder, tiny
from theory import advise

PAGES = {file.name: file.read_text() for file in (flags.ROOT / "docs").glob("*.md")}
PAGES |= {name: (flags.ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")}
ADDED = ("configs/mixit/successor.py", "configs/mixit/mixing_rows.py", "configs/mixit/count.py")


@pytest.mark.parametrize("page", PAGES)
def test_the_configs_that_a_page_names_exist(page):
    for name in set(re.findall(r"configs/\w+/\w+\.py", PAGES[page])):
        assert (flags.ROOT / name).exists() or name in ADDED, name


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_links_to_exist(page):
    top = page in ("README.md", "CONTRIBUTING.md")
    folder = flags.ROOT if top else flags.ROOT / "docs"
    for link in re.findall(r"\]\(([\w/.]+)[#)]", PAGES[page]):
        assert (folder / link).exists(), link
    for link in re.findall(r"`(docs/\w+\.md)`", PAGES[page]):
        assert (flags.ROOT / link).exists(), link


def test_the_walk_of_the_signal_page(tmp_path, monkeypatch, capsys):
    """Word for word: a config.json, what is wrong with it, the change, and the config changed."""
    monkeypatch.chdir(tmp_path)
    page = PAGES["signal.md"]
    config = re.search(r"```json\n(.*?)```", page, re.S)[1]
    Path("config.json").write_text(config)
    walk = page[page.index("My loss does not move") : page.index("## A network as it is")]
    asked = re.findall(r"^ +\$ python -m theory\.advise (.*)\n((?: {4,}[^$\n]*\n)+)", walk, re.M)
    assert len(asked) == 4
    for words, shown in asked:
        advise.main(shlex.split(words))
        printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
        lines = [line.strip() for line in shown.splitlines()]
        assert [line for line in printed if line in lines] == lines
        for line in printed:  # what is to be pasted into the config.json
            if found := re.fullmatch(r'config.json +("initializer_range": [\d.]+)', line):
                changed = re.sub(r'"initializer_range": [\d.]+', found[1], config)
                assert changed != config
                Path("changed.json").write_text(changed)


@pytest.mark.slow  # a dozen programs to compile; each step has a short test of its own
def test_the_walk_of_the_models_page(tmp_path, capsys):
    """Word for word, but for the folder."""
    page = PAGES["models.md"].replace("runs/", f"{tmp_path}/").replace("\\\n", " ")
    make, *commands = (
        shlex.split(line)[2:]
        for line in re.findall(r"^    python (?:-m jaxformer|experiments/cut).*", page, re.M)
    )
    assert tiny.main(make[1:]) == 0
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), {})
    for picture in ("map.png", "patch.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert load_folder(tmp_path / "cut-gpt2")[0].spec.layers == 2
    (prompts,) = re.findall(r"^    printf '(.*)' >", page, re.M)
    (tmp_path / "prompts.txt").write_text(prompts.replace("\\n", "\n").replace("\\t", "\t"))
    assert len(commands) == 2 and [cut.main(command) for command in commands] == [0, 0]
    printed = capsys.readouterr().out
    assert "'token_embeddings', 'position_embeddings', 'embedded'" in printed
    assert "rank cut" in printed and "' Spain'" in printed and "nothing cut" in printed
