r"""An explicit measure: a mixture of normals, whose density is known and whose moments are exact.

    mu = sum_r p_r N(theta_r, diag(s_r^2)),   p_r >= 0,   sum_r p_r = 1.

The objective L(mu) of eq. (6) has an upper limit that needs no chain and no assumption. Of its
three terms, the loss is that of the mixture's moments, which smoothed features give (see
`problems.features.smoothed`), and l2 E|theta|^2 is a sum over the components. The entropy is

    Ent(mu) = sum_r p_r Ent(N_r) - I,   I = E_mu[KL(rho(theta) | p)],

where rho_r(theta) = p_r N_r(theta) / mu(theta) is the posterior of the component at theta and I is
the information that theta has about its component. I is the mean of a number between 0 and
log(1 / min p), so independent draws of mu bound it from below by Bernstein's inequality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp
from scipy.stats import t as student

from ..base.arguments import invalid, seed_number, whole
from ..problems.features.base import FeatureMap, Moments, mean_features
from ..problems.features.smoothed import SmoothedMap
from ..problems.problem import FiniteSum

FAILURE = 5e-4
"""Probability with which each of at most two limits of the objective may fail: 99.9 % in all."""
DRAWS = 4096
"""Number of draws of the mixture from which its entropy is computed."""
BATCHES = 16
"""Number of independent draws of every component for moments that have no closed form."""
LEAST_SHARE = 1e-5
"""Components with a smaller weight than this fraction of 1/m are left out. The measure without them
is a measure, too, and log(1 / min p), which enters the entropy's limit, stays small."""
TILE = 2**22
"""Maximum number of densities, of points under components, in memory at once."""
SIZE_STEP = 512
"""Numbers of components for which programs are compiled are multiples of this one."""
STREAM = 0x6D6978
"""Separates the randomness of a mixture from that of a run with the same seed."""


class Objective(NamedTuple):
    """L(mu), with the limit below which it lies with 99.9 % confidence."""

    value: float
    error: float
    """Standard error of the value."""
    upper: float
    moments: Moments
    """E_mu[h] at the training rows."""


def in_double(tree: Any) -> Any:
    """The same records with all real arrays in double precision."""

    def doubled(leaf: Any) -> Any:
        inexact = isinstance(leaf, jax.Array | np.ndarray) and leaf.dtype.kind == "f"
        return jnp.asarray(np.asarray(leaf, np.float64)) if inexact else leaf

    return jax.tree.map(doubled, tree)


