"""log Z_g and E_{q_g}[h] by quadrature for any dual g, with error estimates, for d <= 2."""

from __future__ import annotations

import numpy as np

from ..problems.problem import FiniteSum
from .following import Grid, follow, on_grid, refined
from .modes import Landscape
from .quadrature import GRID_ELEMENTS, Quadrature, UnresolvedError
from .uniform import (
    GibbsMoments,
    check_dimension,
    coarse_points,
    guaranteed_box,
    hidden,
    integrals,
    log_noise,
    points_per_axis,
    tightened,
)

TOLERANCE = 1e-9
"""Tolerance of the integrals over a panel, relative to the mass of the measure."""
ABUNDANCE = {1: 40, 2: 20}
"""Maximum number of points of a grid that follows the mass, by the number of parameters, for each
point of the uniform grid."""
LARGEST_ERROR = 1e-4
"""Maximum errors of log Z_g, and of the moments relative to 1 plus their size, with which integrals
are returned. For smooth features they are about 1e-12; kinks leave more on a uniform grid."""


def point_budget(problem: FiniteSum, points: int | None) -> int:
    """Maximum number of points of a grid that follows the mass."""
    size = points_per_axis(problem, points)
    width = int(np.prod(problem.features.shape))
    return min(ABUNDANCE[problem.dim] * size**problem.dim, GRID_ELEMENTS // width)


def gibbs_moments(problem: FiniteSum, dual: object, *, points: int | None = None) -> GibbsMoments:
    """log Z_g and E_{q_g}[h] for any dual vector, wherever the mass of q_g is.

    A uniform grid is tried first; where it does not resolve q_g, the grid follows the mass.

    Raises:
        UnresolvedError: if an estimated error exceeds 1e-4 on that grid, too.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=1e-5, l2=1e-5)
    >>> exact = gibbs_moments(problem, [1.0, -1.0])
    >>> exact.log_partition_error < 1e-8 * abs(exact.log_partition)
    True
    """
    check_dimension(problem, "gibbs_moments")
    size, g = points_per_axis(problem, points), np.asarray(dual, np.float64)
    wide = guaranteed_box(problem, coarse_points(problem, size), lambda _: [g])
    axes = tuple(np.linspace(*ends, size) for ends in tightened(wide, [g]))
    uniform = Quadrature.on(problem, axes)
    if not hidden(wide, uniform, g):
        found = integrals(uniform, g)
        if found.within(LARGEST_ERROR):
            return found
    found = _following(problem, g, point_budget(problem, points))
    if not found.within(LARGEST_ERROR):
        raise UnresolvedError(
            f"The measure is not resolved: log Z has an estimated error of "
            f"{found.log_partition_error:.1e}, the moments one of {found.moments_error:.1e}. "
            "Ask for more 'points'."
        )
    return found


def _following(problem: FiniteSum, dual: np.ndarray, budget: int) -> GibbsMoments:
    """The integrals on grids that follow the mass.

    The errors are differences between two grids, the second of which has all panels halved and
    searches the modes again.
    """
    landscape = Landscape.of(problem)
    coarse, fine = two_grids(landscape, dual, budget)
    density, log_before = coarse.gibbs(dual)
    before = coarse.moments(density)
    density, log_after = fine.gibbs(dual)
    after = fine.moments(density)
    noise = log_noise(fine, dual)
    return GibbsMoments(
        log_after,
        after,
        abs(log_after - log_before) + noise,
        float(np.abs(after - before).max()) + noise * float(np.abs(after).max()),
        after - before,
    )


def two_grids(landscape: Landscape, dual: np.ndarray, budget: int) -> tuple[Quadrature, Quadrature]:
    """The problem on a grid that resolves q_g, and on a finer one."""
    tilts = landscape.tilt(dual, landscape.problem.temperature)[:, None]
    grid = follow(landscape, tilts, tolerance=TOLERANCE, budget=budget)
    return on_grid(landscape, grid), on_grid(landscape, finer(landscape, tilts, grid, budget))


def finer(landscape: Landscape, tilts: np.ndarray, grid: Grid, budget: int) -> Grid:
    """The grid on which errors are estimated; it may be eight times as large."""
    width = len(tilts)
    largest = max(budget, min(8 * budget, GRID_ELEMENTS // width))
    return refined(landscape, tilts, grid, tolerance=TOLERANCE, budget=largest)
