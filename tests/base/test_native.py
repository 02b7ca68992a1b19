"""The compiled kernels: present where there is a compiler, and missed only with a warning."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from entroplay.base import native
from entroplay.problems.features import raster


def test_a_compiler_means_kernels():
    """A missing kernel would go unnoticed: with a compiler at hand, it is a failure."""
    if shutil.which("c++") or shutil.which("g++") or shutil.which("clang++"):
        assert native.missing() is None


def test_without_kernels_the_reference_speaks_up_once(monkeypatch):
    monkeypatch.setattr(native, "missing", lambda: "none here")
    native.usable.cache_clear()
    corners, colours = jnp.asarray([[1.0, 1.0, 5.0, 2.0, 3.0, 6.0]]), jnp.ones((1, 1))
    with pytest.warns(UserWarning, match="none here"):
        alone = raster.deposit(corners, colours, 11, 13)
    # Warnings are errors, so a second one would fail here.
    np.testing.assert_allclose(raster.deposit(corners, colours, 11, 13), alone)
    native.usable.cache_clear()