@dataclass(frozen=True)
class Mixture:
    """The measure sum_r p_r N(theta_r, diag(s_r^2)).

    Attributes:
        features: the smoothed feature map, whose particles are (theta, s).
        centres: theta, of shape (m, d).
        deviations: s, of shape (m, d).
        weights: p, of shape (m,): positive, and they sum to one.
    """

    features: SmoothedMap
    centres: Float[np.ndarray, "m d"]
    deviations: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, "m"]

    @staticmethod
    def of(features: SmoothedMap, components: object, weights: object) -> Mixture:
        """The mixture of components (theta, s), without those of almost no weight."""
        p, both = np.asarray(weights, np.float64), np.asarray(components, np.float64)
        kept = p > LEAST_SHARE * p.sum() / len(p)
        p, d = p[kept] / p[kept].sum(), features.features.dim
        return Mixture(features, both[kept, :d], both[kept, d:], p)

    @property
    def components(self) -> Float[Array, "m dd"]:
        """(theta, s), in the precision of the features."""
        both = np.concatenate([self.centres, self.deviations], axis=1)
        return jnp.asarray(both, self.features.dtype)

    def sample(self, count: int, *, seed: int = 0) -> Float[np.ndarray, "count d"]:
        """Independent draws."""
        count, seed = whole("sample", "count", count), seed_number("sample", seed)
        return self._draw(np.random.default_rng([STREAM, seed]), count)

    def _draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count d"]:
        chosen = rng.choice(len(self.weights), count, p=self.weights)
        noise = rng.normal(size=(count, self.centres.shape[1]))
        return self.centres[chosen] + self.deviations[chosen] * noise

    def log_density(self, points: object) -> Float[np.ndarray, "q"]:
        """log mu at points of shape (q, d), in double precision."""
        d = self.centres.shape[1]
        where = np.asarray(points, np.float64)
        if where.ndim != 2 or where.shape[1] != d:
            raise invalid("log_density", "points", f"of shape (points, {d})", where.shape)
        return np.concatenate([logsumexp(tile, axis=1) for tile in self._log_joint(where)])

    def _log_joint(self, points: np.ndarray) -> Iterator[np.ndarray]:
        """log(p_r N_r(x)) for all points and components, in tiles of points."""
        origin = self.weights @ self.centres
        # |x - theta|^2 / s^2 as products of matrices; shifting the origin keeps the digits.
        x, theta, precision = points - origin, self.centres - origin, self.deviations**-2
        constant = np.log(self.weights) - np.log(self.deviations).sum(axis=1)
        constant -= (theta**2 * precision).sum(axis=1) / 2 + theta.shape[1] * np.log(2 * np.pi) / 2
        size = max(1, TILE // len(theta))
        for start in range(0, len(x), size):
            tile = x[start : start + size]
            yield constant + tile @ (theta * precision).T - tile**2 @ precision.T / 2

    def predict(self, X: object) -> Array:
        """E_mu[h] at new rows: (rows,) or (rows, k)."""
        with jax.enable_x64(self.features.dtype == jnp.float64):
            features = self.features.at(X)
            return self._mean(features, np.concatenate([self.centres, self.deviations], axis=1))

    def _mean(self, features: FeatureMap, points: Float[np.ndarray, "m k"]) -> Moments:
        """sum_r p_r h(point_r), with as many zero weights as make up one of few sizes.

        The number of components differs from mixture to mixture; few sizes share few programs.
        """
        missing = -len(points) % SIZE_STEP
        points = np.concatenate([points, np.repeat(points[:1], missing, axis=0)])
        weights = np.concatenate([self.weights, np.zeros(missing)])
        dtype = features.dtype
        return mean_features(features, jnp.asarray(points, dtype), jnp.asarray(weights, dtype))

    @property
    def entropy_above(self) -> float:
        """sum_r p_r Ent(N_r), which is at least Ent(mu)."""
        log_deviation = np.log(self.deviations).sum(axis=1)
        d = self.centres.shape[1]
        return float(-self.weights @ log_deviation - d / 2 * np.log(2 * np.pi * np.e))

    def information(self, rng: np.random.Generator, draws: int) -> Float[np.ndarray, "draws"]:
        """KL(rho(theta) | p) at draws of mu."""
        log_p, found = np.log(self.weights), []
        for joint in self._log_joint(self._draw(rng, draws)):
            # With rho = e / sum e, the divergence is E_rho[joint - log p] - log sum exp joint.
            largest = joint.max(axis=1)
            e = np.exp(joint - largest[:, None])
            total = e.sum(axis=1)
            mean = np.einsum("qr,qr->q", e, joint - log_p) / total
            found.append(mean - largest - np.log(total))
        # Rounding may leave the divergence slightly negative.
        return np.maximum(np.concatenate(found), 0)

    def entropy(self, *, seed: int = 0, draws: int = DRAWS) -> tuple[float, float, float]:
        """Ent(mu) by draws, its standard error, and its upper limit."""
        rng = np.random.default_rng([STREAM, seed, 1])
        found = self.information(rng, draws)
        error = float(found.std(ddof=1) / np.sqrt(draws))
        # Empirical Bernstein inequality (Maurer and Pontil 2009, theorem 4) for independent numbers
        # in [0, range]: with probability 1 - FAILURE the mean's expectation is at least
        # mean - sqrt(2 V log(2/FAILURE) / N) - 7 range log(2/FAILURE) / (3 (N - 1)).
        log_odds, span = np.log(2 / FAILURE), float(-np.log(self.weights.min()))
        slack = np.sqrt(2 * log_odds) * error + 7 * span * log_odds / (3 * (draws - 1))
        value = self.entropy_above - float(found.mean())
        # The information is never negative: without any draws Ent(mu) <= entropy_above.
        return value, error, float(min(value + slack, self.entropy_above))

    def objective(self, problem: FiniteSum, *, seed: int = 0, draws: int = DRAWS) -> Objective:
        """L(mu) for a problem with these features; `seed` decides the draws."""
        entropy, entropy_error, entropy_upper = self.entropy(seed=seed, draws=draws)
        squares = self.weights @ (self.centres**2 + self.deviations**2)
        penalty = float(
            np.broadcast_to(np.asarray(problem.l2, np.float64), squares.shape) @ squares
        )
        with problem.arithmetic():
            moments, loss, loss_error = self._loss(problem, seed)
        temperature = problem.temperature
        value = loss + penalty + temperature * entropy
        limit = 0.0 if loss_error == 0 else float(student.isf(FAILURE, BATCHES - 1)) * loss_error
        upper = loss + limit + penalty + temperature * entropy_upper
        error = float(np.hypot(loss_error, temperature * entropy_error))
        return Objective(value, error, float(upper) if np.isfinite(upper) else np.inf, moments)

    def _loss(self, problem: FiniteSum, seed: int) -> tuple[Moments, float, float]:
        """E_mu[h], the loss there, and its standard error: zero for exact moments."""
        if self.features.exact:
            # In double precision: rounding in single precision exceeds cold temperatures.
            with jax.enable_x64(True):
                features, problem = in_double((self.features, problem))
                both = np.concatenate([self.centres, self.deviations], axis=1)
                moments = self._mean(features, both)
                return moments, float(problem.empirical_loss(moments)), 0.0
        rng = np.random.default_rng([STREAM, seed, 2])
        features, batches = problem.features, []
        for _ in range(BATCHES):
            noise = rng.normal(size=self.centres.shape)
            batches.append(self._mean(features, self.centres + self.deviations * noise))
        moments = sum(batches[1:], batches[0]) / BATCHES
        # The loss is convex: at an estimate of E_mu[h] it is too large on average, never too small.
        # What remains is the error to first order, along the slope.
        slope = problem.weigh(problem.slope(moments))
        along = np.array([float(jnp.sum(slope * (batch - moments))) for batch in batches])
        error = np.sqrt((along**2).sum() / (BATCHES * (BATCHES - 1)))
        return moments, float(problem.empirical_loss(moments)), float(error)
