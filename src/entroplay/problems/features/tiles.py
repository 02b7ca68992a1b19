"""Sums over the (m, n, k) feature array, formed tile by tile in bounded memory.

A tile is the block of some particles and some rows. The functions here cut arrays into tiles, apply
a `reduce` function to each and add up the results. They know nothing of features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

TILE_ELEMENTS = 2**21
"""Maximum number of entries of the (m, n, k) feature array that exist at once."""
TILE_PARTICLES = 2**13
"""Maximum number of particles in one tile."""


def tile_shape(m: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """The numbers of particles and of rows in a tile, for m particles and moments of this shape."""
    n, k = shape[0], int(np.prod(shape[1:], initial=1))
    tile_m = min(m, TILE_PARTICLES, max(1, TILE_ELEMENTS // k))
    return tile_m, min(n, max(1, TILE_ELEMENTS // (k * tile_m)))


def sum_over_particles(
    reduce: Callable[..., Array],
    shape: tuple[int, ...],
    particles: Array,
    weights: Array,
    rows: Array,
    *per_row: Array,
) -> Array:
    """For every row, the sum over particles of `reduce(particles, weights, rows, *per_row)`.

    Blocks of rows are mapped; within a block, tiles of particles are added up.
    """
    tile_m, tile_n = tile_shape(particles.shape[0], shape)
    # Padded particles carry no weight.
    tiles = (split(particles, tile_m), split(weights, tile_m, pad_with_zeros=True))

    def block(args: tuple[Array, ...]) -> Array:
        block_rows, *extra = args

        def tile(p: Array, w: Array) -> Array:
            return reduce(p, w, block_rows, *extra)

        return accumulate(tile, tiles)

    blocks = map_tiles(block, tuple(split(a, tile_n) for a in (rows, *per_row)))
    return blocks.reshape(-1, *blocks.shape[2:])[: shape[0]]  # without the padded rows


def sum_over_rows(
    reduce: Callable[..., Any],
    shape: tuple[int, ...],
    particles: Array,
    rows: Array,
    vector: Array,
) -> Any:
    """For every particle, the sum over rows of `reduce(particles, rows, vector)`.

    Blocks of particles are mapped; within a block, tiles of rows are added up. `reduce` may return
    a tree of arrays.
    """
    m = particles.shape[0]
    tile_m, tile_n = tile_shape(m, shape)
    # Padded rows are multiplied by a zero vector.
    tiles = (split(rows, tile_n), split(vector, tile_n, pad_with_zeros=True))

    def block(args: tuple[Array]) -> Any:
        return accumulate(lambda x, v: reduce(args[0], x, v), tiles)

    blocks = map_tiles(block, (split(particles, tile_m),))
    return jax.tree.map(lambda b: b.reshape(-1, *b.shape[2:])[:m], blocks)


def gram_of_tiles(
    vectors: Callable[[Array], Array], width: int, particles: Array, weights: Array
) -> Array:
    """sum_r weights_r a_r a_r', where `vectors(particles)` are the a_r, of `width` entries each."""
    tile_m = max(1, min(particles.shape[0], TILE_ELEMENTS // width))

    def product(p: Array, w: Array) -> Array:
        a = vectors(p)
        return (a * w[:, None]).T @ a

    return accumulate(
        product, (split(particles, tile_m), split(weights, tile_m, pad_with_zeros=True))
    )


def split(array: Array, size: int, *, pad_with_zeros: bool = False) -> Array:
    """Cut the leading axis into tiles of `size`.

    Padding repeats the last entry, at which a user's function is known to be finite. Factors that
    multiply it (weights, vectors) are padded with zeros.
    """
    missing = -array.shape[0] % size
    if missing:
        padding = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        array = jnp.pad(array, padding) if pad_with_zeros else jnp.pad(array, padding, mode="edge")
    return array.reshape(-1, size, *array.shape[1:])


def map_tiles(function: Callable[..., Any], tiles: tuple[Array, ...]) -> Any:
    """The values of `function` on all tiles, stacked along a leading axis."""
    if tiles[0].shape[0] == 1:
        return jax.tree.map(lambda a: a[None], function(tuple(t[0] for t in tiles)))
    return jax.lax.map(function, tiles)


def accumulate(function: Callable[..., Any], tiles: tuple[Array, ...]) -> Any:
    """The sum of `function` over tiles, one tile in memory at a time."""
    # The first tile is the initial value: its shapes and dtypes need not be known in advance.
    first = function(*(t[0] for t in tiles))
    if tiles[0].shape[0] == 1:
        return first

    def add(total: Any, tile: tuple[Array, ...]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*tile)), None

    return jax.lax.scan(add, first, tuple(t[1:] for t in tiles))[0]
