r"""Triangles with exact area coverage, on a grid of pixels of side one.

Pixel (row, column) is the square [column, column + 1] x [row, row + 1]. A triangle is six numbers
x1, y1, x2, y2, x3, y3, and its coverage of a pixel is the area that the two share. There are five
operations, the first two in O(width + height) per triangle:

* `gather`: the integral of a picture over each triangle, and the gradient of <colour, integral> in
  its corners;
* `deposit`: the transpose, a picture as the sum of coloured triangles;
* `square_norm` and `deposit_squares`: sums of squared coverage;
* `lay`: triangles laid over each other, and the gradient of the distance from a target.

By Green's theorem, the integral over a triangle is that of S dy along its edges, where S is the
picture's running integral along a row. On the piece of an edge inside one row, x from p to q, the
mean of S is (SS(q) - SS(p)) / (q - p), where SS is the running integral of S. The derivative in a
corner is an integral of the picture along the corner's edges, and S and SS give that too. A piece
within one or two pixels needs no SS, whose differences would lose digits there.

On CPUs the compiled kernels of `entroplay.base.native` do the work if they are present. Otherwise
the operations of `raster_reference`, in pure JAX, do the same anywhere.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from ...base.native import either, kernel, usable
from .raster_reference import (
    Colours,
    Corners,
    Picture,
    reference_deposit,
    reference_deposit_squares,
    reference_gather,
    reference_lay,
    reference_square_norm,
)


def gather(corners: Corners, colours: Colours, picture: Picture) -> tuple[Colours, Corners]:
    """The integral of the picture over each triangle, and its gradient in the corners.

    The integral is taken channel by channel; the gradient is that of <colour, integral>.
    """
    m, channels = corners.shape[0], picture.shape[2]
    shapes = (
        jax.ShapeDtypeStruct((m, channels), corners.dtype),
        jax.ShapeDtypeStruct((m, 6), corners.dtype),
    )
    return _either("triangles_gather", shapes, reference_gather, corners, colours, picture)


def deposit(corners: Corners, colours: Colours, height: int, width: int) -> Picture:
    """sum_r colour_r coverage_r, the transpose of `gather`'s integral."""
    shape = jax.ShapeDtypeStruct((height, width, colours.shape[1]), corners.dtype)
    reference = partial(reference_deposit, height=height, width=width)
    return _either("triangles_deposit", shape, reference, corners, colours)


def square_norm(corners: Corners, weights: Float[Array, "height width"]) -> Float[Array, "m"]:
    """The sum over pixels of weight * coverage^2, for each triangle."""
    shape = jax.ShapeDtypeStruct(corners.shape[:1], corners.dtype)
    return _either("triangles_square_norm", shape, reference_square_norm, corners, weights)


def deposit_squares(
    corners: Corners, numbers: Float[Array, "m q"], height: int, width: int
) -> Float[Array, "height width q"]:
    """sum_r numbers_r coverage_r^2."""
    shape = jax.ShapeDtypeStruct((height, width, numbers.shape[1]), corners.dtype)
    reference = partial(reference_deposit_squares, height=height, width=width)
    return _either("triangles_deposit_squares", shape, reference, corners, numbers)


class Laid(NamedTuple):
    """Triangles laid over each other, and the gradient of their distance from the target.

    The gradient is that of half the squared distance.
    """

    picture: Picture
    in_colours: Colours
    in_opacities: Float[Array, "m"]


def lay(
    corners: Corners,
    colours: Colours,
    opacities: Float[Array, "m"],
    background: Float[Array, "k"],
    target: Picture,
    *,
    levels: float = 0.0,
    lost: float = 0.0,
) -> Laid:
    """Lay triangles over the background, the first one lowest.

    Each triangle replaces the picture I by I + opacity coverage (colour - I). Viewers with eight
    bits do that with errors: each layer subtracts `lost` where it covers, and then the picture is
    rounded to multiples of 1 / levels, unless `levels` is 0. The gradient ignores both.
    """
    m, dtype = corners.shape[0], corners.dtype
    shapes = tuple(
        jax.ShapeDtypeStruct(shape, dtype) for shape in (target.shape, colours.shape, (m,))
    )
    reference = partial(reference_lay, levels=levels, lost=lost)
    arrays = corners, colours, opacities, background, target
    # The kernel reads its attributes as C++ doubles.
    attributes = {"levels": np.float64(levels), "lost": np.float64(lost)}
    return Laid(*_either("triangles_lay", shapes, reference, *arrays, **attributes))


def _either(name: str, shapes: Any, reference: Any, *arguments: Array, **attributes: Any) -> Any:
    """The kernel's result on CPUs that have it, otherwise the reference's."""
    if not usable():
        return reference(*arguments)
    return either(kernel(name, shapes, **attributes), reference, *arguments)
