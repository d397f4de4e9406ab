"""What lies beside an exported folder under the name of the unfinished one."""

import pytest

from jaxformer.core.errors import UserError
from jaxformer.models import export as exporting
from tests.models.llama import made

pytest.importorskip("safetensors.numpy")


def test_a_users_folder_is_refused_and_kept_what_a_kill_left_is_removed(tmp_path):
    model, params = made("plain")
    partial = tmp_path / "llama.partial"
    (partial / "notes").mkdir(parents=True)
    with pytest.raises(UserError, match=r"llama.partial holds 'notes', which this program did not"):
        exporting.export(model, params, tmp_path / "llama")
    assert [f.name for f in partial.iterdir()] == ["notes"]
    (partial / "notes").rmdir()
    for name in ("config.json", ".model.safetensors.0123abcd"):
        (partial / name).write_text("half")
    folder = exporting.export(model, params, tmp_path / "llama")
    assert {f.name for f in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert [*tmp_path.iterdir()] == [folder]
