"""A user's own packages `experiments`, `configs`, `theory`, while a file of the user is imported.

The command has modules of these names, so `import configs.base` in a user's task would look for
`base` in the wrong place, or find another `common` than the user's. For the time of the import the
names belong to the folders in the current folder, and afterwards to the command again.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = ("experiments", "configs", "theory")


@contextlib.contextmanager
def own_packages_first() -> Iterator[None]:
    """Hides the command's packages of which the current folder has its own.

    An import inside a function of the user's file runs later and finds the command's package.
    """
    own = {name for name in NAMES if _is_own(name)}
    hidden = _modules(own)
    path = sys.path[:]
    if own:
        sys.path.insert(0, "")
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _modules(own):
            del sys.modules[name]
        sys.modules.update(hidden)
        if own:
            sys.path[:] = path


def _is_own(name: str) -> bool:
    """Whether the current folder has a package of this name that is not the command's."""
    folder, command = Path(name), sys.modules.get(name)
    if command is None or not folder.is_dir():
        return False
    return all(Path(place).resolve() != folder.resolve() for place in command.__path__)


def _modules(packages: set[str]) -> dict:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] in packages}
