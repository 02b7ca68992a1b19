r"""Moves of a cloud that leave a Gibbs measure invariant: Langevin steps for each particle, jumps and leaps between particles.

Energy and gradient travel with the particles, so that a move costs one pass over the features. A cloud may consist of
several `islands` of equal size that never look at each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles

OPTIMAL_ACCEPTANCE = 0.574
"""The acceptance rate at which MALA mixes fastest in high dimension (Roberts and Rosenthal 1998)."""
LEAP_DIMENSIONS = 5
"""Above this many coordinates a kernel density of a cloud says little, and leaps are left out."""
KERNELS = 256
"""Particles at which the kernel density of a leap stands, at the most."""
NOISE_ELEMENTS = 2**21
"""Random numbers that may be drawn ahead of their use."""


class Walkers(NamedTuple):
    """Particles with U and its gradient at each of them."""

    particles: Float[Array, "*b m d"]
    energy: Float[Array, "*b m"]
    gradient: Float[Array, "*b m d"]


class StepAdaptation(NamedTuple):
    """The logarithm of MALA's step and how often it was adapted."""

    log_step: Float[Array, ""]
    adapted: Float[Array, ""]


def langevin(
    noise: Particles, theta: Particles, gradient: Particles, eta: Array, temperature: Any
) -> Particles:
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


def log_acceptance(
    theta: Walkers, proposal: Walkers, eta: Array, temperature: Any
) -> Float[Array, "m"]:
    r"""log of pi(theta') q(theta' -> theta) / (pi(theta) q(theta -> theta')) for MALA.

    q(theta -> .) = N(theta - eta grad U(theta), 2 eta temperature I).
    """
    backward = jnp.sum(
        (theta.particles - proposal.particles + eta * proposal.gradient) ** 2, axis=1
    )
    forward = jnp.sum((proposal.particles - theta.particles + eta * theta.gradient) ** 2, axis=1)
    return -(proposal.energy - theta.energy) / temperature - (backward - forward) / (
        4 * eta * temperature
    )


def _metropolis(
    key: PRNGKeyArray, here: Walkers, there: Walkers, log_alpha: Float[Array, "m"]
) -> tuple[Walkers, Array]:
    """Go there with probability min(1, alpha), stay where alpha is not a number; and the mean acceptance."""
    log_alpha = jnp.where(jnp.isnan(log_alpha), -jnp.inf, log_alpha)
    uniform = jax.random.uniform(key, log_alpha.shape, log_alpha.dtype)
    accept = jnp.log1p(-uniform) < log_alpha

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, there, here), jnp.mean(jnp.exp(jnp.minimum(log_alpha, 0)))


def mala_step(
    key: PRNGKeyArray, noise: Particles, gibbs: Gibbs, walkers: Walkers, eta: Array
) -> tuple[Walkers, Float[Array, ""]]:
    """One Metropolis-adjusted Langevin step of every particle, and the mean acceptance."""
    proposal = langevin(noise, walkers.particles, walkers.gradient, eta, gibbs.temperature)
    there = Walkers(proposal, *gibbs.energy_and_gradient(proposal))
    return _metropolis(key, walkers, there, log_acceptance(walkers, there, eta, gibbs.temperature))


