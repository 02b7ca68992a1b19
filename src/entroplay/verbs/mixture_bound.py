r"""A bound by an explicit measure: L(mu) - min L <= L(mu) - D(g), for every mu and every g.

L(mu) is that of a mixture of normals, see `measures.mixture`: its upper limit holds with 99.9 %
confidence, whatever the run did. Two numbers are below min L:

* D(g) for the run's dual g, if log Z_g is verified: by quadrature, or by islands that agree;
* D(0) = sum_i w_i inf loss_i - T log Z_0, for losses that are bounded below: the value of no loss
  and of the prior. It is known exactly and assumes nothing.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import t as student

from ..base.compilation import compiled, traced
from ..measures.mixture import FAILURE, Mixture
from ..problems.features.base import Moments
from ..problems.problem import FiniteSum
from ..runs.solution import Solution
from .certificate import Certificate
from .partition import REPLICATES, prior_log_partition

WORTH = 0.03
"""Bound of the Gibbs measure, in units of the temperature, below which no mixture is tried.

The limit of the mixture's entropy alone costs about as much."""
QUANTILE = float(student.isf(FAILURE, REPLICATES - 1))
"""Number of standard errors of log Z_g, from eight replicates, between its estimate and its upper
limit."""
REFUTED = (
    "the clouds agree, but an explicit measure has a lower objective than their lower bound: they "
    "have missed a part of the mass"
)
"""Why a dual value is not believed."""
CONSTANT_STEPS, HALVINGS = 50, 30
"""Maximum number of Newton steps to the best constant, and of halvings of each of them."""
FLAT = 1e-6
"""Smallest curvature by which Newton's method divides; halvings shorten steps that are too long."""


class LowerBound(NamedTuple):
    """A number below min L."""

    value: float
    error: float
    limit: float
    """The value less what its error may hide."""
    kind: str
    """"dual" for D(g), "zero dual" for D(0), which assumes nothing."""


@dataclasses.dataclass(frozen=True)
class ExplicitBound:
    """How far an explicit measure is from the global optimum at most."""

    measure: Mixture
    primal: float
    primal_error: float
    dual: float
    dual_error: float
    bound: float
    lower_bound: str


def mixture_bound(
    problem: FiniteSum, measure: Mixture, certificate: Certificate | None = None, *, seed: int = 0
) -> ExplicitBound:
    """The bound of a measure; the certificate of a dual may provide the number below min L.

    `seed` decides the draws for the entropy, which are not those that chose the measure.
    """
    lower = lower_bound(problem, certificate)
    objective = measure.objective(problem, seed=seed)
    bound = objective.upper - lower.limit
    return ExplicitBound(
        measure=measure,
        primal=objective.value,
        primal_error=objective.error,
        dual=lower.value,
        dual_error=lower.error,
        bound=float(bound) if np.isfinite(bound) else np.inf,
        lower_bound=lower.kind,
    )


def lower_bound(problem: FiniteSum, certificate: Certificate | None = None) -> LowerBound:
    """The largest number that is known to be below min L; minus infinity if there is none."""
    with problem.arithmetic():
        zero = float(zero_dual(problem))
    best = LowerBound(zero, 0.0, zero, "zero dual")
    if certificate is not None and certificate.mixed:
        limit = certificate.dual - QUANTILE * certificate.dual_error
        if limit > best.limit or not np.isfinite(best.limit):
            best = LowerBound(certificate.dual, certificate.dual_error, limit, "dual")
    return best


def zero_dual(problem: FiniteSum) -> float:
    """D(0), or what takes its place for losses that only bounded features bound below."""
    like = jnp.zeros(problem.features.shape, problem.dtype)
    least = np.asarray(problem.loss.infimum(like, problem.features.bounds), np.float64)
    # Rows without weight may have any infimum.
    weights = np.asarray(problem.weights, np.float64)
    loss = float(weights[weights > 0] @ least[weights > 0])
    # l2 E|theta|^2 + T Ent is least for the prior, where it is -T log Z_0.
    return loss - problem.temperature * prior_log_partition(problem)


