r"""The oracle: the exact answer by quadrature, for problems with one or two parameters.

`solve` returns the global optimum to about twelve digits (Newton's method on the optimality condition H = E_{q}[h],
q = q_{loss'(H)}) and, beside it, the trajectory of the ideal entropic fictitious play, Algorithm 1 with exact
expectations: densities, moments, primal and dual values, KL divergences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arguments import invalid, number_or_schedule, value_at, whole
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


@dataclass(frozen=True)
class Trajectory:
    """Ideal EFP, mu^(t+1) = (1 - rate) mu^(t) + rate mu-hat^(t), from the prior; entry t of every array is time t."""

    primal: np.ndarray
    """L(mu^(t))."""
    dual: np.ndarray
    """D(loss'(H^(t)))."""
    kl: np.ndarray
    """KL(mu^(t) | mu-hat^(t)), integrated by itself: the duality theorem says primal - dual = temperature * kl."""
    primal_gibbs: np.ndarray
    """L(mu-hat^(t))."""
    moments: np.ndarray
    """H^(t), stacked along the first axis."""
    snapshots: np.ndarray
    """The times t at which densities were kept."""
    densities: np.ndarray
    """mu^(t) at the snapshots, each on the grid's shape."""
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
        stability_limit: the largest rate at which EFP is locally stable, 2 / (1 + largest eigenvalue of J).
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
        return (
            f"GridSolution of {self.quadrature.problem}\n"
            f"  value {self.value:.10g}, duality gap {self.value - self.dual_value:.1e}, "
            f"{size} points\n  EFP is stable for rates below {min(self.stability_limit, 1):.3g}; its trajectory ends "
            f"{self.trajectory.primal[-1] - self.value:.3g} above the optimum"
        )


def solve(
    problem: FiniteSum,
    *,
    rate: float = 0.1,
    iterations: int = 100,
    points: int | None = None,
    snapshots: int = 11,
) -> GridSolution:
    """The exact optimum of a problem with d <= 2, and ideal EFP on the way to it.

    Args:
        problem: what to minimise.
        rate: EFP's rate (or a schedule of the iteration).
        iterations: EFP's number of iterations; 0 if only the optimum is wanted.
        points: grid points per axis; default 4001 for d = 1 and 301 for d = 2.
        snapshots: how many densities of the trajectory to keep, evenly spread in time.

    >>> import entroplay as ep
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
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
        first = quadrature.slope(quadrature.moments(quadrature.prior))
        return [first, quadrature.slope(newton(quadrature))]

    coarse = guaranteed_box(problem, size if problem.dim == 1 else min(size, 101), visited)
    quadrature = tightened(coarse, size, visited(coarse))
    trajectory = _trajectory(quadrature, schedule, iterations, snapshots)
    if any(quadrature.cut(quadrature.slope(moments)) for moments in trajectory.moments):
        # An unstable run may visit measures that neither the start nor the optimum foretells: back to the safe box.
        quadrature = Quadrature.on(
            problem, tuple(np.linspace(a[0], a[-1], size) for a in coarse.axes)
        )
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


def newton(quadrature: Quadrature, iterations: int = 200) -> np.ndarray:
    """The optimal moments: the root of H - E_{q_{loss'(H)}}[h], by Newton steps that raise the dual.

    The Jacobian of H -> E_q[h] is -C W loss'' / temperature, C = Cov_q(h), and the Newton step is an ascent direction of
    the concave dual, so halving it until the dual gains converges from anywhere.
    """
    moments = quadrature.moments(quadrature.prior)
    value = quadrature.dual_at(moments)
    for _ in range(iterations):
        density, _ = quadrature.gibbs(quadrature.slope(moments))
        residual = quadrature.moments(density) - moments
        if np.abs(residual).max() <= 1e-13 * (1 + np.abs(moments).max()):
            break
        response = jacobian(quadrature, density, moments)
        direction = np.linalg.solve(np.eye(len(response)) + response, residual.ravel()).reshape(
            moments.shape
        )
        for halving in range(60):
            candidate = quadrature.retract(moments, 0.5**halving * direction)
            new_value = quadrature.dual_at(candidate)
            if new_value >= value - 1e-14 * (1 + abs(value)):
                break
        else:
            break  # no gain left in floating point
        moments, value = candidate, new_value
    return moments


def jacobian(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """J = C W loss''(H) / temperature, of shape (n k, n k)."""
    covariance = quadrature.covariance(density)
    curvature = quadrature.weighted_curvature(moments)
    if curvature.ndim == 1:
        return covariance * curvature / quadrature.problem.temperature
    n, k = moments.shape
    product = np.einsum("xnk,nkl->xnl", covariance.reshape(n * k, n, k), curvature)
    return product.reshape(n * k, n * k) / quadrature.problem.temperature


def _stability_limit(quadrature: Quadrature, density: np.ndarray, moments: np.ndarray) -> float:
    eigenvalues = np.linalg.eigvals(jacobian(quadrature, density, moments))
    return float(2 / (1 + eigenvalues.real.max()))


def _trajectory(quadrature: Quadrature, rate, iterations: int, snapshots: int) -> Trajectory:
    times = np.unique(np.linspace(0, iterations, snapshots).round().astype(int))
    rows: dict[str, list] = {
        name: [] for name in ("primal", "dual", "kl", "primal_gibbs", "moments")
    }
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    density, shape = quadrature.prior, [len(a) for a in quadrature.axes]
    for t in range(iterations + 1):
        moments = quadrature.moments(density)
        gibbs, _ = quadrature.gibbs(quadrature.slope(moments))
        rows["primal"].append(quadrature.primal(density))
        rows["dual"].append(quadrature.dual_at(moments))
        rows["kl"].append(
            kl(density, quadrature.log_gibbs(quadrature.slope(moments)), quadrature.cell)
        )
        rows["primal_gibbs"].append(quadrature.primal(gibbs))
        rows["moments"].append(moments)
        if t in times:
            kept.append((density.reshape(shape), gibbs.reshape(shape)))
        density = density + float(value_at(rate, t)) * (gibbs - density)
    densities, gibbs_densities = (np.stack(arrays) for arrays in zip(*kept, strict=True))
    arrays = {name: np.array(values) for name, values in rows.items()}
    return Trajectory(
        **arrays, snapshots=times, densities=densities, gibbs_densities=gibbs_densities
    )
