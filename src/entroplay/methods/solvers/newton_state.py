"""What `NewtonEFP` carries from iteration to iteration, and what it adds to the history."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...problems.features.base import Moments, Particles


class NewtonColumns(NamedTuple):
    """Columns that only this solver adds to the history.

    All but `beta` are about the temperature at which the iteration began.
    """

    temperature: Float[Array, ""]
    """The problem's temperature divided by beta; infinite at the prior."""
    beta: Float[Array, ""]
    """Fraction of the loss that was turned on at the end of the iteration."""
    d_eff: Float[Array, ""]
    """Effective number of degrees of freedom."""
    effective_sample_size: Float[Array, ""]
    """Effective share of the particles after the dual was solved on them."""
    inner_steps: Float[Array, ""]
    """Newton steps of all solves of the iteration."""
    leave_one_out: Float[Array, ""]
    """The loss at the moments that rows would have without themselves."""
    residual_over_floor: Float[Array, ""]
    """The squared residual P - H, divided by its expectation under sampling noise alone."""


class Kept(NamedTuple):
    """The last answer that was confirmed by a solve on its own moved particles."""

    particles: Particles
    moments: Moments
    beta: Float[Array, ""]
    loss: Float[Array, ""]
    """The loss at the moments; the largest finite number if no answer has been confirmed yet."""

    @property
    def never(self) -> Array:
        """Whether no answer has been confirmed yet."""
        return self.loss >= jnp.finfo(self.loss.dtype).max


class NewtonEFPState(eqx.Module):
    """Particles ~ q_{beta loss'(H)}."""

    particles: Particles
    moments: Moments
    beta: Float[Array, ""]
    averaged: Float[Array, ""]
    """Number of iterations in the running mean: 1 until the noise floor is reached."""
    first_try: Int[Array, ""]
    """The first of SHORTENINGS that is tried: the last one that succeeded, or the one before."""
    stuck: Int[Array, ""]
    """Successive iterations that failed: no lower temperature was reached, or the answer was not
    confirmed."""
    trouble: Int[Array, ""]
    """Why the last iteration failed, see `TROUBLES`."""
    kept: Kept
    d_eff: Float[Array, ""]
    """Effective number of degrees of freedom, as the last solve had it."""
    most: Int[Array, ""]
    """Number of particles up to which the cloud may grow."""
    sampler: Any
