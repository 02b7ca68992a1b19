r"""Leave-one-out predictions from the influence matrix of one solve.

At the fixed point H, a change of the slope g_i of row i changes H_i by -A_ii, with

    A = (C W / T) (I + loss'' C W / T)^{-1},   C = Cov(h).

The moment that the problem without row i would have is, to first order in that row's weight,

    H_i^{-i} = H_i + (I - A_ii loss''_i)^{-1} A_ii loss'_i(H_i).

With R R' = loss'' the blocks S_ii = R' A_ii R^{-T} are those of the influence matrix, and
R' (H_i^{-i} - H_i) = (I - S_ii)^{-1} S_ii R^{-1} loss'_i(H_i). For the squared loss this is the
well-known residual (y_i - H_i) / (1 - S_ii).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problems.features.base import Moments
from ..problems.problem import FiniteSum

LARGEST = 0.999
"""Largest influence of a row on itself that is believed: beyond it 1 - S_ii is lost in rounding."""
FLAT = 1e-6
"""Curvatures below this fraction of the row's largest, or of the largest of all rows, count as
flat: the slope is flat there, too."""


def left_out_moments(
    problem: FiniteSum, moments: Moments, blocks: Float[Array, "n *kk"]
) -> Moments:
    """H_i^{-i}, the moments of every row without that row; `blocks` are those of S."""
    slope, curvature = problem.slope(moments), problem.loss.curvature(moments)
    if moments.ndim == 1:
        influence = jnp.clip(blocks, 0, LARGEST)
        steep = curvature > FLAT * jnp.max(curvature)
        own = jnp.where(steep, slope / jnp.where(steep, curvature, 1), 0)
        return problem.loss.extrapolate(moments, influence / (1 - influence) * own)
    # In the eigenbasis of loss'' = V diag(d) V' its root is V diag(sqrt d), as the losses of this
    # library return it, or any other root: R^{-1} is the pseudo-inverse.
    root = problem.loss.curvature_root(moments)
    inverse = jnp.linalg.pinv(root, rtol=FLAT**0.5)
    values, vectors = jnp.linalg.eigh((blocks + jnp.swapaxes(blocks, 1, 2)) / 2)
    influence = jnp.clip(values, 0, LARGEST)
    right = jnp.einsum("nkl,nl->nk", inverse, slope)
    turned = influence / (1 - influence) * jnp.einsum("nkl,nk->nl", vectors, right)
    change = jnp.einsum("nkl,nl->nk", vectors, turned)
    return problem.loss.extrapolate(moments, jnp.einsum("nlk,nl->nk", inverse, change))


def leave_one_out_loss(
    problem: FiniteSum, moments: Moments, blocks: Float[Array, "n *kk"]
) -> Array:
    """sum_i w_i loss_i(H_i^{-i}), the loss at rows that the fit did not see."""
    return problem.empirical_loss(left_out_moments(problem, moments, blocks))
