r"""Fewer particles that predict almost the same: herding, Stein thinning, kernel thinning.

Which particles to keep is judged in the kernel that matters here, k(theta, theta') = sum_i w_i <h_i(theta), h_i(theta')>: two
clouds at distance zero in it predict the same at every training row. Whatever is kept, its weights are calibrated anew to
reproduce the moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..base.arguments import invalid, one_of, whole
from ..base.compilation import traced
from ..measures.calibration import calibrated_weights
from ..measures.cloud import SeenCloud
from ..measures.gibbs import Gibbs
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum
from ..runs.solution import Compression, Solution

SWEEPS = 4
"""Rounds over the chosen particles in which herding exchanges each for a better one."""
LARGEST_MATRIX = 2**13
"""Particles whose kernel matrix kernel thinning may hold at once."""


def compress(solution: Solution, size: int, method: str = "herding", *, seed: int = 0) -> Solution:
    """A solution with `size` of the particles, weighted so that it predicts nearly as the whole one does.

    Args:
        solution: what to compress. It needs its training data.
        size: how many particles to keep.
        method: "herding" takes, one by one, the particle that brings the mean features closest to the moments (Chen, Welling
            and Smola 2010), and then exchanges them one by one while that helps; "stein" minimises the kernel Stein
            discrepancy from the Gibbs measure, by its own score (Riabiz and others 2022; needs the package stein-thinning; a
            particle may be taken twice); "thinning" is kernel thinning (Dwivedi and Mackey 2021; needs goodpoints).
        seed: of kernel thinning's random halving.

    Returns:
        A `Solution` that predicts, prints, certifies and saves like any other. Its `compression` tells how far its predictions
        at the training rows are from those of the whole.

    >>> import entroplay as ep
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
    >>> small = ep.compress(ep.solve(problem, ep.EFP(), particles=200, iterations=30), 10)
    >>> small.particles.shape, small.compression.error < small.compression.random_error
    ((10, 1), True)
    """
    if not isinstance(solution, Solution):
        raise invalid("compress", "solution", "a Solution", solution)
    problem, m = solution.problem, solution.particles.shape[0]
    if problem.features.shape[0] == 0:
        raise ValueError(
            "The solution was saved without its data (data=False), and without data it cannot be compressed."
        )
    size = whole("compress", "size", size)
    if size >= m:
        raise invalid("compress", "size", f"less than the number of particles, {m}", size)
    choose = METHODS[one_of("compress", "method", method, tuple(METHODS))]
    with jax.enable_x64(problem.dtype == jnp.float64):
        kept = solution.particles[
            np.asarray(choose(solution, size, whole("compress", "seed", seed, least=0)))
        ]
        weights = calibrated_weights(problem, kept, solution.moments)
        error, chance = _errors(
            traced(problem), solution.particles, solution.weights, kept, weights
        )
    compression = Compression(method, m, float(error), float(chance))
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
    """The root mean square distance of the two predictions, and what to expect of a random subset with equal weights."""

    def size(square: Array) -> Array:
        return jnp.sqrt(problem.weights @ square)

    features, share = problem.features, kept.shape[0] / cloud.shape[0]
    difference = features.average(kept, weights) - features.average(cloud, cloud_weights)
    _, spread = features.mean_and_covariance(cloud)
    variance = spread if difference.ndim == 1 else jnp.trace(spread, axis1=1, axis2=2)
    square = difference**2 if difference.ndim == 1 else jnp.sum(difference**2, axis=1)
    return size(square), size(variance * (1 - share) / kept.shape[0])


def _herd(solution: Solution, size: int, seed: int) -> Int[Array, "s"]:
    return _herding(traced(solution.problem), solution.particles, solution.weights, size)


@eqx.filter_jit
def _herding(
    problem: FiniteSum, particles: Particles, weights: Float[Array, "m"], size: int
) -> Int[Array, "s"]:
    """Slot after slot takes the particle that brings the mean of all slots closest to the moments H, without repetition: first
    while the slots are filled, then in SWEEPS rounds over all of them, in which each may change its mind.
    """
    cloud = SeenCloud.of(problem.features, particles)
    target = cloud.average(weights)
    norms = problem.features.square_norms(particles, problem.weights)

    def single(index: Array, value: Array) -> Float[Array, "m"]:
        return jnp.zeros_like(norms).at[index].set(value)

    def fill(
        turn: Array, carry: tuple[Int[Array, "s"], Moments]
    ) -> tuple[Int[Array, "s"], Moments]:
        chosen, total = carry
        slot, filling = turn % size, turn < size
        leaving = jnp.where(filling, 0, 1).astype(norms.dtype)
        total = total - cloud.average(single(chosen[slot], leaving))
        # |S + h(theta) - c H|^2 up to a constant, with S the sum over the other slots and c their number and one.
        count = jnp.where(filling, turn + 1, size).astype(norms.dtype)
        cost = norms - 2 * cloud.potential(problem.weigh(count * target - total))
        others = jnp.where(
            (jnp.arange(size) < turn) & (jnp.arange(size) != slot), chosen, norms.shape[0]
        )
        best = jnp.argmin(cost.at[others].set(jnp.inf, mode="drop")).astype(jnp.int32)
        return chosen.at[slot].set(best), total + cloud.average(
            single(best, jnp.ones_like(leaving))
        )

    start = (jnp.zeros(size, jnp.int32), jnp.zeros_like(target))
    return jax.lax.fori_loop(0, (1 + SWEEPS) * size, fill, start)[0]


def _stein_thin(solution: Solution, size: int, seed: int) -> np.ndarray:
    """Greedy minimisation of the kernel Stein discrepancy, with the score -grad U_g / temperature of the Gibbs measure itself."""
    try:
        from stein_thinning.thinning import thin
    except ImportError:
        raise ImportError(
            'The method "stein" needs stein-thinning: pip install "entroplay[compress]".'
        ) from None
    gradient = Gibbs(solution.problem, solution.dual).gradient(solution.particles)
    score = -np.asarray(gradient, np.float64) / solution.problem.temperature
    return thin(np.asarray(solution.particles, np.float64), score, size, preconditioner="med")


def _kernel_thin(solution: Solution, size: int, seed: int) -> np.ndarray:
    """Rounds of halving, each of which keeps the half that represents both; then swaps that bring it closer still."""
    try:
        from goodpoints import kt
    except ImportError:
        raise ImportError(
            'The method "thinning" needs goodpoints: pip install "entroplay[compress]".'
        ) from None
    m = solution.particles.shape[0]
    rounds = int(np.log2(min(m, LARGEST_MATRIX) / size))
    if rounds < 1:
        raise invalid(
            "compress",
            "size",
            f'at most half of the {m} particles (and of {LARGEST_MATRIX}) for "thinning"',
            size,
        )
    # The particles are exchangeable: the first of them are as good as any.
    used = solution.particles[: size * 2**rounds]
    kernel = np.asarray(_kernel_matrix(traced(solution.problem), used), np.float64)
    return kt.thin_K(kernel, kernel, rounds, seed=seed, unique=True)


@eqx.filter_jit
def _kernel_matrix(problem: FiniteSum, particles: Particles) -> Float[Array, "m m"]:
    """sum_i w_i <h_i(theta_r), h_i(theta_s)> + 1, particle by particle; the one makes the total mass count too."""
    features = problem.features

    def row(theta: Float[Array, "d"]) -> Float[Array, "m"]:
        return features.potential(particles, problem.weigh(features.average(theta[None]))) + 1

    return jax.lax.map(row, particles)


METHODS: dict[str, Callable[[Solution, int, int], Any]] = {
    "herding": _herd,
    "stein": _stein_thin,
    "thinning": _kernel_thin,
}
