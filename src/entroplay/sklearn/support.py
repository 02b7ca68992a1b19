"""A density's mixing measure on given points: a finite problem, solved by Newton's method.

The points theta_r carry base weights b_r, which stand for the prior. Weights w_r on them minimise

    sum_i omega_i (-log H_i) + temperature KL(w | b),   H_i = sum_r w_r K_ri,

where omega_i are the weights of the rows and K_ri = N(x_i; theta_r, width^2 I). With
-log H = max_u (1 + log u - u H) for each row, the problem has a dual in one slope u_i = 1 / H_i per
row,

    max_u  sum_i omega_i (1 + log u_i) - temperature log sum_r b_r exp(phi_r),
    phi_r = sum_i omega_i u_i K_ri / temperature,

and the optimal weights are those of a Gibbs measure, w_r proportional to b_r exp(phi_r).

Newton's method minimises the negative dual as a function of v = log u. In v there is no constraint
u > 0, the first sum is linear, and the second term is convex: it is the logarithm of a sum of
exponentials of convex functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from ..measures.weights import effective_number
from .normals import log_height, log_sum_exp, square_distances

LOWEST_EXPONENT = -700
"""Smallest exponent of a kernel. exp(-700) is still a normal double, so moments stay positive."""
TOLERANCE = 1e-6
"""Newton's decrement at which the method has converged, in nats per row."""
LONGEST = 3.0
"""Maximum change of a log-slope in one step."""
DESCENT = 1e-4
"""Fraction of the decrease predicted by the gradient that a step must achieve (Armijo's rule)."""
SHORTEST = 1e-6
"""Fraction of the full step at which the line search stops."""
CG_TOLERANCE, CG_STEPS = 1e-3, 200
"""Relative residual of Newton's equation, and maximum number of conjugate gradient steps."""
SCALING_TOLERANCE, SCALING_STEPS = 1e-3, 50
"""Deviation of the mean of u_i H_i from one that is accepted at the start; maximum number of steps
to find the common factor."""


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

    def local_variance(self, potential: np.ndarray) -> np.ndarray:
        """Lower bound (k, d) on the variance of the Gibbs measure near k points.

        `potential` is phi at these points. The downward curvature of phi is at most phi / width^2,
        and the precision of the prior is added to it.
        """
        return 1 / (1 / self.variance + potential[:, None] / self.width**2)


@dataclass
class NewtonLog:
    """The history of Newton's method over all supports of a fit, and its limit on steps."""

    limit: int
    steps: list[dict[str, float]] = field(default_factory=list)
    passes: int = 0
    """Number of products with the kernel matrix: of all rows with all points."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> int:
        """The number of steps that are still allowed."""
        return self.limit - len(self.steps)

    def add(self, **values: float) -> None:
        """Append a step, with the work done so far."""
        work = {"pulls": 0, "passes": self.passes, "seconds": time.perf_counter() - self.began}
        self.steps.append({"iteration": len(self.steps) + 1, **values, **work})


@dataclass(frozen=True)
class Support:
    """A measure on weighted points, with its dual.

    Attributes:
        points: (N, d).
        weights: (N,), which sum to one.
        log_slopes: (n,), v_i = log u_i with u_i in units of one over the kernel's height.
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


class _Iterate(NamedTuple):
    """A point v of Newton's method, and what is known there."""

    v: np.ndarray
    value: float
    weights: np.ndarray
    potential: np.ndarray


