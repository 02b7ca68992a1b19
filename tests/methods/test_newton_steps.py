"""How far NewtonEFP goes from one temperature to the next."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.methods.solvers.base import Start
from entroplay.methods.solvers.newton_descent import LONGEST, SHORTENINGS, Answer, Descent, next_try
from entroplay.methods.solvers.newton_efp import FLOOR, RESTART, _averaged

PROBLEM = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.1, l2=0.1)


def state_at(beta, averaged=1.0):
    cloud = jnp.zeros((4, PROBLEM.dim))
    start = Start(cloud, jnp.zeros(2), warm=True, key=jax.random.key(0), beta=beta)
    state = ep.NewtonEFP().init(PROBLEM, start, 1)
    return eqx.tree_at(lambda s: s.averaged, state, jnp.asarray(averaged))


def after(beta, lower, share):
    """The answer at beta, and one at a lower temperature to which `share` of the cloud followed."""
    none, zero = jnp.zeros(()), jnp.zeros((), jnp.int32)
    here = Answer(jnp.asarray(beta), jnp.zeros(2), none, jnp.zeros(4), jnp.ones(()), *[none] * 3)
    colder = here._replace(beta=jnp.asarray(lower), share=jnp.asarray(share))
    return Descent(here, none, colder, jnp.asarray(True), zero, zero, zero)


@pytest.mark.parametrize(
    ("beta", "lower", "share", "rung"),
    [
        (0.01, 0.04, 0.9, 0),  # as far as the last step, which was the longest
        (0.5, 0.7, 0.9, 0),  # all of a way that is no longer than the last step
        (0.01, 0.01 * LONGEST**0.25, 0.9, 1),  # twice as far: 0.9^4 of the cloud would be left
        (0.01, 0.01 * LONGEST**0.25, 0.5, 2),  # 0.5^4 would not do, so as far as before
        (0.01, 0.01 * LONGEST**0.02, 0.4, 5),  # shorter than all rungs: the last one
        (0.0, 0.01, 0.4, 0),  # nothing is known after the first step
    ],
)
def test_the_next_step_is_one_that_the_cloud_can_probably_follow(beta, lower, share, rung):
    """log share grows like the square of the step in log beta, which may be doubled."""
    assert SHORTENINGS[1:3] == (0.5, 0.25)
    assert int(next_try(state_at(beta), after(beta, lower, share))) == rung


def test_a_running_mean_grows_at_the_noise_floor_and_starts_again_far_above_it():
    excesses = [0.9 * FLOOR, 0.99 * RESTART, 1.01 * RESTART]
    lengths = [float(_averaged(state_at(1.0, 5.0), jnp.asarray(e))) for e in excesses]
    assert lengths == [6, 5, 1]
    # On the way to the whole loss there is no mean.
    assert float(_averaged(state_at(0.5, 5.0), jnp.asarray(0.0))) == 1


def test_noise_alone_hardly_ever_starts_a_running_mean_again():
    """The excess of a residual in one direction is chi-squared with one degree of freedom."""
    draws = np.random.default_rng(0).normal(size=1_000_000) ** 2
    expected = 6.3e-5  # P(chi2_1 > 16)
    assert np.mean(draws > RESTART) == pytest.approx(expected, abs=4 * np.sqrt(expected / 1e6))
