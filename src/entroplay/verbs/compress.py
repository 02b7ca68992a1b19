r"""Fewer particles that predict almost the same: herding, Stein thinning, kernel thinning.

Distances between clouds are measured in the kernel
k(theta, theta') = sum_i w_i <h_i(theta), h_i(theta')>: two clouds at distance zero predict the same
at every training row. The particles that are kept get new weights, calibrated to reproduce the
moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..base.arguments import invalid, one_of, seed_number, whole
from ..base.compilation import traced
from ..measures.calibration import prediction_weights
from ..measures.cloud import SeenCloud
from ..measures.gibbs import Gibbs
from ..problems.features.base import Moments, Particles
from ..problems.losses.base import row_sum
from ..problems.problem import FiniteSum
from ..runs.solution import Compression, Solution

SWEEPS = 4
"""Number of rounds in which herding exchanges each chosen particle for a better one."""
LARGEST_MATRIX = 2**13
"""Maximum number of particles whose kernel matrix kernel thinning holds at once."""


def compress(solution: Solution, size: int, method: str = "herding", *, seed: int = 0) -> Solution:
    """Keep `size` of a solution's particles, weighted so that they predict nearly what all did.

    Args:
        solution: what to compress. It needs its training data.
        size: the number of particles to keep.
        method: "herding" takes, one by one, the particle that brings the mean features closest to
            the moments (Chen, Welling and Smola 2010), and then exchanges particles one by one
            while that helps; "stein" minimises the kernel Stein discrepancy from the Gibbs measure,
            using the exact score (Riabiz and others 2022; needs the package stein-thinning; may
            take a particle twice); "thinning" is kernel thinning (Dwivedi and Mackey 2021; needs
            goodpoints).
        seed: the seed of kernel thinning's random halving.

    Returns:
        A `Solution` that predicts, prints, certifies and saves like any other. Its `compression`
        tells how far its predictions at the training rows are from those of all particles.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> small = ep.compress(ep.solve(problem, ep.EFP(), particles=200, iterations=30), 10)
    >>> small.particles.shape, small.compression.error < small.compression.random_error
    ((10, 1), True)
    """
    if not isinstance(solution, Solution):
        raise invalid("compress", "solution", "a Solution", solution)
    problem, m = solution.problem, solution.particles.shape[0]
    problem.needs_rows("compress")
    size = whole("compress", "size", size)
    if size >= m:
        raise invalid("compress", "size", f"less than the number of particles, {m}", size)
    choose = METHODS[one_of("compress", "method", method, tuple(METHODS))]
    seed = seed_number("compress", seed)
    with problem.arithmetic():
        kept = solution.particles[np.asarray(choose(solution, size, seed))]
        weights, _ = prediction_weights(problem, kept, solution.moments)
        error, chance = _errors(
            traced(problem), solution.particles, solution.weights, kept, weights
        )
    compression = Compression(method, m, float(error), float(chance))
    # The iterate's cloud, as large as the one that was compressed, is dropped. Both it and the
    # compression may be None, which must count as a leaf to be replaced.
    return eqx.tree_at(
        lambda s: (s.particles, s.weights, s.iterate, s.compression),
        solution,
        (kept, weights, None, compression),
        is_leaf=lambda leaf: leaf is None,
    )


@eqx.filter_jit
def _errors(
    problem: FiniteSum,
    cloud: Particles,
    cloud_weights: Float[Array, "m"],
    kept: Float[Array, "s d"],
    weights: Float[Array, "s"],
) -> tuple[Array, Array]:
    """Root mean square error of the kept particles' predictions at the training rows.

    Beside it, the one to expect of a random subset of the same size with equal weights.
    """

    def root_mean(squares: Float[Array, "n"]) -> Array:
        return jnp.sqrt(problem.weights @ squares)

    features, size, share = problem.features, kept.shape[0], kept.shape[0] / cloud.shape[0]
    difference = features.average(kept, weights) - features.average(cloud, cloud_weights)
    _, spread = features.mean_and_covariance(cloud)
    variance = spread if difference.ndim == 1 else jnp.trace(spread, axis1=1, axis2=2)
    # A mean of s draws out of m without replacement has the variance (1 - s/m) Var(h) / s.
    return root_mean(row_sum(difference**2)), root_mean(variance * (1 - share) / size)


def _herd(solution: Solution, size: int, seed: int) -> Int[Array, "s"]:
    return _herding(traced(solution.problem), solution.particles, solution.weights, size)


@eqx.filter_jit
def _herding(
    problem: FiniteSum, particles: Particles, weights: Float[Array, "m"], size: int
) -> Int[Array, "s"]:
    """Choose particles, slot by slot and without repetition, whose mean features are closest to H.

    H are the moments of the weighted cloud. The slots are filled one after the other. In SWEEPS
    further rounds each slot is emptied and filled again.
    """
    cloud = SeenCloud.of(problem.features, particles)
    target = cloud.average(weights)
    norms = problem.features.square_norms(particles, problem.weights)

    def single(index: Array, value: Array) -> Float[Array, "m"]:
        """Weights of the cloud that are zero but for one particle."""
        return jnp.zeros_like(norms).at[index].set(value)

    def fill(
        turn: Array, carry: tuple[Int[Array, "s"], Moments]
    ) -> tuple[Int[Array, "s"], Moments]:
        chosen, total = carry
        slot, filling = turn % size, turn < size
        # In the first round the slot is empty, and nothing has to be taken out.
        leaving = jnp.where(filling, 0, 1).astype(norms.dtype)
        total = total - cloud.average(single(chosen[slot], leaving))
        # cost = |S + h(theta) - c H|^2 up to a constant, where S is the sum over the other slots
        # and c counts them and this one. The cross term is a potential.
        count = jnp.where(filling, turn + 1, size).astype(norms.dtype)
        cost = norms - 2 * cloud.potential(problem.weigh(count * target - total))
        # A particle in another slot cannot be taken again; empty slots point behind the last one.
        others = jnp.where(
            (jnp.arange(size) < turn) & (jnp.arange(size) != slot), chosen, norms.shape[0]
        )
        best = jnp.argmin(cost.at[others].set(jnp.inf, mode="drop")).astype(jnp.int32)
        entering = cloud.average(single(best, jnp.ones_like(leaving)))
        return chosen.at[slot].set(best), total + entering

    start = (jnp.zeros(size, jnp.int32), jnp.zeros_like(target))
    return jax.lax.fori_loop(0, (1 + SWEEPS) * size, fill, start)[0]


def _stein_thin(solution: Solution, size: int, seed: int) -> np.ndarray:
    """Greedily minimise the kernel Stein discrepancy from q_g, whose score is known exactly."""
    try:
        from stein_thinning.thinning import thin
    except ImportError:
        raise ImportError(
            'The method "stein" needs stein-thinning: pip install "entroplay[compress]".'
        ) from None
    # The score is grad log q_g = -grad U_g / temperature, with grad U_g of eq. (10).
    gradient = Gibbs(solution.problem, solution.dual).gradient(solution.particles)
    score = -np.asarray(gradient, np.float64) / solution.problem.temperature
    return thin(np.asarray(solution.particles, np.float64), score, size, preconditioner="med")


def _kernel_thin(solution: Solution, size: int, seed: int) -> np.ndarray:
    """Halve the cloud repeatedly, each time keeping a half that represents both, then swap."""
    try:
        from goodpoints import kt
    except ImportError:
        raise ImportError(
            'The method "thinning" needs goodpoints: pip install "entroplay[compress]".'
        ) from None
    m = solution.particles.shape[0]
    rounds = int(np.log2(min(m, LARGEST_MATRIX) / size))
    if rounds < 1:
        must_be = f'at most half of the {m} particles (and of {LARGEST_MATRIX}) for "thinning"'
        raise invalid("compress", "size", must_be, size)
    # The particles are exchangeable: the first ones are as good as any.
    used = solution.particles[: size * 2**rounds]
    kernel = np.asarray(_kernel_matrix(traced(solution.problem), used), np.float64)
    return kt.thin_K(kernel, kernel, rounds, seed=seed, unique=True)


@eqx.filter_jit
def _kernel_matrix(problem: FiniteSum, particles: Particles) -> Float[Array, "m m"]:
    """k(theta_r, theta_s) + 1 for all pairs; the one makes the total mass count too."""
    features = problem.features

    def row(theta: Float[Array, "d"]) -> Float[Array, "m"]:
        # k(theta, .) is the potential of the weighted features of theta.
        return features.potential(particles, problem.weigh(features.average(theta[None]))) + 1

    return jax.lax.map(row, particles)


METHODS: dict[str, Callable[[Solution, int, int], Any]] = {
    "herding": _herd,
    "stein": _stein_thin,
    "thinning": _kernel_thin,
}
"""The functions that choose particles, by the names that users give; they return indices."""
