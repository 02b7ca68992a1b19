"""Fits of all estimators: weights, padding, compilation, warm starts, warnings, bad settings."""

import warnings

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import entroplay as ep
from entroplay.sklearn import fit, verdicts
from entroplay.sklearn.fit import Trainer
from entroplay.sklearn.rows import merge

from .cases import ALL, KINDS, X, Y, classifier, density, output, regressor, some

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("name", some("regressor"))
def test_a_weight_is_a_number_of_repetitions_to_the_last_bit(name):
    make, y = ALL[name]
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, size=len(X))
    order = rng.permutation(np.repeat(np.arange(len(X)), weights))
    weighted = make().fit(X, y, sample_weight=weights)
    repeated = make().fit(X[order], None if y is None else y[order])
    np.testing.assert_array_equal(output(weighted, X), output(repeated, X))


def test_padding_adds_nothing():
    rows = merge(X, Y[:, None], np.ones(len(X)))
    trainer = Trainer(
        rows,
        relevance=np.ones(X.shape[1]),
        features=lambda x: ep.Neurons(x, bias=True),
        loss=lambda y: ep.Squared(y[:, 0]),
        solver=ep.NewtonEFP(),
        particles=64,
        most=64,
        hottest=1.0,
        seed=0,
        stratify=False,
        progress=False,
        say=print,
    )
    padded = trainer.problem(0.1, 0.1)
    plain = ep.FiniteSum(
        ep.Neurons(rows.X, bias=True), ep.Squared(rows.y[:, 0]), temperature=0.1, l2=0.1
    )
    cloud = plain.prior(jax.random.key(0), 50)
    potentials = []
    for problem in (padded, plain):
        moments = problem.features.average(cloud)
        potentials.append(problem.features.potential(cloud, problem.weigh(problem.slope(moments))))
        potentials.append(problem.empirical_loss(moments))
    assert padded.features.shape == (128,)
    np.testing.assert_allclose(potentials[0], potentials[2], atol=1e-6)
    np.testing.assert_allclose(potentials[1], potentials[3], rtol=1e-6)


@pytest.mark.slow
def test_the_second_fit_of_the_same_shape_compiles_nothing(monkeypatch):
    """Nor do a fit with a few rows less and predictions for another number of rows."""
    compiled = []

    def fit_and_predict(rows, few, seed):
        # A search, whose certificate is that of the mixture; and a warm fit that draws clouds.
        for good, temperature in ((np.inf, "auto"), (0.0, 0.3)):
            monkeypatch.setattr(fit, "GOOD", good)
            model = regressor(temperature=temperature, l2="auto", activation="tanh")
            model.set_params(random_state=seed).fit(X[:rows], Y[:rows])
            model.predict(X[: rows - 15])
            model.predict(X[:few])

    fit_and_predict(90, 5, seed=0)

    def listen(event, duration, **details):
        if "backend_compile" in event:
            compiled.append(details)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        fit_and_predict(85, 3, seed=1)
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiled == []


@pytest.mark.slow
def test_a_warm_start_goes_on_from_where_the_last_fit_stopped():
    cold = regressor(temperature="auto").fit(X, Y)
    warm = clone(cold).set_params(warm_start=True).fit(X, Y)
    first = warm.temperature_
    warm.fit(X, Y)
    assert warm.temperature_ == first
    assert warm.search_ == []
    assert (warm.history_["beta"] == 1).all()  # the loss need not be turned on again
    assert regressor().fit(X, Y).history_["beta"][0] < 1
    assert warm.score(X, Y) > cold.score(X, Y) - 0.05
    with pytest.raises(
        ValueError, match="warm_start=True needs MeanFieldRegressor to have as many inputs"
    ):
        warm.fit(X[:, :1], Y)


@pytest.mark.parametrize("name", some("regressor"))
def test_a_fit_above_tol_warns_and_says_what_to_do(name, monkeypatch):
    make, y = ALL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(tol=10.0).fit(X, y)
        if name != "density":  # it has no best constant to compare with
            assert model.relative_gap_ < verdicts.GOOD
            make(tol=1e-9).fit(X, y)  # good, whatever tol says
    monkeypatch.setattr(verdicts, "GOOD", 0.0)
    with pytest.warns(
        ConvergenceWarning, match=r"above tol=1e-09: .* Raise particles or the temperature"
    ):
        make(tol=1e-9).fit(X, y)


def must_be(parameter, what):
    """The beginning of the message about a parameter of the regressor."""
    return f"'{parameter}' parameter of MeanFieldRegressor must be {what}"


@pytest.mark.parametrize(
    ("make", "y", "change", "message"),
    [
        (regressor, Y, {"temperature": 0.0}, must_be("temperature", "a finite positive number")),
        (
            regressor,
            Y,
            {"l2": "none"},
            must_be("l2", "a positive number or 'auto'. Got 'none'"),
        ),
        (regressor, Y, {"particles": 4}, must_be("particles", "a whole number >= 8")),
        (regressor, Y, {"particles": "many"}, "'particles' parameter .* or 'auto'. Got 'many'"),
        (regressor, Y, {"loss": "absolute"}, must_be("loss", "one of 'squared', 'huber'")),
        (regressor, Y, {"activation": "step"}, must_be("activation", "one of 'auto', 'tanh'")),
        (regressor, Y, {"solver": "adam"}, must_be("solver", "one of 'newton'")),
        (regressor, Y, {"tol": -1}, "'tol' parameter of MeanFieldRegressor"),
        (regressor, Y, {"max_iter": 0}, "'max_iter' parameter of MeanFieldRegressor"),
        (
            classifier,
            KINDS,
            {"class_weight": "even"},
            "'class_weight' parameter of MeanFieldClassifier must be None, 'balanced'",
        ),
        (classifier, KINDS, {"class_weight": {"z": 1.0}}, r"for classes among \['a', 'b', 'c'\]"),
        (classifier, KINDS, {"class_weight": {"a": -1.0}}, "made of non-negative numbers"),
        (
            classifier,
            np.full(90, "a"),
            {},
            "needs rows of at least two classes; y has one class only",
        ),
        (
            density,
            None,
            {"bandwidth": 0},
            "'bandwidth' parameter of MeanFieldDensity must be a finite positive number",
        ),
        (
            density,
            None,
            {"covariance": "tied"},
            "'covariance' parameter of MeanFieldDensity must be one of 'local', 'full', 'diag'",
        ),
    ],
)
def test_bad_settings_are_named(make, y, change, message):
    with pytest.raises(ValueError, match=message):
        make(**change).fit(X, y)
