"""The painter's own sampler: interacting Langevin dynamics with momentum, cooled down, with relocation of useless triangles."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.arguments import invalid, positive, whole
from ..methods.solvers.base import Info, Solver, Start, scalar
from ..problems.features.base import Moments, Particles
from ..problems.features.raster import gather, square_norm
from ..problems.features.triangles import Triangles
from ..problems.problem import FiniteSum

CORNERS, COLOURS = slice(0, 6), slice(6, None)
SMALLEST, LARGEST = 0.01, 0.25
"""Spread of the corners of a fresh triangle around its centre, in sides of the canvas."""


class CosineSteps(eqx.Module):
    """A schedule that falls from `first` to `last` like half a cosine, over `iterations`."""

    first: float
    last: float
    iterations: float

    def __call__(self, iteration: Any) -> Any:
        progress = jnp.minimum(jnp.asarray(iteration, jnp.result_type(float)) / self.iterations, 1)
        return self.last + (self.first - self.last) * (1 + jnp.cos(jnp.pi * progress)) / 2


class TrianglePainterState(eqx.Module):
    """The triangles, their mean, their momentum and the typical gradient of corners and of colours."""

    particles: Particles
    moments: Moments
    momentum: Particles
    gradient_scale: Float[Array, "2"]


class TrianglePainter(Solver):
    r"""Mean-field Langevin dynamics for `Triangles`, with what makes it fast:

        p <- (1 - f) p - f P grad U + sqrt(f (2 - f) f T P) xi,    theta <- theta + p,    f = friction,

    where U is that of the present picture, P one number for all corners and one for all colours (a step over the root mean
    square gradient), and T falls from `heat` times the problem's temperature to the temperature itself, l2 with it. Every
    `relocate_every` steps the triangles that matter least are taken out one by one, and each is replaced by the best of
    `candidates` random ones if that lowers the objective. This is *greedy*: it does not leave a Gibbs measure invariant, and
    neither does cooling. The result is a good picture, not a sample.

    Args:
        iterations: over how many steps to cool; later steps stay at the end of the schedule.
        heat: how many times hotter it begins.
        corner_step: typical length of a step of the corners at the beginning, in sides of the canvas.
        colour_step: likewise of the colours.
        last_step: the share of these lengths that is left at the end.
        friction: of the momentum, per step, in (0, 1].
        relocate_every: steps between relocations; 0 for none.
        relocate_share: the share of the triangles that each relocation tries to replace.
        candidates: fresh triangles that compete for each place.
    """

    iterations: float
    heat: float
    corner_step: float
    colour_step: float
    last_step: float
    friction: float
    relocate_every: int = eqx.field(static=True)
    relocate_share: float = eqx.field(static=True)
    candidates: int = eqx.field(static=True)

    def __init__(
        self,
        iterations: int = 2000,
        heat: float = 1000.0,
        corner_step: float = 0.008,
        colour_step: float = 0.06,
        last_step: float = 0.02,
        friction: float = 0.1,
        relocate_every: int = 10,
        relocate_share: float = 0.02,
        candidates: int = 150,
    ):
        self.iterations = float(whole("TrianglePainter", "iterations", iterations))
        self.heat = positive("TrianglePainter", "heat", heat)
        self.corner_step = positive("TrianglePainter", "corner_step", corner_step)
        self.colour_step = positive("TrianglePainter", "colour_step", colour_step)
        self.last_step = positive("TrianglePainter", "last_step", last_step)
        self.friction = positive("TrianglePainter", "friction", friction)
        self.relocate_every = whole("TrianglePainter", "relocate_every", relocate_every, least=0)
        self.relocate_share = positive("TrianglePainter", "relocate_share", relocate_share)
        self.candidates = whole("TrianglePainter", "candidates", candidates)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> TrianglePainterState:
        moments = problem.features.average(start.particles)
        return TrianglePainterState(
            start.particles, moments, jnp.zeros_like(start.particles), jnp.zeros(2, problem.dtype)
        )

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: TrianglePainterState, iteration: Array
    ) -> tuple[TrianglePainterState, Info]:
        noise_key, relocation_key = jax.random.split(key)
        cold = (
            jnp.cos(jnp.pi / 2 * jnp.minimum(iteration.astype(problem.dtype) / self.iterations, 1))
            ** 2
        )
        heat = 1 + (self.heat - 1) * cold
        shrink = self.last_step + (1 - self.last_step) * cold
        l2 = heat * problem.l2_row

        vector = problem.weigh(problem.slope(state.moments))
        gradient = problem.features.pull(state.particles, vector) + 2 * l2 * state.particles
        now = jnp.stack(
            [_root_mean_square(gradient[:, CORNERS]), _root_mean_square(gradient[:, COLOURS])]
        )
        seen = jnp.where(state.gradient_scale > 0, 0.9 * state.gradient_scale + 0.1 * now, now)
        lengths = shrink * jnp.stack(
            [scalar(self.corner_step, problem), scalar(self.colour_step, problem)]
        )
        blocks = jnp.asarray([0] * 6 + [1] * (problem.dim - 6))
        metric = (lengths / (seen + jnp.finfo(problem.dtype).tiny))[blocks][None]
        f = scalar(self.friction, problem)
        noise = jax.random.normal(noise_key, state.particles.shape, problem.dtype)
        kick = jnp.sqrt(f * (2 - f) * f * problem.temperature * heat * metric) * noise
        momentum = (1 - f) * state.momentum - f * metric * gradient + kick
        particles = state.particles + momentum
        moments = problem.features.average(particles)
        state = TrianglePainterState(particles, moments, momentum, seen)
        if self.relocate_every:
            due = (iteration % self.relocate_every == self.relocate_every - 1) & (cold > 0)
            state = jax.lax.cond(
                due, lambda s: self._relocated(problem, relocation_key, s, l2), lambda s: s, state
            )
        info = Info(
            gap=scalar(jnp.nan, problem),
            loss_moments=problem.empirical_loss(state.moments),
            loss_particles=problem.empirical_loss(state.moments),
            acceptance=scalar(1, problem),
            step_size=lengths[0],
            pulls=scalar(1, problem),
            passes=scalar(2, problem),
        )
        return state, info

    def _relocated(
        self,
        problem: FiniteSum,
        key: PRNGKeyArray,
        state: TrianglePainterState,
        l2: Float[Array, "1 c"],
    ) -> TrianglePainterState:
        """The least useful triangles, one after the other, give way to better ones."""
        features: Any = problem.features
        m = state.particles.shape[0]
        count = max(1, round(self.relocate_share * m))
        vector = problem.weigh(problem.slope(state.moments))
        linear = features.potential(state.particles, vector) / m
        square = features.square_norms(state.particles, problem.weights) / m**2
        penalty = jnp.sum(l2 * state.particles**2, axis=1) / m
        _, least = jax.lax.top_k(
            linear - square / 2 + penalty, count
        )  # what the objective gains without the triangle
        residual = problem.slope(state.moments).reshape(*features.size, -1)
        mass = jnp.cumsum(jnp.sum(residual**2, axis=2).ravel())

        def replace(
            state: TrianglePainterState, turn: tuple[Array, PRNGKeyArray]
        ) -> tuple[TrianglePainterState, None]:
            r, key = turn
            old = state.particles[r][None]
            share = jnp.full(1, 1 / m, problem.dtype)
            without = state.moments - features.average(old, share)
            gain_of_old, gain, fresh = self._compete(problem, key, without, old, mass, l2, m)
            better = gain > gain_of_old
            new = jnp.where(better, fresh[None], old)
            moments = without + features.average(new, share)
            momentum = state.momentum.at[r].set(jnp.where(better, 0, state.momentum[r]))
            particles = state.particles.at[r].set(new[0])
            return TrianglePainterState(particles, moments, momentum, state.gradient_scale), None

        return jax.lax.scan(replace, state, (least, jax.random.split(key, count)))[0]

    def _compete(
        self,
        problem: FiniteSum,
        key: PRNGKeyArray,
        without: Moments,
        old: Particles,
        mass: Array,
        l2: Array,
        m: int,
    ) -> tuple[Array, Array, Float[Array, "d"]]:
        """By how much the old triangle and the best fresh one lower the objective of the picture `without` it."""
        features: Any = problem.features
        corners = jnp.concatenate(
            [old[:, CORNERS], _fresh_corners(key, features, mass, self.candidates)]
        )
        pixels = features.corners(jnp.pad(corners, ((0, 0), (0, features.dim - 6))))
        vector = problem.weigh(problem.slope(without)).reshape(*features.size, -1)
        integral, _ = gather(
            pixels, jnp.zeros((corners.shape[0], vector.shape[2]), problem.dtype), vector
        )
        norm = square_norm(pixels, problem.weights.reshape(features.size))
        amplitude = features.scale / m
        l2_corners, l2_colours = (l2[:, CORNERS], l2[:, COLOURS]) if l2.shape[1] > 1 else (l2, l2)
        curvature = amplitude**2 * norm[:, None] + 2 * l2_colours / m
        best = -amplitude * integral / curvature
        colours = jnp.concatenate([old[:, COLOURS], best[1:]])
        lowered = -jnp.sum(amplitude * integral * colours + curvature * colours**2 / 2, axis=1)
        lowered = lowered - jnp.sum(l2_corners * corners**2, axis=1) / m
        winner = 1 + jnp.argmax(lowered[1:])
        return lowered[0], lowered[winner], jnp.concatenate([corners[winner], colours[winner]])

    @property
    def remedy(self) -> str:
        return f"Reduce corner_step and colour_step of TrianglePainter (now {self.corner_step:g} and {self.colour_step:g})."

    def check(self, problem: FiniteSum, iterations: int) -> None:
        if not isinstance(problem.features, Triangles) or problem.features.colour != "linear":
            raise invalid(
                "TrianglePainter",
                "problem",
                "one whose features are Triangles with linear colours",
                problem,
            )


def scattered_triangles(
    key: PRNGKeyArray, m: int, dim: int, spread: float, dtype: Any
) -> Particles:
    """Where a painting begins: centres all over the canvas, corners near them, no colour."""
    centre_key, corner_key = jax.random.split(key)
    centre = jax.random.uniform(centre_key, (m, 1, 2), dtype, -0.5, 0.5)
    corners = (centre + 0.1 * jax.random.normal(corner_key, (m, 3, 2), dtype)) / spread
    return jnp.pad(corners.reshape(m, 6), ((0, 0), (0, dim - 6)))


def _fresh_corners(
    key: PRNGKeyArray, features: Any, mass: Float[Array, "n"], count: int
) -> Float[Array, "c 6"]:
    """Centres where the picture is wrong, with probability proportional to the squared error; all sizes alike."""
    place_key, within_key, size_key, corner_key = jax.random.split(key, 4)
    height, width = features.size
    level = mass[-1] * jax.random.uniform(place_key, (count,), mass.dtype)
    pixel = jnp.minimum(jnp.searchsorted(mass, level), mass.shape[0] - 1)
    centre = (
        jnp.stack([(pixel % width) / width, (pixel // width) / height], axis=1).astype(mass.dtype)
        - 0.5
    )
    centre = (
        centre
        + jax.random.uniform(within_key, (count, 2), mass.dtype)
        / jnp.asarray([width, height], mass.dtype)[None]
    )
    size = jnp.exp(
        jax.random.uniform(size_key, (count, 1, 1), mass.dtype, jnp.log(SMALLEST), jnp.log(LARGEST))
    )
    corners = centre[:, None] + size * jax.random.normal(corner_key, (count, 3, 2), mass.dtype)
    return corners.reshape(count, 6) / features.spread


def _root_mean_square(x: Array) -> Array:
    return jnp.sqrt(jnp.mean(x**2))
