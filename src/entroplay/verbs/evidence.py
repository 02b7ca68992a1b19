"""What independent clouds, and the run's own, say about the moments under a Gibbs measure."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..base.compilation import compiled
from ..measures.gibbs import Gibbs
from ..measures.weights import effective_number, systematic_indices
from ..methods.samplers.langevin import metropolis_moves
from ..methods.smc import JUMPS, STAGES, STEPS, Islands, follow
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum

OWN = 512
"""Number of draws that represent the run's cloud if its weights are very uneven."""
DISAGREEMENT = 16.0
"""Ratio of a squared distance to its Monte-Carlo expectation above which clouds disagree.

With errors from eight islands, one dominant direction exceeds it in about one case of two hundred
(F distribution with 1 and 7 degrees of freedom).
"""
OWN_BATCHES = 4
"""Number of batches of moves by which the run's own cloud is moved on."""


def own_cloud(particles: Particles, weights: Float[Array, "m"]) -> Float[Array, "own d"]:
    """The run's cloud, or draws by its weights if it is large and the weights are very uneven."""
    shares = np.maximum(np.asarray(weights, np.float64), 0)
    shares = shares / shares.sum()
    if len(shares) <= OWN or effective_number(shares) > len(shares) / 2:
        return particles
    return jnp.asarray(np.asarray(particles)[systematic_indices(shares, OWN, offset=0.5)])


class Evidence(eqx.Module):
    """Estimates of E_q[h] by independent islands."""

    islands: Islands
    island_moments: Float[Array, "b n *c"]
    within: Float[Array, "n *cc"]
    """Covariance of h under q_g, over all islands."""


def gather(
    problem: FiniteSum,
    key: PRNGKeyArray,
    path: Float[Array, "k n *c"],
    snapshots: int,
    *,
    islands: int,
    size: int,
) -> Evidence:
    """Lead islands along the path, then average their moments over `snapshots` batches of moves."""
    walk_key, stay_key = jax.random.split(key)
    state = follow(
        problem, walk_key, path, islands=islands, particles=size, steps=STEPS, jumps=JUMPS,
        stages=STAGES,
    )  # fmt: skip
    return _stay(problem, stay_key, path[-1], state, jnp.asarray(snapshots, jnp.int32))


def moved_on(
    problem: FiniteSum, key: PRNGKeyArray, dual: Moments, own: Particles, islands: Islands
) -> Evidence:
    """The run's own cloud after further moves with the islands' step size.

    Particles that had not moved yet would otherwise reproduce the moments they started from. The
    cloud is spread over as many islands of the same size: it goes through the same program.
    """
    b, m, d = islands.particles.shape
    # Equally spaced, some repeatedly if the cloud is smaller: copies part in the first moves.
    chosen = np.arange(b * m) * own.shape[0] // (b * m)
    # Neighbours may be copies of one particle: every island gets particles from everywhere.
    spread = np.asarray(own)[chosen].reshape(m, b, d).swapaxes(0, 1)
    begin = islands._replace(particles=jnp.asarray(spread, problem.dtype))
    return _stay(problem, key, dual, begin, jnp.asarray(OWN_BATCHES, jnp.int32))


@compiled
def _stay(
    problem: FiniteSum,
    key: PRNGKeyArray,
    dual: Moments,
    state: Islands,
    snapshots: Int[Array, ""],
) -> Evidence:
    """Move islands that are at q_g; their moments are averaged over the batches of moves."""
    gibbs, (b, m, d) = Gibbs(problem, dual), state.particles.shape

    def snapshot(index: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """One batch of moves of all islands, whose moments then enter the average."""
        particles, total, pulls = carry
        walkers, _, moved = metropolis_moves(
            jax.random.fold_in(key, index),
            gibbs,
            particles.reshape(b * m, d),
            state.adaptation,
            steps=STEPS,
            jumps=JUMPS,
            leaps=1,
            islands=b,
            adapt=False,
        )
        particles = walkers.particles.reshape(b, m, d)
        seen = jax.lax.map(problem.features.average, particles)
        return particles, total + seen, pulls + moved.pulls

    zero = jnp.zeros((b, *problem.features.shape), problem.dtype)
    begin = (state.particles, zero, state.pulls)
    particles, total, pulls = jax.lax.fori_loop(0, snapshots, snapshot, begin)
    _, within = problem.features.mean_and_covariance(particles.reshape(b * m, d))
    moved = state._replace(particles=particles, pulls=pulls)
    return Evidence(moved, total / snapshots.astype(problem.dtype), within)


class OwnCloud(NamedTuple):
    """What the run's own cloud says after further moves."""

    moments: Moments
    spread: Float[Array, "n *cc"]
    """Covariance of h over the cloud."""
    particles: int
    """Number of particles that are independent at best."""

    @staticmethod
    def of(moved: Evidence, particles: int) -> OwnCloud:
        """The mean over the islands into which the cloud was spread."""
        return OwnCloud(jnp.mean(moved.island_moments, axis=0), moved.within, particles)


class Agreement(NamedTuple):
    """How far apart the clouds are, as squared lengths, beside what sampling noise explains."""

    masses: float
    """Effective fraction of the islands, by their estimates of the mass."""
    between: float
    """Squared error of the islands' mean, by their spread."""
    independent: float
    """Squared error that a mean of independent draws would have."""
    distance: float
    """Squared distance of the run's own cloud from the islands' mean."""
    expected: float
    """Expected value of that distance if both sample the same measure."""

    @property
    def objection(self) -> str:
        """What the clouds disagree about; empty if they agree."""
        comparable = np.isfinite([self.between, self.distance, self.expected]).all()
        if not comparable or self.masses < 1 / 2:
            return "the islands disagree about the mass of what they found"
        if self.between > DISAGREEMENT * self.independent:
            return "the islands' moments differ by more than their sampling error"
        if self.distance > DISAGREEMENT * self.expected:
            return "the run's own cloud and the islands disagree"
        return ""
