"""log Z_g and E_{q_g}[h] by quadrature for any dual g, with error estimates, for d <= 2."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..problems.problem import FiniteSum
from .following import Grid, follow, on_grid, refined
from .modes import Landscape
from .quadrature import GRID_ELEMENTS, Quadrature, check_dimension, points_per_axis

TOLERANCE = 1e-9
"""Tolerance of the integrals over a panel, relative to the mass of the measure."""
ABUNDANCE = {1: 40, 2: 20}
"""Maximum number of points of a grid that follows the mass, by the number of parameters, for each
point of the uniform grid."""
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


def point_budget(problem: FiniteSum, points: int | None) -> int:
    """Maximum number of points of a grid that follows the mass."""
    size = points_per_axis(problem, points)
    width = int(np.prod(problem.features.shape))
    return min(ABUNDANCE[problem.dim] * size**problem.dim, GRID_ELEMENTS // width)


def gibbs_moments(problem: FiniteSum, dual: object, *, points: int | None = None) -> GibbsMoments:
    """log Z_g and E_{q_g}[h] for any dual vector, wherever the mass of q_g is.

    The errors are differences between two grids, the second of which has all panels halved and
    searches the modes again. An `UnresolvedError` is raised if there are too many points.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=1e-5, l2=1e-5)
    >>> exact = gibbs_moments(problem, [1.0, -1.0])
    >>> exact.log_partition_error < 1e-8 * abs(exact.log_partition)
    True
    """
    check_dimension(problem, "gibbs_moments")
    landscape, g = Landscape.of(problem), np.asarray(dual, np.float64)
    coarse, fine = two_grids(landscape, g, point_budget(problem, points))
    answers = []
    for quadrature in (coarse, fine):
        density, log_partition = quadrature.gibbs(g)
        answers.append((log_partition, quadrature.moments(density)))
    (log_before, before), (log_after, after) = answers
    noise = log_noise(fine, g)
    return GibbsMoments(
        log_after,
        after,
        abs(log_after - log_before) + noise,
        float(np.abs(after - before).max()) + noise * float(np.abs(after).max()),
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


def log_noise(quadrature: Quadrature, dual: np.ndarray) -> float:
    """The rounding error of a log-density, whose terms may be much larger than their sum."""
    with jax.enable_x64(True):
        weighted = np.abs(np.asarray(quadrature.problem.weigh(jnp.asarray(dual)))).ravel()
    index = int(quadrature.energy(dual).argmin())
    terms = float(np.abs(quadrature.matrix[index]) @ weighted) + float(quadrature.penalty[index])
    return ROUNDING * (1 + terms / quadrature.problem.temperature)
