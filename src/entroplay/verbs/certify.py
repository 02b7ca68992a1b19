r"""`certify`: how far from the global optimum q_g can be, whatever the run did.

With one or two parameters the expectations under q_g are integrals, by quadrature.

With more parameters they are averages over clouds. The run's own particles may not have moved yet,
or may have split between modes in the wrong proportion, and its own gap cannot tell. The
certificate therefore draws fresh islands from the prior and leads them along the run's path of dual
vectors to g by sequential Monte Carlo. It then compares the islands with each other and with the
run's own cloud after further moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.arguments import invalid, real_array, seed_number, whole
from ..base.compilation import traced
from ..measures.exact import gibbs_moments
from ..measures.gap import bregman_gap, fenchel_young_gap, rowwise_square
from ..measures.quadrature import UnresolvedError, in_double
from ..measures.uniform import ROUNDING
from ..measures.weights import effective_number
from ..methods.smc import JUMPS, STEPS
from ..problems.features.base import Moments, Particles
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum
from ..runs.observers import PATH
from ..runs.solution import Solution
from .adversary import missed_mass
from .certificate import Certificate
from .evidence import Agreement, Evidence, OwnCloud, gather, moved_on, own_cloud
from .mixture_bound import smaller_bound
from .partition import REPLICATES, log_partition, quadrature_applies
from .witness import contradicts

SIZE, BUDGET = 500, 200
"""Particles per island, and gradient passes at the target, unless the caller says otherwise."""
ERRORS = 3.0
"""Standard errors that a bound by islands adds to the gap. Student's t with seven degrees of
freedom is below three in 99 of 100 cases; with two, three of 300 bounds were below the truth."""
STREAM = 0x63657274
"""Separates the randomness of a certificate from that of a run with the same seed."""


@runtime_checkable
class Certifiable(Protocol):
    """A result that knows how to certify itself, such as a `Painting`."""

    def certify(self, *, seed: int = 0) -> Certificate:
        """The certificate; the seed decides its draws."""
        ...


def certify(
    solution: Solution | Certifiable,
    *,
    seed: int = 0,
    particles: int = SIZE,
    budget: int = BUDGET,
    path: object = None,
) -> Certificate:
    """Bound the distance of a solution's Gibbs measure from the global optimum.

    With one or two parameters the bound is computed by quadrature. Otherwise, and where quadrature
    does not resolve the measure, it comes from eight independent islands of particles. Eight more
    on a path of their own, and a search by many descents, look for mass that every island has
    missed. The parameters below, except the first, are those of the islands.

    Args:
        solution: what `solve` returned; `solution.dual` is certified. For a `Painting` only the
            explicit mixture is: chains do not mix at its temperature, and no islands are drawn.
        seed: the seed of the islands' noise, which is independent of the run's.
        particles: the size of each of the eight islands.
        budget: gradient passes over the islands at the target, once the path has led there; the
            islands' moments are averaged over them.
        path: dual vectors, (k, n) or (k, n, c), along which the islands go from the prior to
            `solution.dual`; at most 24. By default those that the run recorded.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> certificate = ep.certify(ep.solve(problem, particles=200, iterations=30))
    >>> certificate.mixed, certificate.gap <= certificate.bound
    (True, True)
    """
    if not isinstance(solution, Solution):
        if not isinstance(solution, Certifiable):
            raise invalid("certify", "solution", "a Solution or a Painting", solution)
        return solution.certify(seed=seed_number("certify", seed))
    size = whole("certify", "particles", particles, least=8)
    budget = whole("certify", "budget", budget)
    seed = seed_number("certify", seed)
    problem = solution.problem
    problem.needs_rows("certify")
    with problem.arithmetic():
        approach = solution.path if path is None else _checked_path(solution, path)
        dual = Dual.of(problem, solution.dual, solution.moments, approach)
        own = own_cloud(solution.particles, solution.weights)
        gibbs = certify_dual(problem, dual, own, seed=seed, size=size, budget=budget)
    return smaller_bound(solution, gibbs, seed=seed)


def _checked_path(solution: Solution, path: object) -> Array:
    vectors = real_array("certify", "path", path)
    if vectors.shape[1:] != solution.dual.shape or vectors.shape[0] > PATH:
        must_be = f"at most {PATH} dual vectors of shape {solution.dual.shape}"
        raise invalid("certify", "path", must_be, f"an array of shape {vectors.shape}")
    return vectors


class Dual(NamedTuple):
    """A dual vector to certify."""

    vector: Moments
    anchor: Moments | None
    """Moments whose slope is the vector, if there are any: no conjugate is needed then, and small
    gaps keep their digits."""
    path: Float[Array, "l n *c"]
    """Dual vectors from the prior to the vector itself, always equally many: shorter paths begin
    with zeros (the prior), so that all lengths share one program."""

    @staticmethod
    def of(problem: FiniteSum, vector: Moments, moments: Moments, recorded: Any) -> Dual:
        """The dual vector at the end of a recorded path; `moments` are the anchor if they fit."""
        recorded, end = np.asarray(recorded), np.asarray(vector)
        zeros = np.zeros((PATH - recorded.shape[0], *end.shape), end.dtype)
        path = jnp.asarray(np.concatenate([zeros, recorded, end[None]]))
        fits = np.array_equal(end, np.asarray(problem.slope(moments)))
        return Dual(vector, moments if fits else None, path)

    def in_double(self, problem: FiniteSum) -> Dual:
        """The dual in float64: the slope of the anchor, if there is one, without rounding."""
        vector = jnp.asarray(np.asarray(self.vector, np.float64))
        if self.anchor is None:
            return self._replace(vector=vector)
        anchor = jnp.asarray(np.asarray(self.anchor, np.float64))
        return self._replace(vector=problem.slope(anchor), anchor=anchor)


def certify_dual(
    problem: FiniteSum,
    dual: Dual,
    own: Particles,
    *,
    seed: int,
    size: int = SIZE,
    budget: int = BUDGET,
) -> Certificate:
    """The certificate of a dual vector; `own` is the cloud of the run that found it."""
    doubt = ""
    if quadrature_applies(problem):
        try:
            return _by_quadrature(problem, dual)
        except UnresolvedError:
            doubt = "quadrature does not resolve the measure"
    key = jax.random.fold_in(jax.random.key(seed), STREAM)
    snapshots = max(1, -(-budget // (STEPS + JUMPS + 1)))
    posed, (walk_key, own_key) = traced(problem), jax.random.split(key)
    evidence = gather(posed, walk_key, dual.path, snapshots, islands=REPLICATES, size=size)
    moved = moved_on(posed, own_key, dual.vector, own, evidence.islands)
    independent = min(own.shape[0], REPLICATES * size)
    return _judge(problem, key, dual, evidence, OwnCloud.of(moved, independent), doubt)


def _by_quadrature(problem: FiniteSum, dual: Dual) -> Certificate:
    """The certificate with exact expectations, in float64, for d <= 2."""
    double = in_double(problem)
    with jax.enable_x64(True):
        dual = dual.in_double(double)
        exact = gibbs_moments(problem, dual.vector)
        mean = jnp.asarray(exact.moments)
        gap, conjugate = float(_gap(double, mean, dual)), _conjugate(double, dual)
        # The gap's derivative in P is u = w (loss'(P) - g). Sums of the loss and of its conjugate
        # are rounded.
        u = double.weigh(double.slope(mean) - dual.vector)
        curvature = double.weigh(double.loss.curvature(mean))
        first, second = float(jnp.abs(u).sum()), float(jnp.abs(curvature).sum())
        rounding = ROUNDING * (1 + abs(float(double.empirical_loss(mean))) + abs(conjugate))
    gap_error = first * exact.moments_error + second * exact.moments_error**2 + rounding
    bound = gap + 2 * gap_error
    dual_value = -conjugate - problem.temperature * exact.log_partition  # eq. (11)
    dual_error = problem.temperature * exact.log_partition_error + rounding
    return Certificate(
        gap=gap,
        gap_error=gap_error,
        gap_debiased=gap,
        bound=bound if np.isfinite(bound) else np.inf,
        mixed=True,
        primal=dual_value + gap,
        primal_error=dual_error + gap_error,
        dual=dual_value,
        dual_error=dual_error,
        log_partition=exact.log_partition,
        log_partition_error=exact.log_partition_error,
        method="quadrature",
        reason="",
        islands=0,
        particles=0,
        pulls=0,
    )


def _judge(
    problem: FiniteSum,
    key: PRNGKeyArray,
    dual: Dual,
    evidence: Evidence,
    own: OwnCloud,
    doubt: str,
) -> Certificate:
    """Compute the certificate: gap and errors, agreement of the clouds, log Z_g.

    `doubt` is a reason not to trust the clouds even if they agree.
    """
    # Island b has the weight v_b, proportional to its estimate of Z_g / Z_0.
    log_ratios = np.asarray(evidence.islands.log_ratio, np.float64)
    v = np.exp(log_ratios - log_ratios.max())
    v = jnp.asarray(v / v.sum(), problem.dtype)
    b, size, _ = evidence.islands.particles.shape
    mean = jnp.tensordot(v, evidence.island_moments, axes=1)
    deviations = evidence.island_moments - mean[None]
    gap = _gap(problem, mean, dual)

    # gap_error^2 = u' V u with u = w (loss'(P) - g), V = B/(B-1) sum_b v_b^2 (P_b - P)(P_b - P)'.
    u = problem.weigh(problem.slope(mean) - dual.vector)
    along = jnp.stack([jnp.sum(u * d) for d in deviations])
    curvature = problem.loss.curvature(mean)
    squares = jnp.stack([_square(problem, curvature, d) for d in deviations])
    variance = b / (b - 1) * jnp.sum(v**2 * squares)
    # At the optimum u vanishes, and what remains is the spread of the quadratic term,
    # (1/2) z' loss'' z with z ~ N(0, V). Its deviation is at most variance/sqrt(2), which it has
    # when one direction dominates.
    gap_error = float(jnp.sqrt(b / (b - 1) * jnp.sum(v**2 * along**2) + variance**2 / 2))
    gap_debiased = float(gap - variance / 2)

    independent = problem.weights @ row_dot(curvature, evidence.within) / (b * size)
    own_noise = problem.weights @ row_dot(curvature, own.spread) / own.particles
    agreement = Agreement(
        masses=effective_number(np.asarray(v)) / b,
        between=float(variance),
        independent=float(independent),
        distance=float(_square(problem, curvature, own.moments - mean)),
        expected=float(variance + own_noise),
    )
    bound = float(gap) + ERRORS * gap_error
    partition = log_partition(problem, jax.random.fold_in(key, 1), dual.vector, log_ratios)
    reason, pulls = agreement.objection or doubt, int(evidence.islands.pulls)
    if not reason:
        witness_key = jax.random.fold_in(key, 3)
        reason, further = contradicts(problem, witness_key, dual.path, evidence)
        pulls += further
    if not reason:
        seen = evidence.islands.particles.reshape(-1, problem.dim)
        search_key = jax.random.fold_in(key, 2)
        reason = missed_mass(problem, search_key, dual.vector, seen, partition.value)
    dual_value = -_conjugate(problem, dual) - problem.temperature * partition.value  # eq. (11)
    dual_error = problem.temperature * partition.error
    return Certificate(
        gap=float(gap),
        gap_error=gap_error,
        gap_debiased=gap_debiased,
        bound=bound if np.isfinite(bound) else np.inf,
        mixed=not reason,
        primal=dual_value + gap_debiased,
        primal_error=float(np.hypot(dual_error, gap_error)),
        dual=dual_value,
        dual_error=dual_error,
        log_partition=partition.value,
        log_partition_error=partition.error,
        method=partition.method,
        reason=reason,
        islands=b,
        particles=size,
        pulls=pulls,
    )


def _gap(problem: FiniteSum, mean: Moments, dual: Dual) -> Float[Array, ""]:
    """L(q_g) - D(g) from the moments of q_g."""
    if dual.anchor is None:
        return fenchel_young_gap(problem, mean, dual.vector)
    return bregman_gap(problem, mean, dual.anchor)


def _conjugate(problem: FiniteSum, dual: Dual) -> float:
    """sum_i w_i conj_i(g_i); with an anchor H it is sum_i w_i (<g_i, H_i> - loss_i(H_i))."""
    if dual.anchor is None:
        return float(problem.weights @ problem.loss.conjugate(dual.vector))
    values = row_dot(dual.vector, dual.anchor) - problem.loss.value(dual.anchor)
    return float(problem.weights @ values)


def _square(problem: FiniteSum, curvature: Array, vector: Moments) -> Float[Array, ""]:
    """sum_i w_i v_i' loss''_i v_i: the squared length in which clouds are compared."""
    return problem.weights @ rowwise_square(curvature, vector)
