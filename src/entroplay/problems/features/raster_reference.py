"""The operations of `raster` in pure JAX, for all platforms. `raster` explains the mathematics."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Corners = Float[Array, "m 6"]
Colours = Float[Array, "m k"]
Picture = Float[Array, "height width k"]

TILE = 64
"""Number of triangles that are worked on at once."""
SHORT = 1e-3
"""Length in pixels below which a piece counts as lying within one pixel."""
COVERED = 1e-9
"""Coverage above which a layer subtracts `lost`."""


class _Edges(NamedTuple):
    """Edges that run upwards in y: x = x0 + t dx, y = y0 + t dy, dy >= 0."""

    x0: Float[Array, "*m"]
    y0: Float[Array, "*m"]
    dx: Float[Array, "*m"]
    dy: Float[Array, "*m"]
    sign: Float[Array, "*m"]
    """The sign with which the edge counts, for a triangle of positive orientation."""
    down: Bool[Array, "*m"]
    """Whether the edge was reversed."""


def _edges(corners: Corners) -> _Edges:
    """(m, 3) edges, from each corner to the next, reversed where they run downwards."""
    corner = corners.reshape(-1, 3, 2)
    following = jnp.roll(corner, -1, axis=1)
    side, other = corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
    # The sign of the cross product. A collapsed triangle counts as positive; otherwise it could
    # never move.
    negative = side[:, 0] * other[:, 1] < other[:, 0] * side[:, 1]
    orientation = jnp.where(negative, -1.0, 1.0).astype(corners.dtype)
    down = following[..., 1] < corner[..., 1]
    low = jnp.where(down[..., None], following, corner)
    high = jnp.where(down[..., None], corner, following)
    sign = jnp.where(down, -orientation[:, None], orientation[:, None])
    dx, dy = high[..., 0] - low[..., 0], high[..., 1] - low[..., 1]
    return _Edges(low[..., 0], low[..., 1], dx, dy, sign, down)


class _Pieces(NamedTuple):
    """The part of each edge inside each row: t from t0 to t0 + dt, x from p to q."""

    t0: Float[Array, "*m rows"]
    dt: Float[Array, "*m rows"]
    p: Float[Array, "*m rows"]
    q: Float[Array, "*m rows"]


def _pieces(edges: _Edges, rows: Float[Array, "rows"]) -> _Pieces:
    # A horizontal edge lies in one row as a whole; dividing by almost nothing finds that row.
    x0, y0, dx, dy = (a[..., None] for a in edges[:4])
    steepness = jnp.maximum(dy, jnp.finfo(rows.dtype).tiny * 1e4)
    row = rows.reshape(*[1] * (x0.ndim - 1), -1)
    t0 = jnp.clip((row - y0) / steepness, 0, 1)
    t1 = jnp.clip((row + 1 - y0) / steepness, 0, 1)
    return _Pieces(t0, t1 - t0, x0 + t0 * dx, x0 + t1 * dx)


def _pixel(x: Array, width: int) -> Array:
    """The pixel that holds x: -1 left of the canvas, `width` right of it."""
    return jnp.clip(jnp.floor(x), -1, width).astype(jnp.int32)


def _tables(picture: Picture) -> tuple[Array, Array]:
    """S and SS at the left borders of pixels -1 ... width + 1: (height, width + 3, channels)."""
    s = jnp.cumsum(picture, axis=1)
    before = jnp.pad(s, ((0, 0), (2, 1), (0, 0)), mode="edge").at[:, :2].set(0)
    # S is linear within a pixel, so the trapezoidal rule integrates it exactly.
    ss = jnp.pad(jnp.cumsum((before[:, :-1] + before[:, 1:]) / 2, axis=1), ((0, 0), (1, 0), (0, 0)))
    return before, ss


def _means(pieces: _Pieces, picture: Picture) -> tuple[Array, Array, Array]:
    """Three integrals over each piece, (..., rows, channels).

    They are the mean of S, the mean of the picture R, and the tilt: the integral of
    (x - p) R dx / (q - p)^2.
    """
    width = picture.shape[1]
    s_table, ss_table = _tables(picture)
    p, q = pieces.p[..., None], pieces.q[..., None]
    i, j = _pixel(pieces.p, width), _pixel(pieces.q, width)
    rows = jnp.broadcast_to(jnp.arange(picture.shape[0]), i.shape)

    left_p, left_q = (pixel[..., None].astype(picture.dtype) for pixel in (i, j))

    def look(table: Array, pixel: Array) -> Array:
        return table[rows, pixel + 1]

    # S at the left borders of the pixels of p and q, R inside them, and the offsets f and g of p
    # and q from these borders.
    s_i, s_j = look(s_table, i), look(s_table, j)
    r_p, r_q = look(s_table, i + 1) - s_i, look(s_table, j + 1) - s_j
    f, g = p - left_p, q - left_q
    same, adjacent = (i == j)[..., None], (jnp.abs(i - j) == 1)[..., None]
    span = jnp.where(same, 1, q - p)

    # One pixel: S is linear, so its mean is its value in the middle.
    one_s = s_i + (f + q - left_p) / 2 * r_p

    # Two adjacent pixels: shares alpha and beta of the piece lie on either side of their border.
    border = jnp.maximum(i, j)
    alpha = (jnp.maximum(left_p, left_q) - p) / span
    beta = 1 - alpha
    two_s = look(s_table, border) + span / 2 * (beta**2 * r_q - alpha**2 * r_p)
    two_r = alpha * r_p + beta * r_q
    two_tilt = (beta**2 / 2 + alpha * beta) * r_q + alpha**2 / 2 * r_p

    # More pixels: differences of S and SS between p and q; the tilt follows by parts.
    s_p, s_q = s_i + f * r_p, s_j + g * r_q
    many_s = (
        look(ss_table, j) + g * s_j + g**2 / 2 * r_q - look(ss_table, i) - f * s_i - f**2 / 2 * r_p
    ) / span
    many_r, many_tilt = (s_q - s_p) / span, (s_q - many_s) / span

    def choose(one: Array, two: Array, many: Array) -> Array:
        return jnp.where(same, one, jnp.where(adjacent, two, many))

    return (
        choose(one_s, two_s, many_s),
        choose(r_p, two_r, many_r),
        choose(r_p / 2, two_tilt, many_tilt),
    )


def reference_gather(
    corners: Corners, colours: Colours, picture: Picture
) -> tuple[Colours, Corners]:
    """`gather` in pure JAX; every edge visits every row."""

    def tile(args: tuple[Corners, Colours]) -> tuple[Colours, Corners]:
        corners, colours = args
        edges = _edges(corners)
        pieces = _pieces(edges, jnp.arange(picture.shape[0], dtype=corners.dtype))
        mean_s, mean_r, tilt = _means(pieces, picture)
        t0, dt = pieces.t0[..., None], pieces.dt[..., None]
        # Along each edge: the integrals of S dy, of R dt and of t R dt.
        value = jnp.sum(dt * edges.dy[..., None, None] * mean_s, axis=2)
        plain = jnp.sum(dt * mean_r, axis=2)
        tilted = jnp.sum(t0 * dt * mean_r + dt**2 * tilt, axis=2)
        # Moving one end of an edge moves its points in proportion to t, or to 1 - t, and sweeps
        # area along the normal (dy, -dx).
        at_low, at_high = (jnp.einsum("rek,rk->re", x, colours) for x in (plain - tilted, tilted))
        normal = edges.sign[..., None] * jnp.stack([edges.dy, -edges.dx], axis=-1)
        at_first = jnp.where(edges.down, at_high, at_low)
        at_next = jnp.where(edges.down, at_low, at_high)
        # Edge e joins corners e and e + 1: every corner belongs to two edges.
        gradient = at_first[..., None] * normal + jnp.roll(at_next[..., None] * normal, 1, axis=1)
        return jnp.sum(edges.sign[..., None] * value, axis=1), gradient.reshape(-1, 6)

    return _tiled(tile, corners, colours)


def reference_deposit(corners: Corners, colours: Colours, *, height: int, width: int) -> Picture:
    """`deposit` in pure JAX.

    The integral over triangles is linear in the picture, and its transpose is its gradient.
    """

    def integral(picture: Picture, corners: Corners, colours: Colours) -> Array:
        edges = _edges(corners)
        pieces = _pieces(edges, jnp.arange(height, dtype=corners.dtype))
        mean_s, _, _ = _means(pieces, picture)
        weight = (edges.sign * edges.dy)[..., None] * pieces.dt
        return jnp.einsum("rey,reyk,rk->", weight, mean_s, colours)

    blank = jnp.zeros((height, width, colours.shape[1]), corners.dtype)

    def add(total: Picture, tile: tuple[Corners, Colours]) -> tuple[Picture, None]:
        return total + jax.grad(integral)(blank, *tile), None

    return jax.lax.scan(add, blank, (_tiles(corners), _tiles(colours)))[0]


def coverage(corners: Corners, x: Float[Array, "b"], y: Float[Array, "b"]) -> Float[Array, "m b"]:
    """The area that each triangle shares with the pixels whose lower corners are (x, y).

    Each pixel is computed separately, which is slow and simple. In one row, the area left of a
    piece and inside a pixel is the integral of clip(x - x_pixel, 0, 1) dy.
    """
    edges = _edges(corners)
    pieces = _pieces(edges, y)
    column = x.reshape(1, 1, -1)
    p, q = pieces.p - column, pieces.q - column

    def integral(u: Array) -> Array:
        """The integral of clip(t, 0, 1) over t from 0 to u."""
        return jnp.where(u > 1, u - 0.5, jnp.maximum(u, 0) ** 2 / 2)

    # On a short piece the quotient loses its digits. Within one pixel the integrand is linear, and
    # its mean is the mean of its two ends.
    low, high = jnp.minimum(p, q), jnp.maximum(p, q)
    one_pixel = jnp.floor(jnp.clip(low, -1, 1)) == jnp.floor(jnp.clip(high, -1, 1))
    inside = one_pixel | (high - low < SHORT)
    middle = (jnp.clip(p, 0, 1) + jnp.clip(q, 0, 1)) / 2
    mean = jnp.where(inside, middle, (integral(q) - integral(p)) / jnp.where(inside, 1, q - p))
    return jnp.einsum("re,rey->ry", edges.sign * edges.dy, pieces.dt * mean)


def _covered(corner: Float[Array, "6"], height: int, width: int) -> Float[Array, "height width 1"]:
    """The coverage of every pixel by one triangle."""
    white = jnp.ones((1, 1), corner.dtype)
    return reference_deposit(corner[None], white, height=height, width=width)


def reference_square_norm(
    corners: Corners, weights: Float[Array, "height width"]
) -> Float[Array, "m"]:
    """`square_norm` in pure JAX, pixel by pixel."""

    def one(corner: Float[Array, "6"]) -> Array:
        return jnp.sum(weights * _covered(corner, *weights.shape)[..., 0] ** 2)

    return jax.lax.map(one, corners)


def reference_deposit_squares(
    corners: Corners, numbers: Float[Array, "m q"], *, height: int, width: int
) -> Float[Array, "height width q"]:
    """`deposit_squares` in pure JAX, triangle by triangle."""

    def add(total: Array, triangle: tuple[Array, Array]) -> tuple[Array, None]:
        corner, number = triangle
        return total + _covered(corner, height, width) ** 2 * number[None, None], None

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
    """`lay` in pure JAX, row by row: reverse differentiation then keeps one row at a time."""
    height, width, channels = target.shape
    columns = jnp.arange(width, dtype=corners.dtype)

    def row(args: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        number, wanted = args
        covered = coverage(corners, columns, jnp.broadcast_to(number, (width,)))

        def distance(colours: Colours, opacities: Array) -> tuple[Array, Array]:
            def over(line: Array, layer: tuple[Array, Array, Array]) -> tuple[Array, None]:
                share, colour, opacity = layer
                line = line + (opacity * share)[:, None] * (colour[None] - line)
                line = line - jnp.where(share > COVERED, lost, 0.0).astype(line.dtype)[:, None]
                if levels > 0:  # rounding, with the gradient of the identity
                    line = line + jax.lax.stop_gradient(jnp.round(line * levels) / levels - line)
                return line, None

            blank = jnp.broadcast_to(background, (width, channels))
            line, _ = jax.lax.scan(over, blank, (covered, colours, opacities))
            return jnp.sum((line - wanted) ** 2) / 2, line

        slopes = jax.value_and_grad(distance, argnums=(0, 1), has_aux=True)
        (_, line), gradient = slopes(colours, opacities)
        return line, gradient

    numbers = jnp.arange(height, dtype=corners.dtype)
    picture, (in_colours, in_opacities) = jax.lax.map(row, (numbers, target))
    return picture, jnp.sum(in_colours, axis=0), jnp.sum(in_opacities, axis=0)


def _tiles(array: Array) -> Array:
    """The leading axis cut into tiles; points without colour fill up the last one."""
    padded = jnp.pad(array, ((0, -array.shape[0] % TILE), (0, 0)))
    return padded.reshape(-1, TILE, array.shape[1])


def _tiled(function: Any, *arrays: Array) -> Any:
    """The values of `function` on all tiles, joined along the leading axis."""
    m, tiles = arrays[0].shape[0], tuple(_tiles(a) for a in arrays)
    return jax.tree.map(
        lambda out: out.reshape(-1, *out.shape[2:])[:m], jax.lax.map(function, tiles)
    )
