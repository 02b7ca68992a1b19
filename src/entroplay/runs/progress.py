"""A progress bar for long work, without a hard dependency on one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from .solution import History

SECONDS_PER_LINE = 5
"""Time between two printed lines where there is no tqdm."""


def loss_and_gap(history: History) -> str:
    """What a progress bar says about the last iteration."""
    gap = history["gap"][-1]
    loss = f"loss {history['loss_particles'][-1]:.4g}"
    return loss if np.isnan(gap) else f"{loss}, gap {gap:.2g}"


@contextmanager
def progress_bar(
    wanted: bool,
    total: int,
    unit: str = "iteration",
    describe: Callable[[History], str] = loss_and_gap,
) -> Iterator[Callable[[int, History], None]]:
    """A function of the steps done and the history so far, which shows them if `wanted`.

    Uses tqdm if it is installed, and otherwise prints a line every few seconds.
    """
    if not wanted:
        yield lambda length, history: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield _lines(total, unit, describe)
        return
    with tqdm(total=total, unit=unit) as bar:

        def advance(length: int, history: History) -> None:
            bar.set_postfix_str(describe(history), refresh=False)
            bar.update(length)

        yield advance


def _lines(
    total: int, unit: str, describe: Callable[[History], str]
) -> Callable[[int, History], None]:
    last, done = time.perf_counter(), 0

    def advance(length: int, history: History) -> None:
        nonlocal last, done
        done += length
        if time.perf_counter() - last > SECONDS_PER_LINE or done == total:
            last = time.perf_counter()
            print(f"{unit} {done} of {total}, {describe(history)}", flush=True)

    return advance
