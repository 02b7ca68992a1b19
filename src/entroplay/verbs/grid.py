r"""The oracle: the exact answer by quadrature, for problems with one or two parameters.

`solve` returns the global optimum to about twelve digits, seven at least, with an estimate of its
error. The optimality condition mu = mu-hat, eq. (2), reads H = E_q[h] in terms of moments, with
q = q_g and g = loss'(H); Newton's method solves it. `solve` also returns the trajectory of the
ideal entropic fictitious play, Algorithm 1 with exact expectations: densities, moments, primal and
dual values, and KL divergences.

The grid is uniform where that resolves the optimum. Where it does not, at low temperatures, the
grid follows the mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..base.arguments import invalid, number_or_schedule, whole
from ..measures.exact import point_budget
from ..measures.quadrature import Axes, Quadrature, UnresolvedError
from ..measures.uniform import (
    check_dimension,
    coarse_points,
    guaranteed_box,
    hidden,
    integrals,
    log_noise,
    points_per_axis,
    tightened,
)
from ..problems.problem import FiniteSum
from .cooling import cooled
from .optimum import Errors, error_of_moments, newton, stability_limit
from .trajectory import Trajectory, ideal_play

LIMITS = (1e-5, 1e-4)
"""Maximum errors of the value and of the moments, relative to 1 plus their size, with which an
answer is returned. For smooth features they are about 1e-12; kinks leave more on a uniform
grid."""

ITERATIONS = 100
"""Iterations of ideal EFP if none are asked for."""


@dataclass(frozen=True)
class GridSolution:
    """The exact optimum on a grid.

    Attributes:
        quadrature: the grid, for further exact integrals. Where it follows the mass it resolves
            the optimum only.
        density: mu_*, one number per grid point, shaped like the grid. A grid in the plane that
            follows the mass has no product of axes; the shape is then (G,), as that of
            `quadrature.points`.
        moments: E_{mu_*}[h].
        dual_vector: loss'(moments).
        value: the minimum of L.
        dual_value: D(dual_vector), equal to `value` up to rounding.
        stability_limit: the largest rate at which EFP is locally stable,
            2 / (1 + largest eigenvalue of J).
        trajectory: ideal EFP from the prior; None where the grid follows the mass.
        error: estimated absolute errors of `value` and `moments`, as `error.value` and
            `error.moments`.
    """

    quadrature: Quadrature
    density: np.ndarray
    moments: np.ndarray
    dual_vector: np.ndarray
    value: float
    dual_value: float
    stability_limit: float
    trajectory: Trajectory | None
    error: Errors

    @property
    def axes(self) -> Axes:
        """The grid's coordinate axes."""
        return self.quadrature.axes

    def __repr__(self) -> str:
        size = " x ".join(str(length) for length in self.quadrature.shape)
        end = "the grid follows the mass"
        if self.trajectory is not None:
            above = self.trajectory.primal[-1] - self.value
            end = f"its trajectory ends {above:.3g} above the optimum"
        return (
            f"GridSolution of {self.quadrature.problem}\n"
            f"  value {self.value:.10g} +- {self.error.value:.1e}, "
            f"duality gap {self.value - self.dual_value:.1e}, {size} points\n"
            f"  EFP is stable for rates below {min(self.stability_limit, 1):.3g}; {end}"
        )


def solve(
    problem: FiniteSum,
    *,
    rate: float = 0.1,
    iterations: int | None = None,
    points: int | None = None,
    snapshots: int = 11,
) -> GridSolution:
    """Compute the exact optimum of a problem with d <= 2, and ideal EFP on the way to it.

    Args:
        problem: what to minimise.
        rate: EFP's rate (or a schedule of the iteration).
        iterations: EFP's number of iterations; 0 if only the optimum is wanted. Default: 100 where
            a uniform grid resolves them, otherwise 0.
        points: grid points per axis; default 4001 for d = 1 and 301 for d = 2. Where a uniform grid
            of this size does not resolve the optimum, a grid that follows the mass is used. It has
            at most 40 (d = 1) or 20 (d = 2) times as many points in all.
        snapshots: the number of densities of the trajectory to keep, evenly spaced in time.

    Raises:
        UnresolvedError: if the estimated error, relative to 1 plus the size, exceeds 1e-5 for the
            value or 1e-4 for the moments on that grid, too, or if `iterations` were asked for,
            which need a uniform grid.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> exact = ep.grid.solve(problem)
    >>> abs(exact.value - exact.dual_value) < 1e-12
    True
    """
    if not isinstance(problem, FiniteSum):
        raise invalid("grid.solve", "problem", "a FiniteSum", problem)
    check_dimension(problem, "grid.solve")
    wanted = 0 if iterations is None else whole("grid.solve", "iterations", iterations, least=0)
    steps = ITERATIONS if iterations is None else wanted
    snapshots = whole("grid.solve", "snapshots", snapshots, least=1)
    schedule = number_or_schedule("grid.solve", "rate", rate, at_most=1.0)
    size = points_per_axis(problem, points)

    def play(quadrature: Quadrature) -> Trajectory:
        return ideal_play(quadrature, schedule, steps, snapshots)

    found = _uniform(problem, size, play)
    if found is None and wanted:
        raise UnresolvedError(
            f"A uniform grid of {size} points per axis does not resolve the optimum or the "
            "trajectory of ideal EFP towards it. Ask for more 'points', or for 'iterations=0'."
        )
    return found or _following(problem, point_budget(problem, points))


