"""A loss from a function of one row."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ...base.arguments import invalid, real_array
from ...base.registry import storable
from .base import Loss, Moments, Rows


@storable
class FunctionLoss(Loss):
    """A loss from a function of one row: `function(z_i, y_i) -> number`, convex in z_i.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> pseudo_huber = ep.FunctionLoss(lambda z, y: jnp.sqrt(1 + (z - y) ** 2) - 1, y=[0.0, 1.0])
    >>> print(pseudo_huber.slope(jnp.array([0.0, 1.0])))
    [0. 0.]
    """

    function: Callable[..., Array] = eqx.field(static=True)
    y: Float[Array, "n ..."]

    def __init__(self, function: Callable[..., Array], y: object):
        if not callable(function):
            raise invalid("FunctionLoss", "function", "a function (z, y) -> number", function)
        self.function = function
        self.y = real_array("FunctionLoss", "y", y)

    def value(self, moments: Moments) -> Rows:
        return jax.vmap(self.function)(moments, self.y)
