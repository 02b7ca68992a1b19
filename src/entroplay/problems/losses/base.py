r"""Convex losses of the moments, one value per row.

A loss acts on `moments` of shape (n,) or (n, k), row by row, and knows

* `value(z)`: loss_i(z_i), shape (n,);
* `slope(z)`: loss_i'(z_i), shaped like `z`: the dual vector that belongs to the moments `z`;
* `curvature(z)`: loss_i''(z_i), shape (n,), or (n, k, k) for moments of shape (n, k);
* `conjugate(g)`: sup_z <g_i, z> - loss_i(z), shape (n,), infinite outside `dual_domain`;
* `curvature_root(z)`: R with R R' = curvature, and `retract(z, step)`: z + step, kept inside the domain;
* `proximal(point, strength)`: the z_i that minimise strength_i loss_i(z) + |z - point_i|^2 / 2;
* `bregman(p, z)`: loss_i(p_i) - loss_i(z_i) - <slope(z)_i, p_i - z_i>, shape (n,), free of cancellation;
* `domain(z)` and `dual_domain(g)`: where value and conjugate are finite.

A loss of your own needs `value` only (subclass `Loss`, or wrap a function in `FunctionLoss`); JAX derives the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr, xlogy
from jaxtyping import Array, Bool, Float, Int

from ...base.arguments import invalid, positive, real_array, whole

Rows = Float[Array, "n"]
Moments = Float[Array, "n *k"]


def row_dot(a: Moments, b: Moments) -> Rows:
    """The inner product of each row of `a` with the same row of `b`; a plain product when rows are scalars."""
    return _row_sum(a * b)


def _row_sum(a: Moments) -> Rows:
    return jnp.sum(a.reshape(a.shape[0], -1), axis=1)


class Loss(eqx.Module):
    """A separable convex loss. Subclasses give `value`; everything else is derived unless they know better.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> class Quartic(ep.Loss):
    ...     def value(self, moments):
    ...         return moments**4 / 4
    >>> print(Quartic().slope(jnp.array([1.0, 2.0])), Quartic().curvature(jnp.array([1.0, 2.0])))
    [1. 8.] [ 3. 12.]
    """

    @abstractmethod
    def value(self, moments: Moments) -> Rows:
        """loss_i(z_i) for every row."""

    @property
    def data_shape(self) -> tuple[int, ...] | None:
        """The shape of moments that the loss's own data (targets) asks for; None when any shape will do."""
        return None

    def slope(self, moments: Moments) -> Moments:
        """loss_i'(z_i), like `moments`."""
        return jax.grad(lambda z: jnp.sum(self.value(z)))(moments)

    def curvature(self, moments: Moments) -> Float[Array, "n *kk"]:
        """loss_i''(z_i): (n,) for scalar rows, else one (k, k) matrix per row."""
        if moments.ndim == 1:
            return jax.jvp(self.slope, (moments,), (jnp.ones_like(moments),))[1]
        k = moments.shape[1]
        basis = jnp.broadcast_to(jnp.eye(k, dtype=moments.dtype)[:, None, :], (k, *moments.shape))
        columns = jax.vmap(lambda e: jax.jvp(self.slope, (moments,), (e,))[1])(basis)
        return jnp.moveaxis(columns, 0, -1)

    def conjugate(self, dual: Moments) -> Rows:
        """sup_z <g_i, z> - loss_i(z), by Newton's method from z = 0; infinite where no maximiser is found.

        The losses of this library override this by their closed forms.
        """
        return _newton_conjugate(self, dual)

    def bregman(self, moments: Moments, anchor: Moments) -> Rows:
        """loss_i(p_i) - loss_i(z_i) - <loss_i'(z_i), p_i - z_i> >= 0, for p = `moments` and z = `anchor`."""
        change = self.value(moments) - self.value(anchor)
        return jnp.maximum(change - row_dot(self.slope(anchor), moments - anchor), 0)

    def curvature_root(self, moments: Moments) -> Float[Array, "n *kk"]:
        """R with R R' = curvature, row by row: (n,), or (n, k, k)."""
        curvature = self.curvature(moments)
        if moments.ndim == 1:
            return jnp.sqrt(jnp.maximum(curvature, 0))
        values, vectors = jnp.linalg.eigh(curvature)
        return vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]

    def retract(self, moments: Moments, step: Moments) -> Moments:
        """moments + step, or something equal to it to first order that stays in the domain."""
        return moments + step

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        """The z_i that minimise strength_i loss_i(z) + |z - point_i|^2 / 2, by a damped Newton method.

        A loss with a domain of its own overrides this: the method starts at `point`.
        """
        return _newton_proximal(self, point, strength)

    def domain(self, moments: Moments) -> Bool[Array, "n"]:
        """Rows at which `value` is finite."""
        return jnp.ones(moments.shape[0], bool)

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        """Rows at which `conjugate` is finite."""
        return jnp.isfinite(self.conjugate(dual))


