"""The history of a run: one row per iteration, as a dictionary of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..methods.solvers.base import Info
from .solution import History

CUMULATIVE = ("iteration", "pulls", "passes", "seconds")
"""Columns that count from the beginning of a run."""
WHOLE = ("iteration", "pulls", "passes")
"""Columns of whole numbers."""


def empty_history() -> History:
    """A history without rows; a method's further columns appear with its first row."""
    names = ("iteration", *(name for name in Info._fields if name != "extra"), "seconds")
    return {name: np.zeros(0, _type(name)) for name in names}


def as_history(columns: History) -> History:
    """Columns from a file, with the types that they have in a run."""
    return {name: values.astype(_type(name)) for name, values in columns.items()}


def extend(history: History, infos: Info, kept: int, elapsed: float) -> History:
    """The history with `kept` more rows; a chunk's time is spread evenly over its iterations."""
    rows = {name: np.asarray(values)[:kept] for name, values in _columns(infos).items()}
    done = len(history["iteration"])
    rows["iteration"] = np.arange(done + 1, done + kept + 1)
    for name in ("pulls", "passes"):
        rows[name] = _last(history[name]) + np.cumsum(rows[name])
    seconds = elapsed * np.arange(1, kept + 1) / max(kept, 1)
    rows["seconds"] = _last(history["seconds"]) + seconds
    # The first row decides on the columns; "iteration" comes first and "seconds" last.
    names = history if done else ["iteration", *_columns(infos), "seconds"]
    empty = np.zeros(0)
    return {
        name: np.concatenate([history.get(name, empty), rows[name]]).astype(_type(name))
        for name in names
    }


def joined(first: History | None, second: History) -> History:
    """One history from two runs, of which the second continued the first."""
    if first is None:
        return second
    before = {name: first[name][-1:].sum() if name in CUMULATIVE else 0 for name in second}
    return {
        name: np.concatenate([first[name], before[name] + values])
        for name, values in second.items()
    }


def last_row(history: History) -> dict[str, float]:
    """The entries of the last iteration."""
    return {name: float(values[-1]) for name, values in history.items()}


def _columns(infos: Info) -> dict[str, Any]:
    columns = infos._asdict()
    extra = columns.pop("extra")
    return columns if extra is None else columns | extra._asdict()


def _type(name: str) -> type:
    return np.int64 if name in WHOLE else np.float64


def _last(values: np.ndarray) -> float:
    return float(values[-1]) if len(values) else 0.0
