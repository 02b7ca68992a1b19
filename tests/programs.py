"""Compiled programs of a test process: kept for ever, they fill several gigabytes a worker."""

import gc
import os
from pathlib import Path

import jax

MOST_MEMORY, MOST_MAPS = 2e9, 30_000
"""Bytes of resident memory, and memory maps, above which programs are dropped. Linux allows a
process 65,530 maps, and the compiler dies where it gets no more."""


def drop_if_many():
    """Drop all compiled programs if they take much memory or many memory maps."""
    process = Path("/proc/self")
    if not process.exists():
        return
    memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if memory > MOST_MEMORY or (process / "maps").read_text().count("\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
