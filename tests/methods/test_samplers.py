"""Samplers against known targets: detailed balance, distributions, step-size bias, adaptation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from methods.cases import SAMPLERS
from problems.cases import exported, linear, squared
from scipy import stats

import entroplay as ep
from entroplay.measures.gibbs import Gibbs
from entroplay.methods import samplers
from entroplay.methods.samplers.langevin import OPTIMAL_ACCEPTANCE, log_acceptance
from entroplay.methods.samplers.walkers import Walkers


def gibbs_of(problem, moments):
    return Gibbs(problem, problem.slope(jnp.asarray(moments, problem.dtype)))


def fixed_step(make):
    """Options that keep a sampler from adapting its step to the whole cloud."""
    return {"step_size": 0.1} if hasattr(make(), "step_size") else {}


def run(sampler, gibbs, particles, iterations, seed=0):
    state, infos = sampler.init(gibbs.problem), []
    step = jax.jit(lambda key, particles, state, t: sampler.run(key, gibbs, particles, state, t))
    for t in range(iterations):
        particles, state, info = step(
            jax.random.fold_in(jax.random.key(seed), t), particles, state, jnp.asarray(t)
        )
        infos.append(info)
    return particles, infos


def test_every_sampler_is_in_the_table():
    missing = exported(samplers, ep.Sampler) - {type(make()) for make in SAMPLERS.values()}
    assert not missing, f"add a line to SAMPLERS in tests/methods/cases.py for {missing}"


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_every_sampler_finds_the_moments_of_a_gaussian(name):
    """Linear features: the Gibbs measure is N(centre, v I) with v = temperature/(2 l2).

    A cloud that is twice as wide and centred at zero is moved 200 times. Means may differ by 4
    standard errors sqrt(v/m), variances by 4 of v sqrt(2/m) and 4 % more: the unadjusted algorithm
    has 1/(1 - step_size l2) = 1.031 times the variance here.
    """
    problem, _, _ = linear(d=2)
    m, gibbs = 4000, gibbs_of(problem, np.zeros(8))
    centre = -np.asarray(gibbs.gradient(jnp.zeros((1, 2))))[0] / (2 * problem.l2)
    variance = problem.temperature / (2 * problem.l2)
    start = 2 * problem.prior(jax.random.key(0), m)
    cloud = np.asarray(run(SAMPLERS[name](steps=50), gibbs, start, 4)[0])
    error = np.sqrt(variance / m)
    assert np.abs(cloud.mean(axis=0) - centre).max() < 4 * error
    np.testing.assert_allclose(
        cloud.var(axis=0, ddof=1), variance, rtol=4 * np.sqrt(2 / m) + 0.04, atol=0
    )
    assert np.abs(centre).max() > 40 * error  # a cloud that stayed at zero would fail


def test_mala_satisfies_detailed_balance():
    """pi(x) q(x -> y) alpha(x, y) = pi(y) q(y -> x) alpha(y, x), with densities by SciPy."""
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
        # Some moves may be refused and others not: both sides of the minimum are tested.
        assert (np.asarray(there) < 0).any()
        assert (np.asarray(there) > 0).any()


@pytest.mark.parametrize("step_size", ["adapt", 4.0, 12.0])
def test_mala_draws_from_the_gibbs_measure_whatever_its_step(step_size):
    """Kolmogorov-Smirnov against the exact distribution function of a bimodal 1-D Gibbs measure.

    Chains are independent: once mixed, their m = 4000 end points are an i.i.d. sample. The critical
    value at level 1e-3 is 1.95/sqrt(m) = 0.031. ULA with a step of 12 misses it (next test).
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
    """temperature/(2 l2 (1 - step_size l2)) for a quadratic U with curvature 2 l2.

    The variance of m normal draws has the relative standard error sqrt(2/m). Four of them are 5.7 %
    for each of the two coordinates at m = 10,000, and 4 % for both together: less than the biases
    of 5 % and 43 % over temperature/(2 l2) that the formula predicts.
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
    assert variance.mean() == pytest.approx(expected, rel=4 * np.sqrt(2 / (2 * m)))


def test_mala_adapts_to_the_optimal_acceptance():
    """The mean acceptance settles at 0.574 from a first step that is far too large.

    Over m = 2000 chains and the last 20 iterations the binomial error is below 0.003. The gain of
    the adaptation does not fall to zero, which leaves fluctuations below 0.02.
    """
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
    with_steps = [make for make in SAMPLERS.values() if hasattr(make(), "step_size")]
    assert len(with_steps) >= 2
    for make in with_steps:
        _, infos = run(make(step_size=schedule, steps=2), gibbs, start, 3)
        np.testing.assert_allclose(
            [float(i.step_size) for i in infos], [float(schedule(t)) for t in range(3)], rtol=1e-6
        )


def test_fresh_chains_forget_where_they_were():
    problem = squared()
    gibbs = gibbs_of(problem, np.zeros(12))
    here, there = problem.prior(jax.random.key(0), 50), 5 + problem.prior(jax.random.key(1), 50)
    for make in SAMPLERS.values():
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
    for make in SAMPLERS.values():
        sampler = make(steps=3, **fixed_step(make))
        large, _ = run(sampler, gibbs, problem.prior(jax.random.key(0), 64), 1)
        small, _ = run(sampler, gibbs, problem.prior(jax.random.key(0), 16), 1)
        np.testing.assert_allclose(large[:16], small, rtol=1e-5)


def test_noise_drawn_ahead_is_the_noise_drawn_when_needed(monkeypatch):
    problem = squared(d=2)
    gibbs = gibbs_of(problem, np.zeros(12))
    start = problem.prior(jax.random.key(0), 20)
    for make in SAMPLERS.values():
        sampler = make(steps=4, **fixed_step(make))
        ahead, _ = run(sampler, gibbs, start, 1)
        with monkeypatch.context() as patch:
            patch.setattr("entroplay.methods.samplers.walkers.NOISE_ELEMENTS", 0)
            needed, _ = run(sampler, gibbs, start, 1)
        np.testing.assert_allclose(ahead, needed, rtol=1e-5, atol=1e-6)
