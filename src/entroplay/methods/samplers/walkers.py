"""Particles that carry their energy and gradient, and the Metropolis test between two clouds."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import per_row
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles


class Walkers(NamedTuple):
    """Particles with U and its gradient at each: a move then costs a single pass."""

    particles: Float[Array, "*b m d"]
    energy: Float[Array, "*b m"]
    gradient: Float[Array, "*b m d"]


def walkers_at(gibbs: Gibbs, particles: Particles) -> Walkers:
    """The particles with their energies and gradients, in one pass over the features."""
    return Walkers(particles, *gibbs.energy_and_gradient(particles))


def metropolis(
    key: PRNGKeyArray, here: Walkers, there: Walkers, log_alpha: Float[Array, "m"]
) -> tuple[Walkers, Float[Array, ""]]:
    """Each walker goes there with probability min(1, alpha); also the mean acceptance.

    Walkers stay where alpha is not a number, as it is where U or its gradient is not finite.
    """
    log_alpha = jnp.where(jnp.isnan(log_alpha), -jnp.inf, log_alpha)
    uniform = jax.random.uniform(key, log_alpha.shape, log_alpha.dtype)
    # JAX draws u from [0, 1), which contains zero: log(1 - u) is always finite, log(u) is not.
    accept = jnp.log1p(-uniform) < log_alpha

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(per_row(accept, new), new, old)

    return jax.tree.map(choose, there, here), jnp.mean(jnp.exp(jnp.minimum(log_alpha, 0)))
