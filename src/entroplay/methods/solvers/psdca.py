"""Particle stochastic dual coordinate ascent: Oko, Suzuki, Nitanda and Wu (2022)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...base.arguments import invalid, per_row, positive, whole
from ...base.registry import storable
from ...measures.gibbs import Gibbs
from ...measures.weights import RESAMPLE_AT, effective_sample_size, systematic
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start, judged, scalar

ORDER = 0x6F726465
"""Separates the random order of the rows from the sampler's noise."""


class PSDCAState(eqx.Module):
    """Particles ~ q_dual. Once every row was visited, dual = loss'(moments)."""

    particles: Particles
    moments: Moments
    dual: Moments
    half_range: Float[Array, ""]
    sampler: Any


@storable
class PSDCA(Solver):
    r"""Raises the dual objective row by row, for bounded features.

    With P_i = E_{q_g}[h_i] and B half the range of h, row i takes the step d that maximises

        -conj_i(g_i + d) + <d, P_i> - |d|^2 c_i / 2,    c_i = B^2 w_i / temperature,

    a lower bound of the gain of the dual objective, eq. (11). The solution is
    g_i + d = loss_i'(z_i), where z_i is the proximal point of c_i loss_i at P_i + c_i g_i. No
    conjugate is needed, and the dual stays in its domain.

    One iteration visits all rows once, in mini-batches in random order. The rows of a batch step
    together, and the total weight of the batch takes the place of w_i in c_i. After each batch the
    particles are re-weighted by exp(-w_i <d, h_i> / temperature), and resampled if the effective
    sample size has fallen too far. At the end of the iteration the sampler moves them.
    `solution.moments` are the z_i, and `solution.dual` is their slope.

    Args:
        sampler: moves the cloud; default `MALA()`.
        batch: the number of rows that step together. Small batches take longer steps; large ones
            take less time.
        half_range: B, such that every h_i varies by at most 2 B; default: from
            `problem.features.bounds`. The dual objective need not rise if it is too small.
    """

    nickname: ClassVar[str] = "psdca"

    sampler: Sampler
    batch: int
    half_range: float | None

    def __init__(
        self, sampler: Sampler | None = None, batch: int = 8, half_range: float | None = None
    ):
        self.sampler = sampler_or_default("PSDCA", sampler, MALA())
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
            dual = problem.slope(start.moments)
            return PSDCAState(start.particles, start.moments, dual, half_range, sampler)
        # The cloud is the prior's, that is q_0: re-weight it to q_dual and resample.
        dual = first_dual(problem)
        potential = problem.features.potential(start.particles, problem.weigh(dual))
        chosen = systematic(start.key, -potential / problem.temperature)
        return PSDCAState(start.particles[chosen], start.moments, dual, half_range, sampler)

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: PSDCAState, iteration: Array
    ) -> tuple[PSDCAState, Info]:
        order_key, resample_key = jax.random.split(jax.random.fold_in(key, ORDER))
        order = jax.random.permutation(order_key, problem.features.shape[0])
        equal = jnp.zeros(state.particles.shape[0], problem.dtype)
        begin = Ascent(state.particles, equal, state.dual, state.moments)
        groups = batches(order, self.batch)
        ascent = visit_rows(problem, resample_key, begin, groups, state.half_range)
        # The sampler moves equally weighted particles. Batches use the numbers from 1 on.
        chosen = systematic(jax.random.fold_in(resample_key, 0), ascent.log_weights)
        gibbs = Gibbs(problem, ascent.dual)
        particles, sampler, moved = self.sampler.run(
            key, gibbs, ascent.particles[chosen], state.sampler, iteration
        )
        _, _, info = judged(problem, particles, ascent.moments, moved, other_passes=1)
        return PSDCAState(particles, ascent.moments, ascent.dual, state.half_range, sampler), info

    def dual(self, problem: FiniteSum, state: PSDCAState) -> Moments:
        return state.dual

    def check(self, problem: FiniteSum, iterations: int) -> None:
        bounds = problem.features.bounds
        if self.half_range is None and not np.isfinite(bounds).all():
            raise invalid(
                "PSDCA",
                "half_range",
                "given (half of what every h_i varies by at most) where the features do not know "
                "their own bounds",
                f"None, with {type(problem.features).__name__} bounded by {bounds}",
            )
        super().check(problem, iterations)


