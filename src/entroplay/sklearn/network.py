"""Infinitely wide two-layer networks as a scikit-learn regressor and classifier."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from ..base.arguments import flag, invalid, is_number, one_of, positive, whole
from ..methods.solvers import EFP, MFLD, PDA, PSDCA, NaiveEFP, NewtonEFP, Solver
from ..problems.features.base import mean_features
from ..problems.features.neurons import ACTIVATIONS, Neurons
from ..problems.losses.base import CrossEntropy, Huber, Logistic, Loss, Squared
from ..runs.solution import Solution
from ..verbs.certify import Certificate
from .rows import Standardiser, WeightedRows, merge, padded
from .storable import Storable
from .training import Trainer, trimmed

SOLVERS: dict[str, type[Solver]] = {
    "newton": NewtonEFP, "efp": EFP, "naive-efp": NaiveEFP, "mfld": MFLD, "pda": PDA, "psdca": PSDCA,
}  # fmt: skip
LEARNED: dict[str, type | None] = dict.fromkeys(
    ["n_features_in_", "feature_names_in_", "columns_", "temperature_", "l2_", "search_"]
)
"""What both networks keep in a file."""
BLOCKS = (64, 1024)
"""Rows that are predicted at once: two shapes, so that predicting other numbers of rows compiles nothing."""


def automatic(owner: str, name: str, value: object) -> float | None:
    """A positive number, or None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, str) or not is_number(value):
        raise invalid(owner, name, "a positive number or 'auto'", value)
    return positive(owner, name, value)


def solver_of(owner: str, solver: object) -> Solver:
    """A solver, from its name or as it is."""
    if solver is None:
        return NewtonEFP()
    if isinstance(solver, str):
        return SOLVERS[one_of(owner, "solver", solver, tuple(SOLVERS))]()
    if not isinstance(solver, Solver):
        raise invalid(
            owner, "solver", f"a Solver or one of {', '.join(map(repr, SOLVERS))}", solver
        )
    return solver


def new_seed(random_state: Any) -> int:
    """A seed for JAX from anything that scikit-learn takes for a source of randomness."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def verified_bound(certificate: Certificate | None) -> float:
    """The certificate's bound, infinite where there is none."""
    return np.inf if certificate is None or not certificate.mixed else certificate.bound


