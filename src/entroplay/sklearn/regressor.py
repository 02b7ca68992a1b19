"""An infinitely wide two-layer network as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight

from ..base.arguments import flag, one_of, positive
from ..problems.losses import Huber, Loss, Squared
from .inputs import check_inputs
from .intervals import Intervals, Residuals
from .network import LEARNED, Network
from .rows import WeightedRows, merge
from .scaling import Standardiser


class MeanFieldRegressor(Intervals, MultiOutputMixin, RegressorMixin, Network):
    """Regression by an infinitely wide two-layer network, certified near its global optimum.

    The network is the mean of the neurons scale * tanh(alpha) * activation(w.x + b) under a
    probability measure of (w, b, alpha). Among all such measures the fit minimises the mean loss
    plus l2 E|theta|^2 plus temperature times the negative entropy. That problem is convex, so the
    distance to its optimum can be bounded: `duality_gap_` is such a bound. Inputs and targets are
    standardised internally.

    Args:
        loss: "squared", or "huber", which is linear beyond `epsilon` standard deviations of the
            target.
        epsilon: where the Huber loss becomes linear, in standard deviations of the target.
        temperature: strength of the entropy. "auto" lowers the temperature step by step, each
            solution starting from the previous one, and takes the highest temperature whose
            leave-one-out loss cannot be told from the best. Where leave-one-out losses are too
            optimistic, a part of the rows is held out and judges instead.
        l2: strength of the penalty. "auto" lowers it with the temperature, which keeps the prior
            variance temperature / (2 l2) at 1. If the temperature is given, a larger and a smaller
            prior variance are tried as well.
        particles: size of the cloud that the solver moves. "auto" takes 16 particles per parameter
            of a neuron, at least 1024. The network consists of the last few clouds: 4096 particles
            or more, if the fit had enough iterations.
        activation: "tanh", "sigmoid", "erf", "sine", "relu" or "auto". "auto" is relu, which
            follows kinks and steep slopes best, or sine where targets are smooth: where the
            marginal likelihood (see `relevance`) of sine is clearly larger, leave-one-out losses
            choose. It is tanh for solvers that do not turn the loss on step by step, because they
            need bounded neurons.
        scale: the scale in the formula above, in standard deviations of the target. It is the
            largest output of a neuron with a bounded activation.
        relevance: "auto" stretches or shrinks every standardised input by a factor that maximises
            the marginal likelihood of the Gaussian process to which the network tends at high
            temperature; "equal" treats all inputs alike.
        solver: a `Solver`, or the name of one: "newton", "efp", "naive-efp", "mfld", "pda" or
            "psdca". None is `NewtonEFP()`.
        tol: stop when the certificate bounds the distance to the optimum by this number, in units
            of the loss. The best constant has a squared loss of 1/2.
        max_iter: maximum number of iterations.
        warm_start: whether to continue from the cloud of the previous fit. Its temperature and l2
            then replace "auto".
        random_state: source of all randomness, as in scikit-learn.
        verbose: 1 prints what is tried and what is certified; 2 adds a progress bar.

    Attributes:
        duality_gap_: bound on the distance to the global optimum; infinite if it could not be
            verified.
        relative_gap_: that bound as a share of the best constant's loss.
        certificate_: the `Certificate` with that bound; None if the fit was interrupted.
        temperature_, l2_: the values given or found.
        search_: the values tried, as a list of tuples (temperature, l2, loss), with the
            leave-one-out loss or, after those, the loss of rows held out.
        relevance_: the factor of every standardised input.
        n_iter_: number of iterations of the final fit.
        particles_, weights_: the neurons of the network, one particle (w, b, alpha) per row, and
            their weights, which sum to one.
        history_: dictionary of arrays with one entry per iteration.
        solution_: the `Solution` for the distinct rows after standardisation.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> from entroplay.sklearn import MeanFieldRegressor
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> y = np.sin(2 * X[:, 0])
    >>> model = MeanFieldRegressor(temperature=0.03, l2=0.03, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9, model.duality_gap_ < 0.2
    (True, True)
    """

    _activation: ClassVar = "relu"
    _smooth: ClassVar = "sine"
    _learned: ClassVar = {
        **LEARNED,
        "_targets": Standardiser,
        "_targets_are_flat": None,
        "_residuals": Residuals,
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
        relevance: Any = "auto",
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
        self.relevance = relevance
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MeanFieldRegressor:
        """Fit the network to rows X (n, p) and targets y (n,) or (n, t).

        Args:
            X: inputs, as numbers or as a data frame of pandas or polars. Missing values are filled
                by the median and marked; categories, texts and dates become numbers.
            y: targets.
            sample_weight: non-negative weights of the rows, or None for equal ones. A row of weight
                two counts as a row given twice.
        """
        one_of(type(self).__name__, "loss", self.loss, ("squared", "huber"))
        positive(type(self).__name__, "epsilon", self.epsilon)
        raw, y = check_inputs(self, X, y, multi_output=True, y_numeric=True)
        y = np.asarray(y, np.float64)
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        X = self._learn_inputs(raw, weights)
        self._targets_are_flat = y.ndim == 1
        rows = merge(X, y.reshape(len(X), -1), weights)
        standardise = Standardiser.of(rows.y, rows.weights)
        self._targets = standardise.exact(rows.y)  # a constant target is predicted exactly
        rows = WeightedRows(rows.X, standardise(rows.y), rows.weights)
        self._fit_rows(rows, rows.y.shape[1], self._loss, stratify=False)
        return self

    def _loss(self, targets: np.ndarray) -> Loss:
        """The loss for standardised targets (n, t)."""
        y = targets[:, 0] if targets.shape[1] == 1 else targets
        return Squared(y) if self.loss == "squared" else Huber(y, float(self.epsilon))

    def predict(self, X: Any, return_std: Any = False) -> Any:
        """The predicted targets at rows X: (n,) or (n, t), as the targets of the fit.

        Args:
            X: rows.
            return_std: whether to return a pair: the predictions, and an array of the same shape
                with the standard deviation of new targets around them. It is the root mean square
                of the leave-one-out residuals, the same for all rows: see `predict_interval`.
        """
        outputs = self._network(self._apply_inputs(X))
        values = self._targets.undo(outputs)
        values = values[:, 0] if self._targets_are_flat else values
        if not flag(type(self).__name__, "return_std", return_std):
            return values
        return values, np.full_like(values, self._of_each_target(lambda r: r.deviation))
