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

from dataclasses import dataclass

import numpy as np

from ..base.arguments import invalid, number_or_schedule, whole
from ..measures.exact import gibbs_moments, log_noise, point_budget
from ..measures.quadrature import (
    Axes,
    Quadrature,
    UnresolvedError,
    check_dimension,
    guaranteed_box,
    points_per_axis,
    tightened,
)
from ..problems.problem import FiniteSum
from .cooling import cooled
from .optimum import Errors, error_of_moments, newton, stability_limit
from .trajectory import Play, Trajectory, played

COARSE_POINTS = 101
"""Maximum number of grid points per axis, in two dimensions, while the box is being sought."""
UNIFORM_ERROR = 1e-6
"""Maximum error of the value and of the moments, relative to 1 plus their size, with which the
answer on a uniform grid is returned."""
VALUE_ERROR, MOMENTS_ERROR = 1e-7, 1e-5
"""Maximum errors, likewise, with which an answer on a grid that follows the mass is returned. For
smooth features they are about 1e-12; kinks leave 1e-8."""


@dataclass(frozen=True)
class GridSolution:
    """The exact optimum on a grid.

    Attributes:
        quadrature: the grid, for further exact integrals. Where it follows the mass it resolves
            the optimum, the prior and the trajectory; `gibbs_moments` integrates any other q_g.
        density: mu_*, one number per grid point, shaped like the grid. A grid in the plane that
            follows the mass has no product of axes; the shape is then (G,), as that of
            `quadrature.points`.
        moments: E_{mu_*}[h].
        dual_vector: loss'(moments).
        value: the minimum of L.
        dual_value: D(dual_vector), equal to `value` up to rounding.
        stability_limit: the largest rate at which EFP is locally stable,
            2 / (1 + largest eigenvalue of J).
        trajectory: ideal EFP from the prior.
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
    trajectory: Trajectory
    error: Errors

    @property
    def axes(self) -> Axes:
        """The grid's coordinate axes."""
        return self.quadrature.axes

    def __repr__(self) -> str:
        size = " x ".join(str(length) for length in self.quadrature.shape)
        above = self.trajectory.primal[-1] - self.value
        return (
            f"GridSolution of {self.quadrature.problem}\n"
            f"  value {self.value:.10g} +- {self.error.value:.1e}, "
            f"duality gap {self.value - self.dual_value:.1e}, {size} points\n"
            f"  EFP is stable for rates below {min(self.stability_limit, 1):.3g}; "
            f"its trajectory ends {above:.3g} above the optimum"
        )


