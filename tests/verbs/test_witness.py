"""A second set of islands, on a path of its own, finds mass that the run's path has led past."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import squared

import entroplay as ep
from entroplay.methods.samplers.langevin import first_step
from entroplay.methods.smc import Islands
from entroplay.verbs import partition
from entroplay.verbs.evidence import Evidence
from entroplay.verbs.witness import MULTIPLES, objection, straight


def evidence(problem, log_ratio, spread=0.1, shift=0.0):
    """Eight islands whose masses and moments have a spread that does not depend on chance."""
    n = problem.features.shape[0]
    offsets = np.linspace(-1, 1, 8)
    islands = Islands(
        jnp.zeros((8, 10, problem.dim)),
        jnp.asarray(log_ratio + spread * offsets, jnp.float32),
        first_step(problem.dim, problem.l2, problem.dtype),
        jnp.zeros(()),
        jnp.zeros((), jnp.int32),
    )
    moments = jnp.asarray(shift + 0.01 * np.outer(offsets, np.ones(n)), jnp.float32)
    zero = jnp.zeros(n)
    return Evidence(islands, moments, zero)


def test_more_mass_on_another_path_is_an_objection():
    problem = squared()
    run = evidence(problem, 3.0)
    # Estimates spread by 0.1 have a standard error of about 0.025: five of them, for both sets
    # together, are 0.2.
    assert "straight tempering found exp(1) times" in objection(problem, run, evidence(problem, 4))
    assert objection(problem, run, evidence(problem, 3.1)) == ""
    # Estimates that differ among themselves by more than that decide nothing.
    assert objection(problem, run, evidence(problem, 4.0, spread=2.0)) == ""


def test_as_much_mass_elsewhere_is_an_objection():
    """With less than a twentieth of the mass, straight tempering has merely missed the rest."""
    problem = squared()
    run = evidence(problem, 3.0)
    assert "elsewhere" in objection(problem, run, evidence(problem, 3.0, shift=0.5))
    assert "elsewhere" in objection(problem, run, evidence(problem, 1.5, shift=0.5))
    assert objection(problem, run, evidence(problem, -1.0, shift=0.5)) == ""
    # The error of a mean of eight moments spread by 0.01 is 0.002: ten deviations of a difference
    # are 0.035.
    assert objection(problem, run, evidence(problem, 3.0, shift=0.01)) == ""


def test_what_is_not_a_number_is_an_objection():
    problem = squared()
    assert objection(problem, evidence(problem, 3.0), evidence(problem, np.nan)) != ""
    assert objection(problem, evidence(problem, 3.0), evidence(problem, 3.0, shift=np.nan)) != ""


def test_the_straight_path_ends_where_the_run_does():
    path = np.random.default_rng(0).normal(size=(25, 4, 2)).astype(np.float32)
    vectors = np.asarray(straight(jnp.asarray(path)))
    assert vectors.shape == path.shape
    np.testing.assert_array_equal(vectors[-1], path[-1])
    assert not vectors[: -len(MULTIPLES)].any()
    np.testing.assert_allclose(vectors[-2], MULTIPLES[-2] * path[-1], rtol=1e-6)


@pytest.mark.slow
def test_a_path_that_leads_into_one_of_two_wells_does_not_fool_it(monkeypatch):
    """The first vector fills the left well before the right one opens: half of Z_g is missed."""
    monkeypatch.setattr(partition, "QUADRATURE_DIMENSIONS", 0)
    problem = ep.FiniteSum(
        ep.GaussianKernel([[-3.0], [3.0]], bandwidth=0.5),
        ep.Squared([1.0, 1.0]),
        temperature=0.05,
        l2=0.005,
    )
    solution = ep.solve(problem, ep.MFLD(0.01), particles=300, iterations=2)
    left = -3 + 0.1 * np.random.default_rng(0).normal(size=(300, 1))
    parts = (jnp.asarray(left, jnp.float32), jnp.asarray([-2.0, -2.0]))
    solution = eqx.tree_at(lambda s: (s.particles, s.dual), solution, parts)
    certificate = ep.certify(solution, path=[[-2.0, 0.0]], particles=200, budget=50)
    assert not certificate.mixed
    assert certificate.reason.startswith("straight tempering found exp(0.")
    open_to_both = ep.certify(solution, path=[[-0.2, -0.2]], particles=200, budget=50)
    assert "straight" not in open_to_both.reason
