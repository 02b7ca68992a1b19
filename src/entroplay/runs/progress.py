"""A progress bar for long work, without a hard dependency on one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from .solution import History


@contextmanager
def progress_bar(
    wanted: bool, total: int, unit: str = "iteration"
) -> Iterator[Callable[[int, History], None]]:
    """tqdm where it is installed, a printed line every few seconds where it is not, nothing unless asked."""
    if not wanted:
        yield lambda length, history: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        last, done = time.perf_counter(), 0

        def line(length: int, history: History) -> None:
            nonlocal last, done
            done += length
            if time.perf_counter() - last > 5 or done == total:
                last = time.perf_counter()
                print(f"{unit} {done} of {total}, {_postfix(history)}", flush=True)

        yield line
        return
    with tqdm(total=total, unit=unit) as bar:

        def advance(length: int, history: History) -> None:
            bar.set_postfix_str(_postfix(history), refresh=False)
            bar.update(length)

        yield advance


def _postfix(history: History) -> str:
    gap = history["gap"][-1]
    loss = f"loss {history['loss_particles'][-1]:.4g}"
    return loss if np.isnan(gap) else f"{loss}, gap {gap:.2g}"
