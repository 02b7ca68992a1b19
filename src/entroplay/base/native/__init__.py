"""The C++ kernels of this folder, compiled at installation and loaded at first use."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import jax

KERNELS = (
    "triangles_gather",
    "triangles_deposit",
    "triangles_square_norm",
    "triangles_deposit_squares",
    "triangles_lay",
    "neurons_pull",
)
"""Names of the kernels; the library exports each with the prefix `entroplay_`."""


@functools.cache
def missing() -> str | None:
    """Why the kernels are missing; None if they are present. Loads and registers them."""
    files = [file for folder in _folders() for file in sorted(folder.glob("entroplay_native.*"))]
    if not files:
        return "they were not compiled when entroplay was installed (no C++ compiler was found)"
    try:
        library = ctypes.CDLL(str(files[0]))
        for name in KERNELS:
            handler = jax.ffi.pycapsule(getattr(library, f"entroplay_{name}"))
            jax.ffi.register_ffi_target(f"entroplay_{name}", handler, platform="cpu")
    # A library for another platform is an OSError, an old one without a kernel an AttributeError.
    except (OSError, AttributeError) as error:
        return f"{files[0].name} could not be loaded ({error})"
    return None


def _folders() -> Iterator[Path]:
    """Folders that may hold the library: this one, or in a source tree that of the installation."""
    yield Path(__file__).parent
    try:
        yield Path(str(distribution("entroplay").locate_file("entroplay/base/native")))
    except PackageNotFoundError:
        return


@functools.cache
def usable() -> bool:
    """Whether the kernels are present. If not, warn once: everything works, but more slowly."""
    reason = missing()
    if reason is not None:
        warnings.warn(
            f"Triangles are drawn without the compiled kernels, about 30 times slower: {reason}.",
            stacklevel=2,
        )
    return reason is None


def kernel(name: str, shapes: Any, **attributes: Any) -> Callable[..., Any]:
    """A kernel as a function of arrays, with results of the given shapes."""
    return partial(
        jax.ffi.ffi_call(f"entroplay_{name}", shapes, vmap_method="sequential"), **attributes
    )


def either(by_kernel: Callable[..., Any], reference: Callable[..., Any], *arguments: Any) -> Any:
    """`by_kernel` on CPUs, `reference` elsewhere. Both compute the same function."""
    # With CPUs only, the reference need not even be traced.
    if {device.platform for device in jax.devices()} == {"cpu"}:
        return by_kernel(*arguments)
    return jax.lax.platform_dependent(*arguments, cpu=by_kernel, default=reference)
