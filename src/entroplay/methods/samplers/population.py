r"""Moves that use the cloud itself as a proposal: jumps and leaps between particles.

If all particles moved at once by proposals made of each other, the Gibbs measure would not be
invariant. Each island is therefore split in two halves that take turns: one half moves by proposals
that depend only on the other half, which stands still.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from .walkers import Noise, Walkers, metropolis, walkers_at

ACCEPT, FIRST, SECOND, LENGTH = 1, 2, 3, 4
"""Columns of a move's coins: whether a proposal is accepted, the donors, the length of a jump. The
column before them belongs to the Langevin step."""
LEAP_DIMENSIONS = 5
"""Maximum number of coordinates for leaps: above it a kernel density of a cloud says little."""
KERNELS = 256
"""Maximum number of kernels in the density from which leaps are drawn."""
LOCAL_SCALE = 2.38
"""Numerator of the local jump length gamma = 2.38 / sqrt(2 d) (ter Braak 2006)."""
FAR_JUMPS = 0.5
"""Probability of a jump with gamma = 1, which carries from mode to mode."""
KERNEL_WIDTH = 0.5
"""Factor on Silverman's width, which suits one normal mode: there may be several, narrower ones."""
KERNEL_RIDGE = 1e-6
"""Ridge of the kernels' covariance, relative to the mean variance of the coordinates."""

Proposal = Callable[[Noise, Particles, Particles], tuple[Particles, Float[Array, "m"]]]
"""Maps the noise of the movers of an island, the movers and the island's donors to proposals theta'
for the movers and log p(theta) - log p(theta')."""


def jump(
    noise: Noise, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Differential evolution (ter Braak 2006): propose theta_r + gamma (theta_a - theta_b), with a
    and b from the other half of the island, and accept on the energy alone.

    By the toss of a coin, either gamma = 1, which carries from mode to mode, or
    gamma = 2.38/sqrt(2 d), the best local step, which adapts to the cloud's shape.
    """
    return _half_by_half(_difference, noise, gibbs, walkers, islands, least=2)


def leap(
    noise: Noise, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Proposals that do not depend on a particle's position: draws of a kernel density p of the
    other half of the island, accepted with probability min(1, pi(theta') p(theta) / (pi(theta)
    p(theta'))). They carry mass between modes in one move.
    """
    # The donors must outnumber the coordinates for their covariance to have full rank.
    least = 2 + walkers.particles.shape[1]
    return _half_by_half(_independent, noise, gibbs, walkers, islands, least=least)


def _half_by_half(
    propose: Proposal, noise: Noise, gibbs: Gibbs, walkers: Walkers, islands: int, least: int
) -> tuple[Walkers, Float[Array, ""]]:
    """Move one half of every island by proposals from the rest, then the other; mean acceptance.

    Islands whose halves have fewer than `least` particles stay as they are.
    """
    m = walkers.particles.shape[0] // islands
    half = m // 2
    if half < least:
        return walkers, jnp.zeros((), walkers.energy.dtype)

    def turn(walkers: Walkers, noise: Noise) -> tuple[Walkers, Float[Array, ""]]:
        """Move the first half, then rotate the island: the other half comes first."""
        proposal, log_ratio = jax.vmap(propose)(
            noise, walkers.particles[:, :half], walkers.particles[:, half:]
        )
        # All islands are evaluated in one pass: their movers form one flat cloud.
        here = jax.tree.map(lambda x: x[:, :half].reshape(islands * half, *x.shape[2:]), walkers)
        there = walkers_at(gibbs, proposal.reshape(here.particles.shape))
        log_alpha = -(there.energy - here.energy) / gibbs.temperature + log_ratio.ravel()
        moved, rate = metropolis(noise.coins[..., ACCEPT].ravel(), here, there, log_alpha)

        def rotate(island: Array, new: Array) -> Array:
            new = new.reshape(islands, half, *new.shape[1:])
            return jnp.concatenate([island[:, half:], new], axis=1)

        return jax.tree.map(rotate, walkers, moved), rate

    def by_turn(x: Array) -> Array:
        """The noise of the two halves of every island, as (2, islands, half, ...)."""
        halves = x.reshape(islands, m, *x.shape[1:])[:, : 2 * half]
        return jnp.swapaxes(halves.reshape(islands, 2, half, *x.shape[1:]), 0, 1)

    by_island = jax.tree.map(lambda x: x.reshape(islands, m, *x.shape[1:]), walkers)
    by_island, rates = jax.lax.scan(turn, by_island, jax.tree.map(by_turn, noise))
    # Two turns rotate by 2 * half places, one short of a full circle if m is odd: rotate back.
    walkers = jax.tree.map(
        lambda x: jnp.roll(x, 2 * half, axis=1).reshape(islands * m, *x.shape[2:]), by_island
    )
    return walkers, jnp.mean(rates)


def _below(coin: Float[Array, "m"], limit: int) -> Int[Array, "m"]:
    """Whole numbers from 0 to limit - 1, uniform up to rounding."""
    return jnp.minimum((limit * coin).astype(jnp.int32), limit - 1)


def _difference(
    noise: Noise, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    """Proposals of a jump. They are symmetric, so log p(theta) - log p(theta') is zero."""
    count, d = movers.shape
    a = _below(noise.coins[:, FIRST], donors.shape[0])
    # b is uniform over the donors other than a: draw from one fewer and skip a.
    b = _below(noise.coins[:, SECOND], donors.shape[0] - 1)
    b = b + (b >= a).astype(b.dtype)
    far = noise.coins[:, LENGTH] < FAR_JUMPS
    gamma = jnp.where(far, 1.0, LOCAL_SCALE / (2 * d) ** 0.5).astype(movers.dtype)
    return movers + gamma[:, None] * (donors[a] - donors[b]), jnp.zeros(count, movers.dtype)


def _independent(
    noise: Noise, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    """Proposals of a leap, with log p(theta) - log p(theta') of the kernel density p."""
    d, kernels = movers.shape[1], min(KERNELS, donors.shape[0])
    # Equally spaced: after resampling, neighbours may be copies of one particle.
    centres = donors[jnp.arange(kernels) * (donors.shape[0] // kernels)]

    # Kernels have the donors' covariance, scaled by the width that Silverman (1986) recommends.
    width = KERNEL_WIDTH * (4 / ((d + 2) * centres.shape[0])) ** (1 / (d + 4))
    covariance = jnp.cov(donors, rowvar=False).reshape(d, d)
    ridge = KERNEL_RIDGE * jnp.trace(covariance) / d + jnp.finfo(donors.dtype).tiny
    root = width * jnp.linalg.cholesky(covariance + ridge * jnp.eye(d, dtype=donors.dtype))
    chosen = _below(noise.coins[:, FIRST], kernels)
    proposal = centres[chosen] + noise.normal @ root.T

    # In whitened coordinates the kernels are standard normal. Their mean is subtracted first,
    # because the expanded square below loses digits far from the origin.
    origin = jnp.mean(centres, axis=0)

    def whiten(theta: Float[Array, "r d"]) -> Float[Array, "r d"]:
        return jax.scipy.linalg.solve_triangular(root, (theta - origin[None]).T, lower=True).T

    white = whiten(centres)

    def log_density(theta: Particles) -> Float[Array, "m"]:
        # log p up to a constant, with |x - c|^2 = |x|^2 + |c|^2 - 2 <x, c>.
        x = whiten(theta)
        square = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(white**2, axis=1)[None] - 2 * x @ white.T
        return jax.nn.logsumexp(-square / 2, axis=1)

    return proposal, log_density(movers) - log_density(proposal)
