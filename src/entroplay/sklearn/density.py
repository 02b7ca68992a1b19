"""A mixture of normals over a free mixing measure, as a scikit-learn density estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh
from scipy.spatial import KDTree
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..arguments import one_of, positive, whole
from ..certificate.certify import Certificate
from ..features import FeatureMap, GaussianKernel, traced
from ..losses import NegLog
from ..problem import FiniteSum
from ..smc import bridge
from ..solution import Solution
from .files import Storable
from .network import BLOCKS, automatic, new_seed, solver_of, verdict_warning, verified_bound
from .rows import Standardiser, WeightedRows, bucket, merge, padded
from .training import Effort, Trained, Trainer, trimmed

SHAPES = ("local", "full", "diag")
NARROWING = 0.85
"""From one bandwidth of the path to the next."""
NARROWEST = 0.05
FOLDS = 4
PATIENCE = 3
"""Bandwidths in a row without a better likelihood, after which a path ends."""
STAGE_ITERATIONS, STAGE_LIMIT, STAGE_PARTICLES = 3, 24, 3072
"""At each bandwidth of the path; and the particles that judge it."""
WARM = 0.3
"""The least temperature at which the path is walked."""
EFFORT = Effort(iterations=12, particles=16384, quick=200)
RIDGE = 1e-6
"""On the covariance of the standardised data, as GaussianMixture's reg_covar."""
NEIGHBOURS, NEIGHBOUR_ROUNDS = 0.15, 4
"""The share of the rows that counts as near: much smaller ones would see every density as flat, and any shape as right."""


