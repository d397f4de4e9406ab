"""Files that a page contains come out unchanged, and its links stay inside it."""

import base64
import gzip
import json
import re

import pytest

from experiments.cli.flags import ROOT
from experiments.ledger.record import Record
from experiments.site import attachments
from experiments.site.attachments import Attachments, with_papers
from tests.experiments import made_up


def record(where="results/x.json", **changed):
    return Record.from_json(made_up.RECORDS["a"] | changed, where=where)


def test_attached_files_are_unpacked_unchanged():
    kept = Attachments()
    button = kept.save('a"b.csv', "x,</script>\n1,±\n")
    kept.save("a.tex", "\\begin")
    assert 'data-file="a&quot;b.csv" hidden>CSV<' in button
    text = re.fullmatch(r'<script type="text/plain" id="files">([\w+/=]+)</script>', kept.packed())
    content = json.loads(gzip.decompress(base64.b64decode(text[1])))
    assert content == {'a"b.csv': "x,</script>\n1,±\n", "a.tex": "\\begin"}


def test_links_are_relative_to_the_page_and_only_to_files_that_are_there():
    at_home = Attachments(ROOT / "runs/demo")
    known = record(next((ROOT / "results").rglob("*.json")).relative_to(ROOT).as_posix())
    assert f'href="../../{known.where}"' in at_home.record(known)
    assert 'href="../../configs/mixit/retrieval.py"' in at_home.config(known)
    assert "href" not in at_home.record(record("results/gone.json"))


def test_a_page_outside_of_the_repository_names_no_path_of_the_machine(tmp_path):
    sent = Attachments(tmp_path)
    assert "href" not in sent.config(record()) + Attachments().config(record())
    (tmp_path / "a run").mkdir()
    assert 'href="a%20run"' in sent.record(record(str(tmp_path / "a run")))


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "configs/../README.md", "javascript:alert(1)", "configs/none.py:x"]
)
def test_a_record_leads_to_configs_alone(file):
    content = record()
    object.__setattr__(content, "config_file", file)  # whatever somebody wrote
    assert "href" not in Attachments(ROOT).config(content)


def test_a_repository_with_an_address_is_linked_at_the_commit(monkeypatch):
    monkeypatch.setattr(attachments, "repository", lambda: "https://host/jaxformer")
    result = Attachments().config(record())
    place = f"https://host/jaxformer/blob/{made_up.COMMIT[:7]}/configs/mixit/retrieval.py"
    assert f'href="{place}"' in result
    assert f'href="https://host/jaxformer/commit/{made_up.COMMIT}"' in Attachments().commit(
        record()
    )


def test_a_record_is_linked_at_the_newest_commit_since_its_runs_commit_lacks_it(monkeypatch):
    monkeypatch.setattr(attachments, "repository", lambda: "https://host/jaxformer")
    result = Attachments().record(record("results/mixit/retrieval/mixit-small-heads=4-00.json"))
    assert "/blob/HEAD/results/mixit/retrieval/mixit-small-heads%3D4-00.json" in result


def test_papers_are_linked_and_other_words_escaped():
    text = with_papers("<b> arXiv 2506.01115, ICLR")
    assert text == (
        '&lt;b&gt; <a href="https://arxiv.org/abs/2506.01115">arXiv 2506.01115</a>, ICLR'
    )
