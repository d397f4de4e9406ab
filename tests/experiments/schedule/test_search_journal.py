"""A damaged journal of a search is cut to its last whole entry, or refused in one line."""

import json

import pytest

from experiments.schedule import search_journal
from jaxformer.core.errors import UserError

ENTRY = json.dumps({"op_code": 0, "worker_id": "a", "study_name": "x", "directions": [2]}) + "\n"
DAMAGED_TAILS = {
    "cut": '{"op_code": 4, "wor',
    "cut, and the next entry on the same line": '{"op_code": 4, "wor' + ENTRY,
    "not UTF-8": b"\xff\xfe\n",
    "no JSON": "hello\n",
    "no object": "[1, 2]\n",
    "without an operation": "{}\n",
    "odd operation": '{"op_code": "4"}\n',
    "NUL bytes": "\0" * 20 + "\n",
    "deep": "[" * 100_000 + "\n",
}


def test_a_damaged_line_ends_the_journal_and_the_whole_file_is_kept(tmp_path, capsys):
    file = tmp_path / search_journal.JOURNAL
    wrong = []
    for name, tail in DAMAGED_TAILS.items():
        content = (2 * ENTRY).encode() + (tail if isinstance(tail, bytes) else tail.encode())
        content += ENTRY.encode()
        file.write_bytes(content)
        search_journal.drop_damaged_entries(file)
        healed = file.read_bytes() == (2 * ENTRY).encode()
        kept = file.with_name("search.journal.damaged").read_bytes() == content
        if not (healed and kept and "line 3" in capsys.readouterr().err):
            wrong.append(name)
    assert not wrong


def test_a_sound_journal_is_not_touched(tmp_path):
    file = tmp_path / search_journal.JOURNAL
    file.write_text(3 * ENTRY)
    search_journal.drop_damaged_entries(file)
    assert file.read_text() == 3 * ENTRY and [*tmp_path.iterdir()] == [file]


@pytest.mark.slow
def test_optuna_reads_a_healed_journal_and_a_foreign_one_is_one_line(tmp_path):
    optuna = pytest.importorskip("optuna", reason="pip install 'jaxformer[search]'")
    file = tmp_path / search_journal.JOURNAL
    study = search_journal.open_study(optuna, tmp_path)
    study.tell(study.ask(), 1.0)
    sound = file.read_bytes()
    foreign = {
        "an unknown operation": {"op_code": 99, "worker_id": "a"},
        "no names": {"op_code": 4},
    }
    for name, entry in foreign.items():
        file.write_bytes(sound + json.dumps(entry).encode() + b"\n")
        with pytest.raises(UserError, match="is damaged"):
            search_journal.open_study(optuna, tmp_path)
            raise AssertionError(name)
    file.write_bytes(sound + b'{"op_code": 4, "wo')
    assert search_journal.open_study(optuna, tmp_path).best_value == 1
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="regular file"):
        search_journal.open_study(optuna, tmp_path)
