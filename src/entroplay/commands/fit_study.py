"""The study behind `entroplay fit`: a network that predicts one column of a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..sklearn import MeanFieldClassifier, MeanFieldRegressor
from .drawing import draw_predictions
from .held_out import Study
from .tables import Inputs, labels_of, read_table

FEW_CLASSES = 20
"""Maximum number of distinct whole numbers in a target that is taken for labels."""
ROWS_PER_CLASS = 10
"""Minimum number of rows per distinct whole number in a target that is taken for labels."""


def task_of(target: np.ndarray) -> str:
    """Texts are labels, and so are a few whole numbers; everything else is a regression."""
    if target.dtype == object:
        return "classification"
    values = np.unique(target)
    few = len(values) <= min(FEW_CLASSES, max(2, len(target) // ROWS_PER_CLASS))
    return "classification" if few and (values == np.round(values)).all() else "regression"


class PredictionStudy(Study):
    """A network that predicts one column from the others."""

    model_suffix, picture_suffix = "model", "fit"

    @classmethod
    def of(cls, options: argparse.Namespace) -> PredictionStudy:
        """Read the table and sort its columns into inputs and target."""
        table = read_table(options.data)
        target = table.column(options.target)
        for name in options.ignore:
            table.column(name)  # a misspelt name is an error
        inputs = Inputs.of(table, [options.target, *options.ignore])
        X = inputs.matrix(table)
        if (options.task or task_of(target)) == "classification":
            labels = labels_of(target)
            return cls(options, table, inputs, (X, labels), options.target, labels, "accuracy")
        y = table.numbers(options.target)
        return cls(options, table, inputs, (X, y), options.target, None, "R2")

    @property
    def classification(self) -> bool:
        """Whether the target is a label."""
        return self.labels is not None

    def describe(self) -> str:
        X, y = self.data
        rows = f"{self.table.name}: {len(y)} rows, {X.shape[1]} inputs"
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
