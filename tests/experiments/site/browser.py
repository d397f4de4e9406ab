"""A page in headless Chromium, with a script that clicks and returns what it sees."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
PROBE = """<script>addEventListener("load", async () => {
  const probe = async () => { %s };
  parent.document.title = JSON.stringify(await probe().catch((error) => ({error: String(error)})));
});
const all = (selector) => [...document.querySelectorAll(selector)];
const later = (ms = 50) => new Promise((done) => setTimeout(done, ms));
</script>"""


def find() -> str:
    """Returns the browser of this machine; skips the test if there is none."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not browser:
        pytest.skip("there is no Chromium on this machine")
    return browser


def ask(text: str, probe: str, folder: Path, width: int = 1200) -> dict:
    """Runs the body of an async function in a page of a width and returns its result."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    # The policy of the page itself forbids the probe.
    (folder / "page.html").write_text(text.replace("</body>", PROBE % probe + "</body>"))
    outer = folder / "outer.html"
    frame = f'<iframe src="page.html" width="{width}" height="800" allow="clipboard-write">'
    outer.write_text(f"<title></title>{frame}</iframe>")
    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'home'}",
    ]
    arguments += ["--allow-file-access-from-files", "--enable-logging=stderr"]
    arguments += ["--virtual-time-budget=20000", "--dump-dom", outer.as_uri()]
    # The clipboard and files work in real time: on a busy machine the virtual time may end first.
    for _ in range(5):
        done = subprocess.run([find(), *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        if found := re.search(r"<title>({.*?})</title>", done.stdout):
            break
    else:
        raise AssertionError("the page did not answer within its virtual time in five attempts")
    match = json.loads(html.unescape(found[1]))
    assert "error" not in match, match
    return match
