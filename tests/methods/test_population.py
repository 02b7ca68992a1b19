"""Jumps and leaps: moves of a particle that use the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import entroplay as ep
from entroplay.measures.gibbs import Gibbs
from entroplay.methods.samplers.population import jump, leap
from entroplay.methods.samplers.walkers import Walkers, move_noise


@pytest.mark.parametrize(("move", "times"), [(jump, 400), (leap, 100)])
def test_jumps_and_leaps_leave_the_gibbs_measure_invariant_and_carry_between_modes(move, times):
    """Two narrow modes of masses 0.2 and 0.8, too far apart for Langevin steps.

    Chains that start half and half reach the right masses by such moves alone. For 2000 walkers the
    binomial standard error of the share is 0.01, doubled because walkers are coupled.
    """

    def two_wells(theta, x):
        left = jnp.exp(-((theta[0] + 2) ** 2) / 0.02)
        right = jnp.exp(-((theta[0] - 2) ** 2) / 0.02)
        return x * (left + right)

    # The right well is deeper by log(4) temperatures and holds four times the mass.
    tilted = ep.FunctionFeatures(
        lambda theta, x: two_wells(theta, x) * jnp.where(theta[0] > 0, 1.0693, 1.0), [1.0], dim=1
    )
    problem = ep.FiniteSum(tilted, ep.Squared([0.0]), temperature=0.05, l2=1e-4)
    gibbs = Gibbs(problem, jnp.asarray([-1.0]))
    exact = ep.grid.solve(problem, iterations=0, points=40_001)
    density, _ = exact.quadrature.gibbs(np.array([-1.0]))
    axis = exact.axes[0]
    truth = density[axis > 1].sum() / (density[axis > 1].sum() + density[axis < -1].sum())
    assert 0.7 < truth < 0.9
    rng = np.random.default_rng(0)
    start = jnp.asarray(
        np.where(np.arange(2000) % 2, 2, -2)[:, None] + 0.05 * rng.normal(size=(2000, 1)),
        jnp.float32,
    )

    @jax.jit
    def many(walkers):
        return jax.lax.fori_loop(
            0,
            times,
            lambda i, w: move(
                move_noise(jax.random.fold_in(jax.random.key(0), i), start), gibbs, w, 1
            )[0],
            walkers,
        )

    cloud = np.asarray(many(Walkers(start, *gibbs.energy_and_gradient(start))).particles)[:, 0]
    near = np.abs(np.abs(cloud) - 2) < 1
    share = (cloud[near] > 0).mean()
    assert share == pytest.approx(truth, abs=4 * 2 * np.sqrt(truth * (1 - truth) / near.sum()))
    # Within a mode the law is right, too: the critical value of Kolmogorov and Smirnov at level
    # 1e-3, with half as much again for the coupling.
    inside = cloud[near & (cloud > 0)]
    part = axis > 1
    distribution = (np.cumsum(density[part]) - density[part] / 2) / density[part].sum()
    assert (
        stats.kstest(inside, lambda x: np.interp(x, axis[part], distribution)).statistic
        < 1.95 / np.sqrt(len(inside)) * 1.5
    )
