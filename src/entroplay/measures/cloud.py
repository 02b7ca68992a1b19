"""A cloud as the data see it: averages, potentials and covariances of its features.

The features are kept in memory where they are small.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..problems.features.base import FeatureMap, Moments, Particles
from ..problems.problem import FiniteSum

KEPT_ELEMENTS = 2**26
"""Maximum number of features of a cloud that are kept (256 MB in single precision). With kept
features, products evaluate nothing again."""
MOST_INNER = 4096
"""Maximum number of particles whose inner products are kept."""


class SeenCloud(eqx.Module):
    """The features of a cloud: one pass if they fit into memory, otherwise one pass per product.

    Stores either h or, where h_rik = u_ri v_rk, its two factors.
    """

    features: FeatureMap
    particles: Particles
    matrix: Float[Array, "m n *k"] | None
    """h, or its factor u if `outputs` is given; None if nothing is kept."""
    outputs: Float[Array, "m k"] | None = None
    """The factor v."""
    inner: Float[Array, "m m"] | None = None
    """<h_r - mean, h_s - mean>_w between particles, if they serve: see `with_inner_products`."""

    @staticmethod
    def of(features: FeatureMap, particles: Particles) -> SeenCloud:
        """A cloud whose features are evaluated at once if they are to be kept."""
        m, n = particles.shape[0], features.shape[0]
        if features.keeps_values and m * n <= KEPT_ELEMENTS:
            if (factors := features.factors(particles, features.rows)) is not None:
                return SeenCloud(features, particles, *factors)
            if m * int(np.prod(features.shape)) <= KEPT_ELEMENTS:
                return SeenCloud(features, particles, features.values(particles, features.rows))
        return SeenCloud(features, particles, None)

    @staticmethod
    def all_values(features: FeatureMap, particles: Particles) -> SeenCloud:
        """A small cloud whose features are kept as one array, whatever they are."""
        return SeenCloud(features, particles, features.values(particles, features.rows))

    def with_inner_products(self, problem: FiniteSum) -> SeenCloud:
        """The cloud with the inner products of its particles, where these make solves faster.

        That is where there are fewer particles than rows times channels and the curvature of the
        loss is the same everywhere: all matrices of Newton's method follow from these products.
        """
        m, width = self.particles.shape[0], int(np.prod(self.features.shape))
        if self.matrix is None or not problem.loss.quadratic or not m < min(width, MOST_INNER + 1):
            return self
        if self.inner is not None:
            return self
        inner = (self.matrix * problem.weights[None]) @ self.matrix.T
        if self.outputs is not None:
            # sum_k v_rk v_sk sum_i w_i u_ri u_si: the (m, n, k) features are never formed.
            inner = inner * (self.outputs @ self.outputs.T)
        inner = centred(inner, jnp.full(m, 1 / m, inner.dtype))
        return eqx.tree_at(lambda c: c.inner, self, inner, is_leaf=lambda x: x is None)

    def subset(self, members: Int[Array, "q"]) -> SeenCloud:
        """Some of the particles of a cloud whose features are kept."""
        assert self.matrix is not None
        outputs = None if self.outputs is None else self.outputs[members]
        return SeenCloud(self.features, self.particles[members], self.matrix[members], outputs)

    @property
    def passes_per_product(self) -> int:
        """Passes over the features for an average or a potential: none if they are kept."""
        return 0 if self.matrix is not None else 1

    def average(self, weights: Float[Array, "m"]) -> Moments:
        """sum_r weights_r h(theta_r)."""
        if self.matrix is None:
            return self.features.average(self.particles, weights)
        if self.outputs is not None:
            return self.matrix.T @ (weights[:, None] * self.outputs)
        return jnp.tensordot(weights, self.matrix, axes=1)

    def potential(self, vector: Moments) -> Float[Array, "m"]:
        """sum_i <v_i, h_i(theta_r)> for each particle."""
        if self.matrix is None:
            return self.features.potential(self.particles, vector)
        if self.outputs is not None:
            return jnp.sum((self.matrix @ vector) * self.outputs, axis=1)
        return jnp.tensordot(self.matrix, vector, axes=vector.ndim)

    def mean_and_covariance(self) -> tuple[Moments, Float[Array, "n *kk"]]:
        """The mean of h and the sample covariance of each row."""
        if self.matrix is None:
            return self.features.mean_and_covariance(self.particles)
        m = self.particles.shape[0]
        if self.outputs is not None:
            # E[h_ik h_il] = E[u_i^2 v_k v_l]: the (m, n, k) features are never formed.
            mean = self.matrix.T @ self.outputs / m
            pairs = (self.outputs[:, :, None] * self.outputs[:, None, :]).reshape(m, -1)
            square = ((self.matrix**2).T @ pairs / m).reshape(*mean.shape, -1)
            return mean, (square - mean[:, :, None] * mean[:, None, :]) * (m / max(m - 1, 1))
        mean = jnp.mean(self.matrix, axis=0)
        deviation = self.matrix - mean[None]
        if mean.ndim == 1:
            return mean, jnp.sum(deviation**2, axis=0) / max(m - 1, 1)
        return mean, jnp.einsum("rnk,rnl->nkl", deviation, deviation) / max(m - 1, 1)

    def covariance_matrix(self, members: Float[Array, "m"]) -> Float[Array, "nk nk"]:
        """Cov(h) between all rows and channels, over the particles with membership one.

        Two passes if nothing is kept.
        """
        weights = members / jnp.sum(members)
        mean = self.average(weights)
        if self.matrix is None:
            return self.features.gram(self.particles, weights, mean)
        if self.outputs is not None:
            return self._gram_by_channels(weights, mean)
        deviation = (self.matrix - mean[None]).reshape(self.particles.shape[0], -1)
        return (deviation * weights[:, None]).T @ deviation

    def _gram_by_channels(self, weights: Float[Array, "m"], mean: Moments) -> Float[Array, "nk nk"]:
        """The covariance from the factors, channel by channel: h is never formed.

        Centred first: a difference of second moments would lose digits in single precision.
        """
        u, v = self.matrix, self.outputs
        assert u is not None
        assert v is not None

        def deviation(channel: Array) -> Float[Array, "m n"]:
            return u * v[:, channel][:, None] - mean[:, channel][None]

        def against_all(channel: Array) -> Float[Array, "k n n"]:
            left = (weights[:, None] * deviation(channel)).T
            return jax.lax.map(lambda other: left @ deviation(other), channels)

        channels = jnp.arange(v.shape[1])
        # From (k, k', n, n') to rows and channels (n, k, n', k').
        blocks = jnp.transpose(jax.lax.map(against_all, channels), (2, 0, 3, 1))
        return blocks.reshape(mean.size, mean.size)


def centred(inner: Float[Array, "m m"], weights: Float[Array, "m"]) -> Float[Array, "m m"]:
    """Inner products of vectors, less their weighted mean; the weights sum to one."""
    with_mean = inner @ weights
    return inner - with_mean[:, None] - with_mean[None] + weights @ with_mean


def covariance_product(
    problem: FiniteSum, cloud: SeenCloud, vector: Moments, members: Float[Array, "m"]
) -> Moments:
    """CW(v) = Cov(h) W v over the particles with membership one (zero for the others)."""
    # Cov(h) W v = Cov(h, b) with the scalar b = <W v, h>: a potential and an average, no matrix.
    b = cloud.potential(problem.weigh(vector))
    count = jnp.sum(members)
    centred = members * (b - jnp.sum(members * b) / count)
    return cloud.average(centred / count)