class Ascent(NamedTuple):
    """A weighted cloud ~ q_dual during a pass over the rows, and the z_i of the rows visited."""

    particles: Particles
    log_weights: Float[Array, "m"]
    dual: Moments
    moments: Moments


def first_dual(problem: FiniteSum) -> Moments:
    """Zero, the dual of the prior, where it is in the conjugate's domain.

    Elsewhere the slope at the features' upper bound, or at one if they have none.
    """
    zero = jnp.zeros(problem.features.shape, problem.dtype)
    inside = per_row(problem.loss.dual_domain(zero), zero)
    bound = problem.features.bounds[1]
    highest = jnp.full_like(zero, bound if np.isfinite(bound) else 1)
    return jnp.where(inside, zero, problem.slope(highest))


def batches(order: Int[Array, "n"], size: int) -> Int[Array, "batches size"]:
    """The rows in groups of `size`, the last one filled up with -1."""
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

    With c_i = k B^2 (sum of the batch's w) / temperature, k the number of channels, a batch that
    moves by d_i gains at least the sum of its rows' bounds, because Var(sum w_i <d_i, h_i>) <=
    (sum w_i |d_i|_1 B)^2 <= (sum w_i) (sum w_i k |d_i|^2) B^2.
    """
    channels = int(np.prod(problem.features.channels, initial=1))

    def visit(ascent: Ascent, item: tuple[Array, Array]) -> tuple[Ascent, None]:
        rows, index = item
        # The -1 that fill up the last batch read the last row, with weight zero.
        there = rows >= 0
        weight = jnp.where(there, problem.weights[rows], 0)
        h = problem.features.values(ascent.particles, problem.features.rows[rows])
        mean = jnp.tensordot(jax.nn.softmax(ascent.log_weights), h, axes=1)

        # The proximal step: z_i, and with it the new dual loss_i'(z_i).
        c = jnp.broadcast_to(
            channels * half_range**2 / problem.temperature * jnp.sum(weight), rows.shape
        )
        old, loss = ascent.dual[rows], at_rows(problem.loss, rows)
        z = loss.proximal(mean + per_row(c, old) * old, c)
        new = loss.slope(z)

        # Re-weight the cloud from q_old to q_new.
        push = per_row(weight, old) * (new - old)
        change = jnp.tensordot(h, push, axes=old.ndim) / problem.temperature
        log_weights = ascent.log_weights - change
        # An index out of range drops what the filling would write.
        target = jnp.where(there, rows, problem.weights.shape[0])
        dual = ascent.dual.at[target].set(new, mode="drop")
        moments = ascent.moments.at[target].set(z, mode="drop")
        batch_key = jax.random.fold_in(key, 1 + index)
        particles, log_weights = _resampled(batch_key, ascent.particles, log_weights)
        return Ascent(particles, log_weights, dual, moments), None

    return jax.lax.scan(visit, begin, (groups, jnp.arange(groups.shape[0])))[0]


def at_rows(loss: Any, rows: Int[Array, "b"]) -> Any:
    """The loss of some of the rows: all arrays that a loss holds have one entry per row."""
    return jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) and leaf.ndim else leaf, loss)


def _resampled(
    key: PRNGKeyArray, particles: Particles, log_weights: Float[Array, "m"]
) -> tuple[Particles, Float[Array, "m"]]:
    """The cloud as it is, or resampled to equal weights if too few draws are effective."""
    m = log_weights.shape[0]
    return jax.lax.cond(
        effective_sample_size(log_weights) < RESAMPLE_AT * m,
        lambda: (particles[systematic(key, log_weights)], jnp.zeros_like(log_weights)),
        lambda: (particles, log_weights),
    )
