"""The bridge: a cloud led from one problem's Gibbs measure to another's."""

import jax
import jax.numpy as jnp
import numpy as np
from problems.cases import linear

import entroplay as ep
from entroplay.methods.smc import bridge


def test_a_bridge_leads_a_cloud_from_one_gaussian_to_another():
    """From N(0, T0/(2 l2_0)) to q_g of linear features, which is N(-sum w g x/(2 l2), T/(2 l2) I).

    Mean and variance are within 4.5 standard errors of 4000 draws. Resampling leaves the draws
    correlated, and for that the error is doubled.
    """
    problem, _, _ = linear(temperature=0.1, l2=[0.3, 0.6])
    hot = ep.FiniteSum(
        problem.features, problem.loss, temperature=1.0, l2=0.5, weights=problem.weights
    )
    m = 4000
    cloud = hot.prior(jax.random.key(0), m)
    dual = problem.slope(jnp.zeros(8))
    start_l2 = jnp.full(2, 0.1 / 1.0 * 0.5)
    moved = np.asarray(bridge(problem, jax.random.key(1), cloud, jnp.zeros(8), start_l2, dual))
    l2 = np.array([0.3, 0.6])
    variance = 0.1 / (2 * l2)
    centre = -(np.asarray(problem.weigh(dual)) @ np.asarray(problem.features.rows)) / (2 * l2)
    assert (np.abs(moved.mean(axis=0) - centre) < 2 * 4.5 * np.sqrt(variance / m)).all()
    assert (np.abs(moved.var(axis=0) - variance) < 2 * 4.5 * variance * np.sqrt(2 / m)).all()
    assert np.linalg.norm(centre) > 5 * np.sqrt(variance.max())
