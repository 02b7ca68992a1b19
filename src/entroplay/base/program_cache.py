"""Compiled programs on disk, in the user's cache folder: a second process compiles almost nothing.

Commands and estimators use it. The environment variable ENTROPLAY_CACHE names another folder, or
is "off". A folder that JAX was told to use (JAX_COMPILATION_CACHE_DIR) takes precedence.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import cache
from pathlib import Path

SWITCH = "ENTROPLAY_CACHE"
"""The environment variable: a folder, or one of `OFF`."""
OFF = ("off", "0", "no", "false")
LARGEST, SMALLER = 10**9, 0.7
"""Bytes above which the programs that were used longest ago are removed, and down to which part."""
WORTH = 0.0
"""Seconds of compilation from which on a program is kept: all are. A fit has about eighty small
ones, each of which takes some 25 ms to compile and a few to load."""


def program_folder() -> Path | None:
    """The folder for this machine's programs; None if they are not to be kept."""
    choice = os.environ.get(SWITCH, "")
    if choice.lower() in OFF:
        return None
    # Programs contain instructions that another processor may not have.
    return (Path(choice) if choice else _user_cache() / "entroplay") / _processor()


@cache
def keep_programs() -> None:
    """Let JAX keep compiled programs on disk, unless it was told another folder. Never fails."""
    import jax

    folder = program_folder()
    if getattr(jax.config, "jax_compilation_cache_dir", None) or folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder)
    except OSError:  # no home, or a full disk: programs are then compiled as usual
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH)


def prune(folder: Path, largest: int = LARGEST) -> None:
    """Remove the programs that were used longest ago if all are larger than `largest` bytes."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    total = sum(status.st_size for _, status in files)
    if total <= largest:
        return
    for path, status in sorted(files, key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime)):
        path.unlink(missing_ok=True)
        total -= status.st_size
        if total <= SMALLER * largest:
            return


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def _processor() -> str:
    """A short name for the instructions that this processor knows."""
    known = [platform.machine(), platform.processor()]
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        lines = listed.read_text(errors="replace").splitlines()
        known += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
