"""NewtonEFP: quadratic convergence with exact expectations, the optimum with particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import ALL, cross_entropy, logistic, negative_log, squared

import entroplay as ep
from entroplay.measures import cloud as cloud_module
from entroplay.measures.cloud import SeenCloud
from entroplay.measures.quadrature import in_double
from entroplay.methods.solvers import newton_direction as system
from entroplay.methods.solvers.newton_direction import newton_direction


def exact_newton(problem, iterations=300):
    """NewtonEFP's iteration with exact expectations, by the library's own Newton direction.

    The cloud consists of grid points weighted by the density. The exact effective sample size
    limits beta and the step. Returns the solution of the grid, and one row (residual, beta, dual)
    per iteration.
    """
    exact = ep.grid.solve(problem, iterations=0, points=1501 if problem.dim == 1 else 91)
    quadrature = exact.quadrature
    problem, temperature = quadrature.problem, quadrature.problem.temperature
    with jax.enable_x64(True):
        matrix = quadrature.matrix.reshape(-1, *problem.features.shape)
        cloud = SeenCloud(problem.features, jnp.asarray(quadrature.points), jnp.asarray(matrix))
        direction = jax.jit(lambda h, b, nb, q: newton_direction(problem, cloud, h, b, nb, q, q)[0])

        # The effective sample size as a fraction, after re-weighting by exp(-decrease/temperature).
        def share(mass, decrease):
            weights = np.exp(-(decrease - decrease.min()) / temperature)
            return (mass @ weights) ** 2 / (mass @ weights**2)

        moments, beta = quadrature.moments(quadrature.prior), 0.0
        rows = []
        for _ in range(iterations):
            mass = quadrature.gibbs(beta * quadrature.slope(moments))[0] * quadrature.cell
            residual = np.abs(quadrature.moments(mass / quadrature.cell) - moments).max()
            rows.append((residual, beta, quadrature.dual_at(moments)))
            if beta == 1 and residual < 1e-12:
                break
            # The largest beta at which half of the effective sample size is left.
            linear = quadrature.energy(quadrature.slope(moments)) - quadrature.penalty
            low, high = beta, 1.0
            if share(mass, (1 - beta) * linear) < 0.5:
                for _ in range(50):
                    middle = (low + high) / 2
                    low, high = (
                        (middle, high)
                        if share(mass, (middle - beta) * linear) >= 0.5
                        else (low, middle)
                    )
                new_beta = low
            else:
                new_beta = 1.0
            step = np.asarray(
                direction(
                    jnp.asarray(moments),
                    jnp.asarray(beta),
                    jnp.asarray(new_beta),
                    jnp.asarray(mass),
                )
            )
            # The longest step along the direction that leaves about half of it, too.
            s = 1.0
            while True:
                candidate = quadrature.retract(moments, s * step)
                change = (
                    new_beta * (quadrature.energy(quadrature.slope(candidate)) - quadrature.penalty)
                    - beta * linear
                )
                if share(mass, change) >= 0.49 or s < 1e-6:
                    break
                s *= 0.7
            moments, beta = candidate, new_beta
    return exact, np.array(rows)


@pytest.mark.parametrize("temperature", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("make", [squared, logistic, cross_entropy, negative_log])
def test_quadratic_convergence_with_exact_expectations(make, temperature, monkeypatch):
    monkeypatch.setattr(system, "CG_TOLERANCE", 1e-14)
    exact, rows = exact_newton(make(temperature=temperature, l2=0.02))
    residual, beta, dual = rows.T
    full = beta == 1
    assert full.any()
    assert residual[-1] < 1e-11
    # Once beta = 1 the dual does not fall (beyond rounding), and ends at the optimum.
    assert (np.diff(dual[full]) >= -1e-12).all()
    assert dual[-1] == pytest.approx(exact.value, abs=1e-11)
    # Quadratic convergence: log r_{t+1} = 2 log r_t + c. Between 3e-2 and 1e-11 the exponent comes
    # near two; that of a linear method would be one.
    pairs = [
        (a, b)
        for a, b, f in zip(residual[:-1], residual[1:], full[:-1], strict=True)
        if f and 1e-11 < b < a < 3e-2
    ]
    order = [np.log(b) / np.log(a) for a, b in pairs]
    assert max(order) > 1.6


@pytest.mark.parametrize("name", list(ALL))
def test_the_linear_system_is_solved_directly_and_by_products_alike(name, monkeypatch):
    """(I + beta' J) D = r against NumPy, in every way of solving it.

    The features are kept or not, and the members are a random part of the cloud.
    """
    problem = in_double(ALL[name]())
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        particles = jnp.asarray(rng.normal(size=(60, problem.dim)))
        moments = problem.features.average(particles) * 1.1
        n, (beta, new_beta) = moments.size, (jnp.asarray(0.3), jnp.asarray(0.8))
        members = jnp.asarray(rng.integers(0, 2, size=60), float)
        values = np.asarray(problem.features.values(particles, problem.features.rows)).reshape(
            60, n
        )
        weights = np.asarray(members / members.sum())
        centred = values - weights @ values
        C = (centred.T * weights) @ centred
        curvature = np.asarray(problem.weigh(problem.loss.curvature(moments)))
        if curvature.ndim == 1:
            K = np.diag(curvature)
        else:
            k = curvature.shape[1]
            K = np.zeros((n, n))
            for i in range(len(curvature)):
                K[i * k : (i + 1) * k, i * k : (i + 1) * k] = curvature[i]
        slope = np.asarray(problem.weigh(problem.slope(moments))).ravel()
        right = (
            weights @ values - np.asarray(moments).ravel() - 0.5 / problem.temperature * C @ slope
        )
        expected = np.linalg.solve(np.eye(n) + 0.8 * C @ K / problem.temperature, right)
        monkeypatch.setattr(system, "CG_TOLERANCE", 1e-13)
        for elements in (2**22, 0):
            for direct in (256, 0):
                monkeypatch.setattr(cloud_module, "KEPT_ELEMENTS", elements)
                monkeypatch.setattr(system, "DIRECT", direct)
                monkeypatch.setattr(system, "DIRECT_WITHOUT_MATRIX", direct)
                cloud = SeenCloud.of(problem.features, particles)
                assert (cloud.matrix is None) == (elements == 0)
                found, _ = newton_direction(
                    problem, cloud, moments, beta, new_beta, members, members
                )
                np.testing.assert_allclose(
                    np.asarray(found).ravel(), expected, rtol=1e-7, atol=1e-9
                )


@pytest.mark.parametrize(
    "name",
    [
        "squared",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("negative_log", "logistic", "cross_entropy")
        ),
    ],
)
def test_newton_finds_the_optimum_that_the_oracle_finds(name):
    """The true gap of H, computed on the grid, is far below the noise of the cloud that found it.

    The plug-in noise of one cloud is tr(W loss'' C)/(2 m). Averaging over about 80 iterations must
    bring the gap of H (which also contains J times its error) below a tenth of the gap at which EFP
    with one cloud could stop.
    """
    problem = ALL[name](temperature=0.1, l2=0.05)
    exact = ep.grid.solve(problem, iterations=0, points=None if problem.dim == 1 else 151)
    solution = ep.solve(problem, particles=1000, iterations=100)
    quadrature = exact.quadrature
    moments = np.asarray(solution.moments, np.float64)
    density, _ = quadrature.gibbs(quadrature.slope(moments))
    excess = quadrature.primal(density) - exact.value
    gap = quadrature.primal(density) - quadrature.dual_at(moments)
    assert -1e-12 <= excess <= gap + 1e-12
    assert gap < 2e-4
    assert solution.history["beta"][-1] == 1
    assert (solution.history["effective_sample_size"] >= 0.45).all()
    assert set(solution.history) >= {
        "beta",
        "step_kept",
        "effective_sample_size",
        "residual_over_floor",
        "acceptance",
    }


@pytest.mark.slow
def test_many_rows_and_few_particles_and_the_other_way_round(monkeypatch):
    """n >> m and m >> n, with nothing kept and no matrix of rows: the same optimum."""
    monkeypatch.setattr(cloud_module, "KEPT_ELEMENTS", 0)
    monkeypatch.setattr(system, "DIRECT", 0)
    monkeypatch.setattr(system, "DIRECT_WITHOUT_MATRIX", 0)
    x = np.random.default_rng(0).normal(size=(500, 1))
    large = ep.FiniteSum(ep.Neurons(x), ep.Squared(np.sin(x[:, 0])), temperature=0.05, l2=0.05)
    exact = ep.grid.solve(large, iterations=0, points=1001)
    few = ep.solve(large, particles=50, iterations=60)
    assert 0.5 * np.mean((np.asarray(few.moments) - exact.moments) ** 2) < 1e-4
    # Every product is a pass now, and is counted.
    assert few.history["passes"][-1] > 3 * few.history["pulls"][-1]
    many = ep.solve(squared(d=2), particles=5_000, iterations=20)
    exact = ep.grid.solve(squared(d=2), iterations=0, points=151)
    residual = np.asarray(many.moments) - exact.moments
    assert 0.5 * np.asarray(squared(d=2).weights) @ residual**2 < 5e-6


def test_a_warm_start_goes_on_at_full_strength():
    problem = squared()
    first = ep.solve(problem, particles=1000, iterations=30)
    second = ep.solve(problem, particles=1000, iterations=3, start=first, seed=1)
    assert (second.history["beta"] == 1).all()
    assert np.isfinite(second.history["gap"]).all()
