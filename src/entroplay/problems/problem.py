"""The finite-sum problem over probability measures, which all solvers solve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.arguments import invalid, is_number, per_row, positive, real_array
from ..base.registry import storable
from ..base.threads import lapack_on_one_thread
from .features.base import FeatureMap, Moments, Particles
from .losses.base import Loss


@storable
class FiniteSum(eqx.Module):
    r"""Minimise an entropic finite sum over probability measures mu, eq. (6) of the paper.

    L(mu) = sum_i w_i loss_i(E_mu[h_i]) + l2 E_mu|theta|^2 + temperature Ent(mu).

    Args:
        features: the map h, for instance `Neurons(X)`.
        loss: a convex loss, for instance `Squared(y)`.
        temperature: the weight of the negative entropy Ent(mu) = E_mu[log mu] (lambda in the
            paper).
        l2: the weight of E|theta|^2 (lambda' in the paper): a number, or one number per coordinate
            of theta for a penalty E[sum_j l2_j theta_j^2].
        weights: one non-negative number per row, normalised to sum to one. Default: all equal.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, -0.5])
    >>> ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    FiniteSum(Neurons, Squared, n=2, d=1, temperature=0.01, l2=0.01)
    """

    features: FeatureMap
    loss: Loss
    temperature: float
    l2: float | Float[Array, "d"]
    weights: Float[Array, "n"]

    def __init__(
        self,
        features: FeatureMap,
        loss: Loss,
        *,
        temperature: float,
        l2: object,
        weights: object = None,
    ):
        if not isinstance(features, FeatureMap):
            raise invalid(
                "FiniteSum",
                "features",
                "a feature map (Neurons, GaussianKernel, FunctionFeatures, ...)",
                features,
            )
        if not isinstance(loss, Loss):
            raise invalid(
                "FiniteSum", "loss", "a loss (Squared, Logistic, CrossEntropy, NegLog, ...)", loss
            )
        # A loss with targets fits only features of the same shape.
        if loss.data_shape is not None and loss.data_shape != features.shape:
            raise invalid(
                "FiniteSum",
                "loss",
                f"made for moments of shape {features.shape}, as the features give",
                f"one for {loss.data_shape}",
            )
        self.features = features
        self.loss = loss
        self.temperature = positive("FiniteSum", "temperature", temperature)
        self.l2 = _penalties(l2, features.dim)
        # Equal weights are the 1/n of eq. (6).
        n = features.shape[0]
        if weights is None:
            self.weights = jnp.full(n, 1 / n, features.dtype)
            return
        given = real_array("FiniteSum", "weights", weights, ndim=(1,))
        if given.shape != (n,) or (given < 0).any() or not given.sum() > 0:
            raise invalid(
                "FiniteSum", "weights", f"{n} non-negative numbers that are not all zero", weights
            )
        self.weights = given / given.sum()

    @property
    def dim(self) -> int:
        """d, the number of coordinates of a particle."""
        return self.features.dim

    @property
    def dtype(self) -> jnp.dtype:
        """The precision in which the problem was posed."""
        return self.features.dtype

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The context in which JAX computes for this problem: its precision, and its threads."""
        with jax.enable_x64(self.dtype == jnp.float64), lapack_on_one_thread():
            yield

    def needs_rows(self, verb: str) -> None:
        """Refuse a problem that was saved without its training rows, on behalf of `verb`."""
        if self.weights.shape[0] == 0:
            raise ValueError(
                f"The solution was saved without its data (data=False), and {verb} needs them."
            )

    def prior(self, key: PRNGKeyArray, particles: int) -> Particles:
        """Draws of the prior nu = N(0, temperature / (2 l2)), see below eq. (12).

        It is the Gibbs measure of the zero dual.
        """
        return jnp.atleast_2d(self.prior_deviation) * jax.random.normal(
            key, (particles, self.dim), self.dtype
        )

    @property
    def prior_deviation(self) -> Float[Array, "*d"]:
        """The prior's standard deviation: a number, or one per coordinate."""
        return jnp.sqrt(jnp.asarray(self.temperature / (2 * self.l2), self.dtype))

    def slope(self, moments: Moments) -> Moments:
        """The dual vector that belongs to the moments: g_i = loss_i'(H_i), as in eq. (10)."""
        return self.loss.slope(moments)

    def empirical_loss(self, moments: Moments) -> Float[Array, ""]:
        """F_0 = sum_i w_i loss_i(H_i), the first term of eq. (6)."""
        return self.weights @ self.loss.value(moments)

    def penalty(self, particles: Particles) -> Float[Array, "m"]:
        """l2 |theta_r|^2, or sum_j l2_j theta_rj^2, for each particle."""
        return jnp.sum(self.l2_row * particles**2, axis=1)

    @property
    def l2_row(self) -> Float[Array, "1 c"]:
        """l2 as a row, of one number or of d, that multiplies particles."""
        return jnp.atleast_2d(jnp.asarray(self.l2, self.dtype))

    def weigh(self, vector: Moments) -> Moments:
        """w_i v_i, the argument of the feature map's `potential` and `pull`."""
        return vector * per_row(self.weights, vector)

    def __repr__(self) -> str:
        l2 = np.asarray(self.l2)
        penalties = f"{float(l2):g}" if l2.ndim == 0 else f"{l2.min():g}..{l2.max():g}"
        parts = [
            type(self.features).__name__,
            type(self.loss).__name__,
            f"n={self.weights.shape[0]}",
            *(f"k={k}" for k in self.features.channels),
            f"d={self.dim}",
            f"temperature={self.temperature:g}",
            f"l2={penalties}",
        ]
        return f"FiniteSum({', '.join(parts)})"


def _penalties(l2: object, dim: int) -> float | Float[Array, "d"]:
    """`l2` as one positive number, or as one for each coordinate."""
    if is_number(l2):
        return positive("FiniteSum", "l2", l2)
    must_be = f"a finite positive number, or {dim} of them, one per coordinate"
    if not isinstance(l2, list | tuple | np.ndarray | jax.Array):
        raise invalid("FiniteSum", "l2", must_be, l2)
    penalties = real_array("FiniteSum", "l2", l2)
    if penalties.shape != (dim,) or not (penalties > 0).all():
        raise invalid("FiniteSum", "l2", must_be, l2)
    return penalties
