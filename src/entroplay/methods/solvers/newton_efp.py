"""Newton's method on the fixed point of fictitious play, along a path on which the loss is turned on."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...measures.cloud import SeenCloud, conjugate_gradients, covariance_product
from ...measures.gap import bregman_gap, sampling_bias
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.base import MALA, Sampler, sampler_or_default
from ..smc import RESAMPLE_AT, effective_sample_size, largest_step, systematic
from .base import Solver, Start, scalar

CG_ITERATIONS, CG_TOLERANCE = 300, 0.01
"""Of the direction itself. A tolerance of the right-hand side would be too strict for warm problems and too lax for cold ones,
where Newton's matrix makes the direction shorter by orders of magnitude."""
DIRECT, DIRECT_WITHOUT_MATRIX = 256, 1024
"""Up to this many rows (times channels) the linear system is solved as a matrix."""
FLOOR, RESTART = 1.5, 8.0
"""The running mean grows longer while the squared residual is below FLOOR times its sampling noise, and begins anew above
RESTART times. In between it keeps its length: a residual that stands out says that the moments are not right yet."""


class NewtonInfo(NamedTuple):
    """A row of the history; the first fields are those of every solver."""

    gap: Float[Array, ""]
    loss_moments: Float[Array, ""]
    loss_particles: Float[Array, ""]
    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]
    pulls: Float[Array, ""]
    passes: Float[Array, ""]
    beta: Float[Array, ""]
    """How far the loss was turned on at the end of the iteration."""
    step_kept: Float[Array, ""]
    """The share of the Newton step that was taken."""
    effective_sample_size: Float[Array, ""]
    """Of the re-weighting to the new Gibbs measure, as a share of the particles."""
    residual_over_floor: Float[Array, ""]
    """The squared residual P - H over what sampling noise alone would make of it."""


class NewtonEFPState(eqx.Module):
    """Particles ~ q_{beta loss'(H)}."""

    particles: Particles
    moments: Moments
    beta: Float[Array, ""]
    averaged: Float[Array, ""]
    """Iterations that share in the running mean: 1 until the noise floor is reached."""
    reach: Float[Array, ""]
    """How many times further than plain re-weighting allows beta may rise, since the Newton step counteracts."""
    sampler: Any


