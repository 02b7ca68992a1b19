"""Newton's method on the fixed point of fictitious play, while the loss is turned on gradually."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...base.registry import storable
from ...measures.cloud import SeenCloud
from ...measures.gap import bregman_gap, rowwise_square, sampling_bias
from ...measures.gibbs import Gibbs
from ...measures.weights import RESAMPLE_AT, effective_sample_size, largest_step, systematic
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start
from .newton_direction import crossed_direction

FLOOR, RESTART = 1.5, 8.0
"""Bounds of the squared residual, as multiples of its sampling noise. Below FLOOR the running mean
grows longer; above RESTART it starts again. In between it keeps its length: a residual that stands
out says that the moments are not right yet."""
EASY = 0.75
"""Effective share of the cloud above which a step was easy, and the reach of beta grows."""
REACH_GROWTH, REACH_CUT, LONGEST_REACH = 1.5, 2, 20
"""Factor by which the reach grows after an easy step, divisor after a shortened one, and limit."""
SLACK = 0.98
"""Factor on RESAMPLE_AT in the trust region, because `largest_step` ends at RESAMPLE_AT itself."""
SHORTENING, MOST_TRIES = 0.7, 40
"""Factor by which the trust region shortens a step that fails, and maximum number of tries."""


class NewtonColumns(NamedTuple):
    """Columns that only this solver adds to the history."""

    beta: Float[Array, ""]
    """Fraction of the loss that was turned on at the end of the iteration."""
    step_kept: Float[Array, ""]
    """Fraction of the Newton step that was taken."""
    effective_sample_size: Float[Array, ""]
    """Effective share of the particles after re-weighting to the new Gibbs measure."""
    residual_over_floor: Float[Array, ""]
    """The squared residual P - H, divided by its expectation under sampling noise alone."""


class NewtonEFPState(eqx.Module):
    """Particles ~ q_{beta loss'(H)}."""

    particles: Particles
    moments: Moments
    beta: Float[Array, ""]
    averaged: Float[Array, ""]
    """Number of iterations in the running mean: 1 until the noise floor is reached."""
    reach: Float[Array, ""]
    """Factor by which beta may rise further than plain re-weighting allows. The Newton step
    counteracts the rise of beta, so the two together change the Gibbs measure less."""
    sampler: Any


@storable
class NewtonEFP(Solver):
    r"""Solves H = E_q[h], q = q_{loss'(H)}, by Newton steps whose Jacobian the particles estimate.

    The Jacobian of H -> E_q[h] is -J with J = Cov_q(h) W loss''(H) / temperature. To start exactly,
    the loss is multiplied by beta, which rises from 0 (the prior) to 1. How fast it rises, and how
    much of each Newton step is taken, is limited by how far the cloud can be re-weighted. Each
    iteration re-weights, resamples and moves the cloud: a sequential Monte Carlo sampler whose path
    is the optimisation. At the noise floor steps become a running mean (1/k), with covariance and
    residual from opposite halves of the cloud.

    Args:
        sampler: moves the cloud; default `MALA(steps=5, jumps=1, leaps=1)`.
    """

    nickname: ClassVar[str] = "newton"
    turns_on_loss: ClassVar[bool] = True

    sampler: Sampler

    def __init__(self, sampler: Sampler | None = None):
        default = MALA(steps=5, jumps=1, leaps=1)
        self.sampler = sampler_or_default("NewtonEFP", sampler, default)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> NewtonEFPState:
        one = jnp.ones((), problem.dtype)
        beta = start.beta * one if start.warm else jnp.zeros_like(one)
        return NewtonEFPState(
            start.particles, start.moments, beta, one, one, self.sampler.init(problem)
        )

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NewtonEFPState, iteration: Array
    ) -> tuple[NewtonEFPState, Info]:
        resample_key, move_key = jax.random.split(key)
        m = state.particles.shape[0]
        cloud = SeenCloud.of(problem.features, state.particles)
        mean, covariance = cloud.mean_and_covariance()
        potential = cloud.potential(problem.weigh(problem.slope(state.moments)))

        # beta' as far as re-weighting alone would allow, times the reach that earlier steps earned.
        plain = largest_step(potential / problem.temperature, 1 - state.beta)
        beta = jnp.minimum(state.beta + state.reach * plain, 1)

        # The residual P - H in units of its own sampling noise decides the gain 1/k of the step.
        floor = 2 * sampling_bias(problem, state.moments, covariance, m)
        curvature = problem.loss.curvature(state.moments)
        square = rowwise_square(curvature, mean - state.moments)
        excess = problem.weights @ square / floor
        averaged = _averaged(state, excess)

        # The Newton direction, shortened until the cloud can follow. Halves are crossed in the
        # running mean, where a bias of O(1/m) would not average out.
        direction, solves = crossed_direction(
            problem, cloud, state.moments, state.beta, beta, averaged > 1
        )
        trusted = _trusted(problem, cloud, state, beta, direction, potential, 1 / averaged)
        ess = effective_sample_size(trusted.log_weights) / m

        # Re-weighted, resampled and moved, the cloud follows the new Gibbs measure.
        chosen = systematic(resample_key, trusted.log_weights)
        gibbs = Gibbs(problem, trusted.beta * problem.slope(trusted.moments))
        particles, sampler, moved = self.sampler.run(
            move_key, gibbs, state.particles[chosen], state.sampler, iteration
        )

        # The gap is that of the old moments, at which `mean` was sampled, once beta = 1.
        bias = sampling_bias(problem, mean, covariance, m)
        gap = bregman_gap(problem, mean, state.moments) - bias
        products = cloud.passes_per_product * (1 + 2 * solves + trusted.tries)
        info = Info.of(
            problem,
            state.moments,
            mean,
            gap=jnp.where(state.beta < 1, jnp.nan, gap),
            passes=moved.pulls + 1 + products,
            extra=NewtonColumns(trusted.beta, trusted.share, ess, excess),
            **moved._asdict(),
        )
        reach = _next_reach(state, trusted, ess)
        state = NewtonEFPState(particles, trusted.moments, trusted.beta, averaged, reach, sampler)
        return state, info

    def fraction(self, state: NewtonEFPState) -> Float[Array, ""]:
        return state.beta

    def target(self, problem: FiniteSum, state: NewtonEFPState) -> Moments:
        return state.beta * problem.slope(state.moments)


