"""The optimum of cold problems with d <= 2, on grids that follow the mass.

With the prior fixed, the temperature falls from one at which the measure is close to the prior. At
each temperature Newton's method solves the problem on the grid of the moment. A new grid is then
made for the Gibbs measure of the new dual, until the dual value on both is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..measures.exact import TOLERANCE, finer
from ..measures.following import Grid, fenced, follow, on_grid
from ..measures.modes import Landscape
from ..measures.quadrature import Quadrature, UnresolvedError
from ..problems.problem import FiniteSum
from .optimum import newton

WARM = 10.0
"""Range of the first potential, in temperatures, at the temperature at which cooling starts."""
HOTTEST = 100.0
"""Maximum temperature at which cooling starts, unless the problem is hotter."""
COOLING = 8.0
"""Factor by which the temperature falls from stage to stage."""
ROUNDS = 10
"""Maximum number of grids at one temperature."""
SHORTEST = 1.2
"""Minimum factor between two temperatures."""
CHECKS, AGREED = 3, 1e-7
"""Maximum number of grids on which the optimum is computed again, and the relative difference of
the optimal value between a grid and its refinement at which no other one is tried."""
MEMORY = 3
"""Number of duals of one temperature, the last ones, that a grid resolves."""
ON_THE_WAY, AT_THE_END = (1e-4, 1e-2), (1e-7, 1e-5)
"""The tolerance of the grid, and the difference of log Z_g between two grids, or of the dual's
gain in temperatures, at which a temperature is done: on the way, and at the last temperature."""


@dataclass(frozen=True)
class Cold:
    """The optimum of a cold problem, on a grid and on a finer one."""

    landscape: Landscape
    grid: Grid
    """The finer grid."""
    quadrature: Quadrature
    """The problem on the finer grid."""
    moments: np.ndarray
    """The optimal moments on the finer grid."""
    change: tuple[float, float]
    """The absolute differences of the dual value and of the moments between both grids."""


class Stage(NamedTuple):
    """The optimum at one temperature of the path."""

    quadrature: Quadrature
    moments: np.ndarray
    known: np.ndarray
    """Points near the modes, from which the next search starts."""


def cooled(problem: FiniteSum, budget: int) -> Cold:
    """Solve a problem that no uniform grid resolves."""
    landscape = Landscape.of(problem)
    stage = _cool(landscape, budget)
    moments, known = stage.moments, stage.known
    for _ in range(CHECKS - 1):
        found = _check(landscape, moments, known, budget)
        if found.change[0] <= AGREED * (1 + abs(found.quadrature.dual_at(found.moments))):
            return found
        # The finer grid has found a mode that the other one missed.
        moments, known = found.moments, found.grid.seeds
    return _check(landscape, moments, known, budget)


def _cool(landscape: Landscape, budget: int) -> Stage:
    """Follow the optimum from a high temperature to that of the problem."""
    problem, last = landscape.problem, landscape.problem.temperature
    temperature, stage = _start(landscape)
    previous = HOTTEST * max(temperature, 1)
    while True:
        tolerances = AT_THE_END if temperature <= last else ON_THE_WAY
        try:
            stage = _settle(landscape, at(problem, temperature), stage, tolerances, budget)
        except _WanderedError:
            # Too far from the last temperature: halve the distance.
            if previous < SHORTEST * temperature:
                raise _lost(temperature) from None
            temperature = float(np.sqrt(previous * temperature))
            continue
        if temperature <= last:
            return stage
        previous = temperature
        # The last stage is never a tiny one.
        temperature = temperature / COOLING if temperature > 1.5 * COOLING * last else last


def _check(landscape: Landscape, moments: np.ndarray, known: np.ndarray, budget: int) -> Cold:
    """Solve on a grid for the dual of the moments, and on a finer one."""
    problem = landscape.problem
    with jax.enable_x64(True):
        dual = np.asarray(problem.slope(jnp.asarray(moments)))
    tilts = landscape.tilt(dual, problem.temperature)[:, None]
    grid = follow(landscape, tilts, tolerance=TOLERANCE, budget=budget, known=known)
    first = on_grid(landscape, grid, problem)
    before = newton(first, start=moments)
    fine = finer(landscape, tilts, grid, budget)
    second = on_grid(landscape, fine, problem)
    after = newton(second, start=before)
    value = abs(second.dual_at(after) - first.dual_at(before))
    return Cold(landscape, fine, second, after, (value, float(np.abs(after - before).max())))


def at(problem: FiniteSum, temperature: float) -> FiniteSum:
    """The problem at another temperature with the same prior."""
    ratio = temperature / problem.temperature
    return eqx.tree_at(lambda p: (p.temperature, p.l2), problem, (temperature, problem.l2 * ratio))


def _start(landscape: Landscape) -> tuple[float, Stage]:
    """The first temperature, and the prior's moments with the lattice as a grid."""
    problem = landscape.problem
    lattice = landscape.box(np.zeros((landscape.lattice(16.0).matrix.shape[1], 1)))
    grid = Grid(lattice.points, lattice.volumes, np.zeros((0, 2)), lattice.points[:0])
    quadrature = on_grid(landscape, grid, problem)
    moments = quadrature.moments(quadrature.prior)
    tilt = landscape.tilt(quadrature.slope(moments), 1.0)
    spread = float(np.ptp(lattice.matrix @ tilt))
    temperature = max(problem.temperature, min(spread / WARM, HOTTEST))
    return temperature, Stage(quadrature, moments, grid.seeds)


def _settle(landscape, problem, stage, tolerances, budget) -> Stage:
    """Alternate between Newton's method and new grids at one temperature."""
    tolerance, settled = tolerances
    quadrature, moments, known = stage
    tilts: list[np.ndarray] = []
    for _ in range(ROUNDS):
        quadrature = Quadrature(
            problem, quadrature.axes, quadrature.points, quadrature.matrix, quadrature.volumes
        )
        moments = newton(quadrature, start=moments)
        before = quadrature.dual_at(moments)
        tilt = landscape.tilt(quadrature.slope(moments), problem.temperature)
        tilts = [*tilts[-(MEMORY - 1) :], tilt]
        columns = np.stack(tilts, axis=1)
        grid = follow(landscape, columns, tolerance=tolerance, budget=budget, known=known)
        known = grid.seeds
        quadrature = fenced(landscape, grid, columns, problem)
        # On the new grid the dual value is exact. Points that were missing have lowered it.
        error = abs(before - quadrature.dual_at(moments)) / problem.temperature
        if error <= settled + 1e-13 * abs(before) / problem.temperature:
            return Stage(quadrature, newton(quadrature, start=moments), known)
    raise _WanderedError


class _WanderedError(Exception):
    """The duals of one temperature did not settle."""


def _lost(temperature: float) -> UnresolvedError:
    return UnresolvedError(
        f"The optimum at temperature {temperature:g} was not found on {ROUNDS} grids. "
        "Ask for more 'points', or for a higher temperature."
    )
