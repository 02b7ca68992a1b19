"""How far predictions are off at new rows: intervals from leave-one-out residuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..base.arguments import invalid, positive
from ..problems.losses import Huber, Squared
from ..runs.solution import Solution
from ..verbs.leave_one_out import OptimisticWarning, judged_rows
from .scaling import Standardiser
from .storable import Model, Storable

LARGEST_CLOUD = 2**26
"""Maximum number of entries, rows times particles, for which every row is left out by itself.

Beyond it a row has little influence, and all of them are taken to have the same: the degrees of
freedom per row, as in generalised cross-validation. Memory stays below that of the fit."""


@dataclass(frozen=True)
class Residuals:
    """Sizes of the residuals at rows that were left out of the fit, in the units of the targets.

    Attributes:
        sizes: (n, t), in increasing order for every target.
        weights: (n, t), the weights of the rows in that order; they sum to one.
        caution: why the residuals are smaller than those at new rows; empty if they are not known
            to be.
    """

    sizes: np.ndarray
    weights: np.ndarray
    caution: str

    @classmethod
    def of(cls, solution: Solution, targets: Standardiser) -> Residuals:
        """The residuals of a regression's solution, whose targets were standardised."""
        problem = solution.problem
        assert isinstance(problem.loss, Squared | Huber)
        left_out, caution = _left_out(solution)
        n = len(left_out)
        rest = (np.asarray(problem.loss.y, np.float64) - left_out).reshape(n, -1)
        weights = np.asarray(problem.weights, np.float64)
        kept = weights > 0  # padding, and rows that judged a search, have no weight
        sizes = np.abs(rest[kept]) * targets.deviation
        order = np.argsort(sizes, axis=0)
        weights = weights[kept] / weights[kept].sum()
        return cls(np.take_along_axis(sizes, order, axis=0), weights[order], caution)

    @property
    def deviation(self) -> np.ndarray:
        """The root mean square residual of every target."""
        return np.sqrt((self.weights * self.sizes**2).sum(axis=0))

    def quantile(self, coverage: float) -> np.ndarray:
        """The half width of an interval with this coverage, for every target.

        A new row is one of n + 1 rows, so the quantile is that of coverage (n + 1) / n, where n is
        the effective number of rows, 1 / sum_i w_i^2. It is infinite if that is above one: so few
        rows cannot promise so much.
        """
        n = 1 / (self.weights**2).sum(axis=0)
        wanted = coverage * (n + 1) / n
        # A sum of n weights is rounded; a hair's breadth must not move the quantile by a row.
        reached = self.weights.cumsum(axis=0) >= wanted - 1e-9
        place = reached.argmax(axis=0)
        half = np.take_along_axis(self.sizes, place[None], axis=0)[0]
        return np.where(reached.any(axis=0), half, np.inf)


class Intervals(Storable):
    """Prediction intervals of a regressor, from residuals that are computed when first needed.

    Files keep them, so that they need no rows there; a pickle computes them when it needs them.
    """

    predict: Callable[..., Any]
    _targets: Standardiser
    _residuals: Residuals
    _cloud: Solution

    def predict_interval(self, X: Any, coverage: Any = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Intervals that contain a share `coverage` of new targets.

        An interval is the prediction plus or minus a quantile of the sizes of the leave-one-out
        residuals of the training rows, the jackknife of conformal prediction. Its width is the same
        everywhere: the coverage holds on average over rows like those of the fit, not at each X. A
        fit that is too flexible for leave-one-out issues an `OptimisticWarning`. The width is
        infinite if there are too few rows for the coverage, fewer than 9 for 0.9.

        Args:
            X: rows.
            coverage: a number above 0 and below 1.

        Returns:
            The lower and the upper ends, each like the prediction: (n,) or (n, t).
        """
        check_is_fitted(self)
        if positive(type(self).__name__, "coverage", coverage) >= 1:
            raise invalid(type(self).__name__, "coverage", "a number below 1", coverage)
        middle = self.predict(X)
        half = self._of_each_target(lambda residuals: residuals.quantile(coverage))
        return middle - half, middle + half

    def to_record(self) -> Model:
        check_is_fitted(self)
        if self._has_rows():
            self._known_residuals()
        return super().to_record()

    def _of_each_target(self, number: Callable[[Residuals], np.ndarray]) -> np.ndarray:
        """A number of the residuals for each target, (t,); a warning where they are too small."""
        residuals = self._known_residuals()
        if residuals.caution:
            warnings.warn(
                f"Leave-one-out residuals of {type(self).__name__} are {residuals.caution} The "
                "intervals are too narrow.",
                OptimisticWarning,
                stacklevel=3,
            )
        return number(residuals)

    def _known_residuals(self) -> Residuals:
        """The residuals, computed when first asked for."""
        if not hasattr(self, "_residuals"):
            if not self._has_rows():
                raise ValueError(
                    f"This {type(self).__name__} comes from a file without data, written by an "
                    "earlier version: its residuals are not known. Fit it again."
                )
            solution = self.solution_
            if hasattr(self, "_cloud"):
                # The solver's problem has padded rows: sets of nearly equal size share a program.
                parts = (solution.particles, solution.weights)
                solution = eqx.tree_at(lambda s: (s.particles, s.weights), self._cloud, parts)
            self._residuals = Residuals.of(solution, self._targets)
        return self._residuals

    def _has_rows(self) -> bool:
        return len(self.solution_.moments) > 0


def _left_out(solution: Solution) -> tuple[np.ndarray, str]:
    """The moments of every row without that row, and why residuals there are too small."""
    problem, moments = solution.problem, np.asarray(solution.moments, np.float64)
    if moments.shape[0] * solution.particles.shape[0] <= LARGEST_CLOUD:
        judged = judged_rows(solution)
        return np.asarray(judged.moments, np.float64), judged.too_optimistic
    d_eff = solution.history.get("d_eff", np.full(1, np.nan))[-1:].sum()
    if not np.isfinite(d_eff):
        return moments, "those of the training rows, since the solver does not say how far it fits."
    rows = int((np.asarray(problem.weights) > 0).sum())
    influence = min(float(d_eff) / (rows * int(np.prod(moments.shape[1:]))), 0.5)
    slope = np.asarray(problem.slope(solution.moments), np.float64)
    # y - H^{-i} = (y - H) / (1 - S_ii): for the squared loss the slope is H - y. The Huber loss
    # bounds the slope, and with it the influence of an outlier.
    return moments + influence / (1 - influence) * slope, ""
