"""Pages in one file, and their tables."""

import base64
import hashlib
import xml.etree.ElementTree as ET

from jaxformer.report.html import document, table


def test_a_page_runs_only_its_own_scripts_and_escapes_its_title():
    page = document("a < b", "<p>x</p>", "p { color: red }", ["let x = 1"])
    digest = base64.b64encode(hashlib.sha256(b"let x = 1").digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page and "<script>let x = 1</script>" in page
    assert "default-src 'none'" in page and "unsafe" not in page
    assert "<title>a &lt; b</title>" in page
    plain = document("a", "", "")
    assert "script" not in plain and "style-src 'unsafe-inline'" in plain


def test_a_table_names_its_rows_and_aligns_its_numbers():
    text = table(("run", "loss"), [("one", "2.5"), ("two", "3")], right=("loss",))
    root = ET.fromstring(text)
    assert [cell.text for cell in root.iter("th")] == ["run", "loss", "one", "two"]
    assert {cell.get("scope") for cell in root.iter("th")} == {"col", "row"}
    assert [(cell.text, cell.get("class")) for cell in root.iter("td")] == [
        ("2.5", "n"),
        ("3", "n"),
    ]
    cards = ET.fromstring(table(("run", "loss"), [("one", "2.5")], ("loss",), "cards"))
    assert [cell.get("data-label") for cell in cards.iter("td")] == ["loss"]
    css = ET.fromstring(table(("run", "loss"), [("one", "2.5")], ("loss",), "cards cells"))
    assert [cell.attrib for cell in css.iter("td")] == [{}]
