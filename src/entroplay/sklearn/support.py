"""A density's mixing measure on given points: a finite problem, solved by its dual.

The points theta_r carry base weights b_r, which stand for the prior. Weights p_r on them minimise

    sum_i omega_i (-log H_i) + temperature KL(p | b),   H_i = sum_r p_r K_ri,

where omega_i are the weights of the rows and K_ri = N(x_i; theta_r, width^2 I). This is the problem
of `measures.cloud_dual` for the loss -log H, and it is solved there: the dual has one slope
u_i = 1 / H_i per row, and the optimal weights are those of a Gibbs measure,

    p_r proportional to b_r exp(phi_r),   phi_r = sum_i omega_i u_i K_ri / temperature.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..base.compilation import compiled, traced
from ..measures.cloud import SeenCloud
from ..measures.cloud_dual import Solved, maximise_on_cloud
from ..measures.weights import effective_number
from ..problems.features import GaussianKernel
from ..problems.losses import NegLog
from ..problems.problem import FiniteSum
from .normals import log_height, square_distances
from .rows import bucket, padded

LOWEST_EXPONENT = -150
"""Smallest exponent of a kernel. Moments stay positive, and slopes so small that their fourth
powers, which conjugate gradients form, do not overflow."""
HIGHEST_POTENTIAL = 1000
"""Maximum contribution of one row to phi at the start. At the optimum phi is a log-density against
the prior, while a row that the prior does not reach would begin with an astronomical one."""
TOLERANCE = 1e-6
"""Newton's decrement at which the method has converged, in nats per row."""
UNIT_WIDTH = 1 / np.sqrt(2 * np.pi)
"""Width of a kernel of height one."""


@dataclass(frozen=True)
class MixingProblem:
    """The problem min_mu sum_i weights_i (-log E_mu N(row_i; theta, width^2 I)) + temperature KL.

    The divergence KL is that of the mixing measure mu from the prior N(0, diag(variance)).
    """

    rows: np.ndarray
    weights: np.ndarray
    width: float
    variance: np.ndarray
    temperature: float
    least_size: int = 0
    """Minimum number of rows after padding. Problems that share it share compiled programs."""

    @property
    def size(self) -> int:
        """The number of rows after padding."""
        return max(self.least_size, bucket(len(self.rows)))

    def kernel(self, points: np.ndarray) -> np.ndarray:
        """The kernels K (N, n), in units of their height."""
        # In place: this is the largest array of a fit.
        exponents = square_distances(points, self.rows)
        exponents *= -0.5 / self.width**2
        np.maximum(exponents, LOWEST_EXPONENT, out=exponents)
        return np.exp(exponents, out=exponents)

    @property
    def log_height(self) -> float:
        """The logarithm of the kernel's height."""
        return log_height(self.rows.shape[1], self.width)

    def prior_log_slopes(self) -> np.ndarray:
        """-log H (n,) under the prior, in units of the kernel's height."""
        # A normal of variance `variance`, blurred by the kernel.
        wide = self.variance + self.width**2
        return 0.5 * (np.log(wide / self.width**2) + self.rows**2 / wide).sum(axis=1)

    def local_variance(self, potential: np.ndarray) -> np.ndarray:
        """Lower bound (k, d) on the variance of the Gibbs measure near k points.

        `potential` is phi at these points. The downward curvature of phi is at most phi / width^2,
        and the precision of the prior is added to it.
        """
        return 1 / (1 / self.variance + potential[:, None] / self.width**2)

    def posed(self, unit: float = 1.0) -> FiniteSum:
        """The same problem in double precision, with padded rows and lengths in this unit.

        Padding has no weight.
        """
        with jax.enable_x64(True):
            return FiniteSum(
                GaussianKernel(padded(self.rows / unit, self.size), self.width / unit),
                NegLog(),
                temperature=self.temperature,
                l2=self.temperature / (2 * self.variance / unit**2),
                weights=padded(self.weights, self.size),
            )


