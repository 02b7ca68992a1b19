r"""Triangles with exact area coverage, on a grid of pixels of side one.

Pixel (row, column) is the square [column, column + 1] x [row, row + 1]; a triangle is six numbers x1, y1, x2, y2, x3, y3, and its
coverage of a pixel the area they share. Five operations, the first two in O(width + height) per triangle:

* `gather`: the integral of a picture over each triangle, and the gradient of <colour, integral> in its corners;
* `deposit`: the transpose, a picture as the sum of coloured triangles;
* `square_norm` and `deposit_squares`: sums of squared coverage;
* `lay`: triangles laid over each other, and how far that is from a target.

By Green's theorem an integral over a triangle is one of S dy along its edges, S the picture's running integral along a row. On
the piece of an edge inside one row, x from p to q, the mean of S is (SS(q) - SS(p))/(q - p), SS the running integral of S. The
derivative in a corner is an integral of the picture along its edges, and S and SS give that too. A piece within one or two
pixels needs no SS, whose differences would lose digits there.

On CPUs the kernels of `entroplay.base.native` do the work where they were compiled; `reference_*` are pure JAX and run anywhere.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...base.native import either, kernel, usable

Corners = Float[Array, "m 6"]
Colours = Float[Array, "m k"]
Picture = Float[Array, "height width k"]

TILE = 64
"""Triangles that the reference works on at once."""


def gather(corners: Corners, colours: Colours, picture: Picture) -> tuple[Colours, Corners]:
    """The integral of the picture over each triangle, channel by channel, and the gradient of <colour, integral> in the corners."""
    m, channels = corners.shape[0], picture.shape[2]
    shapes = (
        jax.ShapeDtypeStruct((m, channels), corners.dtype),
        jax.ShapeDtypeStruct((m, 6), corners.dtype),
    )
    return _either("triangles_gather", shapes, reference_gather, corners, colours, picture)


def deposit(corners: Corners, colours: Colours, height: int, width: int) -> Picture:
    """sum_r colour_r coverage_r, the transpose of `gather`'s integral."""
    shape = jax.ShapeDtypeStruct((height, width, colours.shape[1]), corners.dtype)
    return _either(
        "triangles_deposit",
        shape,
        partial(reference_deposit, height=height, width=width),
        corners,
        colours,
    )


def square_norm(corners: Corners, weights: Float[Array, "height width"]) -> Float[Array, "m"]:
    """sum over pixels of weight * coverage^2, for each triangle."""
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
    """Triangles laid over each other, and the gradient of half the squared distance from the target."""

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
    """Lay triangle after triangle over the background, I <- I + opacity coverage (colour - I), the first one lowest.

    Viewers with eight bits do that with errors: each layer takes `lost` away where it covers, and then the picture is rounded to
    multiples of 1 / levels, unless that is 0. The gradient takes no notice of either.
    """
    m, dtype = corners.shape[0], corners.dtype
    shapes = tuple(
        jax.ShapeDtypeStruct(shape, dtype) for shape in (target.shape, colours.shape, (m,))
    )
    reference = partial(reference_lay, levels=levels, lost=lost)
    arguments = corners, colours, opacities, background, target
    return Laid(
        *_either(
            "triangles_lay",
            shapes,
            reference,
            *arguments,
            levels=np.float64(levels),
            lost=np.float64(lost),
        )
    )


def _either(name: str, shapes: Any, reference: Any, *arguments: Array, **attributes: Any) -> Any:
    """The kernel on CPUs that have it, else the reference."""
    return (
        either(kernel(name, shapes, **attributes), reference, *arguments)
        if usable()
        else reference(*arguments)
    )


class _Edges(NamedTuple):
    """Edges that run upwards in y: x = x0 + t dx, y = y0 + t dy, dy >= 0."""

    x0: Float[Array, "*m"]
    y0: Float[Array, "*m"]
    dx: Float[Array, "*m"]
    dy: Float[Array, "*m"]
    sign: Float[Array, "*m"]


