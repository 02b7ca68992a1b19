"""One iteration of `NewtonEFP` before the cloud moves: solve here, then as cold as it can."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...measures.cloud import SeenCloud
from ...measures.cloud_dual import PRECISION, SMALLEST_BETA, Solved, maximise_on_cloud
from ...measures.gap import rowwise_square
from ...measures.influence import leave_one_out_loss
from ...measures.newton_base import nonzero
from ...measures.newton_system import newton_system
from ...measures.weights import effective_sample_size, largest_step
from ...problems.features.base import Moments
from ...problems.problem import FiniteSum
from .newton_state import NewtonEFPState

SHARE, CAREFUL = 0.35, 1.35
"""Effective share of the cloud that must be left after a step to a lower temperature. It is more,
namely CAREFUL minus the share at the present temperature, where that is low: the cloud has not
followed the last step well."""
LONGEST, SHORTENINGS = 4.0, (1.0, 0.5, 0.25, 0.12, 0.06, 0.02)
"""Largest factor by which the temperature falls in one iteration, and the powers of it that are
tried if the cloud cannot follow that far."""
FIRST = 8.0
"""Factor by which the first step may go beyond what re-weighting the prior alone allows."""
ROUGH = 0.1
"""`PRECISION` of a solve at a lower temperature, which the moved cloud solves again."""
LEAST = 3.0
"""Particles per effective degree of freedom below which a lower temperature is refused. With fewer
than about two the solve fits noise."""
CROSSED = 12.0
"""Particles per effective degree of freedom from which on halves of the cloud are crossed."""
NOISE = 3.0
"""Rise of the loss at the moments that counts as noise, in units of the noise's scale."""
ROUNDING = 100
"""Rise of the loss that counts as rounding, in units of the precision times the loss."""
LENIENT = 1e-3
"""Relative difference of two lengths of steps that are taken for equal."""
SHORTENING, MOST_TRIES = 0.7, 40
"""Factor by which the trust region shortens a step that fails, and maximum number of tries."""


class Answer(NamedTuple):
    """The dual's maximum at one temperature."""

    beta: Float[Array, ""]
    moments: Moments
    loss: Float[Array, ""]
    log_weights: Float[Array, "m"]
    share: Float[Array, ""]
    """Effective sample size, as a fraction of the cloud."""
    d_eff: Float[Array, ""]
    noise: Float[Array, ""]
    """Scale of the sampling noise of `loss`."""
    residual: Float[Array, ""]
    """The squared residual P - H that the solve has left, in units of the sampling noise. Above one
    the solve has failed, which happens where rounding hides all progress."""

    def trouble(self, required: Array | float) -> Array:
        """What is wrong with the answer, as a number: see `TROUBLES`."""
        wrong = jnp.where(self.share >= required, 0, 1)
        wrong = jnp.where(LEAST * self.d_eff <= self.log_weights.shape[0], wrong, 2)
        # Also if it is not a number.
        return jnp.where(self.residual < 1, wrong, 3)


TROUBLES = (
    "",
    "the particles do not follow: they mix too slowly, or the mass moves to a place where there "
    "are none. Use more particles, or a sampler with more steps",
    "the particles are too few for its degrees of freedom. Use more particles",
    "the precision of the arithmetic is exhausted. Pose the problem in double precision "
    "(jax.enable_x64), or with a higher temperature",
)
"""Why a temperature could not be reached."""


class Descent(NamedTuple):
    """The answer at the present temperature, and the one at a lower temperature if there is one."""

    here: Answer
    left_out: Float[Array, ""]
    """The leave-one-out loss at the present temperature."""
    lower: Answer
    found: Array
    """Whether `lower` is an answer that the cloud can follow."""
    tried: Int[Array, ""]
    """Number of solves, including the one at the present temperature."""
    steps: Int[Array, ""]
    products: Int[Array, ""]


class Moved(NamedTuple):
    """Where the cloud goes: moments, beta, and the log-weights that lead there."""

    moments: Moments
    beta: Float[Array, ""]
    log_weights: Float[Array, "m"]


