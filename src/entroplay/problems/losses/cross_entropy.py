"""The cross-entropy loss for several classes."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Bool, Float, Int

from ...base.arguments import invalid, real_array, whole
from ...base.registry import storable
from .base import Loss, Rows, row_dot

ROUNDING = 8
"""Units of rounding, per class, by which a dual vector may lie outside the simplex."""


@storable
class CrossEntropy(Loss):
    """-log softmax(z)[label] for labels 0..classes-1.

    The dual domain is where g + e_label lies in the probability simplex.
    """

    saturates: ClassVar[bool] = True

    labels: Int[Array, "n"]
    classes: int = eqx.field(static=True)

    def __init__(self, labels: object, classes: int | None = None):
        values = np.asarray(real_array("CrossEntropy", "labels", labels, ndim=(1,)))
        must_be = "whole numbers from 0 to classes - 1"
        wrong = values[(values != np.round(values)) | (values < 0)]
        if wrong.size:
            raise invalid("CrossEntropy", "labels", must_be, float(wrong[0]))
        largest = int(values.max())
        self.classes = (
            max(largest + 1, 2)
            if classes is None
            else whole("CrossEntropy", "classes", classes, least=2)
        )
        if largest >= self.classes:
            raise invalid("CrossEntropy", "labels", f"{must_be} = {self.classes - 1}", largest)
        self.labels = jnp.asarray(values, dtype=jnp.int32)

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self.labels.shape[0], self.classes)

    def _one_hot(self, dtype: jnp.dtype) -> Float[Array, "n k"]:
        return jax.nn.one_hot(self.labels, self.classes, dtype=dtype)

    def value(self, moments: Float[Array, "n k"]) -> Rows:
        return jax.nn.logsumexp(moments, axis=1) - row_dot(moments, self._one_hot(moments.dtype))

    def slope(self, moments: Float[Array, "n k"]) -> Float[Array, "n k"]:
        return jax.nn.softmax(moments, axis=1) - self._one_hot(moments.dtype)

    def curvature(self, moments: Float[Array, "n k"]) -> Float[Array, "n k k"]:
        # diag(p) - p p' with p = softmax(z).
        p = jax.nn.softmax(moments, axis=1)
        return jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]

    def curvature_root(self, moments: Float[Array, "n k"]) -> Float[Array, "n k k"]:
        # R = diag(r) (I - r r') with r = sqrt(p): since |r| = 1, I - r r' is a projection and
        # R R' = diag(p) - p p'.
        root = jnp.sqrt(jax.nn.softmax(moments, axis=1))
        identity = jnp.eye(self.classes, dtype=moments.dtype)[None]
        return root[:, :, None] * (identity - root[:, :, None] * root[:, None, :])

    def conjugate(self, dual: Float[Array, "n k"]) -> Rows:
        # The negative entropy of p = g + e_label.
        p = jnp.maximum(dual + self._one_hot(dual.dtype), 0)
        return jnp.where(self.dual_domain(dual), jnp.sum(xlogy(p, p), axis=1), jnp.inf)

    def bregman(self, moments: Float[Array, "n k"], anchor: Float[Array, "n k"]) -> Rows:
        # log sum_k p_k e^{t_k} with t centred under p, which removes the linear term. As in
        # `Logistic`, small t use log1p(sum_k p_k expm1(t_k)) to avoid cancellation.
        p, t = jax.nn.softmax(anchor, axis=1), moments - anchor
        t = t - jnp.sum(p * t, axis=1, keepdims=True)
        small = jnp.max(jnp.abs(t), axis=1) < 1
        near = jnp.log1p(jnp.sum(p * jnp.expm1(jnp.where(small[:, None], t, 0)), axis=1))
        return jnp.maximum(jnp.where(small, near, jax.nn.logsumexp(t, axis=1, b=p)), 0)

    def dual_domain(self, dual: Float[Array, "n k"]) -> Bool[Array, "n"]:
        p = dual + self._one_hot(dual.dtype)
        slack = ROUNDING * self.classes * jnp.finfo(dual.dtype).eps
        return (p >= -slack).all(axis=1) & (jnp.abs(jnp.sum(p, axis=1) - 1) <= slack)