@dataclass
class NewtonLog:
    """The history of the solves of a fit, one on each support, and a limit on Newton's steps."""

    limit: int
    solves: list[dict[str, float]] = field(default_factory=list)
    steps: int = 0
    """Number of Newton steps of all solves."""
    passes: int = 0
    """Number of products with the kernel matrix: of all rows with all points."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> int:
        """The number of steps that are still allowed."""
        return self.limit - self.steps

    def add(self, solved: Solved, problem: MixingProblem) -> None:
        """Append a solve, with the work done so far."""
        steps, omega, n = int(solved.steps) - 1, problem.weights, len(problem.rows)
        self.steps += steps
        # A product of the solve is a pair: one of the matrix, one of its transpose.
        self.passes += 2 * int(solved.products)
        moments, mean = (np.asarray(a)[:n] for a in (solved.point.moments, solved.point.mean))
        ratio = mean / moments
        self.solves.append(
            {
                "iteration": len(self.solves) + 1,
                "inner_steps": steps,
                # Primal minus dual value at these weights and slopes is the Fenchel-Young gap of
                # the loss: the entropies cancel because the weights are those of the Gibbs measure.
                "gap": float(omega @ (ratio - 1 - np.log(ratio))),
                "loss_moments": float(-omega @ np.log(moments)) - problem.log_height,
                "loss_particles": float(-omega @ np.log(mean)) - problem.log_height,
                "effective": float(1 / np.exp(2 * np.asarray(solved.point.log_weights)).sum()),
                "pulls": 0,
                "passes": self.passes,
                "seconds": time.perf_counter() - self.began,
            }
        )


@dataclass(frozen=True)
class Support:
    """A measure on weighted points, with its dual.

    Attributes:
        points: (N, d).
        weights: (N,), which sum to one.
        log_slopes: (n,), log u_i with u_i in units of one over the kernel's height.
        potential: (N,), phi at the points.
        converged: whether the weights are optimal on these points.
    """

    points: np.ndarray
    weights: np.ndarray
    log_slopes: np.ndarray
    potential: np.ndarray
    converged: bool

    @property
    def effective(self) -> float:
        """The effective sample size."""
        return effective_number(self.weights)

    def seen_by(self, problem: MixingProblem) -> Support:
        """The same measure with the slopes u_i = 1 / H_i of another problem's rows."""
        kernel = problem.kernel(self.points)
        log_slopes = -np.log(self.weights @ kernel)
        potential = kernel @ (problem.weights * np.exp(log_slopes)) / problem.temperature
        return replace(self, log_slopes=log_slopes, potential=potential)


def optimum(
    problem: MixingProblem,
    points: np.ndarray,
    log_base: np.ndarray,
    log: NewtonLog,
    log_slopes: np.ndarray | None = None,
) -> Support:
    """The optimal measure on given points.

    Args:
        problem: rows, kernel and prior.
        points: (N, d).
        log_base: (N,), log b up to a constant.
        log: history to which the solve is appended; it also limits the number of steps.
        log_slopes: the start, by default that of the prior.
    """
    n = len(problem.rows)
    start = problem.prior_log_slopes() if log_slopes is None else log_slopes
    # In this unit of length the kernel has height one. Moments are then far from overflow, however
    # many dimensions there are, and they change little from one width to the next.
    unit = problem.width / UNIT_WIDTH
    highest = np.log(HIGHEST_POTENTIAL * problem.temperature / problem.weights)
    start = np.minimum(start, np.minimum(highest, -LOWEST_EXPONENT))
    # Padding may have any moment.
    moments = np.exp(-padded(start, problem.size))
    with jax.enable_x64(True):
        posed, cloud = traced(problem.posed(unit)), jnp.asarray(points / unit)
        matrix = _kernel(posed.features, cloud)
        solved, potential = _solve(
            posed, cloud, matrix, jnp.asarray(log_base), jnp.asarray(moments), jnp.asarray(log.left)
        )
    log.add(solved, problem)
    weights = np.exp(np.asarray(solved.point.log_weights))
    return Support(
        points,
        weights / weights.sum(),
        -np.log(np.asarray(solved.point.moments)[:n]),
        np.asarray(potential),
        float(solved.decrement) <= TOLERANCE,
    )


@compiled
def _kernel(features: GaussianKernel, points: Float[Array, "m d"]) -> Float[Array, "m n"]:
    """The kernels of all points at all rows: the largest array of a fit."""
    return jnp.maximum(features.values(points, features.rows), np.exp(LOWEST_EXPONENT))


# The loops of this program call products with the matrix, which are compiled already. What is left
# works on vectors, and optimising it would take longer than it takes to run.
@partial(compiled, level=0)
def _solve(
    problem: FiniteSum,
    points: Float[Array, "m d"],
    matrix: Float[Array, "m n"],
    log_base: Float[Array, "m"],
    moments: Float[Array, "n"],
    steps: Array,
) -> tuple[Solved, Float[Array, "m"]]:
    """The optimum on the points after at most `steps` Newton steps, and phi there."""
    cloud = SeenCloud(problem.features, points, matrix)
    solved = maximise_on_cloud(
        problem,
        cloud,
        log_base,
        1.0,
        moments,
        tolerance=TOLERANCE,
        most_steps=steps + 1,
        by_products=True,
    )
    slopes = problem.weigh(problem.slope(solved.point.moments))
    return solved, -cloud.potential(slopes) / problem.temperature
