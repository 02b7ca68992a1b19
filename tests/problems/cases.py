"""Small problems that several tests share, and all losses and feature maps: a new one is one line here."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import entroplay as ep

INPUTS = np.linspace(-2, 2, 12)
VELOCITIES = np.concatenate([np.linspace(-1.6, -0.6, 9), np.linspace(0.4, 1.9, 11)])


def two_channels(theta, x):
    return jnp.stack(
        [jnp.tanh(theta[0] * x), jnp.tanh(theta[1] + x) * theta[0] / (1 + theta[0] ** 2)]
    )


def squared(temperature=0.05, l2=0.05, d=1):
    features = ep.Neurons(INPUTS[:, None], bias=d == 2)
    return ep.FiniteSum(
        features,
        ep.Squared(np.sin(1.5 * INPUTS)),
        temperature=temperature,
        l2=l2,
        weights=1 + INPUTS**2,
    )


def logistic(temperature=0.05, l2=0.05, d=1):
    features = ep.Neurons(INPUTS[:, None], bias=d == 2, scale=3.0)
    return ep.FiniteSum(
        features, ep.Logistic(np.where(INPUTS > 0.4, 1, -1)), temperature=temperature, l2=l2
    )


def cross_entropy(temperature=0.05, l2=0.05):
    features = ep.FunctionFeatures(two_channels, INPUTS, dim=2)
    return ep.FiniteSum(
        features,
        ep.CrossEntropy((INPUTS > 0.4).astype(int), classes=2),
        temperature=temperature,
        l2=l2,
    )


def negative_log(temperature=0.05, l2=0.05):
    return ep.FiniteSum(
        ep.GaussianKernel(VELOCITIES, bandwidth=0.4), ep.NegLog(), temperature=temperature, l2=l2
    )


ALL = {
    "squared": squared,
    "logistic": logistic,
    "cross_entropy": cross_entropy,
    "negative_log": negative_log,
}


def linear(n=8, d=2, temperature=0.5, l2=0.3, seed=3):
    """Linear features and the half squared loss: the optimum is N(centre, temperature/(2 l2) I)."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n) + 4
    weights = rng.uniform(0.2, 3, size=n)
    features = ep.FunctionFeatures(lambda theta, x: theta @ x, X, dim=d)
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=l2, weights=weights)
    w = weights / weights.sum()
    hessian = (X.T * w) @ X
    centre = np.linalg.solve(hessian + 2 * np.diag(np.broadcast_to(l2, d)), (X.T * w) @ y)
    return problem, centre, hessian
