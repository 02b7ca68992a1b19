"""The oracle and, through it, the theory: duality, the certificate's identity, rates, stability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import ALL, linear, squared

import entroplay as ep
from entroplay.measures.gap import bregman_gap, fenchel_young_gap
from entroplay.measures.quadrature import kl


@pytest.fixture(scope="module", params=list(ALL))
def exact(request):
    problem = ALL[request.param]()
    points = 61 if problem.dim == 2 else 2001
    return ep.grid.solve(problem, rate=0.01, iterations=300, points=points)


def test_the_gaussian_closed_form():
    """Linear features, half squared loss: N(centre, temperature/(2 l2) I), value in closed form."""
    problem, centre, _ = linear()
    exact = ep.grid.solve(problem, iterations=0)
    density = exact.density.ravel() * exact.quadrature.cell
    mean = density @ exact.quadrature.points
    np.testing.assert_allclose(mean, centre, rtol=1e-5)  # the problem's data are rounded to float32
    variance = problem.temperature / (2 * problem.l2)
    second = (exact.quadrature.points - mean).T @ (
        (exact.quadrature.points - mean) * density[:, None]
    )
    np.testing.assert_allclose(second, variance * np.eye(2), atol=1e-9)
    entropy = -np.log(2 * np.pi * np.e * variance)  # negative entropy in two dimensions
    penalty = problem.l2 * (centre @ centre + 2 * variance)
    expected = exact.quadrature.loss(exact.moments) + penalty + problem.temperature * entropy
    np.testing.assert_allclose(exact.value, expected, rtol=1e-6)
    # Log-partition of the dual: completing the square.
    g = np.asarray(
        problem.weigh(jnp.asarray(exact.dual_vector, jnp.float32)), np.float64
    ) @ np.asarray(problem.features.rows)
    log_z = np.log(2 * np.pi * variance) + g @ g / (4 * problem.l2 * problem.temperature)
    np.testing.assert_allclose(exact.quadrature.gibbs(exact.dual_vector)[1], log_z, rtol=1e-5)


@pytest.mark.slow
def test_the_box_follows_unbounded_features_and_cold_problems():
    # The optimum is 100 prior deviations away from the origin.
    problem, centre, _ = linear(temperature=1e-3)
    exact = ep.grid.solve(problem, iterations=0, points=801)
    mean = (exact.density.ravel() * exact.quadrature.cell) @ exact.quadrature.points
    np.testing.assert_allclose(mean, centre, rtol=1e-5)
    assert np.linalg.norm(centre) > 20 * np.sqrt(1e-3 / 0.6)


def test_strong_duality_at_the_optimum(exact):
    assert abs(exact.value - exact.dual_value) < 1e-12
    gibbs, _ = exact.quadrature.gibbs(exact.dual_vector)
    np.testing.assert_allclose(
        exact.quadrature.moments(gibbs), exact.moments, rtol=1e-9, atol=1e-11
    )


def test_more_points_change_nothing():
    coarse, fine = (ep.grid.solve(squared(), iterations=0, points=p) for p in (1001, 4001))
    np.testing.assert_allclose(coarse.value, fine.value, rtol=1e-12)
    np.testing.assert_allclose(coarse.moments, fine.moments, rtol=1e-10, atol=1e-12)


def random_measures(exact, count=5):
    """Random duals in the domain of the loss's conjugate, and their Gibbs measures."""
    rng = np.random.default_rng(0)
    quadrature = exact.quadrature
    for _ in range(count):
        bump = np.exp(rng.normal(size=exact.moments.shape) * 0.5)
        dual = quadrature.slope(exact.moments * bump)
        density, _ = quadrature.gibbs(dual)
        yield dual, density


def test_weak_duality_for_any_pair(exact):
    quadrature = exact.quadrature
    pairs = list(random_measures(exact))
    for dual, _ in pairs:
        for _, density in pairs:
            assert quadrature.dual(dual) <= quadrature.primal(density) + 1e-12
        assert quadrature.dual(dual) <= exact.value + 1e-12


def test_the_certificates_identity(exact):
    """L(q_g) - D(g) = sum_i w_i [loss(P) + conj(g) - g P]: entropy and log-partition cancel."""
    quadrature = exact.quadrature
    for dual, density in random_measures(exact):
        gap = quadrature.primal(density) - quadrature.dual(dual)
        with jax.enable_x64(True):
            moments = jnp.asarray(quadrature.moments(density))
            formula = float(fenchel_young_gap(quadrature.problem, moments, jnp.asarray(dual)))
        np.testing.assert_allclose(formula, gap, rtol=1e-9, atol=1e-13)
        assert gap >= quadrature.primal(density) - exact.value - 1e-12


