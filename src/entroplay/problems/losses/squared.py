"""The squared loss."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...base.arguments import per_row, positive, real_array
from ...base.registry import storable
from .base import Loss, Moments, Rows, row_dot


@storable
class Squared(Loss):
    """scale * |z - y|^2 / 2, summed over channels when y is (n, k)."""

    quadratic: ClassVar[bool] = True

    y: Moments
    scale: float

    def __init__(self, y: object, scale: float = 1.0):
        self.y = real_array("Squared", "y", y, ndim=(1, 2))
        self.scale = positive("Squared", "scale", scale)

    @property
    def data_shape(self) -> tuple[int, ...]:
        return self.y.shape

    def value(self, moments: Moments) -> Rows:
        return self.scale / 2 * row_dot(moments - self.y, moments - self.y)

    def slope(self, moments: Moments) -> Moments:
        return self.scale * (moments - self.y)

    def curvature(self, moments: Moments) -> Float[Array, "n *kk"]:
        if moments.ndim == 1:
            return jnp.full_like(moments, self.scale)
        n, k = moments.shape
        return jnp.broadcast_to(self.scale * jnp.eye(k, dtype=moments.dtype)[None], (n, k, k))

    def conjugate(self, dual: Moments) -> Rows:
        return row_dot(dual, self.y) + row_dot(dual, dual) / (2 * self.scale)

    def bregman(self, moments: Moments, anchor: Moments) -> Rows:
        # The Bregman divergence of a quadratic is the quadratic of the difference.
        return self.scale / 2 * row_dot(moments - anchor, moments - anchor)

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        # c (z - y) + z - point = 0 with c = scale * strength.
        c = self.scale * per_row(strength, point)
        return (point + c * self.y) / (1 + c)

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        return jnp.ones(dual.shape[0], bool)
