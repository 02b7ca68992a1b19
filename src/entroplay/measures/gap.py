r"""The Fenchel-Young gap: L(q_g) - D(g) without entropy and without partition function.

L is the objective of eq. (6), D the dual of eq. (11).

For any dual g, with P = E_{q_g}[h], the entropy of q_g and log Z_g cancel exactly:

    L(q_g) - D(g) = sum_i w_i [loss_i(P_i) + conj_i(g_i) - <g_i, P_i>] >= L(q_g) - min L >= 0.

With g = loss'(H) this is the mean Bregman divergence from H to P.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problems.features.base import Moments
from ..problems.losses.base import row_dot
from ..problems.problem import FiniteSum


def fenchel_young_gap(problem: FiniteSum, moments: Moments, dual: Moments) -> Float[Array, ""]:
    """L(q_g) - D(g) from P = E_{q_g}[h] (`moments`) and any dual g in the conjugate's domain."""
    loss = problem.loss
    return problem.weights @ (loss.value(moments) + loss.conjugate(dual) - row_dot(dual, moments))


def bregman_gap(problem: FiniteSum, moments: Moments, anchor: Moments) -> Float[Array, ""]:
    """The Fenchel-Young gap of g = loss'(`anchor`).

    It needs no conjugate, and small gaps keep their digits.
    """
    return problem.weights @ problem.loss.bregman(moments, anchor)


def sampling_bias(
    problem: FiniteSum, moments: Moments, covariance: Array, particles: int
) -> Float[Array, ""]:
    """(1/2) sum_i w_i tr(loss''(P_i) S_i) / m, the bias of the plug-in gap to first order.

    The plug-in gap uses the mean P of m independent draws with covariance S, and is too large by
    this much on average.
    """
    curvature = problem.loss.curvature(moments)
    return problem.weights @ row_dot(curvature, covariance) / (2 * particles)


def rowwise_square(curvature: Float[Array, "n *kk"], vector: Moments) -> Float[Array, "n"]:
    """v_i' loss''_i v_i for each row i, from the curvatures loss''_i."""
    if vector.ndim == 1:
        return curvature * vector**2
    return jnp.einsum("nk,nkl,nl->n", vector, curvature, vector)
