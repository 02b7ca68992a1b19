r"""The contract of a feature map h, which evaluates particles theta at the data.

The library never forms the (m, n) matrix of all features. It uses three operations:

* `average(particles, weights)`: sum_r weights_r h(theta_r), the moments; weights default to 1/m and
  may be negative;
* `potential(particles, vector)`: sum_i <v_i, h_i(theta_r)> for each particle, the transpose of
  `average`;
* `pull(particles, vector)`: the gradient of that potential in theta_r. `potential_and_pull`
  computes both in one pass.

A new map defines one block of the matrix (`values`) and how to evaluate it at other rows (`at`).
The operations are derived here, tile by tile (see `tiles`), and memory stays bounded for any number
of particles and rows. A map that knows faster operations overrides them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import invalid, real_array
from ...base.compilation import traced
from .tiles import gram_of_tiles, sum_over_particles, sum_over_rows

if TYPE_CHECKING:
    from .smoothed import SmoothedMap

Particles = Float[Array, "m d"]
Moments = Float[Array, "n *k"]


class FeatureMap(eqx.Module):
    """The operations that every feature map offers.

    Subclasses define `dim`, `rows`, `values` and `at`, and `channels` if h is vector-valued.
    """

    dim: eqx.AbstractVar[int]
    """d, the number of coordinates of a particle."""
    rows: eqx.AbstractVar[Array]
    """The data, one row per feature."""

    @abstractmethod
    def values(self, particles: Particles, rows: Float[Array, "b ..."]) -> Float[Array, "m b *k"]:
        """h(theta_r, x_i) for all particles and a block of rows."""

    @abstractmethod
    def at(self, X: object) -> FeatureMap:
        """The same map at other rows, which `predict` evaluates."""

    def factors(
        self, particles: Particles, rows: Float[Array, "b ..."]
    ) -> tuple[Float[Array, "m b"], Float[Array, "m k"]] | None:
        """(u, v) with h_rbk = u_rb v_rk, for maps of several channels that factorise; else None.

        With factors, the (m, b, k) array is never formed.
        """
        return None

    @property
    def channels(self) -> tuple[int, ...]:
        """The trailing shape of the moments: () or (k,)."""
        return ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the moments: (n,) or (n, k)."""
        return (self.rows.shape[0], *self.channels)

    @property
    def keeps_values(self) -> bool:
        """Whether a small cloud's values may be kept as a matrix.

        False for maps whose operations are faster than products with that matrix.
        """
        return True

    @property
    def dtype(self) -> jnp.dtype:
        """The precision in which the map works."""
        return self.rows.dtype

    @property
    def bounds(self) -> tuple[float, float]:
        """An interval that contains every value of h; infinite where h is unbounded."""
        return (-np.inf, np.inf)

    def smoothed(self, key: PRNGKeyArray) -> SmoothedMap:
        """The map of the means of h over N(theta, diag(s^2)), whose particles are (theta, s).

        Exact for the maps of this library that have a closed form; by draws, which `key` decides,
        for all others.
        """
        # Imported here because smoothed maps are feature maps.
        from .smoothed import smoothed

        return smoothed(self, key)

    def average(self, particles: Particles, weights: Float[Array, "m"] | None = None) -> Moments:
        """sum_r weights_r h(theta_r), by default the mean over the particles."""
        weights = uniform_weights(particles) if weights is None else weights

        # E_mu[h_i] of eq. (6), and H_i of Algorithm 2, for an empirical measure mu.
        def tile(p: Array, w: Array, x: Array) -> Array:
            if (factors := self.factors(p, x)) is not None:
                return factors[0].T @ (w[:, None] * factors[1])
            return jnp.einsum("r,rb...->b...", w, self.values(p, x))

        return sum_over_particles(tile, self.shape, particles, weights, self.rows)

    def mean_and_covariance(self, particles: Particles) -> tuple[Moments, Float[Array, "n *kk"]]:
        """The mean of h over the particles and each row's sample covariance.

        The covariance has shape (n,), or (n, k, k) for maps of several channels.
        """
        m, weights = particles.shape[0], uniform_weights(particles)
        # Deviations from one particle's features instead of raw second moments: the difference of
        # squares below keeps its digits.
        origin = self.average(particles[:1])

        # First and second moments of the deviations, stacked along a new axis after the rows.
        def sums(
            p: Array, w: Float[Array, "r"], x: Array, o: Float[Array, "b *k"]
        ) -> Float[Array, "b *kk"]:
            deviation = self.values(p, x) - o[None]
            if not self.channels:
                return jnp.stack([w @ deviation, w @ deviation**2], axis=1)
            mean = jnp.einsum("r,rbk->bk", w, deviation)
            square = jnp.einsum("r,rbk,rbl->bkl", w, deviation, deviation)
            return jnp.concatenate([mean[:, None, :], square], axis=1)

        total = sum_over_particles(sums, self.shape, particles, weights, self.rows, origin)
        mean, square = total[:, 0], total[:, 1:]
        unbiased = m / max(m - 1, 1)
        if not self.channels:
            return origin + mean, unbiased * jnp.maximum(square[:, 0] - mean**2, 0)
        return origin + mean, unbiased * (square - mean[:, :, None] * mean[:, None, :])

    def gram(
        self, particles: Particles, weights: Float[Array, "m"], origin: Moments
    ) -> Float[Array, "nk nk"]:
        """sum_r weights_r (h(theta_r) - origin)(h(theta_r) - origin)' over all rows and channels.

        The result has (n k)^2 entries: for few rows only.
        """
        width = int(np.prod(self.shape))

        def deviations(p: Array) -> Array:
            return (self.values(p, self.rows) - origin[None]).reshape(-1, width)

        return gram_of_tiles(deviations, width, particles, weights)

    def potential(self, particles: Particles, vector: Moments) -> Float[Array, "m"]:
        """sum_i <v_i, h_i(theta_r)> for each particle."""
        return sum_over_rows(self._tile_potential, self.shape, particles, self.rows, vector)

    def square_norms(self, particles: Particles, weights: Float[Array, "n"]) -> Float[Array, "m"]:
        """sum_i w_i |h_i(theta_r)|^2 for each particle."""

        def tile(p: Array, x: Array, w: Array) -> Array:
            return jnp.einsum("rb...,b->r", self.values(p, x) ** 2, w)

        return sum_over_rows(tile, self.shape, particles, self.rows, weights)

    def pull(self, particles: Particles, vector: Moments) -> Particles:
        """The gradient of `potential` in each particle."""

        # The sum over rows in eq. (10), with v_i = w_i loss_i'(H_i).
        def tile(p: Array, x: Array, v: Array) -> Array:
            return self._tile_both(p, x, v)[1]

        return sum_over_rows(tile, self.shape, particles, self.rows, vector)

    def potential_and_pull(
        self, particles: Particles, vector: Moments
    ) -> tuple[Float[Array, "m"], Particles]:
        """`potential` and `pull` in one pass over the features."""
        return sum_over_rows(self._tile_both, self.shape, particles, self.rows, vector)

    def _tile_potential(self, particles: Array, rows: Array, vector: Array) -> Array:
        if (factors := self.factors(particles, rows)) is not None:
            return jnp.sum(factors[0] * (factors[1] @ vector.T), axis=1)
        return jnp.einsum("rb...,b...->r", self.values(particles, rows), vector)

    def _tile_both(self, particles: Array, rows: Array, vector: Array) -> tuple[Array, Array]:
        def total(p: Array) -> tuple[Array, Array]:
            potential = self._tile_potential(p, rows, vector)
            return jnp.sum(potential), potential

        # Particles do not interact, so the gradient of the sum holds the gradient of every term.
        (_, potential), pull = jax.value_and_grad(total, has_aux=True)(particles)
        return potential, pull


def mean_features(
    features: FeatureMap, particles: Particles, weights: Float[Array, "m"] | None = None
) -> Moments:
    """`features.average`, compiled."""
    return _compiled_average(traced(features), particles, weights)


@eqx.filter_jit
def _compiled_average(
    features: FeatureMap, particles: Particles, weights: Float[Array, "m"] | None
) -> Moments:
    return features.average(particles, weights)


def uniform_weights(particles: Particles) -> Float[Array, "m"]:
    """The weight 1/m for each of m particles."""
    return jnp.full(particles.shape[0], 1 / particles.shape[0], particles.dtype)


def same_columns(owner: str, X: object, rows: Array) -> Array:
    """`X` as a matrix, if it has as many columns as `rows`."""
    new = real_array(owner, "X", X, ndim=(2,))
    if new.shape[1] != rows.shape[1]:
        raise invalid(
            owner,
            "X",
            f"an array with {rows.shape[1]} columns, as in training",
            f"{new.shape[1]} columns",
        )
    return new
