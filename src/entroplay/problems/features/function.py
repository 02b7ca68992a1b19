"""Features from a function of a particle and a row."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ...base.arguments import invalid, real_array, whole
from ...base.registry import storable
from .base import FeatureMap, Particles


@storable
class FunctionFeatures(FeatureMap):
    """Any function `h(theta, x)` of a particle and a row that returns a number or a vector.

    `theta` has shape (dim,), `x` is one entry of `X` along its leading axis. `h` is written in
    `jax.numpy`.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> def bump(theta, x):
    ...     return jnp.exp(-((theta[0] - x) ** 2))
    >>> ep.FunctionFeatures(bump, [0.0, 1.0], dim=1).shape
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
        # The shape of h, without evaluating it, gives the number of channels.
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
