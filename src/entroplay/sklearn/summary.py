"""What there is to say about a fitted estimator: as plain text, and as HTML in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..base.notebook import card, sparkline
from ..problems.features.neurons import Neurons
from ..problems.losses import CrossEntropy, Huber, Logistic, Squared
from ..runs.solution import History, Solution
from ..verbs.certificate import Certificate
from ..verbs.leave_one_out import optimism, rise_of

Lines = list[tuple[str, str]]
"""Labelled sentences."""


@dataclass(frozen=True)
class Facts:
    """What a summary says of the training data, and files without data do not hold.

    Attributes:
        rows: the number of distinct rows of positive weight.
        score: how well these are fitted: share of the variance that is explained, accuracy, or mean
            log-density.
        seconds: the time that the whole fit took, with its search and its certificate.
    """

    rows: int
    score: float
    seconds: float


class Summarised(BaseEstimator):
    """An estimator that describes its fit."""

    solution_: Solution
    certificate_: Certificate | None
    relative_gap_: float
    history_: History
    particles_: np.ndarray
    n_features_in_: int
    n_iter_: int
    search_: list[Any]
    _facts: Facts

    def _fit_lines(self) -> Lines:
        """What is particular to an estimator: its data, what was chosen, how well it fits."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        # The certificate comes last, even if it is None: a fit that failed or was interrupted
        # before has set other attributes.
        return hasattr(self, "certificate_")

    def _forget_fit(self) -> None:
        """Count as not fitted until the next fit is complete; a warm start keeps its cloud."""
        for name in ("certificate_", "_residuals"):
            vars(self).pop(name, None)

    def summary(self) -> str:
        """What was fitted, what was chosen and how good it is, as a few lines of text."""
        check_is_fitted(self)
        lines = [f"{label:<12}{text}" for label, text in self._lines()]
        return "\n".join([type(self).__name__, *(f"  {line}" for line in lines)])

    def _html_repr(self) -> str:
        """The representation in notebooks: that of scikit-learn, and the summary after a fit."""
        html = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return html
        losses = self.history_.get("loss_moments", ())
        picture = sparkline(losses, f"training loss, {len(losses)} iterations")
        return html + card(f"{type(self).__name__} after its fit", self._lines(), picture)

    def _lines(self) -> Lines:
        lines = [*self._fit_lines(), ("stopped", self.solution_.status.message)]
        if self.certificate_ is None:
            lines.append(("certificate", "none: the fit was interrupted"))
        else:
            lines.append(("certificate", self.certificate_.verdict))
        if np.isfinite(self.relative_gap_):
            lines.append(("", f"{self.relative_gap_:.2%} of the best constant's loss"))
        if hasattr(self, "_facts"):  # files of earlier versions do not hold it
            lines.append(("time", f"{self._facts.seconds:.3g} s"))
        return lines

    def _data_line(self, column: str, *others: str) -> tuple[str, str]:
        rows = [_many(self._facts.rows, "distinct row")] if hasattr(self, "_facts") else []
        return "data", ", ".join([*rows, _many(self.n_features_in_, column), *others])

    def _tried(self) -> str:
        """How many settings were tried before these."""
        return f" (the best of {len(self.search_)} tried)" if len(self.search_) else ""


def network_lines(model: Any) -> Lines:
    """The summary of a fitted regressor or classifier, apart from its certificate."""
    features = model.solution_.problem.features
    assert isinstance(features, Neurons)
    classes = getattr(model, "classes_", None)
    kind = _many(features.outputs, "target") if classes is None else f"{len(classes)} classes"
    score = "R2" if classes is None else "accuracy"
    variance = model.temperature_ / (2 * np.ravel(model.l2_))
    low, high = variance.min(), variance.max()
    spread = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    chosen = (
        f"temperature {model.temperature_:.3g}, prior variance {spread}{model._tried()}, "
        f"{features.activation}, {_many(len(model.particles_), 'particle')}"
    )
    lines = [model._data_line("input", kind), ("chosen", chosen)]
    if not model.n_iter_:
        return [*lines, ("fit", "no iteration was completed")]
    fit = f"loss {model.history_['loss_moments'][-1]:.4g}"
    if model.certificate_ is not None and np.isfinite(model.certificate_.best_constant):
        fit += f" (the best constant: {model.certificate_.best_constant:.4g})"
    if hasattr(model, "_facts") and np.isfinite(model._facts.score):
        fit += f", {score} {model._facts.score:.3g} at the training rows"
    return [*lines, ("fit", fit), *_new_rows(model, features)]


def _new_rows(model: Any, features: Neurons) -> Lines:
    """The leave-one-out loss, if the solver has computed it and it can be trusted."""
    history = model.history_
    if "leave_one_out" not in history or not hasattr(model, "_facts"):
        return []
    d_eff, loss = float(history["d_eff"][-1]), float(history["leave_one_out"][-1])
    if not np.isfinite([d_eff, loss]).all():
        return []
    per_row = d_eff / (model._facts.rows * features.outputs)
    # The number belongs to the solver's cloud, of which the answer pools several: this is lenient
    # about the size of the cloud, and strict about the degrees of freedom per row.
    rise = rise_of(model.solution_.problem.loss, loss, float(history["loss_moments"][-1]))
    flaw = optimism(d_eff, per_row, len(model.particles_), rise)
    sentence = f"the leave-one-out loss is {flaw}" if flaw else f"leave-one-out loss {loss:.4g}"
    return [("new rows", sentence)]


def training_score(solution: Solution) -> float:
    """R2 or accuracy at the training rows, with their weights; NaN for a constant target."""
    problem = solution.problem
    loss, moments = problem.loss, np.asarray(solution.moments, np.float64)
    weights = np.asarray(problem.weights, np.float64)
    if isinstance(loss, Logistic):
        return float(weights @ (np.asarray(loss.y) * moments > 0))
    if isinstance(loss, CrossEntropy):
        return float(weights @ (moments.argmax(axis=1) == np.asarray(loss.labels)))
    assert isinstance(loss, Squared | Huber)
    y = np.asarray(loss.y, np.float64).reshape(len(moments), -1)
    rest = weights @ (y - moments.reshape(y.shape)) ** 2
    spread = weights @ (y - weights @ y) ** 2
    # Targets are standardised: their variance is one, or that of rounding errors.
    return float(np.mean(1 - rest / spread)) if (spread > 0.5).all() else np.nan


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
