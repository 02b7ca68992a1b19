"""Particles that carry their energy and gradient, their noise, and the Metropolis test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import per_row
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles

NOISE_ELEMENTS = 2**21
"""Maximum number of random numbers that are drawn ahead of their use."""
COINS = 5
"""Uniform numbers per particle in the noise of a move."""


class Noise(NamedTuple):
    """Random numbers for one move of every particle.

    All come from a single draw. A generator of random numbers is a large piece of a compiled
    program, and each call would add another copy.
    """

    normal: Float[Array, "*b m d"]
    coins: Float[Array, "*b m coins"]
    """Uniform numbers, strictly between zero and one."""


class Walkers(NamedTuple):
    """Particles with U and its gradient at each: a move then costs a single pass."""

    particles: Float[Array, "*b m d"]
    energy: Float[Array, "*b m"]
    gradient: Float[Array, "*b m d"]


def walkers_at(gibbs: Gibbs, particles: Particles) -> Walkers:
    """The particles with their energies and gradients, in one pass over the features."""
    return Walkers(particles, *gibbs.energy_and_gradient(particles))


def drawn_by_step(
    key: PRNGKeyArray, steps: int, size: int, draw: Callable[[PRNGKeyArray], Any]
) -> Callable[[Array], Any]:
    """A function that returns the random numbers of each step.

    While the `size` numbers of all steps are few, they are drawn at once, which halves their cost.
    Otherwise they are drawn when they are needed. The numbers are the same either way.
    """

    # A key per step, not one for the whole table: the table's length does not change the numbers.
    def of_step(s: Array) -> Any:
        return draw(jax.random.fold_in(key, s))

    if steps * size > NOISE_ELEMENTS:
        return of_step
    table = jax.vmap(of_step)(jnp.arange(steps))
    return lambda s: jax.tree.map(lambda numbers: numbers[s], table)


def move_noise(key: PRNGKeyArray, particles: Particles) -> Noise:
    """The noise of one move. That of a particle does not depend on how many others there are."""
    m, d = particles.shape
    # The open interval (-1, 1): its ends would be infinite normals.
    least = jnp.nextafter(jnp.asarray(-1, particles.dtype), jnp.asarray(0, particles.dtype))
    uniform = jax.random.uniform(key, (m, d + COINS), particles.dtype, least, 1)
    # If u is uniform on (-1, 1), sqrt(2) erf^{-1}(u) is standard normal.
    normal = 2**0.5 * jax.lax.erf_inv(uniform[:, :d])
    return Noise(normal, (1 + uniform[:, d:]) / 2)


def metropolis(
    coin: Float[Array, "m"], here: Walkers, there: Walkers, log_alpha: Float[Array, "m"]
) -> tuple[Walkers, Float[Array, ""]]:
    """Each walker goes there with probability min(1, alpha); also the mean acceptance.

    Walkers stay where alpha is not a number, as it is where U or its gradient is not finite.
    """
    log_alpha = jnp.where(jnp.isnan(log_alpha), -jnp.inf, log_alpha)
    accept = jnp.log(coin) < log_alpha

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(per_row(accept, new), new, old)

    return jax.tree.map(choose, there, here), jnp.mean(jnp.exp(jnp.minimum(log_alpha, 0)))
