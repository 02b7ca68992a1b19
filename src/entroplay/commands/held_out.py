"""The course that `fit` and `density` share: score on held-out rows, then fit all rows."""

from __future__ import annotations

import argparse
import math
import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import train_test_split

from ..sklearn.columns import Columns
from ..sklearn.watched import Watched, Watcher
from .options import Say, UsageError
from .table_model import TableModel
from .tables import Table

FEWEST_ROWS = 10
"""Minimum number of rows of a table that is split."""


class Progress:
    """Lines that begin with the time since the command began to learn."""

    def __init__(self, say: Say):
        self._say, self._began = say, time.perf_counter()

    def say(self, line: str) -> None:
        """Print a line."""
        self._say(f"{time.perf_counter() - self._began:6.1f} s  {line}")

    def detail(self, line: str) -> None:
        """Print a line about a part of the work."""
        self.say(f"  {line}")


@dataclass(frozen=True)
class Study(ABC):
    """A table ready to be learned from, and what is particular to the command that learns.

    Attributes:
        options: the command's options.
        table: the rows.
        inputs: the columns to learn from, and how they become numbers.
        data: the arrays that `fit` takes: the inputs (n, p), and the targets if there are any.
        target: the column to predict, or None.
        labels: classes whose proportions the split must keep, or None.
        measure: name of the score.
        remarks: what was done to the rows of the table, in words.
    """

    model_suffix: ClassVar[str]
    picture_suffix: ClassVar[str]
    """Default files are named after the table, with these endings."""

    options: argparse.Namespace
    table: Table
    inputs: Columns
    data: tuple[np.ndarray, ...]
    target: str | None
    labels: np.ndarray | None
    measure: str
    remarks: tuple[str, ...] = ()

    @abstractmethod
    def describe(self) -> str:
        """The first line that the command prints."""

    @abstractmethod
    def estimator(self) -> Any:
        """The estimator of `entroplay.sklearn`, not yet fitted."""

    @abstractmethod
    def baselines(self, train: np.ndarray) -> dict[str, Any]:
        """Estimators of scikit-learn to compare with, by name. They may see the rows `train`."""

    @abstractmethod
    def score(self, fitted: Any, test: np.ndarray) -> float:
        """The score of a fitted estimator on the rows `test`."""

    @abstractmethod
    def settings(self, final: Any) -> str:
        """One line about the final model."""

    @abstractmethod
    def draw(self, scored: Any, final: Any, test: np.ndarray, path: Path) -> None:
        """Draw the model that was scored on the rows `test`, or the final one."""

    @abstractmethod
    def facts(self, final: Any) -> dict[str, Any]:
        """What the summary says about this study alone."""

    def run(self, say: Say) -> dict[str, Any]:
        """Split, score beside baselines, fit all rows, save and draw."""
        model_path, picture = self._paths()
        train, test = self._split()
        say(self.describe())
        notes = [*self.table.remarks, *self.remarks, *self.inputs.notes]
        for note in notes:
            say(f"  {note}")
        scored = self.learned_from(train)
        progress = Progress(say)
        baselines = {} if self.options.no_baselines else scored.baselines(train)
        candidates = {"entroplay": self.estimator(), **baselines}
        rows = []
        for name, model in candidates.items():
            progress.say(f"{name}: learning from {len(train)} of {len(self.table)} rows")
            rows.append(scored._scored(name, model, train, test, progress))
        say(f"\n{'held-out ' + self.measure:<28}{'score':>9}{'seconds':>9}   ({len(test)} rows)")
        for row in rows:
            say(f"{row['model']:<28}{row['score']:>9.4f}{row['seconds']:>9.2f}")
        # The model that is kept learns from the held-out rows, too.
        progress.say(f"entroplay: learning from all {len(self.table)} rows")

        def keep(estimator: Any) -> None:
            TableModel(estimator, self.inputs, self.target).save(model_path)
            progress.say(f"  wrote {model_path}; its certificate comes next")

        fitted = self.fitted(self.estimator(), say=say, watcher=Watcher(progress.detail, keep))
        final = TableModel(fitted, self.inputs, self.target)
        say("\n" + final.certified())
        say(f"{self.settings(final.estimator)}, all {len(self.table)} rows")
        final.save(model_path)
        scored.draw(candidates["entroplay"], final.estimator, test, picture)
        say(f"Wrote {model_path}, {picture}")
        return {
            "rows": len(self.table),
            "notes": notes,
            **self.facts(final.estimator),
            "measure": self.measure,
            "held_out": rows,
            **final.verdict(),
            "seed": self.options.seed,
            "files": [str(model_path), str(picture)],
        }

    def learned_from(self, rows: np.ndarray) -> Study:
        """The study whose inputs become numbers in a way that only these rows have taught."""
        return self

    def fitted(
        self,
        estimator: Any,
        rows: np.ndarray | slice = slice(None),
        *,
        say: Say | None = None,
        watcher: Watcher | None = None,
    ) -> Any:
        """The estimator, fitted to some rows. Its warnings are printed with `say`, or dropped."""
        _watch(estimator, watcher)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(*(array[rows] for array in self.data))
        _watch(estimator, None)
        if say is not None:
            for warning in caught:
                say(f"note: {warning.message}")
        return estimator

    def _scored(
        self,
        name: str,
        estimator: Any,
        train: np.ndarray,
        test: np.ndarray,
        progress: Progress,
    ) -> dict[str, Any]:
        """A row of the table of scores; the estimator is fitted in place."""
        began, watcher = time.perf_counter(), Watcher(progress.detail, lambda _: None)
        score = self.score(self.fitted(estimator, train, watcher=watcher), test)
        return {"model": name, "score": score, "seconds": time.perf_counter() - began}

    def _paths(self) -> tuple[Path, Path]:
        """The files for the model and for the picture."""
        stem = self.options.data.stem
        model = self.options.model or Path(f"{stem}-{self.model_suffix}.safetensors")
        picture = self.options.out or Path(f"{stem}-{self.picture_suffix}.png")
        return model, picture

    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the rows to learn from and of those to score by."""
        n, labels = len(self.table), self.labels
        if n < FEWEST_ROWS:
            raise UsageError(
                f"{self.options.data} has {n} rows; a fit with held-out rows needs at least "
                f"{FEWEST_ROWS}."
            )
        common = False
        if labels is not None:
            # A class of a single row cannot be on both sides, and each side needs every class.
            counts = np.unique(labels, return_counts=True)[1]
            held_out = math.ceil(self.options.held_out * n)
            common = counts.min() >= 2 and len(counts) <= min(held_out, n - held_out)
        train, test = train_test_split(
            np.arange(n),
            test_size=self.options.held_out,
            random_state=self.options.seed,
            stratify=labels if common else None,
        )
        return np.asarray(train), np.asarray(test)


def _watch(estimator: Any, watcher: Watcher | None) -> None:
    """Have a watcher told what an estimator of ours does."""
    if isinstance(estimator, Watched):
        estimator._watcher = watcher
