r"""A search for mass that clouds have missed.

Clouds that agree may all be in the wrong place: a cold measure q_g can have its mass far from the
prior, where no path has led. The adversary descends the potential U from many places of which the
clouds know nothing: the prior, wider priors, and long jumps between and beyond particles. A place
that is clearly deeper than all that the clouds saw, or whose mass by Laplace's method,

    exp(-U/T) (2 pi T)^{d/2} / sqrt(det U''),

is a good part of Z_g although no particle is near, is an objection.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.compilation import compiled, traced
from ..measures.gibbs import Gibbs
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum

STARTS = 128
"""Number of descents from each kind of place."""
WIDER = 4.0
"""Factor on the prior's deviation for starts outside of it."""
BEYOND = 3.0
"""Largest length of a jump, in units of the distance between two particles."""
DESCENTS = 150
"""Steps of each descent."""
LONGER, SHORTER = 1.6, 0.4
"""Factors on the length of a step after one that went down, and after one that did not."""
DEEPER = 5.0
"""Depth below all that the clouds saw that is an objection, in units of the temperature. Particles
of a cloud reach the bottom of their mode up to about d/2 temperatures; these are descended too."""
PLACES = 6
"""Number of places, the deepest ones, whose mass is computed."""
LARGE_PART = 0.05
"""Fraction of Z_g that must not be missed."""
NEAR = 4.0
"""Standard deviations of |z|^2, for z ~ N(0, I), within which a particle is near a place."""

DIFFERENCE = 0.01
"""Distance between points whose gradients give second derivatives, in prior deviations."""


class Places(NamedTuple):
    """Ends of descents: the deepest ones found by the adversary, and by the clouds themselves."""

    found: Float[Array, "k d"]
    energies: Float[Array, "k"]
    hessians: Float[Array, "k d d"]
    deepest_seen: Float[Array, ""]


def missed_mass(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments, seen: Particles, log_partition: float
) -> str:
    """What the clouds missed, in words; empty if the adversary found nothing.

    `seen` are all particles of the clouds, `log_partition` is their estimate of log Z_g.
    """
    places = jax.device_get(_search(traced(problem), key, dual, seen))
    temperature, d = problem.temperature, problem.dim
    depth = float(places.deepest_seen - places.energies.min()) / temperature
    # Rounding of energies, where they are large compared to the temperature.
    rounding = 100 * np.finfo(problem.dtype).eps * abs(float(places.deepest_seen)) / temperature
    if not depth <= DEEPER + rounding:
        return f"a descent found a place {depth:.3g} temperatures deeper than all the clouds saw"
    radius = d + NEAR * np.sqrt(2 * d)
    cloud = np.asarray(seen, np.float64)
    for place, energy, hessian in zip(*places[:3], strict=True):
        values, vectors = np.linalg.eigh(np.asarray(hessian, np.float64))
        if not (np.isfinite(values).all() and (values > 0).all()):
            continue  # a kink or a saddle: Laplace's method does not apply
        log_mass = -float(energy) / temperature + np.log(2 * np.pi * temperature / values).sum() / 2
        z = (cloud - np.asarray(place, np.float64)) @ vectors * np.sqrt(values / temperature)
        nobody = not ((z**2).sum(axis=1) <= radius).any()
        if nobody and log_mass - log_partition > np.log(LARGE_PART):
            share = min(1.0, float(np.exp(min(0.0, log_mass - log_partition))))
            return f"no particle is near a place that has about {share:.0%} of the mass"
    return ""


@compiled
def _search(problem: FiniteSum, key: PRNGKeyArray, dual: Moments, seen: Particles) -> Places:
    """Descend from the clouds' deepest particles, and from everywhere else."""
    gibbs = Gibbs(problem, dual)
    normal_key, uniform_key = jax.random.split(key)
    m, d = seen.shape
    prior, wide = jnp.split(problem.prior(normal_key, 2 * STARTS), 2)
    uniform = jax.random.uniform(uniform_key, (4, STARTS), seen.dtype)
    a, b, c = seen[jnp.minimum((m * uniform[:3]).astype(jnp.int32), m - 1)]
    length = BEYOND * (2 * uniform[3] - 1)[:, None]
    jumps, flipped = a + length * (b - c), length * a
    order = jnp.argsort(gibbs.energy(seen))
    own = seen[order[: min(STARTS, m)]]
    starts = jnp.concatenate([own, prior, WIDER * wide, jumps, flipped])
    ends, energies = _descend(gibbs, starts)
    count = own.shape[0]
    chosen = jnp.argsort(energies[count:])[:PLACES] + count

    # By differences of gradients: compiled kernels have no second derivatives.
    width = DIFFERENCE * jnp.broadcast_to(problem.prior_deviation, (d,))

    def hessian(theta: Float[Array, "d"]) -> Float[Array, "d d"]:
        shifts = jnp.diag(width)
        sides = theta[None] + jnp.concatenate([shifts, -shifts])
        gradients = gibbs.gradient(sides)
        rows = (gradients[:d] - gradients[d:]) / (2 * width[:, None])
        return (rows + rows.T) / 2

    hessians = jax.lax.map(hessian, ends[chosen])
    return Places(ends[chosen], energies[chosen], hessians, jnp.min(energies[:count]))


def _descend(gibbs: Gibbs, starts: Particles) -> tuple[Particles, Float[Array, "k"]]:
    """Gradient descent of every start, each with a step length that adapts to its place."""
    energy, gradient = gibbs.energy_and_gradient(starts)
    # The step of the prior's own curvature, which is a safe one to begin with.
    length = jnp.full(energy.shape, 1 / jnp.max(2 * gibbs.problem.l2_row), starts.dtype)

    def step(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        theta, energy, gradient, length = carry
        trial = theta - length[:, None] * gradient
        there, slope = gibbs.energy_and_gradient(trial)
        lower = there < energy
        return (
            jnp.where(lower[:, None], trial, theta),
            jnp.where(lower, there, energy),
            jnp.where(lower[:, None], slope, gradient),
            length * jnp.where(lower, LONGER, SHORTER),
        )

    theta, energy, _, _ = jax.lax.fori_loop(0, DESCENTS, step, (starts, energy, gradient, length))
    return theta, energy
