r"""Langevin steps of a cloud, with and without the Metropolis test, and how their size adapts.

A cloud may consist of several `islands` of equal size that never use each other's particles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import Schedule
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from .population import LEAP_DIMENSIONS, jump, leap
from .walkers import (
    COINS,
    Noise,
    Walkers,
    drawn_by_step,
    metropolis,
    move_noise,
    walkers_at,
)

OPTIMAL_ACCEPTANCE = 0.574
"""Acceptance rate at which MALA mixes fastest in high dimension (Roberts and Rosenthal 1998)."""
OPTIMAL_SCALE = 1.65
"""Standard deviation of MALA's best proposal in units of the target's, times d^{1/6}."""
GAIN_EXPONENT, LEAST_GAIN, GAIN_SCALE = 0.6, 0.1, 2
"""At the k-th adaptation the log step moves by GAIN_SCALE * max(k^-GAIN_EXPONENT, LEAST_GAIN) times
the excess of the acceptance. The lower bound lets the step follow a target that keeps moving."""
LOW, LONGEST_FALL = 0.2, -1.0
"""Acceptance rate below which the log step falls faster, by log(LOW / rate), and the farthest it
falls at once. A cloud that is led into the cold by large steps would stand still otherwise: the
best step there may be a tenth of the one before."""


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
    noise: Noise, gibbs: Gibbs, walkers: Walkers, eta: Array
) -> tuple[Walkers, Float[Array, ""]]:
    """One Metropolis-adjusted Langevin step of every particle, and the mean acceptance."""
    proposal = langevin(noise.normal, walkers.particles, walkers.gradient, eta, gibbs.temperature)
    there = walkers_at(gibbs, proposal)
    log_alpha = log_acceptance(walkers, there, eta, gibbs.temperature)
    return metropolis(noise.coins[:, 0], walkers, there, log_alpha)


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
    m, d = particles.shape
    leaps = leaps if d <= LEAP_DIMENSIONS else 0
    # A step and the jump before it share one draw; leaps use the numbers from `steps` on.
    noise = drawn_by_step(
        key, steps + leaps, m * (d + COINS), lambda key: move_noise(key, particles)
    )
    # A jump comes before the steps 0, every, 2 every, ..., until there were `jumps` of them.
    every = max(1, steps // max(jumps, 1))

    def step(s: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        walkers, adaptation, accepted, jumped = carry
        drawn = noise(s)
        if jumps:
            walkers, rate = jax.lax.cond(
                (s % every == 0) & (s // every < jumps),
                lambda w: jump(drawn, gibbs, w, islands),
                lambda w: (w, jnp.zeros_like(accepted)),
                walkers,
            )
            jumped = jumped + rate
        walkers, rate = mala_step(drawn, gibbs, walkers, jnp.exp(adaptation.log_step))
        adaptation = adapted(adaptation, rate) if adapt else adaptation
        return walkers, adaptation, accepted + rate, jumped

    zero = jnp.zeros((), particles.dtype)
    walkers = walkers_at(gibbs, particles)
    for i in range(leaps):
        walkers, _ = leap(noise(jnp.asarray(steps + i)), gibbs, walkers, islands)
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
    """A step of Robbins-Monro on the log step, towards the optimal acceptance, or a longer fall."""
    gain = jnp.maximum((state.adapted + 1) ** -GAIN_EXPONENT, LEAST_GAIN)
    change = GAIN_SCALE * gain * (acceptance - OPTIMAL_ACCEPTANCE)
    # The logarithm of zero, minus infinity, is clipped, too.
    fall = jnp.maximum(jnp.log(acceptance / LOW), LONGEST_FALL)
    return StepAdaptation(state.log_step + jnp.minimum(change, fall), state.adapted + 1)
