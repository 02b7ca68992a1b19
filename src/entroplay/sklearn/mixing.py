"""Mixing measures on a weighted support: the density's problem as a finite one, which Newton's method solves exactly.

Points theta_r are drawn from a proposal q. With base weights b_r = prior(theta_r) / q(theta_r), weights w_r on the points stand
for a measure with a density, and KL(w | b) for its divergence from the prior. What remains has a dual in one slope u_i = 1 / H_i
per row,

    max_u  sum_i weights_i (1 + log u_i) - temperature log sum_r b_r exp(sum_i weights_i u_i K_ri / temperature),

concave in log u. A particle method would need many particles near every row by chance, lest one without any has a boundless slope;
the proposal puts some there on purpose, and is adapted to what was found (population Monte Carlo, Cappe et al. 2004).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

SHARES = {"prior": 0.1, "posterior": 0.15, "peaks": 0.15, "found": 0.6}
"""Of the points: draws of the prior, which bound all base weights; of each row's posterior location under the prior; near the rows,
as tight as the last Gibbs measure is there; and near the points that were found last."""
MOST_FOUND, MOST_ROWS = 512, 1024
"""Points of the last support, and rows, that one proposal goes by."""
ENOUGH = 0.25
"""The share of the points that the effective sample size should reach before the proposal counts as adapted."""
TOLERANCE = 1e-6
"""On Newton's decrement, in nats per row."""
LONGEST = 3.0
"""The largest change of a log-slope in one step."""
SHORTEST = 1e-6
"""Of a whole step, at which a search along it ends."""
BLOCK, MOST_NUMBERS = 2**22, 2**27
"""Numbers that a passing table of distances may hold, and a support's table of kernels (one gigabyte)."""


@dataclass(frozen=True)
class Posed:
    """min over mu of  sum_i weights_i (-log E_mu N(row_i; theta, width^2)) + temperature KL(mu | N(0, variance))."""

    rows: np.ndarray
    weights: np.ndarray
    width: float
    variance: np.ndarray
    temperature: float

    def kernel(self, points: np.ndarray) -> np.ndarray:
        """K (N, n) in units of the kernel's height."""
        exponents = square_distances(points, self.rows)
        exponents *= -0.5 / self.width**2
        np.maximum(exponents, -700, out=exponents)  # in place: this is the largest array of a fit
        return np.exp(exponents, out=exponents)

    @property
    def log_height(self) -> float:
        """Of the kernel."""
        return log_height(self.rows.shape[1], self.width)

    def local_variance(self, potential: np.ndarray) -> np.ndarray:
        """Of the Gibbs measure near points of these log-potentials, at the least: the prior's precision and the kernels' add up."""
        return 1 / (1 / self.variance + potential[:, None] / self.width**2)


@dataclass
class Record:
    """What happened in each step of Newton's method."""

    limit: int
    steps: list[dict[str, float]] = field(default_factory=list)
    passes: int = 0
    """Over all rows, for all points."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> int:
        return self.limit - len(self.steps)

    def add(self, **values: float) -> None:
        work = {"pulls": 0, "passes": self.passes, "seconds": time.perf_counter() - self.began}
        self.steps.append({"iteration": len(self.steps) + 1, **values, **work})


@dataclass(frozen=True)
class Support:
    """Weighted points, log(u_i) in units of one over the kernel's height, and the log-potential at the points."""

    points: np.ndarray
    weights: np.ndarray
    log_slopes: np.ndarray
    potential: np.ndarray
    converged: bool

    @property
    def effective(self) -> float:
        """The effective sample size."""
        return float(1 / (self.weights**2).sum())

    def seen_by(self, posed: Posed) -> Support:
        """The same measure with slopes for other rows: one over what it says of them."""
        kernel = posed.kernel(self.points)
        log_slopes = -np.log(self.weights @ kernel)
        potential = kernel @ (posed.weights * np.exp(log_slopes)) / posed.temperature
        return replace(self, log_slopes=log_slopes, potential=potential)


def log_height(d: int, width: float) -> float:
    """log of N(0; 0, width^2 I) in d dimensions."""
    return float(-d * (np.log(width) + 0.5 * np.log(2 * np.pi)))


