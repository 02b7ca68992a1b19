"""The negative logarithm, for densities."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ...base.registry import storable
from .base import Loss, Rows

FALL = 1.1
"""Maximum factor by which a density may fall in one step of `NegLog`."""


@storable
class NegLog(Loss):
    """-log z, for densities: the negative log-likelihood. Moments are positive, duals negative."""

    def value(self, moments: Rows) -> Rows:
        return jnp.where(self.domain(moments), -jnp.log(moments), jnp.inf)

    def slope(self, moments: Rows) -> Rows:
        return -1 / moments

    def curvature(self, moments: Rows) -> Rows:
        return 1 / moments**2

    def conjugate(self, dual: Rows) -> Rows:
        # -1 - log(-g), attained at z = -1 / g.
        inside = self.dual_domain(dual)
        return jnp.where(inside, -1 - jnp.log(jnp.where(inside, -dual, 1)), jnp.inf)

    def infimum(self, like: Rows, bounds: tuple[float, float]) -> Rows:
        # No density exceeds the kernel's height.
        return jnp.full_like(like, -jnp.log(bounds[1]))

    def bregman(self, moments: Rows, anchor: Rows) -> Rows:
        # r - log(1 + r) with r = p / z - 1. log1p keeps the digits of a ratio p / z near one, log
        # those of a ratio near zero.
        relative = (moments - anchor) / anchor
        near = jnp.log1p(jnp.maximum(relative, -0.5))
        far = jnp.log(moments / anchor)
        return jnp.maximum(relative - jnp.where(relative > -0.5, near, far), 0)

    def extrapolate(self, moments: Rows, step: Rows) -> Rows:
        # A step D down is taken in the slope -1 / H: H^2 / (H - D) = H + D + O(D^2) is positive
        # however long the step.
        down = jnp.minimum(step, 0)
        return jnp.where(step >= 0, moments + step, moments**2 / (moments - down))

    def retract(self, moments: Rows, step: Rows) -> Rows:
        # Cut off at H / FALL: a row with no particle nearby seems to have no density at all; its
        # pull 1 / H would double, and one iteration later it would draw all mass there.
        return jnp.maximum(self.extrapolate(moments, step), moments / FALL)

    def proximal(self, point: Rows, strength: Rows) -> Rows:
        # The positive root of z - c / z = a. For negative a it is written without the difference
        # of two nearly equal numbers.
        root = jnp.sqrt(point**2 + 4 * strength)
        return jnp.where(
            point >= 0, (point + root) / 2, 2 * strength / (root - jnp.minimum(point, 0))
        )

    def domain(self, moments: Rows) -> Bool[Array, "n"]:
        return moments > 0

    def dual_domain(self, dual: Rows) -> Bool[Array, "n"]:
        return dual < 0
