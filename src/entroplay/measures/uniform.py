"""Uniform grids for d <= 2: the box that holds the mass, and whether its points resolve it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base.arguments import invalid, whole
from ..problems.problem import FiniteSum
from .quadrature import GRID_ELEMENTS, TAIL, Quadrature

POINTS = {1: 4001, 2: 301}
"""Default number of grid points along an axis, by the number of parameters."""
COARSE_POINTS = 101
"""Maximum number of grid points per axis, in two dimensions, while the box is being sought."""
ENLARGEMENTS, MARGIN = 30, 1.02
"""Maximum number of boxes that are tried, and the factor by which each is larger than the last one
seemed to need."""
TIGHT_MARGIN = 5
"""Number of temperatures beyond TAIL that a tightened box keeps."""
SHIFTS = {1: (1 / 3, 2 / 3), 2: (1 / 2,)}
"""By how many cells the grids are shifted that a grid is compared with, by the number of
parameters. On a line, two grids may have the same error from a kink, but not three."""
STEEP = 10.0
"""Maximum difference of the log-density between neighbouring points that resolve a measure."""
ROUNDING = 4e-15
"""Relative rounding error of log-densities and sums, with a margin."""


class GibbsMoments(NamedTuple):
    """Integrals of a Gibbs measure, with estimates of their absolute errors."""

    log_partition: float
    """log Z_g."""
    moments: np.ndarray
    """E_{q_g}[h]."""
    log_partition_error: float
    moments_error: float
    """The largest error of a moment."""
    change: np.ndarray
    """The difference of the moments on another grid, of which `moments_error` is the size."""

    def within(self, limit: float) -> bool:
        """Whether both errors are at most `limit`; that of a moment relative to 1 plus the size."""
        size = 1 + float(np.abs(self.moments).max())
        return bool(self.log_partition_error <= limit and self.moments_error <= limit * size)


def check_dimension(problem: FiniteSum, owner: str) -> None:
    """Refuse problems that no grid can hold."""
    if problem.dim > 2:
        raise invalid(
            owner, "problem", "a problem with one or two parameters (d <= 2)", f"d = {problem.dim}"
        )


def points_per_axis(problem: FiniteSum, points: int | None) -> int:
    """The number of grid points along an axis: the user's choice, or the default of `POINTS`."""
    default = POINTS[problem.dim]
    size = default if points is None else whole("grid.solve", "points", points, least=5)
    elements = size**problem.dim * int(np.prod(problem.features.shape))
    if elements > GRID_ELEMENTS:
        raise ValueError(
            f"{size} points per axis and {problem.features.shape[0]} rows make a feature matrix "
            f"of {elements:.3g} numbers, more than {GRID_ELEMENTS:.3g}. Ask for fewer 'points'."
        )
    return size


def guaranteed_box(problem: FiniteSum, points: int, duals_of) -> Quadrature:
    """A grid whose box holds q_g for each of the duals that `duals_of(quadrature)` returns.

    Where l2 |theta|^2 exceeds the range of the linear part plus TAIL temperatures, the density is
    negligible. For unbounded features that range grows with the box. The box is therefore enlarged
    until it holds the measures, which it does in the end if the features grow at most linearly.
    """
    # The first box holds the prior; with several penalties the weakest decides its width.
    weakest = float(np.min(np.asarray(problem.l2)))
    half = float(np.sqrt(TAIL * problem.temperature / weakest))
    for _ in range(ENLARGEMENTS):
        quadrature = Quadrature.on(
            problem, tuple(np.linspace(-half, half, points) for _ in range(problem.dim))
        )
        spread = max(float(np.ptp(quadrature._linear(g))) for g in duals_of(quadrature))
        needed = float(np.sqrt((spread + TAIL * problem.temperature) / weakest))
        if needed <= half * (1 + 1e-9):
            return quadrature
        half = MARGIN * needed
    raise no_box()


def no_box() -> ValueError:
    """The error for features that outgrow the penalty."""
    return ValueError(
        "No finite box holds the measure: the features grow too fast for the l2 penalty."
    )