def square_distances(points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """|theta_r - x_i|^2 (N, n)."""
    squares = points @ (-2 * rows.T)
    squares += (points**2).sum(axis=1)[:, None]
    squares += (rows**2).sum(axis=1)[None, :]
    return np.maximum(squares, 0, out=squares)


def systematic(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn by their weights: each is taken floor or ceil of count times its weight."""
    marks = (np.arange(count) + rng.random()) / count
    return np.searchsorted(np.cumsum(weights), marks).clip(max=len(weights) - 1)


@dataclass(frozen=True)
class _Normals:
    """A mixture of normals with diagonal covariances, from which a share of the points is drawn."""

    share: float
    centres: np.ndarray
    variances: np.ndarray
    weights: np.ndarray

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        chosen = systematic(self.weights, count, rng)
        return self.centres[chosen] + np.sqrt(self.variances[chosen]) * rng.standard_normal(
            (count, self.centres.shape[1])
        )

    def log_density(self, points: np.ndarray) -> np.ndarray:
        precision = 1 / self.variances
        level = np.log(self.weights) - 0.5 * np.log(2 * np.pi * self.variances).sum(axis=1)
        level = level - 0.5 * (self.centres**2 * precision).sum(axis=1)
        linear = (self.centres * precision).T
        return in_blocks(
            lambda part: log_sum_exp(level + part @ linear - 0.5 * part**2 @ precision.T),
            points,
            len(level),
        )


def log_sum_exp(exponents: np.ndarray) -> Any:
    """Along the last axis, in three passes: scipy's takes twice the time."""
    top = exponents.max(axis=-1, keepdims=True)
    return np.log(np.exp(exponents - top).sum(axis=-1)) + top[..., 0]


def in_blocks(
    function: Callable[[np.ndarray], np.ndarray], points: np.ndarray, columns: int
) -> np.ndarray:
    """A function of the rows of `points`, as many at once as a table with so many columns has room for."""
    size = max(1, BLOCK // columns)
    return np.concatenate(
        [function(points[first : first + size]) for first in range(0, len(points), size)]
    )


def _proposal(posed: Posed, last: Support | None, rng: np.random.Generator) -> list[_Normals]:
    """Where to draw points from: see SHARES. Without a last support the posteriors stand in for the rest."""
    d = posed.rows.shape[1]
    centres, weights = _some(posed.weights, MOST_ROWS, rng)
    rows = posed.rows[centres]
    prior = _Normals(SHARES["prior"], np.zeros((1, d)), posed.variance[None], np.ones(1))
    shrunk = posed.variance / (posed.variance + posed.width**2)
    posterior = (rows * shrunk, np.broadcast_to(posed.width**2 * shrunk, rows.shape), weights)
    if last is None:
        return [prior, _Normals(1 - prior.share, *posterior)]
    slopes = posed.weights * np.exp(last.log_slopes) / posed.temperature
    potential = in_blocks(lambda part: posed.kernel(part) @ slopes, rows, len(posed.rows))
    variance = posed.local_variance(potential)
    peaks = (rows * potential[:, None] * variance / posed.width**2, variance, weights)
    chosen, times = _some(last.weights, MOST_FOUND, rng)
    found = (last.points[chosen], posed.local_variance(last.potential[chosen]), times)
    return [
        prior,
        _Normals(SHARES["posterior"], *posterior),
        _Normals(SHARES["peaks"], *peaks),
        _Normals(SHARES["found"], *found),
    ]


def _some(
    weights: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most so many of the indices, drawn by their weights, and the weights that they then have: all of them, if they are few."""
    if len(weights) <= most:
        kept = np.flatnonzero(weights)
        return kept, weights[kept]
    chosen, times = np.unique(systematic(weights, most, rng), return_counts=True)
    return chosen, times / most


def solve_on_support(
    posed: Posed,
    count: int,
    rng: np.random.Generator,
    *,
    last: Support | None,
    rounds: int,
    record: Record,
) -> Support:
    """The optimum on about `count` points, which are drawn anew around what was found, until they are adapted to it or `rounds` are
    over. `last` is a solution for a kernel of nearly this width. Points are fewer where there are too many rows for their kernels.
    """
    count = min(count, max(256, MOST_NUMBERS // len(posed.rows)))
    for _ in range(rounds):
        proposal = _proposal(posed, last, rng)
        parts = [part.draw(max(1, round(part.share * count)), rng) for part in proposal]
        points = np.concatenate(parts)
        shares = np.array([len(part) for part in parts]) / len(points)
        densities = [
            np.log(share) + part.log_density(points)
            for share, part in zip(shares, proposal, strict=True)
        ]
        log_base = proposal[0].log_density(points) - log_sum_exp(np.stack(densities, axis=1))
        dual = _Dual(posed, points, log_base, record)
        start = dual.first() if last is None else last.log_slopes
        last = dual.maximise(start)
        if last.effective > ENOUGH * len(points) or record.left <= 0:
            break
    assert last is not None
    return last


class _Dual:
    """The negative dual as a function of v = log u, convex, and Newton's method for it."""

    def __init__(self, posed: Posed, points: np.ndarray, log_base: np.ndarray, record: Record):
        self.posed, self.points, self.log_base, self.record = posed, points, log_base, record
        self.kernel = posed.kernel(points)

    def first(self) -> np.ndarray:
        """At the prior's own moments."""
        return -np.log(np.exp(self.log_base - log_sum_exp(self.log_base)) @ self.kernel)

    def potential(self, v: np.ndarray) -> np.ndarray:
        """Of the Gibbs measure with respect to the prior, at the points."""
        self.record.passes += 1
        return self.kernel @ (self.posed.weights * np.exp(v)) / self.posed.temperature

    def value(self, v: np.ndarray, potential: np.ndarray) -> tuple[float, np.ndarray]:
        """With the weights of the points."""
        total = log_sum_exp(self.log_base + potential)
        return float(self.posed.temperature * total - self.posed.weights @ v), np.exp(
            self.log_base + potential - total
        )

    def scaled(self, v: np.ndarray) -> np.ndarray:
        """With the best common factor of all slopes: the mean of u_i H_i is then one."""
        potential, shift = self.potential(v), 0.0
        for _ in range(50):
            _, weights = self.value(v, np.exp(shift) * potential)
            mean = weights @ potential * np.exp(shift)
            slope = self.posed.temperature * mean - 1
            if abs(slope) < 1e-3:
                break
            variance = weights @ (np.exp(shift) * potential - mean) ** 2
            # Too large a factor puts all weight on one point, whose potential then falls too little: steps are cut short.
            shift -= np.clip(slope / (self.posed.temperature * (variance + mean)), -1, 1)
        return v + shift

    def maximise(self, v: np.ndarray) -> Support:
        """From v on."""
        omega = self.posed.weights
        v = self.scaled(v)
        potential = self.potential(v)
        value, weights = self.value(v, potential)
        converged = False
        while not converged and self.record.left > 0:
            moments = weights @ self.kernel
            s, ratio = omega * np.exp(v), np.exp(v) * moments
            gradient = omega * (ratio - 1)
            step = self._newton_step(gradient, s, moments, weights)
            decrement, length = float(-gradient @ step), 0.0
            reached = {
                "gap": float(omega @ (ratio - 1 - np.log(ratio))),
                "loss_moments": float(omega @ v) - self.posed.log_height,
                "loss_particles": float(-omega @ np.log(moments)) - self.posed.log_height,
                "effective": float(1 / (weights**2).sum()),
            }
            converged = decrement < TOLERANCE
            if not converged:
                length = min(1.0, LONGEST / np.abs(step).max())
                while True:
                    trial, moved = self.value(
                        v + length * step, longer := self.potential(v + length * step)
                    )
                    if trial <= value - 1e-4 * length * decrement or length < SHORTEST:
                        break
                    length /= 2
                v, value, weights, potential = v + length * step, trial, moved, longer
            self.record.add(**reached, step_size=length)
            if not converged and length < SHORTEST:
                break  # no way down: rounding, or numbers that are none
        return Support(self.points, weights, v, potential, converged)

    def _newton_step(
        self, gradient: np.ndarray, s: np.ndarray, moments: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """By conjugate gradients with the diagonal for a preconditioner. The Hessian is diag(s H) + s Cov(K) s / temperature."""
        n, temperature = len(s), self.posed.temperature
        variance = np.maximum(
            np.einsum("r,ri,ri->i", weights, self.kernel, self.kernel) - moments**2, 0
        )
        diagonal = s * moments + s**2 * variance / temperature

        def hessian(x: np.ndarray) -> np.ndarray:
            x = x.ravel()
            self.record.passes += 2
            seen = self.kernel @ (s * x)
            seen = weights * (seen - weights @ seen)
            return s * moments * x + s * (seen @ self.kernel) / temperature

        return cg(
            _operator(n, hessian),
            -gradient,
            rtol=1e-3,
            maxiter=200,
            M=_operator(n, lambda x: x.ravel() / diagonal),
        )[0]


def _operator(size: int, product: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    return LinearOperator((size, size), matvec=product, dtype=np.float64)  # type: ignore[call-arg]
