"""Bounds by an explicit measure hold, whatever the run did, and name their measure."""

import dataclasses

import jax
import numpy as np
import pytest
from problems.cases import LOSSES, cross_entropy, logistic, negative_log, squared, with_loss

import entroplay as ep
from entroplay.measures.mixture import Mixture
from entroplay.verbs.mixture_bound import (
    best_constant,
    lower_bound,
    mixture_bound,
    smaller_bound,
    zero_dual,
)


def optimum(problem):
    return ep.grid.solve(problem, points=None if problem.dim == 1 else 101).value


def check(problem, seed, iterations):
    """The measure's true suboptimality is below its bound against either number below min L."""
    solution = ep.solve(problem, particles=300, iterations=iterations, seed=seed)
    certificate = ep.certify(solution, seed=seed)
    best = optimum(problem)
    # Draws enough for an error far below the bound's slack.
    true = solution.measure.objective(problem, seed=seed + 1, draws=40_000)
    for gibbs in (None, certificate):
        explicit = mixture_bound(problem, solution.measure, gibbs, seed=seed)
        assert true.value - best <= explicit.bound + 3 * true.error
        # Data in single precision: the optimum is right to 1e-6 of the loss.
        assert explicit.dual <= best + 2e-6
    return certificate


@pytest.mark.parametrize("make", [squared, pytest.param(negative_log, marks=pytest.mark.slow)])
def test_known_answers(make):
    check(make(temperature=1e-4, l2=1e-4), seed=1, iterations=12)