def _edges(corners: Corners) -> _Edges:
    """(m, 3): from each corner to the next, turned round where they run downwards."""
    corner = corners.reshape(-1, 3, 2)
    following = jnp.roll(corner, -1, axis=1)
    side, other = corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
    orientation = jnp.where(side[:, 0] * other[:, 1] < other[:, 0] * side[:, 1], -1.0, 1.0).astype(
        corners.dtype
    )
    down = following[..., 1] < corner[..., 1]
    low = jnp.where(down[..., None], following, corner)
    high = jnp.where(down[..., None], corner, following)
    sign = jnp.where(down, -orientation[:, None], orientation[:, None])
    return _Edges(
        low[..., 0], low[..., 1], high[..., 0] - low[..., 0], high[..., 1] - low[..., 1], sign
    )


class _Pieces(NamedTuple):
    """The part of each edge inside each row: t from t0 to t0 + dt, x from p to q."""

    t0: Float[Array, "*m rows"]
    dt: Float[Array, "*m rows"]
    p: Float[Array, "*m rows"]
    q: Float[Array, "*m rows"]


def _pieces(edges: _Edges, rows: Float[Array, "rows"]) -> _Pieces:
    # A horizontal edge lies in one row as a whole; the division by almost nothing finds that row.
    x0, y0, dx, dy = (a[..., None] for a in edges[:4])
    steepness = jnp.maximum(dy, jnp.finfo(rows.dtype).tiny * 1e4)
    row = rows.reshape(*[1] * (x0.ndim - 1), -1)
    t0 = jnp.clip((row - y0) / steepness, 0, 1)
    t1 = jnp.clip((row + 1 - y0) / steepness, 0, 1)
    return _Pieces(t0, t1 - t0, x0 + t0 * dx, x0 + t1 * dx)


def _pixel(x: Array, width: int) -> Array:
    """Pixel -1 stands for all that is left of the canvas, pixel `width` for all that is right of it."""
    return jnp.clip(jnp.floor(x), -1, width).astype(jnp.int32)


def _tables(picture: Picture) -> tuple[Array, Array]:
    """S and SS at the left border of pixels -1 ... width + 1, row after row: (height, width + 3, channels)."""
    s = jnp.cumsum(picture, axis=1)
    before = jnp.pad(s, ((0, 0), (2, 1), (0, 0)), mode="edge").at[:, :2].set(0)
    ss = jnp.pad(jnp.cumsum((before[:, :-1] + before[:, 1:]) / 2, axis=1), ((0, 0), (1, 0), (0, 0)))
    return before, ss


def _means(pieces: _Pieces, picture: Picture) -> tuple[Array, Array, Array]:
    """For each piece: the means of S and R over it, and the integral of (x - p) R dx / (q - p)^2; (..., rows, channels)."""
    width = picture.shape[1]
    s_table, ss_table = _tables(picture)
    p, q = pieces.p[..., None], pieces.q[..., None]
    i, j = _pixel(pieces.p, width), _pixel(pieces.q, width)
    rows = jnp.broadcast_to(jnp.arange(picture.shape[0]), i.shape)

    left_p, left_q = (pixel[..., None].astype(picture.dtype) for pixel in (i, j))

    def look(table: Array, pixel: Array) -> Array:
        return table[rows, pixel + 1]

    s_i, s_j = look(s_table, i), look(s_table, j)
    r_p, r_q = look(s_table, i + 1) - s_i, look(s_table, j + 1) - s_j
    f, g = p - left_p, q - left_q
    same, adjacent = (i == j)[..., None], (jnp.abs(i - j) == 1)[..., None]
    span = jnp.where(same, 1, q - p)

    border = jnp.maximum(i, j)
    alpha = (jnp.maximum(left_p, left_q) - p) / span
    beta = 1 - alpha
    two_s = look(s_table, border) + span / 2 * (beta**2 * r_q - alpha**2 * r_p)
    two_r = alpha * r_p + beta * r_q
    two_tilt = (beta**2 / 2 + alpha * beta) * r_q + alpha**2 / 2 * r_p

    s_p, s_q = s_i + f * r_p, s_j + g * r_q
    many_s = (
        look(ss_table, j) + g * s_j + g**2 / 2 * r_q - look(ss_table, i) - f * s_i - f**2 / 2 * r_p
    ) / span
    many_r, many_tilt = (s_q - s_p) / span, (s_q - many_s) / span

    def choose(one: Array, two: Array, many: Array) -> Array:
        return jnp.where(same, one, jnp.where(adjacent, two, many))

    one_s = s_i + (f + q - left_p) / 2 * r_p
    return (
        choose(one_s, two_s, many_s),
        choose(r_p, two_r, many_r),
        choose(r_p / 2, two_tilt, many_tilt),
    )


