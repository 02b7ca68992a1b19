r"""Moves of a cloud that leave a Gibbs measure invariant: Langevin steps for each particle, jumps between particles.

Energy and gradient travel with the particles, so that a move costs one pass over the features. A cloud may consist of
several `islands` of equal size that never look at each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .features import Particles
from .gibbs import Gibbs

OPTIMAL_ACCEPTANCE = 0.574
"""The acceptance rate at which MALA mixes fastest in high dimension (Roberts and Rosenthal 1998)."""
NOISE_ELEMENTS = 2**21
"""Random numbers that may be drawn ahead of their use."""


class Walkers(NamedTuple):
    """Particles with U and its gradient at each of them."""

    particles: Particles
    energy: Float[Array, "m"]
    gradient: Particles


class StepAdaptation(NamedTuple):
    """The logarithm of MALA's step and how often it was adapted."""

    log_step: Float[Array, ""]
    adapted: Float[Array, ""]


def langevin(noise: Particles, theta: Particles, gradient: Particles, eta: Array, temperature: Any) -> Particles:
    """One Euler-Maruyama step of the Langevin diffusion."""
    return theta - eta * gradient + jnp.sqrt(2 * eta * temperature) * noise


def step_noise(key: PRNGKeyArray, steps: int, particles: Particles) -> Callable[[Array], Particles]:
    """Standard normal noise for each step: drawn for all steps at once while that is small, which halves its cost, else
    when it is needed. The numbers are the same either way.
    """

    def draw(s: Array) -> Particles:
        return jax.random.normal(jax.random.fold_in(key, s), particles.shape, particles.dtype)

    if steps * particles.size > NOISE_ELEMENTS:
        return draw
    table = jax.vmap(draw)(jnp.arange(steps))
    return lambda s: table[s]


def log_acceptance(theta: Walkers, proposal: Walkers, eta: Array, temperature: Any) -> Float[Array, "m"]:
    r"""log of pi(theta') q(theta' -> theta) / (pi(theta) q(theta -> theta')) for MALA.

    q(theta -> .) = N(theta - eta grad U(theta), 2 eta temperature I).
    """
    backward = jnp.sum((theta.particles - proposal.particles + eta * proposal.gradient) ** 2, axis=1)
    forward = jnp.sum((proposal.particles - theta.particles + eta * theta.gradient) ** 2, axis=1)
    return -(proposal.energy - theta.energy) / temperature - (backward - forward) / (4 * eta * temperature)


def _metropolis(key: PRNGKeyArray, here: Walkers, there: Walkers, log_alpha: Float[Array, "m"]) -> tuple[Walkers, Array]:
    """Go there with probability min(1, alpha), stay where alpha is not a number; and the mean acceptance."""
    log_alpha = jnp.where(jnp.isnan(log_alpha), -jnp.inf, log_alpha)
    uniform = jax.random.uniform(key, log_alpha.shape, log_alpha.dtype)
    accept = jnp.log1p(-uniform) < log_alpha

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, there, here), jnp.mean(jnp.exp(jnp.minimum(log_alpha, 0)))


def mala_step(key: PRNGKeyArray, noise: Particles, gibbs: Gibbs, walkers: Walkers, eta: Array) -> tuple[Walkers, Float[Array, ""]]:
    """One Metropolis-adjusted Langevin step of every particle, and the mean acceptance."""
    proposal = langevin(noise, walkers.particles, walkers.gradient, eta, gibbs.temperature)
    there = Walkers(proposal, *gibbs.energy_and_gradient(proposal))
    return _metropolis(key, walkers, there, log_acceptance(walkers, there, eta, gibbs.temperature))


