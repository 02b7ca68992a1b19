r"""Moves that use the cloud itself as a proposal: jumps and leaps between particles.

If all particles moved at once by proposals made of each other, the Gibbs measure would not be
invariant. Each island is therefore split in two halves that take turns: one half moves by proposals
that depend only on the other half, which stands still.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from .walkers import Walkers, metropolis, walkers_at

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

Proposal = Callable[[PRNGKeyArray, Particles, Particles], tuple[Particles, Float[Array, "m"]]]
"""Maps a key, the movers of an island and its donors to proposals theta' for the movers and
log p(theta) - log p(theta')."""


def jump(
    key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Differential evolution (ter Braak 2006): propose theta_r + gamma (theta_a - theta_b), with a
    and b from the other half of the island, and accept on the energy alone.

    By the toss of a coin, either gamma = 1, which carries from mode to mode, or
    gamma = 2.38/sqrt(2 d), the best local step, which adapts to the cloud's shape.
    """
    return _half_by_half(_difference, key, gibbs, walkers, islands, least=2)


def leap(
    key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int
) -> tuple[Walkers, Float[Array, ""]]:
    r"""Proposals that do not depend on a particle's position: draws of a kernel density p of the
    other half of the island, accepted with probability min(1, pi(theta') p(theta) / (pi(theta)
    p(theta'))). They carry mass between modes in one move.
    """
    # The donors must outnumber the coordinates for their covariance to have full rank.
    least = 2 + walkers.particles.shape[1]
    return _half_by_half(_independent, key, gibbs, walkers, islands, least=least)


def _half_by_half(
    propose: Proposal, key: PRNGKeyArray, gibbs: Gibbs, walkers: Walkers, islands: int, least: int
) -> tuple[Walkers, Float[Array, ""]]:
    """Move one half of every island by proposals from the rest, then the other; mean acceptance.

    Islands whose halves have fewer than `least` particles stay as they are.
    """
    m = walkers.particles.shape[0] // islands
    half = m // 2
    if half < least:
        return walkers, jnp.zeros((), walkers.energy.dtype)

    def turn(walkers: Walkers, key: PRNGKeyArray) -> tuple[Walkers, Float[Array, ""]]:
        """Move the first half, then rotate the island: the other half comes first."""
        propose_key, accept_key = jax.random.split(key)
        proposal, log_ratio = jax.vmap(propose)(
            jax.random.split(propose_key, islands),
            walkers.particles[:, :half],
            walkers.particles[:, half:],
        )
        # All islands are evaluated in one pass: their movers form one flat cloud.
        here = jax.tree.map(lambda x: x[:, :half].reshape(islands * half, *x.shape[2:]), walkers)
        there = walkers_at(gibbs, proposal.reshape(here.particles.shape))
        log_alpha = -(there.energy - here.energy) / gibbs.temperature + log_ratio.ravel()
        moved, rate = metropolis(accept_key, here, there, log_alpha)

        def rotate(island: Array, new: Array) -> Array:
            new = new.reshape(islands, half, *new.shape[1:])
            return jnp.concatenate([island[:, half:], new], axis=1)

        return jax.tree.map(rotate, walkers, moved), rate

    by_island = jax.tree.map(lambda x: x.reshape(islands, m, *x.shape[1:]), walkers)
    by_island, rates = jax.lax.scan(turn, by_island, jax.random.split(key))
    # Two turns rotate by 2 * half places, one short of a full circle if m is odd: rotate back.
    walkers = jax.tree.map(
        lambda x: jnp.roll(x, 2 * half, axis=1).reshape(islands * m, *x.shape[2:]), by_island
    )
    return walkers, jnp.mean(rates)


def below(bits: Array, limit: int) -> Array:
    """Whole numbers from 0 to limit - 1 out of 32 random bits each, uniform to limit / 2^32.

    `jax.random.randint` draws twice for an exact result and splits its key first: five times the
    compiled program, for a bias that no cloud can show.
    """
    return (bits % jnp.uint32(limit)).astype(jnp.int32)


def _difference(
    key: PRNGKeyArray, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    """Proposals of a jump. They are symmetric, so log p(theta) - log p(theta') is zero."""
    count, d = movers.shape
    first, second, coin = jax.random.bits(key, (3, count), "uint32")
    a = below(first, donors.shape[0])
    # b is uniform over the donors other than a: draw from one fewer and skip a.
    b = below(second, donors.shape[0] - 1)
    b = b + (b >= a).astype(b.dtype)
    far = coin % 2 == 0
    gamma = jnp.where(far, 1.0, LOCAL_SCALE / (2 * d) ** 0.5).astype(movers.dtype)
    return movers + gamma[:, None] * (donors[a] - donors[b]), jnp.zeros(count, movers.dtype)


def _independent(
    key: PRNGKeyArray, movers: Particles, donors: Float[Array, "q d"]
) -> tuple[Particles, Float[Array, "m"]]:
    """Proposals of a leap, with log p(theta) - log p(theta') of the kernel density p."""
    pick_key, noise_key = jax.random.split(key)
    count, d = movers.shape
    kernels = min(KERNELS, donors.shape[0])
    picks = jax.random.bits(pick_key, (kernels + count,), "uint32")
    centres = donors[below(picks[:kernels], donors.shape[0])]

    # Kernels have the donors' covariance, scaled by the width that Silverman (1986) recommends.
    width = KERNEL_WIDTH * (4 / ((d + 2) * centres.shape[0])) ** (1 / (d + 4))
    covariance = jnp.cov(donors, rowvar=False).reshape(d, d)
    ridge = KERNEL_RIDGE * jnp.trace(covariance) / d + jnp.finfo(donors.dtype).tiny
    root = width * jnp.linalg.cholesky(covariance + ridge * jnp.eye(d, dtype=donors.dtype))
    chosen = below(picks[kernels:], kernels)
    proposal = centres[chosen] + jax.random.normal(noise_key, movers.shape, movers.dtype) @ root.T

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
