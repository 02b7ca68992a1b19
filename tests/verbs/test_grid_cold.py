"""The oracle at temperatures from 1e-6 to 1, against integrals that share no code with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from verbs.independent import Problem, bracket, integrals, optimum

import entroplay as ep
from entroplay.measures.exact import gibbs_moments
from entroplay.measures.quadrature import UnresolvedError

OWN = 3e-8
"""Error that the independent integrals are trusted to have, relative to 1 plus the value."""
QUICK = {1: range(3), 2: (11,)}
"""Numbers of random problems; the one in the plane is cold and takes seconds."""
SLOW = {1: 96, 2: 48}


def wave(theta, x):
    return jnp.sin(theta[0] * x) / (1 + theta[0] ** 2 / 9)


def product(theta, x):
    return jnp.tanh(theta[0] * x) * jnp.tanh(theta[1])


def pair(theta, x):
    return jnp.stack(
        [jnp.tanh(theta[0] * x), jnp.tanh(theta[1] + x) * theta[0] / (1 + theta[0] ** 2)]
    )


FUNCTIONS = {"wave": (wave, 1), "product": (product, 2), "pair": (pair, 2)}
KINDS = {
    1: ("tanh", "relu", "sigmoid", "erf", "wave", "kernel"),
    2: ("tanh", "relu", "sigmoid", "erf", "product", "kernel", "pair"),
}


def random_problem(d, number):
    rng = np.random.default_rng([d, number])
    kind = KINDS[d][number % len(KINDS[d])]
    n = int(rng.integers(3, 13))
    rows = rng.normal(size=n) * rng.choice([0.5, 1, 2])
    targets = rng.choice([rng.normal(size=n), rows**2 / 3, np.sin(2 * rows)])
    loss = ("squared", "logistic", "huber")[number // len(KINDS[d]) % 3]
    strength, scale = rng.choice([1.0, 5.0, 20.0]), rng.choice([1.0, 2.0])
    if kind == "kernel":
        loss, rows, strength = "neg_log", 1.5 * rng.normal(size=(n, d)), rng.choice([0.4, 0.7, 1.2])
    elif kind == "pair":
        loss, targets = "cross_entropy", (targets > np.median(targets)).astype(int)
    elif loss == "logistic":
        targets = np.where(targets > np.median(targets), 1.0, -1.0)
    elif loss == "huber":
        strength = rng.choice([0.5, 1.35])
    # Multiples of the golden ratio spread the logarithms of the temperatures evenly.
    temperature = 10 ** (-6 * (0.618034 * (number + 1) % 1))
    variance = 10 ** rng.uniform(-1, np.log10(30))
    return Problem(
        kind, rows, loss, targets, temperature, variance, d, float(scale), float(strength)
    )


def in_library(p):
    with jax.enable_x64(True):
        if p.kind == "kernel":
            features = ep.GaussianKernel(p.rows, bandwidth=p.strength)
        elif p.kind in FUNCTIONS:
            h, dim = FUNCTIONS[p.kind]
            features = ep.FunctionFeatures(h, p.rows, dim=dim)
        else:
            features = ep.Neurons(
                p.rows[:, None], activation=p.kind, bias=p.dim == 2, scale=p.scale
            )
        loss = {
            "squared": lambda: ep.Squared(p.targets, scale=p.strength),
            "logistic": lambda: ep.Logistic(p.targets),
            "huber": lambda: ep.Huber(p.targets, delta=p.strength),
            "neg_log": ep.NegLog,
            "cross_entropy": lambda: ep.CrossEntropy(p.targets, classes=2),
        }[p.loss]()
        return ep.FiniteSum(features, loss, temperature=p.temperature, l2=p.l2)


def verdict(p, *, own_optimum):
    """None if the oracle refuses; otherwise the errors of its value and of its moments.

    Weak duality brackets the minimum whatever the oracle says: D(g) <= min L <= L(q_g).
    """
    try:
        exact = ep.grid.solve(in_library(p), iterations=0)
    except UnresolvedError:
        return None
    own = OWN * (1 + abs(exact.value))
    below, above, _ = bracket(p, exact.moments)
    assert below - own - exact.error.value <= exact.value <= above + own + exact.error.value, p
    assert above - below <= 10 * (own + exact.error.value), p
    value_error, moments_error = max(below - exact.value, exact.value - above, 0), 0.0
    if own_optimum:
        value, moments = optimum(p)
        assert abs(value - exact.value) <= own + exact.error.value, p
        moments_error = float(np.abs(moments - exact.moments).max())
        assert moments_error <= 1e-5 * (1 + np.abs(moments).max()) + exact.error.moments, p
        value_error = abs(value - exact.value)
    return value_error, moments_error


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_oracle_is_right_or_refuses(d):
    answers = [verdict(random_problem(d, i), own_optimum=d == 1 and i == 4) for i in QUICK[d]]
    assert sum(a is None for a in answers) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_the_oracle_is_right_or_refuses_on_many_problems(d):
    answers = [verdict(random_problem(d, i), own_optimum=d == 1) for i in range(SLOW[d])]
    assert sum(a is None for a in answers) < 0.1 * SLOW[d]


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_integrals_of_any_dual(d):
    """Also where the mass is far outside of the prior: the duals are as large as the targets."""
    for i in range(6 if d == 1 else 1):
        p = random_problem(d, 1000 + i)
        shape = in_library(p).features.shape
        dual = np.random.default_rng(i).normal(size=shape)
        exact = gibbs_moments(in_library(p), dual)
        log_z, mean = integrals(p, dual)
        np.testing.assert_allclose(
            exact.log_partition, log_z, rtol=1e-9, atol=1e-7 + exact.log_partition_error
        )
        np.testing.assert_allclose(exact.moments, mean, rtol=1e-6, atol=1e-7 + exact.moments_error)


def test_the_mass_nine_deviations_out_is_found():
    """h = 2 tanh(theta x) with the dual of a scale of 20, 500 nats deeper than the prior."""
    rows = np.linspace(0.05, 0.4, 6)
    p = Problem("tanh", rows, "squared", rows**2 / 3, 2e-3, 1.0, 1, 2.0, 20.0)
    dual = -20 * np.ones(6)
    exact = gibbs_moments(in_library(p), dual)
    log_z, mean = integrals(p, dual)
    assert exact.log_partition > 500
    np.testing.assert_allclose(exact.log_partition, log_z, rtol=1e-12)
    np.testing.assert_allclose(exact.moments, mean, rtol=1e-9)


def test_too_few_points_are_refused():
    p = random_problem(2, 1)
    with pytest.raises(UnresolvedError, match="more 'points'"):
        ep.grid.solve(in_library(p), iterations=0, points=11)


def test_the_error_is_shown():
    exact = ep.grid.solve(in_library(random_problem(1, 0)), iterations=0)
    assert f"+- {exact.error.value:.1e}" in repr(exact)
    assert exact.error.moments < 1e-5
