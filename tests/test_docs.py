"""The pages name existing things; the walks of docs/adding.md have separate tests."""

import re
import shlex
from pathlib import Path

import pytest

from experiments.cli import flags
from tests.docs.blocks import pages
from theory import advise

PAGES = pages()
ADDED = ("configs/mixit/successor.py", "configs/mixit/mixing_rows.py", "configs/mixit/count.py")


def test_the_files_that_a_page_names_exist():
    missing = []
    for page, text in PAGES.items():
        configs = [n for n in re.findall(r"configs/\w+/\w+\.py", text) if n not in ADDED]
        files = [flags.ROOT / name for name in configs + re.findall(r"`(docs/\w+\.md)`", text)]
        links = re.findall(r"\]\(([\w/.-]+)[#)]", text)
        files += [(flags.ROOT / page).parent / link for link in links]
        missing += [f"{page}: {file}" for file in files if not file.exists()]
    assert not missing


@pytest.mark.slow  # test_commands.py has the example of the page
def test_the_walk_of_the_signal_page(tmp_path, monkeypatch, capsys):
    """Follows the page word for word: a config.json, its problem, and the changed config."""
    monkeypatch.chdir(tmp_path)
    page = PAGES["docs/signal.md"]
    config = re.search(r"```json\n(.*?)```", page, re.S)[1]
    Path("config.json").write_text(config)
    walk = page[page.index("My loss does not move") : page.index("## Runs and published models")]
    commands = re.findall(r"^ *\$ jaxformer advise (c.*)\n((?: *[^$`\n]+\n)+)", walk, re.M)
    assert len(commands) == 4
    for arguments, shown in commands:
        advise.main(shlex.split(arguments))
        printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
        lines = [line.strip() for line in shown.splitlines()]
        assert [line for line in printed if line in lines] == lines
        for line in printed:  # what is to be pasted into the config.json
            if found := re.fullmatch(r'config.json +("initializer_range": [\d.]+)', line):
                changed = re.sub(r'"initializer_range": [\d.]+', found[1], config)
                assert changed != config
                Path("changed.json").write_text(changed)
