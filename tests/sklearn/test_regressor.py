"""The regressor: smooth functions, several targets, outliers, other solvers."""

import numpy as np
import pytest

import entroplay as ep
from entroplay.sklearn import MeanFieldRegressor, network
from entroplay.sklearn.relevance import Relevance

from .cases import X, Y, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_a_smooth_function_is_learned_with_the_defaults():
    model = MeanFieldRegressor(random_state=0).fit(X[:60], Y[:60])
    # Noise-free, 60 rows: the best constant has 0, a ridge regression 0.55.
    assert model.score(X[60:], Y[60:]) > 0.85
    tried = [trial.temperature for trial in model.search_]
    assert model.temperature_ in tried
    assert len(tried) >= 4
    assert model.duality_gap_ == model.certificate_.bound
    assert len(model.history_["gap"]) == model.n_iter_
    assert model.particles_.shape == model.solution_.particles.shape == (4096, 4)


@pytest.mark.parametrize(("gain", "activations"), [(0.9, ["relu"]), (1.1, ["relu", "sine"])])
def test_a_smooth_activation_competes_where_it_is_clearly_more_likely(
    gain, activations, monkeypatch
):
    def relevance(X, y, weights, *, activation, seed, prior):
        evidence = gain * network.SMOOTHER if activation == "sine" else 0.0
        return Relevance(np.ones(X.shape[1]), evidence)

    def searched(trainers, temperature, l2):
        raise Stopped([trainer.features(X).activation for trainer in trainers])

    monkeypatch.setattr(network, "relevance_of", relevance)
    monkeypatch.setattr(network, "search", searched)
    with pytest.raises(Stopped) as stopped:
        MeanFieldRegressor(random_state=0).fit(X, Y)
    assert stopped.value.args[0] == activations


class Stopped(Exception):
    """Ends a fit before its search."""


@pytest.mark.slow
def test_several_targets_are_learned_at_once():
    both = regressor(particles=256).fit(X, np.stack([Y, 100 - 30 * Y], axis=1))
    prediction = both.predict(X)
    assert prediction.shape == (90, 2)
    # The second is a linear image of the first, and both are standardised: to the network they are
    # the same target up to sign.
    correlation = np.corrcoef(prediction[:, 0], prediction[:, 1])[0, 1]
    assert correlation < -0.95
    assert both.score(X, np.stack([Y, 100 - 30 * Y], axis=1)) > 0.7


@pytest.mark.slow
def test_huber_is_not_led_astray_by_outliers():
    spoiled = Y.copy()
    spoiled[::10] += 40
    squared, huber = (
        regressor(loss=loss, particles=256, epsilon=0.3).fit(X, spoiled)
        for loss in ("squared", "huber")
    )
    clean = np.ones(len(Y), bool)
    clean[::10] = False
    errors = [np.abs(model.predict(X)[clean] - Y[clean]).mean() for model in (squared, huber)]
    assert errors[1] < errors[0] / 2


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["efp", "mfld", ep.MFLD(0.05)])
def test_other_solvers_fit_too(solver):
    """With bounded neurons, which methods need that meet the whole loss from the start."""
    model = regressor(solver=solver, max_iter=600, particles=256, tol=10.0).fit(X, Y)
    assert model.solution_.problem.features.activation == "tanh"
    assert model.score(X, Y) > 0.5  # the best constant has 0
