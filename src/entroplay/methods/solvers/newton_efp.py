"""Newton's method on the fixed point of fictitious play, along a path from hot to cold."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.compilation import compiled, traced
from ...base.registry import storable
from ...measures.cloud import SeenCloud
from ...measures.gap import bregman_gap, rowwise_square, sampling_bias
from ...measures.gibbs import Gibbs
from ...measures.weights import systematic, systematic_at
from ...problems.features.base import Moments
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start
from .newton_descent import (
    SHARE,
    SHORTENINGS,
    TROUBLES,
    Answer,
    Descent,
    Moved,
    descend,
    mean_direction,
    next_try,
    not_worse,
    trusted,
)
from .newton_state import Kept, NewtonColumns, NewtonEFPState

FLOOR, RESTART = 1.5, 16.0
"""Bounds of the squared residual, as multiples of its sampling noise. Below FLOOR the running mean
grows longer; above RESTART it starts again. In between it keeps its length: a residual that stands
out says that the moments are not right yet. Where one direction dominates, noise alone exceeds 8 in
one iteration of two hundred, which would throw good means away, and 16 in one of sixteen
thousand."""
WELL = 6.0
"""Particles per effective degree of freedom with which the dual is well determined."""
PATIENCE, FIRST_PATIENCE = 3, 15
"""Successive iterations without a lower temperature after which the cloud is too small for one; and
those allowed before the first answer is confirmed, after a start from elsewhere."""


@storable
class NewtonEFP(Solver):
    r"""Solves the dual problem on a cloud that is led from the prior to the optimum.

    With the prior fixed, beta times the loss is the problem at temperature / beta. As beta rises
    from 0 to 1, the run passes through the solutions of all higher temperatures. Each iteration
    maximises the dual on the present cloud to convergence, by Newton's method, then again at the
    lowest temperature to which the cloud can be re-weighted, where it is resampled and moved: a
    sequential Monte Carlo sampler whose path is the optimisation. At the noise floor of the last
    temperature steps become a running mean (1/k), with covariance and residual from opposite halves
    of the cloud.

    The cloud must have several particles per effective degree of freedom. Where `solve` may choose
    their number, the cloud grows; where it is given and too small for a temperature, the run ends
    above it and says so.

    Args:
        sampler: moves the cloud; default `MALA(steps=5, jumps=5, leaps=1)`.
    """

    nickname: ClassVar[str] = "newton"
    turns_on_loss: ClassVar[bool] = True

    sampler: Sampler

    def __init__(self, sampler: Sampler | None = None):
        default = MALA(steps=5, jumps=5, leaps=1)
        self.sampler = sampler_or_default("NewtonEFP", sampler, default)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> NewtonEFPState:
        one, zero = jnp.ones((), problem.dtype), jnp.zeros((), jnp.int32)
        beta = start.beta * one if start.warm else 0 * one
        return NewtonEFPState(
            start.particles,
            start.moments,
            beta,
            averaged=one,
            first_try=zero,
            stuck=zero,
            trouble=zero,
            kept=Kept(start.particles, start.moments, beta, one * jnp.finfo(problem.dtype).max),
            d_eff=0 * one,
            most=jnp.asarray(start.most, jnp.int32),
            sampler=self.sampler.init(problem),
        )

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NewtonEFPState, iteration: Array
    ) -> tuple[NewtonEFPState, Info]:
        resample_key, move_key = jax.random.split(key)
        m = state.particles.shape[0]
        cloud = SeenCloud.of(problem.features, state.particles).with_inner_products(problem)
        mean, covariance = cloud.mean_and_covariance()
        potential = cloud.potential(problem.weigh(problem.slope(state.moments)))

        # The residual P - H in units of its own sampling noise decides the gain 1/k of the mean.
        floor = 2 * sampling_bias(problem, state.moments, covariance, m)
        floor = jnp.maximum(floor, jnp.finfo(problem.dtype).tiny)
        curvature = problem.loss.curvature(state.moments)
        square = rowwise_square(curvature, mean - state.moments)
        excess = problem.weights @ square / floor
        averaged = _averaged(state, excess)

        # The answer at the present temperature, and the way to a lower one. An answer that is not
        # confirmed is given up for the last one that was.
        way = descend(problem, cloud, state, potential, floor)
        confirmed = _confirmed(problem, state, way.here)
        kept = _keep(state, way.here, averaged, confirmed)
        going_on = confirmed | state.kept.never
        goal = _goal(problem, cloud, state, way, potential, averaged)

        # Re-weighted, resampled and moved, the cloud follows the new Gibbs measure.
        chosen = systematic(resample_key, goal.log_weights)
        before, moments, beta = jax.tree.map(
            lambda new, old: jnp.where(going_on, new, old),
            (state.particles[chosen], goal.moments, goal.beta),
            kept[:3],
        )
        gibbs = Gibbs(problem, beta * problem.slope(moments))
        particles, sampler, moved = self.sampler.run(
            move_key, gibbs, before, state.sampler, iteration
        )

        # The gap is that of the old moments, at which `mean` was sampled, once beta = 1.
        bias = sampling_bias(problem, mean, covariance, m)
        gap = bregman_gap(problem, mean, state.moments) - bias
        info = Info.of(
            problem,
            # A running mean is better than its last contribution.
            jnp.where(averaged > 1, state.moments, way.here.moments),
            mean,
            gap=jnp.where(state.beta < 1, jnp.nan, gap),
            passes=moved.pulls + 1 + cloud.passes_per_product * (1 + 2 * way.products),
            extra=_columns(problem, state, way, beta, excess),
            **moved._asdict(),
        )
        state = NewtonEFPState(
            particles,
            moments,
            beta,
            jnp.where(confirmed, averaged, 1),
            kept=kept,
            most=state.most,
            sampler=sampler,
            **_progress(state, way, confirmed),
        )
        return state, info

    def fraction(self, state: NewtonEFPState) -> Float[Array, ""]:
        return state.beta

    def target(self, problem: FiniteSum, state: NewtonEFPState) -> Moments:
        return state.beta * problem.slope(state.moments)

    def waits(self, state: NewtonEFPState) -> Array:
        m = state.particles.shape[0]
        patience = jnp.where(state.kept.never, FIRST_PATIENCE, PATIENCE)
        stuck = state.stuck >= patience
        return stuck | ((WELL * state.d_eff > m) & (m < state.most))

    def resumed(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NewtonEFPState
    ) -> tuple[NewtonEFPState, str | None]:
        """A larger cloud of moved copies or, if it may not grow, why the run ends."""
        m, d_eff = state.particles.shape[0], float(state.d_eff)
        # More particles help, except where precision is exhausted.
        if m < int(state.most) and int(state.trouble) != len(TROUBLES) - 1:
            size = min(max(2, int(WELL * d_eff / m) + 1) * m, int(state.most))
            return _grown(traced(problem), traced(self.sampler), key, state, size), None
        kept = state.kept
        reached = problem.temperature / max(float(kept.beta), 1e-30)
        answer = f"the answer is that of temperature {reached:.3g}, not {problem.temperature:.3g}"
        if float(kept.beta) == 0:
            answer = "no temperature was reached, the answer is the prior"
        if float(kept.beta) == 1:
            answer = "the answer is that of an earlier iteration, which later ones did not confirm"
        if bool(kept.never):
            answer = "no iteration confirmed the answer"
        else:
            parts = (kept.particles, kept.moments, kept.beta)
            state = eqx.tree_at(lambda s: (s.particles, s.moments, s.beta), state, parts)
        return state, (
            f"{answer}: with {m} particles and about {d_eff:.0f} effective degrees of freedom, "
            f"{TROUBLES[int(state.trouble)]}."
        )


def _confirmed(problem: FiniteSum, state: NewtonEFPState, here: Answer) -> Array:
    """Whether a solve on moved particles agrees with the one before, and is not worse."""
    return (here.trouble(SHARE) == 0) & not_worse(problem, here, state.kept.loss)


def _goal(
    problem: FiniteSum,
    cloud: SeenCloud,
    state: NewtonEFPState,
    way: Descent,
    potential: Float[Array, "m"],
    averaged: Array,
) -> Moved:
    """The lower temperature that was found or, where there is none, a step of the running mean."""

    def stay() -> Moved:
        direction = mean_direction(problem, cloud, state, way.here, averaged)
        return trusted(problem, cloud, state, direction, potential, 1 / averaged)

    def lower() -> Moved:
        return Moved(way.lower.moments, way.lower.beta, way.lower.log_weights)

    return jax.lax.cond(way.found, lower, stay)


def _progress(state: NewtonEFPState, way: Descent, confirmed: Array) -> dict[str, Array]:
    """The parts of the next state that say how the search for lower temperatures goes."""
    failed = ~confirmed | ((state.beta < 1) & ~way.found)
    trouble = jnp.where(confirmed, way.lower.trouble(SHARE), way.here.trouble(SHARE))
    # From an answer that is taken up again, every further step is shorter.
    shorter = jnp.minimum(state.stuck + 1, len(SHORTENINGS) - 1)
    first_try = jnp.where(way.found, next_try(state, way), 0)
    return {
        "first_try": jnp.where(confirmed | state.kept.never, first_try, shorter),
        "stuck": jnp.where(failed, state.stuck + 1, 0),
        "trouble": jnp.where(failed, jnp.maximum(trouble, 1), 0),
        "d_eff": jnp.maximum(way.here.d_eff, way.lower.d_eff),
    }


def _columns(
    problem: FiniteSum, state: NewtonEFPState, way: Descent, beta: Array, excess: Array
) -> NewtonColumns:
    return NewtonColumns(
        temperature=problem.temperature / state.beta,
        beta=beta,
        d_eff=way.here.d_eff,
        effective_sample_size=way.here.share,
        inner_steps=way.steps.astype(problem.dtype),
        leave_one_out=way.left_out,
        residual_over_floor=excess,
    )


def _keep(state: NewtonEFPState, here: Answer, averaged: Array, confirmed: Array) -> Kept:
    """The present answer if it is confirmed, otherwise the one before.

    In a running mean the mean itself is the answer, and the particles follow it already.
    """
    single = averaged <= 1
    # Weights close to one: half-way through every interval there is nothing random.
    chosen = systematic_at(jnp.asarray(0.5, here.share.dtype), here.log_weights)
    answer = Kept(
        jnp.where(single, state.particles[chosen], state.particles),
        jnp.where(single, here.moments, state.moments),
        state.beta,
        here.loss,
    )
    return jax.tree.map(lambda new, old: jnp.where(confirmed, new, old), answer, state.kept)


def _averaged(state: NewtonEFPState, excess: Array) -> Array:
    """The k of the gain 1/k: see `FLOOR`. It is one until the whole loss is turned on."""
    grown = state.averaged + (excess < FLOOR).astype(excess.dtype)
    return jnp.where((state.beta >= 1) & (excess < RESTART), grown, 1)


@compiled
def _grown(
    problem: FiniteSum, sampler: Sampler, key: PRNGKeyArray, state: NewtonEFPState, size: int
) -> NewtonEFPState:
    """The state with `size` particles: copies, which the sampler moves apart."""
    copied = jnp.resize(state.particles, (size, state.particles.shape[1]))
    gibbs = Gibbs(problem, state.beta * problem.slope(state.moments))
    particles, carried, _ = sampler.run(key, gibbs, copied, state.sampler, jnp.zeros((), jnp.int32))
    zero, none = jnp.zeros_like(state.stuck), jnp.zeros_like(state.d_eff)
    kept = state.kept._replace(particles=particles)
    parts = (particles, carried, zero, none, kept)
    return eqx.tree_at(lambda s: (s.particles, s.sampler, s.stuck, s.d_eff, s.kept), state, parts)
