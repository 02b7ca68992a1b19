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
from .newton_base import NewtonSystem
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
SMALLEST_BETA = 1e-30
"""Stands for beta = 0 where beta divides."""
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


class CloudDual(NamedTuple):
    """D_b on a cloud, for beta times the loss."""

    problem: FiniteSum
    cloud: SeenCloud
    log_base: Float[Array, "m"]
    """log b, with mean one of b."""
    beta: Float[Array, ""]

    @property
    def unit(self) -> Float[Array, ""]:
        """T / beta; enormous at the prior, where beta is zero and D_b constant."""
        return self.problem.temperature / jnp.maximum(self.beta, SMALLEST_BETA)

    def at(self, moments: Moments) -> Point:
        """D_b and the weights at g = loss'(moments)."""
        problem, m = self.problem, self.log_base.shape[0]
        dual = problem.slope(moments)
        exponent = self.log_base - self.cloud.potential(problem.weigh(dual)) / self.unit
        total = _log_sum_exp(exponent)
        # -conj(g) = loss(H) - <g, H>, since g = loss'(H).
        losses, products = problem.loss.value(moments), row_dot(dual, moments)
        entropic = self.unit * (total - jnp.log(m))
        log_weights = exponent - total
        return Point(
            moments,
            value=problem.weights @ (losses - products) - entropic,
            scale=problem.weights @ (jnp.abs(losses) + jnp.abs(products)) + jnp.abs(entropic),
            log_weights=log_weights,
            mean=self.cloud.average(jnp.exp(log_weights)),
        )

    def search(
        self, now: Point, direction: Moments, decrement: Array, slack: Array
    ) -> tuple[Point, Array, Array]:
        """The longest of the halved steps that achieves enough; whether there is one; products."""

        def going(carry: tuple[Point, Array, Array, Array]) -> Array:
            _, better, _, tries = carry
            return ~better & (tries <= MOST_HALVINGS)

        def attempt(carry: tuple[Point, Array, Array, Array]) -> tuple[Point, Array, Array, Array]:
            _, _, length, tries = carry
            trial = self.at(self.problem.loss.extrapolate(now.moments, length * direction))
            gained = trial.value - now.value + slack >= DESCENT * length * decrement
            better = gained & jnp.all(jnp.isfinite(trial.mean))
            return trial, better, length / 2, tries + 1

        # The whole step is an attempt like all others: the program contains D_b once.
        one, none = jnp.ones((), self.problem.dtype), jnp.zeros((), jnp.int32)
        begin = (now, jnp.asarray(False), one, none)
        trial, better, _, tries = jax.lax.while_loop(going, attempt, begin)
        kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), trial, now)
        return kept, better, 2 * tries


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


class _Limits(NamedTuple):
    """When Newton's method ends, and whether it forms matrices: see `maximise_on_cloud`."""

    tolerance: Array | float
    most_steps: Array | int
    by_products: bool
    influence: Array | bool


def maximise_on_cloud(
    problem: FiniteSum,
    cloud: SeenCloud,
    log_base: Float[Array, "m"],
    beta: Array | float,
    moments: Moments,
    *,
    tolerance: Array | float | None = None,
    most_steps: Array | int | None = None,
    by_products: bool = False,
    influence: Array | bool = True,
) -> Solved:
    """Maximise D_b from g = loss'(moments) by Newton's method with a line search.

    Args:
        problem: rows, loss and temperature.
        cloud: the points; those with log_base = -inf do not count.
        log_base: log b, up to a constant.
        beta: factor of the loss.
        moments: the start.
        tolerance: Newton's decrement at which the solve has converged, by default that of
            `PRECISION`.
        most_steps: maximum number of passes, the last of which does not step. By default
            `MOST_STEPS`.
        by_products: form no matrix but the features. The influence matrix is then left out, and
            `d_eff` and `blocks` are NaN.
        influence: whether the influence matrix is wanted. If not, `blocks` may be NaN where they
            would have to be estimated, and `d_eff` is less precise there.
    """
    m = cloud.particles.shape[0]
    cloud = cloud if by_products else cloud.with_inner_products(problem)
    log_base = log_base - _log_sum_exp(log_base) + jnp.log(m)
    dual = CloudDual(problem, cloud, log_base, jnp.asarray(beta, problem.dtype))
    limits = _Limits(
        PRECISION * dual.unit / m if tolerance is None else tolerance,
        MOST_STEPS if most_steps is None else most_steps,
        by_products,
        influence,
    )
    zero, none, yes = jnp.zeros((), jnp.int32), jnp.zeros((), problem.dtype), jnp.asarray(True)
    unknown = jnp.full_like(none, jnp.nan)
    blocks = jnp.full_like(problem.loss.curvature(moments), jnp.nan)
    begin = _Carry(dual.at(moments), yes, yes, unknown, blocks, zero, zero, none)
    end = jax.lax.while_loop(
        lambda carry: carry.going, lambda carry: _newton(dual, carry, limits), begin
    )
    share = 1 / (m * jnp.sum(jnp.exp(2 * end.point.log_weights)))
    return Solved(end.point, share, end.d_eff, end.blocks, end.steps, end.products, end.decrement)


def _newton(dual: CloudDual, carry: _Carry, limits: _Limits) -> _Carry:
    """A Newton step or, where nothing is left to gain, the influence matrix."""
    problem, now = dual.problem, carry.point
    weights = jnp.exp(now.log_weights)
    system = newton_system(
        problem, dual.cloud, now.moments, dual.beta, weights, direct=not limits.by_products
    )
    residual = now.mean - now.moments
    direction, y, count = system.solve(residual)
    decrement = jnp.sum(row_dot(system.times_transpose(residual), y))
    # Once the predicted increase is lost in rounding there is nothing left to gain.
    slack = ROUNDING * jnp.finfo(problem.dtype).eps * now.scale
    last = ~carry.better | (decrement <= jnp.maximum(limits.tolerance, slack))
    last = last | (carry.steps + 1 >= limits.most_steps)
    d_eff, blocks = carry.d_eff, carry.blocks
    if not limits.by_products:
        # The last pass does not step but computes S: the program contains one system only.
        d_eff, blocks = _influence(system, last, limits.influence, (d_eff, blocks))
    point, better, more = jax.lax.cond(
        last,
        lambda: (now, jnp.asarray(True), jnp.zeros((), jnp.int32)),
        lambda: dual.search(now, direction, decrement, slack),
    )
    products = carry.products + count + more
    return _Carry(point, better, ~last, d_eff, blocks, carry.steps + 1, products, decrement)


def _influence(
    system: NewtonSystem, last: Array, wanted: Array | bool, before: tuple[Array, Array]
) -> tuple[Array, Array]:
    """tr S and the diagonal blocks of S in the last pass, the trace alone if no more is wanted."""
    if not system.trace_is_cheaper:
        return jax.lax.cond(last, lambda: system.influence(), lambda: before)
    case = jnp.where(last, jnp.where(wanted, 2, 1), 0)
    cases = (lambda: before, lambda: (system.degrees(), before[1]), lambda: system.influence())
    return jax.lax.switch(case, cases)


def _log_sum_exp(exponents: Float[Array, "m"]) -> Float[Array, ""]:
    """log sum exp. JAX's function compiles twice as long: it allows that all are infinite."""
    top = jnp.max(exponents)
    return jnp.log(jnp.sum(jnp.exp(exponents - top))) + top
