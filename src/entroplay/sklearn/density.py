"""A mixture of normals over a free mixing measure, as a scikit-learn density estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..base.arguments import one_of, positive, whole
from ..base.program_cache import keep_programs
from ..runs.solution import Reason, Solution, Status
from ..verbs.certificate import Certificate
from ..verbs.certify import certify
from .bandwidth import BandwidthPath, log_density
from .coordinates import SHAPES, Coordinates
from .fit import ISLAND, TEMPERING
from .mixing import solve_on_support
from .rows import WeightedRows, bucket, merge
from .storable import Storable
from .summary import Facts, Lines, Summarised
from .support import MixingProblem, NewtonLog, Support
from .verdicts import automatic, new_seed, relative_bound, verdict_warning, verified_bound
from .watched import Watched

SHARED_ROWS = 512
"""Maximum number of rows for which folds are padded to the size of the whole set. With more rows,
the padding takes longer than the compilation of another program."""
ROUNDS = 3
"""Maximum number of proposals for a support of the final fit."""
BUDGETS = (200, 1000)
"""Pulls of the first certificate, and of the second one, which follows if the first misses tol."""
GROWTH = 4
"""Factor by which the support grows before the second certificate."""


class MeanFieldDensity(Storable, DensityMixin, Summarised, Watched):
    """Density estimation by a mixture of equal normals over a free mixing measure, certified.

    This is nonparametric maximum likelihood with an entropy: the mixing measure mu minimises the
    mean of -log E_mu[N(x; theta, S)] over the rows x, plus l2 E|theta|^2, plus temperature times
    the negative entropy of mu. No number of components has to be chosen. That problem is convex, so
    the distance to its optimum can be bounded: `duality_gap_` is such a bound.

    The measure is represented by weighted points, which are drawn around the rows and around the
    solution for a wider kernel. Newton's method finds the optimal weights on them. The certificate
    does not use these points: it bounds the distance to the optimum among all measures.

    Args:
        bandwidth: width of the kernel. At bandwidth 1 it is as wide as the data in the direction in
            which they are narrowest, relative to its shape. "auto" narrows the kernel step by step,
            each solution starting from the previous one, and takes the bandwidth with the best
            cross-validated likelihood.
        covariance: shape of the kernel. "local" is the scatter between nearest neighbours, which
            follows clusters; "full" is the covariance of the data, which amounts to whitening;
            "diag" is the diagonal of that covariance.
        temperature: strength of the entropy.
        l2: strength of the penalty, in the units of the bandwidth. "auto" makes the prior
            N(0, temperature / (2 l2)) as wide as the data in every direction.
        particles: number of points that carry the measure. It is multiplied by four if the first
            certificate misses `tol`.
        tol: largest distance to the optimum that the certificate may state without a warning, in
            nats per row.
        max_iter: maximum number of Newton steps at the final bandwidth.
        random_state: source of all randomness, as in scikit-learn.
        verbose: 1 prints what is tried and what is certified.

    Attributes:
        bandwidth_: the bandwidth given or found.
        covariance_: (d, d), the covariance of the kernel, in the units of X.
        locations_, weights_: (m, d) and (m,), the means of the normals in the units of X, and their
            weights.
        duality_gap_: bound on the distance to the global optimum; infinite if it could not be
            verified.
        certificate_: the `Certificate` with that bound; None if the fit was interrupted.
        search_: the bandwidths tried, as a list of tuples (bandwidth, cross-validated mean
            log-likelihood).
        n_iter_: number of Newton steps at the final bandwidth.
        particles_: (m, d), the locations in the coordinates of the kernel.
        history_: dictionary of arrays with one entry per solve on a support; `inner_steps` are its
            Newton steps.
        solution_: the `Solution` for the distinct rows, in the coordinates of the kernel.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldDensity
    >>> X = np.concatenate([np.linspace(-3, -2, 20), np.linspace(2, 3, 20)])[:, None]
    >>> density = MeanFieldDensity(bandwidth=0.3, random_state=0).fit(X)
    >>> low, high = density.score_samples([[0.0], [2.5]])
    >>> bool(high > low + 2)
    True
    """

    _learned: ClassVar = {
        "n_features_in_": None,
        "feature_names_in_": None,
        "bandwidth_": None,
        "search_": None,
        "_coordinates": Coordinates,
        "_facts": Facts,
    }

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
        """Fit the density to rows X (n, d).

        Args:
            X: rows.
            y: ignored.
            sample_weight: non-negative weights of the rows, or None for equal ones. A row of weight
                two counts as a row given twice.
        """
        keep_programs()
        owner, began = type(self).__name__, time.perf_counter()
        X = validate_data(self, X, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        width, tol = automatic(owner, "bandwidth", self.bandwidth), positive(owner, "tol", self.tol)
        shape = one_of(owner, "covariance", self.covariance, SHAPES)
        max_iter = whole(owner, "max_iter", self.max_iter)
        verbose = whole(owner, "verbose", int(self.verbose), least=0)
        seed = new_seed(self.random_state)
        temperature = positive(owner, "temperature", self.temperature)
        l2 = automatic(owner, "l2", self.l2)
        particles = whole(owner, "particles", self.particles, least=8)

        say = self._speaker(verbose)
        rows = merge(X, np.zeros((len(X), 0)), weights)
        # The folds share compiled programs with the fit to all rows, where padding is cheap.
        size = bucket(len(rows)) if len(rows) <= SHARED_ROWS else 0
        path = BandwidthPath(shape, temperature, l2, seed, say, least_size=size)
        self._forget_fit()
        self.search_: list[tuple[float, float]] = []
        if width is None:
            width, self.search_ = path.cross_validate(rows)
        self.bandwidth_ = width
        self._coordinates = Coordinates.of(rows.X, rows.weights, shape)
        rows = WeightedRows(self._coordinates(rows.X), rows.y, rows.weights)
        problem = path.problem(rows, self._coordinates, width)
        support = path.lead_to(rows, self._coordinates, width)

        def accept(solution: Solution, certificate: Certificate | None) -> None:
            self._accept(rows, solution, certificate, began)

        say(f"fitting all {len(rows)} rows with bandwidth {width:.3g}")
        self._solve(
            problem, support, particles, seed, tol=tol, max_iter=max_iter, say=say, accept=accept
        )
        verdict_warning(owner, self.certificate_, self.solution_, tol, self.n_iter_, max_iter)
        return self

    def _solve(
        self,
        problem: MixingProblem,
        support: Support,
        particles: int,
        seed: int,
        *,
        tol: float,
        max_iter: int,
        say: Callable[[str], None],
        accept: Callable[[Solution, Certificate | None], None],
    ) -> None:
        """Solve and certify, a second time on a larger support if the first result misses `tol`."""
        n = len(problem.rows)
        rng, log = np.random.default_rng([seed, n]), NewtonLog(max_iter)
        for count, budget in zip((particles, GROWTH * particles), BUDGETS, strict=True):
            support = solve_on_support(problem, count, rng, last=support, rounds=ROUNDS, log=log)
            solution = as_solution(problem, support, log, seed)
            accept(solution.first_rows(n), None)
            self._show_draft()
            # The certificate is that of the padded rows: it compiles once for nearly equal sizes.
            try:
                certificate = certify(solution, seed=seed, particles=ISLAND, budget=budget)
            except KeyboardInterrupt:  # the density is there, only its bound is missing
                break
            accept(solution.first_rows(n), certificate)
            work = f"{len(support.points)} points, {log.steps} steps"
            say(f"{work}: {certificate.verdict}")
            if (certificate.verified and certificate.bound <= tol) or log.left <= 0:
                break

    def _accept(
        self,
        rows: WeightedRows,
        solution: Solution,
        certificate: Certificate | None,
        began: float,
    ) -> None:
        """Become the density with this mixing measure."""
        self.solution_, self.certificate_ = solution, certificate
        likelihood = rows.weights @ np.log(np.asarray(solution.moments, np.float64))
        score = float(likelihood) + self._coordinates.log_volume
        self._facts = Facts(len(rows), score, time.perf_counter() - began)
        self._derive()

    def _derive(self) -> None:
        self.duality_gap_ = verified_bound(self.certificate_)
        self.relative_gap_ = relative_bound(self.certificate_)
        self.history_ = self.solution_.history
        # Fits saved by earlier versions have one entry per step.
        steps = self.history_.get("inner_steps", np.ones(len(self.history_["iteration"])))
        self.n_iter_ = max(1, int(np.sum(steps)))
        self.particles_ = np.asarray(self.solution_.particles)
        self.weights_ = np.asarray(self.solution_.weights)
        self.locations_ = self._coordinates.undo(self.particles_)
        # The kernel is N(0, bandwidth^2 I) after x -> x @ axes.
        back = np.linalg.inv(self._coordinates.axes)
        self.covariance_ = self.bandwidth_**2 * back.T @ back

    def _fit_lines(self) -> Lines:
        chosen = (
            f"bandwidth {self.bandwidth_:.3g}{self._tried()}, covariance {self.covariance}, "
            f"temperature {self.temperature:.3g}, {len(self.weights_)} points"
        )
        lines = [self._data_line("column"), ("chosen", chosen)]
        if hasattr(self, "_facts"):
            score = f"mean log-density {self._facts.score:.4g} at the training rows"
            lines.append(("fit", score))
        return lines

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density (n,) at the rows, in the units of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return (
            log_density(self.particles_, self.weights_, self._coordinates(X), self.bandwidth_)
            + self._coordinates.log_volume
        )

    def score(self, X: Any, y: Any = None) -> float:  # type: ignore[override]
        """The mean log-density of the rows; y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows (n_samples, d) from the density.

        Args:
            n_samples: number of rows.
            random_state: source of randomness; None takes that of the estimator.
        """
        check_is_fitted(self)
        n_samples = whole(type(self).__name__, "n_samples", n_samples)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        weights = self.weights_ / self.weights_.sum()
        chosen = self.particles_[rng.choice(len(self.particles_), size=n_samples, p=weights)]
        return self._coordinates.undo(chosen + self.bandwidth_ * rng.standard_normal(chosen.shape))


def as_solution(problem: MixingProblem, support: Support, log: NewtonLog, seed: int) -> Solution:
    """The measure on the support as a `Solution` in double precision, with padded rows."""
    n, posed = len(problem.rows), problem.posed()
    kept = support.weights > 0
    reason = Reason.CONVERGED if support.converged else Reason.ITERATIONS
    message = f"{log.steps} steps of Newton's method on {len(support.points)} points"
    history = {name: np.array([solve[name] for solve in log.solves]) for name in log.solves[0]}
    with posed.arithmetic():
        # H_i = 1 / u_i, in units of the density. Padding has no weight: any moment will do there.
        moments = np.exp(problem.log_height - support.log_slopes)
        moments = jnp.asarray(np.concatenate([moments, np.ones(problem.size - n)]))
        dual = posed.slope(moments)
        return Solution(
            problem=posed,
            solver="Newton's method on weighted points",
            particles=jnp.asarray(support.points[kept]),
            moments=moments,
            dual=dual,
            weights=jnp.asarray(support.weights[kept]),
            history=history,
            status=Status(reason, message),
            path=jnp.stack([share * dual for share in TEMPERING]),
            seed=seed,
        )