def solve(
    problem: FiniteSum,
    *,
    rate: float = 0.1,
    iterations: int = 100,
    points: int | None = None,
    snapshots: int = 11,
) -> GridSolution:
    """Compute the exact optimum of a problem with d <= 2, and ideal EFP on the way to it.

    Args:
        problem: what to minimise.
        rate: EFP's rate (or a schedule of the iteration).
        iterations: EFP's number of iterations; 0 if only the optimum is wanted.
        points: grid points per axis; default 4001 for d = 1 and 301 for d = 2. Where a uniform grid
            of this size does not resolve the optimum, a grid that follows the mass is used. It has
            at most 40 (d = 1) or 20 (d = 2) times as many points in all.
        snapshots: the number of densities of the trajectory to keep, evenly spaced in time.

    Raises:
        UnresolvedError: if the estimated error, relative to 1 plus the size, exceeds 1e-7 for the
            value or 1e-5 for the moments on that grid, too.

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
    iterations = whole("grid.solve", "iterations", iterations, least=0)
    snapshots = whole("grid.solve", "snapshots", snapshots, least=1)
    schedule = number_or_schedule("grid.solve", "rate", rate, at_most=1.0)
    size = points_per_axis(problem, points)

    play = Play(schedule, iterations, snapshots)
    return _uniform(problem, size, play, points) or _following(problem, play, points)


def _uniform(problem: FiniteSum, size: int, play: Play, points: int | None) -> GridSolution | None:
    """The answer on a uniform grid; None if it is not resolved there."""

    def visited(quadrature: Quadrature) -> list[np.ndarray]:
        """The duals of the first and of the optimal measure."""
        first = quadrature.slope(quadrature.moments(quadrature.prior))
        return [first, quadrature.slope(newton(quadrature))]

    # The box holds the first and the optimal measure. That it held those in between is checked
    # afterwards.
    coarse = guaranteed_box(problem, coarse_points(problem, size), visited)
    quadrature = tightened(coarse, size, visited(coarse))
    moments = newton(quadrature)
    errors = _uniform_errors(problem, quadrature, moments, points)
    if errors is None:
        return None
    trajectory = play.on(quadrature)
    if any(quadrature.cut(quadrature.slope(visit)) for visit in trajectory.moments):
        # An unstable run may visit measures unlike both: repeat it on the larger box.
        axes = tuple(np.linspace(a[0], a[-1], size) for a in coarse.axes)
        quadrature = Quadrature.on(problem, axes)
        moments = newton(quadrature)
        errors = _uniform_errors(problem, quadrature, moments, points)
        if errors is None:
            return None
        trajectory = play.on(quadrature)
    return _solution(quadrature, moments, trajectory, errors)


def _uniform_errors(
    problem: FiniteSum, quadrature: Quadrature, moments: np.ndarray, points: int | None
) -> Errors | None:
    """The errors of an answer on a uniform grid; None if they are too large."""
    dual = quadrature.slope(moments)
    try:
        exact = gibbs_moments(problem, dual, points=points)
    except UnresolvedError:
        return None
    density, log_partition = quadrature.gibbs(dual)
    # The dual value is wrong by the error of temperature * log Z_g, and below the optimum by at
    # most the gap, the Bregman divergence between the exact moments of q_g and H.
    error = abs(log_partition - exact.log_partition) + exact.log_partition_error
    weighted = np.asarray(quadrature.problem.weights, np.float64)
    change = (exact.moments - moments) * dual
    slopes = weighted @ change.reshape(len(weighted), -1).sum(axis=1)
    gap = quadrature.loss(exact.moments) - quadrature.loss(moments) - float(slopes)
    errors = Errors(
        problem.temperature * error + abs(gap),
        error_of_moments(quadrature, density, moments, exact.moments) + exact.moments_error,
    )
    limits = (UNIFORM_ERROR, UNIFORM_ERROR)
    return errors if errors.within(quadrature.dual_at(moments), moments, limits) else None


def _following(problem: FiniteSum, play: Play, points: int | None) -> GridSolution:
    """The answer on a grid that follows the mass."""
    budget = point_budget(problem, points)
    cold = cooled(problem, budget)
    quadrature, trajectory = played(cold, play, budget)
    moments = newton(quadrature, start=cold.moments)
    density, _ = quadrature.gibbs(quadrature.slope(moments))
    value = quadrature.dual_at(moments)
    noise = problem.temperature * log_noise(quadrature, quadrature.slope(moments))
    # Between the grid, a finer one and a coarser one; what Newton's method has left; rounding.
    errors = Errors(
        cold.change[0]
        + abs(value - cold.quadrature.dual_at(cold.moments))
        + abs(quadrature.primal(density) - value)
        + noise,
        cold.change[1]
        + float(np.abs(moments - cold.moments).max())
        + error_of_moments(quadrature, density, moments, quadrature.moments(density))
        + noise * float(1 + np.abs(moments).max()),
    )
    if not errors.within(value, moments, (VALUE_ERROR, MOMENTS_ERROR)):
        raise UnresolvedError(
            f"The optimum is not resolved: its value {value:.6g} has an estimated error of "
            f"{errors.value:.1e}, its moments one of {errors.moments:.1e}. Ask for more 'points'."
        )
    return _solution(quadrature, moments, trajectory, errors)


def _solution(
    quadrature: Quadrature, moments: np.ndarray, trajectory: Trajectory, errors: Errors
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


def coarse_points(problem: FiniteSum, size: int) -> int:
    """Grid points per axis while the box is being sought; `size` are those of the final grid."""
    return size if problem.dim == 1 else min(size, COARSE_POINTS)
