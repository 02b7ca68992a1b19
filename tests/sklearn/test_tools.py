"""Tools of scikit-learn that take an estimator: they work as with any other."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict

from .cases import KINDS, LABELS, X, Y, classifier, density, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def model():
    return regressor(relevance="equal").fit(X, Y)


def test_partial_dependence_follows_the_function(model):
    """The targets are sin(2 a) + b / 2: the dependence on b is a line of slope 1/2."""
    result = partial_dependence(model, X, [1], grid_resolution=10, kind="average")
    slope = np.polyfit(result["grid_values"][0], result["average"][0], 1)[0]
    assert slope == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_permutation_importance_finds_the_column_that_does_not_matter():
    noise = np.random.default_rng(1).normal(size=(len(X), 1))
    wide = regressor().fit(np.hstack([X, noise]), Y)
    found = permutation_importance(wide, np.hstack([X, noise]), Y, n_repeats=3, random_state=0)
    assert found.importances_mean.argmin() == 2
    assert found.importances_mean.argmax() == 0


@pytest.mark.slow
def test_predictions_of_rows_that_were_held_out():
    assert r2_score(Y, cross_val_predict(regressor(), X, Y, cv=3)) > 0.8
    probabilities = cross_val_predict(classifier(), X, KINDS, cv=3, method="predict_proba")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert log_loss(KINDS, probabilities) < np.log(3) / 2


@pytest.mark.slow
def test_searches_of_every_kind():
    grid = GridSearchCV(density(), {"bandwidth": [0.6, 3.0]}, cv=2).fit(X)
    assert grid.best_params_ == {"bandwidth": 0.6}
    settings = {"l2": [0.01, 10.0]}  # a prior as narrow as that has hardly any slope
    drawn = RandomizedSearchCV(regressor(), settings, n_iter=2, cv=2, random_state=0).fit(X, Y)
    assert drawn.best_params_ == {"l2": 0.01}


@pytest.mark.slow
def test_stacking():
    parts = [("network", regressor()), ("line", Ridge())]
    stack = StackingRegressor(parts, Ridge(alpha=1e-3), cv=3).fit(X, Y)
    assert stack.score(X, Y) > 0.9
    assert stack.final_estimator_.coef_[0] > stack.final_estimator_.coef_[1]
    parts = [("network", classifier()), ("line", LogisticRegression())]
    stack = StackingClassifier(parts, cv=3).fit(X, LABELS)  # the line cannot tell these labels
    assert stack.score(X, LABELS) > 0.9


@pytest.mark.slow
def test_calibration():
    calibrated = CalibratedClassifierCV(classifier(), cv=3).fit(X, KINDS)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1)
    assert calibrated.score(X, KINDS) > 0.9
    fitted = FrozenEstimator(classifier().fit(X[:60], LABELS[:60]))
    held_out = CalibratedClassifierCV(fitted, method="sigmoid", cv=2).fit(X[60:], LABELS[60:])
    assert held_out.score(X[60:], LABELS[60:]) > 0.8


@pytest.mark.slow
def test_transformed_targets():
    model = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    assert r2_score(np.exp(Y), model.fit(X, np.exp(Y)).predict(X)) > 0.9