def _newton_conjugate(loss: Loss, dual: Moments, iterations: int = 200) -> Rows:
    """Maximise the concave <g, z> - loss(z) row by row: Newton directions, halved until they gain."""
    scalar = dual.ndim == 1
    eps = jnp.finfo(dual.dtype).eps

    def gain(z: Moments) -> Rows:
        objective = row_dot(dual, z) - loss.value(z)
        return jnp.where(jnp.isfinite(objective), objective, -jnp.inf)

    def body(_: Any, carry: tuple[Moments, Rows]) -> tuple[Moments, Rows]:
        z, scale = carry
        residual, curvature = dual - loss.slope(z), loss.curvature(z)
        if scalar:
            direction = residual / jnp.maximum(curvature, eps)
        else:
            ridge = eps * jnp.eye(dual.shape[1], dtype=dual.dtype)
            direction = jnp.linalg.solve(curvature + ridge[None], residual[..., None])[..., 0]
        # A flat loss makes Newton's step huge: never walk further than 10 at once.
        length = jnp.sqrt(row_dot(direction, direction))
        scale = scale * jnp.minimum(1, 10 / jnp.maximum(length, eps))
        step = direction * (scale if scalar else scale[:, None])
        better = gain(z + step) >= gain(z)
        z = jnp.where(better if scalar else better[:, None], z + step, z)
        return z, jnp.where(better, 1, scale / 2)

    start = jnp.zeros_like(dual), jnp.ones(dual.shape[0], dual.dtype)
    z, _ = jax.lax.fori_loop(0, iterations, body, start)
    residual = dual - loss.slope(z)
    solved = jnp.sqrt(row_dot(residual, residual)) <= 1e-3 * (1 + jnp.sqrt(row_dot(dual, dual)))
    return jnp.where(solved, gain(z), jnp.inf)


def _newton_proximal(loss: Loss, point: Moments, strength: Rows, iterations: int = 30) -> Moments:
    """Newton's method on z - point + strength loss'(z) = 0, row by row from z = point; each step is the best of eight halvings."""
    scalar = point.ndim == 1

    def spread(x: Array) -> Array:
        return x if scalar else x[:, None]

    def residual(z: Moments) -> Moments:
        return z - point + spread(strength) * loss.slope(z)

    def size(z: Moments) -> Rows:
        square = row_dot(residual(z), residual(z))
        return jnp.where(jnp.isfinite(square), square, jnp.inf)

    def body(_: Any, z: Moments) -> Moments:
        if scalar:
            direction = residual(z) / (1 + strength * loss.curvature(z))
        else:
            system = jnp.eye(point.shape[1], dtype=point.dtype)[None] + strength[
                :, None, None
            ] * loss.curvature(z)
            direction = jnp.linalg.solve(system, residual(z)[..., None])[..., 0]

        def halve(halvings: Any, carry: tuple[Moments, Rows]) -> tuple[Moments, Rows]:
            best, smallest = carry
            candidate = z - 0.5 ** jnp.asarray(halvings, point.dtype) * direction
            better = size(candidate) < smallest
            return jnp.where(spread(better), candidate, best), jnp.where(
                better, size(candidate), smallest
            )

        return jax.lax.fori_loop(0, 8, halve, (z, size(z)))[0]

    return jax.lax.fori_loop(0, iterations, body, point)


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


class Squared(Loss):
    """scale * |z - y|^2 / 2, summed over channels when y is (n, k)."""

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
        return self.scale / 2 * row_dot(moments - anchor, moments - anchor)

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        c = self.scale * (strength if point.ndim == 1 else strength[:, None])
        return (point + c * self.y) / (1 + c)

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        return jnp.ones(dual.shape[0], bool)


