"""The pages name what exists; the walks of docs/adding.md have tests of their own."""

import re
import shlex
from pathlib import Path

import pytest

from experiments.cli import flags
from tests.docs.blocks import pages
from theory import advise

PAGES = pages()
ADDED = ("configs/mixit/successor.py", "configs/mixit/mixing_rows.py", "configs/mixit/count.py")


@pytest.mark.parametrize("page", PAGES)
def test_the_configs_that_a_page_names_exist(page):
    for name in set(re.findall(r"configs/\w+/\w+\.py", PAGES[page])):
        assert (flags.ROOT / name).exists() or name in ADDED, name


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_links_to_exist(page):
    for link in re.findall(r"\]\(([\w/.-]+)[#)]", PAGES[page]):
        assert (flags.ROOT / page).parent.joinpath(link).exists(), link
    for link in re.findall(r"`(docs/\w+\.md)`", PAGES[page]):
        assert (flags.ROOT / link).exists(), link


def test_the_walk_of_the_signal_page(tmp_path, monkeypatch, capsys):
    """Word for word: a config.json, what is wrong with it, the change, and the config changed."""
    monkeypatch.chdir(tmp_path)
    page = PAGES["docs/signal.md"]
    config = re.search(r"```json\n(.*?)```", page, re.S)[1]
    Path("config.json").write_text(config)
    walk = page[page.index("My loss does not move") : page.index("## Runs and published models")]
    asked = re.findall(r"^ *\$ python -m theory\.advise (c.*)\n((?: *[^$`\n]+\n)+)", walk, re.M)
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
