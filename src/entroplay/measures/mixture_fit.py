r"""The mixture of normals around a run's particles that has the lowest objective.

For a fixed dual g, every component N(theta, diag(s^2)) settles where its share of the objective,

    c(theta, s) = <g, E_N[h]>_w + l2 E_N|theta|^2 + T Ent(N),

is lowest. Its stationary points are those of Gaussian variational inference: the precision of
coordinate j is that of the prior plus E_N[d^2 <g, h>_w / d theta_j^2] / T, so that a coordinate on
which h hardly depends gets the prior's width and its mean. A few damped steps lead there.

Given the components, L(mu) is a convex function of the weights p. With p' any other weights,

    L(mu_p) <= F_0(sum_r p_r h~_r) + sum_r p_r (l2 E_r|theta|^2 + T E_r[log mu_p']) + T KL(p | p'),

since the divergence of mixtures is at most that of their weights. The right-hand side is minimised
by the dual solve on the smoothed cloud (`cloud_dual`), with base weights
b_r = p'_r exp(-l2 E_r|theta|^2 / T - E_r[log mu_p']), here for equal p'. In the cold these weights
are so uneven that too few components carry them. b_r = exp(<g, h~_r>_w / T) is even for components
around draws of q_g.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..base.compilation import compiled, traced
from ..problems.features.base import Moments, Particles
from ..problems.features.smoothed import SmoothedMap
from ..problems.problem import FiniteSum
from .cloud import KEPT_ELEMENTS, SeenCloud
from .cloud_dual import maximise_on_cloud
from .mixture import STREAM, Mixture, in_double

COMPONENTS, ELEMENTS, LEAST = 2048, 2**22, 64
"""Maximum number of components, a random subset of larger clouds; of their features at all rows;
and the number of components that there are nevertheless. Of 50,000 rows, 256 instead of 900 made
the bound four parts in a thousand larger and took less than half of the time."""
NARROW = 0.2
"""Deviation with which components begin to settle, relative to the prior's."""
STEPS, DAMPING = 10, 0.3
"""Number of steps in which components settle, and the fraction of the way that each of them goes.

Components that settle completely gather at few places, and no weights of these reproduce the
moments any more: for a network and temperatures from 3e-2 to 3e-5, the objective is lowest after
8 to 12 steps."""
NARROWER = (0.2, 0.05, 0.02, 0.01, 0.003, 0.001)
"""Deviations of components that keep the run's weights, relative to the prior's."""
WIDEST = 2.0
"""Maximum deviation of a component, relative to the prior's: where U is concave, the precision
may be negative."""
SELECTION_DRAWS = 1024
"""Number of draws by which candidates are compared. Their winner is judged by others."""
CROSS_DRAWS = 2
"""Number of draws per component for E_r[log mu]."""
CHEAP = 2**29
"""Number of multiplications per Newton step, m (n k)^2, up to which more candidates are tried."""
DOUBLE = 1024
"""Maximum number of rows (times channels) for which weights are computed in double precision. In
single precision the moments that they reproduce are off by what rounding makes of 1 / T."""


class Base(Enum):
    """Where the weights of the components come from."""

    EVEN = "the dual solve, from base weights that are even for draws of q_g"
    UNEVEN = "the dual solve, from those that bound the objective"
    GIVEN = "the run: its own weights, without negative ones"


