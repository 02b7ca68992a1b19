"""The Huber loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...base.arguments import per_row, positive, real_array
from ...base.registry import storable
from .base import Loss, Moments, Rows, row_dot, row_sum


@storable
class Huber(Loss):
    """(z - y)^2 / 2 up to a distance `delta`, linear beyond, summed over channels.

    Its slope is bounded by `delta`, which limits the influence of outliers.
    """

    y: Moments
    delta: float

    def __init__(self, y: object, delta: float = 1.35):
        self.y = real_array("Huber", "y", y, ndim=(1, 2))
        self.delta = positive("Huber", "delta", delta)

    @property
    def data_shape(self) -> tuple[int, ...]:
        return self.y.shape

    def value(self, moments: Moments) -> Rows:
        # With t = min(distance, delta), both branches are t^2 / 2 + delta (distance - t).
        distance = jnp.abs(moments - self.y)
        inner = jnp.minimum(distance, self.delta)
        return row_sum(inner**2 / 2 + self.delta * (distance - inner))

    def slope(self, moments: Moments) -> Moments:
        return jnp.clip(moments - self.y, -self.delta, self.delta)

    def curvature(self, moments: Moments) -> Float[Array, "n *kk"]:
        inside = (jnp.abs(moments - self.y) < self.delta).astype(moments.dtype)
        return inside if moments.ndim == 1 else jax.vmap(jnp.diag)(inside)

    def curvature_root(self, moments: Moments) -> Float[Array, "n *kk"]:
        # The curvature is diagonal with entries 0 and 1, hence its own root.
        return self.curvature(moments)

    def conjugate(self, dual: Moments) -> Rows:
        # Inside |g| <= delta the supremum lies on the quadratic branch, as for the squared loss.
        inside = row_dot(dual, self.y) + row_dot(dual, dual) / 2
        return jnp.where(self.dual_domain(dual), inside, jnp.inf)

    def bregman(self, moments: Moments, anchor: Moments) -> Rows:
        # The integral of loss'(t) - loss'(z) over t from z to p. Between the clipped ends the
        # slope grows linearly and half of its change counts; beyond the clipped end of p all of
        # it does. No term is a difference of nearly equal numbers.
        start, end = (jnp.clip(z - self.y, -self.delta, self.delta) for z in (anchor, moments))
        beyond = (moments - self.y) - end
        return row_sum((end - start) * ((end - start) / 2 + beyond))

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        # With a = point - y and c = strength: the quadratic branch gives z - y = a / (1 + c), valid
        # where that is at most delta; otherwise the slope is +-delta and shifts a by c * delta.
        c = per_row(strength, point)
        a = point - self.y
        return self.y + jnp.where(
            jnp.abs(a) <= self.delta * (1 + c), a / (1 + c), a - c * self.delta * jnp.sign(a)
        )

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        return (jnp.abs(dual) <= self.delta).reshape(dual.shape[0], -1).all(axis=1)
