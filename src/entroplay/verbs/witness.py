r"""Islands along a path that does not come from the run.

Islands that follow the run's own path may all be led past the same mass. A second set, the witness,
goes straight from the prior to g, along multiples of g. For a fixed schedule each estimate of
Z_g / Z_0 has the right expectation whatever the path is, so no path finds mass that is not there
(an estimate that is k times too large has a probability of at most 1/k), but many miss some. Of two
estimates the larger one is right:

* the witness found clearly more mass: the islands missed it, and nothing is verified;
* about as much, but somewhere else: both missed some;
* clearly less: straight tempering has missed modes, as it does in the cold. It says nothing then.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import t as student

from ..base.compilation import traced
from ..measures.gap import rowwise_square
from ..problems.features.base import Particles
from ..problems.problem import FiniteSum
from .adversary import LARGE_PART
from .evidence import Evidence, gather

MULTIPLES = (1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
"""Multiples of g at the corners of the witness's path; between them tempering is adaptive."""
SNAPSHOTS = 2
"""Batches of moves at the end of the path over which the witness's moments are averaged."""
FALSE_ALARM = 5e-4
"""Probability with which normal errors of log Z_g alone make an objection."""
ELSEWHERE = 100.0
"""Ratio of the squared distance of the two sets' moments to its Monte-Carlo expectation above which
they are in different places.

Moves after straight tempering are few, and what they leave counts as noise here: on Friedman's
first function, where the masses agree, ratios are up to 25."""


class Estimate(NamedTuple):
    """What a set of islands found: log(Z_g / Z_0) and the moments, with their errors."""

    log_ratio: float
    error: float
    moments: Float[np.ndarray, "n *c"]
    variance: float
    """Squared error of the moments, in the length in which clouds are compared."""


def straight(path: Float[Array, "k n *c"]) -> Float[Array, "k n *c"]:
    """Multiples of the path's last vector, after as many zeros as fill a path of the same length.

    The islands then go through the same compiled program.
    """
    vectors = np.zeros_like(np.asarray(path))
    share = np.asarray(MULTIPLES, vectors.dtype).reshape(-1, *[1] * (vectors.ndim - 1))
    vectors[-len(MULTIPLES) :] = share * np.asarray(path)[-1:]
    return jnp.asarray(vectors)


def contradicts(
    problem: FiniteSum,
    key: PRNGKeyArray,
    path: Float[Array, "k n *c"],
    own: Particles,
    evidence: Evidence,
) -> tuple[str, int]:
    """What the witness objects to, in words (empty if nothing), and the pulls it took."""
    b, m, _ = evidence.islands.particles.shape
    count = jnp.asarray(SNAPSHOTS, jnp.int32)
    found = gather(traced(problem), key, straight(path), own, count, islands=b, size=m)
    return objection(problem, evidence, found), int(found.islands.pulls)


def objection(problem: FiniteSum, evidence: Evidence, witness: Evidence) -> str:
    """What speaks against the islands' evidence; empty if nothing does."""
    ours, theirs = _estimate(problem, evidence), _estimate(problem, witness)
    more = theirs.log_ratio - ours.log_ratio
    islands = evidence.islands.log_ratio.shape[0]
    quantile = float(student.isf(FALSE_ALARM, islands - 1))
    largest = max(abs(ours.log_ratio), abs(theirs.log_ratio))
    rounding = 100 * float(np.finfo(problem.dtype).eps) * largest
    margin = quantile * np.hypot(ours.error, theirs.error) + rounding
    if not more <= margin - np.log1p(-LARGE_PART):
        return f"straight tempering found exp({more:.2g}) times as much mass as the run's path"
    if more + margin < np.log(LARGE_PART):
        return ""
    distance = _square(problem, ours.moments, theirs.moments - ours.moments)
    if not distance <= ELSEWHERE * (ours.variance + theirs.variance):
        return "straight tempering found about as much mass as the run's path, but elsewhere"
    return ""


def _estimate(problem: FiniteSum, evidence: Evidence) -> Estimate:
    log_ratios = np.asarray(evidence.islands.log_ratio, np.float64)
    b, ratios = len(log_ratios), np.exp(log_ratios - log_ratios.max())
    v, error = ratios / ratios.sum(), ratios.std(ddof=1) / ratios.mean() / np.sqrt(len(ratios))
    each = np.asarray(evidence.island_moments)
    moments = np.tensordot(v.astype(each.dtype), each, axes=1)
    squares = np.array([_square(problem, moments, one - moments) for one in each])
    log_ratio = float(log_ratios.max() + np.log(ratios.mean()))
    return Estimate(log_ratio, float(error), moments, float(b / (b - 1) * (v**2 @ squares)))


def _square(problem: FiniteSum, where: np.ndarray, vector: np.ndarray) -> float:
    """sum_i w_i v_i' loss''_i v_i, with the curvature at the moments `where`."""
    curvature = problem.loss.curvature(jnp.asarray(where))
    return float(problem.weights @ rowwise_square(curvature, jnp.asarray(vector)))
