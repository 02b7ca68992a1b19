"""Models that know the columns of the table they were fitted to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.files import FileFormatError, read_record, refused, save
from ..sklearn.storable import TABLE
from .options import UsageError
from .tables import Inputs, Table


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator with the columns of the table that it was fitted to.

    Its file is the estimator's own, which `entroplay.load` reads as well. The columns stand in it
    beside what the estimator has learned.

    Attributes:
        estimator: an estimator of `entroplay.sklearn`.
        inputs: the columns that it takes.
        target: the column that it predicts; None for a density.
    """

    estimator: Any
    inputs: Inputs
    target: str | None

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        record = self.estimator.to_record()
        columns = {"target": self.target, "inputs": self.inputs.to_list()}
        save(dataclasses.replace(record, state=record.state | {TABLE: columns}), path)

    @classmethod
    def load(cls, path: Path) -> TableModel:
        """Read a model that `save` wrote."""
        try:
            record = read_record(path)
            columns = getattr(record, "state", {}).get(TABLE)
            if columns is None:
                raise UsageError(
                    f"{path} was not saved by `entroplay fit` or `entroplay density`: its columns "
                    "have no names."
                )
            with refused(path):
                inputs = Inputs.from_list(columns["inputs"])
                return cls(record.restore(), inputs, columns["target"])
        except (FileFormatError, OSError) as error:
            raise UsageError(str(error)) from error

    def predict(self, table: Table) -> dict[str, np.ndarray]:
        """Columns of predictions, with probabilities for classes; log-densities for a density."""
        X = self.inputs.matrix(table)
        if self.target is None:
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