class SupportDual:
    """The negative dual on given points as a function of v = log u, and Newton's method for it."""

    def __init__(
        self, problem: MixingProblem, points: np.ndarray, log_base: np.ndarray, log: NewtonLog
    ):
        self.problem, self.points, self.log_base, self.log = problem, points, log_base, log
        self.kernel = problem.kernel(points)

    def first(self) -> np.ndarray:
        """The v that belongs to the moments of the prior: -log H under the base weights."""
        return -np.log(np.exp(self.log_base - log_sum_exp(self.log_base)) @ self.kernel)

    def potential(self, v: np.ndarray) -> np.ndarray:
        """The potential phi at the points: log-density of the Gibbs measure against the prior."""
        self.log.passes += 1
        return self.kernel @ (self.problem.weights * np.exp(v)) / self.problem.temperature

    def value(self, v: np.ndarray, potential: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative dual without its constant, and the weights of the Gibbs measure."""
        total = log_sum_exp(self.log_base + potential)
        value = float(self.problem.temperature * total - self.problem.weights @ v)
        return value, np.exp(self.log_base + potential - total)

    def scaled(self, v: np.ndarray) -> np.ndarray:
        """The vector v plus its best common shift: the mean of u_i H_i is then one."""
        # A shift c multiplies phi by e^c. With E and Var under the weights at this c, the negative
        # dual has the derivatives  temperature E[e^c phi] - 1  and
        # temperature (Var[e^c phi] + E[e^c phi])  in c: Newton's method in one variable.
        temperature = self.problem.temperature
        potential, shift = self.potential(v), 0.0
        for _ in range(SCALING_STEPS):
            _, weights = self.value(v, np.exp(shift) * potential)
            mean = weights @ potential * np.exp(shift)
            slope = temperature * mean - 1
            if abs(slope) < SCALING_TOLERANCE:
                break
            variance = weights @ (np.exp(shift) * potential - mean) ** 2
            # Steps are cut: a factor that is far too large puts all weight on one point, and from
            # there Newton's steps back have a length of about one.
            shift -= np.clip(slope / (temperature * (variance + mean)), -1, 1)
        return v + shift

    def maximise(self, v: np.ndarray) -> Support:
        """Maximise the dual by Newton's method, starting at v."""
        v = self.scaled(v)
        now = self._at(v)
        converged = False
        while not converged and self.log.left > 0:
            step, decrement, reached = self._direction(now)
            converged, length = decrement < TOLERANCE, 0.0
            if not converged:
                now, length = self._search(now, step, decrement)
            self.log.add(**reached, step_size=length)
            if not converged and length < SHORTEST:
                break  # no descent: rounding errors or NaNs
        return Support(self.points, now.weights, now.v, now.potential, converged)

    def _at(self, v: np.ndarray) -> _Iterate:
        potential = self.potential(v)
        value, weights = self.value(v, potential)
        return _Iterate(v, value, weights, potential)

    def _direction(self, now: _Iterate) -> tuple[np.ndarray, float, dict[str, float]]:
        """Newton's step, its decrement, and the entries of the history at this point."""
        omega, v = self.problem.weights, now.v
        moments = now.weights @ self.kernel
        # The derivative by v_i is omega_i (u_i H_i - 1): the optimum has u_i = 1 / H_i.
        ratio = np.exp(v) * moments
        gradient = omega * (ratio - 1)
        step = self._newton_step(gradient, omega * np.exp(v), moments, now.weights)
        # Primal minus dual value at these weights and slopes is the Fenchel-Young gap of the loss:
        # the entropies cancel because the weights are those of the Gibbs measure.
        reached = {
            "gap": float(omega @ (ratio - 1 - np.log(ratio))),
            "loss_moments": float(omega @ v) - self.problem.log_height,
            "loss_particles": float(-omega @ np.log(moments)) - self.problem.log_height,
            "effective": effective_number(now.weights),
        }
        return step, float(-gradient @ step), reached

    def _search(self, now: _Iterate, step: np.ndarray, decrement: float) -> tuple[_Iterate, float]:
        """Backtrack along the step until the value falls enough; the new point and the length."""
        # Slopes are exponentials of v, which Newton's quadratic model does not follow far: the
        # search starts at a change of at most LONGEST.
        length = min(1.0, LONGEST / np.abs(step).max())
        while True:
            trial = self._at(now.v + length * step)
            enough = trial.value <= now.value - DESCENT * length * decrement
            if enough or length < SHORTEST:
                return trial, length
            length /= 2

    def _newton_step(
        self, gradient: np.ndarray, s: np.ndarray, moments: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """The solution of Newton's equation by preconditioned conjugate gradients.

        With s_i = omega_i u_i the Hessian is diag(s H) + diag(s) Cov_w(K) diag(s) / temperature.
        It is positive definite, and its diagonal is the preconditioner.
        """
        n, temperature = len(s), self.problem.temperature
        variance = np.maximum(
            np.einsum("r,ri,ri->i", weights, self.kernel, self.kernel) - moments**2, 0
        )
        diagonal = s * moments + s**2 * variance / temperature

        def hessian(x: np.ndarray) -> np.ndarray:
            # The covariance (n, n) is not formed: two products with the kernel matrix apply it.
            x = x.ravel()
            self.log.passes += 2
            seen = self.kernel @ (s * x)
            seen = weights * (seen - weights @ seen)
            return s * moments * x + s * (seen @ self.kernel) / temperature

        return cg(
            _operator(n, hessian),
            -gradient,
            rtol=CG_TOLERANCE,
            maxiter=CG_STEPS,
            M=_operator(n, lambda x: x.ravel() / diagonal),
        )[0]


def _operator(size: int, product: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    return LinearOperator((size, size), matvec=product, dtype=np.float64)  # type: ignore[call-arg]