def verdict_warning(
    owner: str, certificate: Certificate | None, solution: Solution, tol: float, max_iter: int
) -> None:
    """Warn about a fit that is not certified to `tol`, and say what to do about it."""
    if certificate is None:
        warnings.warn(
            f"{owner} was interrupted: what it had is kept, without a certificate.",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif solution.status == "diverged":
        warnings.warn(
            f"{owner} diverged: {solution.status.message}", ConvergenceWarning, stacklevel=3
        )
    elif not certificate.mixed:
        warnings.warn(
            f"{owner} could not verify its answer: {certificate.reason}, so that duality_gap_ = {certificate.bound:.3g} is no "
            "bound. A higher temperature makes the problem easier; more particles help, too.",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif certificate.bound > tol:
        warnings.warn(
            f"{owner} stopped after {len(solution.history['iteration'])} of max_iter={max_iter} iterations with duality_gap_ = "
            f"{certificate.bound:.3g} above tol={tol:g}. Raise max_iter or particles, or the temperature, or accept a larger tol.",
            ConvergenceWarning,
            stacklevel=3,
        )


class _Network(Storable, BaseEstimator):
    """What the regressor and the classifier share."""

    _activation: ClassVar[str]
    """With the default solver."""

    temperature: Any
    l2: Any
    particles: Any
    activation: Any
    scale: Any
    solver: Any
    tol: Any
    max_iter: Any
    warm_start: Any
    random_state: Any
    verbose: Any

    @abstractmethod
    def _outputs(self) -> int:
        """k of the network."""

    @abstractmethod
    def _loss(self, targets: np.ndarray) -> Loss:
        """From the targets of the standardised rows."""

    def _fit_rows(self, rows: WeightedRows, *, labels: bool) -> None:
        """Fit the network to rows whose targets are ready; inputs are still as they were given."""
        owner = type(self).__name__
        temperature, l2 = (
            automatic(owner, "temperature", self.temperature),
            automatic(owner, "l2", self.l2),
        )
        max_iter = whole(owner, "max_iter", self.max_iter)
        particles = self._cloud_size(rows.X.shape[1] + 1 + self._outputs())
        activation = one_of(owner, "activation", self.activation, ("auto", *ACTIVATIONS))
        scale, tol = positive(owner, "scale", self.scale), positive(owner, "tol", self.tol)
        verbose = whole(owner, "verbose", int(self.verbose), least=0)
        warm = flag(owner, "warm_start", self.warm_start) and hasattr(self, "_cloud")
        solver = solver_of(owner, self.solver)
        if activation == "auto":
            activation = self._activation if solver.scales_loss else "tanh"
        seed = new_seed(self.random_state)

        self._inputs = Standardiser.of(rows.X, rows.weights)
        rows = WeightedRows(self._scaled(rows.X), rows.y, rows.weights)

        def features(X: np.ndarray) -> Neurons:
            return Neurons(
                X, activation, bias=True, output_weight=True, outputs=self._outputs(), scale=scale
            )

        def say(line: str) -> None:
            if verbose:
                print(f"[{owner}] {line}", flush=True)

        trainer = Trainer(
            rows, features, self._loss, solver, particles, hottest=scale**2 / 100, seed=seed, stratify=labels,
            progress=verbose > 1, say=say,
        )  # fmt: skip
        start = self._cloud if warm else None
        if start is not None and start.particles.shape != (particles, features(rows.X[:1]).dim):
            raise ValueError(
                f"warm_start=True needs {owner} to have as many inputs, outputs and particles as in the fit before. Set "
                "warm_start=False, or use a new estimator."
            )
        if (
            start is not None
        ):  # what was chosen for the first fit holds for those that go on from it
            temperature = self.temperature_ if temperature is None else temperature
            l2 = self.l2_ if l2 is None else l2
        self.temperature_, self.l2_, self.search_ = trainer.search(temperature, l2)
        trained, certificate = trainer.fit(
            self.temperature_, self.l2_, tol=tol, max_iter=max_iter, start=start
        )
        self._cloud = trained.solution
        self.solution_ = trimmed(trained.pooled(), len(rows))
        self.certificate_ = certificate
        self._derive()
        verdict_warning(owner, certificate, self.solution_, tol, max_iter)

    def _derive(self) -> None:
        self.duality_gap_ = verified_bound(self.certificate_)
        self.history_ = self.solution_.history
        self.n_iter_ = len(self.history_["iteration"])
        self.particles_ = np.asarray(self.solution_.particles, np.float64)
        self.weights_ = np.asarray(self.solution_.weights, np.float64)

    def _cloud_size(self, dim: int) -> int:
        if isinstance(self.particles, str) and self.particles == "auto":
            return max(512, 256 * -(-16 * dim // 256))
        if isinstance(self.particles, str):
            raise invalid(
                type(self).__name__, "particles", "a whole number >= 8 or 'auto'", self.particles
            )
        return whole(type(self).__name__, "particles", self.particles, least=8)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """Standardised, and divided by the root of their number: w.x then has the variance of one weight."""
        return self._inputs(X) / np.sqrt(X.shape[1])

    def _network(self, X: np.ndarray) -> np.ndarray:
        """The network's outputs (n, k) in double precision, block by block."""
        X = self._scaled(X)
        block = BLOCKS[0] if len(X) <= BLOCKS[0] else BLOCKS[1]
        network = self.solution_.problem.features
        assert isinstance(network, Neurons)
        blocks = []
        with jax.enable_x64(True):
            particles, weights = jnp.asarray(self.particles_), jnp.asarray(self.weights_)
            for first in range(0, len(X), block):
                part = X[first : first + block]
                features = Neurons(
                    padded(part, block),
                    network.activation,
                    True,
                    True,
                    network.outputs,
                    float(network.scale),
                )
                values = np.asarray(mean_features(features, particles, weights))
                blocks.append(values.reshape(block, -1)[: len(part)])
        return np.concatenate(blocks)


class MeanFieldRegressor(MultiOutputMixin, RegressorMixin, _Network):
    """Regression by an infinitely wide two-layer network, solved to its global optimum and certified.

    The network averages scale * tanh(alpha) * activation(w.x + b) over a probability measure of (w, b, alpha), which minimises the
    mean loss plus l2 E|theta|^2 plus temperature times the negative entropy. Inputs and targets are standardised inside.

    Args:
        loss: "squared", or "huber", which is linear beyond `epsilon` standard deviations of the target.
        epsilon: see `loss`.
        temperature: the strength of the entropy; "auto" tries ever lower ones on a part of the rows, each solution starting where
            the last one stopped, and takes the highest that the other rows cannot tell from the best.
        l2: the penalty; "auto" falls with the temperature, so that the prior variance temperature / (2 l2) is 1; at a given
            temperature a larger and a smaller variance are tried likewise.
        particles: size of the cloud that the solver moves; "auto" is 16 for every parameter of a neuron, 512 at the least. The last
            few clouds, 4096 particles or more, make up the network.
        activation: "tanh", "sigmoid", "erf", "relu" or "auto". The last is relu, which follows kinks and steep slopes best; but
            tanh, whose certificates are tighter, for the classifier, and with solvers that do not turn the loss on step by step:
            they need bounded neurons.
        scale: the largest output of a neuron, in standard deviations of the target.
        solver: a name ("newton", "efp", "mfld", ...) or a `Solver`; default `NewtonEFP()`.
        tol: stop once the certificate bounds the distance to the optimum by this, in units of the loss: that of the best
            constant is 1/2 for the squared loss.
        max_iter: iterations at the most.
        warm_start: go on from the cloud of the fit before, at its temperature.
        random_state: seed of all randomness.
        verbose: 1 prints what is tried and what is certified, 2 shows a progress bar, too.

    Attributes:
        duality_gap_: the bound on the distance to the global optimum; infinite where it could not be verified.
        certificate_: the `Certificate` behind it.
        temperature_, l2_: as given or found.
        search_: what was tried: temperature, l2 and held-out loss, row by row.
        n_iter_: iterations of the fit itself.
        particles_, weights_: the network.
        history_: dictionary of arrays, one entry per iteration.
        solution_: the `Solution`, of the distinct rows after standardisation.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldRegressor
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> model = MeanFieldRegressor(temperature=0.03, l2=0.03, random_state=0).fit(X, np.sin(2 * X[:, 0]))
    >>> model.score(X, np.sin(2 * X[:, 0])) > 0.9, model.duality_gap_ < 0.2
    (True, True)
    """

    _activation: ClassVar = "relu"
    _learned: ClassVar = {
        **LEARNED,
        "_inputs": Standardiser,
        "_targets": Standardiser,
        "_targets_are_flat": None,
    }

    def __init__(
        self,
        loss: Any = "squared",
        *,
        epsilon: Any = 1.35,
        temperature: Any = "auto",
        l2: Any = "auto",
        particles: Any = "auto",
        activation: Any = "auto",
        scale: Any = 10.0,
        solver: Any = None,
        tol: Any = 0.1,
        max_iter: Any = 72,
        warm_start: Any = False,
        random_state: Any = None,
        verbose: Any = 0,
    ):
        self.loss = loss
        self.epsilon = epsilon
        self.temperature = temperature
        self.l2 = l2
        self.particles = particles
        self.activation = activation
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeanFieldRegressor:
        """Fit to rows X (n, p) and targets y (n,) or (n, t)."""
        one_of(type(self).__name__, "loss", self.loss, ("squared", "huber"))
        positive(type(self).__name__, "epsilon", self.epsilon)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._targets_are_flat = y.ndim == 1
        rows = merge(X, y.reshape(len(X), -1), weights)
        self._targets = Standardiser.of(rows.y, rows.weights)
        self._fit_rows(WeightedRows(rows.X, self._targets(rows.y), rows.weights), labels=False)
        return self

    def _outputs(self) -> int:
        return len(self._targets.mean)

    def _loss(self, targets: np.ndarray) -> Loss:
        y = targets[:, 0] if targets.shape[1] == 1 else targets
        return Squared(y) if self.loss == "squared" else Huber(y, float(self.epsilon))

    def predict(self, X: Any) -> np.ndarray:
        """The targets at rows X: (n,) or (n, t)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        values = self._targets.undo(self._network(X))
        return values[:, 0] if self._targets_are_flat else values


class MeanFieldClassifier(ClassifierMixin, _Network):
    """Classification by an infinitely wide two-layer network, solved to its global optimum and certified.

    Logistic loss for two classes, cross-entropy for more. All else is as in `MeanFieldRegressor`.

    Args:
        class_weight: None, "balanced", or a dictionary from classes to weights.
        temperature, l2, particles, activation, scale, solver, max_iter, warm_start, random_state, verbose: as there.
        tol: as there, in units of the log-loss: a guess at random has log(number of classes).

    Attributes:
        classes_: the labels.
        duality_gap_, certificate_, temperature_, l2_, search_, n_iter_, particles_, weights_, history_, solution_: as there.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldClassifier
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> model = MeanFieldClassifier(temperature=0.01, l2=0.01, particles=128, random_state=0).fit(X, np.abs(X[:, 0]) > 1)
    >>> model.predict([[0.0], [1.9]])
    array([False,  True])
    """

    _activation: ClassVar = "tanh"
    _learned: ClassVar = {**LEARNED, "_inputs": Standardiser, "classes_": None}

    def __init__(
        self,
        *,
        temperature: Any = "auto",
        l2: Any = "auto",
        particles: Any = "auto",
        activation: Any = "auto",
        scale: Any = 10.0,
        solver: Any = None,
        tol: Any = 0.1,
        max_iter: Any = 72,
        warm_start: Any = False,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: Any = 0,
    ):
        self.temperature = temperature
        self.l2 = l2
        self.particles = particles
        self.activation = activation
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeanFieldClassifier:
        """Fit to rows X (n, p) and labels y (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        seen = np.unique(labels[weights > 0])
        if len(seen) < 2:
            only = self.classes_[seen].tolist()
            raise ValueError(
                f"MeanFieldClassifier needs rows of at least two classes; y has one class only: {only}."
            )
        weights = weights * self._class_weights(labels, weights)[labels]
        self._fit_rows(merge(X, labels[:, None], weights), labels=True)
        return self

    def _class_weights(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """One factor per class. "balanced" gives every class the same total weight."""
        k = len(self.classes_)
        if self.class_weight is None:
            return np.ones(k)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            totals = np.bincount(labels, weights, minlength=k)
            return totals.sum() / (k * np.where(totals > 0, totals, np.inf))
        if not isinstance(self.class_weight, dict):
            raise invalid(
                "MeanFieldClassifier",
                "class_weight",
                "None, 'balanced' or a dictionary",
                self.class_weight,
            )
        unknown = [label for label in self.class_weight if label not in self.classes_]
        if unknown:
            raise invalid(
                "MeanFieldClassifier",
                "class_weight",
                f"for classes among {self.classes_.tolist()}",
                unknown,
            )
        factors = np.array(
            [float(self.class_weight.get(label, 1.0)) for label in self.classes_.tolist()]
        )
        if (factors < 0).any() or not np.isfinite(factors).all():
            raise invalid(
                "MeanFieldClassifier",
                "class_weight",
                "made of non-negative numbers",
                self.class_weight,
            )
        return factors

    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _loss(self, targets: np.ndarray) -> Loss:
        labels = targets[:, 0]
        return (
            Logistic(2 * labels - 1)
            if len(self.classes_) == 2
            else CrossEntropy(labels, classes=len(self.classes_))
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-odds of the second class (n,), or one score per class (n, k), of which the softmax is the probability."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = self._network(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, k) of the classes in `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        scores = self.decision_function(X)
        return self.classes_[
            (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        ]
