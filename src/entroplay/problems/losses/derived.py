"""Newton methods that derive the conjugate and the proximal map of a loss from its `value`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...base.arguments import per_row
from .base import Loss, Moments, Rows, row_dot

CONJUGATE_ITERATIONS = 200
"""Number of Newton iterations for the conjugate."""
LONGEST_STEP = 10
"""Maximum length of one Newton step. Where a loss is nearly flat, the full step is huge."""
SOLVED = 1e-3
"""Maximum relative residual g - loss'(z) at which the conjugate's maximiser counts as found."""
PROXIMAL_ITERATIONS = 30
"""Number of Newton iterations for the proximal map."""
HALVINGS = 8
"""Number of step lengths 1, 1/2, 1/4, ... that each iteration of the proximal map tries."""


def newton_conjugate(loss: Loss, dual: Moments) -> Rows:
    """sup_z <g_i, z> - loss_i(z) for every row; infinite where no maximiser is found.

    Every row takes its own Newton steps from z = 0. A row's step is halved until it gains.
    """
    eps = jnp.finfo(dual.dtype).eps

    def gain(z: Moments) -> Rows:
        objective = row_dot(dual, z) - loss.value(z)
        return jnp.where(jnp.isfinite(objective), objective, -jnp.inf)

    def body(_: Any, carry: tuple[Moments, Rows]) -> tuple[Moments, Rows]:
        z, scale = carry
        # Newton's direction on the stationarity condition g = loss'(z).
        residual, curvature = dual - loss.slope(z), loss.curvature(z)
        if dual.ndim == 1:
            direction = residual / jnp.maximum(curvature, eps)
        else:
            ridge = eps * jnp.eye(dual.shape[1], dtype=dual.dtype)
            direction = jnp.linalg.solve(curvature + ridge[None], residual[..., None])[..., 0]
        length = jnp.sqrt(row_dot(direction, direction))
        scale = scale * jnp.minimum(1, LONGEST_STEP / jnp.maximum(length, eps))
        step = direction * per_row(scale, dual)
        # A rejected step is halved for the next iteration; after an accepted one the full step is
        # tried again.
        better = gain(z + step) >= gain(z)
        z = jnp.where(per_row(better, dual), z + step, z)
        return z, jnp.where(better, 1, scale / 2)

    start = jnp.zeros_like(dual), jnp.ones(dual.shape[0], dual.dtype)
    z, _ = jax.lax.fori_loop(0, CONJUGATE_ITERATIONS, body, start)
    # Outside the dual domain z runs off to infinity and the residual does not vanish.
    residual = dual - loss.slope(z)
    size, scale = jnp.sqrt(row_dot(residual, residual)), 1 + jnp.sqrt(row_dot(dual, dual))
    return jnp.where(size <= SOLVED * scale, gain(z), jnp.inf)


def newton_proximal(loss: Loss, point: Moments, strength: Rows) -> Moments:
    """The z_i that minimise strength_i loss_i(z) + |z - point_i|^2 / 2.

    Newton's method on z - point + strength loss'(z) = 0, row by row from z = point. Every step has
    the length, among `HALVINGS` halvings, that leaves the smallest residual.
    """

    def residual(z: Moments) -> Moments:
        return z - point + per_row(strength, point) * loss.slope(z)

    def size(z: Moments) -> Rows:
        square = row_dot(residual(z), residual(z))
        return jnp.where(jnp.isfinite(square), square, jnp.inf)

    def newton_direction(z: Moments) -> Moments:
        """Solve (1 + strength loss''(z)) direction = residual."""
        curvature = loss.curvature(z)
        if point.ndim == 1:
            return residual(z) / (1 + strength * curvature)
        identity = jnp.eye(point.shape[1], dtype=point.dtype)[None]
        system = identity + per_row(strength, curvature) * curvature
        return jnp.linalg.solve(system, residual(z)[..., None])[..., 0]

    def body(_: Any, z: Moments) -> Moments:
        direction = newton_direction(z)

        def halve(halvings: Any, carry: tuple[Moments, Rows]) -> tuple[Moments, Rows]:
            best, smallest = carry
            candidate: Array = z - 0.5 ** jnp.asarray(halvings, point.dtype) * direction
            reached = size(candidate)
            better = reached < smallest
            best = jnp.where(per_row(better, point), candidate, best)
            return best, jnp.where(better, reached, smallest)

        # Starting from z itself makes sure that no step increases the residual.
        return jax.lax.fori_loop(0, HALVINGS, halve, (z, size(z)))[0]

    return jax.lax.fori_loop(0, PROXIMAL_ITERATIONS, body, point)
