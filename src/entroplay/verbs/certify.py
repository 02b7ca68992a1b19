r"""A certificate: how far from the global optimum q_g can be, by clouds that are independent of the run.

The run's own particles may not have moved yet, or may have split between modes in the wrong proportion; its own gap
does not know. So the certificate draws fresh islands from the prior, leads them along the run's path of dual vectors to
g by sequential Monte Carlo, and lets them and the run's own cloud, moved on, contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..base.arguments import invalid, whole
from ..base.compilation import compiled, traced
from ..measures.gap import bregman_gap, fenchel_young_gap
from ..measures.gibbs import Gibbs
from ..methods.samplers.langevin import metropolis_moves
from ..methods.smc import PATH, Islands, follow
from ..problems.features.base import Moments, Particles
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum
from .partition import REPLICATES, log_partition

if TYPE_CHECKING:
    from ..runs.solution import Solution

STEPS, JUMPS = 8, 2
"""Moves in one batch: Langevin steps and jumps."""
STAGES = 50
"""Stages on one edge of the path at the most."""
OWN = 512
"""Draws that speak for a run's cloud where its weights are very uneven."""
DISAGREEMENT = 16.0
"""Squared distances above this many times their Monte-Carlo expectation are disagreement: with errors from eight
islands, one dominant direction exceeds it in about one case of two hundred (F distribution with 1 and 7 degrees)."""


@dataclass(frozen=True)
class Certificate:
    """What `certify` found out about q_g, g = `solution.dual`.

    Attributes:
        gap: L(q_g) - D(g), plug-in at the islands' moments; biased upwards by noise.
        gap_error: its standard error, to second order, so that it does not vanish at the optimum.
        gap_debiased: the gap less its noise bias.
        bound: gap + 2 gap_error: q_g is at most this far above the global optimum, if the clouds have mixed.
        mixed: whether the islands among themselves, and the run's own cloud moved on, agree within Monte-Carlo error.
        primal: L(q_g), with `primal_error`.
        dual: D(g), with `dual_error`.
        log_partition: log Z_g, with `log_partition_error` and the `method` that gave it.
        reason: in what the clouds disagree, empty if they do not.
        pulls: gradient passes over all the islands' particles.
    """

    gap: float
    gap_error: float
    gap_debiased: float
    bound: float
    mixed: bool
    primal: float
    primal_error: float
    dual: float
    dual_error: float
    log_partition: float
    log_partition_error: float
    method: str
    reason: str
    islands: int
    particles: int
    pulls: int

    def __repr__(self) -> str:
        verdict = "the clouds agree" if self.mixed else f"NOT VERIFIED: {self.reason}"
        return (
            f"Certificate: at most {self.bound:.3g} above the global optimum ({verdict})\n"
            f"  gap {self.gap:.3g} +- {self.gap_error:.1g}, {self.gap_debiased:.3g} without noise bias, from {self.islands} "
            f"independent islands of {self.particles} particles, {self.pulls} pulls\n"
            f"  primal {self.primal:.8g} +- {self.primal_error:.1g}, dual {self.dual:.8g} +- {self.dual_error:.1g}, "
            f"log-partition {self.log_partition:.6g} +- {self.log_partition_error:.1g} by {self.method}"
        )


def certify(
    solution: Solution, *, seed: int = 0, particles: int = 500, budget: int = 200
) -> Certificate:
    """Bound the distance of a solution's Gibbs measure from the global optimum.

    Args:
        solution: what `solve` returned; `solution.dual` is certified, and the path that led to it is replayed.
        seed: of the islands' noise, which has nothing to do with the run's.
        particles: in each of the eight islands.
        budget: gradient passes over the islands to spend at the target, once the path has led there; the islands'
            moments are averaged over them.

    No estimator sees a mode of the Gibbs measure that every island has missed.

    >>> import entroplay as ep
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
    >>> certificate = ep.certify(ep.solve(problem, particles=200, iterations=30))
    >>> certificate.mixed, certificate.gap <= certificate.bound
    (True, True)
    """
    from ..runs.solution import Solution as SolutionRecord

    if not isinstance(solution, SolutionRecord):
        raise invalid("certify", "solution", "a Solution", solution)
    size = whole("certify", "particles", particles, least=8)
    budget = whole("certify", "budget", budget)
    if whole("certify", "seed", seed, least=0) >= 2**32:
        raise invalid("certify", "seed", "a whole number from 0 to 2**32 - 1", seed)
    problem = solution.problem
    if problem.features.shape[0] == 0:
        raise ValueError(
            "The solution was saved without its data (data=False): it predicts, but it cannot be certified."
        )
    with jax.enable_x64(problem.dtype == jnp.float64):
        anchor = anchor_of(problem, solution.moments, solution.dual)
        path = full_path(solution.path, solution.dual)
        own = own_cloud(solution.particles, solution.weights)
        return certify_dual(
            problem, solution.dual, anchor, path, own, seed=seed, size=size, budget=budget
        )


