"""PDA and PSDCA: their rates with exact expectations, and what they refuse.

The contract of all solvers is tested in `test_solvers.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import ALL, cross_entropy, logistic, negative_log, squared

import entroplay as ep
from entroplay.measures.quadrature import normalise
from entroplay.methods.solvers import psdca
from entroplay.methods.solvers.pda import averaged
from entroplay.methods.solvers.psdca import Ascent, batches, first_dual, visit_rows


def on_grid(problem):
    return ep.grid.solve(problem, iterations=0, points=1001 if problem.dim == 1 else 91)


@pytest.mark.parametrize("temperature", [0.05, pytest.param(0.3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [squared, logistic, cross_entropy])
def test_dual_averaging_with_exact_expectations_converges_like_one_over_t_squared(
    make, temperature
):
    """The theorem promises O(1/t) for the primal values.

    With exact expectations and smooth losses, the primal and the dual gaps fall like t^-2. The
    exponent is fitted over t = 50 to 400, where it has settled to a few per cent.
    """
    exact = on_grid(make(temperature=temperature))
    quadrature, T = exact.quadrature, exact.quadrature.problem.temperature
    density, dual, rows = quadrature.prior, 0.0, []
    times = np.arange(1, 401)
    for t in times:
        with jax.enable_x64(True):
            slope = jnp.asarray(quadrature.slope(quadrature.moments(density)))
            dual = np.asarray(
                averaged(jnp.broadcast_to(dual, slope.shape), slope, jnp.asarray(float(t)))
            )
        density, _ = normalise(-quadrature.energy(dual) / (T * (t + 2) / t), quadrature.cell)
        primal = quadrature.primal(quadrature.gibbs(dual)[0])
        rows.append(
            (
                exact.value - quadrature.dual(dual),
                primal - exact.value,
                quadrature.primal(density) - exact.value,
            )
        )
    late = times >= 50
    for gap in np.array(rows).T:
        assert (gap > 0).all()
        exponent = np.polyfit(np.log(times[late]), np.log(gap[late]), 1)[0]
        assert exponent == pytest.approx(-2, abs=0.1)


def test_the_running_average_has_the_weights_of_the_paper():
    values, mean = np.random.default_rng(0).normal(size=(7, 1)), jnp.asarray([123.0])
    for t, value in enumerate(values, start=1):
        mean = averaged(mean, jnp.asarray(value), jnp.asarray(float(t)))
    s = np.arange(1, 8)
    assert float(mean[0]) == pytest.approx(2 * s @ values[:, 0] / (7 * 8), rel=1e-5)
    for t, value in enumerate(values, start=1):
        mean = averaged(mean, jnp.asarray(value), jnp.asarray(float(t)), weighted=False)
    assert float(mean[0]) == pytest.approx(values.mean(), rel=1e-5)


@pytest.mark.parametrize(("weighted", "heat"), [(True, 3), (False, 1)])
def test_dual_averaging_samples_hotter_than_it_is_judged(weighted, heat):
    """After the first iteration (t = 1) the cloud is at three times the temperature.

    In the plain form it is at the temperature itself. The dual is zero, since the targets are the
    moments of the prior: the variance is heat T / (2 l2), within 4 standard errors v sqrt(2/m) of a
    normal sample's variance.
    """
    features = ep.FunctionFeatures(lambda theta, x: 0.0 * theta[0] * x, [1.0, 2.0], dim=1)
    problem = ep.FiniteSum(features, ep.Squared([0.0, 0.0]), temperature=0.3, l2=0.1)
    m = 8000
    cloud = ep.solve(
        problem, ep.PDA(ep.MALA(steps=40), weighted=weighted), particles=m, iterations=1
    ).particles
    expected = heat * 0.3 / (2 * 0.1)
    assert abs(float(jnp.var(cloud)) - expected) < 4 * expected * np.sqrt(2 / m)


def test_dual_averaging_refuses_unbounded_slopes():
    with pytest.raises(ValueError, match=r"'problem' parameter of PDA .*slopes.*NegLog"):
        ep.solve(negative_log(), ep.PDA(), particles=10, iterations=1)


def exact_ascent(problem, batch, passes, monkeypatch, half_range=None):
    """PSDCA's own passes over the rows, with exact expectations.

    The particles are grid points weighted by q_g. Returns the solution of the grid, the dual value
    before each pass, and the half-range.
    """
    monkeypatch.setattr(psdca, "RESAMPLE_AT", 0.0)
    exact = on_grid(problem)
    quadrature, problem = exact.quadrature, exact.quadrature.problem
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        if half_range is None:
            low, high = problem.features.bounds
            half_range = (high - low) / 2
        points = jnp.asarray(quadrature.points)

        @jax.jit
        def visit(log_weights, dual, moments, order):
            begin = Ascent(points, log_weights, dual, moments)
            return visit_rows(
                problem, jax.random.key(0), begin, batches(order, batch), jnp.asarray(half_range)
            )

        dual = first_dual(problem)
        moments, duals = jnp.zeros_like(dual), []
        for _ in range(passes):
            duals.append(quadrature.dual(np.asarray(dual)))
            order = jnp.asarray(rng.permutation(problem.features.shape[0]))
            end = visit(jnp.asarray(quadrature.log_gibbs(np.asarray(dual))), dual, moments, order)
            dual, moments = end.dual, end.moments
        np.testing.assert_allclose(dual, problem.slope(moments), rtol=1e-12)
    return exact, np.array(duals), half_range


SMOOTHNESS = {"squared": 1.0, "logistic": 0.25, "cross_entropy": 0.5, "negative_log": np.inf}
"""The largest eigenvalue of loss'' for each of the small problems."""


@pytest.mark.parametrize("batch", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(ALL))
def test_the_dual_never_falls_and_rises_at_the_rate_of_the_theory(name, batch, monkeypatch):
    """In expectation, one pass over random batches multiplies the dual gap by at most exp(-s).

    A row that moves a fraction s = 1/(1 + c L) of the way to loss'(P) gains at least s times its
    Fenchel-Young gap. Here L is the loss's smoothness, c = k B^2 W / temperature, and W the weight
    of the batch. The rate fitted per pass must be at least that of the worst batch. NegLog, which
    is not smooth, must still converge linearly.
    """
    problem = ALL[name](temperature=0.05)
    exact, duals, half_range = exact_ascent(
        problem, batch, 50, monkeypatch, half_range=1.0 if name == "cross_entropy" else None
    )
    assert (np.diff(duals) >= -1e-14).all()
    gap = exact.value - duals
    seen = (gap > 1e-11) & (np.arange(50) >= 3)
    passes = np.arange(50)[seen]
    rate, log_start = np.polyfit(passes, np.log(gap[seen]), 1)
    heaviest = np.sort(np.asarray(problem.weights))[-batch:].sum()
    channels = int(np.prod(problem.features.channels, initial=1))
    assert -rate >= 1 / (1 + channels * half_range**2 * heaviest / 0.05 * SMOOTHNESS[name])
    assert -rate > 0.05
    # Linear convergence: the logarithm of the gap is a straight line up to a tenth of its fall.
    residual = np.log(gap[seen]) - (rate * passes + log_start)
    assert residual.std() < 0.1 * np.ptp(np.log(gap[seen]))


def test_too_small_a_range_breaks_the_ascent(monkeypatch):
    """With a thirtieth of the half-range, the dual falls somewhere on the way."""
    _, duals, _ = exact_ascent(logistic(temperature=0.01), 12, 20, monkeypatch, half_range=0.1)
    assert (np.diff(duals) < -1e-6).any()


def test_ascent_asks_for_a_range_where_none_is_known():
    with pytest.raises(ValueError, match="'half_range' parameter of PSDCA must be given"):
        ep.solve(cross_entropy(), ep.PSDCA(), particles=10, iterations=1)


def test_the_first_dual_lies_in_its_domain():
    for make in ALL.values():
        problem = make()
        assert bool(jnp.isfinite(problem.loss.conjugate(first_dual(problem))).all())
    np.testing.assert_allclose(
        first_dual(negative_log()), -1 / negative_log().features.bounds[1], rtol=1e-6
    )


def test_batches_hold_every_row_once():
    groups = np.asarray(batches(jnp.arange(10), 4))
    assert groups.shape == (3, 4)
    assert sorted(groups[groups >= 0]) == list(range(10))
    assert batches(jnp.arange(3), 8).shape == (1, 3)
