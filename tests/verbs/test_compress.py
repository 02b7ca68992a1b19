"""Compression: fewer particles, nearly the same predictions."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import cross_entropy, squared

import entroplay as ep
from entroplay.measures.calibration import calibrated_weights

METHODS = ("herding", "stein", "thinning")
PACKAGES = {"stein": "stein_thinning", "thinning": "goodpoints"}


@pytest.fixture(scope="module")
def network():
    """The paper's network at low temperature, and points outside its data."""
    solution = ep.solve(ep.teacher.paper_network(temperature=1e-3, l2=1e-3), iterations=40)
    X = np.random.default_rng(5).normal(size=(1000, 5))
    return solution, X, np.asarray(solution.predict(X))


def compressed(solution, size, method, **arguments):
    if method in PACKAGES:
        pytest.importorskip(PACKAGES[method])
    return ep.compress(solution, size, method, **arguments)


def rms(prediction, reference):
    return float(np.sqrt(np.mean((np.asarray(prediction) - reference) ** 2)))


@pytest.mark.parametrize(
    ("method", "times"),
    [pytest.param("herding", 5, marks=pytest.mark.slow), ("stein", 3), ("thinning", 4)],
)
def test_fifty_of_a_thousand_predict_far_better_than_random_ones(network, method, times):
    """Against the mean over 20 random subsets with equal weights, at points outside the data.

    Herding must keep the promised factor of five in root mean square, twenty-five in mean square.
    """
    solution, X, full = network
    at, rng = solution.problem.features.at(X), np.random.default_rng(6)
    subsets = [solution.particles[rng.choice(1000, 50, replace=False)] for _ in range(20)]
    random = np.mean([rms(at.average(subset), full) for subset in subsets])
    small = compressed(solution, 50, method)
    assert small.particles.shape == (50, solution.problem.dim)
    assert rms(small.predict(X), full) * times < random
    # The reported errors are the true ones; that of random subsets is known from 20 of them to 5 %.
    problem = solution.problem
    there = np.asarray(problem.features.average(small.particles, small.weights))
    whole = np.asarray(problem.features.average(solution.particles, solution.weights))
    assert small.compression.error == pytest.approx(rms(there, whole), rel=1e-3)
    seen = np.mean([rms(problem.features.average(subset), whole) for subset in subsets])
    assert small.compression.random_error == pytest.approx(seen, rel=0.15)


def test_herding_itself_is_good_not_only_its_weights(network):
    """With equal weights, and against random subsets that are calibrated too."""
    solution, X, full = network
    at, rng = solution.problem.features.at(X), np.random.default_rng(6)
    subsets = [solution.particles[rng.choice(1000, 50, replace=False)] for _ in range(5)]
    plain = np.mean([rms(at.average(subset), full) for subset in subsets])
    weighted = np.mean(
        [
            rms(at.average(s, calibrated_weights(solution.problem, s, solution.moments)), full)
            for s in subsets
        ]
    )
    small = ep.compress(solution, 50)
    assert rms(at.average(small.particles), full) * 4 < plain
    assert rms(small.predict(X), full) < weighted


def test_herding_is_greedy_and_exchanges():
    """Against the plain definition.

    A single particle is the one nearest to the moments. At the end no exchange of one particle
    brings the mean closer.
    """
    problem = squared(d=2)
    solution = ep.solve(problem, ep.MFLD(0.1), particles=40, iterations=20)
    features = np.asarray(problem.features.values(solution.particles, problem.features.rows))
    weights = np.asarray(problem.weights)
    target = np.asarray(solution.weights) @ features
    distance = ((features - target) ** 2) @ weights
    one = ep.compress(solution, 1)
    np.testing.assert_array_equal(one.particles[0], solution.particles[int(distance.argmin())])

    small = ep.compress(solution, 6)
    chosen = [
        int(np.flatnonzero((np.asarray(solution.particles) == p).all(axis=1))[0])
        for p in np.asarray(small.particles)
    ]
    assert len(set(chosen)) == 6

    def cost(indices):
        return weights @ (features[indices].mean(axis=0) - target) ** 2

    for slot in range(6):
        for other in set(range(40)) - set(chosen):
            exchanged = [*chosen[:slot], other, *chosen[slot + 1 :]]
            assert cost(chosen) <= cost(exchanged) * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_a_compressed_solution_is_a_solution(method, tmp_path):
    solution = ep.solve(cross_entropy(), ep.MFLD(0.1), particles=64, iterations=10)
    small = compressed(solution, 8, method)
    assert small.predict([0.3]).shape == (1, 2)
    # Eight particles for 24 numbers: weights may be large, and their sum is one to the rounding of
    # single precision.
    total, size = jnp.sum(small.weights), jnp.sum(jnp.abs(small.weights))
    assert abs(float(total) - 1) <= 8 * 1.2e-7 * float(size)
    assert "from 64 particles by " + method in repr(small)
    ep.save(small, tmp_path / "small")
    again = ep.load(tmp_path / "small", functions={"h": solution.problem.features.h})
    np.testing.assert_array_equal(again.predict([0.3]), small.predict([0.3]))
    assert again.compression == small.compression


@pytest.mark.slow
def test_certificates_are_about_the_dual_and_stay_what_they_are():
    solution = ep.solve(squared(), particles=500, iterations=30)
    small = ep.compress(solution, 50)
    assert ep.certify(small).gap == ep.certify(solution).gap


def test_thinning_is_random_by_its_seed():
    pytest.importorskip("goodpoints")
    solution = ep.solve(squared(d=2), ep.MFLD(0.1), particles=64, iterations=10)
    clouds = [ep.compress(solution, 8, "thinning", seed=s).particles for s in (1, 1)]
    np.testing.assert_array_equal(*clouds)
    with pytest.raises(ValueError, match="'size' parameter of compress must be at most half"):
        ep.compress(solution, 40, "thinning")


@pytest.mark.parametrize("method", list(PACKAGES))
def test_a_missing_package_is_named(method, monkeypatch):
    solution = ep.solve(squared(), ep.MFLD(0.1), particles=16, iterations=2)
    for module in ("stein_thinning.thinning", "goodpoints"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="entroplay\\[compress\\]"):
        ep.compress(solution, 4, method)


def test_bad_arguments_are_named(tmp_path):
    solution = ep.solve(squared(), ep.MFLD(0.1), particles=16, iterations=2)
    for arguments, name in [((16,), "size"), ((0,), "size"), ((4, "best"), "method")]:
        with pytest.raises(ValueError, match=f"'{name}' parameter of compress"):
            ep.compress(solution, *arguments)
    ep.save(solution, tmp_path / "bare", data=False)
    with pytest.raises(ValueError, match=r"saved without its data .* compress needs them"):
        ep.compress(ep.load(tmp_path / "bare"), 4)