class Huber(Loss):
    """(z - y)^2 / 2 up to a distance `delta`, linear beyond: outliers pull no harder than that. Summed over channels."""

    y: Moments
    delta: float

    def __init__(self, y: object, delta: float = 1.35):
        self.y = real_array("Huber", "y", y, ndim=(1, 2))
        self.delta = positive("Huber", "delta", delta)

    @property
    def data_shape(self) -> tuple[int, ...]:
        return self.y.shape

    def value(self, moments: Moments) -> Rows:
        # With t the distance cut off at delta, both branches are t^2 / 2 + delta (distance - t).
        distance = jnp.abs(moments - self.y)
        inner = jnp.minimum(distance, self.delta)
        return _row_sum(inner**2 / 2 + self.delta * (distance - inner))

    def slope(self, moments: Moments) -> Moments:
        return jnp.clip(moments - self.y, -self.delta, self.delta)

    def curvature(self, moments: Moments) -> Float[Array, "n *kk"]:
        inside = (jnp.abs(moments - self.y) < self.delta).astype(moments.dtype)
        return inside if moments.ndim == 1 else jax.vmap(jnp.diag)(inside)

    def curvature_root(self, moments: Moments) -> Float[Array, "n *kk"]:
        return self.curvature(moments)

    def conjugate(self, dual: Moments) -> Rows:
        return jnp.where(
            self.dual_domain(dual), row_dot(dual, self.y) + row_dot(dual, dual) / 2, jnp.inf
        )

    def bregman(self, moments: Moments, anchor: Moments) -> Rows:
        # The integral of loss'(t) - loss'(z) from z to p: the slope's whole change over what lies beyond the clipped end, half of
        # it over the stretch on which it changes. No term is a difference of near numbers.
        start, end = (jnp.clip(z - self.y, -self.delta, self.delta) for z in (anchor, moments))
        beyond = (moments - self.y) - end
        return _row_sum((end - start) * ((end - start) / 2 + beyond))

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        c = strength if point.ndim == 1 else strength[:, None]
        a = point - self.y
        return self.y + jnp.where(
            jnp.abs(a) <= self.delta * (1 + c), a / (1 + c), a - c * self.delta * jnp.sign(a)
        )

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        return (jnp.abs(dual) <= self.delta).reshape(dual.shape[0], -1).all(axis=1)


class Logistic(Loss):
    """log(1 + exp(-y z)) for labels y in {-1, +1}. The dual lives where u = -y g is in [0, 1]."""

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
        return jax.nn.sigmoid(moments) * jax.nn.sigmoid(-moments)

    def conjugate(self, dual: Rows) -> Rows:
        u = -self.y * dual
        inside = jnp.clip(u, 0, 1)
        return jnp.where(self.dual_domain(dual), -entr(inside) - entr(1 - inside), jnp.inf)

    def bregman(self, moments: Rows, anchor: Rows) -> Rows:
        # softplus(a + t) - softplus(a) = log1p(sigmoid(a) expm1(t)): the leading terms cancel by hand, not in floats.
        a, t = -self.y * anchor, -self.y * (moments - anchor)
        u = jax.nn.sigmoid(a)
        small = jnp.abs(t) < 1
        near = jnp.log1p(u * jnp.expm1(jnp.where(small, t, 0)))
        far = jax.nn.softplus(a + t) - jax.nn.softplus(a)
        return jnp.maximum(jnp.where(small, near, far) - u * t, 0)

    def dual_domain(self, dual: Rows) -> Bool[Array, "n"]:
        u = -self.y * dual
        return (u >= 0) & (u <= 1)