def local_scatter(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean scatter of a row and its nearest neighbours, in the metric that it defines itself: the covariance within clusters,
    where there are such, and that of the data, where not. Known up to a factor.
    """
    n, d = Z.shape
    scatter = _covariance(Z, weights)
    if d == 1 or n <= d + 2:
        return scatter
    neighbours = min(n - 1, max(d + 1, int(NEIGHBOURS * n)))
    towards_axes = d / (d + n / 4)  # few rows say little about correlations
    for _ in range(NEIGHBOUR_ROUNDS):
        whitened = np.linalg.solve(np.linalg.cholesky(scatter), Z.T).T
        nearest = np.asarray(KDTree(whitened).query(whitened, neighbours + 1)[1])[:, 1:]
        difference = Z[:, None, :] - Z[nearest]
        scatter = np.einsum("i,ijk,ijl->kl", weights, difference, difference) / neighbours
        scatter = (1 - towards_axes) * scatter + towards_axes * np.diag(np.diag(scatter)) + RIDGE * np.eye(d)
    return scatter


def _covariance(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    centred = Z - weights @ Z
    return (centred * weights[:, None]).T @ centred + RIDGE * np.eye(Z.shape[1])


@dataclass(frozen=True)
class Coordinates:
    """x -> (x - mean) @ axes, in which the kernel is a ball and the data's covariance is diagonal, with `spread` on the diagonal
    and one for the least of them.
    """

    mean: np.ndarray
    axes: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray, shape: str) -> Coordinates:
        """For a kernel that has the shape of the local scatter, of the data's covariance, or of its diagonal."""
        standard = Standardiser.of(X, weights)
        Z = standard(X)
        covariance = _covariance(Z, weights)
        kernel = {"full": covariance, "diag": np.diag(np.diag(covariance))}.get(shape)
        kernel = local_scatter(Z, weights) if kernel is None else kernel
        spread, axes = eigh(covariance, kernel)
        # The sign of an eigenvector is arbitrary: fixed, so that equal data have equal coordinates.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(spread))])
        return cls(standard.mean, axes / np.sqrt(spread[0]) / standard.deviation[:, None], spread / spread[0])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) @ self.axes

    def undo(self, Y: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.axes.T, Y.T).T + self.mean

    @property
    def log_volume(self) -> float:
        """What to add to a log-density in these coordinates to have one in the original units."""
        return float(np.linalg.slogdet(self.axes)[1])


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
        particles: size of the cloud that the solver moves. The last few clouds make up the mixture.
        solver: a name ("newton", "efp", ...) or a `Solver`; default `NewtonEFP()`.
        tol: stop once the certificate bounds the distance to the optimum by this, in nats per row.
        max_iter: iterations at the last bandwidth, at the most.
        random_state: seed of all randomness.
        verbose: 1 prints what is tried and what is certified, 2 shows a progress bar, too.

    Attributes:
        bandwidth_: as given or found.
        covariance_: of the kernel, in the units of X.
        locations_: (m, d), where the mixture's normals stand, in the units of X.
        duality_gap_: the bound on the distance to the global optimum; infinite where it could not be verified.
        certificate_: the `Certificate` behind it.
        search_: bandwidths tried and their cross-validated mean log-likelihood.
        n_iter_, particles_, history_, solution_: as in `MeanFieldRegressor`, in the coordinates of the kernel.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldDensity
    >>> X = np.concatenate([np.linspace(-3, -2, 20), np.linspace(2, 3, 20)])[:, None]
    >>> density = MeanFieldDensity(bandwidth=0.3, particles=128, random_state=0).fit(X)
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
        particles: Any = 1024,
        solver: Any = None,
        tol: Any = 0.1,
        max_iter: Any = 72,
        random_state: Any = None,
        verbose: Any = 0,
    ):
        self.bandwidth = bandwidth
        self.covariance = covariance
        self.temperature = temperature
        self.l2 = l2
        self.particles = particles
        self.solver = solver
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
        shape, max_iter = one_of(owner, "covariance", self.covariance, SHAPES), whole(owner, "max_iter", self.max_iter)
        verbose = whole(owner, "verbose", int(self.verbose), least=0)
        seed = new_seed(self.random_state)

        def say(line: str) -> None:
            if verbose:
                print(f"[{owner}] {line}", flush=True)

        rows = merge(X, np.zeros((len(X), 0)), weights)
        path = _BandwidthPath(
            shape=shape,
            temperature=positive(owner, "temperature", self.temperature),
            l2=automatic(owner, "l2", self.l2),
            particles=whole(owner, "particles", self.particles, least=8),
            solver=solver_of(owner, self.solver),
            seed=seed,
            progress=verbose > 1,
            say=say,
        )
        self.search_: list[tuple[float, float]] = []
        if width is None:
            width, self.search_ = path.cross_validate(rows)
        self.bandwidth_ = width
        self._coordinates, trained, certificate = path.fit(rows, width, tol, max_iter)
        with jax.enable_x64(True):
            cloud = jnp.concatenate(trained.clouds)
            uniform = jnp.full(len(cloud), 1 / len(cloud))
            whole_cloud = eqx.tree_at(lambda s: (s.particles, s.weights), trained.solution, (cloud, uniform))
            self.solution_ = trimmed(whole_cloud, len(rows))
        self.certificate_ = certificate
        self._derive()
        verdict_warning(owner, certificate, self.solution_, tol, max_iter)
        return self

    def _derive(self) -> None:
        self.duality_gap_ = verified_bound(self.certificate_)
        self.history_ = self.solution_.history
        self.n_iter_ = len(self.history_["iteration"])
        self.particles_ = np.asarray(self.solution_.particles)
        self.locations_ = self._coordinates.undo(self.particles_)
        back = np.linalg.inv(self._coordinates.axes)
        self.covariance_ = self.bandwidth_**2 * back.T @ back

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density at each row, in the units of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return log_density(self.particles_, self._coordinates(X), self.bandwidth_) + self._coordinates.log_volume

    def score(self, X: Any, y: Any = None) -> float:  # type: ignore[override]
        """The mean log-density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the density, (n_samples, d)."""
        check_is_fitted(self)
        n_samples = whole(type(self).__name__, "n_samples", n_samples)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        chosen = self.particles_[rng.randint(len(self.particles_), size=n_samples)]
        return self._coordinates.undo(chosen + self.bandwidth_ * rng.standard_normal(chosen.shape))


class _TwoWidths(FeatureMap):
    """Kernels of two widths at the same rows: what a cloud sees on its way from one to the other."""

    wide: GaussianKernel
    narrow: GaussianKernel

    def __init__(self, wide: GaussianKernel, narrow: GaussianKernel):
        self.wide, self.narrow = wide, narrow

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.wide.dim

    @property
    def rows(self) -> Float[Array, "b e"]:  # type: ignore[override]
        """Every row twice, with one over the width behind it."""
        inverse = [jnp.broadcast_to(1 / kernel.bandwidth[:1], (kernel.rows.shape[0], 1)) for kernel in (self.wide, self.narrow)]
        return jnp.concatenate([jnp.concatenate([self.wide.rows] * 2), jnp.concatenate(inverse)], axis=1)

    def values(self, particles: Float[Array, "m d"], rows: Float[Array, "b e"]) -> Float[Array, "m b"]:
        height, inverse = (2 * np.pi) ** (-self.dim / 2), rows[None, :, -1]
        distance = sum((particles[:, j, None] - rows[None, :, j]) ** 2 for j in range(self.dim))
        return height * inverse**self.dim * jnp.exp(-distance * inverse**2 / 2)

    def at(self, X: object) -> _TwoWidths:
        return _TwoWidths(self.wide.at(X), self.narrow.at(X))