def test_the_certificate_is_a_bregman_divergence_along_efp(exact):
    quadrature, trajectory = exact.quadrature, exact.trajectory
    for t in (0, 20, 150):
        moments = trajectory.moments[t]
        gibbs, _ = quadrature.gibbs(quadrature.slope(moments))
        with jax.enable_x64(True):
            gap = float(
                bregman_gap(
                    quadrature.problem, jnp.asarray(quadrature.moments(gibbs)), jnp.asarray(moments)
                )
            )
        np.testing.assert_allclose(
            gap, trajectory.primal_gibbs[t] - trajectory.dual[t], rtol=1e-7, atol=1e-14
        )


def test_the_duality_theorem(exact):
    """L(mu) - D(g_mu) = temperature KL(mu | mu-hat) all along the trajectory (Theorem 2)."""
    trajectory, temperature = exact.trajectory, exact.quadrature.problem.temperature
    np.testing.assert_allclose(
        trajectory.primal - trajectory.dual, temperature * trajectory.kl, rtol=1e-8, atol=1e-13
    )
    assert (trajectory.kl >= 0).all()


def test_the_gap_sandwich(exact):
    """temperature KL(mu|mu-hat) >= L(mu) - L* >= temperature KL(mu|mu*) (Proposition 1)."""
    quadrature, trajectory = exact.quadrature, exact.trajectory
    temperature = quadrature.problem.temperature
    for index, t in enumerate(trajectory.snapshots):
        excess = trajectory.primal[t] - exact.value
        below = temperature * kl(
            trajectory.densities[index].ravel(),
            quadrature.log_gibbs(exact.dual_vector),
            quadrature.cell,
        )
        assert temperature * trajectory.kl[t] >= excess - 1e-13
        assert excess >= below - 1e-13


@pytest.mark.parametrize("quantity", ["primal", "kl"])
def test_exponential_convergence(exact, quantity):
    """L(mu_t) - L* <= exp(-gamma t) (L_0 - L*) and KL_t <= exp(-gamma t) KL_0 (Theorems 1 and 3).

    One Euler step of rate 0.01 stands for gamma t = 0.01. ln(1/(1 - rate)) exceeds it by 5e-5 per
    step, so a slope fitted against gamma t must be at most -(1 - 0.01) if the theorem holds for the
    flow.
    """
    trajectory = exact.trajectory
    values = trajectory.primal - exact.value if quantity == "primal" else trajectory.kl
    time = 0.01 * np.arange(len(values))
    assert (values <= np.exp(-time) * values[0] * (1 + 1e-9) + 1e-13).all()
    window = (time > 0.5) & (values > 1e-11)
    slope = np.polyfit(time[window], np.log(values[window]), 1)[0]
    assert slope <= -0.99
    assert (np.diff(trajectory.primal) <= 1e-13).all()


@pytest.mark.parametrize(("factor", "stable"), [(0.9, True), (1.1, False)])
def test_efps_stability_limit_from_both_sides(factor, stable):
    """Next to the optimum the residual shrinks for rates below 2/(1 + eig J) and grows above it.

    The multiplier of the critical direction is 1 - rate (1 + eig) = 1 - 2 factor: -0.8 below the
    limit, -1.2 above it.
    """
    problem = squared(temperature=0.01, l2=0.01)
    exact = ep.grid.solve(problem, iterations=0)
    quadrature, rate = exact.quadrature, factor * exact.stability_limit
    assert rate < 1
    density, _ = quadrature.gibbs(exact.dual_vector)
    curvature = quadrature.weighted_curvature(exact.moments)
    values, vectors = np.linalg.eig(
        quadrature.covariance(density) * curvature / problem.temperature
    )
    moments = exact.moments + 1e-6 * vectors[:, np.argmax(values.real)].real
    errors = []
    for _ in range(20):
        density, _ = quadrature.gibbs(quadrature.slope(moments))
        moments = moments + rate * (quadrature.moments(density) - moments)
        errors.append(np.linalg.norm(moments - exact.moments))
    multiplier = (errors[-1] / errors[0]) ** (1 / 19)
    np.testing.assert_allclose(multiplier, abs(1 - 2 * factor), rtol=1e-3)
    assert (errors[-1] < errors[0]) == stable


def test_a_density_of_the_trajectory_is_a_probability(exact):
    trajectory, cell = exact.trajectory, exact.quadrature.cell
    for density in trajectory.densities:
        np.testing.assert_allclose(density.sum() * cell, 1, rtol=1e-12)
    assert len(trajectory.snapshots) == len(trajectory.densities) == 11
    assert "above the optimum" in repr(exact)


def test_only_two_parameters():
    problem = ep.FiniteSum(
        ep.Neurons(np.ones((4, 3))), ep.Squared(np.ones(4)), temperature=1.0, l2=1.0
    )
    with pytest.raises(ValueError, match=r"d <= 2.*d = 3"):
        ep.grid.solve(problem)
