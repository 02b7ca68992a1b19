"""Checks of arguments, and two small readers of them.

Every message names the parameter, what it must be and what it got.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Schedule = Callable[[Any], Any]
"""A function from the outer iteration to a number, an optax schedule for instance."""

LONGEST = 80
"""Maximum number of characters of a value that an error message quotes."""


def invalid(owner: str, name: str, must_be: str, got: object) -> ValueError:
    """The error for a bad argument, in the one sentence that all checks share."""
    return ValueError(f"The '{name}' parameter of {owner} must be {must_be}. Got {got!r} instead.")


def is_number(value: object) -> bool:
    """Whether `value` is a real scalar (Python, NumPy or a concrete JAX scalar), not a boolean."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | float | np.integer | np.floating):
        return True
    return (
        isinstance(value, np.ndarray | jax.Array) and value.ndim == 0 and value.dtype.kind in "iuf"
    )


def positive(owner: str, name: str, value: object) -> float:
    """`value` as a float, if it is a finite positive number."""
    number = _as_float(value)
    if not math.isfinite(number) or number <= 0:
        raise invalid(owner, name, "a finite positive number", value)
    return number


def _as_float(value: object) -> float:
    """`value` as a float; NaN, which no range contains, if it is not a number."""
    return float(value) if is_number(value) else math.nan  # type: ignore[arg-type]


def whole(owner: str, name: str, value: object, *, least: int = 1) -> int:
    """`value` as an int, if it is a whole number that is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise invalid(owner, name, f"a whole number >= {least}", value)
    return int(value)


def seed_number(owner: str, value: object) -> int:
    """`value` as an int, if JAX accepts it as a seed without truncating it."""
    if whole(owner, "seed", value, least=0) >= 2**32:
        raise invalid(owner, "seed", "a whole number from 0 to 2**32 - 1", value)
    return int(value)  # type: ignore[call-overload]


def flag(owner: str, name: str, value: object) -> bool:
    """`value` as a bool, if it is one."""
    if not isinstance(value, bool | np.bool_):
        raise invalid(owner, name, "True or False", value)
    return bool(value)


def one_of(owner: str, name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value`, if it is one of the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise invalid(owner, name, "one of " + ", ".join(repr(c) for c in choices), value)
    return value


def real_array(
    owner: str, name: str, value: object, *, ndim: tuple[int, ...] | None = None
) -> Array:
    """`value` as a finite floating JAX array of the default precision, with at least one entry."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid(owner, name, "an array of real numbers", _brief(value)) from None
    if ndim is not None and array.ndim not in ndim:
        dimensions = " or ".join(f"{d}-dimensional" for d in ndim)
        raise invalid(owner, name, f"a {dimensions} array", f"an array of shape {array.shape}")
    if array.size == 0:
        raise invalid(owner, name, "a non-empty array", f"an array of shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        # Name the first bad entry: in a large array it is hard to find otherwise.
        first = int(np.argmax(bad))
        index = ", ".join(str(int(i)) for i in np.unravel_index(first, array.shape))
        where = f"{array.ravel()[first]} at [{index}]"
        raise invalid(
            owner,
            name,
            "finite (no NaN, no infinity)",
            f"{int(bad.sum())} bad entries, the first {where}",
        )
    # In single precision, a finite number above about 3e38 becomes infinite.
    with np.errstate(over="ignore"):
        converted = jnp.asarray(array, dtype=jnp.result_type(float))
    # NumPy tests without compiling a program for every shape.
    if not np.isfinite(np.asarray(converted)).all():
        raise invalid(
            owner,
            name,
            f"representable in {converted.dtype}",
            f"entries as large as {np.abs(array).max():g}",
        )
    return converted


def number_or_schedule(
    owner: str, name: str, value: object, *, at_most: float = math.inf
) -> float | Schedule:
    """A number in (0, at_most], or a schedule. `check_schedule` checks its values before a run."""
    if callable(value):
        return value
    must_be = (
        f"a number in (0, {at_most:g}] or a schedule"
        if math.isfinite(at_most)
        else "a positive number or a schedule"
    )
    number = _as_float(value)
    if not 0 < number <= at_most or not math.isfinite(number):
        raise invalid(owner, name, must_be, value)
    return number


def check_schedule(
    owner: str, name: str, value: object, iterations: int, *, at_most: float = math.inf
) -> None:
    """Refuse a schedule that leaves (0, at_most] in any iteration of the run; numbers pass."""
    if not callable(value):
        return
    values = np.asarray(jax.vmap(value)(jnp.arange(iterations)))
    if values.shape != (iterations,):
        raise invalid(
            owner,
            name,
            "a schedule that returns one number per iteration",
            f"values of shape {values.shape[1:]}",
        )
    bad = ~(np.isfinite(values) & (values > 0) & (values <= at_most))
    if bad.any():
        first = int(np.argmax(bad))
        upper = f"{at_most:g}]" if math.isfinite(at_most) else "infinity)"
        raise invalid(
            owner,
            name,
            f"a schedule with values in (0, {upper}",
            f"{values[first]:g} at iteration {first}",
        )


def per_row(x: Array, like: Array) -> Array:
    """Reshape one number per row to multiply rows of one or of several channels."""
    return x.reshape(-1, *[1] * (like.ndim - 1))


def value_at(value: Any, iteration: Any) -> Any:
    """`value` if it is a number, the schedule's value at this iteration if it is a schedule."""
    return value(iteration) if callable(value) else value


def _brief(value: object) -> str:
    """The representation of `value`, cut to `LONGEST` characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
