"""Prediction intervals: quantiles, coverage, files, and what they say where they are too narrow."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import entroplay as ep
from entroplay.sklearn import MeanFieldRegressor, intervals
from entroplay.sklearn.intervals import Residuals

from .cases import X, Y, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def model():
    return regressor().fit(X, Y)


def equal_residuals(n):
    return Residuals(np.arange(1.0, n + 1)[:, None], np.full((n, 1), 1 / n), "")


def test_the_quantile_is_that_of_conformal_prediction():
    """The residual of rank ceil((n + 1) coverage); with fewer than 9 rows there is none for 0.9."""
    assert equal_residuals(99).quantile(0.9) == [90]
    assert equal_residuals(100).quantile(0.9) == [91]
    assert equal_residuals(9).quantile(0.9) == [9]
    assert equal_residuals(8).quantile(0.9) == [np.inf]


def test_weights_count():
    """A residual with nearly all of the weight is every quantile up to its share."""
    residuals = Residuals(np.array([[1.0], [2.0], [3.0]]), np.array([[0.01], [0.98], [0.01]]), "")
    assert residuals.quantile(0.4) == [2]
    assert residuals.deviation == pytest.approx(np.sqrt(0.01 + 4 * 0.98 + 9 * 0.01))


def test_intervals_are_around_the_prediction_and_grow_with_the_coverage(model):
    middle, deviation = model.predict(X, return_std=True)
    np.testing.assert_array_equal(middle, model.predict(X))
    assert deviation.shape == middle.shape
    widths = []
    for coverage in (0.5, 0.8, 0.95):
        lower, upper = model.predict_interval(X, coverage)
        np.testing.assert_allclose((lower + upper) / 2, middle)
        widths.append((upper - lower)[0])
    assert 0 < widths[0] < widths[1] < widths[2]
    assert widths[0] < 2 * deviation[0] < widths[2]


def test_residuals_of_left_out_rows_are_larger_than_those_of_the_fit(model):
    fitted = np.sqrt(np.mean((model.predict(X) - Y) ** 2))
    assert model.predict(X[:1], return_std=True)[1] > fitted


def test_large_sets_share_one_influence(model, monkeypatch):
    """Beyond LARGEST_CLOUD: generalised cross-validation, close even with these 90 rows."""
    other = pickle.loads(pickle.dumps(model))
    vars(other).pop("_residuals", None)
    monkeypatch.setattr(intervals, "LARGEST_CLOUD", 0)
    exact, quick = (m.predict(X[:1], return_std=True)[1] for m in (model, other))
    np.testing.assert_allclose(quick, exact, rtol=0.25)


def test_files_and_pickles_keep_the_intervals(model, tmp_path):
    ep.save(model, tmp_path / "small.safetensors", data=False)
    for copy in (ep.load(tmp_path / "small.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.predict_interval(X), model.predict_interval(X))


def test_a_file_of_an_earlier_version_says_what_is_missing(model, tmp_path):
    ep.save(model, tmp_path / "small.safetensors", data=False)
    old = ep.load(tmp_path / "small.safetensors")
    del old._residuals
    ep.save(old, tmp_path / "again.safetensors")
    with pytest.raises(ValueError, match="written by an earlier version: its residuals are not"):
        ep.load(tmp_path / "again.safetensors").predict_interval(X)


def test_intervals_that_are_too_narrow_say_so(model):
    other = pickle.loads(pickle.dumps(model))
    model.predict_interval(X)
    other._residuals = replace(model._residuals, caution="too optimistic: many degrees.")
    with pytest.warns(ep.OptimisticWarning, match="too optimistic: many degrees. The intervals"):
        other.predict_interval(X)
    with pytest.warns(ep.OptimisticWarning):
        other.predict(X, return_std=True)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1, "much", None])
def test_bad_coverages_are_refused(model, coverage):
    with pytest.raises(ValueError, match="'coverage' parameter of MeanFieldRegressor must be"):
        model.predict_interval(X, coverage)


@pytest.mark.slow
def test_a_new_fit_forgets_the_old_residuals_and_targets_have_their_own():
    model = regressor().fit(X, Y)
    before = model.predict(X[:1], return_std=True)[1]
    model.fit(X, 100 * Y)
    np.testing.assert_allclose(model.predict(X[:1], return_std=True)[1], 100 * before, rtol=0.01)
    both = regressor().fit(X, np.column_stack([Y, X[:, 0] ** 2]))
    lower, upper = both.predict_interval(X[:5])
    assert lower.shape == upper.shape == (5, 2)
    widths = upper - lower
    np.testing.assert_allclose(widths, widths[:1].repeat(5, axis=0))
    assert widths[0, 0] != pytest.approx(widths[0, 1])


def noisy(rng, n):
    """Rows whose noise has the same distribution everywhere, as the intervals assume."""
    inputs = rng.normal(size=(n, 2))
    return inputs, np.sin(2 * inputs[:, 0]) + 0.5 * inputs[:, 1] + 0.3 * rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_coverage_is_what_was_asked_for(loss):
    """Coverage at new rows, over R training sets of n rows and t test rows each.

    Given a training set, the coverage of a quantile from n residuals has the distribution
    Beta(k, n + 1 - k) with k = ceil((n + 1) c): variance c (1 - c) / (n + 2). On top of it, t test
    rows have the binomial variance c (1 - c) / t. The mean over R sets has the standard error

        sqrt(c (1 - c) (1 / (n + 2) + 1 / t) / R):  0.012 for c = 0.9, R = 8, n = 90, t = 1000.

    Leave-one-out residuals are not independent of each other, and the quantile exceeds c by up to
    1 / (n + 1): the test allows three standard errors and that.
    """
    sets, n, t, levels = 8, 90, 1000, (0.5, 0.8, 0.9, 0.95)
    covered = np.zeros((sets, len(levels)))
    for s in range(sets):
        rng = np.random.default_rng(s)
        model = MeanFieldRegressor(
            loss, temperature=0.03, l2=0.03, particles=256, tol=10.0, random_state=s
        )
        model.fit(*noisy(rng, n))
        inputs, targets = noisy(rng, t)
        for i, level in enumerate(levels):
            lower, upper = model.predict_interval(inputs, level)
            covered[s, i] = np.mean((lower <= targets) & (targets <= upper))
    for level, share in zip(levels, covered.mean(axis=0), strict=True):
        error = np.sqrt(level * (1 - level) * (1 / (n + 2) + 1 / t) / sets)
        assert abs(share - level) < 3 * error + 1 / (n + 1), (level, share, error)