def descend(
    problem: FiniteSum,
    cloud: SeenCloud,
    state: NewtonEFPState,
    potential: Float[Array, "m"],
    floor: Float[Array, ""],
) -> Descent:
    """Solve at the present temperature, then at the lowest of a few that the cloud can follow.

    `potential` is <loss'(H), h>_w of every particle, `floor` the expectation of the squared
    residual under sampling noise. One loop makes all solves, so that the compiled program contains
    a single one.
    """
    # The cloud follows q_{beta loss'(H)}: weights against the prior are exp(+ beta <g, h> / T).
    log_base = state.beta * potential / problem.temperature
    ladder = _ladder(problem, state, potential)

    def attempt(carry: Descent) -> Descent:
        first = carry.tried == 0
        rung = jnp.clip(state.first_try + carry.tried - 1, 0, len(SHORTENINGS) - 1)
        beta = jnp.where(first, state.beta, ladder[rung])
        start = jnp.where(first, state.moments, carry.here.moments)
        unit = problem.temperature / (jnp.maximum(beta, SMALLEST_BETA) * log_base.shape[0])
        solved = maximise_on_cloud(
            problem,
            cloud,
            log_base,
            beta,
            start,
            tolerance=jnp.where(first, PRECISION, ROUGH) * unit,
            influence=first,
        )
        point = solved.point
        loss = problem.empirical_loss(point.moments)
        square = rowwise_square(problem.loss.curvature(point.moments), point.mean - point.moments)
        answer = Answer(
            beta,
            point.moments,
            loss,
            point.log_weights,
            solved.effective_share,
            solved.d_eff,
            noise=_noise(problem, beta, solved, log_base),
            # At the prior there is nothing to solve.
            residual=jnp.where(beta > 0, problem.weights @ square / floor, 0),
        )
        here = jax.tree.map(lambda a, b: jnp.where(first, a, b), answer, carry.here)
        left_out = jax.lax.cond(
            first,
            lambda: leave_one_out_loss(problem, point.moments, solved.blocks),
            lambda: carry.left_out,
        )
        required = jnp.maximum(SHARE, CAREFUL - here.share)
        found = ~first & (answer.trouble(required) == 0) & not_worse(problem, answer, here.loss)
        steps, products = carry.steps + solved.steps, carry.products + solved.products
        return Descent(here, left_out, answer, found, carry.tried + 1, steps, products)

    def going(carry: Descent) -> Array:
        more = (state.beta < 1) & (carry.here.trouble(SHARE) == 0) & ~carry.found
        more = more & (state.first_try + carry.tried - 1 < len(SHORTENINGS))
        return (carry.tried == 0) | more

    zero, none = jnp.zeros((), jnp.int32), jnp.zeros((), problem.dtype)
    blank = Answer(none, state.moments, none, log_base, none, none, none, none)
    begin = Descent(blank, none, blank, jnp.asarray(False), zero, zero, zero)
    return jax.lax.while_loop(going, attempt, begin)


def next_try(state: NewtonEFPState, way: Descent) -> Int[Array, ""]:
    """The rung of SHORTENINGS at which the next iteration begins.

    It is the longest step, at most twice as long as the one that succeeded, that the cloud can
    probably follow: the logarithm of the effective share grows about like the square of the step.
    """
    powers = jnp.asarray(SHORTENINGS, way.lower.share.dtype)
    beta = jnp.maximum(way.lower.beta, SMALLEST_BETA)
    # Steps are lengths of log beta; the last one goes to the whole loss.
    last = jnp.log(beta / jnp.maximum(state.beta, SMALLEST_BETA))
    ahead = jnp.clip(-jnp.log(beta), 0, jnp.log(LONGEST))
    # The same rung again has the ratio one, up to rounding.
    ratios = powers * ahead / nonzero(last) * (1 - LENIENT)
    required = jnp.maximum(SHARE, CAREFUL - way.here.share)
    likely = way.lower.share ** (ratios**2) >= required
    fits = (ratios <= 1) | ((ratios <= 2) & likely)
    # Nothing is known of steps after the one from the prior, whose beta is zero.
    fits = fits | (state.beta == 0)
    return jnp.where(jnp.any(fits), jnp.argmax(fits), len(SHORTENINGS) - 1).astype(jnp.int32)


def not_worse(problem: FiniteSum, answer: Answer, loss: Array) -> Array:
    """Whether the loss of an answer has not risen above another one's, beyond its noise.

    With the prior fixed, the loss at the moments does not rise as the temperature falls.
    """
    rounding = jnp.finfo(problem.dtype).eps * jnp.abs(loss)
    return answer.loss <= loss + NOISE * answer.noise + ROUNDING * rounding


