"""The bandwidth of a density: measures on a support, from wide kernels to narrow ones, judged by rows that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .coordinates import Coordinates
from .mixing import (
    Posed,
    Record,
    Support,
    in_blocks,
    log_height,
    log_sum_exp,
    solve_on_support,
    square_distances,
)
from .rows import WeightedRows

NARROWING = 0.85
"""From one bandwidth of the path to the next."""
NARROWEST = 0.05
FOLDS = 4
PATIENCE, FALL = 3, 0.05
"""A path ends after so many bandwidths without a better likelihood, if the last is this much worse than the best."""
MOST_ROWS = 2000
"""Rows that a path knows of, drawn at random of more."""
PATH_POINTS, PATH_ROUNDS, PATH_STEPS = 3072, 2, 60
"""Points of a support on the path, proposals for them, steps of Newton's method."""


@dataclass(frozen=True)
class BandwidthPath:
    """Solutions from wide kernels to narrow ones, each of which proposes points for the next.

    Attributes:
        shape: of the kernel.
        l2: the penalty, or None for a prior as wide as the data.
        say: what to do with a line of progress.
    """

    shape: str
    temperature: float
    l2: float | None
    seed: int
    say: Callable[[str], None]

    def posed(self, rows: WeightedRows, coordinates: Coordinates, width: float) -> Posed:
        """The problem for rows in those coordinates."""
        variance = (
            coordinates.spread
            if self.l2 is None
            else np.full(len(coordinates.spread), self.temperature / (2 * self.l2))
        )
        return Posed(rows.X, rows.weights, width, variance, self.temperature)

    def cross_validate(self, rows: WeightedRows) -> tuple[float, list[tuple[float, float]]]:
        """The bandwidth with the best mean held-out log-likelihood, and all of them."""
        rng = np.random.default_rng([self.seed, len(rows)])
        rows = _some(rows, rng)
        n = len(rows)
        if n < 2 * FOLDS:
            return 1.0, []
        fold = rng.permutation(np.arange(n) % FOLDS)
        folds = [
            _Fold(self, rows.part(fold != f), rows.part(fold == f), self.seed + f)
            for f in range(FOLDS)
        ]
        shares = np.array([rows.weights[fold == f].sum() for f in range(FOLDS)])
        widest = np.sqrt(Coordinates.of(rows.X, rows.weights, self.shape).spread.max())
        table: list[tuple[float, float]] = []
        best, width, fall = 0, np.inf, 0.0
        while (len(table) - best <= PATIENCE or fall < FALL) and width > NARROWEST:
            width = float(widest * NARROWING ** len(table))
            likelihood = float(shares @ [part.narrow(width) for part in folds])
            if not np.isfinite(likelihood):
                break
            self.say(f"bandwidth {width:.3g}: cross-validated log-likelihood {likelihood:.4g}")
            table.append((width, likelihood))
            best = int(np.argmax([value for _, value in table]))
            fall = table[best][1] - likelihood
        return (table[best][0], table) if table else (1.0, [])

    def lead_to(self, rows: WeightedRows, coordinates: Coordinates, width: float) -> Support:
        """Down to that width, from a kernel as wide as the data in their widest direction."""
        widest = np.sqrt(coordinates.spread.max())
        steps = int(np.ceil(np.log(max(widest / width, 1)) / -np.log(NARROWING)))
        rng = np.random.default_rng([self.seed, steps])
        few = _some(rows, rng)
        support = None
        for k in range(steps, -1, -1):
            support = self.narrowed(
                self.posed(few, coordinates, width / NARROWING**k), rng, support
            )
        assert support is not None
        return support if few is rows else support.seen_by(self.posed(rows, coordinates, width))

    def narrowed(self, posed: Posed, rng: np.random.Generator, last: Support | None) -> Support:
        """The next solution on the path."""
        return solve_on_support(
            posed, PATH_POINTS, rng, last=last, rounds=PATH_ROUNDS, record=Record(PATH_STEPS)
        )


def _some(rows: WeightedRows, rng: np.random.Generator) -> WeightedRows:
    """All of them, or MOST_ROWS."""
    return (
        rows
        if len(rows) <= MOST_ROWS
        else rows.part(np.sort(rng.permutation(len(rows))[:MOST_ROWS]))
    )


class _Fold:
    """One part of the rows, on which the kernel is narrowed, and the rest, by which that is judged."""

    def __init__(
        self, path: BandwidthPath, learned: WeightedRows, held_out: WeightedRows, seed: int
    ):
        self.coordinates = Coordinates.of(learned.X, learned.weights, path.shape)
        self.learned = WeightedRows(self.coordinates(learned.X), learned.y, learned.weights)
        self.path, self.held_out = path, held_out
        self.rng = np.random.default_rng([seed, len(learned)])
        self.support: Support | None = None

    def narrow(self, width: float) -> float:
        """The mean log-likelihood of the rows held out at the next width."""
        self.support = self.path.narrowed(
            self.path.posed(self.learned, self.coordinates, width), self.rng, self.support
        )
        values = log_density(
            self.support.points, self.support.weights, self.coordinates(self.held_out.X), width
        )
        return float(self.held_out.weights @ values) + self.coordinates.log_volume


def log_density(points: np.ndarray, weights: np.ndarray, Y: np.ndarray, width: float) -> np.ndarray:
    """log of the mixture sum_r weights_r N(y; theta_r, width^2 I), far out, too."""
    kept = weights > 0
    points, level = points[kept], np.log(weights[kept])
    height = log_height(Y.shape[1], width)

    def mixture(part: np.ndarray) -> np.ndarray:
        return height + log_sum_exp(level - 0.5 * square_distances(part, points) / width**2)

    return in_blocks(mixture, Y, len(points))