def reference_gather(
    corners: Corners, colours: Colours, picture: Picture
) -> tuple[Colours, Corners]:
    """`gather` in pure JAX, row by row for all rows."""

    def tile(args: tuple[Corners, Colours]) -> tuple[Colours, Corners]:
        corners, colours = args
        edges = _edges(corners)
        pieces = _pieces(edges, jnp.arange(picture.shape[0], dtype=corners.dtype))
        mean_s, mean_r, tilt = _means(pieces, picture)
        t0, dt = pieces.t0[..., None], pieces.dt[..., None]
        value = jnp.sum(dt * edges.dy[..., None, None] * mean_s, axis=2)
        plain = jnp.sum(dt * mean_r, axis=2)
        tilted = jnp.sum(t0 * dt * mean_r + dt**2 * tilt, axis=2)
        at_low, at_high = (jnp.einsum("rek,rk->re", x, colours) for x in (plain - tilted, tilted))
        normal = edges.sign[..., None] * jnp.stack([edges.dy, -edges.dx], axis=-1)
        down = (
            jnp.roll(corners.reshape(-1, 3, 2), -1, axis=1)[..., 1]
            < corners.reshape(-1, 3, 2)[..., 1]
        )
        at_first, at_next = jnp.where(down, at_high, at_low), jnp.where(down, at_low, at_high)
        gradient = at_first[..., None] * normal + jnp.roll(at_next[..., None] * normal, 1, axis=1)
        return jnp.sum(edges.sign[..., None] * value, axis=1), gradient.reshape(-1, 6)

    return _tiled(tile, corners, colours)


def reference_deposit(corners: Corners, colours: Colours, *, height: int, width: int) -> Picture:
    """`deposit` in pure JAX: the transpose of the integral over triangles, which is linear in the picture."""

    def integral(picture: Picture, corners: Corners, colours: Colours) -> Array:
        edges = _edges(corners)
        pieces = _pieces(edges, jnp.arange(height, dtype=corners.dtype))
        mean_s, _, _ = _means(pieces, picture)
        weight = (edges.sign * edges.dy)[..., None] * pieces.dt
        return jnp.einsum("rey,reyk,rk->", weight, mean_s, colours)

    blank = jnp.zeros((height, width, colours.shape[1]), corners.dtype)

    def add(total: Picture, tile: tuple[Corners, Colours]) -> tuple[Picture, None]:
        return total + jax.grad(integral)(blank, *tile), None

    tiles = (
        _padded(corners).reshape(-1, TILE, 6),
        _padded(colours).reshape(-1, TILE, colours.shape[1]),
    )
    return jax.lax.scan(add, blank, tiles)[0]


def coverage(corners: Corners, x: Float[Array, "b"], y: Float[Array, "b"]) -> Float[Array, "m b"]:
    """The area that each triangle shares with the pixels whose lower corners are (x, y), one by one: nothing is shared
    between pixels, which makes it slow and simple.

    In one row the area left of a piece and inside a pixel is the integral of clip(x - x_pixel, 0, 1) dy.
    """
    edges = _edges(corners)
    pieces = _pieces(edges, y)
    column = x.reshape(1, 1, -1)
    p, q = pieces.p - column, pieces.q - column

    def integral(u: Array) -> Array:
        """Of clip(., 0, 1), from 0 to u."""
        return jnp.where(u > 1, u - 0.5, jnp.maximum(u, 0) ** 2 / 2)

    # Where the piece is short the quotient loses its digits: on a piece within one pixel the integrand is linear.
    low, high = jnp.minimum(p, q), jnp.maximum(p, q)
    inside = (jnp.floor(jnp.clip(low, -1, 1)) == jnp.floor(jnp.clip(high, -1, 1))) | (
        high - low < 1e-3
    )
    middle = (jnp.clip(p, 0, 1) + jnp.clip(q, 0, 1)) / 2
    mean = jnp.where(inside, middle, (integral(q) - integral(p)) / jnp.where(inside, 1, q - p))
    return jnp.einsum("re,rey->ry", edges.sign * edges.dy, pieces.dt * mean)


