r"""The dual problem on a weighted cloud, solved to convergence.

Draws theta_r of a measure q_0 carry base weights b_r, proportional to the density of the prior
against q_0. On them the dual of eq. (11), for beta times the loss, becomes a finite problem,

    D_b(g) = -sum_i w_i conj_i(g_i) - (T/beta) log( (1/m) sum_r b_r exp(-(beta/T) <g, h_r>_w) ).

It is concave and smooth. Its gradient is w_i (P_i - conj_i'(g_i)), where P is the mean of h under
p_r proportional to b_r exp(-(beta/T) <g, h_r>_w). With g = loss'(H) the conjugate is
<g, H> - loss(H), its derivative is H, and Newton's direction in H solves (I + beta J) D = P - H:
see `newton_system`. A line search on D_b itself makes every step an improvement.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..problems.features.base import Moments
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum
from .cloud import SeenCloud
from .newton_system import newton_system

MOST_STEPS = 30
"""Maximum number of Newton steps; from a warm start two to seven are usual."""
MOST_HALVINGS = 25
"""Maximum number of times that the line search halves a step."""
PRECISION = 1e-4
"""Newton's decrement at which the solve has converged, in units of T/beta times d_eff/m: what the
sampling noise of the cloud costs. Newton's method converges quadratically, so that the last step is
far below."""
DESCENT = 1e-3
"""Fraction of the increase predicted by the gradient that a step must achieve (Armijo's rule)."""
ROUNDING = 8
"""Increases that are this many units of rounding below zero count as zero."""


class Point(NamedTuple):
    """Moments H, with everything that the cloud says at g = loss'(H)."""

    moments: Moments
    value: Float[Array, ""]
    """D_b(g)."""
    scale: Float[Array, ""]
    """Sum of the absolute values of the terms of D_b, which bounds its rounding error."""
    log_weights: Float[Array, "m"]
    """log p, normalised."""
    mean: Moments
    """P, the mean of h under p."""


class Solved(NamedTuple):
    """The dual's maximum on the cloud."""

    point: Point
    effective_share: Float[Array, ""]
    """Effective sample size of p, as a fraction of the cloud."""
    d_eff: Float[Array, ""]
    """tr S, the effective number of degrees of freedom."""
    blocks: Float[Array, "n *kk"]
    """Diagonal blocks of the influence matrix S."""
    steps: Int[Array, ""]
    products: Int[Array, ""]
    decrement: Float[Array, ""]
    """The square of Newton's decrement: twice the increase of D_b that was left."""


def maximise_on_cloud(
    problem: FiniteSum,
    cloud: SeenCloud,
    log_base: Float[Array, "m"],
    beta: Array | float,
    moments: Moments,
) -> Solved:
    """Maximise D_b from g = loss'(moments) by Newton's method with a line search."""
    m = cloud.particles.shape[0]
    unit = problem.temperature / jnp.maximum(jnp.asarray(beta, problem.dtype), 1e-30)
    tolerance = PRECISION * unit / m
    log_base = log_base - jax.nn.logsumexp(log_base) + jnp.log(m)

    def at(moments: Moments) -> Point:
        """D_b and the weights at g = loss'(moments)."""
        dual = problem.slope(moments)
        exponent = log_base - cloud.potential(problem.weigh(dual)) / unit
        total = jax.nn.logsumexp(exponent)
        # -conj(g) = loss(H) - <g, H>, since g = loss'(H).
        losses, products = problem.loss.value(moments), row_dot(dual, moments)
        entropic = unit * (total - jnp.log(m))
        log_weights = exponent - total
        size = problem.weights @ (jnp.abs(losses) + jnp.abs(products)) + jnp.abs(entropic)
        value = problem.weights @ (losses - products) - entropic
        return Point(moments, value, size, log_weights, cloud.average(jnp.exp(log_weights)))

    def search(now: Point, direction: Moments, decrement: Array, slack: Array) -> tuple:
        """The longest halved step that achieves enough, whether there is one, and the tries."""

        def attempt(length: Array) -> Point:
            return at(problem.loss.extrapolate(now.moments, length * direction))

        def enough(trial: Point, length: Array) -> Array:
            gained = trial.value - now.value + slack >= DESCENT * length * decrement
            return gained & jnp.all(jnp.isfinite(trial.mean))

        def shorten(carry: tuple) -> tuple:
            _, length, tries = carry
            return attempt(length / 2), length / 2, tries + 1

        one = jnp.ones((), problem.dtype)
        trial, length, tries = jax.lax.while_loop(
            lambda s: ~enough(s[0], s[1]) & (s[2] < MOST_HALVINGS),
            shorten,
            (attempt(one), one, jnp.ones((), jnp.int32)),
        )
        better = enough(trial, length)
        kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), trial, now)
        return kept, better, 2 * tries

    def newton(carry: _Carry) -> _Carry:
        """A Newton step or, where nothing is left to gain, the influence matrix."""
        now = carry.point
        system = newton_system(problem, cloud, now.moments, beta, jnp.exp(now.log_weights))
        residual = now.mean - now.moments
        direction, y, count = system.solve(residual)
        decrement = jnp.sum(row_dot(system.times_transpose(residual), y))
        # Once the predicted increase is lost in rounding there is nothing left to gain.
        slack = ROUNDING * jnp.finfo(problem.dtype).eps * now.scale
        last = ~carry.better | (decrement <= jnp.maximum(tolerance, slack))
        last = last | (carry.steps + 1 >= MOST_STEPS)
        d_eff, blocks = jax.lax.cond(
            last, lambda: system.influence(), lambda: (carry.d_eff, carry.blocks)
        )
        point, better, more = jax.lax.cond(
            last,
            lambda: (now, jnp.asarray(True), jnp.zeros((), jnp.int32)),
            lambda: search(now, direction, decrement, slack),
        )
        products = carry.products + count + more
        return _Carry(point, better, ~last, d_eff, blocks, carry.steps + 1, products, decrement)

    zero, none = jnp.zeros((), jnp.int32), jnp.zeros((), problem.dtype)
    curvature = jnp.zeros_like(problem.loss.curvature(moments))
    yes = jnp.asarray(True)
    begin = _Carry(at(moments), yes, yes, none, curvature, zero, zero, none)
    end = jax.lax.while_loop(lambda carry: carry.going, newton, begin)
    share = 1 / (m * jnp.sum(jnp.exp(2 * end.point.log_weights)))
    return Solved(end.point, share, end.d_eff, end.blocks, end.steps, end.products, end.decrement)


class _Carry(NamedTuple):
    """What Newton's method carries from step to step."""

    point: Point
    better: Array
    """Whether the last line search succeeded."""
    going: Array
    d_eff: Array
    blocks: Array
    steps: Array
    products: Array
    decrement: Array
