r"""Sequential Monte Carlo from the prior to a Gibbs measure, on independent islands.

The cloud follows a polygon of dual vectors 0 = v_0, v_1, ..., v_K. On each edge the weight of the next vector rises as
fast as the effective sample size allows; after each rise every island is re-weighted, resampled and moved. The product
of the mean weights estimates Z_v / Z_0 without bias for a fixed schedule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..base.compilation import compiled
from ..measures.gibbs import Gibbs
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum
from .samplers.langevin import StepAdaptation, first_step, metropolis_moves

RESAMPLE_AT = 0.5
"""The share of an island's particles to which the effective sample size may fall before it is resampled."""
MOVED_ON = 0.4
"""Moves go on until the energies correlate less than this with those before the moves."""

PATH = 24
"""Dual vectors kept of a run's path."""


class Islands(NamedTuple):
    """Clouds that know nothing of each other, with what each believes log Z_v / Z_0 to be."""

    particles: Float[Array, "b m d"]
    log_ratio: Float[Array, "b"]
    adaptation: StepAdaptation
    pulls: Float[Array, ""]
    stages: Int[Array, ""]


def effective_sample_size(log_weights: Float[Array, "*b m"]) -> Float[Array, "*b"]:
    """(sum w)^2 / sum w^2, along the last axis."""
    return jnp.exp(
        2 * jax.nn.logsumexp(log_weights, axis=-1) - jax.nn.logsumexp(2 * log_weights, axis=-1)
    )


def largest_step(
    decrease: Float[Array, "*b m"], limit: Array, share: float = RESAMPLE_AT
) -> Float[Array, ""]:
    """The largest s <= limit for which weights exp(-s decrease) keep `share` of the effective sample size everywhere."""
    m = decrease.shape[-1]

    def fine(s: Array) -> Array:
        return jnp.all(effective_sample_size(-s * decrease) >= share * m)

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        good = fine(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low, _ = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(limit), limit))
    return jnp.where(fine(limit), limit, low)


def systematic(key: PRNGKeyArray, log_weights: Float[Array, "m"]) -> Int[Array, "m"]:
    """Systematic resampling: particle r is taken floor or ceil of m w_r times."""
    m = log_weights.shape[0]
    cumulated = jnp.cumsum(jax.nn.softmax(log_weights))
    positions = (
        jax.random.uniform(key, (), log_weights.dtype) + jnp.arange(m, dtype=log_weights.dtype)
    ) / m
    return jnp.clip(jnp.searchsorted(cumulated, positions * cumulated[-1]), 0, m - 1).astype(
        jnp.int32
    )


def from_prior(problem: FiniteSum, key: PRNGKeyArray, islands: int, particles: int) -> Islands:
    """The islands at v = 0."""
    draws = problem.prior(key, islands * particles).reshape(islands, particles, problem.dim)
    start = first_step(problem.dim, problem.l2, problem.dtype)
    return Islands(
        draws,
        jnp.zeros(islands, problem.dtype),
        start,
        jnp.zeros((), problem.dtype),
        jnp.zeros((), jnp.int32),
    )


def anneal(
    problem: FiniteSum,
    key: PRNGKeyArray,
    state: Islands,
    start: Moments,
    end: Moments,
    *,
    steps: int,
    jumps: int,
    stages: int,
    start_l2: Any = None,
) -> Islands:
    """From q_start to q_end, in at most `stages` stages of at least one batch of moves each; the penalty goes from `start_l2`,
    where that is given, to the problem's.

    One schedule and one step size serve all islands: they share how fast to go, never where to be.
    """
    b, m, d = state.particles.shape
    change = problem.weigh(end - start)
    penalty_change = jnp.zeros((), problem.dtype) if start_l2 is None else problem.l2 - start_l2

    def going(carry: tuple[Array, Islands, Array]) -> Array:
        return (carry[0] < 1) & (carry[2] < stages)

    def stage(carry: tuple[Array, Islands, Array]) -> tuple[Array, Islands, Array]:
        s, state, count = carry
        slope = problem.features.potential(state.particles.reshape(b * m, d), change).reshape(b, m)
        slope = (
            slope + jnp.sum(jnp.atleast_2d(penalty_change)[None] * state.particles**2, axis=2)
        ) / problem.temperature
        ds = largest_step(slope, 1 - s)
        # The last allowed stage goes all the way: worse weights are better than the wrong target.
        ds = jnp.where(count == stages - 1, 1 - s, ds)
        log_weights = -ds * slope
        stage_key = jax.random.fold_in(key, count)
        chosen = jax.vmap(systematic)(
            jax.random.split(jax.random.fold_in(stage_key, 0), b), log_weights
        )
        particles = jax.vmap(lambda p, i: p[i])(state.particles, chosen)
        s = jnp.where(ds >= 1 - s, jnp.ones_like(s), s + ds)
        log_ratio = (
            state.log_ratio
            + jax.nn.logsumexp(log_weights, axis=1)
            - jnp.log(jnp.asarray(m, log_weights.dtype))
        )
        state = state._replace(particles=particles, log_ratio=log_ratio, stages=state.stages + 1)
        on_the_way = (
            problem
            if start_l2 is None
            else eqx.tree_at(lambda p: p.l2, problem, start_l2 + s * penalty_change)
        )
        gibbs = Gibbs(on_the_way, start + s * (end - start))
        return (
            s,
            move_on(gibbs, jax.random.fold_in(stage_key, 1), state, steps=steps, jumps=jumps),
            count + 1,
        )

    nothing_to_do = (jnp.all(change == 0) & jnp.all(penalty_change == 0)).astype(
        state.log_ratio.dtype
    )
    return jax.lax.while_loop(going, stage, (nothing_to_do, state, jnp.zeros((), jnp.int32)))[1]


