r"""Feature maps h: how a particle theta is seen by the data, through three operations and never as an (m, n) matrix.

* `average(particles, weights)`: sum_r weights_r h(theta_r), the moments; weights default to 1/m and may be signed;
* `potential(particles, vector)`: sum_i <v_i, h_i(theta_r)> for each particle, the transpose of `average`;
* `pull(particles, vector)`: the gradient of that in theta_r. `potential_and_pull` gives both in one pass.

A map says only what a block of the matrix is (`values`), and where it can be evaluated elsewhere (`at`); the
operations are derived here, tile by tile, so that memory stays bounded for any number of particles and rows.
A map with faster operations of its own overrides them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...base.arguments import invalid, real_array, whole
from ...base.compilation import traced

TILE_ELEMENTS = 2**21
"""Entries of the (m, n, k) feature array that may exist at once."""
TILE_PARTICLES = 2**13
"""Particles in one tile at the most."""

Particles = Float[Array, "m d"]
Moments = Float[Array, "n *k"]


class FeatureMap(eqx.Module):
    """What every feature map offers. Subclasses define `dim`, `rows`, `values` and `at`, and `channels` where there are any."""

    dim: eqx.AbstractVar[int]
    """d, the number of coordinates of a particle."""
    rows: eqx.AbstractVar[Array]
    """The data, one row per feature."""

    @abstractmethod
    def values(self, particles: Particles, rows: Float[Array, "b ..."]) -> Float[Array, "m b *k"]:
        """h(theta_r, x_i) for all particles and a block of rows."""

    @abstractmethod
    def at(self, X: object) -> FeatureMap:
        """The same map at other rows: what `predict` evaluates."""

    def factors(
        self, particles: Particles, rows: Float[Array, "b ..."]
    ) -> tuple[Float[Array, "m b"], Float[Array, "m k"]] | None:
        """(u, v) with h_rbk = u_rb v_rk, for maps of several channels that are such products: the (m, b, k) array is then never
        made. None for the others.
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
        """Whether a small cloud's values may be kept as a matrix; a map with faster operations of its own says no."""
        return True

    @property
    def dtype(self) -> jnp.dtype:
        """The precision in which the map works."""
        return self.rows.dtype

    @property
    def bounds(self) -> tuple[float, float]:
        """An interval that holds every value of h; infinite where h is unbounded."""
        return (-np.inf, np.inf)

    def average(self, particles: Particles, weights: Float[Array, "m"] | None = None) -> Moments:
        """sum_r weights_r h(theta_r), by default the mean over the particles."""
        weights = _uniform(particles) if weights is None else weights

        def tile(p: Array, w: Array, x: Array) -> Array:
            if (factors := self.factors(p, x)) is not None:
                return factors[0].T @ (w[:, None] * factors[1])
            return jnp.einsum("r,rb...->b...", w, self.values(p, x))

        return self._sum_over_particles(particles, weights, tile)

    def mean_and_covariance(self, particles: Particles) -> tuple[Moments, Float[Array, "n *kk"]]:
        """The mean of h over the particles and each row's sample covariance: (n,) variances, or (n, k, k) matrices."""
        m = particles.shape[0]
        # Deviations from one particle's features instead of raw second moments: the difference of squares keeps its digits.
        origin = self.average(particles[:1])

        def sums(
            p: Array, w: Float[Array, "r"], x: Array, o: Float[Array, "b *k"]
        ) -> Float[Array, "b *kk"]:
            deviation = self.values(p, x) - o[None]
            if not self.channels:
                return jnp.stack([w @ deviation, w @ deviation**2], axis=1)
            mean = jnp.einsum("r,rbk->bk", w, deviation)
            square = jnp.einsum("r,rbk,rbl->bkl", w, deviation, deviation)
            return jnp.concatenate([mean[:, None, :], square], axis=1)

        total = self._sum_over_particles(particles, _uniform(particles), sums, origin)
        mean, square = total[:, 0], total[:, 1:]
        unbiased = m / max(m - 1, 1)
        if not self.channels:
            return origin + mean, unbiased * jnp.maximum(square[:, 0] - mean**2, 0)
        return origin + mean, unbiased * (square - mean[:, :, None] * mean[:, None, :])

    def gram(
        self, particles: Particles, weights: Float[Array, "m"], origin: Moments
    ) -> Float[Array, "nk nk"]:
        """sum_r weights_r (h(theta_r) - origin)(h(theta_r) - origin)', over all rows and channels; for few rows only."""
        width = int(np.prod(self.shape))
        tile = max(1, min(particles.shape[0], TILE_ELEMENTS // width))

        def product(p: Array, w: Array) -> Array:
            deviation = (self.values(p, self.rows) - origin[None]).reshape(-1, width)
            return (deviation * w[:, None]).T @ deviation

        return _accumulate(
            product, (_split(particles, tile), _split(weights, tile, pad_with_zeros=True))
        )

    def potential(self, particles: Particles, vector: Moments) -> Float[Array, "m"]:
        """sum_i <v_i, h_i(theta_r)> for each particle."""
        return self._sum_over_rows(particles, vector, self._tile_potential)

    def square_norms(self, particles: Particles, weights: Float[Array, "n"]) -> Float[Array, "m"]:
        """sum_i w_i |h_i(theta_r)|^2 for each particle."""

        def tile(p: Array, x: Array, w: Array) -> Array:
            return jnp.einsum("rb...,b->r", self.values(p, x) ** 2, w)

        return self._sum_over_rows(particles, weights, tile)

    def pull(self, particles: Particles, vector: Moments) -> Particles:
        """The gradient of `potential` in each particle."""
        return self._sum_over_rows(particles, vector, lambda p, x, v: self._tile_both(p, x, v)[1])

    def potential_and_pull(
        self, particles: Particles, vector: Moments
    ) -> tuple[Float[Array, "m"], Particles]:
        """Both in one pass over the features."""
        return self._sum_over_rows(particles, vector, self._tile_both)

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

    def _tile_shape(self, m: int) -> tuple[int, int]:
        """How many particles and how many rows a tile holds."""
        n, k = self.shape[0], int(np.prod(self.channels, initial=1))
        tile_m = min(m, TILE_PARTICLES, max(1, TILE_ELEMENTS // k))
        return tile_m, min(n, max(1, TILE_ELEMENTS // (k * tile_m)))

    def _sum_over_particles(
        self, particles: Array, weights: Array, reduce: Callable[..., Array], *per_row: Array
    ) -> Array:
        """Rows in an outer map, particles in an inner sum of `reduce(particles, weights, rows, *per_row)`."""
        tile_m, tile_n = self._tile_shape(particles.shape[0])
        tiles = (_split(particles, tile_m), _split(weights, tile_m, pad_with_zeros=True))

        def block(args: tuple[Array, ...]) -> Array:
            rows, *extra = args

            def tile(p: Array, w: Array) -> Array:
                return reduce(p, w, rows, *extra)

            return _accumulate(tile, tiles)

        n = self.shape[0]
        blocks = _map(block, tuple(_split(a, tile_n) for a in (self.rows, *per_row)))
        return blocks.reshape(-1, *blocks.shape[2:])[:n]

    def _sum_over_rows(self, particles: Array, vector: Array, reduce: Callable[..., Any]) -> Any:
        """Particles in an outer map, rows in an inner sum of `reduce(particles, rows, vector)`."""
        m = particles.shape[0]
        tile_m, tile_n = self._tile_shape(m)
        tiles = (_split(self.rows, tile_n), _split(vector, tile_n, pad_with_zeros=True))

        def block(args: tuple[Array]) -> Any:
            return _accumulate(lambda x, v: reduce(args[0], x, v), tiles)

        blocks = _map(block, (_split(particles, tile_m),))
        return jax.tree.map(lambda b: b.reshape(-1, *b.shape[2:])[:m], blocks)


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


def _uniform(particles: Particles) -> Float[Array, "m"]:
    return jnp.full(particles.shape[0], 1 / particles.shape[0], particles.dtype)


def _split(array: Array, size: int, *, pad_with_zeros: bool = False) -> Array:
    """The leading axis cut into tiles of `size`. Padding repeats the last entry, at which a user's function is
    known to be finite; what multiplies it (weights, vectors) is padded with zeros.
    """
    missing = -array.shape[0] % size
    if missing:
        padding = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        array = jnp.pad(array, padding) if pad_with_zeros else jnp.pad(array, padding, mode="edge")
    return array.reshape(-1, size, *array.shape[1:])


def _map(function: Callable[..., Any], tiles: tuple[Array, ...]) -> Any:
    if tiles[0].shape[0] == 1:
        return jax.tree.map(lambda a: a[None], function(tuple(t[0] for t in tiles)))
    return jax.lax.map(function, tiles)


def _accumulate(function: Callable[..., Any], tiles: tuple[Array, ...]) -> Any:
    """The sum of `function` over tiles, one tile in memory at a time."""
    first = function(*(t[0] for t in tiles))
    if tiles[0].shape[0] == 1:
        return first

    def add(total: Any, tile: tuple[Array, ...]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*tile)), None

    return jax.lax.scan(add, first, tuple(t[1:] for t in tiles))[0]


class GaussianKernel(FeatureMap):
    r"""The Gaussian density at the data points, h_i(theta) = N(x_i; theta, bandwidth^2 I): mixtures, with `NegLog`.

    `bandwidth` is a number, or one number per coordinate.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> kernel = ep.GaussianKernel([0.0, 1.0], bandwidth=0.5)
    >>> print([f"{density:.3f}" for density in kernel.average(jnp.zeros((1, 1)))])
    ['0.798', '0.108']
    """

    rows: Float[Array, "n d"]
    bandwidth: Float[Array, "d"]

    def __init__(self, X: object, bandwidth: object):
        rows = real_array("GaussianKernel", "X", X, ndim=(1, 2))
        self.rows = rows[:, None] if rows.ndim == 1 else rows
        width = real_array("GaussianKernel", "bandwidth", bandwidth, ndim=(0, 1))
        if (width <= 0).any() or width.shape not in ((), (1,), (self.rows.shape[1],)):
            raise invalid(
                "GaussianKernel",
                "bandwidth",
                "positive, one number or one per coordinate",
                bandwidth,
            )
        self.bandwidth = jnp.broadcast_to(width, self.rows.shape[1:])

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.rows.shape[1]

    @property
    def bounds(self) -> tuple[float, float]:
        return (
            0.0,
            float(np.prod(1 / (np.sqrt(2 * np.pi) * np.asarray(self.bandwidth, np.float64)))),
        )

    def values(self, particles: Particles, rows: Float[Array, "b d"]) -> Float[Array, "m b"]:
        distance = jnp.zeros((particles.shape[0], rows.shape[0]), particles.dtype)
        log_height = jnp.zeros((), particles.dtype)
        for j in range(
            self.dim
        ):  # coordinate by coordinate: differences keep their digits and fuse into one loop
            difference = (particles[:, j, None] - rows[None, :, j]) / self.bandwidth[j]
            distance = distance + difference**2
            log_height = log_height - jnp.log(self.bandwidth[j]) - 0.5 * np.log(2 * np.pi)
        return jnp.exp(log_height - distance / 2)

    def at(self, X: object) -> GaussianKernel:
        rows = real_array("GaussianKernel", "X", X, ndim=(1, 2))
        rows = rows[:, None] if rows.ndim == 1 and self.dim == 1 else rows
        return eqx.tree_at(lambda f: f.rows, self, same_columns("GaussianKernel", rows, self.rows))


class FunctionFeatures(FeatureMap):
    """Any function of a particle and a row: `h(theta, x)` returns a number or a vector of k numbers.

    `theta` has shape (dim,), `x` is one entry of `X` along its leading axis; `h` is written in `jax.numpy`.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> bumps = ep.FunctionFeatures(lambda theta, x: jnp.exp(-((theta[0] - x) ** 2)), [0.0, 1.0], dim=1)
    >>> bumps.shape
    (2,)
    """

    h: Callable[..., Array] = eqx.field(static=True)
    rows: Float[Array, "n ..."]
    dim: int = eqx.field(static=True)
    _channels: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, h: Callable[..., Array], X: object, dim: int):
        if not callable(h):
            raise invalid("FunctionFeatures", "h", "a function h(theta, x) -> number or vector", h)
        self.h = h
        self.rows = real_array("FunctionFeatures", "X", X)
        if self.rows.ndim == 0:
            raise invalid(
                "FunctionFeatures", "X", "an array with one row per data point", "a number"
            )
        self.dim = whole("FunctionFeatures", "dim", dim)
        theta = jax.ShapeDtypeStruct((self.dim,), self.rows.dtype)
        x = jax.ShapeDtypeStruct(self.rows.shape[1:], self.rows.dtype)
        out = jax.eval_shape(h, theta, x)
        if not isinstance(out, jax.ShapeDtypeStruct) or len(out.shape) > 1 or out.shape == (0,):
            raise invalid(
                "FunctionFeatures",
                "h",
                "a function that returns a number or a vector",
                f"a function that returns {out}",
            )
        self._channels = out.shape

    @property
    def channels(self) -> tuple[int, ...]:
        return self._channels

    def values(self, particles: Particles, rows: Float[Array, "b ..."]) -> Float[Array, "m b *k"]:
        return jax.vmap(jax.vmap(self.h, (None, 0)), (0, None))(particles, rows)

    def at(self, X: object) -> FunctionFeatures:
        rows = real_array("FunctionFeatures", "X", X)
        if rows.shape[1:] != self.rows.shape[1:]:
            raise invalid(
                "predict",
                "X",
                f"an array of shape (rows, {', '.join(map(str, self.rows.shape[1:]))})",
                rows.shape,
            )
        return eqx.tree_at(lambda f: f.rows, self, rows)


def same_columns(owner: str, X: object, rows: Array) -> Array:
    new = real_array(owner, "X", X, ndim=(2,))
    if new.shape[1] != rows.shape[1]:
        raise invalid(
            owner,
            "X",
            f"an array with {rows.shape[1]} columns, as in training",
            f"{new.shape[1]} columns",
        )
    return new
