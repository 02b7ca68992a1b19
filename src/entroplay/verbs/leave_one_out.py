"""`leave_one_out`: the loss at rows that the fit did not see, without fitting again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..base.arguments import invalid
from ..base.compilation import compiled, traced
from ..measures.cloud import SeenCloud
from ..measures.cloud_dual import maximise_on_cloud
from ..measures.influence import left_out_moments
from ..problems.features.base import Moments, Particles
from ..problems.losses import Loss
from ..problems.problem import FiniteSum
from ..runs.solution import Solution

HONEST = 0.4
"""Effective degrees of freedom per row up to which leave-one-out losses are close to those at new
rows. The formula keeps the particles where they are; in truth they follow the data, which matters
once they can follow single rows. At 0.4 we measured no optimism, at 0.6 and more a clear one."""
RISE = (1 - HONEST) ** -2
"""Leave-one-out losses, in units of the training loss, up to which those of labels are believed.

Where labels are fitted closely the curvature vanishes, and with it the degrees of freedom: they no
longer show that single rows are followed. This factor is that of a squared loss with `HONEST`
degrees per row, whose residuals are those of the fit divided by 1 - HONEST. On four tables of
labels, losses within it were close to those at new rows; at 5 and more they fell where those at new
rows rose, to a sixth of them."""
WELL_DETERMINED = 3.0
"""Particles per effective degree of freedom below which the influence of rows is mostly noise."""


class OptimisticWarning(UserWarning):
    """A leave-one-out loss is lower than the loss at new rows would be."""


@dataclass(frozen=True)
class LeaveOneOut:
    """What `leave_one_out` returns.

    Attributes:
        loss: sum_i w_i loss_i(H_i^{-i}), an estimate of the mean loss at new rows.
        error: the standard error of `loss`, from the spread over the rows.
        losses: (n,), the loss of every row at the moment it would have without itself.
        moments: (n,) or (n, k), those moments H^{-i}.
        d_eff: the effective number of degrees of freedom.
        per_row: `d_eff` divided by the number of rows and channels.
        rise: `loss` divided by the loss at the fitted moments, for losses that saturate; else one.
        temperature: the temperature to which all this belongs: that of the problem, or a higher one
            if the run ended there.
        particles: the size of the cloud.
    """

    loss: float
    error: float
    losses: np.ndarray
    moments: np.ndarray
    d_eff: float
    per_row: float
    rise: float
    temperature: float
    particles: int

    @property
    def too_optimistic(self) -> str:
        """Why the loss is too low; empty if it is not known to be."""
        return optimism(self.d_eff, self.per_row, self.particles, self.rise)

    def __str__(self) -> str:
        text = f"leave-one-out loss {self.loss:.4g} +- {self.error:.2g}, {self.d_eff:.1f} effective"
        text += f" degrees of freedom at temperature {self.temperature:.3g}"
        return text + (f"; {self.too_optimistic}" if self.too_optimistic else "")

    __repr__ = __str__


def optimism(d_eff: float, per_row: float, particles: int, rise: float) -> str:
    """Why a leave-one-out loss is too low; empty if it is not."""
    if per_row > HONEST:
        return (
            f"too optimistic: {d_eff:.0f} effective degrees of freedom are {per_row:.0%} of the "
            "data, and particles follow single rows. Use rows that were held out, or a higher "
            "temperature."
        )
    if rise > RISE:
        return (
            f"too optimistic: it is {rise:.1f} times the training loss, and particles follow "
            "single rows. Use rows that were held out, or a higher temperature."
        )
    if particles < WELL_DETERMINED * d_eff:
        return (
            f"not determined: {particles} particles for {d_eff:.0f} effective degrees of freedom. "
            "Use more particles."
        )
    return ""


def rise_of(loss: Loss, left_out: float, fitted: float) -> float:
    """A leave-one-out loss in units of the training loss, where this tells if it is believed."""
    return left_out / fitted if loss.saturates and fitted > 0 else 1.0


def leave_one_out(solution: object) -> LeaveOneOut:
    """The loss of every row at the moment it would have if it had been left out of the fit.

    The dual is solved once more on the solution's particles, and the influence of every row on its
    own moment follows from that solve: no problem is solved again without a row. Exact to first
    order in a row's weight, for every loss. Where the fit is so flexible that the result is known
    to be too optimistic, an `OptimisticWarning` says so, and `too_optimistic` says why.

    >>> import numpy as np, entroplay as ep
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> features, loss = ep.Neurons(X, bias=True), ep.Squared(np.sin(3 * X[:, 0]))
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, particles=500, iterations=20)
    >>> bool(ep.leave_one_out(solution).loss > problem.empirical_loss(solution.moments))
    True
    """
    result = judged_rows(solution)
    if result.too_optimistic:
        warnings.warn(
            f"The leave-one-out loss is {result.too_optimistic}", OptimisticWarning, stacklevel=2
        )
    return result


def judged_rows(solution: object) -> LeaveOneOut:
    """`leave_one_out` without its warning."""
    if not isinstance(solution, Solution):
        raise invalid("leave_one_out", "solution", "a Solution", solution)
    problem = solution.problem
    problem.needs_rows("leave_one_out")
    # A run that ended above the problem's temperature followed a fraction beta of the loss.
    betas = solution.history.get("beta", np.ones(1))
    beta = float(betas[-1]) if len(betas) and betas[-1] > 0 else 1.0
    with problem.arithmetic():
        moments, fitted, d_eff = _left_out(
            traced(problem),
            solution.particles,
            solution.moments,
            jnp.asarray(beta, problem.dtype),
        )
        losses = np.asarray(problem.loss.value(moments), np.float64)
        fitted = float(fitted)
    weights = np.asarray(problem.weights, np.float64)
    loss = float(weights @ np.where(weights > 0, losses, 0))
    spread = weights @ np.where(weights > 0, losses - loss, 0) ** 2
    rows = int((weights > 0).sum())
    return LeaveOneOut(
        loss=loss,
        error=float(np.sqrt(spread * (weights**2).sum())),
        losses=losses,
        moments=np.asarray(moments),
        d_eff=float(d_eff),
        per_row=float(d_eff) / (rows * int(np.prod(problem.features.channels))),
        rise=rise_of(problem.loss, loss, fitted),
        temperature=problem.temperature / beta,
        particles=solution.particles.shape[0],
    )


@compiled
def _left_out(
    problem: FiniteSum, particles: Particles, moments: Moments, beta: Float[Array, ""]
) -> tuple[Moments, Float[Array, ""], Float[Array, ""]]:
    """The moments without each row, the training loss and d_eff, from one more solve."""
    cloud = SeenCloud.of(problem.features, particles)
    # The particles follow q_{beta g}: base weights turn them into draws of the prior.
    potential = cloud.potential(problem.weigh(problem.slope(moments)))
    solved = maximise_on_cloud(
        problem, cloud, beta * potential / problem.temperature, beta, moments
    )
    fitted = solved.point.moments
    left_out = left_out_moments(problem, fitted, solved.blocks)
    return left_out, problem.empirical_loss(fitted), solved.d_eff
