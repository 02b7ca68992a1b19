"""Conjugate gradients for linear systems over the rows of a problem."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..problems.features.base import Moments
from ..problems.losses.base import row_dot


def conjugate_gradients(
    operator: Callable[[Moments], Moments],
    right: Moments,
    weights: Float[Array, "n"],
    *,
    iterations: int,
    tolerance: float,
    of_solution: bool = False,
    preconditioner: Callable[[Moments], Moments] = lambda residual: residual,
) -> tuple[Moments, Int[Array, ""]]:
    """Solve operator(x) = right; returns x and the number of products with the operator.

    Args:
        operator: positive definite, and self-adjoint in <x, y> = sum_i weights_i <x_i, y_i>.
        right: the right-hand side.
        weights: the weights of the inner product.
        iterations: maximum number of products.
        tolerance: the norm of the residual, relative to that of `right`, at which to stop.
        of_solution: make the tolerance relative to the norm of x instead.
        preconditioner: an approximate inverse of the operator, self-adjoint and positive. The norm
            of the residual r is then sqrt(<r, preconditioner(r)>).
    """

    def dot(x: Moments, y: Moments) -> Array:
        return weights @ row_dot(x, y)

    # The carry holds the count, x, the residual r = right - operator(x), the search direction p
    # and <r, z> with the preconditioned residual z.
    def going(carry: tuple[Array, ...]) -> Array:
        count, x, _, _, rr = carry
        return (count < iterations) & (rr > (tolerance**2 * dot(x, x) if of_solution else goal))

    def body(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        count, x, r, p, rr = carry
        image = operator(p)
        alpha = rr / dot(p, image)
        x, r = x + alpha * p, r - alpha * image
        z = preconditioner(r)
        new = dot(r, z)
        return count + 1, x, r, z + new / rr * p, new

    z = preconditioner(right)
    first = dot(right, z)
    goal = tolerance**2 * first
    start = (jnp.zeros((), jnp.int32), jnp.zeros_like(right), right, z, first)
    count, x, _, _, _ = jax.lax.while_loop(going, body, start)
    return x, count
