"""A mixture of normals over a free mixing measure, as a scikit-learn density estimator."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..base.arguments import one_of, positive, whole
from ..problems.features.base import GaussianKernel
from ..problems.losses.base import NegLog
from ..problems.problem import FiniteSum
from ..runs.solution import Reason, Solution, Status
from ..verbs.certify import certify
from .bandwidth import BandwidthPath, log_density
from .coordinates import SHAPES, Coordinates
from .mixing import Posed, Record, Support, solve_on_support
from .network import automatic, new_seed, verdict_warning, verified_bound
from .rows import WeightedRows, bucket, merge, padded
from .storable import Storable
from .training import ISLAND, TEMPERING, trimmed, verdict

ROUNDS = 3
"""Proposals for the support of a fit."""
BUDGETS = (200, 1000)
"""Pulls of the first certificate and of the second, which follows if the first was not good enough."""
GROWTH = 4
"""Of the support before the second."""


class MeanFieldDensity(Storable, DensityMixin, BaseEstimator):
    """The density of X as a mixture of equal normals over a free mixing measure, certified to be near the global optimum.

    This is nonparametric maximum likelihood with an entropy: the mixing measure mu minimises the mean of -log E_mu[N(x; theta, S)]
    plus l2 E|theta|^2 plus temperature times its negative entropy. No number of components has to be chosen.

    Args:
        bandwidth: the width of the kernel, in units in which one makes it as wide as the data in their tightest direction; "auto"
            narrows it step by step, each solution starting where the last one stopped, and takes the best by cross-validated
            likelihood.
        covariance: the shape of the kernel: "local" is the scatter between nearest neighbours, which follows clusters; "full" the
            covariance of the data, which amounts to whitening; "diag" its diagonal.
        temperature: the strength of the entropy.
        l2: the penalty in those units; "auto" makes the prior N(0, temperature / (2 l2)) as wide as the data in every direction.
        particles: size of the support, on which weights are found. It is made four times as large if the certificate asks for it.
        tol: how far from the optimum the certificate may put the answer, in nats per row.
        max_iter: steps of Newton's method at the last bandwidth, at the most.
        random_state: seed of all randomness.
        verbose: 1 prints what is tried and what is certified.

    Attributes:
        bandwidth_: as given or found.
        covariance_: of the kernel, in the units of X.
        locations_, weights_: (m, d) and (m,), where the mixture's normals stand, in the units of X, and how much each weighs.
        duality_gap_: the bound on the distance to the global optimum; infinite where it could not be verified.
        certificate_: the `Certificate` behind it.
        search_: bandwidths tried and their cross-validated mean log-likelihood.
        n_iter_, particles_, history_, solution_: as in `MeanFieldRegressor`, in the coordinates of the kernel.

    The measure stands on weighted points, drawn around the rows and around what was found with a wider kernel; Newton's method
    finds the weights that are optimal on them, and the certificate, which knows nothing of these points, says how good that is
    among all measures.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldDensity
    >>> X = np.concatenate([np.linspace(-3, -2, 20), np.linspace(2, 3, 20)])[:, None]
    >>> density = MeanFieldDensity(bandwidth=0.3, random_state=0).fit(X)
    >>> low, high = density.score_samples([[0.0], [2.5]])
    >>> bool(high > low + 2)
    True
    """

    _learned: ClassVar = {
        **dict.fromkeys(["n_features_in_", "feature_names_in_", "columns_", "bandwidth_", "search_"]), "_coordinates": Coordinates,
    }  # fmt: skip

    def __init__(
        self,
        bandwidth: Any = "auto",
        *,
        covariance: Any = "local",
        temperature: Any = 0.1,
        l2: Any = "auto",
        particles: Any = 8192,
        tol: Any = 0.1,
        max_iter: Any = 100,
        random_state: Any = None,
        verbose: Any = 0,
    ):
        self.bandwidth = bandwidth
        self.covariance = covariance
        self.temperature = temperature
        self.l2 = l2
        self.particles = particles
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MeanFieldDensity:
        """Fit to rows X (n, d); y is ignored."""
        owner = type(self).__name__
        X = validate_data(self, X, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        width, tol = automatic(owner, "bandwidth", self.bandwidth), positive(owner, "tol", self.tol)
        shape, max_iter = (
            one_of(owner, "covariance", self.covariance, SHAPES),
            whole(owner, "max_iter", self.max_iter),
        )
        verbose = whole(owner, "verbose", int(self.verbose), least=0)
        seed = new_seed(self.random_state)

        def say(line: str) -> None:
            if verbose:
                print(f"[{owner}] {line}", flush=True)

        rows = merge(X, np.zeros((len(X), 0)), weights)
        temperature, l2 = (
            positive(owner, "temperature", self.temperature),
            automatic(owner, "l2", self.l2),
        )
        path = BandwidthPath(shape, temperature, l2, seed, say)
        particles = whole(owner, "particles", self.particles, least=8)
        self.search_: list[tuple[float, float]] = []
        if width is None:
            width, self.search_ = path.cross_validate(rows)
        self.bandwidth_ = width
        self._coordinates = Coordinates.of(rows.X, rows.weights, shape)
        rows = WeightedRows(self._coordinates(rows.X), rows.y, rows.weights)
        posed, support = (
            path.posed(rows, self._coordinates, width),
            path.lead_to(rows, self._coordinates, width),
        )

        rng, record = np.random.default_rng([seed, len(rows)]), Record(max_iter)
        for count, budget in zip((particles, GROWTH * particles), BUDGETS, strict=True):
            support = solve_on_support(
                posed, count, rng, last=support, rounds=ROUNDS, record=record
            )
            solution = solution_of(posed, support, record, seed)
            with jax.enable_x64(True):
                self.solution_ = trimmed(solution, len(rows))
            self.certificate_ = certify(solution, seed=seed, particles=ISLAND, budget=budget)
            say(
                f"{len(support.points)} points, {len(record.steps)} steps: {verdict(self.certificate_)}"
            )
            if (self.certificate_.mixed and self.certificate_.bound <= tol) or record.left <= 0:
                break
        self._derive()
        verdict_warning(owner, self.certificate_, self.solution_, tol, max_iter)
        return self

    def _derive(self) -> None:
        self.duality_gap_ = verified_bound(self.certificate_)
        self.history_ = self.solution_.history
        self.n_iter_ = len(self.history_["iteration"])
        self.particles_ = np.asarray(self.solution_.particles)
        self.weights_ = np.asarray(self.solution_.weights)
        self.locations_ = self._coordinates.undo(self.particles_)
        back = np.linalg.inv(self._coordinates.axes)
        self.covariance_ = self.bandwidth_**2 * back.T @ back

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density at each row, in the units of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return (
            log_density(self.particles_, self.weights_, self._coordinates(X), self.bandwidth_)
            + self._coordinates.log_volume
        )

    def score(self, X: Any, y: Any = None) -> float:  # type: ignore[override]
        """The mean log-density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the density, (n_samples, d)."""
        check_is_fitted(self)
        n_samples = whole(type(self).__name__, "n_samples", n_samples)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        chosen = self.particles_[
            rng.choice(len(self.particles_), size=n_samples, p=self.weights_ / self.weights_.sum())
        ]
        return self._coordinates.undo(chosen + self.bandwidth_ * rng.standard_normal(chosen.shape))


def solution_of(posed: Posed, support: Support, record: Record, seed: int) -> Solution:
    """The measure on the support as a `Solution`, in double precision, its rows padded."""
    n, size = len(posed.rows), bucket(len(posed.rows))
    kept = support.weights > 0
    reason = Reason.CONVERGED if support.converged else Reason.ITERATIONS
    message = f"{len(record.steps)} steps of Newton's method on {len(support.points)} points"
    history = {name: np.array([step[name] for step in record.steps]) for name in record.steps[0]}
    with jax.enable_x64(True):
        problem = FiniteSum(
            GaussianKernel(padded(posed.rows, size), posed.width), NegLog(), temperature=posed.temperature,
            l2=posed.temperature / (2 * posed.variance), weights=padded(posed.weights, size),
        )  # fmt: skip
        # Rows without weight have no say: any moment will do.
        moments = jnp.asarray(
            np.concatenate([np.exp(posed.log_height - support.log_slopes), np.ones(size - n)])
        )
        dual = problem.slope(moments)
        return Solution(
            problem=problem, solver=None, particles=jnp.asarray(support.points[kept]), moments=moments, dual=dual,
            weights=jnp.asarray(support.weights[kept]), history=history, status=Status(reason, message),
            path=jnp.stack([share * dual for share in TEMPERING]), seed=seed,
        )  # fmt: skip
