"""Strict tests: shapes and types are checked at every call, and nothing is promoted silently."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Two workers share the cores: threads of linear algebra that wait for each other by spinning made
# some tests ten times as slow.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from jaxtyping import install_import_hook

install_import_hook("entroplay", "strict_types.check")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import pytest  # noqa: E402
from programs import drop_if_many  # noqa: E402

LONG_PAGES = ("tutorial.md", "choosing.md", "estimators.md", "iterate.md", "painting.md")
"""Pages whose examples are problems of real size; `make test-all` runs them."""
ESTIMATORS = Path(__file__).parents[1] / "src" / "entroplay" / "sklearn"
"""Folder of the estimators, whose examples are of real size as well."""

EVERY = 20
"""The number of tests after which compiled programs are counted."""
_tests_done = 0


@pytest.fixture(autouse=True)
def bounded_memory():
    """Drop compiled programs of earlier tests now and then."""
    yield
    global _tests_done
    _tests_done += 1
    if _tests_done % EVERY == 0:
        drop_if_many()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in LONG_PAGES or item.path.parent == ESTIMATORS:
            item.add_marker(pytest.mark.slow)
    # The longest file goes first. As the last one it would occupy one of two cores alone.
    items.sort(key=lambda item: item.path.parts[-2:] != ("reproduce", "test_reproduce.py"))