def tightened(quadrature: Quadrature, duals: list[np.ndarray]) -> list[tuple[float, float]]:
    """The ends of the smallest box that holds the prior and all the given Gibbs measures.

    A grid on it has its points where the mass is.
    """
    problem = quadrature.problem
    # Points at which one of the measures has a density that counts, the prior first.
    keep = quadrature.penalty <= TAIL * problem.temperature
    for dual in duals:
        energy = quadrature.energy(dual)
        keep |= energy - energy.min() <= (TAIL + TIGHT_MARGIN) * problem.temperature
    ends = []
    for j, axis in enumerate(quadrature.axes):
        inside = quadrature.points[keep, j]
        # Two cells of the old grid on each side.
        margin = 2 * float(axis[1] - axis[0])
        ends.append((float(inside.min()) - margin, float(inside.max()) + margin))
    return ends


def coarse_points(problem: FiniteSum, size: int) -> int:
    """Grid points per axis while the box is being sought; `size` are those of the final grid."""
    return size if problem.dim == 1 else min(size, COARSE_POINTS)


def integrals(quadrature: Quadrature, dual: np.ndarray) -> GibbsMoments:
    """log Z_g and E_{q_g}[h] on a uniform grid.

    The errors are the largest differences from shifted grids: the leading errors of those have
    other signs.
    """
    density, log_partition = quadrature.gibbs(dual)
    moments = quadrature.moments(density)
    log_error, change = 0.0, np.zeros_like(moments)
    for shift in SHIFTS[len(quadrature.axes)]:
        axes = tuple(a + shift * (a[1] - a[0]) for a in quadrature.axes)
        shifted = Quadrature.on(quadrature.problem, axes)
        other, other_log = shifted.gibbs(dual)
        log_error = max(log_error, abs(other_log - log_partition))
        difference = shifted.moments(other) - moments
        change = max(change, difference, key=lambda a: float(np.abs(a).max()))
    noise = log_noise(quadrature, dual)
    error = float(np.abs(change).max()) + noise * float(np.abs(moments).max())
    return GibbsMoments(log_partition, moments, log_error + noise, error, change)


def log_noise(quadrature: Quadrature, dual: np.ndarray) -> float:
    """The rounding error of a log-density, whose terms may be much larger than their sum."""
    with jax.enable_x64(True):
        weighted = np.abs(np.asarray(quadrature.problem.weigh(jnp.asarray(dual)))).ravel()
    index = int(quadrature.energy(dual).argmin())
    terms = float(np.abs(quadrature.matrix[index]) @ weighted) + float(quadrature.penalty[index])
    return ROUNDING * (1 + terms / quadrature.problem.temperature)


def hidden(coarse: Quadrature, quadrature: Quadrature, dual: np.ndarray) -> bool:
    """Whether mass of q_g may hide between the points of a uniform grid, or outside its box.

    A log-density may exceed its value at a point by about the difference from the neighbouring
    points. Where mass is possible by this rule the difference must be small. Outside the box, on
    the points of the `coarse` grid of the larger box, no mass must be possible.
    """
    possible, between, best = _possible(quadrature, dual, -np.inf)
    if (between[possible] > STEEP).any():
        return True
    outside, _, _ = _possible(coarse, dual, best)
    low, high = (np.array([a[end] for a in quadrature.axes]) for end in (0, -1))
    inside = ((coarse.points >= low) & (coarse.points <= high)).all(axis=1)
    return bool((outside.ravel() & ~inside).any())


def _possible(
    quadrature: Quadrature, dual: np.ndarray, best: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Where a log-density may count, its differences between neighbours, and its maximum."""
    logs = (-quadrature.energy(dual) / quadrature.problem.temperature).reshape(quadrature.shape)
    best = max(best, float(logs.max()))
    between = np.zeros_like(logs)
    for axis in range(logs.ndim):
        between += slack(logs, axis)
    return logs + between > best - TAIL, between, best


def slack(logs: np.ndarray, axis: int = 0) -> np.ndarray:
    """By how much a log-density may exceed its value at a node before the next node along an axis.

    That is about its difference from the neighbouring nodes.
    """
    logs = np.moveaxis(logs, axis, 0)
    change = np.abs(np.diff(logs, axis=0))
    between = np.zeros_like(logs)
    between[1:] = change
    between[:-1] = np.maximum(between[:-1], change)
    return np.moveaxis(between, 0, axis)
