"""The workflow and the image of Docker, which run outside of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_actions_are_named_by_their_hash():
    """Whoever owns an action can move its tag to other code, but not its hash."""
    texts = [file.read_text() for file in (ROOT / ".github/workflows").glob("*.yml")]
    actions = re.findall(r"uses: (.+)", "\n".join(texts))
    assert actions
    wrong = [a for a in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", a)]
    assert wrong == []


def test_the_image_does_not_run_as_root():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (user,) = (i for i, line in enumerate(lines) if line.startswith("USER "))
    assert lines[user] != "USER root"
    assert user < lines.index("RUN make venv")  # as the owner of .venv
