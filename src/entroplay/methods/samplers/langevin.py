r"""Langevin steps of a cloud, with and without the Metropolis test, and how their size adapts.

A cloud may consist of several `islands` of equal size that never use each other's particles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import Schedule
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from .population import LEAP_DIMENSIONS, jump, leap
from .walkers import Walkers, metropolis, walkers_at

OPTIMAL_ACCEPTANCE = 0.574
"""Acceptance rate at which MALA mixes fastest in high dimension (Roberts and Rosenthal 1998)."""
OPTIMAL_SCALE = 1.65
"""Standard deviation of MALA's best proposal in units of the target's, times d^{1/6}."""
NOISE_ELEMENTS = 2**21
"""Maximum number of random numbers that are drawn ahead of their use."""
GAIN_EXPONENT, LEAST_GAIN, GAIN_SCALE = 0.6, 0.1, 2
"""At the k-th adaptation the log step moves by GAIN_SCALE * max(k^-GAIN_EXPONENT, LEAST_GAIN) times
the excess of the acceptance. The lower bound lets the step follow a target that keeps moving."""


class StepAdaptation(NamedTuple):
    """The logarithm of MALA's step, and how often it was adapted."""

    log_step: Float[Array, ""]
    adapted: Float[Array, ""]


class MoveInfo(NamedTuple):
    """Mean acceptance of Langevin steps and of jumps, and the gradient passes of all moves."""

    acceptance: Float[Array, ""]
    jump_acceptance: Float[Array, ""]
    pulls: int


def langevin(
    noise: Particles, theta: Particles, gradient: Particles, eta: Array, temperature: Any
) -> Particles:
    """One Euler-Maruyama step of the Langevin diffusion: the inner update of Algorithm 2."""
    return theta - eta * gradient + jnp.sqrt(2 * eta * temperature) * noise


def shorter_steps(owner: str, step_size: float | Schedule) -> str:
    """Advice for a user whose unadjusted Langevin steps diverged."""
    now = "a schedule" if callable(step_size) else f"{step_size}"
    return (
        f"Reduce the step_size of {owner} (now {now}): it must be below 1/l2, and below twice the "
        "inverse of the potential's largest curvature."
    )


def step_noise(key: PRNGKeyArray, steps: int, particles: Particles) -> Callable[[Array], Particles]:
    """A function that returns standard normal noise for each step.

    While the noise of all steps is small, it is drawn at once, which halves its cost. Otherwise it
    is drawn when it is needed. The numbers are the same either way.
    """

    # A key per step, not one for the whole table: the table's length does not change the numbers.
    def draw(s: Array) -> Particles:
        return jax.random.normal(jax.random.fold_in(key, s), particles.shape, particles.dtype)

    if steps * particles.size > NOISE_ELEMENTS:
        return draw
    table = jax.vmap(draw)(jnp.arange(steps))
    return lambda s: table[s]


def log_acceptance(
    theta: Walkers, proposal: Walkers, eta: Array, temperature: Any
) -> Float[Array, "m"]:
    r"""log of pi(theta') q(theta' -> theta) / (pi(theta) q(theta -> theta')) for MALA.

    q(theta -> .) = N(theta - eta grad U(theta), 2 eta temperature I).
    """
    # The noise that each of the two proposals would have needed, times sqrt(2 eta temperature).
    back = theta.particles - proposal.particles + eta * proposal.gradient
    there = proposal.particles - theta.particles + eta * theta.gradient
    backward, forward = jnp.sum(back**2, axis=1), jnp.sum(there**2, axis=1)
    log_target = -(proposal.energy - theta.energy) / temperature
    return log_target - (backward - forward) / (4 * eta * temperature)


def mala_step(
    key: PRNGKeyArray, noise: Particles, gibbs: Gibbs, walkers: Walkers, eta: Array
) -> tuple[Walkers, Float[Array, ""]]:
    """One Metropolis-adjusted Langevin step of every particle, and the mean acceptance."""
    proposal = langevin(noise, walkers.particles, walkers.gradient, eta, gibbs.temperature)
    there = walkers_at(gibbs, proposal)
    return metropolis(key, walkers, there, log_acceptance(walkers, there, eta, gibbs.temperature))


def metropolis_moves(
    key: PRNGKeyArray,
    gibbs: Gibbs,
    particles: Particles,
    adaptation: StepAdaptation,
    *,
    steps: int,
    jumps: int = 0,
    leaps: int = 0,
    islands: int = 1,
    adapt: bool = True,
) -> tuple[Walkers, StepAdaptation, MoveInfo]:
    """`leaps` leaps (in few dimensions), then `steps` Langevin steps with `jumps` jumps spread
    evenly among them.
    """
    leaps = leaps if particles.shape[1] <= LEAP_DIMENSIONS else 0
    normal_key, uniform_key, jump_key = jax.random.split(key, 3)
    noise = step_noise(normal_key, steps, particles)
    # A jump comes before the steps 0, every, 2 every, ..., until there were `jumps` of them.
    every = max(1, steps // max(jumps, 1))

    def step(s: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        walkers, adaptation, accepted, jumped = carry
        if jumps:
            walkers, rate = jax.lax.cond(
                (s % every == 0) & (s // every < jumps),
                lambda w: jump(jax.random.fold_in(jump_key, s), gibbs, w, islands),
                lambda w: (w, jnp.zeros_like(accepted)),
                walkers,
            )
            jumped = jumped + rate
        step_key = jax.random.fold_in(uniform_key, s)
        walkers, rate = mala_step(step_key, noise(s), gibbs, walkers, jnp.exp(adaptation.log_step))
        adaptation = adapted(adaptation, rate) if adapt else adaptation
        return walkers, adaptation, accepted + rate, jumped

    zero = jnp.zeros((), particles.dtype)
    walkers = walkers_at(gibbs, particles)
    for i in range(leaps):
        # Jumps use the numbers of the steps, below `steps`; leaps use those from `steps` on.
        walkers, _ = leap(jax.random.fold_in(jump_key, steps + i), gibbs, walkers, islands)
    walkers, adaptation, accepted, jumped = jax.lax.fori_loop(
        0, steps, step, (walkers, adaptation, zero, zero)
    )
    # One pass for the first energies and gradients, then one for each move.
    info = MoveInfo(accepted / steps, jumped / max(jumps, 1), 1 + leaps + steps + jumps)
    return walkers, adaptation, info


def first_step(dim: int, l2: Any, dtype: Any) -> StepAdaptation:
    """The best step for the prior itself.

    Proposals have variance 2 eta temperature = 1.65^2 d^{-1/3} times that of the prior,
    temperature/(2 l2), in its narrowest coordinate.
    """
    eta = OPTIMAL_SCALE**2 * dim ** (-1 / 3) / (4 * jnp.max(l2))
    return StepAdaptation(jnp.log(jnp.asarray(eta, dtype)), jnp.zeros((), dtype))


def adapted(state: StepAdaptation, acceptance: Array) -> StepAdaptation:
    """One step of Robbins-Monro on the log step, towards the optimal acceptance."""
    gain = jnp.maximum((state.adapted + 1) ** -GAIN_EXPONENT, LEAST_GAIN)
    log_step = state.log_step + GAIN_SCALE * gain * (acceptance - OPTIMAL_ACCEPTANCE)
    return StepAdaptation(log_step, state.adapted + 1)
