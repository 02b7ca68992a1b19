"""The kernel of hidden neurons against the same sums in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.base import native
from entroplay.problems.features import neurons

pytestmark = pytest.mark.skipif(native.missing() is not None, reason="no kernels here")

MAPS = {
    "weights alone": {},
    "bias": {"bias": True},
    "one output": {"bias": True, "output_weight": True, "scale": 10.0},
    "three outputs": {"bias": True, "output_weight": True, "outputs": 3, "scale": 1.5},
    "relu": {"activation": "relu", "bias": True, "output_weight": True, "scale": 10.0},
}


def drawn(options, n, p, m, seed=0):
    """A map, a cloud and a vector in single precision, and the same in double precision."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    features = ep.Neurons(X, **options)
    particles = (2 * rng.normal(size=(m, features.dim))).astype(np.float32)
    vector = rng.normal(size=features.shape).astype(np.float32)
    with jax.enable_x64(True):
        precise = (
            ep.Neurons(X.astype(np.float64), **options),
            jnp.asarray(particles, float),
            jnp.asarray(vector, float),
        )
    return (features, jnp.asarray(particles), jnp.asarray(vector)), precise


def called(program):
    return "ffi_call" in str(program)


# Fewer rows than a step of the kernel, one step, more than a block; odd numbers of particles, and
# more than a portion of them.
@pytest.mark.parametrize(("n", "p", "m"), [(3, 1, 1), (32, 4, 2), (131, 5, 37), (300, 9, 6)])
@pytest.mark.parametrize("options", list(MAPS.values()), ids=list(MAPS))
def test_sums_and_slopes(options, n, p, m):
    (features, particles, vector), precise = drawn(options, n, p, m)
    assert called(jax.make_jaxpr(features.potential_and_pull)(particles, vector))
    potential, pull = features.potential_and_pull(particles, vector)
    with jax.enable_x64(True):
        assert not called(jax.make_jaxpr(precise[0].potential_and_pull)(*precise[1:]))
        exact_potential, exact_pull = precise[0].potential_and_pull(*precise[1:])
        # A term is off by a few units of 6e-8 of scale |v|, and its argument by 6e-8 |w| |x|; the
        # errors of n terms add up to at most this. The terms of relu are as large as their
        # arguments.
        size = 1
        if features.activation == "relu":
            size += np.abs(precise[0].rows).max() * np.abs(precise[1]).sum(axis=1).max()
        room = 1e-6 * np.abs(vector).sum() * float(features.scale) * size
        np.testing.assert_allclose(potential, exact_potential, rtol=0, atol=room)
        np.testing.assert_allclose(
            pull, exact_pull, rtol=0, atol=room * max(1, np.abs(features.rows).max())
        )
    np.testing.assert_array_equal(features.potential(particles, vector), potential)
    np.testing.assert_array_equal(features.pull(particles, vector), pull)


def test_a_particle_does_not_notice_the_others():
    (features, particles, vector), _ = drawn(MAPS["bias"], 100, 4, 41)
    potential, pull = features.potential_and_pull(particles, vector)
    for few in (np.arange(1), np.arange(7, 20), np.arange(40, 41)):
        alone, alone_pull = features.potential_and_pull(particles[few], vector)
        np.testing.assert_array_equal(alone, potential[few])
        np.testing.assert_array_equal(alone_pull, pull[few])


def test_rows_without_weight_count_for_nothing():
    """Padding changes no bit, not even whole blocks of it."""
    (features, particles, vector), _ = drawn(MAPS["one output"], 128, 4, 8)
    longer = ep.Neurons(np.concatenate([features.rows, np.zeros((200, 4))]), **MAPS["one output"])
    padded = jnp.concatenate([vector, jnp.zeros(200, vector.dtype)])
    jax.tree.map(
        np.testing.assert_array_equal,
        longer.potential_and_pull(particles, padded),
        features.potential_and_pull(particles, vector),
    )


def test_the_activations_everywhere():
    """One row, and one particle per argument: the potential is the activation itself.

    The arguments go out to where tanh is one; NaN stays NaN.
    """
    z = np.concatenate([np.linspace(-12, 12, 5001), 10.0 ** np.arange(-12, 4), [0.0]])
    z = z.astype(np.float32)
    value = ep.Neurons([[1.0]]).potential(jnp.asarray(z)[:, None], jnp.ones(1))
    # Six units in the last place.
    np.testing.assert_allclose(value, np.tanh(z.astype(np.float64)), rtol=4e-7, atol=0)
    for activation in ("tanh", "relu"):
        assert np.isnan(
            ep.Neurons([[1.0]], activation).potential(jnp.full((1, 1), jnp.nan), jnp.ones(1))
        ).all()
    positive, pull = ep.Neurons([[1.0]], "relu").potential_and_pull(
        jnp.asarray(z)[:, None], jnp.ones(1)
    )
    np.testing.assert_array_equal(positive, np.maximum(z, 0))
    np.testing.assert_array_equal(pull[:, 0], z > 0)  # zero at zero, as in JAX


def test_other_activations_and_places_without_kernels_do_without(monkeypatch):
    (features, particles, vector), _ = drawn(MAPS["bias"], 20, 3, 5)
    assert not called(
        jax.make_jaxpr(ep.Neurons(features.rows, "erf", bias=True).potential_and_pull)(
            particles, vector
        )
    )
    by_kernel = features.potential_and_pull(particles, vector)
    monkeypatch.setattr(neurons, "missing", lambda: "none here")
    assert not called(jax.make_jaxpr(features.potential_and_pull)(particles, vector))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5),
        features.potential_and_pull(particles, vector),
        by_kernel,
    )


def test_many_clouds_at_once():
    (features, particles, vector), _ = drawn(MAPS["three outputs"], 20, 3, 12)
    together = jax.vmap(features.potential_and_pull, (0, None))(particles.reshape(3, 4, -1), vector)
    apart = features.potential_and_pull(particles, vector)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a.reshape(b.shape), b), together, apart)
