"""The noise of moves, and the Metropolis test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from entroplay.methods.samplers.walkers import Walkers, metropolis, move_noise


def test_the_noise_of_a_particle_does_not_depend_on_how_many_there_are():
    key = jax.random.key(3)
    few, many = move_noise(key, jnp.zeros((10, 2))), move_noise(key, jnp.zeros((1000, 2)))
    np.testing.assert_array_equal(few.normal, many.normal[:10])
    np.testing.assert_array_equal(few.coins, many.coins[:10])


@pytest.mark.parametrize("double", [False, True])
def test_noise_is_normal_and_coins_are_uniform_and_independent(double):
    with jax.enable_x64(double):
        dtype = jnp.float64 if double else jnp.float32
        noise = move_noise(jax.random.key(0), jnp.zeros((20_000, 3), dtype))
    assert noise.normal.dtype == dtype
    normal, coins = np.asarray(noise.normal, np.float64), np.asarray(noise.coins, np.float64)
    assert (coins > 0).all()
    assert (coins < 1).all()
    # The critical value of Kolmogorov and Smirnov at level 1e-4, for each of eight columns.
    critical = 2.23 / np.sqrt(len(normal))
    for column in normal.T:
        assert stats.kstest(column, stats.norm.cdf).statistic < critical
    for column in coins.T:
        assert stats.kstest(column, stats.uniform.cdf).statistic < critical
    # 28 correlations, each with a standard deviation of 1/sqrt(20,000): five of them.
    correlation = np.corrcoef(np.concatenate([normal, coins], axis=1).T) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(normal))


def test_the_metropolis_test_accepts_with_the_right_probability_and_never_nan():
    m = 20_000
    coin = move_noise(jax.random.key(1), jnp.zeros((m, 1))).coins[:, 0]
    here = Walkers(jnp.zeros((m, 1)), jnp.zeros(m), jnp.zeros((m, 1)))
    there = jax.tree.map(jnp.ones_like, here)
    log_alpha = jnp.where(jnp.arange(m) % 2 == 0, jnp.log(0.3), jnp.nan).astype(jnp.float32)
    moved, rate = metropolis(coin, here, there, log_alpha)
    went = np.asarray(moved.energy)
    assert not went[1::2].any()
    # A binomial share of 10,000: four standard errors.
    assert went[::2].mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / (m / 2)))
    assert float(rate) == pytest.approx(0.15, rel=1e-5)
