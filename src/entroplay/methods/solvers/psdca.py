"""Particle stochastic dual coordinate ascent: Oko, Suzuki, Nitanda and Wu (2022)."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...base.arguments import invalid, positive, whole
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.base import Sampler, sampler_or_default
from ..smc import RESAMPLE_AT, effective_sample_size, systematic
from .base import Info, Solver, Start, judged, scalar


class PSDCAState(eqx.Module):
    """Particles ~ q_dual. Once every row had its turn, dual = loss'(moments)."""

    particles: Particles
    moments: Moments
    dual: Moments
    half_range: Float[Array, ""]
    sampler: Any


class PSDCA(Solver):
    r"""Raises the dual objective row by row, for bounded features. With P_i = E_{q_g}[h_i] and B half the range of h, row i
    takes the step d that maximises

        -conj_i(g_i + d) + <d, P_i> - |d|^2 c_i / 2,    c_i = B^2 w_i / temperature,

    a lower bound of what the dual objective gains. Its solution is g_i + d = loss_i'(z_i), with z_i the proximal point of
    c_i loss_i at P_i + c_i g_i: no conjugate is needed, and the dual stays in its domain.

    One iteration visits all rows once, in mini-batches in random order; rows of a batch step together, with c_i the larger by
    the batch's share of the weight over w_i. Meanwhile the particles are re-weighted by exp(-w_i <d, h_i> / temperature),
    and resampled when the effective sample size falls; at the end of the iteration the sampler moves them. `solution.moments`
    are the z_i, so that `solution.dual` is their slope.

    Args:
        sampler: what moves the cloud; default `MALA()`.
        batch: rows that step together. Small batches take longer steps; large ones take less time.
        half_range: B, such that every h_i varies by at most 2 B; default: from `problem.features.bounds`. Too small a number
            breaks the ascent.
    """

    sampler: Sampler
    batch: int
    half_range: float | None

    def __init__(
        self, sampler: Sampler | None = None, batch: int = 8, half_range: float | None = None
    ):
        self.sampler = sampler_or_default("PSDCA", sampler)
        self.batch = whole("PSDCA", "batch", batch)
        self.half_range = (
            None if half_range is None else positive("PSDCA", "half_range", half_range)
        )

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> PSDCAState:
        low, high = problem.features.bounds
        half_range = scalar(
            (high - low) / 2 if self.half_range is None else self.half_range, problem
        )
        sampler = self.sampler.init(problem)
        if start.warm:
            return PSDCAState(
                start.particles, start.moments, problem.slope(start.moments), half_range, sampler
            )
        dual = first_dual(problem)
        # From the prior to q_dual; an offset of its own, since all randomness of the run is still to come.
        log_weights = (
            -problem.features.potential(start.particles, problem.weigh(dual)) / problem.temperature
        )
        chosen = systematic(jax.random.key(0), log_weights)
        return PSDCAState(start.particles[chosen], start.moments, dual, half_range, sampler)

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: PSDCAState, iteration: Array
    ) -> tuple[PSDCAState, Info]:
        order_key, resample_key = jax.random.split(jax.random.fold_in(key, ORDER))
        order = jax.random.permutation(order_key, problem.features.shape[0])
        begin = Ascent(
            state.particles,
            jnp.zeros(state.particles.shape[0], problem.dtype),
            state.dual,
            state.moments,
        )
        ascent = visit_rows(
            problem, resample_key, begin, batches(order, self.batch), state.half_range
        )
        chosen = systematic(jax.random.fold_in(resample_key, 0), ascent.log_weights)
        gibbs = Gibbs(problem, ascent.dual)
        particles, sampler, moved = self.sampler.run(
            key, gibbs, ascent.particles[chosen], state.sampler, iteration
        )
        _, _, info = judged(problem, particles, ascent.moments, moved, other_passes=1)
        return PSDCAState(particles, ascent.moments, ascent.dual, state.half_range, sampler), info

    def dual(self, problem: FiniteSum, state: PSDCAState) -> Moments:
        return state.dual

    @property
    def remedy(self) -> str:
        return self.sampler.remedy

    def check(self, problem: FiniteSum, iterations: int) -> None:
        if self.half_range is None and not np.isfinite(problem.features.bounds).all():
            raise invalid(
                "PSDCA",
                "half_range",
                "given (half of what every h_i varies by at most) where the features do not know their own bounds",
                f"None, with {type(problem.features).__name__} bounded by {problem.features.bounds}",
            )
        self.sampler.check(iterations)


