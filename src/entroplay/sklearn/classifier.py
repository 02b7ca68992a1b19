"""An infinitely wide two-layer network as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from ..base.arguments import invalid
from ..problems.losses import CrossEntropy, Logistic, Loss
from .inputs import check_inputs
from .network import LEARNED, Network
from .rows import merge


class MeanFieldClassifier(ClassifierMixin, Network):
    """Classification by an infinitely wide two-layer network, certified near its global optimum.

    The network and its training problem are those of `MeanFieldRegressor`, with the logistic loss
    for two classes and the cross-entropy for more. Inputs are standardised internally.

    Args:
        temperature: strength of the entropy, or "auto": see `MeanFieldRegressor`.
        l2: strength of the penalty, or "auto": see `MeanFieldRegressor`.
        particles: size of the cloud that the solver moves. "auto" takes 16 particles per parameter
            of a neuron, at least 1024.
        activation: "tanh", "sigmoid", "erf", "sine", "relu" or "auto", which is relu, and tanh for
            solvers that do not turn the loss on step by step.
        scale: the factor in front of every neuron, in units of the log-odds.
        relevance: "auto" stretches or shrinks every standardised input by a factor that maximises
            the marginal likelihood of the Gaussian process to which the network tends at high
            temperature; "equal" treats all inputs alike.
        solver: a `Solver`, or the name of one: "newton", "efp", "naive-efp", "mfld", "pda" or
            "psdca". None is `NewtonEFP()`.
        tol: stop when the certificate bounds the distance to the optimum by this number, in units
            of the log-loss. A random guess has a log-loss of log(number of classes).
        max_iter: maximum number of iterations.
        warm_start: whether to continue from the cloud of the previous fit. Its temperature and l2
            then replace "auto".
        class_weight: factors on the weights of the rows: None, a dictionary from classes to
            factors, or "balanced", which gives all classes the same total weight. Classes that a
            dictionary does not name have the factor 1.
        random_state: source of all randomness, as in scikit-learn.
        verbose: 1 prints what is tried and what is certified; 2 adds a progress bar.

    Attributes:
        classes_: the labels, sorted.
        duality_gap_: bound on the distance to the global optimum; infinite if it could not be
            verified.
        relative_gap_: that bound as a share of the best constant's loss.
        certificate_, temperature_, l2_, search_, n_iter_: as in `MeanFieldRegressor`.
        particles_, weights_, history_, solution_: as in `MeanFieldRegressor`.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldClassifier
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> model = MeanFieldClassifier(temperature=0.01, l2=0.01, particles=128, random_state=0)
    >>> model.fit(X, np.abs(X[:, 0]) > 1).predict([[0.0], [1.9]])
    array([False,  True])
    """

    _activation: ClassVar = "relu"
    _learned: ClassVar = {**LEARNED, "classes_": None}

    def __init__(
        self,
        *,
        temperature: Any = "auto",
        l2: Any = "auto",
        particles: Any = "auto",
        activation: Any = "auto",
        scale: Any = 10.0,
        relevance: Any = "auto",
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
        self.relevance = relevance
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeanFieldClassifier:
        """Fit the network to rows X (n, p) and labels y (n,).

        Args:
            X: inputs, as in `MeanFieldRegressor.fit`.
            y: labels of any kind that scikit-learn accepts, of at least two classes.
            sample_weight: non-negative weights of the rows, or None for equal ones. A row of weight
                two counts as a row given twice.
        """
        raw, y = check_inputs(self, X, y)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        X = self._learn_inputs(raw, weights)
        self.classes_, labels = np.unique(y, return_inverse=True)
        seen = np.unique(labels[weights > 0])
        if len(seen) < 2:
            only = self.classes_[seen].tolist()
            raise ValueError(
                "MeanFieldClassifier needs rows of at least two classes; y has one class only: "
                f"{only}."
            )
        weights = weights * self._class_weights(labels, weights)[labels]
        # Two classes need one output, the log-odds of the second.
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        self._fit_rows(merge(X, labels[:, None], weights), outputs, self._loss, stratify=True)
        return self

    def _class_weights(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The factor of each class. "balanced" gives every class the same total weight."""
        owner, k = "MeanFieldClassifier", len(self.classes_)
        if self.class_weight is None:
            return np.ones(k)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            totals = np.bincount(labels, weights, minlength=k)
            return totals.sum() / (k * np.where(totals > 0, totals, np.inf))
        if not isinstance(self.class_weight, dict):
            raise invalid(
                owner, "class_weight", "None, 'balanced' or a dictionary", self.class_weight
            )
        unknown = [label for label in self.class_weight if label not in self.classes_]
        if unknown:
            among = f"for classes among {self.classes_.tolist()}"
            raise invalid(owner, "class_weight", among, unknown)
        factors = np.array(
            [float(self.class_weight.get(label, 1.0)) for label in self.classes_.tolist()]
        )
        if (factors < 0).any() or not np.isfinite(factors).all():
            raise invalid(owner, "class_weight", "made of non-negative numbers", self.class_weight)
        return factors

    def _loss(self, targets: np.ndarray) -> Loss:
        """The loss for places (n, 1) of the labels in `classes_`."""
        labels = targets[:, 0]
        if len(self.classes_) == 2:
            return Logistic(2 * labels - 1)  # labels -1 and 1
        return CrossEntropy(labels, classes=len(self.classes_))

    def decision_function(self, X: Any) -> np.ndarray:
        """The log-odds (n,) of the second of two classes, or scores (n, k) of more classes.

        The softmax of the scores is the probability.
        """
        scores = self._network(self._apply_inputs(X))
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities (n, k) of the classes, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:  # the first of two classes has the score zero
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms (n, k) of the probabilities."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen]
