"""NewtonEFP: quadratic convergence with exact expectations, the optimum with particles."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import ALL, cross_entropy, logistic, negative_log, squared

import entroplay as ep
from entroplay.measures import cloud as cloud_module
from entroplay.measures import cloud_dual, newton_base, newton_system
from entroplay.measures.cloud import SeenCloud
from entroplay.measures.factored_sketch import FactoredSketch, InnerProductSystem
from entroplay.measures.quadrature import in_double


def dual_on_grid(problem, steps, monkeypatch):
    """The dual on the points of the oracle's grid, weighted by the prior, step by step.

    The points stand for an infinite cloud: all expectations are exact. As in a run, beta doubles
    until it is one; from there the steps are returned.
    """
    exact = ep.grid.solve(problem, iterations=0, points=1501 if problem.dim == 1 else 91)
    quadrature = exact.quadrature
    problem = quadrature.problem
    with jax.enable_x64(True):
        matrix = jnp.asarray(quadrature.matrix.reshape(-1, *problem.features.shape))
        cloud = SeenCloud(problem.features, jnp.asarray(quadrature.points), matrix)
        log_base = jnp.log(jnp.asarray(quadrature.prior) + 1e-300)
        start = jnp.asarray(quadrature.moments(quadrature.prior))

        def solved(beta, start):
            return cloud_dual.maximise_on_cloud(problem, cloud, log_base, beta, start)

        on_the_way = jax.jit(solved)
        for halvings in range(10, 0, -1):
            start = on_the_way(jnp.asarray(0.5**halvings), start).point.moments
        # Only rounding ends the solve, and two passes of its loop are one Newton step, and the end.
        monkeypatch.setattr(cloud_dual, "PRECISION", 0.0)
        monkeypatch.setattr(cloud_dual, "MOST_STEPS", 2)
        single = jax.jit(lambda start: solved(1.0, start))
        rows = [single(start)]
        for _ in range(steps - 1):
            rows.append(single(rows[-1].point.moments))
    return exact, rows


@pytest.mark.parametrize(
    "temperature", [1e-3, *(pytest.param(t, marks=pytest.mark.slow) for t in (1e-1, 1e-2))]
)
@pytest.mark.parametrize(
    "make",
    [
        cross_entropy,
        *(pytest.param(m, marks=pytest.mark.slow) for m in (negative_log, squared, logistic)),
    ],
)
def test_quadratic_convergence_with_exact_expectations(make, temperature, monkeypatch):
    monkeypatch.setattr(newton_system, "CG_TOLERANCE", 1e-14)
    monkeypatch.setattr(newton_base, "JITTER", 0.0)
    exact, rows = dual_on_grid(make(temperature=temperature, l2=0.02), 15, monkeypatch)
    dual = np.array([float(row.point.value) for row in rows])
    residual = np.array([float(np.abs(row.point.mean - row.point.moments).max()) for row in rows])
    # An increase of D_b by 1e-15, which is lost in rounding, is a residual of 1e-7 or so.
    assert residual[-1] < 1e-6
    # The dual does not fall (beyond rounding), and ends at the optimum.
    assert (np.diff(dual) >= -1e-12).all()
    constant = exact.value - dual[-1]
    # Quadratic convergence: log r_{t+1} = 2 log r_t + c. Between 3e-2 and 1e-13 the exponent comes
    # near two; that of a linear method would be one.
    pairs = [(a, b) for a, b in pairwise(residual) if 1e-13 < b < a < 3e-2]
    assert max(np.log(b) / np.log(a) for a, b in pairs) > 1.6
    moments = np.asarray(rows[-1].point.moments)
    np.testing.assert_allclose(moments, exact.moments, atol=1e-6)
    # D_b lacks the prior's own part of the dual: minus temperature times log of its normaliser.
    problem = exact.quadrature.problem
    d, l2 = problem.dim, problem.l2
    prior = -temperature * d / 2 * np.log(np.pi * temperature / l2)
    assert constant == pytest.approx(prior, abs=1e-9)


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
        n = moments.size
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
        right = weights @ values - np.asarray(moments).ravel()
        J = 0.8 * C @ K / problem.temperature
        expected = np.linalg.solve(np.eye(n) + J, right)
        # S is similar to J (I + J)^{-1}: the same trace, and the same trace of every block.
        influence = J @ np.linalg.inv(np.eye(n) + J)
        own = influence.diagonal().reshape(moments.shape[0], -1).sum(axis=1)
        monkeypatch.setattr(newton_system, "CG_TOLERANCE", 1e-13)
        monkeypatch.setattr(newton_base, "JITTER", 0.0)
        monkeypatch.setattr(newton_system, "SKETCH", 20)
        forms = set()
        for elements in (2**22, 0):
            for direct in (256, 60, 0):
                monkeypatch.setattr(cloud_module, "KEPT_ELEMENTS", elements)
                monkeypatch.setattr(newton_system, "DIRECT", direct)
                monkeypatch.setattr(newton_system, "DIRECT_WITHOUT_MATRIX", direct)
                cloud = SeenCloud.of(problem.features, particles)
                assert (cloud.matrix is None) == (elements == 0)
                system = newton_system.newton_system(
                    problem, cloud, moments, 0.8, members / members.sum()
                )
                forms.add(type(system).__name__)
                found, _, _ = system.solve(jnp.asarray(right.reshape(moments.shape)))
                np.testing.assert_allclose(
                    np.asarray(found).ravel(), expected, rtol=1e-7, atol=1e-9
                )
                d_eff, blocks = system.influence()
                if direct:
                    assert float(d_eff) == pytest.approx(np.trace(influence), rel=1e-8)
                    traces = blocks if blocks.ndim == 1 else jnp.trace(blocks, axis1=1, axis2=2)
                    np.testing.assert_allclose(np.asarray(traces), own, atol=1e-8)
                else:
                    # The standard error of Hutchinson's estimate, see PROBES; four of them.
                    error = 4 * np.sqrt(2 * np.trace(influence) / newton_system.PROBES)
                    assert abs(float(d_eff) - np.trace(influence)) < error
        assert forms >= {"RowsSystem", "ProductsSystem"}
        system = newton_system.newton_system(
            problem, cloud, moments, 0.8, members / members.sum(), direct=False
        )
        assert system.sketch is None
        found, _, _ = system.solve(jnp.asarray(right.reshape(moments.shape)))
        np.testing.assert_allclose(np.asarray(found).ravel(), expected, rtol=1e-7, atol=1e-9)
        if name == "negative_log":  # densities are solved in this form
            assert abs(float(system.influence()[0]) - np.trace(influence)) < error


def test_woodburys_form_keeps_its_digits_in_single_precision():
    """Large eigenvalues: without refinement y is wrong by |right| times the unit of rounding.

    The components of y along a large eigenvalue are smaller than those of the right-hand side by
    that factor, and so small a difference of large numbers keeps few digits.
    """
    rng = np.random.default_rng(2)
    problem = ep.FiniteSum(
        ep.Neurons(rng.normal(size=(60, 2)), "relu", bias=True, output_weight=True, scale=10.0),
        ep.Squared(rng.normal(size=60)),
        temperature=1e-5,
        l2=1e-5,
    )
    particles = jnp.asarray(rng.normal(size=(20, problem.dim)), problem.dtype)
    cloud, p = SeenCloud.of(problem.features, particles), jnp.full(20, 1 / 20)
    system = newton_system.newton_system(problem, cloud, cloud.average(p), 1.0, p)
    assert isinstance(system, newton_system.ParticlesSystem)
    rows = np.asarray(system.rows, np.float64)
    right = rows.T @ rng.normal(size=20)  # in the space of the large eigenvalues
    right /= np.linalg.norm(right)
    exact = np.linalg.solve(np.eye(60) + rows.T @ rows, right)
    found = np.asarray(system.halved(jnp.asarray(right, problem.dtype))[0], np.float64)
    plain = right - rows.T @ np.linalg.solve(np.eye(20) + rows @ rows.T, rows @ right)
    np.testing.assert_allclose(plain, exact, atol=1e-12)
    # |exact| is 2e-4, so that rounding alone may cost 6e-8 / 2e-4 times the square root of 60 rows
    # and more. Measured: 0.011 with the refinement, 0.084 without it.
    assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize("make", ["squared", "cross_entropy"])
def test_the_residual_after_a_cold_step_in_single_precision(make):
    """(I + beta J) D = r holds in the end, though D is smaller than r by orders of magnitude.

    Errors of D count by the matrix's largest eigenvalue, 1e5 here: D as a difference of numbers of
    the size of r is off by rounding times that.
    """
    rng = np.random.default_rng(4)
    n, outputs = 50, 1 if make == "squared" else 3
    features = ep.Neurons(
        rng.normal(size=(n, 2)), "relu", bias=True, output_weight=True, outputs=outputs, scale=10.0
    )
    loss = (
        ep.Squared(rng.normal(size=n))
        if make == "squared"
        else ep.CrossEntropy(rng.integers(0, 3, size=n), classes=3)
    )
    problem = ep.FiniteSum(features, loss, temperature=1e-4, l2=1e-4)
    particles = jnp.asarray(rng.normal(size=(400, problem.dim)), problem.dtype)
    cloud, p = SeenCloud.of(problem.features, particles), jnp.full(400, 1 / 400)
    moments = cloud.average(p) / 2
    system = newton_system.newton_system(problem, cloud, moments, 1.0, p)
    # In the range of the covariance, as the residuals of a solve are.
    other = jnp.asarray(rng.dirichlet(np.ones(400)), problem.dtype)
    right = cloud.average(other) - cloud.average(p)
    direction, _, _ = system.solve(right)
    h, d, root = (np.asarray(a, np.float64) for a in (cloud.matrix, direction, system.root))
    if cloud.outputs is not None:
        h = h[:, :, None] * np.asarray(cloud.outputs, np.float64)[:, None, :]
    h = (h - h.mean(axis=0)).reshape(400, -1)
    curved = root**2 * d if d.ndim == 1 else np.einsum("nij,nkj,nk->ni", root, root, d)
    image = h.T @ (h @ curved.ravel()) / 400 / n / 1e-4
    residual = np.asarray(right, np.float64).ravel() - d.ravel() - image
    # Rounding of D alone, 6e-8 |D|, makes at most 1.3e-2 |right| of it by the largest eigenvalue.
    # Measured: 2e-4 and 3e-4; where D is computed as a difference only, 13 and 4.
    assert np.linalg.norm(residual) < 1e-2 * np.linalg.norm(right)


def test_factors_make_the_same_system_as_the_features():
    """A sketch by channels has the solutions and the influence of the system of all rows."""
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        features = ep.Neurons(rng.normal(size=(7, 2)), output_weight=True, outputs=3, scale=2.0)
        loss = ep.CrossEntropy(rng.integers(0, 3, size=7), classes=3)
        weights = np.array([0.0, *rng.uniform(1, 2, size=6)])
        problem = ep.FiniteSum(features, loss, temperature=0.05, l2=0.05, weights=weights)
        particles = jnp.asarray(rng.normal(size=(40, problem.dim)))
        p = jnp.asarray(rng.dirichlet(np.ones(40)))
        cloud = SeenCloud.of(features, particles)
        assert cloud.outputs is not None
        moments = cloud.average(p)
        rows = newton_system.newton_system(problem, cloud, moments, 0.7, p)
        assert isinstance(rows, newton_system.RowsSystem)
        sketch = FactoredSketch(problem, cloud, moments, rows.strength, p, rows.root)
        right = jnp.asarray(rng.normal(size=moments.shape))
        # The Cholesky factors have a relative ridge of 1e-7.
        np.testing.assert_allclose(sketch.halved(right)[0], rows.halved(right)[0], atol=1e-5)
        (d_eff, blocks), (expected, expected_blocks) = sketch.influence(), rows.influence()
        assert float(d_eff) == pytest.approx(float(expected), rel=1e-5)
        np.testing.assert_allclose(blocks, expected_blocks, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_inner_products_make_the_same_system_as_the_features(outputs):
    """For the squared loss: solutions, trace and influence of the system of all rows."""
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        n = 30
        features = ep.Neurons(
            rng.normal(size=(n, 2)), output_weight=True, outputs=outputs, scale=2.0
        )
        y = rng.normal(size=(n, outputs))
        weights = np.array([0.0, *rng.uniform(1, 2, size=n - 1)])
        loss = ep.Squared(y[:, 0] if outputs == 1 else y, scale=3.0)
        problem = ep.FiniteSum(features, loss, temperature=0.05, l2=0.05, weights=weights)
        particles = jnp.asarray(rng.normal(size=(12, problem.dim)))
        p = jnp.asarray(rng.dirichlet(np.ones(12)))
        cloud = SeenCloud.of(features, particles)
        moments = cloud.average(p)
        plain = newton_system.newton_system(problem, cloud, moments, 0.7, p)
        rows = newton_system.RowsSystem(
            problem, cloud, moments, plain.strength, p, root=problem.loss.curvature_root(moments)
        )
        inner = newton_system.newton_system(
            problem, cloud.with_inner_products(problem), moments, 0.7, p
        )
        assert isinstance(inner, InnerProductSystem)
        right = jnp.asarray(rng.normal(size=moments.shape))
        # The Cholesky factors have a relative ridge of 1e-7.
        for found, expected in zip(inner.solve(right)[:2], rows.solve(right)[:2], strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        (d_eff, blocks), (known, known_blocks) = inner.influence(), rows.influence()
        assert float(d_eff) == pytest.approx(float(known), rel=1e-5)
        assert float(inner.degrees()) == pytest.approx(float(known), rel=1e-5)
        np.testing.assert_allclose(blocks, known_blocks, atol=1e-5)


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
    columns = "temperature beta d_eff effective_sample_size inner_steps leave_one_out acceptance"
    assert set(solution.history) >= set(columns.split())


@pytest.mark.slow
def test_many_rows_and_few_particles_and_the_other_way_round(monkeypatch):
    """n >> m and m >> n, with nothing kept and no matrix of rows: the same optimum."""
    monkeypatch.setattr(cloud_module, "KEPT_ELEMENTS", 0)
    monkeypatch.setattr(newton_system, "DIRECT", 0)
    monkeypatch.setattr(newton_system, "DIRECT_WITHOUT_MATRIX", 0)
    x = np.random.default_rng(0).normal(size=(500, 1))
    large = ep.FiniteSum(ep.Neurons(x), ep.Squared(np.sin(x[:, 0])), temperature=0.05, l2=0.05)
    exact = ep.grid.solve(large, iterations=0, points=1001)
    few = ep.solve(large, particles=50, iterations=60)
    assert 0.5 * np.mean((np.asarray(few.moments) - exact.moments) ** 2) < 1e-4
    # Every product is a pass now, and is counted. Kept features would take one pass per iteration
    # beside the pulls.
    assert few.history["passes"][-1] > 2 * (few.history["pulls"][-1] + 60)
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
