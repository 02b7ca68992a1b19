"""Models that know the columns of the table they were fitted to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.files import FileFormatError, read_record, refused, save
from ..sklearn.columns import Columns
from ..sklearn.columns.base import level_of
from ..sklearn.columns.categories import CategoryColumn
from ..sklearn.columns.numbers import NumberColumn
from ..sklearn.storable import TABLE
from .csv_files import TableError
from .options import UsageError
from .tables import PARQUET_FILES, TEXT_FILES, Table


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator with the columns of the table that it was fitted to.

    Its file is the estimator's own, which `entroplay.load` reads as well. The columns stand in it
    beside what the estimator has learned.

    Attributes:
        estimator: an estimator of `entroplay.sklearn`.
        inputs: the columns that it takes, and how they become numbers.
        target: the column that it predicts; None for a density.
    """

    estimator: Any
    inputs: Columns
    target: str | None

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        record = self.estimator.to_record()
        columns = {"target": self.target, "inputs": self.inputs}
        save(dataclasses.replace(record, state=record.state | {TABLE: columns}), path)

    @classmethod
    def load(cls, path: Path) -> TableModel:
        """Read a model that `save` wrote."""
        if path.suffix.lower() in TEXT_FILES + PARQUET_FILES and path.is_file():
            raise TableError(
                f"{path} is a table, not a model: name the model first, a file that `entroplay "
                "fit` or `entroplay density` has written."
            )
        try:
            record = read_record(path)
            columns = getattr(record, "state", {}).get(TABLE)
            if columns is None:
                raise UsageError(
                    f"{path} was not saved by `entroplay fit` or `entroplay density`: its columns "
                    "have no names."
                )
            with refused(path):
                return cls(record.restore(), _inputs(columns["inputs"]), columns["target"])
        except (FileFormatError, OSError) as error:
            raise UsageError(str(error)) from error

    def predict(self, table: Table) -> dict[str, np.ndarray]:
        """Columns of predictions, with probabilities for classes; log-densities for a density."""
        X = table.matrix(self.inputs)
        if self.target is None:
            bad = ~np.isfinite(X)
            if bad.any():
                row, j = np.argwhere(bad)[0]
                what = "no value" if np.isnan(X[row, j]) else "an infinite value"
                raise TableError(
                    f"{table.name}: column {self.inputs.names[j]!r} has {what} in line "
                    f"{table.lines[row]}. A density needs a number in every column."
                )
            return {"log_density": self.estimator.score_samples(X)}
        columns = {self.target: self.estimator.predict(X)}
        if self.classification:
            shares = self.estimator.predict_proba(X)
            for k, label in enumerate(self.estimator.classes_):
                columns[f"P({label})"] = shares[:, k]
        return columns

    @property
    def classification(self) -> bool:
        """Whether the target is a label."""
        return hasattr(self.estimator, "classes_")

    def verdict(self) -> dict[str, Any]:
        """What a summary says about the certificate."""
        certificate = self.estimator.certificate_
        return {
            "bound": certificate.bound if certificate else None,
            "verified": certificate is not None and certificate.verified,
        }

    def certified(self) -> str:
        """The certificate in one sentence."""
        certificate = self.estimator.certificate_
        if certificate is None:
            return "The distance to the global optimum could not be verified."
        return f"Certificate: {certificate.verdict}."


def _inputs(stored: Any) -> Columns:
    """The columns that a file holds. Version 0.1 wrote names, each with its texts or None."""
    if isinstance(stored, Columns):
        return stored
    columns = [
        NumberColumn.untouched(name)
        if texts is None
        else CategoryColumn.one_hot(name, tuple(str(level_of(text)) for text in texts))
        for name, texts in stored
    ]
    return Columns(tuple(columns))
