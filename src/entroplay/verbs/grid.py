r"""The oracle: the exact answer by quadrature, for problems with one or two parameters.

`solve` returns the global optimum to about twelve digits. The optimality condition mu = mu-hat,
eq. (2), reads H = E_q[h] in terms of moments, with q = q_g and g = loss'(H); Newton's method solves
it. `solve` also returns the trajectory of the ideal entropic fictitious play, Algorithm 1 with
exact expectations: densities, moments, primal and dual values, and KL divergences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arguments import Schedule, invalid, number_or_schedule, value_at, whole
from ..measures.quadrature import (
    Axes,
    Quadrature,
    check_dimension,
    guaranteed_box,
    kl,
    points_per_axis,
    tightened,
)
from ..problems.problem import FiniteSum

COARSE_POINTS = 101
"""Maximum number of grid points per axis, in two dimensions, while the box is being sought."""
NEWTON_STEPS = 200
"""Maximum number of Newton steps."""
SETTLED = 1e-13
"""Residual of the optimality condition, relative to the moments, at which Newton's method stops."""
HALVINGS = 60
"""Maximum number of times that a Newton step is halved."""
ROUNDING = 1e-14
"""Relative decrease of the dual that is put down to rounding."""


@dataclass(frozen=True)
class Trajectory:
    """Ideal EFP from the prior, eq. (8): mu^(t+1) = (1 - rate) mu^(t) + rate mu-hat^(t).

    Entry t of every array is time t.
    """

    primal: np.ndarray
    """L(mu^(t)), eq. (6)."""
    dual: np.ndarray
    """D(loss'(H^(t))), eq. (11)."""
    kl: np.ndarray
    """KL(mu^(t) | mu-hat^(t)), integrated on its own. By Theorem 2, primal - dual is temperature
    times kl."""
    primal_gibbs: np.ndarray
    """L(mu-hat^(t))."""
    moments: np.ndarray
    """H^(t), stacked along the first axis."""
    snapshots: np.ndarray
    """The times t at which densities were kept."""
    densities: np.ndarray
    """mu^(t) at the snapshots, each shaped like the grid."""
    gibbs_densities: np.ndarray
    """mu-hat^(t) at the snapshots."""