def _noise(
    problem: FiniteSum, beta: Array, solved: Solved, log_base: Float[Array, "m"]
) -> Float[Array, ""]:
    """(T/beta) (d_eff/m + sqrt(v/m)), the scale of the noise of the loss at the solved moments.

    These have the error (I + beta J)^{-1} eps, where eps is the noise of a mean over m particles.
    To second order it costs at most T d_eff / (2 beta m); to first order it changes the loss by
    <g, error>_w, whose variance is at most that of <g, eps>_w, which is (T/beta)^2 v / m with the
    variance v of the exponents -beta <g, h>_w / T.
    """
    log_weights, m = solved.point.log_weights, log_base.shape[0]
    weights, exponents = jnp.exp(log_weights), log_weights - log_base
    variance = weights @ (exponents - weights @ exponents) ** 2
    unit = problem.temperature / jnp.maximum(beta, SMALLEST_BETA)
    return unit * (solved.d_eff / m + jnp.sqrt(variance / m))


def _ladder(
    problem: FiniteSum, state: NewtonEFPState, potential: Float[Array, "m"]
) -> Float[Array, "rungs"]:
    """The values of beta to try, the coldest first."""
    # From the prior, the scale of the first step is what re-weighting alone allows.
    plain = largest_step(potential / problem.temperature, jnp.ones((), problem.dtype))
    start = jnp.where(state.beta > 0, state.beta, plain / 2)
    goal = jnp.minimum(start * jnp.where(state.beta > 0, LONGEST, 2 * FIRST), 1)
    return start * (goal / start) ** jnp.asarray(SHORTENINGS, problem.dtype)


def mean_direction(
    problem: FiniteSum, cloud: SeenCloud, state: NewtonEFPState, here: Answer, averaged: Array
) -> Moments:
    """The Newton direction of the running mean, from the moments H of the state.

    Covariance and mean that are estimated from the same particles are correlated, which biases the
    direction by O(1/m), and a mean would keep the bias. Large clouds are therefore split: each of
    two directions takes its covariance from one half and its mean from the other.
    """
    m = cloud.particles.shape[0]
    one = (jnp.arange(m) % 2).astype(problem.dtype)
    halves = jnp.stack([one / jnp.sum(one), (1 - one) / jnp.sum(1 - one)])

    def half(pair: Array) -> Moments:
        own, other = pair
        system = newton_system(problem, cloud, state.moments, state.beta, own)
        return system.solve(cloud.average(other) - state.moments)[0]

    def crossed() -> Moments:
        return jnp.mean(jax.lax.map(half, jnp.stack([halves, halves[::-1]])), axis=0)

    strong = (averaged > 1) & (CROSSED * here.d_eff <= m)
    return jax.lax.cond(strong, crossed, lambda: here.moments - state.moments)


def trusted(
    problem: FiniteSum,
    cloud: SeenCloud,
    state: NewtonEFPState,
    direction: Moments,
    potential: Float[Array, "m"],
    gain: Array,
) -> Moved:
    """The trust region: the longest part of the step to H + D that the cloud can follow.

    The part s starts at `gain` and is shortened until re-weighting the cloud leaves a fraction
    SHARE of its effective sample size.
    """
    m = cloud.particles.shape[0]
    strength = state.beta / problem.temperature

    def attempt(s: Array) -> tuple[Moments, Float[Array, "m"]]:
        moments = problem.loss.retract(state.moments, s * direction)
        # From q_{beta loss'(H)} to q_{beta loss'(H')}: the penalty cancels.
        energy = cloud.potential(problem.weigh(problem.slope(moments)))
        return moments, strength * (potential - energy)

    def going(carry: tuple) -> Array:
        _, tries, (_, log_weights) = carry
        return (effective_sample_size(log_weights) < SHARE * m) & (tries < MOST_TRIES)

    def shorten(carry: tuple) -> tuple:
        s, tries, _ = carry
        return SHORTENING * s, tries + 1, attempt(SHORTENING * s)

    begin = (gain, jnp.ones((), jnp.int32), attempt(gain))
    _, _, (moments, log_weights) = jax.lax.while_loop(going, shorten, begin)
    return Moved(moments, state.beta, log_weights)