def _averaged(state: NewtonEFPState, excess: Array) -> Array:
    """The k of the gain 1/k: see `FLOOR`. It is one until the whole loss is turned on."""
    grown = state.averaged + (excess < FLOOR).astype(excess.dtype)
    return jnp.where((state.beta >= 1) & (excess < RESTART), grown, 1)


class Trusted(NamedTuple):
    """A step that the cloud can follow by re-weighting."""

    moments: Moments
    beta: Float[Array, ""]
    log_weights: Float[Array, "m"]
    share: Float[Array, ""]
    """Fraction of the Newton step."""
    tries: Int[Array, ""]


def _trusted(
    problem: FiniteSum,
    cloud: SeenCloud,
    state: NewtonEFPState,
    beta: Array,
    direction: Moments,
    potential: Float[Array, "m"],
    gain: Array,
) -> Trusted:
    """The trust region: the longest part of the step to (beta', H + D) that the cloud can follow.

    The part s starts at `gain` and is shortened by factors of SHORTENING until re-weighting the
    cloud keeps half of its effective sample size. From the second try on beta is shortened too, so
    that a short enough step can always be followed.
    """
    m = cloud.particles.shape[0]

    def attempt(s: Array, tries: Array) -> Trusted:
        moments = problem.loss.retract(state.moments, s * direction)
        new_beta = jnp.where(tries == 1, beta, state.beta + s * (beta - state.beta))
        # From q_{beta loss'(H)} to q_{beta' loss'(H')}: the penalty cancels.
        energy = new_beta * cloud.potential(problem.weigh(problem.slope(moments)))
        log_weights = (state.beta * potential - energy) / problem.temperature
        return Trusted(moments, new_beta, log_weights, s, tries)

    def going(trial: Trusted) -> Array:
        too_far = effective_sample_size(trial.log_weights) < SLACK * RESAMPLE_AT * m
        return too_far & (trial.tries < MOST_TRIES)

    start = attempt(gain, jnp.ones((), jnp.int32))
    return jax.lax.while_loop(going, lambda t: attempt(SHORTENING * t.share, t.tries + 1), start)


def _next_reach(state: NewtonEFPState, trusted: Trusted, ess: Array) -> Array:
    """The reach after this step: shorter if the step was shortened, longer if it was easy."""
    longer = jnp.where(ess > EASY, REACH_GROWTH * state.reach, state.reach)
    reach = jnp.where(trusted.tries > 1, state.reach / REACH_CUT, longer)
    return jnp.clip(reach, 1, LONGEST_REACH)