MAKERS = {
    "squared": squared,
    "logistic": lambda **k: logistic(d=2, **k),
    "negative log": negative_log,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("temperature", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_known_answers_over_twenty_seeds(name, temperature):
    """Seeds 0 to 19, none picked; runs of two iterations are far from the optimum."""
    problem = MAKERS[name](temperature=temperature, l2=temperature)
    for seed in range(20):
        check(problem, seed, iterations=2 if seed % 2 else 20)


def test_a_bad_measure_has_a_large_bound():
    problem = squared(temperature=1e-3, l2=1e-3)
    features = problem.features.smoothed(jax.random.key(0))
    # All mass where tanh has the wrong sign.
    bad = Mixture.of(features, np.array([[-3.0, 0.05]]), np.array([1.0]))
    explicit = mixture_bound(problem, bad)
    value = bad.objective(problem).value
    assert explicit.bound >= value - optimum(problem) > 0.3
    good = ep.solve(problem, particles=300, iterations=20).measure
    assert mixture_bound(problem, good).bound < explicit.bound / 5


@pytest.mark.parametrize("make", [squared, logistic, cross_entropy, negative_log])
def test_the_zero_dual_is_below_the_optimum(make):
    for temperature in (1.0, 1e-2):
        problem = make(temperature=temperature, l2=temperature)
        assert np.isfinite(zero_dual(problem))
        assert zero_dual(problem) <= optimum(problem)


def test_the_zero_dual_of_linear_features_is_the_prior():
    """Where the loss vanishes at the prior, D(0) is the optimum itself."""
    features = ep.Neurons([[1.0], [-2.0]])
    problem = ep.FiniteSum(features, ep.Squared([0.0, 0.0]), temperature=0.3, l2=0.2)
    assert zero_dual(problem) == pytest.approx(optimum(problem), abs=1e-6)


def test_a_users_loss_has_no_number_below_it():
    """Its derived conjugate may stop short of the supremum."""
    problem = with_loss("user's function")
    assert zero_dual(problem) == -np.inf
    assert lower_bound(problem).limit == -np.inf


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_the_best_constant(name):
    """Against constants around it; a density has no best constant."""
    problem = with_loss(name)
    best = best_constant(problem)
    if name == "negative log":
        assert np.isnan(best)
        return
    rng = np.random.default_rng(0)
    shape = problem.features.shape
    for c in 2 * rng.normal(size=(300, *shape[1:])):
        moments = np.broadcast_to(c, shape).astype(np.float32)
        assert float(problem.empirical_loss(jax.numpy.asarray(moments))) >= best - 1e-6


def test_the_best_constant_of_known_problems():
    y = np.array([1.0, 2.0, 6.0])
    features = ep.Neurons(np.eye(3))
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=1.0, l2=1.0)
    assert best_constant(problem) == pytest.approx(np.var(y) / 2, rel=1e-6)
    problem = ep.FiniteSum(features, ep.Logistic([1, 1, -1]), temperature=1.0, l2=1.0)
    entropy = -(2 / 3 * np.log(2 / 3) + np.log(1 / 3) / 3)
    assert best_constant(problem) == pytest.approx(entropy, rel=1e-6)


def cold_problem(temperature=1e-4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) / np.sqrt(3)
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    features = ep.Neurons(X, bias=True, output_weight=True, scale=10.0)
    loss = ep.Squared((y - y.mean()) / y.std())
    return ep.FiniteSum(features, loss, temperature=temperature, l2=temperature / 2)


@pytest.mark.slow
def test_the_cold_is_certified_by_a_mixture():
    problem = cold_problem()
    solution = ep.solve(problem, particles=600, iterations=25)
    certificate = ep.certify(solution, particles=100, budget=20)
    assert certificate.measure == "mixture"
    assert certificate.verified
    assert certificate.certified
    assert certificate.best_constant == pytest.approx(0.5, rel=1e-4)
    assert certificate.relative_bound == certificate.bound / certificate.best_constant < 0.1
    assert certificate.gibbs_bound > certificate.bound or not certificate.mixed
    assert certificate.primal - certificate.dual <= certificate.bound
    assert "an explicit mixture, against the" in repr(certificate)
    # The moments of the measure are what it predicts.
    objective = solution.measure.objective(problem)
    predicted = solution.measure.predict(problem.features.rows)
    np.testing.assert_allclose(objective.moments, predicted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_run_that_stopped_above_its_temperature_is_bounded_honestly():
    """Sixty particles do not carry the path down; the bound is that of the problem as posed."""
    problem = cold_problem(1e-6)
    solution = ep.solve(problem, particles=60, iterations=30)
    assert solution.status == "too cold"
    certificate = ep.certify(solution, particles=50, budget=5)
    explicit = mixture_bound(problem, solution.measure, certificate)
    assert np.isfinite(explicit.bound)
    # The penalty and the entropy cannot fall below the prior's: the loss alone is in the bound.
    loss = float(problem.empirical_loss(solution.measure.predict(problem.features.rows)))
    assert explicit.bound >= loss - 1e-6


def test_the_measure_is_computed_once(tmp_path):
    problem = squared()
    solution = ep.solve(problem, particles=50, iterations=3)
    assert solution.measure is solution.measure
    ep.save(solution, tmp_path / "whole.ep")
    again = ep.load(tmp_path / "whole.ep")
    np.testing.assert_array_equal(again.measure.centres, solution.measure.centres)
    ep.save(solution, tmp_path / "bare.ep", data=False)
    with pytest.raises(ValueError, match="saved without its data"):
        ep.load(tmp_path / "bare.ep").measure  # noqa: B018


@pytest.mark.parametrize(
    "solver", [ep.EFP(0.1), ep.NaiveEFP(0.1), ep.MFLD(0.1), ep.PDA(), ep.PSDCA()]
)
def test_every_solver_has_a_measure(solver):
    problem = squared(temperature=0.02, l2=0.02)
    solution = ep.solve(problem, solver, particles=100, iterations=10)
    explicit = mixture_bound(problem, solution.measure)
    assert solution.measure.objective(problem).upper >= optimum(problem)
    assert np.isfinite(explicit.bound)


def test_a_dual_value_above_an_explicit_measure_is_not_believed():
    """D(g) <= min L <= L(mixture): clouds that say otherwise have missed mass, all alike."""
    solution = ep.solve(squared(), particles=100, iterations=10)
    certificate = ep.certify(solution, particles=50, budget=5)
    objective = solution.measure.objective(squared(), seed=0)
    wrong = dataclasses.replace(
        certificate, measure="gibbs", mixed=True, bound=1.0, dual=objective.upper + 0.1
    )
    found = smaller_bound(solution, wrong)
    assert found.lower_bound == "zero dual"
    assert not found.mixed
    assert "an explicit measure has a lower objective" in found.reason
    assert found.bound >= objective.upper - optimum(squared())


def test_words():
    solution = ep.solve(squared(), particles=100, iterations=5)
    certificate = ep.certify(solution, particles=50, budget=5)
    certificate = dataclasses.replace(
        certificate, best_constant=0.5, mixed=True, measure="gibbs", islands=8
    )
    small = dataclasses.replace(certificate, bound=0.4)
    large = dataclasses.replace(certificate, bound=0.6)
    doubtful = dataclasses.replace(small, mixed=False, reason="the clouds disagree")
    assert (small.certified, large.certified, doubtful.certified) == (True, False, False)
    assert small.verdict == "at most 0.4 above the global optimum (the clouds agree)"
    assert large.verdict.endswith("(the clouds agree; says little)")
    assert doubtful.verdict.endswith("(not verified: the clouds disagree)")
    assert small.relative_bound == pytest.approx(0.8)
    # Old files know no best constant; densities are judged by a nat per row.
    old = dataclasses.replace(small, best_constant=float("nan"))
    assert np.isnan(old.relative_bound)
    assert old.certified
