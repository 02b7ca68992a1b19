"""The C++ kernels of this folder, compiled when the package is installed and found at first use."""

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
    "triangles_gather", "triangles_deposit", "triangles_square_norm", "triangles_deposit_squares", "triangles_lay", "neurons_pull",
)  # fmt: skip


@functools.cache
def missing() -> str | None:
    """None where the kernels are at hand, else the reason why they are not."""
    files = [file for folder in _folders() for file in sorted(folder.glob("entroplay_native.*"))]
    if not files:
        return "they were not compiled when entroplay was installed (no C++ compiler was found)"
    try:
        library = ctypes.CDLL(str(files[0]))
        for name in KERNELS:
            handler = jax.ffi.pycapsule(getattr(library, f"entroplay_{name}"))
            jax.ffi.register_ffi_target(f"entroplay_{name}", handler, platform="cpu")
    except (OSError, AttributeError) as error:
        return f"{files[0].name} could not be loaded ({error})"
    return None


def _folders() -> Iterator[Path]:
    """Where the library may be: beside this file, or, if this is a source tree, where the package was installed."""
    yield Path(__file__).parent
    try:
        yield Path(str(distribution("entroplay").locate_file("entroplay/base/native")))
    except PackageNotFoundError:
        return


@functools.cache
def usable() -> bool:
    """Whether to use the kernels; where they are missing it is said once, since all works without them, but slower."""
    reason = missing()
    if reason is not None:
        warnings.warn(
            f"Triangles are drawn without the compiled kernels, some 30 times slower: {reason}.",
            stacklevel=2,
        )
    return reason is None


def kernel(name: str, shapes: Any, **attributes: Any) -> Callable[..., Any]:
    """A kernel as a function of arrays, with results of those shapes."""
    return partial(
        jax.ffi.ffi_call(f"entroplay_{name}", shapes, vmap_method="sequential"), **attributes
    )


def either(by_kernel: Callable[..., Any], reference: Callable[..., Any], *arguments: Any) -> Any:
    """The first on CPUs, the second elsewhere. Both are the same function of the arguments."""
    if {device.platform for device in jax.devices()} == {"cpu"}:
        return by_kernel(*arguments)  # the reference need not even be traced
    return jax.lax.platform_dependent(*arguments, cpu=by_kernel, default=reference)