def led_over(problem: FiniteSum, start: Solution, seed: int) -> Solution:
    """The solution for a wider kernel, its cloud led by sequential Monte Carlo to this kernel's Gibbs measure of the same dual.

    The moments, and so the dual, are good for both: what a wide kernel makes of a measure, a narrow one makes of that measure
    spread out a little. The moments of the cloud itself are not, where a row has but one particle nearby, or none: its pull would
    be boundless.
    """
    wide, narrow = start.problem.features, problem.features
    assert isinstance(wide, GaussianKernel)
    assert isinstance(narrow, GaussianKernel)
    with jax.enable_x64(True):
        both = FiniteSum(
            _TwoWidths(wide, narrow), NegLog(), temperature=problem.temperature, l2=problem.l2,
            weights=jnp.concatenate([problem.weights, problem.weights]),
        )  # fmt: skip
        # The weights of both halves together sum to one: each has half of its own.
        dual, nothing = 2 * start.dual, jnp.zeros_like(start.dual)
        old, new = jnp.concatenate([dual, nothing]), jnp.concatenate([nothing, dual])
        cloud = bridge(traced(both), jax.random.key(seed), start.particles, old, problem.l2, new)
        return eqx.tree_at(lambda s: (s.problem, s.particles), start, (problem, cloud))


@dataclass(frozen=True)
class _BandwidthPath:
    """Solutions from wide kernels to narrow ones. A narrow kernel alone is a bad start: where the prior's particles leave a row far
    behind, its likelihood vanishes and its pull is boundless.
    """

    shape: str
    temperature: float
    l2: float | None
    particles: int
    solver: Any
    seed: int
    progress: bool
    say: Any

    def trainer(self, rows: WeightedRows, seed: int, size: int) -> Trainer:
        def features(X: np.ndarray) -> GaussianKernel:
            return GaussianKernel(X, 1.0)

        return Trainer(
            rows, features, lambda targets: NegLog(), self.solver, self.particles, hottest=self.temperature, seed=seed,
            stratify=False, progress=self.progress, say=self.say, effort=EFFORT, precise=True, least_rows=size,
        )  # fmt: skip

    def _problem(self, trainer: Trainer, coordinates: Coordinates, width: float, temperature: float) -> FiniteSum:
        penalty = temperature / (2 * coordinates.spread) if self.l2 is None else self.l2 * temperature / self.temperature
        posed = trainer.problem(temperature, penalty)
        with jax.enable_x64(True):
            return eqx.tree_at(lambda p: p.features, posed, GaussianKernel(posed.features.rows, width))

    def _widths(self, coordinates: Coordinates, last: float) -> list[float]:
        """From a kernel as wide as the data in their widest direction down to the last one."""
        widest = np.sqrt(coordinates.spread.max())
        steps = int(np.ceil(np.log(max(widest / last, 1)) / -np.log(NARROWING)))
        return [last / NARROWING**k for k in range(steps, -1, -1)]

    def cross_validate(self, rows: WeightedRows) -> tuple[float, list[tuple[float, float]]]:
        """The bandwidth with the best mean held-out log-likelihood, and all of them."""
        n = len(rows)
        if n < 2 * FOLDS:
            return 1.0, []
        fold = np.random.default_rng([self.seed, n]).permutation(np.arange(n) % FOLDS)
        folds = [_Fold(self, rows.part(fold != f), rows.part(fold == f), self.seed + f, bucket(n)) for f in range(FOLDS)]
        shares = np.array([rows.weights[fold == f].sum() for f in range(FOLDS)])
        widest = np.sqrt(Coordinates.of(rows.X, rows.weights, self.shape).spread.max())
        table: list[tuple[float, float]] = []
        best, width = 0, np.inf
        while len(table) - best <= PATIENCE and width > NARROWEST:
            width = float(widest * NARROWING ** len(table))
            likelihood = float(shares @ [part.narrow(width) for part in folds])
            if not np.isfinite(likelihood):
                break
            self.say(f"bandwidth {width:.3g}: cross-validated log-likelihood {likelihood:.4g}")
            table.append((width, likelihood))
            best = int(np.argmax(smoothed(np.array(table)[:, 1])))
        return (table[best][0], table) if table else (1.0, [])

    def _stage(self, trainer: Trainer, problem: FiniteSum, seed: int, start: Solution | None) -> Trained:
        trained = trainer.run(problem, STAGE_ITERATIONS, STAGE_LIMIT, seed=seed, start=start, pooled=STAGE_PARTICLES)
        if trained.solution.status == "interrupted":
            raise KeyboardInterrupt
        return trained

    def narrowed(self, trainer: Trainer, coordinates: Coordinates, width: float, seed: int, start: Solution | None) -> Trained:
        """The next solution on the path. It is a warm one: at low temperatures a narrower kernel is another world."""
        problem = self._problem(trainer, coordinates, width, max(self.temperature, WARM))
        return self._stage(trainer, problem, seed, None if start is None else led_over(problem, start, seed))

    def cooled(self, trainer: Trainer, coordinates: Coordinates, width: float, seed: int, warm: Trained) -> Trained:
        """From there to the temperature that is wanted."""
        if self.temperature >= WARM:
            return warm
        problem = self._problem(trainer, coordinates, width, self.temperature)
        return self._stage(trainer, problem, seed, warm.solution)

    def fit(self, rows: WeightedRows, width: float, tol: float, max_iter: int) -> tuple[Coordinates, Trained, Certificate | None]:
        """Down to the width with all rows, and then the fit proper."""
        coordinates = Coordinates.of(rows.X, rows.weights, self.shape)
        trainer = self.trainer(WeightedRows(coordinates(rows.X), rows.y, rows.weights), self.seed, bucket(len(rows)))
        start = None
        for k, wider in enumerate(self._widths(coordinates, width)):
            start = self.narrowed(trainer, coordinates, wider, self.seed + k, start).solution
        problem = self._problem(trainer, coordinates, width, self.temperature)
        trained, certificate = trainer.fit_problem(problem, tol=tol, max_iter=max_iter, start=start)
        return coordinates, trained, certificate


