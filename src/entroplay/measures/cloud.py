"""A cloud as the data see it: averages, potentials and covariances of its features, kept in memory where that is small."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..problems.features.base import FeatureMap, Moments, Particles
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum

MATRIX_ELEMENTS = 2**23
"""Up to this many features of a cloud are kept (32 MB in single precision), so that products evaluate nothing anew."""


class SeenCloud(eqx.Module):
    """The features of a cloud: one pass when they fit into memory, one pass per product when they do not.

    Kept are h itself, or its two factors where h_rik = u_ri v_rk.
    """

    features: FeatureMap
    particles: Particles
    matrix: Float[Array, "m n *k"] | None
    outputs: Float[Array, "m k"] | None = None
    """The factor v; `matrix` is u then."""

    @staticmethod
    def of(features: FeatureMap, particles: Particles) -> SeenCloud:
        """Look at a cloud; evaluates its features at once if they are to be kept."""
        m, n = particles.shape[0], features.shape[0]
        if features.keeps_values and m * n <= MATRIX_ELEMENTS:
            if (factors := features.factors(particles, features.rows)) is not None:
                return SeenCloud(features, particles, *factors)
            if m * int(np.prod(features.shape)) <= MATRIX_ELEMENTS:
                return SeenCloud(features, particles, features.values(particles, features.rows))
        return SeenCloud(features, particles, None)

    @property
    def passes_per_product(self) -> int:
        """Passes over the features that an average or a potential costs: none if they are kept."""
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
        """The mean of h and each row's sample covariance."""
        if self.matrix is None:
            return self.features.mean_and_covariance(self.particles)
        m = self.particles.shape[0]
        if self.outputs is not None:
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
        """Cov(h) over the particles with membership one, over all rows and channels: two passes if nothing is kept."""
        weights = members / jnp.sum(members)
        mean = self.average(weights)
        if self.matrix is None:
            return self.features.gram(self.particles, weights, mean)
        matrix = (
            self.matrix
            if self.outputs is None
            else self.matrix[:, :, None] * self.outputs[:, None, :]
        )
        deviation = (matrix - mean[None]).reshape(self.particles.shape[0], -1)
        return (deviation * weights[:, None]).T @ deviation


def covariance_product(
    problem: FiniteSum, cloud: SeenCloud, vector: Moments, members: Float[Array, "m"]
) -> Moments:
    """CW(v) = Cov(h) W v over the particles with membership one (zero for the others)."""
    b = cloud.potential(problem.weigh(vector))
    count = jnp.sum(members)
    centred = members * (b - jnp.sum(members * b) / count)
    return cloud.average(centred / count)


def conjugate_gradients(
    operator: Callable[[Moments], Moments],
    right: Moments,
    weights: Float[Array, "n"],
    *,
    iterations: int,
    tolerance: float,
    of_solution: bool = False,
) -> tuple[Moments, Int[Array, ""]]:
    """x with operator(x) = right, self-adjoint in sum_i weights_i <x_i, y_i>, and how many products it took.

    The residual is at most `tolerance` times the right-hand side, or, `of_solution`, times x itself.
    """

    def dot(x: Moments, y: Moments) -> Array:
        return weights @ row_dot(x, y)

    def going(carry: tuple[Array, ...]) -> Array:
        count, x, _, _, rr = carry
        return (count < iterations) & (rr > (tolerance**2 * dot(x, x) if of_solution else goal))

    def body(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        count, x, r, p, rr = carry
        image = operator(p)
        alpha = rr / dot(p, image)
        x, r = x + alpha * p, r - alpha * image
        new = dot(r, r)
        return count + 1, x, r, r + new / rr * p, new

    goal = tolerance**2 * dot(right, right)
    start = (jnp.zeros((), jnp.int32), jnp.zeros_like(right), right, right, dot(right, right))
    count, x, _, _, _ = jax.lax.while_loop(going, body, start)
    return x, count