def _uniform(
    problem: FiniteSum, size: int, play: Callable[[Quadrature], Trajectory]
) -> GridSolution | None:
    """The answer on a uniform grid; None if it is not resolved there."""

    def visited(quadrature: Quadrature) -> list[np.ndarray]:
        """The duals of the first and of the optimal measure."""
        first = quadrature.slope(quadrature.moments(quadrature.prior))
        return [first, quadrature.slope(newton(quadrature))]

    # The box holds the first and the optimal measure. That it held those in between is checked
    # afterwards.
    coarse = guaranteed_box(problem, coarse_points(problem, size), visited)
    tight = tightened(coarse, visited(coarse))
    for box in (tight, [(a[0], a[-1]) for a in coarse.axes]):
        quadrature = Quadrature.on(problem, tuple(np.linspace(*ends, size) for ends in box))
        moments = newton(quadrature)
        errors = _uniform_errors(coarse, quadrature, moments)
        if not errors.within(quadrature.dual_at(moments), moments, LIMITS):
            return None
        trajectory = play(quadrature)
        duals = [quadrature.slope(visit) for visit in trajectory.moments]
        # An unstable run may visit measures unlike both: it is repeated on the larger box.
        if not any(quadrature.cut(dual) for dual in duals):
            break
    return _solution(quadrature, moments, trajectory, errors)


def _uniform_errors(coarse: Quadrature, quadrature: Quadrature, moments: np.ndarray) -> Errors:
    """The errors of an answer on a uniform grid; infinite if mass may be hidden."""
    dual = quadrature.slope(moments)
    if hidden(coarse, quadrature, dual):
        return Errors(np.inf, np.inf)
    found = integrals(quadrature, dual)
    density, _ = quadrature.gibbs(dual)
    # The dual value is wrong by the error of temperature * log Z_g, and below the optimum by at
    # most the gap, the Bregman divergence between the exact moments of q_g and H.
    change = found.change + found.moments - moments
    weights = np.asarray(quadrature.problem.weights, np.float64)
    slopes = float(weights @ (dual * change).reshape(len(weights), -1).sum(axis=1))
    gap = quadrature.loss(moments + change) - quadrature.loss(moments) - slopes
    rounding = found.moments_error - float(np.abs(found.change).max())
    return Errors(
        float(quadrature.problem.temperature) * found.log_partition_error + abs(gap),
        error_of_moments(quadrature, density, moments, change) + rounding,
    )


def _following(problem: FiniteSum, budget: int) -> GridSolution:
    """The answer on a grid that follows the mass."""
    with problem.arithmetic():
        cold = cooled(problem, budget)
    quadrature, moments = cold.quadrature, cold.moments
    density, _ = quadrature.gibbs(quadrature.slope(moments))
    value = quadrature.dual_at(moments)
    noise = problem.temperature * log_noise(quadrature, quadrature.slope(moments))
    residual = quadrature.moments(density) - moments
    # Between the grid and a coarser one; what Newton's method has left; rounding.
    errors = Errors(
        cold.change[0] + abs(quadrature.primal(density) - value) + noise,
        cold.change[1]
        + error_of_moments(quadrature, density, moments, residual)
        + noise * float(1 + np.abs(moments).max()),
    )
    if not errors.within(value, moments, LIMITS):
        raise UnresolvedError(
            f"The optimum is not resolved: its value {value:.6g} has an estimated error of "
            f"{errors.value:.1e}, its moments one of {errors.moments:.1e}. Ask for more 'points'."
        )
    return _solution(quadrature, moments, None, errors)


def _solution(
    quadrature: Quadrature, moments: np.ndarray, trajectory: Trajectory | None, errors: Errors
) -> GridSolution:
    dual = quadrature.slope(moments)
    density, _ = quadrature.gibbs(dual)
    return GridSolution(
        quadrature=quadrature,
        density=density.reshape(quadrature.shape),
        moments=moments,
        dual_vector=dual,
        value=quadrature.primal(density),
        dual_value=quadrature.dual_at(moments),
        stability_limit=stability_limit(quadrature, density, moments),
        trajectory=trajectory,
        error=errors,
    )
