r"""The contract of a loss: a convex function of the moments, one value per row.

A loss acts on `moments` of shape (n,) or (n, k), row by row, and offers

* `value(z)`: loss_i(z_i), shape (n,);
* `slope(z)`: loss_i'(z_i), shaped like `z`: the dual vector that belongs to the moments `z`;
* `curvature(z)`: loss_i''(z_i), shape (n,), or (n, k, k) for moments of shape (n, k);
* `conjugate(g)`: sup_z <g_i, z> - loss_i(z), shape (n,), infinite outside `dual_domain`;
* `curvature_root(z)`: R with R R' = curvature;
* `extrapolate(z, step)` and `retract(z, step)`: z + step, kept inside the domain; the second is
  for the steps of an iteration, which should not be too long;
* `proximal(point, strength)`: the z_i that minimise strength_i loss_i(z) + |z - point_i|^2 / 2;
* `infimum(like, bounds)`: numbers below loss_i for all moments between the bounds, shape (n,);
* `bregman(p, z)`: loss_i(p_i) - loss_i(z_i) - <slope(z)_i, p_i - z_i>, shape (n,), computed
  without cancellation by the losses of this library;
* `domain(z)` and `dual_domain(g)`: the rows at which value and conjugate are finite;
* `quadratic`: whether the curvature is one number for all rows and moments;
* `saturates`: whether value, slope and curvature tend to zero as moments go to infinity.

A new loss needs only `value` (subclass `Loss`, or wrap a function in `FunctionLoss`): JAX and the
Newton methods of `derived` supply the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Rows = Float[Array, "n"]
Moments = Float[Array, "n *k"]


def row_dot(a: Moments, b: Moments) -> Rows:
    """The inner product of each row of `a` with the same row of `b`.

    Where rows are scalars this is the plain product.
    """
    return row_sum(a * b)


def row_sum(a: Moments) -> Rows:
    """The sum over the channels of each row."""
    return jnp.sum(a.reshape(a.shape[0], -1), axis=1)


class Loss(eqx.Module):
    """A separable convex loss. Subclasses define `value` and may override what is derived from it.

    >>> import jax.numpy as jnp, entroplay as ep
    >>> class Quartic(ep.Loss):
    ...     def value(self, moments):
    ...         return moments**4 / 4
    >>> print(Quartic().slope(jnp.array([1.0, 2.0])), Quartic().curvature(jnp.array([1.0, 2.0])))
    [1. 8.] [ 3. 12.]
    """

    quadratic: ClassVar[bool] = False
    """Whether the curvature is the same at all moments, and a multiple of the identity."""
    saturates: ClassVar[bool] = False
    """Whether value, slope and curvature tend to zero as moments go to infinity in some direction:
    rows that are fitted closely then no longer count."""

    @abstractmethod
    def value(self, moments: Moments) -> Rows:
        """loss_i(z_i) for every row."""

    @property
    def data_shape(self) -> tuple[int, ...] | None:
        """The shape of moments that the loss's targets require; None if any shape will do."""
        return None

    def slope(self, moments: Moments) -> Moments:
        """loss_i'(z_i), shaped like `moments`."""
        # Rows do not interact, so the gradient of the sum holds the derivative of every term.
        return jax.grad(lambda z: jnp.sum(self.value(z)))(moments)

    def curvature(self, moments: Moments) -> Float[Array, "n *kk"]:
        """loss_i''(z_i): (n,) for scalar rows, otherwise one (k, k) matrix per row."""
        if moments.ndim == 1:
            return jax.jvp(self.slope, (moments,), (jnp.ones_like(moments),))[1]
        # One forward derivative of the slope per channel: column e of every row's matrix at once.
        k = moments.shape[1]
        basis = jnp.broadcast_to(jnp.eye(k, dtype=moments.dtype)[:, None, :], (k, *moments.shape))
        columns = jax.vmap(lambda e: jax.jvp(self.slope, (moments,), (e,))[1])(basis)
        return jnp.moveaxis(columns, 0, -1)

    def conjugate(self, dual: Moments) -> Rows:
        """sup_z <g_i, z> - loss_i(z), by Newton's method from z = 0; infinite if that fails.

        This is the loss_i* of the dual problem, eq. (11). The losses of this library override it
        with their closed forms.
        """
        # Imported here and in `proximal` because `derived` is written in terms of `Loss`.
        from .derived import newton_conjugate

        return newton_conjugate(self, dual)

    def infimum(self, like: Moments, bounds: tuple[float, float]) -> Rows:
        """A number below loss_i for all moments between the bounds, row by row.

        It is -conj_i(0) for losses that have their own conjugate. The derived conjugate may stop
        short of the supremum, so that other losses have no such number: minus infinity.
        """
        if type(self).conjugate is Loss.conjugate:
            return jnp.full(like.shape[0], -jnp.inf, like.dtype)
        return -self.conjugate(jnp.zeros_like(like))

    def bregman(self, moments: Moments, anchor: Moments) -> Rows:
        """loss_i(p_i) - loss_i(z_i) - <loss_i'(z_i), p_i - z_i> >= 0.

        Here p is `moments` and z is `anchor`.
        """
        change = self.value(moments) - self.value(anchor)
        return jnp.maximum(change - row_dot(self.slope(anchor), moments - anchor), 0)

    def curvature_root(self, moments: Moments) -> Float[Array, "n *kk"]:
        """R with R R' = curvature, row by row: (n,), or (n, k, k)."""
        curvature = self.curvature(moments)
        if moments.ndim == 1:
            return jnp.sqrt(jnp.maximum(curvature, 0))
        # R = V sqrt(D) for the eigendecomposition V D V'; rounding may leave D slightly negative.
        values, vectors = jnp.linalg.eigh(curvature)
        return vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]

    def extrapolate(self, moments: Moments, step: Moments) -> Moments:
        """moments + step, or a point of the domain that equals it to first order."""
        return moments + step

    def retract(self, moments: Moments, step: Moments) -> Moments:
        """`extrapolate`, cut off where an iteration should not go further in one step."""
        return self.extrapolate(moments, step)

    def proximal(self, point: Moments, strength: Rows) -> Moments:
        """The z_i that minimise strength_i loss_i(z) + |z - point_i|^2 / 2, by damped Newton.

        The method starts at `point`, so a loss that is not finite everywhere must override this.
        """
        from .derived import newton_proximal

        return newton_proximal(self, point, strength)

    def domain(self, moments: Moments) -> Bool[Array, "n"]:
        """Rows at which `value` is finite."""
        return jnp.ones(moments.shape[0], bool)

    def dual_domain(self, dual: Moments) -> Bool[Array, "n"]:
        """Rows at which `conjugate` is finite."""
        return jnp.isfinite(self.conjugate(dual))