def own_cloud(particles: Particles, weights: Float[Array, "m"]) -> Float[Array, "own d"]:
    """The run's cloud; of a large one whose weights are very uneven, draws by these weights, as evenly spread as can be."""
    shares = np.maximum(np.asarray(weights, np.float64), 0)
    if len(shares) <= OWN or shares.sum() ** 2 > (shares**2).sum() * len(shares) / 2:
        return particles
    marks = (np.arange(OWN) + 0.5) / OWN
    chosen = np.searchsorted(np.cumsum(shares) / shares.sum(), marks).clip(max=len(shares) - 1)
    return jnp.asarray(np.asarray(particles)[chosen])


def anchor_of(problem: FiniteSum, moments: Moments, dual: Moments) -> Moments | None:
    """The moments, where the dual is their slope: then no conjugate is needed, and small gaps keep their digits."""
    return (
        moments
        if bool(np.array_equal(np.asarray(dual), np.asarray(problem.slope(moments))))
        else None
    )


def full_path(
    recorded: Float[Array | np.ndarray, "k n *c"], dual: Moments
) -> Float[Array, "l n *c"]:
    """The recorded path and its end, behind as many zeros (the prior) as make its length always the same."""
    zeros = np.zeros((PATH - recorded.shape[0], *dual.shape), dual.dtype)
    return jnp.asarray(np.concatenate([zeros, np.asarray(recorded), np.asarray(dual)[None]]))