def move_on(
    gibbs: Gibbs, key: PRNGKeyArray, state: Islands, *, steps: int, jumps: int, batches: int = 4
) -> Islands:
    """Batches of moves until the energies have forgotten where they started, at most `batches` of them."""
    b, m, d = state.particles.shape
    before = gibbs.energy(state.particles.reshape(b * m, d))

    def going(carry: tuple[Array, Islands, Array]) -> Array:
        count, _, memory = carry
        return (count < batches) & ((count == 0) | (memory > MOVED_ON))

    def batch(carry: tuple[Array, Islands, Array]) -> tuple[Array, Islands, Array]:
        count, state, _ = carry
        walkers, adaptation, moved = metropolis_moves(
            jax.random.fold_in(key, count),
            gibbs,
            state.particles.reshape(b * m, d),
            state.adaptation,
            steps=steps,
            jumps=jumps,
            leaps=1,
            islands=b,
        )
        memory = jnp.mean((before - jnp.mean(before)) * (walkers.energy - jnp.mean(walkers.energy)))
        memory = memory / (jnp.std(before) * jnp.std(walkers.energy) + jnp.finfo(before.dtype).tiny)
        pulls = state.pulls + moved.pulls
        state = state._replace(
            particles=walkers.particles.reshape(b, m, d), adaptation=adaptation, pulls=pulls
        )
        return count + 1, state, memory

    begin = (jnp.zeros((), jnp.int32), state, jnp.ones((), before.dtype))
    return jax.lax.while_loop(going, batch, begin)[1]


@eqx.filter_jit
def follow(
    problem: FiniteSum,
    key: PRNGKeyArray,
    path: Float[Array, "k n *c"],
    *,
    islands: int,
    particles: int,
    steps: int,
    jumps: int,
    stages: int,
) -> Islands:
    """Islands drawn from the prior and led along the polygon `path` to its last vector; edges of no length cost nothing."""
    prior_key, walk_key = jax.random.split(key)
    begin = from_prior(problem, prior_key, islands, particles)

    def edge(
        carry: tuple[Islands, Moments], item: tuple[Moments, Array]
    ) -> tuple[tuple[Islands, Moments], None]:
        state, start = carry
        end, index = item
        edge_key = jax.random.fold_in(walk_key, index)
        state = anneal(
            problem, edge_key, state, start, end, steps=steps, jumps=jumps, stages=stages
        )
        return (state, end), None

    (state, _), _ = jax.lax.scan(
        edge, (begin, jnp.zeros_like(path[0])), (path, jnp.arange(path.shape[0]))
    )
    return state


@compiled
def bridge(
    problem: FiniteSum,
    key: PRNGKeyArray,
    particles: Particles,
    start: Moments,
    start_l2: Any,
    end: Moments,
    *,
    stages: int = 50,
) -> Particles:
    """A cloud ~ q_start with the penalty `start_l2`, led to q_end of the problem.

    A cloud of another temperature T' is such a cloud too: exp(-U / T') = exp(-(T / T') U / T).
    """
    step = first_step(problem.dim, problem.l2, problem.dtype)
    zero = jnp.zeros((), problem.dtype)
    state = Islands(particles[None], zero[None], step, zero, jnp.zeros((), jnp.int32))
    return anneal(
        problem, key, state, start, end, steps=8, jumps=2, stages=stages, start_l2=start_l2
    ).particles[0]
