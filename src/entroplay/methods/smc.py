r"""Sequential Monte Carlo from the prior to a Gibbs measure, on independent islands.

The cloud follows a polygon of dual vectors 0 = v_0, v_1, ..., v_K. On each edge the weight of the
next vector rises as fast as the effective sample size allows; after each rise every island is
re-weighted, resampled and moved. For a fixed schedule, the product of the mean weights estimates
Z_v / Z_0 without bias.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..base.compilation import compiled
from ..measures.gibbs import Gibbs
from ..measures.weights import largest_step, systematic_at
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum
from .samplers.langevin import StepAdaptation, first_step, metropolis_moves

STEPS, JUMPS = 8, 2
"""Langevin steps and jumps in one batch of moves."""
STAGES = 50
"""Maximum number of stages of a bridge."""
BATCHES, MOVED_ON = 4, 0.4
"""Maximum number of batches of moves in a stage, and the correlation of the energies with those
before the moves below which no further batch is needed."""


class Islands(NamedTuple):
    """Clouds that share no particles, each with its own estimate of log Z_v / Z_0."""

    particles: Float[Array, "b m d"]
    log_ratio: Float[Array, "b"]
    adaptation: StepAdaptation
    pulls: Float[Array, ""]
    stages: Int[Array, ""]


def from_prior(problem: FiniteSum, key: PRNGKeyArray, islands: int, particles: int) -> Islands:
    """Islands of independent draws from the prior, which is q_v for v = 0."""
    draws = problem.prior(key, islands * particles).reshape(islands, particles, problem.dim)
    return Islands(
        draws,
        jnp.zeros(islands, problem.dtype),
        first_step(problem.dim, problem.l2, problem.dtype),
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
    """Move islands from q_start to q_end, in at most `stages` stages.

    Each stage has at least one batch of moves. The penalty goes from `start_l2`, if that is given,
    to the problem's. One schedule and one step size serve all islands: they share how fast to go,
    never where to be.
    """
    b, m, d = state.particles.shape
    change = problem.weigh(end - start)
    penalty_change = jnp.zeros((), problem.dtype) if start_l2 is None else problem.l2 - start_l2

    def slope_of(particles: Float[Array, "b m d"]) -> Float[Array, "b m"]:
        """dU/ds / temperature at each particle: U is linear in s on the edge from 0 to 1."""
        linear = problem.features.potential(particles.reshape(b * m, d), change).reshape(b, m)
        penalty = jnp.sum(jnp.atleast_2d(penalty_change)[None] * particles**2, axis=2)
        return (linear + penalty) / problem.temperature

    def gibbs_at(s: Array) -> Gibbs:
        """The Gibbs measure at the point s of the edge."""
        if start_l2 is None:
            there = problem
        else:
            there = eqx.tree_at(lambda p: p.l2, problem, start_l2 + s * penalty_change)
        return Gibbs(there, start + s * (end - start))

    def going(carry: tuple[Array, Islands, Array]) -> Array:
        return (carry[0] < 1) & (carry[2] < stages)

    def stage(carry: tuple[Array, Islands, Array]) -> tuple[Array, Islands, Array]:
        s, state, count = carry
        slope = slope_of(state.particles)
        # The longest rise at which every island keeps its effective sample size. The last stage
        # goes all the way: worse weights are better than the wrong target.
        ds = largest_step(slope, 1 - s)
        ds = jnp.where(count == stages - 1, 1 - s, ds)
        log_weights = -ds * slope
        # Exactly one at the end, which s + ds might miss by rounding.
        s = jnp.where(ds >= 1 - s, jnp.ones_like(s), s + ds)

        resample_key, move_key = jax.random.split(jax.random.fold_in(key, count))
        offsets = jax.random.uniform(resample_key, (b,), log_weights.dtype)
        chosen = jax.vmap(systematic_at)(offsets, log_weights)
        particles = jax.vmap(lambda p, i: p[i])(state.particles, chosen)
        # The mean weight of each island estimates the ratio of the two partition functions.
        log_sum = jax.nn.logsumexp(log_weights, axis=1)
        log_ratio = state.log_ratio + log_sum - jnp.log(jnp.asarray(m, slope.dtype))
        state = state._replace(particles=particles, log_ratio=log_ratio, stages=state.stages + 1)
        return s, move_on(gibbs_at(s), move_key, state, steps=steps, jumps=jumps), count + 1

    # An edge of no length counts as walked.
    nothing_to_do = jnp.all(change == 0) & jnp.all(penalty_change == 0)
    begin = (nothing_to_do.astype(state.log_ratio.dtype), state, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(going, stage, begin)[1]


def move_on(
    gibbs: Gibbs,
    key: PRNGKeyArray,
    state: Islands,
    *,
    steps: int,
    jumps: int,
    batches: int = BATCHES,
) -> Islands:
    """Move islands, at most `batches` times, until their energies have forgotten the start."""
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
        # The correlation of the energies before and after; `tiny` guards against constant ones.
        after = walkers.energy
        memory = jnp.mean((before - jnp.mean(before)) * (after - jnp.mean(after)))
        memory = memory / (jnp.std(before) * jnp.std(after) + jnp.finfo(before.dtype).tiny)
        state = state._replace(
            particles=walkers.particles.reshape(b, m, d),
            adaptation=adaptation,
            pulls=state.pulls + moved.pulls,
        )
        return count + 1, state, memory

    begin = (jnp.zeros((), jnp.int32), state, jnp.ones((), before.dtype))
    return jax.lax.while_loop(going, batch, begin)[1]


@compiled
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
    """Islands drawn from the prior and moved along the polygon `path` to its last vector.

    Edges of no length cost nothing.
    """
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
    stages: int = STAGES,
) -> Particles:
    """A cloud ~ q_start with the penalty `start_l2`, moved to q_end of the problem.

    A cloud of another temperature T' is such a cloud too: exp(-U / T') = exp(-(T / T') U / T).
    """
    step = first_step(problem.dim, problem.l2, problem.dtype)
    zero = jnp.zeros((), problem.dtype)
    # One island is all of the cloud.
    state = Islands(particles[None], zero[None], step, zero, jnp.zeros((), jnp.int32))
    state = anneal(
        problem, key, state, start, end, steps=STEPS, jumps=JUMPS, stages=stages, start_l2=start_l2
    )
    return state.particles[0]
