"""Arithmetic of weighted draws: effective sample sizes, re-weighting, systematic resampling.

Clouds in JAX come with log-weights; finished measures in NumPy come with weights that sum to one.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

RESAMPLE_AT = 0.5
"""Fraction of a cloud to which its effective sample size may fall before it is resampled."""


def effective_sample_size(log_weights: Float[Array, "*b m"]) -> Float[Array, "*b"]:
    """(sum w)^2 / sum w^2, along the last axis."""
    total = jax.nn.logsumexp(log_weights, axis=-1)
    return jnp.exp(2 * total - jax.nn.logsumexp(2 * log_weights, axis=-1))


def largest_step(
    decrease: Float[Array, "*b m"], limit: Array, share: float = RESAMPLE_AT
) -> Float[Array, ""]:
    """The largest s <= limit at which weights exp(-s decrease) leave every cloud large enough.

    Its effective sample size must be at least a fraction `share` of its size m. Found by bisection:
    the effective sample size need not be monotone in s, but it is m at s = 0.
    """
    m = decrease.shape[-1]

    def fine(s: Array) -> Array:
        return jnp.all(effective_sample_size(-s * decrease) >= share * m)

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        good = fine(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    # Forty halvings exhaust single precision; double precision does not need more digits of a step.
    low, _ = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(limit), limit))
    return jnp.where(fine(limit), limit, low)


def systematic(key: PRNGKeyArray, log_weights: Float[Array, "m"]) -> Int[Array, "m"]:
    """Systematic resampling: particle r is taken floor or ceil of m w_r times."""
    return systematic_at(jax.random.uniform(key, (), log_weights.dtype), log_weights)


def systematic_at(offset: Float[Array, ""], log_weights: Float[Array, "m"]) -> Int[Array, "m"]:
    """`systematic` with a given offset in [0, 1): a uniform number, or 1/2 for no randomness."""
    m = log_weights.shape[0]
    cumulated = jnp.cumsum(jax.nn.softmax(log_weights))
    positions = (offset + jnp.arange(m, dtype=log_weights.dtype)) / m
    # Rounding may leave the last cumulated weight slightly off one: positions are scaled to it.
    chosen = jnp.searchsorted(cumulated, positions * cumulated[-1])
    return jnp.clip(chosen, 0, m - 1).astype(jnp.int32)


def systematic_indices(weights: np.ndarray, count: int, offset: float) -> np.ndarray:
    """`count` indices by systematic resampling: each is taken floor or ceil of count w_r times.

    `offset` in [0, 1) places the grid of positions: a uniform number, or 1/2 for no randomness.
    """
    positions = (np.arange(count) + offset) / count
    return np.searchsorted(np.cumsum(weights), positions).clip(max=len(weights) - 1)


def effective_number(weights: np.ndarray) -> float:
    """Effective sample size of weights that sum to one: 1 / sum w^2."""
    return float(1 / (weights**2).sum())
