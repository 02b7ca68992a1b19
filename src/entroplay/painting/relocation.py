r"""Which triangles matter least, and what could take their places.

Without noise, m triangles have the objective

    F_0(H) + (1/m) sum_r l2 |theta_r|^2,    H = (1/m) sum_r h(theta_r).

A triangle is its corners v and its linear colour c: h_i = scale * c * coverage_i(v). With the
squared loss, F_0 is a parabola in each colour. Two sums over the pixels that a triangle covers
therefore give its effect on the objective, and its best colour.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..problems.features.base import Moments, Particles
from ..problems.features.raster import gather, square_norm
from ..problems.problem import FiniteSum

CORNERS, COLOURS = slice(0, 6), slice(6, None)
"""The coordinates of a particle that are corners, and those that are its colour."""
SMALLEST, LARGEST = 0.01, 0.25
"""Range of the standard deviation of a fresh triangle's corners around its centre, in sides of the
canvas."""


def removal_gains(
    problem: FiniteSum, particles: Particles, moments: Moments, l2: Float[Array, "1 c"]
) -> Float[Array, "m"]:
    """The amount by which the objective falls if a triangle is taken out, for each of them.

    With g = loss'(H) and the squared loss, F_0(H) - F_0(H - h/m) = <W g, h>/m - |h|_W^2/(2 m^2).
    The penalty l2 |theta|^2/m is saved as well. Useful triangles have negative gains.
    """
    m = particles.shape[0]
    vector = problem.weigh(problem.slope(moments))
    linear = problem.features.potential(particles, vector) / m
    square = problem.features.square_norms(particles, problem.weights) / m**2
    penalty = jnp.sum(l2 * particles**2, axis=1) / m
    return linear - square / 2 + penalty


class Vacancy(NamedTuple):
    """The place of one of m triangles, which has been taken out of the picture."""

    problem: FiniteSum
    picture: Moments
    """The moments without the triangle; the others still weigh 1/m each."""
    l2: Float[Array, "1 c"]
    m: int

    def contest(
        self, old: Float[Array, "1 d"], corners: Float[Array, "c 6"]
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "d"]]:
        """The gain of the old triangle, and the gain of the best fresh one with that triangle.

        A gain is the amount by which the triangle lowers the objective of the picture without it.
        Fresh triangles have the given corners, and each gets its best colour.
        """
        features: Any = self.problem.features
        corners = jnp.concatenate([old[:, CORNERS], corners])
        pixels = features.corners(jnp.pad(corners, ((0, 0), (0, features.dim - 6))))
        vector = self.problem.weigh(self.problem.slope(self.picture)).reshape(*features.size, -1)
        # I = sum_i w_i g_i coverage_i per channel, and N = sum_i w_i coverage_i^2. The colours that
        # `gather` is given would only enter the gradient, which is not used.
        unused = jnp.zeros((corners.shape[0], vector.shape[2]), self.problem.dtype)
        integral, _ = gather(pixels, unused, vector)
        norm = square_norm(pixels, self.problem.weights.reshape(features.size))
        # With a = scale/m, a colour c changes the objective by
        #   a <I, c> + (a^2 N + 2 l2/m) |c|^2 / 2 + l2 |v|^2 / m,
        # which is least at c = -a I / (a^2 N + 2 l2/m).
        amplitude = features.scale / self.m
        l2_corners, l2_colours = self._penalties()
        curvature = amplitude**2 * norm[:, None] + 2 * l2_colours / self.m
        best = -amplitude * integral / curvature
        colours = jnp.concatenate([old[:, COLOURS], best[1:]])
        gains = -jnp.sum(amplitude * integral * colours + curvature * colours**2 / 2, axis=1)
        gains = gains - jnp.sum(l2_corners * corners**2, axis=1) / self.m
        winner = 1 + jnp.argmax(gains[1:])
        return gains[0], gains[winner], jnp.concatenate([corners[winner], colours[winner]])

    def _penalties(self) -> tuple[Array, Array]:
        """l2 of the corners and of the colours."""
        if self.l2.shape[1] == 1:
            return self.l2, self.l2
        return self.l2[:, CORNERS], self.l2[:, COLOURS]


def error_mass(problem: FiniteSum, moments: Moments) -> Float[Array, "n"]:
    """The squared error of the picture, cumulated over the pixels."""
    features: Any = problem.features
    residual = problem.slope(moments).reshape(*features.size, -1)
    return jnp.cumsum(jnp.sum(residual**2, axis=2).ravel())


def fresh_corners(
    key: PRNGKeyArray, features: Any, mass: Float[Array, "n"], count: int
) -> Float[Array, "c 6"]:
    """Corners of random triangles: centres where the picture is wrong, and sizes of all scales.

    A pixel is chosen with probability proportional to its squared error, whose cumulated sum is
    `mass`. The logarithm of the size is uniform.
    """
    place_key, within_key, size_key, corner_key = jax.random.split(key, 4)
    height, width = features.size
    level = mass[-1] * jax.random.uniform(place_key, (count,), mass.dtype)
    pixel = jnp.minimum(jnp.searchsorted(mass, level), mass.shape[0] - 1)
    # The centre is uniform within the pixel; the canvas is [-1/2, 1/2]^2.
    corner = jnp.stack([(pixel % width) / width, (pixel // width) / height], axis=1)
    centre = corner.astype(mass.dtype) - 0.5
    sides = jnp.asarray([width, height], mass.dtype)
    centre = centre + jax.random.uniform(within_key, (count, 2), mass.dtype) / sides[None]
    size = jnp.exp(
        jax.random.uniform(size_key, (count, 1, 1), mass.dtype, jnp.log(SMALLEST), jnp.log(LARGEST))
    )
    corners = centre[:, None] + size * jax.random.normal(corner_key, (count, 3, 2), mass.dtype)
    return corners.reshape(count, 6) / features.spread
