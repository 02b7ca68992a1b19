"""A painting has a bound: that of an explicit mixture around its triangles."""

import jax.numpy as jnp
import numpy as np
import pytest
from painting.cases import SIZE, photograph

import entroplay as ep
from entroplay.problems.features import raster_reference

DRAWS = 20_000


def brute_force(painting):
    """L(mu) - D(0) by drawing triangles of the mixture one by one, with a standard error.

    It shares nothing with the library's own way but the mixture's arrays: pictures come from the
    reference rasteriser, and the entropy from log-densities by their definition.
    """
    measure, problem = painting.solution.measure, painting.solution.problem
    rng = np.random.default_rng(5)
    chosen = rng.choice(len(measure.weights), DRAWS, p=measure.weights)
    theta = measure.centres[chosen] + measure.deviations[chosen] * rng.normal(size=(DRAWS, 9))
    corners = (0.5 + theta[:, :6]) * np.tile([SIZE[1], SIZE[0]], 3)
    pictures = []
    for part in np.split(np.arange(DRAWS), 10):
        colours = painting.features.scale * theta[part, 6:] / len(part)
        drawn = raster_reference.reference_deposit(
            jnp.asarray(corners[part], jnp.float32),
            jnp.asarray(colours, jnp.float32),
            height=SIZE[0],
            width=SIZE[1],
        )
        pictures.append(np.asarray(drawn, np.float64))
    target = painting.target - painting.background
    residual = np.mean(pictures, axis=0) - target
    loss = (residual**2).sum(axis=2).mean() / 2
    # The error of the mean picture, to first order along the residual. To second order the loss at
    # the mean of N draws is too large by half the pictures' variance, which is left out.
    along = [(residual * (p - target - residual)).sum(axis=2).mean() for p in pictures]
    loss_error = np.std(along, ddof=1) / np.sqrt(len(pictures))
    spread = np.var(pictures, axis=0, ddof=1).sum(axis=2).mean() / len(pictures)
    z = (theta[:, None] - measure.centres[None]) / measure.deviations[None]
    density = np.log(measure.weights) - (z**2).sum(axis=2) / 2
    density -= np.log(np.sqrt(2 * np.pi) * measure.deviations).sum(axis=1)
    largest = density.max(axis=1, keepdims=True)
    log_mu = largest[:, 0] + np.log(np.exp(density - largest).sum(axis=1))
    temperature, l2 = problem.temperature, problem.l2
    rest = l2 * (theta**2).sum(axis=1) + temperature * log_mu
    # D(0): no loss, and the penalty and the entropy of the prior N(0, temperature / (2 l2)).
    zero = -temperature * 9 / 2 * np.log(np.pi * temperature / l2)
    value = loss - spread / 2 + rest.mean() - zero
    return value, float(np.hypot(loss_error, rest.std() / np.sqrt(DRAWS)))


def test_the_bound_holds_against_triangles_drawn_one_by_one(painting):
    certificate = ep.certify(painting)
    assert (certificate.measure, certificate.lower_bound) == ("mixture", "zero dual")
    assert certificate.islands == certificate.pulls == 0
    assert certificate.certified
    value, error = brute_force(painting)
    # The library's estimate and this one each have an error; 4 deviations of their difference.
    both = 4 * np.hypot(error, certificate.primal_error)
    assert certificate.primal - certificate.dual == pytest.approx(value, abs=both)
    assert value <= certificate.bound + 4 * error
    # The plain canvas is the best constant: its background is the picture's mean colour.
    contrast = ((painting.target - painting.background) ** 2).sum(axis=2).mean()
    assert certificate.best_constant == pytest.approx(contrast / 2, rel=1e-4)


def test_a_painting_that_has_hardly_begun_has_a_larger_bound(painting):
    begun = ep.paint(photograph(), triangles=20, iterations=2)
    assert ep.certify(begun).bound > 2 * painting.certificate.bound


def test_the_words_name_the_bound_and_its_objective(painting):
    certificate = painting.certificate
    assert certificate == ep.certify(painting, seed=0)
    text = repr(painting)
    assert f"at most {certificate.bound:.3g} above the global optimum" in text
    assert f"temperature={painting.solution.problem.temperature:g}" in text
    words = repr(certificate)
    assert words.endswith("the Gibbs measure was not judged")
    assert "nan" not in words