def reference_square_norm(
    corners: Corners, weights: Float[Array, "height width"]
) -> Float[Array, "m"]:
    """`square_norm` in pure JAX, pixel by pixel."""
    height, width = weights.shape

    def one(corners: Float[Array, "6"]) -> Array:
        covered = reference_deposit(
            corners[None], jnp.ones((1, 1), corners.dtype), height=height, width=width
        )[..., 0]
        return jnp.sum(weights * covered**2)

    return jax.lax.map(one, corners)


def reference_deposit_squares(
    corners: Corners, numbers: Float[Array, "m q"], *, height: int, width: int
) -> Float[Array, "height width q"]:
    """`deposit_squares` in pure JAX, triangle by triangle."""

    def add(total: Array, triangle: tuple[Array, Array]) -> tuple[Array, None]:
        corners, numbers = triangle
        covered = reference_deposit(
            corners[None], jnp.ones((1, 1), corners.dtype), height=height, width=width
        )
        return total + covered**2 * numbers[None, None], None

    blank = jnp.zeros((height, width, numbers.shape[1]), corners.dtype)
    return jax.lax.scan(add, blank, (corners, numbers))[0]


def reference_lay(
    corners: Corners,
    colours: Colours,
    opacities: Float[Array, "m"],
    background: Float[Array, "k"],
    target: Picture,
    *,
    levels: float = 0.0,
    lost: float = 0.0,
) -> tuple[Picture, Colours, Float[Array, "m"]]:
    """`lay` in pure JAX, row by row, so that what reverse differentiation keeps stays small."""
    height, width, channels = target.shape
    columns = jnp.arange(width, dtype=corners.dtype)

    def row(args: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        number, wanted = args
        covered = coverage(corners, columns, jnp.broadcast_to(number, (width,)))

        def distance(colours: Colours, opacities: Array) -> tuple[Array, Array]:
            def over(line: Array, layer: tuple[Array, Array, Array]) -> tuple[Array, None]:
                share, colour, opacity = layer
                line = line + (opacity * share)[:, None] * (colour[None] - line)
                line = line - jnp.where(share > 1e-9, lost, 0.0).astype(line.dtype)[:, None]
                if levels > 0:
                    line = line + jax.lax.stop_gradient(jnp.round(line * levels) / levels - line)
                return line, None

            line, _ = jax.lax.scan(
                over, jnp.broadcast_to(background, (width, channels)), (covered, colours, opacities)
            )
            return jnp.sum((line - wanted) ** 2) / 2, line

        (_, line), slopes = jax.value_and_grad(distance, argnums=(0, 1), has_aux=True)(
            colours, opacities
        )
        return line, slopes

    picture, (in_colours, in_opacities) = jax.lax.map(
        row, (jnp.arange(height, dtype=corners.dtype), target)
    )
    return picture, jnp.sum(in_colours, axis=0), jnp.sum(in_opacities, axis=0)


def _padded(array: Array) -> Array:
    """A whole number of tiles; triangles that collapse to a point and have no colour fill the last one."""
    return jnp.pad(array, ((0, -array.shape[0] % TILE), (0, 0)))


def _tiled(function: Any, *arrays: Array) -> Any:
    m = arrays[0].shape[0]
    tiles = tuple(_padded(a).reshape(-1, TILE, a.shape[1]) for a in arrays)
    return jax.tree.map(
        lambda out: out.reshape(-1, *out.shape[2:])[:m], jax.lax.map(function, tiles)
    )
