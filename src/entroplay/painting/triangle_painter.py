"""The painter's solver: interacting Langevin dynamics with momentum, cooling and relocation."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..base.arguments import invalid, positive, whole
from ..base.registry import storable
from ..methods.solvers.base import Info, Solver, Start, scalar
from ..problems.features import Triangles
from ..problems.features.base import Moments, Particles
from ..problems.problem import FiniteSum
from .relocation import COLOURS, CORNERS, Vacancy, error_mass, fresh_corners, removal_gains

GRADIENT_RATE = 0.1
"""Weight of the newest gradient in the running scale of gradients."""
FIRST_SPREAD = 0.1
"""Standard deviation of a triangle's corners around its centre when a painting begins, in sides of
the canvas."""


@storable
class CosineSteps(eqx.Module):
    """A schedule that falls from `first` to `last` like half a cosine, over `iterations`."""

    first: float
    last: float
    iterations: float

    def __call__(self, iteration: Any) -> Any:
        progress = jnp.minimum(jnp.asarray(iteration, jnp.result_type(float)) / self.iterations, 1)
        return self.last + (self.first - self.last) * (1 + jnp.cos(jnp.pi * progress)) / 2


class TrianglePainterState(eqx.Module):
    """The triangles, their mean and their momentum."""

    particles: Particles
    moments: Moments
    momentum: Particles
    gradient_scale: Float[Array, "2"]
    """Running root mean square of the gradient in the corners and in the colours."""


@storable
class TrianglePainter(Solver):
    r"""Mean-field Langevin dynamics for `Triangles`, made fast by momentum, cooling and relocation.

        p <- (1 - f) p - f P grad U + sqrt(f (2 - f) f T P) xi,    theta <- theta + p,

    where f is the friction, U belongs to the present picture, and xi is standard normal noise. P is
    one number for all corners and one for all colours: a step length over the root mean square
    gradient. T falls from `heat` times the problem's temperature to the temperature itself, and l2
    with it. Every `relocate_every` steps, the triangles that matter least are taken out one by one,
    and each is replaced by the best of `candidates` random ones if that lowers the objective. This
    is *greedy*: it does not leave a Gibbs measure invariant, and neither does cooling. The result
    is a good picture, not a sample.

    Args:
        iterations: the number of steps over which to cool; later steps stay at the end of the
            schedule.
        heat: the first temperature, in units of the problem's.
        corner_step: typical length of a step of the corners at the beginning, in sides of the
            canvas.
        colour_step: typical length of a step of the colours at the beginning.
        last_step: the fraction of these lengths that is left at the end.
        friction: the fraction of the momentum that is lost per step, in (0, 1].
        relocate_every: steps between relocations; 0 for none.
        relocate_share: the fraction of the triangles that each relocation tries to replace.
        candidates: the number of fresh triangles that compete for each place.
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
        # `warmth` falls from 1 to 0 as cos^2. Temperature and l2 fall by the same factor, which
        # leaves the prior N(0, temperature / (2 l2)) as it is.
        progress = jnp.minimum(iteration.astype(problem.dtype) / self.iterations, 1)
        warmth = jnp.cos(jnp.pi / 2 * progress) ** 2
        heat = 1 + (self.heat - 1) * warmth
        l2 = heat * problem.l2_row

        # grad U, eq. (10), at the moments of the triangles as they are now. EFP would take those of
        # a mixture with earlier pictures: this is mean-field Langevin dynamics.
        vector = problem.weigh(problem.slope(state.moments))
        gradient = problem.features.pull(state.particles, vector) + 2 * l2 * state.particles

        # The preconditioner P has one number per block, for corners and for colours. With one per
        # coordinate, triangles that hardly matter would have tiny gradients and make huge steps.
        now = jnp.stack([_root_mean_square(gradient[:, block]) for block in (CORNERS, COLOURS)])
        known = state.gradient_scale > 0
        running = (1 - GRADIENT_RATE) * state.gradient_scale + GRADIENT_RATE * now
        seen = jnp.where(known, running, now)
        lengths = (self.last_step + (1 - self.last_step) * warmth) * jnp.stack(
            [scalar(self.corner_step, problem), scalar(self.colour_step, problem)]
        )
        block_of = jnp.asarray([0] * 6 + [1] * (problem.dim - 6))
        metric = (lengths / (seen + jnp.finfo(problem.dtype).tiny))[block_of][None]

        # Kinetic Langevin dynamics with inverse mass f P. Friction and noise together keep the law
        # N(0, f T P) of the momentum: (1 - f)^2 f T P + f (2 - f) f T P = f T P. In a constant
        # gradient the momentum tends to -P grad U: P is the step size without momentum.
        f = scalar(self.friction, problem)
        noise = jax.random.normal(noise_key, state.particles.shape, problem.dtype)
        kick = jnp.sqrt(f * (2 - f) * f * problem.temperature * heat * metric) * noise
        momentum = (1 - f) * state.momentum - f * metric * gradient + kick
        particles = state.particles + momentum
        moments = problem.features.average(particles)
        state = TrianglePainterState(particles, moments, momentum, seen)

        if self.relocate_every:
            due = (iteration % self.relocate_every == self.relocate_every - 1) & (warmth > 0)
            state = jax.lax.cond(
                due, lambda s: self._relocated(problem, relocation_key, s, l2), lambda s: s, state
            )
        # One pull and one average; the rare passes of relocations are not counted.
        info = Info.of(problem, state.moments, state.moments, step_size=lengths[0], passes=2)
        return state, info

    def _relocated(
        self,
        problem: FiniteSum,
        key: PRNGKeyArray,
        state: TrianglePainterState,
        l2: Float[Array, "1 c"],
    ) -> TrianglePainterState:
        """Replace the least useful triangles, one after the other, where a fresh one is better."""
        features: Any = problem.features
        m = state.particles.shape[0]
        count = max(1, round(self.relocate_share * m))
        gains = removal_gains(problem, state.particles, state.moments, l2)
        _, least_useful = jax.lax.top_k(gains, count)
        # Candidates for all places are drawn by the error of the picture before the first one.
        mass = error_mass(problem, state.moments)

        def replace(
            state: TrianglePainterState, turn: tuple[Array, PRNGKeyArray]
        ) -> tuple[TrianglePainterState, None]:
            r, key = turn
            old = state.particles[r][None]
            share = jnp.full(1, 1 / m, problem.dtype)
            vacancy = Vacancy(problem, state.moments - features.average(old, share), l2, m)
            corners = fresh_corners(key, features, mass, self.candidates)
            gain_of_old, gain, fresh = vacancy.contest(old, corners)
            better = gain > gain_of_old
            new = jnp.where(better, fresh[None], old)
            moments = vacancy.picture + features.average(new, share)
            # A fresh triangle starts at rest.
            momentum = state.momentum.at[r].set(jnp.where(better, 0, state.momentum[r]))
            particles = state.particles.at[r].set(new[0])
            return TrianglePainterState(particles, moments, momentum, state.gradient_scale), None

        return jax.lax.scan(replace, state, (least_useful, jax.random.split(key, count)))[0]

    @property
    def remedy(self) -> str:
        return (
            "Reduce corner_step and colour_step of TrianglePainter "
            f"(now {self.corner_step:g} and {self.colour_step:g})."
        )

    def check(self, problem: FiniteSum, iterations: int) -> None:
        if not isinstance(problem.features, Triangles) or problem.features.colour != "linear":
            must_be = "one whose features are Triangles with linear colours"
            raise invalid("TrianglePainter", "problem", must_be, problem)


def scattered_triangles(
    key: PRNGKeyArray, m: int, dim: int, spread: float, dtype: Any
) -> Particles:
    """Triangles for the start of a painting: centres all over the canvas, and no colour."""
    centre_key, corner_key = jax.random.split(key)
    centre = jax.random.uniform(centre_key, (m, 1, 2), dtype, -0.5, 0.5)
    offsets = FIRST_SPREAD * jax.random.normal(corner_key, (m, 3, 2), dtype)
    corners = (centre + offsets) / spread
    return jnp.pad(corners.reshape(m, 6), ((0, 0), (0, dim - 6)))


def _root_mean_square(x: Array) -> Array:
    return jnp.sqrt(jnp.mean(x**2))
