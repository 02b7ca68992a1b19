"""Samplers against known targets: detailed balance, distributions, step-size bias, adaptation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems.cases import linear, squared
from scipy import stats

import entroplay as ep
from entroplay.measures.gibbs import Gibbs
from entroplay.methods.samplers.langevin import OPTIMAL_ACCEPTANCE, log_acceptance
from entroplay.methods.samplers.walkers import Walkers


def gibbs_of(problem, moments):
    return Gibbs(problem, problem.slope(jnp.asarray(moments, problem.dtype)))


def run(sampler, gibbs, particles, iterations, seed=0):
    state, infos = sampler.init(gibbs.problem), []
    step = jax.jit(lambda key, particles, state, t: sampler.run(key, gibbs, particles, state, t))
    for t in range(iterations):
        particles, state, info = step(
            jax.random.fold_in(jax.random.key(seed), t), particles, state, jnp.asarray(t)
        )
        infos.append(info)
    return particles, infos


def test_mala_satisfies_detailed_balance():
    """pi(x) q(x -> y) alpha(x, y) = pi(y) q(y -> x) alpha(y, x), densities computed by scipy, not by our formula."""
    with jax.enable_x64(True):
        problem = squared(d=2)
        gibbs = gibbs_of(problem, np.zeros(12))
        rng = np.random.default_rng(0)
        x, y = (jnp.asarray(rng.normal(size=(50, 2))) for _ in range(2))
        eta = jnp.asarray(3.0)
        (ux, gx), (uy, gy) = gibbs.energy_and_gradient(x), gibbs.energy_and_gradient(y)
        there = log_acceptance(Walkers(x, ux, gx), Walkers(y, uy, gy), eta, problem.temperature)
        back = log_acceptance(Walkers(y, uy, gy), Walkers(x, ux, gx), eta, problem.temperature)
        deviation = np.sqrt(2 * eta * problem.temperature)
        q_there = stats.norm.logpdf(y, x - eta * gx, deviation).sum(axis=1)
        q_back = stats.norm.logpdf(x, y - eta * gy, deviation).sum(axis=1)
        left = -ux / problem.temperature + q_there + np.minimum(there, 0)
        right = -uy / problem.temperature + q_back + np.minimum(back, 0)
        np.testing.assert_allclose(left, right, rtol=1e-10)
        assert (
            np.asarray(there) < 0
        ).any()  # some moves are refused, so that the identity was put to the test
        assert (np.asarray(there) > 0).any()


@pytest.mark.parametrize("step_size", ["adapt", 4.0, 12.0])
def test_mala_draws_from_the_gibbs_measure_whatever_its_step(step_size):
    """Kolmogorov-Smirnov against the exact distribution function of a bimodal 1-D Gibbs measure.

    Chains are independent, so the m = 4000 end points are an i.i.d. sample once mixed; the critical value at level
    1e-3 is 1.95/sqrt(m) = 0.031. ULA at the step 4 misses it (next test).
    """
    problem = squared(temperature=0.05, l2=0.02)
    exact = ep.grid.solve(problem, iterations=0)
    gibbs = gibbs_of(problem, np.full(12, 0.1))
    density, _ = exact.quadrature.gibbs(np.asarray(gibbs.dual, np.float64))
    cloud, _ = run(
        ep.MALA(steps=20, step_size=step_size), gibbs, problem.prior(jax.random.key(1), 4000), 15
    )
    assert _ks_distance(cloud[:, 0], exact.axes[0], density) < 1.95 / np.sqrt(4000)


def test_ula_with_a_large_step_does_not():
    problem = squared(temperature=0.05, l2=0.02)
    exact = ep.grid.solve(problem, iterations=0)
    gibbs = gibbs_of(problem, np.full(12, 0.1))
    density, _ = exact.quadrature.gibbs(np.asarray(gibbs.dual, np.float64))
    cloud, _ = run(
        ep.ULA(step_size=12.0, steps=20), gibbs, problem.prior(jax.random.key(1), 4000), 15
    )
    assert _ks_distance(cloud[:, 0], exact.axes[0], density) > 1.95 / np.sqrt(4000)


def _ks_distance(sample, axis, density):
    distribution = np.cumsum(density) * (axis[1] - axis[0])
    return stats.kstest(
        np.asarray(sample, np.float64), lambda x: np.interp(x, axis, distribution)
    ).statistic


@pytest.mark.parametrize("product", [0.05, 0.3])
def test_ulas_stationary_variance_is_the_predicted_one(product):
    """For a quadratic U with curvature 2 l2 the stationary variance is temperature/(2 l2 (1 - step_size l2)).

    A sample variance of m normal draws has relative standard error sqrt(2/m): four of them are 4 % at m = 5000 per
    coordinate, less than the bias of 5 % and 43 % that the formula predicts over temperature/(2 l2).
    """
    problem, _, _ = linear(d=2)
    m = 10_000
    gibbs = gibbs_of(problem, np.zeros(8))
    cloud, _ = run(
        ep.ULA(step_size=product / problem.l2, steps=50),
        gibbs,
        problem.prior(jax.random.key(0), m),
        2,
    )
    variance = np.asarray(cloud).var(axis=0, ddof=1)
    expected = problem.temperature / (2 * problem.l2 * (1 - product))
    np.testing.assert_allclose(variance, expected, rtol=4 * np.sqrt(2 / m))


def test_mala_adapts_to_the_optimal_acceptance():
    """Started with a step that is far too large, the mean acceptance settles at 0.574: over m = 2000 chains and the 20
    last iterations the binomial error is below 0.003, the wobble of the adaptation's gain floor below 0.02."""
    problem = squared(temperature=0.001, l2=0.001, d=2)
    gibbs = gibbs_of(problem, np.zeros(12))
    _, infos = run(ep.MALA(steps=10), gibbs, problem.prior(jax.random.key(0), 2000), 60)
    assert float(infos[0].acceptance) < 0.5
    late = np.mean([float(i.acceptance) for i in infos[-20:]])
    assert abs(late - OPTIMAL_ACCEPTANCE) < 0.02


