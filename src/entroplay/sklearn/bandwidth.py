"""The bandwidth of a density: a path from wide kernels to narrow ones, judged on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .coordinates import Coordinates
from .mixing import solve_on_support
from .normals import in_blocks, log_height, log_sum_exp, square_distances
from .rows import WeightedRows
from .support import MixingProblem, NewtonLog, Support

NARROWING = 0.85
"""Factor from one bandwidth of the path to the next."""
NARROWEST = 0.05
"""The search tries no further bandwidth once it has reached this one."""
FOLDS = 4
"""Number of parts for cross-validation."""
FALLBACK = 1.0
"""Bandwidth if there are fewer than two rows per fold, or if no likelihood is finite."""
PATIENCE, FALL = 3, 0.05
"""Number of bandwidths without a better likelihood after which the search ends, and how far the
last likelihood must then be below the best, in nats per row."""
PATH_ROWS = 2000
"""Maximum number of rows on the path; if there are more, these are drawn at random."""
PATH_POINTS, PATH_ROUNDS, PATH_STEPS = 3072, 2, 60
"""At each bandwidth of the path: points of the support, maximum number of proposals for them, and
maximum number of steps of Newton's method."""


@dataclass(frozen=True)
class BandwidthPath:
    """Solutions from wide kernels to narrow ones, each of which proposes points for the next.

    Attributes:
        shape: shape of the kernel, one of `coordinates.SHAPES`.
        temperature: strength of the entropy.
        l2: the penalty, or None for a prior as wide as the data.
        seed: seed of all randomness.
        say: function that receives lines of progress.
        least_size: minimum number of rows after padding: problems of the same size share compiled
            programs.
    """

    shape: str
    temperature: float
    l2: float | None
    seed: int
    say: Callable[[str], None]
    least_size: int = 0

    def problem(self, rows: WeightedRows, coordinates: Coordinates, width: float) -> MixingProblem:
        """The problem at this width, for rows that are given in these coordinates."""
        variance = (
            coordinates.spread
            if self.l2 is None
            else np.full(len(coordinates.spread), self.temperature / (2 * self.l2))
        )
        return MixingProblem(
            rows.X, rows.weights, width, variance, self.temperature, least_size=self.least_size
        )

    def cross_validate(self, rows: WeightedRows) -> tuple[float, list[tuple[float, float]]]:
        """The bandwidth with the best mean held-out log-likelihood, and the table of all tried."""
        rng = np.random.default_rng([self.seed, len(rows)])
        rows = _subsample(rows, rng)
        n = len(rows)
        if n < 2 * FOLDS:
            return FALLBACK, []
        fold = rng.permutation(np.arange(n) % FOLDS)
        folds = [
            _Fold(self, rows.part(fold != f), rows.part(fold == f), self.seed + f)
            for f in range(FOLDS)
        ]
        shares = np.array([rows.weights[fold == f].sum() for f in range(FOLDS)])
        widest = np.sqrt(Coordinates.of(rows.X, rows.weights, self.shape).spread.max())
        table: list[tuple[float, float]] = []
        best, width, fall = 0, np.inf, 0.0
        # A likelihood may fall a little and rise again: the search ends only when the best is
        # PATIENCE bandwidths behind and clearly better than the last.
        while (len(table) - best <= PATIENCE or fall < FALL) and width > NARROWEST:
            width = float(widest * NARROWING ** len(table))
            try:
                likelihood = float(shares @ [part.narrow(width) for part in folds])
            except KeyboardInterrupt:
                if not table:
                    raise
                warnings.warn(
                    "MeanFieldDensity was interrupted during its search: the best of "
                    f"{len(table)} bandwidths so far is taken. Interrupt it again to end the fit.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
                break
            if not np.isfinite(likelihood):
                break
            self.say(f"bandwidth {width:.3g}: cross-validated log-likelihood {likelihood:.4g}")
            table.append((width, likelihood))
            best = int(np.argmax([value for _, value in table]))
            fall = table[best][1] - likelihood
        return (table[best][0], table) if table else (FALLBACK, [])

    def lead_to(self, rows: WeightedRows, coordinates: Coordinates, width: float) -> Support:
        """Follow the path down to this width.

        It starts at a kernel at least as wide as the data in their widest direction.
        """
        widest = np.sqrt(coordinates.spread.max())
        steps = int(np.ceil(np.log(max(widest / width, 1)) / -np.log(NARROWING)))
        rng = np.random.default_rng([self.seed, steps])
        few = _subsample(rows, rng)
        support = None
        for k in range(steps, -1, -1):
            problem = self.problem(few, coordinates, width / NARROWING**k)
            support = self.narrowed(problem, rng, support)
        assert support is not None
        # The slopes of a subsample are not those of all rows: take them from the measure.
        return support if few is rows else support.seen_by(self.problem(rows, coordinates, width))

    def narrowed(
        self, problem: MixingProblem, rng: np.random.Generator, last: Support | None
    ) -> Support:
        """The next solution on the path."""
        log = NewtonLog(PATH_STEPS)
        return solve_on_support(problem, PATH_POINTS, rng, last=last, rounds=PATH_ROUNDS, log=log)


def _subsample(rows: WeightedRows, rng: np.random.Generator) -> WeightedRows:
    """The rows themselves, or PATH_ROWS of them at random if there are more."""
    if len(rows) <= PATH_ROWS:
        return rows
    return rows.part(np.sort(rng.permutation(len(rows))[:PATH_ROWS]))


class _Fold:
    """A split of the rows: the kernel is narrowed on one part and judged on the other."""

    def __init__(
        self, path: BandwidthPath, learned: WeightedRows, held_out: WeightedRows, seed: int
    ):
        self.coordinates = Coordinates.of(learned.X, learned.weights, path.shape)
        self.learned = WeightedRows(self.coordinates(learned.X), learned.y, learned.weights)
        self.path, self.held_out = path, held_out
        self.rng = np.random.default_rng([seed, len(learned)])
        self.support: Support | None = None

    def narrow(self, width: float) -> float:
        """The mean log-likelihood of the held-out rows at the next width."""
        problem = self.path.problem(self.learned, self.coordinates, width)
        self.support = self.path.narrowed(problem, self.rng, self.support)
        values = log_density(
            self.support.points, self.support.weights, self.coordinates(self.held_out.X), width
        )
        # In the original units: every fold has its own coordinates.
        return float(self.held_out.weights @ values) + self.coordinates.log_volume


def log_density(points: np.ndarray, weights: np.ndarray, Y: np.ndarray, width: float) -> np.ndarray:
    """The log-density of the mixture sum_r weights_r N(y; theta_r, width^2 I) at rows Y.

    It is finite even where the density itself underflows.
    """
    kept = weights > 0
    points, level = points[kept], np.log(weights[kept])
    height = log_height(Y.shape[1], width)

    def mixture(part: np.ndarray) -> np.ndarray:
        return height + log_sum_exp(level - 0.5 * square_distances(part, points) / width**2)

    return in_blocks(mixture, Y, len(points))
