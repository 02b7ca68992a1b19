"""The study behind `entroplay fit`: a network that predicts one column of a table."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..sklearn import MeanFieldClassifier, MeanFieldRegressor
from ..sklearn.columns import Columns
from .csv_files import TableError
from .drawing import draw_predictions
from .held_out import Study
from .tables import Table, labels_of, present, read_table

FEW_CLASSES = 20
"""Maximum number of distinct whole numbers in a target that is taken for labels."""
ROWS_PER_CLASS = 10
"""Minimum number of rows per distinct whole number in a target that is taken for labels."""
MOST_CLASSES = 0.5
"""Maximum number of classes per row: a class needs two rows on average."""


def task_of(target: np.ndarray) -> str:
    """Texts are labels, and so are a few whole numbers; everything else is a regression."""
    if target.dtype.kind != "f":
        return "classification"
    values = np.unique(target)
    few = len(values) <= min(FEW_CLASSES, max(2, len(target) // ROWS_PER_CLASS))
    return "classification" if few and (values == np.round(values)).all() else "regression"


def _with_target(table: Table, name: str) -> tuple[Table, tuple[str, ...]]:
    """The rows whose target is known, and a remark about the others."""
    known = present(table.column(name))
    gaps = len(known) - int(known.sum())
    if not gaps:
        return table, ()
    if gaps == len(known):
        raise TableError(f"{table.name}: column {name!r} has no values: nothing can be learned.")
    rows = "row" if gaps == 1 else "rows"
    return table.rows(known), (f"{gaps} {rows} without a value of {name!r} left out",)


def _check_target(table: Table, name: str, y: np.ndarray, labels: bool) -> None:
    """Refuse a target from which nothing can be learned."""
    place = f"{table.name}: column {name!r}"
    if not labels and not np.isfinite(y).all():
        line = table.lines[int(np.argmax(~np.isfinite(y)))]
        raise TableError(f"{place} has an infinite value in line {line}: correct it.")
    values = len(np.unique(y))
    if values == 1:
        raise TableError(
            f"{place} has the same value in every row, {y[0]}: there is nothing to predict."
        )
    if labels and values > len(y) * MOST_CLASSES:
        raise TableError(
            f"{place} has {values} different labels in {len(y)} rows, too many to learn from so "
            "few. Choose another target, or --task regression if it holds numbers."
        )


class PredictionStudy(Study):
    """A network that predicts one column from the others."""

    model_suffix, picture_suffix = "model", "fit"

    @classmethod
    def of(cls, options: argparse.Namespace) -> PredictionStudy:
        """Read the table and sort its columns into inputs and target."""
        table = read_table(options.data)
        for name in (*options.ignore, *options.keep):
            table.check(name)  # a misspelt name is an error
        table, remarks = _with_target(table, options.target)
        names = [n for n in table.columns if n not in (options.target, *options.ignore)]
        inputs = Columns.learn(table.raw(names), suspects=set(names) - set(options.keep))
        if not inputs.used:
            reasons = f" ({'; '.join(inputs.notes)})" if names else ""
            raise TableError(f"{table.name} has no column left to learn from{reasons}.")
        X, target = table.matrix(inputs), table.column(options.target)
        if (options.task or task_of(target)) == "classification":
            y = labels = labels_of(target)
        else:
            y, labels = table.numbers(options.target), None
        _check_target(table, options.target, y, labels is not None)
        measure = "R2" if labels is None else "accuracy"
        return cls(options, table, inputs, (X, y), options.target, labels, measure, remarks)

    def learned_from(self, rows: np.ndarray) -> Study:
        names = [column.name for column in self.inputs.used]
        raw = {name: self.table.column(name)[rows] for name in names}
        inputs = Columns.learn(raw)
        if not inputs.used:  # nothing varies in these rows
            return self
        data = (self.table.matrix(inputs), *self.data[1:])
        return dataclasses.replace(self, inputs=inputs, data=data)

    @property
    def classification(self) -> bool:
        """Whether the target is a label."""
        return self.labels is not None

    def describe(self) -> str:
        X, y = self.data
        inputs = "1 input" if X.shape[1] == 1 else f"{X.shape[1]} inputs"
        rows = f"{self.table.name}: {len(y)} rows, {inputs}"
        if self.classification:
            return f"{rows}, classification of {self.target!r} into {len(np.unique(y))} classes"
        return f"{rows}, regression of {self.target!r} (from {y.min():g} to {y.max():g})"

    def estimator(self) -> Any:
        common = {
            "temperature": self.options.temperature or "auto",
            "l2": self.options.l2 or "auto",
            "random_state": self.options.seed,
        }
        if self.classification:
            return MeanFieldClassifier(**common)
        return MeanFieldRegressor(self.options.loss, **common)

    def baselines(self, train: np.ndarray) -> dict[str, Any]:
        if self.classification:
            linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
            boosting = HistGradientBoostingClassifier(random_state=0)
            return {"logistic regression": linear, "gradient boosting": boosting}
        linear = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
        boosting = HistGradientBoostingRegressor(random_state=0)
        return {"ridge": linear, "gradient boosting": boosting}

    def score(self, fitted: Any, test: np.ndarray) -> float:
        X, y = self.data
        return float(fitted.score(X[test], y[test]))

    def settings(self, final: Any) -> str:
        return (
            f"temperature {final.temperature_:.3g}, l2 {final.l2_:.3g}, {final.n_iter_} iterations"
        )

    def draw(self, scored: Any, final: Any, test: np.ndarray, path: Path) -> None:
        X, y = self.data
        draw_predictions(
            y[test], scored.predict(X[test]), str(self.target), path, self.classification
        )

    def facts(self, final: Any) -> dict[str, Any]:
        return {
            "task": "classification" if self.classification else "regression",
            "inputs": self.data[0].shape[1],
            "temperature": final.temperature_,
            "l2": final.l2_,
        }
