"""JAX's own cache of compiled programs, switched on in a private and bounded folder.

JAX finds an entry by the lowered program with its constants, the options and versions of the
compiler, and the device. Functions are traced again at each call, so that whatever they read from
outside is current: an entry is reused only where the same numbers would be computed.

A second call of `jaxformer.train` then takes an eighth of the processor time of the first one.
"""

import hashlib
import os
import stat
import sys
from pathlib import Path

import jax

from jaxformer.runtime.environment import processor

# Options of JAX: the folder of the cache, and whether there is one.
FOLDER, IS_ON = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
MAX_BYTES = 2 * 10**9  # above it JAX removes the entries that were not used for longest
MIN_COMPILE_SECONDS = 0.0  # also small programs, of which a first call has some twenty
OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


def use_compilation_cache() -> None:
    """Lets JAX keep compiled programs on disk, unless the user has decided about it.

    A folder that was set before (`jax_compilation_cache_dir`) is left alone, and
    JAX_ENABLE_COMPILATION_CACHE=false turns the cache off. Entries are machine code, so a folder
    that others can write is not used. Safe to call often.
    """
    if getattr(jax.config, FOLDER) is not None:
        return
    if not getattr(jax.config, IS_ON):
        return
    folder = cache_folder()
    if reason := _why_not(folder):
        # Said once: afterwards the cache counts as switched off by the user.
        print(f"compiled programs are not kept: {reason}", file=sys.stderr)
        jax.config.update(IS_ON, False)
        return
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update(FOLDER, str(folder))


def cache_folder() -> Path:
    """Returns the folder of this kind of processor, below ~/.cache or $XDG_CACHE_HOME.

    The nodes of a cluster often share a home and not their instructions.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kind = hashlib.sha256(processor().encode()).hexdigest()[:12]
    return home / "jaxformer" / "programs" / kind


def _why_not(folder: Path) -> str:
    """Makes the folder; returns why it cannot be used, or "" if it can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror})"
    if status.st_uid != os.getuid() or status.st_mode & OTHERS_CAN_WRITE:
        return f"others can write {folder}, which holds machine code; chmod go-w it, or remove it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written"
    return ""
