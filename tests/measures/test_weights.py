"""Weighted draws: effective sample sizes, re-weighting, systematic resampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from entroplay.measures.weights import (
    effective_number,
    effective_sample_size,
    largest_step,
    systematic,
    systematic_indices,
)


def test_systematic_resampling_is_unbiased_and_takes_floor_or_ceil():
    weights = np.array([0.05, 0.3, 0.25, 0.0, 0.4])
    counts = np.zeros(5)
    for seed in range(200):
        log_weights = jnp.log(jnp.asarray(np.tile(weights, 2) / 2 + 1e-30, jnp.float32))
        chosen = np.asarray(systematic(jax.random.key(seed), log_weights))
        hits = np.bincount(chosen, minlength=10)
        expected = np.tile(weights, 2) / 2 * 10
        assert (np.abs(hits - expected) <= 1 + 1e-4).all()
        counts += hits.reshape(2, 5).sum(axis=0)
    # 200 draws of a count with variance at most 1/4: each mean has a standard error below 0.04.
    np.testing.assert_allclose(counts / 200, 10 * weights, atol=4 * 0.05)


def test_the_largest_step_keeps_half_of_the_effective_sample_size():
    decrease = jnp.asarray(np.random.default_rng(0).normal(size=(3, 400)) * 5, jnp.float32)
    s = largest_step(decrease, jnp.asarray(1.0))
    shares = np.asarray(effective_sample_size(-s * decrease)) / 400
    assert shares.min() == pytest.approx(0.5, abs=1e-3)
    assert float(largest_step(decrease / 1e3, jnp.asarray(1.0))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_resampling_takes_floor_or_ceil_of_the_expected_number(seed):
    """For m w_r copies expected, floor(m w_r) or ceil(m w_r) are taken, in JAX and in NumPy."""
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=60) ** 2
    weights /= weights.sum()
    with jax.enable_x64(True):
        chosen = np.asarray(systematic(jax.random.key(seed), jnp.log(jnp.asarray(weights))))
    for count, indices in (
        (60, chosen),
        (60, systematic_indices(weights, 60, rng.random())),
        (17, systematic_indices(weights, 17, 0.5)),
        (1000, systematic_indices(weights, 1000, 0.0)),
    ):
        assert len(indices) == count
        assert (np.diff(indices) >= 0).all()
        hits = np.bincount(indices, minlength=60)
        # The cumulated weights are rounded to 1e-16.
        assert (hits >= np.floor(count * weights - 1e-12)).all()
        assert (hits <= np.ceil(count * weights + 1e-12)).all()


@pytest.mark.parametrize("seed", range(3))
def test_both_versions_of_resampling_agree(seed):
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        log_weights = 2 * jax.random.normal(jax.random.fold_in(key, 1), (60,))
        weights = np.asarray(jax.nn.softmax(log_weights))
        offset = float(jax.random.uniform(key, (), log_weights.dtype))
        in_jax = systematic(key, log_weights)
    np.testing.assert_array_equal(in_jax, systematic_indices(weights, 60, offset))


def test_a_position_beyond_the_rounded_sum_of_weights_takes_the_last_particle():
    """The sum of float32 weights may end below one; no index may leave the cloud."""
    weights = np.full(3, 0.3333333)
    np.testing.assert_array_equal(systematic_indices(weights, 3, 0.99999999), [1, 2, 2])
    for seed in range(20):
        chosen = systematic(jax.random.key(seed), jnp.zeros(1001, jnp.float32))
        np.testing.assert_array_equal(chosen, np.arange(1001))


def test_the_effective_sample_size_is_its_formula():
    """(sum w)^2 / sum w^2, for any scale of the weights and along the last axis."""
    log_weights = np.random.default_rng(1).normal(size=(2, 3, 50))
    weights = np.exp(log_weights)
    formula = weights.sum(axis=-1) ** 2 / (weights**2).sum(axis=-1)
    with jax.enable_x64(True):
        for shift in (0.0, 1e4, -1e4):
            found = effective_sample_size(jnp.asarray(log_weights + shift))
            np.testing.assert_allclose(found, formula, rtol=1e-9)
    for w, size in zip(weights.reshape(-1, 50), formula.ravel(), strict=True):
        assert effective_number(w / w.sum()) == pytest.approx(size, rel=1e-12)
    assert effective_number(np.full(40, 1 / 40)) == pytest.approx(40)
    assert effective_number(np.eye(40)[3]) == 1


def test_a_step_is_the_largest_that_every_cloud_can_bear():
    """The smallest effective sample size decides: it is large enough at s, but not beyond."""
    with jax.enable_x64(True):
        decrease = jnp.asarray(np.random.default_rng(2).normal(size=(3, 400)) * 5)
        s = largest_step(decrease, jnp.asarray(1.0), share=0.8)
        sizes = [float(effective_sample_size(-f * s * decrease).min()) for f in (1.0, 1.001)]
    assert sizes[0] == pytest.approx(0.8 * 400, rel=1e-9)
    assert sizes[1] < 0.8 * 400 * (1 - 1e-5)
