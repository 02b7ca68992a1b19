"""Low temperatures: no answer is worse than an earlier one, and what was not reached is said."""

import numpy as np
import pytest

import entroplay as ep

ACTIVATIONS = ("tanh", "relu", "sigmoid", "erf")
ROUNDING = 1e-6
"""Absolute rise of a loss of order one that single precision explains."""


def random_problem(rng, activation, sizes, rows):
    """A network on a smooth or a jumpy target, a prior variance in [0.1, 30], T in [1e-6, 1]."""
    n, d = rows, int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    smooth = np.sin(X @ rng.normal(size=d) * rng.uniform(0.5, 3))
    jumpy = 2 * np.sign(X[:, 0]) + (X[:, -1] > 0.5)
    y = smooth if rng.random() < 0.5 else jumpy
    y = (y - y.mean()) / y.std()
    variance, temperature = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-6, 0)
    features = ep.Neurons(X, activation, bias=True, output_weight=True, scale=10.0)
    problem = ep.FiniteSum(
        features, ep.Squared(y), temperature=temperature, l2=temperature / (2 * variance)
    )
    return problem, y, int(rng.choice(sizes))


def never_worse(problem, y, particles, iterations, seed):
    """Solve, and compare the answer with everything that came before it and with a constant."""
    solution = ep.solve(problem, particles=particles, iterations=iterations, seed=seed)
    history, moments = solution.history, np.asarray(solution.moments, np.float64)
    # Rows of the history from the first solve on: before it there is only the prior, more than once
    # if the first step was too long.
    solved = np.isfinite(history["temperature"])
    assert solved.any()
    loss = history["loss_moments"][solved]
    # An H with the sampling noise of one solve costs T d_eff / (2 m) at most on average; to first
    # order its loss fluctuates by T sqrt(v / m), with the variance v of the exponents of the Gibbs
    # weights against the prior. Such exponents vary by d_eff or less. Three times, for each answer.
    d_eff = history["d_eff"][solved] / particles
    noise = 3 * history["temperature"][solved] * (d_eff + np.sqrt(d_eff)) + ROUNDING
    confirmed = history["effective_sample_size"][solved] >= 0.35
    lowest = np.inf
    for value, slack, fine in zip(loss, noise, confirmed, strict=True):
        # What is not confirmed is given up, so that it does not count.
        assert not fine or value <= lowest + 2 * slack
        lowest = min(lowest, value) if fine else lowest
    constant = np.mean((y - y.mean()) ** 2) / 2
    final = np.mean((moments - y) ** 2) / 2
    assert final <= min(lowest, constant) + 2 * noise[-1]
    predicted = np.asarray(solution.predict(problem.features.rows), np.float64)
    assert np.mean((predicted - y) ** 2) / 2 <= constant
    reached = history["beta"][-1] == 1
    if not reached:
        assert solution.status in ("too cold", "iterations")
    if solution.status == "too cold":
        assert f"not {problem.temperature:.3g}" in solution.status.message or reached
        assert "Use more particles" in solution.status.message or (
            "Pose the problem in double precision" in solution.status.message
        )
    return solution


@pytest.mark.parametrize(
    "activation", ["relu", *(pytest.param(a, marks=pytest.mark.slow) for a in ACTIVATIONS[::2])]
)
def test_no_answer_is_worse_than_an_earlier_one(activation):
    rng = np.random.default_rng(ACTIVATIONS.index(activation))
    problem, y, _ = random_problem(rng, activation, (256,), rows=40)
    never_worse(problem, y, 256, iterations=30, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(48))
def test_no_answer_is_worse_over_activations_priors_temperatures_and_clouds(seed):
    rng = np.random.default_rng([17, seed])
    activation = ACTIVATIONS[seed % 4] if seed < 40 else "sine"
    problem, y, particles = random_problem(
        rng, activation, (64, 256, 1024, 4096, 8192), rows=int(rng.integers(20, 150))
    )
    never_worse(problem, y, particles, iterations=40, seed=seed)


def friedman(n, temperature):
    """A table whose cold fit has about as many degrees of freedom as rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = np.sin(3 * X[:, 0] * X[:, 1]) + X[:, 2] ** 2 + 0.5 * X[:, 3]
    y = (y - y.mean()) / y.std()
    features = ep.Neurons(X, "relu", bias=True, output_weight=True, scale=10.0)
    return ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=temperature / 2)


def test_a_cloud_that_is_too_small_stops_above_and_says_what_to_change():
    problem = friedman(100, 1e-5)
    solution = ep.solve(problem, particles=100, iterations=60)
    assert solution.status == "too cold"
    assert "100 particles" in solution.status.message
    assert "Use more particles" in solution.status.message
    assert solution.history["beta"][-1] < 1


@pytest.mark.slow
def test_a_cloud_whose_size_is_not_given_grows_and_gets_there(tmp_path, monkeypatch):
    """It has at least three particles per degree of freedom, fits better, and can be resumed."""
    monkeypatch.setattr("entroplay.verbs.solve.PARTICLES", 100)
    problem, checkpoint = friedman(100, 1e-4), tmp_path / "run.ckpt"
    first = ep.solve(
        problem, iterations=25, checkpoint=checkpoint, callback=lambda r: r.iteration >= 12
    )
    solution = ep.solve(problem, iterations=25, checkpoint=checkpoint)
    whole = ep.solve(problem, iterations=25)
    m = whole.particles.shape[0]
    assert m >= first.particles.shape[0] > 100
    assert whole.history["beta"][-1] == 1
    assert m >= 3 * whole.history["d_eff"][-1] > 100
    small = ep.solve(problem, particles=100, iterations=25)
    assert float(problem.empirical_loss(whole.moments)) < float(
        problem.empirical_loss(small.moments)
    )
    np.testing.assert_array_equal(solution.moments, whole.moments)


@pytest.mark.slow
def test_ten_classes_never_form_all_features_at_once(monkeypatch):
    """CrossEntropy with ten classes: products of factors, and the same answer as by the matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    labels = np.argmax(X @ rng.normal(size=(5, 10)), axis=1)
    features = ep.Neurons(X, bias=True, output_weight=True, outputs=10, scale=10.0)
    problem = ep.FiniteSum(features, ep.CrossEntropy(labels, 10), temperature=3e-3, l2=1.5e-3)
    monkeypatch.setattr("entroplay.measures.newton_system.DIRECT", 100)
    by_products = ep.solve(problem, particles=512, iterations=25)
    monkeypatch.undo()
    by_matrix = ep.solve(problem, particles=512, iterations=25, seed=1)
    losses = [float(problem.empirical_loss(s.moments)) for s in (by_products, by_matrix)]
    assert all(s.history["beta"][-1] == 1 for s in (by_products, by_matrix))
    d_eff = by_matrix.history["d_eff"][-1]
    # The loss at the moments of a solve has noise of order T d_eff / m.
    assert abs(losses[0] - losses[1]) < 3 * 3e-3 * d_eff / 512 + 0.02 * losses[1]
    assert by_products.history["d_eff"][-1] == pytest.approx(
        d_eff, abs=4 * np.sqrt(2 * d_eff / 8) + 0.1 * d_eff
    )