class NewtonEFP(Solver):
    r"""Solves H = E_q[h], q = q_{loss'(H)}, by Newton steps whose Jacobian the particles estimate.

    The Jacobian of H -> E_q[h] is -J with J = Cov_q(h) W loss''(H) / temperature. To start exactly, the loss is scaled
    by beta, which rises from 0 (the prior) to 1 as fast as re-weighting the cloud allows; so does the Newton step. Each
    iteration re-weights, resamples and moves the cloud: a sequential Monte Carlo sampler whose path is the optimisation.
    At the noise floor steps become a running mean (1/k), with covariance and residual from opposite halves of the cloud.

    Args:
        sampler: what moves the cloud; default `MALA(steps=5, jumps=1, leaps=1)`.
    """

    sampler: Sampler

    def __init__(self, sampler: Sampler | None = None):
        self.sampler = (
            MALA(steps=5, jumps=1, leaps=1)
            if sampler is None
            else sampler_or_default("NewtonEFP", sampler)
        )

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> NewtonEFPState:
        one = jnp.ones((), problem.dtype)
        beta = start.beta * one if start.warm else jnp.zeros_like(one)
        return NewtonEFPState(
            start.particles, start.moments, beta, one, one, self.sampler.init(problem)
        )

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: NewtonEFPState, iteration: Array
    ) -> tuple[NewtonEFPState, NewtonInfo]:
        resample_key, move_key = jax.random.split(key)
        m, temperature, moments = state.particles.shape[0], problem.temperature, state.moments
        cloud = SeenCloud.of(problem.features, state.particles)
        mean, covariance = cloud.mean_and_covariance()
        potential = cloud.potential(problem.weigh(problem.slope(moments)))
        plain = largest_step(potential / temperature, 1 - state.beta)
        beta = jnp.minimum(state.beta + state.reach * plain, 1)

        floor = 2 * sampling_bias(problem, moments, covariance, m)
        residual = mean - moments
        excess = problem.weights @ _square(problem, moments, residual) / floor
        averaged = _averaged(state, excess)
        direction, solves = _crossed_direction(
            problem, cloud, moments, state.beta, beta, averaged > 1
        )
        trusted = _trusted(problem, cloud, state, beta, direction, potential, 1 / averaged)
        moments, beta, log_weights, kept = (
            trusted.moments,
            trusted.beta,
            trusted.log_weights,
            trusted.share,
        )
        ess = effective_sample_size(log_weights) / m
        reach = jnp.where(
            trusted.tries > 1,
            state.reach / 2,
            jnp.where(ess > 0.75, 1.5 * state.reach, state.reach),
        )

        chosen = systematic(resample_key, log_weights)
        gibbs = Gibbs(problem, beta * problem.slope(moments))
        particles, sampler, moved = self.sampler.run(
            move_key, gibbs, state.particles[chosen], state.sampler, iteration
        )
        gap = bregman_gap(problem, mean, state.moments) - sampling_bias(
            problem, mean, covariance, m
        )
        products = cloud.passes_per_product * (1 + 2 * solves + trusted.tries)
        info = NewtonInfo(
            gap=jnp.where(state.beta < 1, jnp.nan, gap),
            loss_moments=problem.empirical_loss(state.moments),
            loss_particles=problem.empirical_loss(mean),
            acceptance=moved.acceptance,
            step_size=moved.step_size,
            pulls=scalar(moved.pulls, problem),
            passes=scalar(moved.pulls + 1 + products, problem),
            beta=beta,
            step_kept=kept,
            effective_sample_size=ess,
            residual_over_floor=excess,
        )
        return NewtonEFPState(
            particles, moments, beta, averaged, jnp.clip(reach, 1, 20), sampler
        ), info

    @property
    def scales_loss(self) -> bool:
        return True

    def target(self, problem: FiniteSum, state: NewtonEFPState) -> Moments:
        return state.beta * problem.slope(state.moments)

    @property
    def remedy(self) -> str:
        return self.sampler.remedy

    def check(self, problem: FiniteSum, iterations: int) -> None:
        self.sampler.check(iterations)


def _square(problem: FiniteSum, moments: Moments, vector: Moments) -> Float[Array, "n"]:
    """v' loss''(H) v for each row."""
    curvature = problem.loss.curvature(moments)
    if vector.ndim == 1:
        return curvature * vector**2
    return jnp.einsum("nk,nkl,nl->n", vector, curvature, vector)


def _averaged(state: NewtonEFPState, excess: Array) -> Array:
    """k of the gain 1/k: grows by one at the noise floor, falls back to one when the residual stands out far."""
    grown = state.averaged + (excess < FLOOR).astype(excess.dtype)
    return jnp.where((state.beta >= 1) & (excess < RESTART), grown, 1)


def newton_direction(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    beta: Array,
    new_beta: Array,
    members: Array,
    others: Array,
) -> tuple[Moments, Array]:
    """The solution D of (I + beta' J) D = (P - H) - ((beta' - beta)/temperature) CW(loss'(H)), and how many products it took.

    C is that of the particles weighted by `members`, P the mean over `others`.
    """
    mean = cloud.average(others / jnp.sum(others))
    turning = (
        (new_beta - beta)
        / problem.temperature
        * covariance_product(problem, cloud, problem.slope(moments), members)
    )
    direction, count = _solve(problem, cloud, moments, mean - moments - turning, new_beta, members)
    return direction, count + 2


def _crossed_direction(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    beta: Array,
    new_beta: Array,
    crossed: Array,
) -> tuple[Moments, Array]:
    """The Newton direction of the whole cloud; or, `crossed`, the mean of two directions, each with its covariance from one
    half and its mean from the other: from the same particles they are correlated, which biases D by O(1/m).
    """
    one = (jnp.arange(cloud.particles.shape[0]) % 2).astype(problem.dtype)

    def both() -> tuple[Moments, Array]:
        first, count = newton_direction(problem, cloud, moments, beta, new_beta, one, 1 - one)
        second, more = newton_direction(problem, cloud, moments, beta, new_beta, 1 - one, one)
        return (first + second) / 2, count + more

    everybody = jnp.ones_like(one)
    return jax.lax.cond(
        crossed,
        both,
        lambda: newton_direction(problem, cloud, moments, beta, new_beta, everybody, everybody),
    )