def fit_mixture(
    problem: FiniteSum,
    particles: Particles,
    dual: Moments,
    moments: Moments,
    weights: Float[Array, "m"] | None = None,
    *,
    seed: int = 0,
) -> Mixture:
    """The best mixture around particles that are roughly draws of q_g, g = `dual`.

    Candidates are compared by their objectives' upper limits, with draws that `seed` decides.
    `weights` are the run's own, by default equal.
    """
    key = jax.random.fold_in(jax.random.key(seed), STREAM)
    rng = np.random.default_rng([STREAM, seed, 3])
    cloud, own = np.asarray(particles), np.ones(len(particles))
    if weights is not None and np.asarray(weights).max() > 0:
        own = np.maximum(np.asarray(weights, np.float64), 0)
    most = min(COMPONENTS, max(LEAST, ELEMENTS // int(np.prod(problem.features.shape))))
    if len(cloud) > most:
        chosen = rng.permutation(len(cloud))[:most]
        cloud, own = cloud[chosen], own[chosen]
    found: list[tuple[float, Mixture]] = []
    with problem.arithmetic():
        features = problem.features.smoothed(key)
        smooth = traced(eqx.tree_at(lambda p: p.features, problem, features))
        for components, base in _candidates(smooth, jnp.asarray(cloud), dual):
            if base is Base.GIVEN:
                p = own if own.sum() > 0 else np.ones(len(own))
            else:
                p = _weights(smooth, components, dual, moments, base, rng)
            mixture = Mixture.of(features, components, p)
            objective = mixture.objective(problem, seed=seed, draws=SELECTION_DRAWS)
            found.append((objective.upper, mixture))
    # The first of equals: infinite ones are equal, too.
    return min(found, key=lambda pair: pair[0])[1]


def _candidates(
    smooth: FiniteSum, cloud: Particles, dual: Moments
) -> Iterator[tuple[Float[Array, "m dd"], Base]]:
    """Components, and where their weights come from."""
    deviation = jnp.broadcast_to(smooth.prior_deviation, cloud.shape)
    narrow = jnp.concatenate([cloud, NARROW * deviation], axis=1)
    m, (n, *channels) = len(cloud), smooth.features.shape
    if not smooth.features.keeps_values or m * n > KEPT_ELEMENTS:
        # Every product of a dual solve would cost a pass over all draws of all components. The
        # run's weights reproduce its moments if the components are narrow.
        for factor in NARROWER:
            yield jnp.concatenate([cloud, factor * deviation], axis=1), Base.GIVEN
        return
    early = settle(smooth, narrow, dual, jnp.asarray(STEPS // 3))
    late = settle(smooth, early, dual, jnp.asarray(STEPS - STEPS // 3))
    # The prior is a component, too: it reaches rows that the run's cloud has left.
    prior = jnp.concatenate([jnp.zeros_like(cloud[:1]), deviation[:1]], axis=1)
    yield jnp.concatenate([late, prior]), Base.EVEN
    # Many components in few dimensions overlap: narrow ones then follow q_g closely.
    yield jnp.concatenate([narrow, prior]), Base.EVEN
    yield prior, Base.EVEN
    if m * (n * int(np.prod(channels))) ** 2 <= CHEAP:
        yield jnp.concatenate([late, prior]), Base.UNEVEN
        yield jnp.concatenate([early, prior]), Base.UNEVEN


@compiled
def settle(
    smooth: FiniteSum, components: Float[Array, "m dd"], dual: Moments, steps: Int[Array, ""]
) -> Float[Array, "m dd"]:
    """Components after some steps towards the lowest c(theta, s), see the module."""
    d = components.shape[1] // 2
    temperature, vector = smooth.temperature, smooth.weigh(dual)
    prior = 2 * smooth.l2_row / temperature

    def step(_: Array, components: Array) -> Array:
        centres, deviations = components[:, :d], components[:, d:]
        pull = smooth.features.pull(components, vector)
        # The derivative by s is s times the mean second derivative.
        precision = prior + pull[:, d:] / (temperature * deviations)
        precision = jnp.maximum(precision, prior / WIDEST**2)
        precision = (1 - DAMPING) / deviations**2 + DAMPING * precision
        deviations = precision**-0.5
        change = -DAMPING * (pull[:, :d] / temperature + prior * centres) / precision
        # A step that is longer than the component is wide trusts a linearisation too far.
        centres = centres + jnp.clip(change, -deviations, deviations)
        new = jnp.concatenate([centres, deviations], axis=1)
        fine = jnp.all(jnp.isfinite(new), axis=1, keepdims=True)
        return jnp.where(fine, new, components)

    return jax.lax.fori_loop(0, steps, step, components)


def _weights(
    smooth: FiniteSum,
    components: Float[Array, "m dd"],
    dual: Moments,
    moments: Moments,
    start: Base,
    rng: np.random.Generator,
) -> Float[np.ndarray, "m"]:
    """The weights with the lowest objective to which the dual solve leads; else equal ones."""
    if len(components) == 1:
        return np.ones(1)
    # NaN stands for the base weights that only the features know: both kinds share one program.
    base = np.full(len(components), np.nan)
    if start is Base.UNEVEN:
        base = _uneven_base(smooth, components, rng)
    features = smooth.features
    assert isinstance(features, SmoothedMap)
    if moments.size <= DOUBLE and features.exact:
        with jax.enable_x64(True):
            parts = in_double((smooth, components, dual, moments, base))
            weights = np.asarray(_solve(*parts))
    else:
        parts = (smooth, components, dual, moments, jnp.asarray(base, smooth.dtype))
        weights = np.asarray(_solve(*parts), np.float64)
    fine = np.isfinite(weights).all() and abs(weights.sum() - 1) < 1e-3
    return weights if fine else np.full(len(weights), 1 / len(weights))


@compiled
def _solve(
    smooth: FiniteSum,
    components: Float[Array, "m dd"],
    dual: Moments,
    moments: Moments,
    base: Float[Array, "m"],
) -> Float[Array, "m"]:
    """p, by the dual solve on the components' smoothed features.

    Where `base` is NaN, base weights are even for draws of q_g.
    """
    cloud = SeenCloud.of(smooth.features, components)
    even = cloud.potential(smooth.weigh(dual)) / smooth.temperature
    base = jnp.where(jnp.isnan(base), even, base)
    return jnp.exp(maximise_on_cloud(smooth, cloud, base, 1.0, moments).point.log_weights)


def _uneven_base(
    smooth: FiniteSum, components: Float[Array, "m dd"], rng: np.random.Generator
) -> Float[np.ndarray, "m"]:
    """log b = -l2 E_r|theta|^2 / T - E_r[log mu] for the mixture mu with equal weights."""
    m, features = components.shape[0], smooth.features
    assert isinstance(features, SmoothedMap)
    mixture = Mixture.of(features, components, np.full(m, 1 / m))
    cross = np.zeros(m)
    for _ in range(CROSS_DRAWS):
        noise = rng.normal(size=mixture.centres.shape)
        cross += mixture.log_density(mixture.centres + mixture.deviations * noise)
    l2 = np.asarray(smooth.l2, np.float64)
    squares = (l2 * (mixture.centres**2 + mixture.deviations**2)).sum(axis=1)
    return -squares / float(smooth.temperature) - cross / CROSS_DRAWS
