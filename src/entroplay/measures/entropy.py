r"""The entropy of a cloud from distances to nearest neighbours, and with it L of any cloud.

Kozachenko and Leonenko (1987): with r_i the distance of particle i to its k-th neighbour and V_d
the volume of the unit ball,

    H = psi(m) - psi(k) + log V_d + (d/m) sum_i log r_i

estimates the differential entropy -E[log mu]. In high dimension its bias falls slowly with m (see
the page on the iterate).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree
from scipy.special import digamma, gammaln

from ..base.arguments import invalid, real_array, whole
from ..problems.features.base import Moments, mean_features
from ..problems.problem import FiniteSum


def knn_entropy(particles: Float[Array, "m d"] | np.ndarray, neighbours: int = 3) -> float:
    """The differential entropy -E[log mu] of the law mu of independent draws; Ent(mu) is minus it.

    Repeated particles, as after resampling, are refused: their distance of zero would make the
    estimate minus infinity.

    >>> import numpy as np, entroplay as ep
    >>> draws = np.random.default_rng(0).normal(size=(2000, 1))
    >>> bool(abs(ep.knn_entropy(draws) - np.log(2 * np.pi * np.e) / 2) < 0.1)
    True
    """
    with jax.enable_x64(True):
        cloud = np.asarray(real_array("knn_entropy", "particles", particles, ndim=(2,)))
    m, d = cloud.shape
    k = whole("knn_entropy", "neighbours", neighbours)
    if k >= m:
        raise invalid(
            "knn_entropy", "neighbours", f"less than the number of particles, {m}", neighbours
        )
    # The nearest neighbour that the tree finds is the particle itself, at distance zero.
    distance = KDTree(cloud).query(cloud, k=k + 1)[0][:, k]
    if (distance == 0).any():
        raise invalid(
            "knn_entropy",
            "particles",
            "distinct draws",
            f"{int((distance == 0).sum())} with {k} copies of themselves",
        )
    # V_d = pi^(d/2) / Gamma(d/2 + 1).
    log_ball = d / 2 * np.log(np.pi) - gammaln(d / 2 + 1)
    return float(digamma(m) - digamma(k) + log_ball + d * np.log(distance).mean())


def objective(
    problem: FiniteSum,
    particles: Float[Array, "m d"],
    *,
    moments: Moments | None = None,
    neighbours: int = 3,
) -> float:
    """L(mu), eq. (6), of the law mu of a cloud of independent draws.

    Loss and penalty are averages over the cloud; the entropy comes from nearest neighbours.

    Args:
        problem: the problem that defines L.
        particles: the cloud, for instance `solution.iterate`. It must not have been resampled.
        moments: E_mu[h] if it is known better than from the cloud, for instance
            `solution.moments` for EFP's iterate.
        neighbours: k of the entropy estimate, see `knn_entropy`.
    """
    if not isinstance(problem, FiniteSum):
        raise invalid("objective", "problem", "a FiniteSum", problem)
    with problem.arithmetic():
        cloud = jnp.asarray(particles, problem.dtype)
        if cloud.ndim != 2 or cloud.shape[1] != problem.dim:
            raise invalid(
                "objective", "particles", f"an array of shape (m, {problem.dim})", cloud.shape
            )
        seen = mean_features(problem.features, cloud) if moments is None else moments
        value = float(problem.empirical_loss(seen)) + float(jnp.mean(problem.penalty(cloud)))
    return value - problem.temperature * knn_entropy(cloud, neighbours)
