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
"""Number of batches of Langevin steps by which the run's own cloud is moved on."""


def own_cloud(particles: Particles, weights: Float[Array, "m"]) -> Float[Array, "own d"]:
    """The run's cloud, or draws by its weights if it is large and the weights are very uneven."""
    shares = np.maximum(np.asarray(weights, np.float64), 0)
    shares = shares / shares.sum()
    if len(shares) <= OWN or effective_number(shares) > len(shares) / 2:
        return particles
    return jnp.asarray(np.asarray(particles)[systematic_indices(shares, OWN, offset=0.5)])


class Evidence(eqx.Module):
    """Estimates of E_q[h] by the islands and by the run's own cloud."""

    islands: Islands
    island_moments: Float[Array, "b n *c"]
    within: Float[Array, "n *cc"]
    """Covariance of h under q_g, over all islands."""
    own_moments: Moments
    own_spread: Float[Array, "n *cc"]


@compiled
def gather(
    problem: FiniteSum,
    key: PRNGKeyArray,
    path: Float[Array, "k n *c"],
    own: Particles,
    snapshots: Int[Array, ""],
    *,
    islands: int,
    size: int,
) -> Evidence:
    """Lead islands along the path, average their moments at its end, move the run's own cloud."""
    walk_key, stay_key, own_key = jax.random.split(key, 3)
    state = follow(
        problem, walk_key, path, islands=islands, particles=size, steps=STEPS, jumps=JUMPS,
        stages=STAGES,
    )  # fmt: skip
    gibbs = Gibbs(problem, path[-1])

    def snapshot(index: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """One batch of moves of all islands, whose moments then enter the average."""
        particles, total, pulls = carry
        walkers, _, moved = metropolis_moves(
            jax.random.fold_in(stay_key, index),
            gibbs,
            particles.reshape(-1, problem.dim),
            state.adaptation,
            steps=STEPS,
            jumps=JUMPS,
            leaps=1,
            islands=islands,
            adapt=False,
        )
        particles = walkers.particles.reshape(particles.shape)
        seen = jax.lax.map(problem.features.average, particles)
        return particles, total + seen, pulls + moved.pulls

    zero = jnp.zeros((islands, *problem.features.shape), problem.dtype)
    begin = (state.particles, zero, state.pulls)
    particles, total, pulls = jax.lax.fori_loop(0, snapshots, snapshot, begin)
    _, within = problem.features.mean_and_covariance(particles.reshape(-1, problem.dim))

    # The run's own cloud is moved on with the islands' step size: particles that had not moved yet
    # would otherwise reproduce the moments they started from.
    own = own.astype(problem.dtype)
    walkers, _, _ = metropolis_moves(
        jax.random.fold_in(own_key, 0),
        gibbs,
        own,
        state.adaptation,
        steps=OWN_BATCHES * STEPS,
        adapt=False,
    )
    own_moments, own_spread = problem.features.mean_and_covariance(walkers.particles)
    state = state._replace(particles=particles, pulls=pulls)
    moments = total / snapshots.astype(problem.dtype)
    return Evidence(state, moments, within, own_moments, own_spread)


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