class CrossEntropy(Loss):
    """-log softmax(z)[label] for labels 0..classes-1. The dual lives where g + e_label is in the simplex."""

    labels: Int[Array, "n"]
    classes: int = eqx.field(static=True)

    def __init__(self, labels: object, classes: int | None = None):
        values = np.asarray(real_array("CrossEntropy", "labels", labels, ndim=(1,)))
        if (values != np.round(values)).any() or (values < 0).any():
            wrong = values[(values != np.round(values)) | (values < 0)]
            raise invalid(
                "CrossEntropy", "labels", "whole numbers from 0 to classes - 1", float(wrong[0])
            )
        largest = int(values.max())
        self.classes = (
            max(largest + 1, 2)
            if classes is None
            else whole("CrossEntropy", "classes", classes, least=2)
        )
        if largest >= self.classes:
            raise invalid(
                "CrossEntropy",
                "labels",
                f"whole numbers from 0 to classes - 1 = {self.classes - 1}",
                largest,
            )
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
        p = jax.nn.softmax(moments, axis=1)
        return jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :]

    def curvature_root(self, moments: Float[Array, "n k"]) -> Float[Array, "n k k"]:
        root = jnp.sqrt(jax.nn.softmax(moments, axis=1))
        identity = jnp.eye(self.classes, dtype=moments.dtype)[None]
        return root[:, :, None] * (identity - root[:, :, None] * root[:, None, :])

    def conjugate(self, dual: Float[Array, "n k"]) -> Rows:
        p = jnp.maximum(dual + self._one_hot(dual.dtype), 0)
        return jnp.where(self.dual_domain(dual), jnp.sum(xlogy(p, p), axis=1), jnp.inf)

    def bregman(self, moments: Float[Array, "n k"], anchor: Float[Array, "n k"]) -> Rows:
        # As in Logistic: log sum_k p_k e^{t_k} = log1p(sum_k p_k expm1(t_k)).
        p, t = jax.nn.softmax(anchor, axis=1), moments - anchor
        t = t - jnp.sum(p * t, axis=1, keepdims=True)
        small = jnp.max(jnp.abs(t), axis=1) < 1
        near = jnp.log1p(jnp.sum(p * jnp.expm1(jnp.where(small[:, None], t, 0)), axis=1))
        return jnp.maximum(jnp.where(small, near, jax.nn.logsumexp(t, axis=1, b=p)), 0)

    def dual_domain(self, dual: Float[Array, "n k"]) -> Bool[Array, "n"]:
        p = dual + self._one_hot(dual.dtype)
        slack = 8 * self.classes * jnp.finfo(dual.dtype).eps
        return (p >= -slack).all(axis=1) & (jnp.abs(jnp.sum(p, axis=1) - 1) <= slack)


FALL = 1.1
"""By how much a density may fall in one step of `NegLog`, as a factor."""


class NegLog(Loss):
    """-log z, for densities: the negative log-likelihood. Moments are positive, duals negative."""

    def value(self, moments: Rows) -> Rows:
        return jnp.where(self.domain(moments), -jnp.log(moments), jnp.inf)

    def slope(self, moments: Rows) -> Rows:
        return -1 / moments

    def curvature(self, moments: Rows) -> Rows:
        return 1 / moments**2

    def conjugate(self, dual: Rows) -> Rows:
        inside = self.dual_domain(dual)
        return jnp.where(inside, -1 - jnp.log(jnp.where(inside, -dual, 1)), jnp.inf)

    def bregman(self, moments: Rows, anchor: Rows) -> Rows:
        # log1p keeps the digits of a ratio near one, log those of a ratio near zero.
        relative = (moments - anchor) / anchor
        near = jnp.log1p(jnp.maximum(relative, -0.5))
        return jnp.maximum(
            relative - jnp.where(relative > -0.5, near, jnp.log(moments / anchor)), 0
        )

    def retract(self, moments: Rows, step: Rows) -> Rows:
        # H^2 / (H - D) = H + D + O(D^2) is positive however long a step down may be. It is cut short at H / FALL: a row with no
        # particle nearby seems to have no density at all; its pull 1/H would double, and an iteration later draw all mass there.
        down = jnp.minimum(step, 0)
        return jnp.where(
            step >= 0, moments + step, jnp.maximum(moments**2 / (moments - down), moments / FALL)
        )

    def proximal(self, point: Rows, strength: Rows) -> Rows:
        # z - c/z = a; for negative a the root is written without the difference of two near numbers.
        root = jnp.sqrt(point**2 + 4 * strength)
        return jnp.where(
            point >= 0, (point + root) / 2, 2 * strength / (root - jnp.minimum(point, 0))
        )

    def domain(self, moments: Rows) -> Bool[Array, "n"]:
        return moments > 0

    def dual_domain(self, dual: Rows) -> Bool[Array, "n"]:
        return dual < 0
