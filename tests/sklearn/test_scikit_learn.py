"""The conventions of scikit-learn: its own checks, data frames, pipelines, searches, bad data."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import entroplay.sklearn

from .cases import ALL, LABELS, X, Y, classifier, density, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DEFAULTS = [type(make())() for make, _ in ALL.values()]
"""Every estimator with its default settings."""
FIT_NOTHING = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
"""The checks that are quick."""


def checks():
    """All checks of scikit-learn, with the default settings.

    Almost every check compiles for another shape, ten minutes in all: `make test` runs only those
    that fit nothing.
    """
    for default in DEFAULTS:
        for estimator, check in estimator_checks_generator(default):
            name = getattr(check, "func", check).__name__
            marks = [] if name in FIT_NOTHING else [pytest.mark.slow]
            yield pytest.param(estimator, check, id=f"{type(default).__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_every_estimator_is_in_the_table_of_tests():
    exported = {name for name in entroplay.sklearn.__all__ if name.startswith("MeanField")}
    tested = {type(estimator).__name__ for estimator in DEFAULTS}
    assert exported == tested, "add the new estimator to ALL in tests/sklearn/cases.py"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_bring_their_names(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    model = regressor().fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(model.predict(frame), regressor().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["right", "left"]])


@pytest.mark.slow
def test_pipelines_searches_and_routed_weights():
    weights = np.ones(len(X))
    with config_context(enable_metadata_routing=True):
        model = (
            # With learned relevance, folds of 60 rows do not tell these temperatures apart.
            regressor(relevance="equal")
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True)
        )
        pipeline = make_pipeline(MinMaxScaler(), model)
        search = GridSearchCV(pipeline, {"meanfieldregressor__temperature": [0.02, 1.0]}, cv=3)
        search.fit(X, Y, sample_weight=weights)
    assert search.best_params_ == {"meanfieldregressor__temperature": 0.02}


@pytest.mark.slow
def test_a_search_in_two_processes():
    search = GridSearchCV(classifier(), {"temperature": [0.02, 1.0]}, cv=3, n_jobs=2).fit(X, LABELS)
    assert search.best_params_ == {"temperature": 0.02}


def test_data_that_cannot_be_written_to():
    frozen, targets = X.copy(), Y.copy()
    frozen.setflags(write=False)
    targets.setflags(write=False)
    regressor().fit(frozen, targets).predict(frozen)


def test_bad_data_are_refused_as_scikit_learn_does():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        regressor().fit(csr_array(X), Y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        density().fit(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier().fit(X, LABELS[:-1])
    with pytest.raises(ValueError, match="X has 3 features, but MeanFieldRegressor is expecting 2"):
        regressor().fit(X, Y).predict(np.ones((4, 3)))
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(X, Y)