def test_a_fixed_step_stays_fixed_and_a_schedule_is_followed():
    problem = squared()
    gibbs = gibbs_of(problem, np.zeros(12))
    start = problem.prior(jax.random.key(0), 10)
    _, infos = run(ep.MALA(steps=2, step_size=0.5), gibbs, start, 3)
    np.testing.assert_allclose([float(i.step_size) for i in infos], 0.5, rtol=1e-6)
    schedule = optax.cosine_decay_schedule(0.1, 3, alpha=0.1)
    for sampler in (ep.ULA(step_size=schedule, steps=2), ep.MALA(step_size=schedule, steps=2)):
        _, infos = run(sampler, gibbs, start, 3)
        np.testing.assert_allclose(
            [float(i.step_size) for i in infos], [float(schedule(t)) for t in range(3)], rtol=1e-6
        )


def test_fresh_chains_forget_where_they_were():
    problem = squared()
    gibbs = gibbs_of(problem, np.zeros(12))
    here, there = problem.prior(jax.random.key(0), 50), 5 + problem.prior(jax.random.key(1), 50)
    for make in (ep.ULA, ep.MALA):
        a, _ = run(make(steps=3, fresh=True), gibbs, here, 1)
        b, _ = run(make(steps=3, fresh=True), gibbs, there, 1)
        np.testing.assert_array_equal(a, b)
        c, _ = run(make(steps=3), gibbs, there, 1)
        assert not np.allclose(a, c)


def test_moves_into_nowhere_are_refused():
    """Where a user's function is NaN, MALA stays."""
    features = ep.FunctionFeatures(lambda theta, x: x * jnp.sqrt(1 - theta[0]), [1.0, 2.0], dim=1)
    problem = ep.FiniteSum(features, ep.Squared([0.0, 1.0]), temperature=1.0, l2=0.5)
    gibbs = gibbs_of(problem, np.zeros(2))
    cloud, _ = run(ep.MALA(steps=50), gibbs, -jnp.ones((200, 1)), 2)
    assert np.isfinite(cloud).all()
    assert (np.asarray(cloud) <= 1).all()


def test_noise_belongs_to_the_particle():
    """The first particles of a larger cloud are those of a smaller one."""
    problem = squared(d=2)
    gibbs = gibbs_of(problem, np.zeros(12))
    for sampler in (ep.ULA(steps=3), ep.MALA(steps=3, step_size=0.1)):
        large, _ = run(sampler, gibbs, problem.prior(jax.random.key(0), 64), 1)
        small, _ = run(sampler, gibbs, problem.prior(jax.random.key(0), 16), 1)
        np.testing.assert_allclose(large[:16], small, rtol=1e-5)


def test_noise_drawn_ahead_is_the_noise_drawn_when_needed(monkeypatch):
    problem = squared(d=2)
    gibbs = gibbs_of(problem, np.zeros(12))
    start = problem.prior(jax.random.key(0), 20)
    for sampler in (ep.ULA(steps=4), ep.MALA(steps=4, step_size=0.1)):
        ahead, _ = run(sampler, gibbs, start, 1)
        with monkeypatch.context() as patch:
            patch.setattr("entroplay.methods.samplers.langevin.NOISE_ELEMENTS", 0)
            needed, _ = run(sampler, gibbs, start, 1)
        np.testing.assert_allclose(ahead, needed, rtol=1e-5, atol=1e-6)