def smoothed(values: np.ndarray) -> np.ndarray:
    """The mean with the neighbours on both sides, where there are such: clouds of particles make a likelihood noisy."""
    extended = np.concatenate([values[:1], values, values[-1:]])
    return (extended[:-2] + extended[1:-1] + extended[2:]) / 3


class _Fold:
    """One part of the rows, on which the kernel is narrowed, and the rest, by which that is judged."""

    def __init__(self, path: _BandwidthPath, learned: WeightedRows, held_out: WeightedRows, seed: int, size: int):
        self.coordinates = Coordinates.of(learned.X, learned.weights, path.shape)
        self.trainer = path.trainer(WeightedRows(self.coordinates(learned.X), learned.y, learned.weights), seed, size)
        self.path, self.held_out = path, held_out
        self.start: Solution | None = None
        self.stages = 0

    def narrow(self, width: float) -> float:
        """The mean log-likelihood of the rows held out at the next width."""
        seed = self.trainer.seed + self.stages
        warm = self.path.narrowed(self.trainer, self.coordinates, width, seed, self.start)
        self.start = warm.solution
        self.stages += 1
        trained = self.path.cooled(self.trainer, self.coordinates, width, seed, warm)
        if trained.solution.status == "diverged":
            return -np.inf
        cloud = np.concatenate([np.asarray(c) for c in trained.clouds])
        values = log_density(cloud, self.coordinates(self.held_out.X), width) + self.coordinates.log_volume
        return float(self.held_out.weights @ values)


def log_density(particles: np.ndarray, Y: np.ndarray, width: float) -> np.ndarray:
    """log of the mean of N(y; theta_r, width^2 I) over the particles, far out, too: block by block, in double precision."""
    block = BLOCKS[0] if len(Y) <= BLOCKS[0] else BLOCKS[1]
    values = []
    with jax.enable_x64(True):
        cloud, scale = jnp.asarray(particles), jnp.asarray(width)
        for first in range(0, len(Y), block):
            part = Y[first : first + block]
            values.append(np.asarray(_log_density(cloud, jnp.asarray(padded(part, block)), scale))[: len(part)])
    return np.concatenate(values)


@jax.jit
def _log_density(particles: Float[Array, "m d"], Y: Float[Array, "b d"], width: Float[Array, ""]) -> Float[Array, "b"]:
    d = Y.shape[1]
    square = sum((Y[:, j, None] - particles[None, :, j]) ** 2 for j in range(d))
    height = -d * (jnp.log(width) + 0.5 * np.log(2 * np.pi)) - np.log(particles.shape[0])
    return height + jax.nn.logsumexp(-0.5 * square / width**2, axis=1)
