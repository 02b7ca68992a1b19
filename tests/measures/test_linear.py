"""Conjugate gradients in the weighted inner product of the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from entroplay.measures.linear import conjugate_gradients


def test_conjugate_gradients_solve():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        weights, A = rng.uniform(0.5, 2, 20), rng.normal(size=(20, 20))
        # Self-adjoint in the weighted inner product: W^{-1} times a symmetric matrix.
        M = np.diag(1 / weights) @ (A @ A.T + np.eye(20))
        b = rng.normal(size=20)
        x, count = conjugate_gradients(
            lambda v: jnp.asarray(M) @ v,
            jnp.asarray(b),
            jnp.asarray(weights),
            iterations=200,
            tolerance=1e-12,
        )
        np.testing.assert_allclose(M @ np.asarray(x), b, rtol=1e-7, atol=1e-8)
        assert 5 < int(count) <= 200


def test_a_direction_is_solved_for_relative_to_itself():
    """A matrix above the identity: |x - exact| <= |residual| <= 0.01 |x|.

    The right-hand side is longer than x by orders of magnitude: relative to it, the same tolerance
    leaves an answer that is wrong altogether.
    """
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        axes = np.linalg.qr(rng.normal(size=(40, 40)))[0]
        matrix = jnp.asarray((axes * np.geomspace(1, 1e4, 40)) @ axes.T)
        # Stiff directions make up most of it.
        right = jnp.asarray(axes @ np.geomspace(1, 1e4, 40) ** 0.9)
        exact, ones = np.linalg.solve(matrix, right), jnp.ones(40)
        errors = []
        for of_solution in (True, False):
            x, _ = conjugate_gradients(
                lambda v: matrix @ v,
                right,
                ones,
                iterations=300,
                tolerance=0.01,
                of_solution=of_solution,
            )
            errors.append(np.linalg.norm(x - exact) / np.linalg.norm(x))
    assert errors[0] <= 0.01
    assert errors[1] > 0.3


@pytest.mark.parametrize("channels", [(), (3,)])
def test_as_many_products_as_there_are_eigenvalues_suffice(channels):
    """Rows of one channel and of several, with an operator of four distinct eigenvalues."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        weights, right = rng.uniform(0.5, 2, 12), jnp.asarray(rng.normal(size=(12, *channels)))
        factors = jnp.asarray(np.repeat([1.0, 2.0, 5.0, 9.0], 3)).reshape(12, *[1] * len(channels))
        x, count = conjugate_gradients(
            lambda v: factors * v, right, jnp.asarray(weights), iterations=50, tolerance=1e-10
        )
        np.testing.assert_allclose(x, right / factors, rtol=1e-9)
    assert int(count) == 4


def test_the_number_of_products_is_bounded_and_none_is_spent_on_zero():
    with jax.enable_x64(True):
        factors, ones = jnp.asarray(np.geomspace(1, 1e6, 30)), jnp.ones(30)

        def solved(right, iterations):
            return conjugate_gradients(
                lambda v: factors * v, right, ones, iterations=iterations, tolerance=1e-12
            )

        assert int(solved(ones, 3)[1]) == 3
        x, count = solved(jnp.zeros(30), 3)
        np.testing.assert_array_equal(x, 0)
        assert int(count) == 0