ORDER = 0x6F726465
"""Sets the order of the rows apart from the sampler's noise."""


class Ascent(NamedTuple):
    """A weighted cloud ~ q_dual on its way, and the z_i of the rows that were visited."""

    particles: Particles
    log_weights: Float[Array, "m"]
    dual: Moments
    moments: Moments


def first_dual(problem: FiniteSum) -> Moments:
    """Zero, where that lies in the conjugate's domain (the prior's own dual), else the slope at the features' largest value."""
    zero = jnp.zeros(problem.features.shape, problem.dtype)
    inside = problem.loss.dual_domain(zero).reshape(-1, *[1] * (zero.ndim - 1))
    highest = problem.features.bounds[1]
    return jnp.where(
        inside, zero, problem.slope(jnp.full_like(zero, highest if np.isfinite(highest) else 1))
    )


def batches(order: Int[Array, "n"], size: int) -> Int[Array, "batches size"]:
    """The rows in groups of `size`; -1 fills up the last one."""
    size = min(size, order.shape[0])
    return jnp.pad(order, (0, -order.shape[0] % size), constant_values=-1).reshape(-1, size)


def visit_rows(
    problem: FiniteSum,
    key: PRNGKeyArray,
    begin: Ascent,
    groups: Int[Array, "batches size"],
    half_range: Float[Array, ""],
) -> Ascent:
    """One step of every row, batch after batch.

    A batch that moves by d_i gains at least what its rows' bounds say when c_i = k B^2 (sum of the batch's w) / temperature:
    Var(sum w_i <d_i, h_i>) <= (sum w_i |d_i|_1 B)^2 <= (sum w_i) (sum w_i k |d_i|^2) B^2, k the number of channels.
    """
    channels = int(np.prod(problem.features.channels, initial=1))

    def visit(ascent: Ascent, item: tuple[Array, Array]) -> tuple[Ascent, None]:
        rows, index = item
        there = rows >= 0
        weight = jnp.where(there, problem.weights[rows], 0)
        h = problem.features.values(ascent.particles, problem.features.rows[rows])
        mean = jnp.tensordot(jax.nn.softmax(ascent.log_weights), h, axes=1)
        strength = jnp.broadcast_to(
            channels * half_range**2 / problem.temperature * jnp.sum(weight), rows.shape
        )
        old, loss = ascent.dual[rows], at_rows(problem.loss, rows)
        z = loss.proximal(mean + _rowwise(strength, old) * old, strength)
        new = loss.slope(z)
        push = _rowwise(weight, old) * (new - old)
        log_weights = (
            ascent.log_weights - jnp.tensordot(h, push, axes=old.ndim) / problem.temperature
        )
        target = jnp.where(
            there, rows, problem.weights.shape[0]
        )  # out of range: nothing is written
        dual = ascent.dual.at[target].set(new, mode="drop")
        moments = ascent.moments.at[target].set(z, mode="drop")
        particles, log_weights = _resampled(
            jax.random.fold_in(key, 1 + index), ascent.particles, log_weights
        )
        return Ascent(particles, log_weights, dual, moments), None

    return jax.lax.scan(visit, begin, (groups, jnp.arange(groups.shape[0])))[0]


def at_rows(loss: Any, rows: Int[Array, "b"]) -> Any:
    """The loss of some of the rows: all arrays that a loss holds have one entry per row."""
    return jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) and leaf.ndim else leaf, loss)


def _rowwise(x: Float[Array, "b"], like: Array) -> Array:
    return x.reshape(-1, *[1] * (like.ndim - 1))


def _resampled(
    key: PRNGKeyArray, particles: Particles, log_weights: Float[Array, "m"]
) -> tuple[Particles, Float[Array, "m"]]:
    """The cloud as it is, or resampled to equal weights once the effective sample size has fallen too far."""
    m = log_weights.shape[0]
    return jax.lax.cond(
        effective_sample_size(log_weights) < RESAMPLE_AT * m,
        lambda: (particles[systematic(key, log_weights)], jnp.zeros_like(log_weights)),
        lambda: (particles, log_weights),
    )
