"""Ctrl-C during a fit: what is there is kept, and a warning says what is missing."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from entroplay.runs.loop import Loop
from entroplay.sklearn import bandwidth, density, fit
from entroplay.sklearn.fit import Trainer

from .cases import X, Y, regressor
from .cases import density as density_estimator


def interrupting(function, *, call):
    """The function, interrupted at its n-th call."""
    calls = []

    def wrapped(*args, **kwargs):
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return wrapped


def check_usable(model, rows):
    """Whether the estimator is fitted, but not certified."""
    assert model.certificate_ is None
    assert model.duality_gap_ == model.relative_gap_ == np.inf
    assert "none: the fit was interrupted" in model.summary()
    assert np.isfinite(getattr(model, "score_samples", getattr(model, "predict", None))(rows)).all()


@pytest.mark.slow
def test_during_the_search_the_best_network_so_far_is_kept(monkeypatch):
    monkeypatch.setattr(Trainer, "run", interrupting(Trainer.run, call=4))
    with pytest.warns(ConvergenceWarning, match="was interrupted: the best network"):
        model = regressor(temperature="auto", l2="auto").fit(X, Y)
    check_usable(model, X)
    assert len(model.search_) == 3
    losses = [trial.loss for trial in model.search_]
    chosen = [trial.temperature for trial in model.search_].index(model.temperature_)
    assert losses[chosen] <= 1.1 * min(losses)  # or not clearly worse than the best
    assert model.score(X, Y) > 0.5
    model.predict_interval(X)  # from the rows that were not held out


@pytest.mark.slow
@pytest.mark.parametrize("during", ["search", "fit"])
def test_between_two_chunks_of_a_run(during, monkeypatch):
    """As a keyboard does it: the loop notices, and the run ends with the status "interrupted"."""
    runs, advance, last = [], Loop.advance, 3

    def interrupted(loop, length):
        if loop not in runs:
            runs.append(loop)
        if len(runs) == last and loop.done > 0:
            raise KeyboardInterrupt
        return advance(loop, length)

    monkeypatch.setattr(Loop, "advance", interrupted)
    if during == "fit":  # which follows as many runs as the same search takes undisturbed
        last = np.inf
        complete = searched()
        last = len(runs)
        runs.clear()
    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        model = searched()
    check_usable(model, X)
    assert len(model.search_) == (len(complete.search_) if during == "fit" else 2)
    assert model.solution_.status.reason == ("interrupted" if during == "fit" else "iterations")


def searched():
    """A regressor that has chosen its temperature, with a run for each that it tried."""
    return regressor(temperature="auto", l2="auto", tol=10.0, particles=512).fit(X, Y)


def test_before_anything_is_there_the_interruption_is_passed_on(monkeypatch):
    monkeypatch.setattr(Trainer, "run", interrupting(Trainer.run, call=1))
    model = regressor(temperature="auto", l2="auto")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_earlier_fit_is_forgotten_with_the_scales_of_its_rows(monkeypatch):
    model = regressor(tol=10.0).fit(X, Y).set_params(temperature="auto")
    monkeypatch.setattr(Trainer, "run", interrupting(Trainer.run, call=1))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, 100 * Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_during_the_certificate_only_the_bound_is_lost(monkeypatch):
    explicit = interrupting(fit.explicit_certificate, call=1)
    monkeypatch.setattr(fit, "explicit_certificate", explicit)
    with pytest.warns(ConvergenceWarning, match="without a certificate"):
        model = regressor().fit(X, Y)
    check_usable(model, X)
    assert model.score(X, Y) > 0.9


@pytest.mark.slow
def test_a_density_takes_the_best_bandwidth_so_far(monkeypatch):
    narrow = interrupting(bandwidth._Fold.narrow, call=2 * bandwidth.FOLDS + 1)
    monkeypatch.setattr(bandwidth._Fold, "narrow", narrow)
    with pytest.warns(ConvergenceWarning, match="the best of 2 bandwidths so far is taken"):
        model = density_estimator(bandwidth="auto").fit(X)
    assert len(model.search_) == 2
    assert model.bandwidth_ == max(model.search_, key=lambda row: row[1])[0]
    assert np.isfinite(model.score(X))


@pytest.mark.slow
def test_a_density_without_its_certificate(monkeypatch):
    monkeypatch.setattr(density, "certify", interrupting(density.certify, call=1))
    with pytest.warns(ConvergenceWarning, match="without a certificate"):
        model = density_estimator().fit(X)
    check_usable(model, X)
