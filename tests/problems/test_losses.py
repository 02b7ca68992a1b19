"""Laws that every loss obeys, checked in float64 over random rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import LOSSES, TARGETS, K, N, exported

import entroplay as ep
from entroplay.problems import losses


class LogSumExp(ep.Loss):
    """A user's loss with vector rows that defines nothing but a value.

    It is CrossEntropy with label 0, plus a little convexity.
    """

    def value(self, moments):
        return (
            jax.nn.logsumexp(moments, axis=1) - moments[:, 0] + 0.05 * jnp.sum(moments**2, axis=1)
        )


CASES = {**LOSSES, "user's class": (LogSumExp, (K,))}


@pytest.fixture(params=list(CASES))
def case(request):
    """The loss, and a maker of random moments inside its domain."""
    make, channels = CASES[request.param]
    with jax.enable_x64(True):
        loss = make()

        def moments(seed):
            z = jnp.asarray(np.random.default_rng(seed).normal(size=(N, *channels)) * 1.5)
            return z if bool(loss.domain(z).all()) else jnp.exp(z)

        yield loss, moments


def test_every_loss_is_in_the_table():
    missing = exported(losses, ep.Loss) - {type(make()) for make, _ in LOSSES.values()}
    assert not missing, f"add a line to LOSSES in tests/problems/cases.py for {missing}"


def dot(a, b):
    return np.asarray(a * b).reshape(N, -1).sum(axis=1)


def test_slope_is_the_derivative_of_value(case):
    loss, moments = case
    z, v = moments(1), moments(2)
    h = 1e-6
    difference = (loss.value(z + h * v) - loss.value(z - h * v)) / (2 * h)
    np.testing.assert_allclose(dot(loss.slope(z), v), difference, rtol=1e-7, atol=1e-8)


def test_curvature_is_the_derivative_of_slope(case):
    loss, moments = case
    z, v = moments(1), moments(2)
    h = 1e-6
    difference = (loss.slope(z + h * v) - loss.slope(z - h * v)) / (2 * h)
    c = np.asarray(loss.curvature(z))
    product = c * v if c.ndim == 1 else np.einsum("nkl,nl->nk", c, v)
    np.testing.assert_allclose(product, difference, rtol=1e-6, atol=1e-7)
    if c.ndim == 3:
        np.testing.assert_allclose(c, np.swapaxes(c, 1, 2), atol=1e-12)


def test_the_roots_square_is_the_curvature(case):
    loss, moments = case
    c, root = (np.asarray(f(moments(1))) for f in (loss.curvature, loss.curvature_root))
    square = root**2 if root.ndim == 1 else root @ np.swapaxes(root, 1, 2)
    np.testing.assert_allclose(square, c, rtol=1e-9, atol=1e-12)


def test_retraction_is_a_step_that_stays_in_the_domain(case):
    loss, moments = case
    z = moments(1)
    direction = jnp.asarray(np.random.default_rng(2).normal(size=z.shape))
    assert np.asarray(loss.domain(loss.retract(z, 100 * direction))).all()
    h = 1e-5
    slope = (loss.retract(z, h * direction) - loss.retract(z, -h * direction)) / (2 * h)
    np.testing.assert_allclose(slope, direction, rtol=1e-3, atol=1e-6)


def test_a_density_falls_by_a_tenth_in_one_step_at_the_most():
    """A short step down, which is not cut; a long one, which is; and a step up, which never is."""
    z = jnp.asarray([0.2, 3.0])
    np.testing.assert_allclose(ep.NegLog().retract(z, -0.05 * z), z / 1.05, rtol=1e-6)
    np.testing.assert_allclose(ep.NegLog().retract(z, -z), z / 1.1, rtol=1e-6)
    np.testing.assert_allclose(ep.NegLog().retract(z, 5 * z), 6 * z, rtol=1e-6)


def test_fenchel_young_equality_at_the_slope(case):
    loss, moments = case
    z = moments(3)
    g = loss.slope(z)
    assert np.asarray(loss.domain(z)).all()
    np.testing.assert_allclose(loss.value(z) + loss.conjugate(g), dot(g, z), rtol=1e-6, atol=1e-7)


def test_fenchel_young_inequality_elsewhere(case):
    loss, moments = case
    z, g = moments(4), loss.slope(moments(5))
    slack = np.asarray(loss.value(z) + loss.conjugate(g)) - dot(g, z)
    assert (slack >= -1e-7).all()
    assert slack.mean() > 1e-2  # two independent draws are not a conjugate pair


def test_the_conjugates_slope_inverts_the_slope(case):
    loss, moments = case
    z = moments(6)
    if isinstance(loss, ep.Huber):  # beyond delta the slope is constant and has no inverse
        z = loss.y + jnp.clip(z - loss.y, -0.99 * loss.delta, 0.99 * loss.delta)
    g = loss.slope(z)
    # Directions that stay in the conjugate's domain: differences of slopes.
    v = 1e-3 * (loss.slope(moments(7)) - g)
    h = 1e-2
    difference = np.asarray(loss.conjugate(g + h * v) - loss.conjugate(g - h * v)) / (2 * h)
    np.testing.assert_allclose(difference, dot(z, v), rtol=2e-4, atol=1e-8)


def test_bregman_is_the_fenchel_young_gap(case):
    loss, moments = case
    p, z = moments(8), moments(9)
    g = loss.slope(z)
    gap = np.asarray(loss.value(p) + loss.conjugate(g)) - dot(g, p)
    np.testing.assert_allclose(loss.bregman(p, z), gap, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["squared", "logistic", "cross entropy", "negative log"])
def test_small_bregman_divergences_keep_their_digits_in_single_precision(name):
    make, channels = LOSSES[name]
    rng = np.random.default_rng(11)
    z = np.exp(rng.normal(size=(N, *channels)))
    step = 1e-3 * rng.normal(size=z.shape)
    single = make().bregman(jnp.asarray(z + step, jnp.float32), jnp.asarray(z, jnp.float32))
    with jax.enable_x64(True):
        # The inputs are the rounded ones: only the error of the formula is measured.
        p, a = (jnp.asarray(np.float64(np.float32(x))) for x in (z + step, z))
        loss = make()
        exact = loss.value(p) - loss.value(a) - dot(loss.slope(a), p - a)
    # The difference p - z itself is exact in float32 up to eps*|z|/|step|, about 1e-4; naive
    # formulas lose all digits.
    np.testing.assert_allclose(np.mean(np.asarray(single)), np.mean(np.asarray(exact)), rtol=2e-3)


def test_derived_quantities_of_a_function_match_the_closed_form():
    with jax.enable_x64(True):
        mine, theirs = (
            ep.FunctionLoss(lambda z, y: 0.5 * (z - y) ** 2, TARGETS),
            ep.Squared(TARGETS),
        )
        z = jnp.asarray(np.random.default_rng(12).normal(size=N))
        for name in ("value", "slope", "curvature", "conjugate"):
            np.testing.assert_allclose(
                getattr(mine, name)(z), getattr(theirs, name)(z), rtol=1e-10, atol=1e-12
            )


def test_conjugates_are_infinite_outside_their_domain():
    logistic, cross, negative = (
        ep.Logistic([1, -1]),
        ep.CrossEntropy([0, 1], classes=2),
        ep.NegLog(),
    )
    assert np.isinf(logistic.conjugate(jnp.array([0.1, -0.1]))).all()
    assert np.isinf(logistic.conjugate(jnp.array([-1.1, 1.1]))).all()
    assert np.isinf(cross.conjugate(jnp.array([[0.2, 0.0], [0.0, 0.2]]))).all()
    assert np.isinf(negative.conjugate(jnp.array([0.0, 0.5]))).all()
    assert not logistic.dual_domain(jnp.array([0.1, -0.1])).any()
    # The borders belong to the domain, with the value of the limit.
    np.testing.assert_array_equal(logistic.conjugate(jnp.array([0.0, 1.0])), [0, 0])
    np.testing.assert_array_equal(cross.conjugate(jnp.array([[0.0, 0.0], [0.0, 0.0]])), [0, 0])


def test_large_arguments_do_not_overflow():
    big = jnp.array([1e4, -1e4])
    assert np.isfinite(ep.Logistic([1, -1]).value(big)).all()
    assert np.isfinite(ep.Logistic([1, -1]).bregman(big, -big)).all()
    cross = ep.CrossEntropy([0, 1])
    assert np.isfinite(cross.bregman(jnp.array([[1e4, 0.0], [0.0, 1e4]]), jnp.zeros((2, 2)))).all()


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_the_proximal_point_is_stationary(case, size):
    """z - point + strength loss'(z) = 0 to rounding.

    This holds for weak and strong losses, and for points outside the domain, too.
    """
    loss, moments = case
    rng = np.random.default_rng(13)
    with jax.enable_x64(True):
        strength = jnp.asarray(size * rng.uniform(0.5, 2, size=N))
        point = jnp.asarray(3 * rng.normal(size=moments(0).shape))
        z = jax.jit(lambda *arguments: loss.proximal(*arguments))(point, strength)
        assert bool(loss.domain(z).all())
        c = strength if z.ndim == 1 else strength[:, None]
        residual = z - point + c * loss.slope(z)
        size_of_terms = 1 + jnp.abs(point) + jnp.abs(c * loss.slope(z))
        assert float(jnp.abs(residual / size_of_terms).max()) < 1e-9
