"""The logistic loss for two classes."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from jaxtyping import Array, Bool

from ...base.arguments import invalid, real_array
from ...base.registry import storable
from .base import Loss, Rows


@storable
class Logistic(Loss):
    """log(1 + exp(-y z)) for labels y in {-1, +1}.

    The dual domain is where u = -y g lies in [0, 1].
    """

    saturates: ClassVar[bool] = True

    y: Rows

    def __init__(self, y: object):
        self.y = real_array("Logistic", "y", y, ndim=(1,))
        wrong = np.unique(np.asarray(self.y)[np.abs(np.asarray(self.y)) != 1])
        if wrong.size:
            raise invalid("Logistic", "y", "labels -1 or +1 only", [float(v) for v in wrong[:5]])

    @property
    def data_shape(self) -> tuple[int, ...]:
        return self.y.shape

    def value(self, moments: Rows) -> Rows:
        return jax.nn.softplus(-self.y * moments)

    def slope(self, moments: Rows) -> Rows:
        return -self.y * jax.nn.sigmoid(-self.y * moments)

    def curvature(self, moments: Rows) -> Rows:
        # Even in z, so the label drops out.
        return jax.nn.sigmoid(moments) * jax.nn.sigmoid(-moments)

    def conjugate(self, dual: Rows) -> Rows:
        # u log u + (1 - u) log(1 - u); the clipping keeps the unused branch finite.
        u = -self.y * dual
        inside = jnp.clip(u, 0, 1)
        return jnp.where(self.dual_domain(dual), -entr(inside) - entr(1 - inside), jnp.inf)

    def bregman(self, moments: Rows, anchor: Rows) -> Rows:
        # softplus(a + t) - softplus(a) = log1p(sigmoid(a) expm1(t)): for small t this avoids the
        # cancellation of the leading terms, for large t expm1 would overflow.
        a, t = -self.y * anchor, -self.y * (moments - anchor)
        u = jax.nn.sigmoid(a)
        small = jnp.abs(t) < 1
        near = jnp.log1p(u * jnp.expm1(jnp.where(small, t, 0)))
        far = jax.nn.softplus(a + t) - jax.nn.softplus(a)
        return jnp.maximum(jnp.where(small, near, far) - u * t, 0)

    def dual_domain(self, dual: Rows) -> Bool[Array, "n"]:
        u = -self.y * dual
        return (u >= 0) & (u <= 1)
