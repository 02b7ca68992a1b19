"""The explicit measure: density, draws, moments, and an entropy whose limit holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import FEATURES, cross_entropy, negative_log, squared

import entroplay as ep
from entroplay.measures.mixture import FAILURE, Mixture
from entroplay.measures.mixture_fit import fit_mixture


def mixture(problem, count=7, seed=0, spread=1.0):
    """Components of very different widths and weights."""
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(count, problem.dim))
    deviations = np.exp(rng.uniform(-3, 0.3, size=centres.shape))
    features = problem.features.smoothed(jax.random.key(0))
    both = np.concatenate([centres, deviations], axis=1)
    return Mixture.of(features, both, rng.dirichlet(np.ones(count)))


def on_a_line(problem, measure):
    """L(mu) in one dimension by integration, and the entropy, without code of the library."""
    x = np.linspace(-15, 15, 300_001)
    step = x[1] - x[0]
    z = (x[:, None] - measure.centres[:, 0]) / measure.deviations[:, 0]
    normals = np.exp(-(z**2) / 2) / (np.sqrt(2 * np.pi) * measure.deviations[:, 0])
    density = normals @ measure.weights
    entropy = step * np.sum(density * np.log(np.maximum(density, 1e-300)))
    rows = np.asarray(problem.features.rows, np.float64)[:, 0]
    moments = step * np.array([density @ np.tanh(x * row) for row in rows])
    y, w = np.asarray(problem.loss.y, np.float64), np.asarray(problem.weights, np.float64)
    loss = w @ (moments - y) ** 2 / 2
    penalty = problem.l2 * step * density @ x**2
    return loss + penalty + problem.temperature * entropy, entropy, step * density.sum()


@pytest.mark.parametrize("d", [1, 2])
def test_the_density_integrates_to_one(d):
    measure = mixture(squared(d=d))
    axis = np.linspace(-9, 9, 20_001 if d == 1 else 1201)
    points = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    total = np.exp(measure.log_density(points)).sum() * (axis[1] - axis[0]) ** d
    # The coarser grid in the plane has 3 points per deviation of the narrowest component.
    assert total == pytest.approx(1, abs=1e-6)


def test_the_density_is_that_of_the_draws():
    """Numbers of draws in 40 cells against their probabilities: a chi-squared test."""
    measure = mixture(squared())
    edges = np.linspace(-3.5, 3.5, 41)
    fine = np.linspace(edges[:-1], edges[1:], 401)
    density = np.exp(measure.log_density(fine.reshape(-1, 1))).reshape(fine.shape)
    probability = np.trapezoid(density, fine, axis=0)
    counts, _ = np.histogram(measure.sample(20_000, seed=4)[:, 0], edges)
    expected = 20_000 * probability
    large = expected > 5
    square = ((counts - expected)[large] ** 2 / expected[large]).sum()
    # 40 degrees of freedom have a deviation of nine: five of them above.
    assert square < large.sum() + 5 * np.sqrt(2 * large.sum())


def test_draws_follow_the_seed():
    measure = mixture(squared())
    np.testing.assert_array_equal(measure.sample(5, seed=1), measure.sample(5, seed=1))
    assert (measure.sample(5, seed=1) != measure.sample(5, seed=2)).all()


def test_the_objective_is_that_of_an_integral():
    problem = squared(temperature=0.3)
    measure = mixture(problem)
    exact, entropy, mass = on_a_line(problem, measure)
    assert mass == pytest.approx(1, abs=1e-9)
    objective = measure.objective(problem, seed=3, draws=20_000)
    assert abs(objective.value - exact) < 4 * objective.error
    assert exact <= objective.upper
    assert entropy <= measure.entropy_above


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_the_entropys_limit_covers(spread):
    """300 seeds, none of them below the truth; the limit is not so wide that it says nothing."""
    problem = squared()
    measure = mixture(problem, count=20, spread=spread)
    _, exact, _ = on_a_line(problem, measure)
    found = [measure.entropy(seed=seed, draws=200) for seed in range(300)]
    assert FAILURE * len(found) < 1
    assert all(upper >= exact for _, _, upper in found)
    values, errors, _ = map(np.array, zip(*found, strict=True))
    # Standard errors from 200 draws are right on average.
    assert np.std((values - exact) / errors) == pytest.approx(1, abs=0.2)
    assert abs(np.mean(values) - exact) < 4 * np.mean(errors) / np.sqrt(300)
    _, _, limit = measure.entropy(seed=0, draws=20_000)
    assert limit - exact < 0.1


def test_moments_without_a_closed_form_have_an_error_that_covers():
    """The same neurons as a function: their loss by draws against the closed form."""
    problem = squared(temperature=0.1)
    rows = np.asarray(problem.features.rows)
    features = ep.FunctionFeatures(lambda theta, x: jnp.tanh(theta @ x), rows, dim=1)
    drawn = ep.FiniteSum(
        features, problem.loss, temperature=0.1, l2=problem.l2, weights=problem.weights
    )
    closed = mixture(problem)
    same = Mixture(
        features.smoothed(jax.random.key(0)), closed.centres, closed.deviations, closed.weights
    )
    exact = closed.objective(problem, seed=1)
    found = [same.objective(drawn, seed=seed) for seed in range(100)]
    entropies = [closed.objective(problem, seed=seed).value for seed in range(100)]
    scores = [
        (o.value - e) / np.sqrt(o.error**2 - exact.error**2)
        for o, e in zip(found, entropies, strict=True)
        if o.error > exact.error
    ]
    assert np.abs(scores).max() < 5
    assert all(o.upper >= exact.value - 5 * exact.error for o in found)


def test_predictions_are_means_over_draws():
    problem = squared(d=2)
    measure = mixture(problem)
    new = np.array([[0.3], [-1.7]])
    at = problem.features.at(new)
    drawn = np.asarray(at.values(jnp.asarray(measure.sample(40_000), at.dtype), at.rows))
    error = drawn.std(axis=0) / 200
    assert (np.abs(drawn.mean(axis=0) - measure.predict(new)) < 5 * error).all()


def test_components_of_no_weight_are_left_out():
    problem = squared()
    both = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    features = problem.features.smoothed(jax.random.key(0))
    measure = Mixture.of(features, both, np.array([0.5, 0.5, 1e-9]))
    assert measure.weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "make",
    [
        squared,
        lambda: squared(d=2),
        pytest.param(negative_log, marks=pytest.mark.slow),
        pytest.param(cross_entropy, marks=pytest.mark.slow),
    ],
)
def test_a_fitted_mixture_comes_close_to_the_optimum(make):
    problem = make()
    solution = ep.solve(problem, particles=500, iterations=20)
    measure = fit_mixture(problem, solution.particles, solution.dual, solution.moments)
    optimum = ep.grid.solve(problem, points=None if problem.dim == 1 else 101).value
    objective = measure.objective(problem, seed=1)
    # Within a third of the temperature, and never below the optimum.
    assert objective.upper >= optimum
    assert objective.value - optimum < problem.temperature / 3
    assert (measure.weights > 0).all()
    assert measure.weights.sum() == pytest.approx(1)


def test_a_fitted_mixture_of_any_map():
    problem = ep.FiniteSum(
        FEATURES["triangles"](), ep.Squared(np.full((20, 3), 0.1)), temperature=1e-3, l2=1e-3
    )
    particles = problem.prior(jax.random.key(0), 20)
    moments = problem.features.average(particles)
    measure = fit_mixture(problem, particles, problem.slope(moments), moments)
    objective = measure.objective(problem)
    assert np.isfinite([objective.value, objective.error, objective.upper]).all()
    assert measure.predict((4, 5)).shape == (20, 3)


def test_bad_points():
    with pytest.raises(ValueError, match="'points' parameter of log_density must be of shape"):
        mixture(squared(d=2)).log_density([[1.0]])
