"""Warm starts from a hotter solution: it solves the colder problem with a fraction of the loss."""

import numpy as np

import entroplay as ep
from entroplay.verbs.solve import _colder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def test_a_hotter_solution_is_one_of_a_fraction_of_the_loss():
    """U_hot / T_hot = U_beta / T_cold for equal priors; beta = T_cold / T_hot scales the dual."""
    hot, cold = (
        ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=t, l2=t / 6) for t in (0.3, 0.12)
    )
    start = ep.solve(hot, particles=64, iterations=2)
    beta = _colder(cold, start)
    energies = [ep.Gibbs(hot, start.dual).energy(start.particles) / 0.3]
    energies.append(ep.Gibbs(cold, beta * start.dual).energy(start.particles) / 0.12)
    np.testing.assert_allclose(energies[0], energies[1], rtol=1e-4, atol=1e-4)
    assert _colder(hot, ep.solve(cold, particles=64, iterations=1)) is None
    other_prior = ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=0.12, l2=0.05)
    assert _colder(other_prior, start) is None


def test_a_run_that_starts_hotter_begins_with_that_fraction():
    """Newton's method turns on the rest of the loss from there."""
    hot, cold = (
        ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=t, l2=t / 6) for t in (0.3, 0.12)
    )
    start = ep.solve(hot, particles=64, iterations=2)
    beta = ep.solve(cold, particles=64, iterations=2, start=start).history["beta"]
    assert beta[0] >= 0.12 / 0.3 - 1e-6
    assert (np.diff(beta) >= 0).all()