def certify_dual(
    problem: FiniteSum,
    dual: Moments,
    anchor: Moments | None,
    path: Float[Array, "k n *c"],
    own: Particles,
    *,
    seed: int,
    size: int,
    budget: int,
) -> Certificate:
    """The certificate of a dual vector. `anchor` holds moments with dual = loss'(anchor), where there are such."""
    # The stream of a certificate must differ from that of a run with the same seed.
    key = jax.random.fold_in(jax.random.key(seed), 0x63657274)
    snapshots = max(1, -(-budget // (STEPS + JUMPS + 1)))
    count = jnp.asarray(snapshots, jnp.int32)  # an array: another budget compiles nothing anew
    evidence = _gather(traced(problem), key, path, own, count, islands=REPLICATES, size=size)
    return _judge(problem, key, dual, anchor, evidence, size, own.shape[0])


class Evidence(eqx.Module):
    """What the islands and the run's own cloud say of E_q[h]."""

    islands: Islands
    island_moments: Float[Array, "b n *c"]
    within: Float[Array, "n *cc"]
    """Covariance of h under q_g, over all islands."""
    own_moments: Moments
    own_spread: Float[Array, "n *cc"]


@compiled
def _gather(
    problem: FiniteSum,
    key: PRNGKeyArray,
    path: Float[Array, "k n *c"],
    own: Particles,
    snapshots: Int[Array, ""],
    *,
    islands: int,
    size: int,
) -> Evidence:
    walk_key, stay_key, own_key = jax.random.split(key, 3)
    state = follow(
        problem,
        walk_key,
        path,
        islands=islands,
        particles=size,
        steps=STEPS,
        jumps=JUMPS,
        stages=STAGES,
    )
    gibbs = Gibbs(problem, path[-1])

    def snapshot(index: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        particles, total, pulls = carry
        walkers, _, moved = metropolis_moves(
            jax.random.fold_in(stay_key, index), gibbs, particles.reshape(-1, problem.dim), state.adaptation,
            steps=STEPS, jumps=JUMPS, leaps=1, islands=islands, adapt=False,
        )  # fmt: skip
        particles = walkers.particles.reshape(particles.shape)
        return (
            particles,
            total + jax.lax.map(problem.features.average, particles),
            pulls + moved.pulls,
        )

    zero = jnp.zeros((islands, *problem.features.shape), problem.dtype)
    particles, total, pulls = jax.lax.fori_loop(
        0, snapshots, snapshot, (state.particles, zero, state.pulls)
    )
    _, within = problem.features.mean_and_covariance(particles.reshape(-1, problem.dim))
    own = own.astype(problem.dtype)
    walkers, _, _ = metropolis_moves(
        jax.random.fold_in(own_key, 0), gibbs, own, state.adaptation, steps=4 * STEPS, adapt=False
    )
    own_moments, own_spread = problem.features.mean_and_covariance(walkers.particles)
    state = state._replace(particles=particles, pulls=pulls)
    return Evidence(state, total / snapshots.astype(problem.dtype), within, own_moments, own_spread)


def _judge(
    problem: FiniteSum,
    key: PRNGKeyArray,
    dual: Moments,
    anchor: Moments | None,
    evidence: Evidence,
    size: int,
    own_size: int,
) -> Certificate:
    """From evidence to numbers and a verdict."""
    log_ratios = np.asarray(evidence.islands.log_ratio, np.float64)
    v = np.exp(log_ratios - log_ratios.max())
    v = jnp.asarray(v / v.sum(), problem.dtype)
    b = len(log_ratios)
    mean = jnp.tensordot(v, evidence.island_moments, axes=1)
    deviations = evidence.island_moments - mean[None]
    gap = (
        bregman_gap(problem, mean, anchor)
        if anchor is not None
        else fenchel_young_gap(problem, mean, dual)
    )

    # gap_error^2 = u' V u with u = w (loss'(P) - g) and V = B/(B-1) sum_b v_b^2 (P_b - P)(P_b - P)'.
    u = problem.weigh(problem.slope(mean) - dual)
    along = jnp.stack([jnp.sum(u * d) for d in deviations])
    curvature = problem.loss.curvature(mean)
    variance = (
        b
        / (b - 1)
        * jnp.sum(v**2 * jnp.stack([_quadratic(problem, curvature, d) for d in deviations]))
    )
    # At the optimum u vanishes and what remains is the spread of the quadratic term, (1/2) z' loss'' z with z ~ N(0, V): its
    # deviation is at most variance/sqrt(2), which it has when one direction dominates.
    gap_error = float(jnp.sqrt(b / (b - 1) * jnp.sum(v**2 * along**2) + variance**2 / 2))
    gap_debiased = float(gap - variance / 2)

    independent = problem.weights @ row_dot(curvature, evidence.within) / (b * size)
    own_noise = problem.weights @ row_dot(curvature, evidence.own_spread) / own_size
    distance = _quadratic(problem, curvature, evidence.own_moments - mean)
    reason = _disagreement(
        np.asarray(v),
        float(variance),
        float(independent),
        float(distance),
        float(variance + own_noise),
    )

    bound = float(gap) + 2 * gap_error
    partition = log_partition(problem, jax.random.fold_in(key, 1), dual, log_ratios)
    temperature = problem.temperature
    if anchor is not None:
        conjugate = float(problem.weights @ (row_dot(dual, anchor) - problem.loss.value(anchor)))
    else:
        conjugate = float(problem.weights @ problem.loss.conjugate(dual))
    dual_value, dual_error = (
        -conjugate - temperature * partition.value,
        temperature * partition.error,
    )
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
        pulls=int(evidence.islands.pulls),
    )


def _quadratic(problem: FiniteSum, curvature: Array, vector: Moments) -> Float[Array, ""]:
    """sum_i w_i v_i' loss''_i v_i."""
    if vector.ndim == 1:
        return problem.weights @ (curvature * vector**2)
    return problem.weights @ jnp.einsum("nk,nkl,nl->n", vector, curvature, vector)


def _disagreement(
    v: np.ndarray, between: float, independent: float, distance: float, expected: float
) -> str:
    """In what the clouds disagree, or nothing."""
    if not np.isfinite([between, distance, expected]).all() or 1 / (v**2).sum() < len(v) / 2:
        return "the islands disagree about the mass of what they found"
    if between > DISAGREEMENT * independent:
        return "the islands' moments differ by more than their sampling error"
    if distance > DISAGREEMENT * expected:
        return "the run's own cloud and the islands disagree"
    return ""
