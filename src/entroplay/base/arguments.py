"""Checks of what users pass in: every message names the parameter, what it must be and what it got."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Schedule = Callable[[Any], Any]
"""A function of the outer iteration (an optax schedule, for instance) that returns a number."""


def invalid(owner: str, name: str, must_be: str, got: object) -> ValueError:
    """The one sentence in which every bad argument is reported."""
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
    if not is_number(value) or not math.isfinite(float(value)) or float(value) <= 0:  # type: ignore[arg-type]
        raise invalid(owner, name, "a finite positive number", value)
    return float(value)  # type: ignore[arg-type]


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
    """`value` as a finite floating JAX array of the default precision, with a non-empty leading axis."""
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
        first = int(np.argmax(bad))
        index = ", ".join(str(int(i)) for i in np.unravel_index(first, array.shape))
        where = f"{array.ravel()[first]} at [{index}]"
        raise invalid(
            owner,
            name,
            "finite (no NaN, no infinity)",
            f"{int(bad.sum())} bad entries, the first {where}",
        )
    with np.errstate(over="ignore"):
        converted = jnp.asarray(array, dtype=jnp.result_type(float))
    if not bool(jnp.isfinite(converted).all()):
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
    """A number in (0, at_most], or a schedule whose values are checked by `schedule_values` before a run."""
    if callable(value):
        return value
    must_be = (
        f"a number in (0, {at_most:g}] or a schedule"
        if math.isfinite(at_most)
        else "a positive number or a schedule"
    )
    if not is_number(value) or not 0 < float(value) <= at_most or not math.isfinite(float(value)):  # type: ignore[arg-type]
        raise invalid(owner, name, must_be, value)
    return float(value)  # type: ignore[arg-type]


def check_schedule(
    owner: str, name: str, value: object, iterations: int, *, at_most: float = math.inf
) -> None:
    """Refuse a schedule that leaves (0, at_most] at any of the iterations to come; numbers pass."""
    if not callable(value):
        return
    values = np.asarray(jax.vmap(value)(jnp.arange(iterations)))
    bad = ~(np.isfinite(values) & (values > 0) & (values <= at_most))
    if values.shape != (iterations,):
        raise invalid(
            owner,
            name,
            "a schedule that returns one number per iteration",
            f"values of shape {values.shape[1:]}",
        )
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
    """Reshape one number per row so that it multiplies rows of one or of several channels."""
    return x.reshape(-1, *[1] * (like.ndim - 1))


def value_at(value: Any, iteration: Any) -> Any:
    """The number itself, or the schedule's value at this iteration."""
    return value(iteration) if callable(value) else value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