def jump(key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int) -> tuple[Walkers, Float[Array, ""]]:
    r"""Differential evolution (ter Braak 2006): theta_r + gamma (theta_a - theta_b), a and b from the other half of the
    island, accepted on the energy alone.

    By the toss of a coin gamma = 1, which carries from mode to mode, or gamma = 2.38/sqrt(2 d), the best local step, which
    knows the cloud's shape. First one half moves, then the other.
    """
    m = walkers.particles.shape[0] // islands
    half = m // 2
    if half < 2:
        return walkers, jnp.zeros((), walkers.energy.dtype)
    first_key, second_key = jax.random.split(key)
    walkers, first = _jump_slice(first_key, gibbs, walkers, islands, slice(0, half), slice(half, m))
    walkers, second = _jump_slice(second_key, gibbs, walkers, islands, slice(half, m), slice(0, half))
    return walkers, (first + second) / 2


def _jump_slice(
    key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int, movers: slice, donors: slice
) -> tuple[Walkers, Float[Array, ""]]:
    by_island = jax.tree.map(lambda x: x.reshape(islands, -1, *x.shape[1:]), walkers)
    here = jax.tree.map(lambda x: x[:, movers].reshape(-1, *x.shape[2:]), by_island)
    pool = by_island.particles[:, donors]
    count, d = (movers.stop - movers.start), pool.shape[2]
    a_key, b_key, gamma_key, accept_key = jax.random.split(key, 4)
    a = jax.random.randint(a_key, (islands, count), 0, pool.shape[1])
    b = jax.random.randint(b_key, (islands, count), 0, pool.shape[1] - 1)
    b = b + (b >= a).astype(b.dtype)  # never the same donor twice
    difference = jax.vmap(lambda p, i, j: p[i] - p[j])(pool, a, b).reshape(-1, d)
    far = jax.random.bernoulli(gamma_key, 0.5, (islands * count,))
    gamma = jnp.where(far, 1.0, 2.38 / (2 * d) ** 0.5).astype(difference.dtype)
    proposal = here.particles + gamma[:, None] * difference
    there = Walkers(proposal, *gibbs.energy_and_gradient(proposal))
    moved, rate = _metropolis(accept_key, here, there, -(there.energy - here.energy) / gibbs.temperature)

    def put_back(all_of_them: Array, new: Array) -> Array:
        return all_of_them.at[:, movers].set(new.reshape(islands, count, *new.shape[1:])).reshape(-1, *new.shape[1:])

    return jax.tree.map(put_back, by_island, moved), rate


class MoveInfo(NamedTuple):
    """Mean acceptance of the Langevin steps and of the jumps."""

    acceptance: Float[Array, ""]
    jump_acceptance: Float[Array, ""]


def metropolis_moves(
    key: PRNGKeyArray,
    gibbs: Gibbs,
    particles: Particles,
    adaptation: StepAdaptation,
    *,
    steps: int,
    jumps: int = 0,
    islands: int = 1,
    adapt: bool = True,
) -> tuple[Walkers, StepAdaptation, MoveInfo]:
    """`steps` Langevin steps with `jumps` jumps spread among them: steps + jumps + 1 passes."""
    normal_key, uniform_key, jump_key = jax.random.split(key, 3)
    noise = step_noise(normal_key, steps, particles)
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
    start = (Walkers(particles, *gibbs.energy_and_gradient(particles)), adaptation, zero, zero)
    walkers, adaptation, accepted, jumped = jax.lax.fori_loop(0, steps, step, start)
    return walkers, adaptation, MoveInfo(accepted / steps, jumped / max(jumps, 1))


def first_step(dim: int, l2: Any, dtype: Any) -> StepAdaptation:
    """The best step for the prior itself: proposals of variance (1.65^2 d^{-1/3}) times the prior's."""
    return StepAdaptation(jnp.log(jnp.asarray(1.65**2 * dim ** (-1 / 3) / (4 * l2), dtype)), jnp.zeros((), dtype))


def adapted(state: StepAdaptation, acceptance: Array) -> StepAdaptation:
    """Robbins-Monro on the log step; the gain's floor lets the step follow a target that keeps moving."""
    gain = jnp.maximum((state.adapted + 1) ** -0.6, 0.1)
    return StepAdaptation(state.log_step + 2 * gain * (acceptance - OPTIMAL_ACCEPTANCE), state.adapted + 1)
