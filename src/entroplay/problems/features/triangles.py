"""Transparent triangles as features: a picture is the mean of many of them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...base.arguments import invalid, one_of, positive, whole
from ...base.registry import storable
from .base import FeatureMap, Moments, Particles, uniform_weights
from .raster import Colours, Corners, deposit, deposit_squares, gather, square_norm
from .raster_reference import coverage

COLOURS = ("linear", "tanh")
"""How the colour of a triangle depends on its parameters c: c itself, or tanh(c)."""


@storable
class Triangles(FeatureMap):
    r"""h_i(theta) = scale * colour * (the area of pixel i that the triangle covers), exactly.

    A particle is theta = (x1, y1, x2, y2, x3, y3, c1, ..., ck). The canvas is [-1/2, 1/2]^2 in
    units of its sides, x to the right and y down: theta means the same at every resolution. Corners
    lie at `spread` * (x, y). The colour is c itself ("linear"), signed and unbounded, or tanh(c),
    which is bounded as the convergence theory requires.

    The moments are a picture's pixels, row after row: (height * width,) in greyscale,
    (height * width, 3) in RGB. Every operation takes O(width + height) per triangle; `average` of
    many triangles costs a thousandth of drawing each of them.

    Args:
        size: (height, width) in pixels.
        channels: 1 for greyscale, 3 for RGB.
        scale: factor by which the colours are multiplied.
        spread: sides of the canvas per unit of theta.
        colour: "linear" or "tanh".

    >>> import entroplay as ep
    >>> picture = ep.Triangles((24, 32))
    >>> picture.shape, picture.dim
    ((768, 3), 9)
    """

    size: tuple[int, ...] = eqx.field(static=True)
    colour_channels: int = eqx.field(static=True)
    scale: float
    spread: float
    colour: str = eqx.field(static=True)
    unit: Float[Array, ""]
    """One, in the precision in which the map works."""

    def __init__(
        self,
        size: object,
        channels: int = 3,
        scale: float = 1.0,
        spread: float = 1.0,
        colour: str = "linear",
    ):
        self.size = _checked_size("Triangles", size)
        if channels not in (1, 3) or isinstance(channels, bool):
            raise invalid("Triangles", "channels", "1 (greyscale) or 3 (RGB)", channels)
        self.colour_channels = int(channels)
        self.scale = positive("Triangles", "scale", scale)
        self.spread = positive("Triangles", "spread", spread)
        self.colour = one_of("Triangles", "colour", colour, COLOURS)
        self.unit = jnp.ones((), jnp.result_type(float))

    @property
    def dim(self) -> int:  # type: ignore[override]
        return 6 + self.colour_channels

    @property
    def channels(self) -> tuple[int, ...]:
        return (3,) if self.colour_channels == 3 else ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size[0] * self.size[1], *self.channels)

    @property
    def dtype(self) -> jnp.dtype:
        return self.unit.dtype

    @property
    def rows(self) -> Float[Array, "n 2"]:  # type: ignore[override]
        """The lower corner (x, y) of every pixel."""
        y, x = jnp.meshgrid(*(jnp.arange(s, dtype=self.dtype) for s in self.size), indexing="ij")
        return jnp.stack([x.ravel(), y.ravel()], axis=1)

    @property
    def keeps_values(self) -> bool:
        return False

    @property
    def bounds(self) -> tuple[float, float]:
        return (-self.scale, self.scale) if self.colour == "tanh" else (-np.inf, np.inf)

    def corners(self, particles: Particles) -> Corners:
        """The corners of each triangle, in pixels."""
        sides = self._sides(particles)
        return sides[None] * (0.5 + self.spread * particles[:, :6])

    def colours(self, particles: Particles) -> Colours:
        """The contribution of each triangle to a pixel that it covers completely."""
        c = particles[:, 6:]
        return self.scale * (jnp.tanh(c) if self.colour == "tanh" else c)

    def _sides(self, particles: Particles) -> Float[Array, "6"]:
        """(width, height) in pixels, once for each corner."""
        height, width = self.size
        return jnp.tile(jnp.asarray([width, height], particles.dtype), 3)

    def values(self, particles: Particles, rows: Float[Array, "b 2"]) -> Float[Array, "m b *k"]:
        covered = coverage(self.corners(particles), rows[:, 0], rows[:, 1])
        value = covered[:, :, None] * self.colours(particles)[:, None, :]
        return value if self.channels else value[..., 0]

    def at(self, X: object) -> Triangles:
        """The same triangles on a canvas of another size: `predict((height, width))`."""
        size = _checked_size("predict", X, name="X")
        return Triangles(size, self.colour_channels, self.scale, self.spread, self.colour)

    def picture(
        self, particles: Particles, weights: Float[Array, "m"] | None = None
    ) -> Float[Array, "height width k"]:
        """The mean of the triangles, as a picture."""
        weights = uniform_weights(particles) if weights is None else weights
        colours = weights[:, None] * self.colours(particles)
        return deposit(self.corners(particles), colours, *self.size)

    def average(self, particles: Particles, weights: Float[Array, "m"] | None = None) -> Moments:
        return self.picture(particles, weights).reshape(self.shape)

    def potential(self, particles: Particles, vector: Moments) -> Float[Array, "m"]:
        return self.potential_and_pull(particles, vector)[0]

    def pull(self, particles: Particles, vector: Moments) -> Particles:
        return self.potential_and_pull(particles, vector)[1]

    def potential_and_pull(
        self, particles: Particles, vector: Moments
    ) -> tuple[Float[Array, "m"], Particles]:
        colours = self.colours(particles)
        integral, gradient = gather(
            self.corners(particles), colours, vector.reshape(*self.size, -1)
        )
        # Chain rule through `corners` and `colours`.
        in_corners = self.spread * self._sides(particles)[None] * gradient
        slope = (
            1 - jnp.tanh(particles[:, 6:]) ** 2 if self.colour == "tanh" else jnp.ones_like(colours)
        )
        pull = jnp.concatenate([in_corners, self.scale * slope * integral], axis=1)
        return jnp.sum(colours * integral, axis=1), pull

    def square_norms(self, particles: Particles, weights: Float[Array, "n"]) -> Float[Array, "m"]:
        # h_i = colour * coverage_i: the squared colour comes out of the sum over pixels.
        norms = square_norm(self.corners(particles), weights.reshape(self.size))
        return jnp.sum(self.colours(particles) ** 2, axis=1) * norms

    def mean_and_covariance(self, particles: Particles) -> tuple[Moments, Float[Array, "n *kk"]]:
        m, k, colours = particles.shape[0], self.colour_channels, self.colours(particles)
        mean = self.average(particles)
        # E[h h'] at a pixel is the mean of colour colour' coverage^2; a symmetric matrix needs only
        # its upper triangle.
        upper = np.triu_indices(k)
        products = colours[:, upper[0]] * colours[:, upper[1]] / m
        squares = deposit_squares(self.corners(particles), products, *self.size)
        squares = squares.reshape(-1, len(upper[0]))
        unbiased = m / max(m - 1, 1)
        if not self.channels:
            return mean, unbiased * jnp.maximum(squares[:, 0] - mean**2, 0)
        # place[a, b] is the position of entry (a, b) in the upper triangle.
        place = np.zeros((k, k), np.int32)
        place[upper] = place[upper[::-1]] = np.arange(len(upper[0]))
        return mean, unbiased * (squares[:, place] - mean[:, :, None] * mean[:, None, :])


def _checked_size(owner: str, size: object, name: str = "size") -> tuple[int, int]:
    """`size` as (height, width), if it is two whole numbers."""
    must_be = "(height, width), two whole numbers >= 1"
    if not isinstance(size, list | tuple | np.ndarray | jax.Array) or len(size) != 2:
        raise invalid(owner, name, must_be, size)
    height, width = (int(s) if isinstance(s, np.generic | jax.Array) else s for s in size)
    return whole(owner, name, height), whole(owner, name, width)