@dataclass(frozen=True)
class GridSolution:
    """The exact optimum on a grid.

    Attributes:
        quadrature: the grid, for further exact integrals.
        density: mu_*, one number per grid point, shaped like the grid.
        moments: E_{mu_*}[h].
        dual_vector: loss'(moments).
        value: the minimum of L.
        dual_value: D(dual_vector), equal to `value` up to rounding.
        stability_limit: the largest rate at which EFP is locally stable,
            2 / (1 + largest eigenvalue of J).
        trajectory: ideal EFP from the prior.
    """

    quadrature: Quadrature
    density: np.ndarray
    moments: np.ndarray
    dual_vector: np.ndarray
    value: float
    dual_value: float
    stability_limit: float
    trajectory: Trajectory

    @property
    def axes(self) -> Axes:
        """The grid's coordinate axes."""
        return self.quadrature.axes

    def __repr__(self) -> str:
        size = " x ".join(str(len(a)) for a in self.axes)
        above = self.trajectory.primal[-1] - self.value
        return (
            f"GridSolution of {self.quadrature.problem}\n"
            f"  value {self.value:.10g}, duality gap {self.value - self.dual_value:.1e}, "
            f"{size} points\n"
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
        points: grid points per axis; default 4001 for d = 1 and 301 for d = 2.
        snapshots: the number of densities of the trajectory to keep, evenly spaced in time.

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

    def visited(quadrature: Quadrature) -> list[np.ndarray]:
        """The duals of the first and of the optimal measure."""
        first = quadrature.slope(quadrature.moments(quadrature.prior))
        return [first, quadrature.slope(newton(quadrature))]

    # The box holds the first and the optimal measure. That it held those in between is checked
    # afterwards.
    coarse = guaranteed_box(problem, coarse_points(problem, size), visited)
    quadrature = tightened(coarse, size, visited(coarse))
    trajectory = _trajectory(quadrature, schedule, iterations, snapshots)
    if any(quadrature.cut(quadrature.slope(moments)) for moments in trajectory.moments):
        # An unstable run may visit measures unlike both: repeat it on the larger box.
        axes = tuple(np.linspace(a[0], a[-1], size) for a in coarse.axes)
        quadrature = Quadrature.on(problem, axes)
        trajectory = _trajectory(quadrature, schedule, iterations, snapshots)
    moments = newton(quadrature)
    dual = quadrature.slope(moments)
    density, _ = quadrature.gibbs(dual)
    return GridSolution(
        quadrature=quadrature,
        density=density.reshape([len(a) for a in quadrature.axes]),
        moments=moments,
        dual_vector=dual,
        value=quadrature.primal(density),
        dual_value=quadrature.dual_at(moments),
        stability_limit=_stability_limit(quadrature, density, moments),
        trajectory=trajectory,
    )


def coarse_points(problem: FiniteSum, size: int) -> int:
    """Grid points per axis while the box is being sought; `size` are those of the final grid."""
    return size if problem.dim == 1 else min(size, COARSE_POINTS)


def newton(quadrature: Quadrature, iterations: int = NEWTON_STEPS) -> np.ndarray:
    """The optimal moments: the root of H - E_q[h], q = q_g, g = loss'(H), by Newton's method.

    The Jacobian of H -> E_q[h] is -J, see `jacobian`. The Newton step is an ascent direction of the
    concave dual. Halving it until the dual increases therefore converges from any start.
    """
    moments = quadrature.moments(quadrature.prior)
    value = quadrature.dual_at(moments)
    for _ in range(iterations):
        density, _ = quadrature.gibbs(quadrature.slope(moments))
        residual = quadrature.moments(density) - moments
        if np.abs(residual).max() <= SETTLED * (1 + np.abs(moments).max()):
            break
        # (I + J) direction = E_q[h] - H.
        response = jacobian(quadrature, density, moments)
        direction = np.linalg.solve(np.eye(len(response)) + response, residual.ravel())
        direction = direction.reshape(moments.shape)
        for halving in range(HALVINGS):
            candidate = quadrature.retract(moments, 0.5**halving * direction)
            new_value = quadrature.dual_at(candidate)
            if new_value >= value - ROUNDING * (1 + abs(value)):
                break
        else:
            break  # no gain left in floating point
        moments, value = candidate, new_value
    return moments


def jacobian(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """J = C W loss''(H) / temperature, of shape (n k, n k), where C = Cov_q(h).

    From d log q_g / dg = -(h - E_q[h]) W / temperature, the derivative of E_q[h] in g is
    -C W / temperature; loss'' is the derivative of g in H.
    """
    covariance = quadrature.covariance(density)
    curvature = quadrature.weighted_curvature(moments)
    if curvature.ndim == 1:
        return covariance * curvature / quadrature.problem.temperature
    n, k = moments.shape
    product = np.einsum("xnk,nkl->xnl", covariance.reshape(n * k, n, k), curvature)
    return product.reshape(n * k, n * k) / quadrature.problem.temperature


def _stability_limit(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> float:
    """The rate at which I - rate (I + J), EFP's linearisation at the optimum, has eigenvalue -1."""
    eigenvalues = np.linalg.eigvals(jacobian(quadrature, density, moments))
    return float(2 / (1 + eigenvalues.real.max()))


def _trajectory(
    quadrature: Quadrature, rate: float | Schedule, iterations: int, snapshots: int
) -> Trajectory:
    """Algorithm 1 with densities on the grid in place of samples."""
    times = np.unique(np.linspace(0, iterations, snapshots).round().astype(int))
    names = ("primal", "dual", "kl", "primal_gibbs", "moments")
    rows: dict[str, list] = {name: [] for name in names}
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    density, shape = quadrature.prior, [len(a) for a in quadrature.axes]
    for t in range(iterations + 1):
        moments = quadrature.moments(density)
        dual = quadrature.slope(moments)
        gibbs, _ = quadrature.gibbs(dual)  # mu-hat, eq. (5)
        rows["primal"].append(quadrature.primal(density))
        rows["dual"].append(quadrature.dual_at(moments))
        rows["kl"].append(kl(density, quadrature.log_gibbs(dual), quadrature.cell))
        rows["primal_gibbs"].append(quadrature.primal(gibbs))
        rows["moments"].append(moments)
        if t in times:
            kept.append((density.reshape(shape), gibbs.reshape(shape)))
        density = density + float(value_at(rate, t)) * (gibbs - density)  # eq. (8)
    densities, gibbs_densities = (np.stack(arrays) for arrays in zip(*kept, strict=True))
    arrays = {name: np.array(values) for name, values in rows.items()}
    return Trajectory(
        **arrays, snapshots=times, densities=densities, gibbs_densities=gibbs_densities
    )
