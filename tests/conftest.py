"""Shapes and types are checked at every call, promotion is strict, warnings are errors: sloppiness fails here first."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook

install_import_hook("entroplay", "strict_types.check")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import pytest  # noqa: E402

LONG_PAGES = ("tutorial.md", "choosing.md", "estimators.md")
"""Pages of the documentation whose examples are problems of real size: `make test-all` runs them, and the estimators' examples."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in LONG_PAGES or item.path.parent.name == "sklearn":
            item.add_marker(pytest.mark.slow)
    items.sort(
        key=lambda item: item.path.name != "test_reproduce.py"
    )  # the longest first, so that it does not end alone