def jump(
    key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Differential evolution (ter Braak 2006): theta_r + gamma (theta_a - theta_b), a and b from the other half of the
    island, accepted on the energy alone.

    By the toss of a coin gamma = 1, which carries from mode to mode, or gamma = 2.38/sqrt(2 d), the best local step, which
    knows the cloud's shape.
    """
    return _half_by_half(_difference, key, gibbs, walkers, islands, least=2)


def leap(
    key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Proposals that forget where a particle is: draws of a kernel density p of the other half of the island, accepted with
    probability pi(theta') p(theta) / (pi(theta) p(theta')). They carry mass between modes in one move.
    """
    return _half_by_half(
        _independent, key, gibbs, walkers, islands, least=2 + walkers.particles.shape[1]
    )


Proposal = Callable[[PRNGKeyArray, Particles, Particles], tuple[Particles, Float[Array, "m"]]]
"""From a key, the particles of an island that move and those that do not: where to go, and log p(theta) - log p(theta')."""


def _half_by_half(
    propose: Proposal, key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int, least: int
) -> tuple[Walkers, Float[Array, ""]]:
    """First one half of every island moves, by proposals that know the rest alone, then the other."""
    m = walkers.particles.shape[0] // islands
    half = m // 2
    if half < least:
        return walkers, jnp.zeros((), walkers.energy.dtype)

    def turn(walkers: Walkers, key: PRNGKeyArray) -> tuple[Walkers, Float[Array, ""]]:
        """The first half moves; then the island is turned, so that the next half stands first."""
        propose_key, accept_key = jax.random.split(key)
        movers = walkers.particles[:, :half]
        proposal, log_ratio = jax.vmap(propose)(
            jax.random.split(propose_key, islands), movers, walkers.particles[:, half:]
        )
        here = jax.tree.map(lambda x: x[:, :half].reshape(islands * half, *x.shape[2:]), walkers)
        there_particles = proposal.reshape(here.particles.shape)
        there = Walkers(there_particles, *gibbs.energy_and_gradient(there_particles))
        log_alpha = -(there.energy - here.energy) / gibbs.temperature + log_ratio.ravel()
        moved, rate = _metropolis(accept_key, here, there, log_alpha)

        def behind_the_others(everybody: Array, new: Array) -> Array:
            return jnp.concatenate(
                [everybody[:, half:], new.reshape(islands, half, *new.shape[1:])], axis=1
            )

        return jax.tree.map(behind_the_others, walkers, moved), rate

    by_island = jax.tree.map(lambda x: x.reshape(islands, m, *x.shape[1:]), walkers)
    by_island, rates = jax.lax.scan(turn, by_island, jax.random.split(key))
    # Every particle back in its place.
    walkers = jax.tree.map(
        lambda x: jnp.roll(x, 2 * half, axis=1).reshape(islands * m, *x.shape[2:]), by_island
    )
    return walkers, jnp.mean(rates)


def _difference(
    key: PRNGKeyArray, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    a_key, b_key, gamma_key = jax.random.split(key, 3)
    count, d = movers.shape
    a = jax.random.randint(a_key, (count,), 0, donors.shape[0])
    b = jax.random.randint(b_key, (count,), 0, donors.shape[0] - 1)
    b = b + (b >= a).astype(b.dtype)  # never the same donor twice
    far = jax.random.bernoulli(gamma_key, 0.5, (count,))
    gamma = jnp.where(far, 1.0, 2.38 / (2 * d) ** 0.5).astype(movers.dtype)
    return movers + gamma[:, None] * (donors[a] - donors[b]), jnp.zeros(count, movers.dtype)


def _independent(
    key: PRNGKeyArray, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    centre_key, pick_key, noise_key = jax.random.split(key, 3)
    count, d = movers.shape
    centres = donors[
        jax.random.randint(centre_key, (min(KERNELS, donors.shape[0]),), 0, donors.shape[0])
    ]
    # Half of the width that is best for a normal density (Silverman 1986), since there may be several modes.
    width = 0.5 * (4 / ((d + 2) * centres.shape[0])) ** (1 / (d + 4))
    covariance = jnp.cov(donors, rowvar=False).reshape(d, d)
    ridge = 1e-6 * jnp.trace(covariance) / d + jnp.finfo(donors.dtype).tiny
    root = width * jnp.linalg.cholesky(covariance + ridge * jnp.eye(d, dtype=donors.dtype))
    chosen = jax.random.randint(pick_key, (count,), 0, centres.shape[0])
    proposal = centres[chosen] + jax.random.normal(noise_key, movers.shape, movers.dtype) @ root.T
    origin = jnp.mean(centres, axis=0)

    def whiten(theta: Float[Array, "r d"]) -> Float[Array, "r d"]:
        return jax.scipy.linalg.solve_triangular(root, (theta - origin[None]).T, lower=True).T

    kernels = whiten(centres)

    def log_density(theta: Particles) -> Float[Array, "m"]:
        x = whiten(theta)
        square = (
            jnp.sum(x**2, axis=1)[:, None] + jnp.sum(kernels**2, axis=1)[None] - 2 * x @ kernels.T
        )
        return jax.nn.logsumexp(-square / 2, axis=1)

    return proposal, log_density(movers) - log_density(proposal)


class MoveInfo(NamedTuple):
    """Mean acceptance of the Langevin steps and of the jumps, and the gradient passes that all moves took."""

    acceptance: Float[Array, ""]
    jump_acceptance: Float[Array, ""]
    pulls: int


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
    """`leaps` leaps (in few dimensions), then `steps` Langevin steps with `jumps` jumps spread among them."""
    leaps = leaps if particles.shape[1] <= LEAP_DIMENSIONS else 0
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
    walkers = Walkers(particles, *gibbs.energy_and_gradient(particles))
    for i in range(leaps):
        walkers, _ = leap(jax.random.fold_in(jump_key, steps + i), gibbs, walkers, islands)
    walkers, adaptation, accepted, jumped = jax.lax.fori_loop(
        0, steps, step, (walkers, adaptation, zero, zero)
    )
    return (
        walkers,
        adaptation,
        MoveInfo(accepted / steps, jumped / max(jumps, 1), 1 + leaps + steps + jumps),
    )


def first_step(dim: int, l2: Any, dtype: Any) -> StepAdaptation:
    """The best step for the prior itself: proposals of variance (1.65^2 d^{-1/3}) times the prior's (narrowest)."""
    return StepAdaptation(
        jnp.log(jnp.asarray(1.65**2 * dim ** (-1 / 3) / (4 * jnp.max(l2)), dtype)),
        jnp.zeros((), dtype),
    )


def adapted(state: StepAdaptation, acceptance: Array) -> StepAdaptation:
    """Robbins-Monro on the log step; the gain's floor lets the step follow a target that keeps moving."""
    gain = jnp.maximum((state.adapted + 1) ** -0.6, 0.1)
    return StepAdaptation(
        state.log_step + 2 * gain * (acceptance - OPTIMAL_ACCEPTANCE), state.adapted + 1
    )