def best_constant(problem: FiniteSum) -> float:
    """The loss of the best constant moments; NaN if no constant is best, as for densities."""
    with problem.arithmetic():
        c = jnp.zeros(problem.features.channels, problem.dtype)
        value, gradient, hessian = _at_constant(traced(problem), c)
        if not np.isfinite([float(value)]).all():
            return np.nan
        for _ in range(CONSTANT_STEPS):
            step = _newton_step(np.asarray(gradient), np.asarray(hessian))
            for halving in range(HALVINGS):
                trial = c - jnp.asarray(step / 2**halving, c.dtype)
                new = _at_constant(traced(problem), trial)
                if float(new[0]) < float(value):
                    break
            else:
                break
            c, (value, gradient, hessian) = trial, new
        return float(value)


def _newton_step(gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """The solution of hessian step = gradient; softmax does not see a common shift of channels."""
    if gradient.ndim == 0:
        # Between two pieces of a piecewise linear loss there is no curvature.
        return np.asarray(gradient / max(float(hessian), FLAT))
    return np.linalg.pinv(hessian, rcond=1e-5, hermitian=True) @ gradient


@compiled
def _at_constant(
    problem: FiniteSum, c: Float[Array, "*k"]
) -> tuple[Float[Array, ""], Float[Array, "*k"], Float[Array, "*kk"]]:
    """The loss at constant moments, its gradient and its Hessian in the constant."""
    moments: Moments = jnp.broadcast_to(c, problem.features.shape)
    slope = problem.weigh(problem.slope(moments))
    curvature = jnp.tensordot(problem.weights, problem.loss.curvature(moments), axes=1)
    return problem.empirical_loss(moments), jnp.sum(slope, axis=0), curvature


def smaller_bound(solution: Solution, certificate: Certificate, *, seed: int = 0) -> Certificate:
    """The certificate of the Gibbs measure or of an explicit mixture: the smaller bound of both."""
    problem = solution.problem
    certificate = dataclasses.replace(
        certificate, gibbs_bound=certificate.bound, best_constant=best_constant(problem)
    )
    found = (solution.particles, solution.dual, solution.moments)
    if not all(np.isfinite(np.asarray(part)).all() for part in found):
        return certificate
    if certificate.mixed and certificate.bound <= WORTH * problem.temperature:
        return certificate
    explicit = mixture_bound(problem, solution.measure, certificate, seed=seed)
    if explicit.bound < 0:
        # No measure is below min L, so the clouds' D(g) is above it: the true log Z_g is larger.
        certificate = dataclasses.replace(certificate, mixed=False, reason=REFUTED)
        explicit = mixture_bound(problem, solution.measure, certificate, seed=seed)
    if not explicit.bound < (certificate.bound if certificate.mixed else np.inf):
        return certificate
    return _about_the_mixture(certificate, explicit)


def explicit_certificate(solution: Solution, *, seed: int = 0) -> Certificate:
    """The certificate of `solution.measure` against D(0), for runs whose chains cannot mix.

    No cloud is drawn and q_g is not judged: it takes about a second where clouds take minutes.
    """
    certificate = Certificate(
        gap=np.nan,
        gap_error=np.nan,
        gap_debiased=np.nan,
        bound=np.inf,
        mixed=False,
        primal=np.nan,
        primal_error=np.nan,
        dual=np.nan,
        dual_error=np.nan,
        log_partition=np.nan,
        log_partition_error=np.nan,
        method="none",
        reason="no clouds were drawn",
        islands=0,
        particles=0,
        pulls=0,
    )
    return smaller_bound(solution, certificate, seed=seed)


def _about_the_mixture(certificate: Certificate, explicit: ExplicitBound) -> Certificate:
    return dataclasses.replace(
        certificate,
        measure="mixture",
        bound=explicit.bound,
        primal=explicit.primal,
        primal_error=explicit.primal_error,
        dual=explicit.dual,
        dual_error=explicit.dual_error,
        lower_bound=explicit.lower_bound,
    )
