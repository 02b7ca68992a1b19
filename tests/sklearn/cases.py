"""Small data for all estimators, and the estimators themselves: a new one is one line here."""

from __future__ import annotations

import numpy as np
import pytest

from entroplay.sklearn import MeanFieldClassifier, MeanFieldDensity, MeanFieldRegressor

X = np.random.default_rng(0).normal(size=(90, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
LABELS = np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0).astype(int)]
KINDS = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])]
SMALL = {"temperature": 0.02, "l2": 0.01, "particles": 256, "max_iter": 16, "random_state": 0}
"""Settings of quick fits; tests that share them share what is compiled."""


def regressor(**changes):
    return MeanFieldRegressor(**(SMALL | changes))


def classifier(**changes):
    return MeanFieldClassifier(**(SMALL | changes))


def density(**changes):
    return MeanFieldDensity(**({"bandwidth": 0.6, "particles": 512, "random_state": 0} | changes))


ALL = {"regressor": (regressor, Y), "classifier": (classifier, KINDS), "density": (density, None)}
"""All estimators with quick settings, and targets for the rows `X`."""


def some(*always):
    """All estimators as parameters of a test.

    Those not named here are slow tests: each compiles its own programs.
    """
    return [pytest.param(name, marks=() if name in always else pytest.mark.slow) for name in ALL]


def output(model, rows):
    """The numbers that an estimator predicts: log-densities, probabilities or values."""
    if isinstance(model, MeanFieldDensity):
        return model.score_samples(rows)
    return getattr(model, "predict_proba", model.predict)(rows)
