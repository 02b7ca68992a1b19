"""The study behind `entroplay density`: a mixture density of the rows of a table."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

from ..sklearn import MeanFieldDensity
from ..sklearn.columns import Columns
from ..sklearn.columns.numbers import NumberColumn
from .csv_files import TableError
from .drawing import draw_density
from .held_out import Study
from .tables import present, read_table

MOST_NORMALS = 6
"""Maximum number of components of the mixture that the density is compared with."""


class DensityStudy(Study):
    """A mixture density of some numeric columns."""

    model_suffix, picture_suffix = "density", "density"

    @classmethod
    def of(cls, options: argparse.Namespace) -> DensityStudy:
        """Read the table and choose its numeric columns, or those that were asked for."""
        table = read_table(options.data)
        if options.columns is None:
            numeric = [name for name, values in table.columns.items() if values.dtype.kind == "f"]
            names = suspects = [name for name in numeric if present(table.columns[name]).any()]
        else:
            names, suspects = [name.strip() for name in options.columns.split(",")], []
        finite = np.all([np.isfinite(table.numbers(name)) for name in names], axis=0)
        remarks = ()
        if not np.all(finite):
            gaps = np.sum(~finite)
            rows = "1 row" if gaps == 1 else f"{gaps} rows"
            remarks = (f"{rows} with missing or infinite values left out",)
            table = table.rows(finite)
        # A density has no use for a filled value or a mark: columns are used as they are, or not.
        learned = Columns.learn(table.raw(names), suspects=suspects) if len(table) else Columns(())
        inputs = Columns(
            tuple(NumberColumn.untouched(c.name) if c.kept else c for c in learned.columns)
        )
        if not inputs.used:
            raise TableError(
                f"{table.name} has no column with numbers that differ, in rows without missing "
                "values."
            )
        X = table.matrix(inputs)
        return cls(options, table, inputs, (X,), None, None, "mean log-likelihood", remarks)

    def describe(self) -> str:
        return f"{self.table.name}: {len(self.table)} rows of {', '.join(self.inputs.names)}"

    def estimator(self) -> Any:
        options = self.options
        given = {} if options.temperature is None else {"temperature": options.temperature}
        return MeanFieldDensity(
            options.bandwidth or "auto",
            covariance=options.covariance,
            random_state=options.seed,
            **given,
        )

    def baselines(self, train: np.ndarray) -> dict[str, Any]:
        X = self.data[0][train]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mixtures = [
                GaussianMixture(k, random_state=0).fit(X)
                for k in range(1, min(MOST_NORMALS, len(X)) + 1)
            ]
        best = min(mixtures, key=lambda mixture: mixture.bic(X))
        return {"one normal": GaussianMixture(1), f"{best.n_components} normals (by BIC)": best}

    def score(self, fitted: Any, test: np.ndarray) -> float:
        return float(np.mean(fitted.score_samples(self.data[0][test])))

    def settings(self, final: Any) -> str:
        return f"bandwidth {final.bandwidth_:.3g}, {len(final.weights_)} normals"

    def draw(self, scored: Any, final: Any, test: np.ndarray, path: Path) -> None:
        draw_density(final, self.data[0], self.inputs.names, path)

    def facts(self, final: Any) -> dict[str, Any]:
        return {"columns": self.inputs.names, "bandwidth": final.bandwidth_}