def _solve(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    right: Moments,
    beta: Array,
    members: Array,
) -> tuple[Moments, Array]:
    """D with (I + beta J) D = r, and the number of products it took.

    On the symmetric form, with R R' = loss'': x + (beta/temperature) R' CW(R x) = R' r, then D = r - (beta/temperature) CW(R x).
    """
    width = moments.size
    if width <= DIRECT or (cloud.matrix is None and width <= DIRECT_WITHOUT_MATRIX):
        return _solve_directly(problem, cloud, moments, right, beta, members)
    return _solve_by_conjugate_gradients(problem, cloud, moments, right, beta, members)


def _times(root: Array, x: Moments) -> Moments:
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nl->nk", root, x)


def _times_transpose(root: Array, x: Moments) -> Moments:
    return root * x if x.ndim == 1 else jnp.einsum("nkl,nk->nl", root, x)


def _solve_directly(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    right: Moments,
    beta: Array,
    members: Array,
) -> tuple[Moments, Array]:
    """For few rows: the matrix itself, in one or two passes."""
    n = moments.shape[0]
    root, strength = problem.loss.curvature_root(moments), beta / problem.temperature
    scale = jnp.sqrt(problem.weights).reshape(-1, *[1] * (moments.ndim - 1))
    covariance = cloud.covariance_matrix(members)

    def half(columns: Array) -> Array:
        """sqrt(w) R' applied to each column."""
        return jax.vmap(
            lambda c: (scale * _times_transpose(root, c.reshape(moments.shape))).ravel(), 1, 1
        )(columns)

    system = jnp.eye(covariance.shape[0], dtype=covariance.dtype) + strength * half(
        half(covariance).T
    )
    factor = jax.scipy.linalg.cho_factor(system)
    x = jax.scipy.linalg.cho_solve(factor, (scale * _times_transpose(root, right)).ravel()).reshape(
        moments.shape
    )
    image = covariance @ (scale * _times(root, x)).ravel()
    return right - strength * image.reshape(n, *moments.shape[1:]), jnp.ones((), jnp.int32)


def _solve_by_conjugate_gradients(
    problem: FiniteSum,
    cloud: SeenCloud,
    moments: Moments,
    right: Moments,
    beta: Array,
    members: Array,
) -> tuple[Moments, Array]:
    """For many rows: products only. Inner product sum_i w_i <x_i, y_i>."""
    root, strength = problem.loss.curvature_root(moments), beta / problem.temperature

    def operator(x: Moments) -> Moments:
        return x + strength * _times_transpose(
            root, covariance_product(problem, cloud, _times(root, x), members)
        )

    x, count = conjugate_gradients(
        operator,
        _times_transpose(root, right),
        problem.weights,
        iterations=CG_ITERATIONS,
        tolerance=CG_TOLERANCE,
        of_solution=True,
    )
    return right - strength * covariance_product(problem, cloud, _times(root, x), members), count


class Trusted(NamedTuple):
    """A step that the cloud can follow."""

    moments: Moments
    beta: Float[Array, ""]
    log_weights: Float[Array, "m"]
    share: Float[Array, ""]
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
    """The longest share s <= gain (by factors of 0.7) of the step to (beta', H + D) for which re-weighting the cloud keeps half
    of its effective sample size. Beta goes with it, so that a short enough step is always one that can be followed.
    """
    m = cloud.particles.shape[0]

    def attempt(s: Array, tries: Array) -> Trusted:
        moments = problem.loss.retract(state.moments, s * direction)
        new_beta = jnp.where(tries == 1, beta, state.beta + s * (beta - state.beta))
        energy = new_beta * cloud.potential(problem.weigh(problem.slope(moments)))
        return Trusted(
            moments, new_beta, (state.beta * potential - energy) / problem.temperature, s, tries
        )

    def going(trial: Trusted) -> Array:
        return (effective_sample_size(trial.log_weights) < 0.98 * RESAMPLE_AT * m) & (
            trial.tries < 40
        )

    start = attempt(gain, jnp.ones((), jnp.int32))
    return jax.lax.while_loop(going, lambda t: attempt(0.7 * t.share, t.tries + 1), start)
