r"""Markov chains that move a cloud of particles towards a Gibbs measure, all particles at once.

A sampler is a record with `init`, which makes the little state it carries from one outer iteration to the next,
and `run`, which moves the cloud. Noise is keyed by (key, step, particle) alone, never by the data.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import (
    Schedule,
    check_schedule,
    flag,
    invalid,
    number_or_schedule,
    value_at,
    whole,
)
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from ...problems.problem import FiniteSum
from .langevin import StepAdaptation, first_step, langevin, metropolis_moves, step_noise


class SamplerInfo(NamedTuple):
    """What a sampler tells about one run."""

    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]
    pulls: int
    """Gradient passes over all particles that it took."""


class Sampler(eqx.Module):
    """Moves particles by a chain whose stationary law is (close to) a Gibbs measure."""

    steps: eqx.AbstractVar[int]
    """S, moves per outer iteration."""
    fresh: eqx.AbstractVar[bool]
    """Whether each outer iteration starts again from the prior, instead of where the last one stopped."""

    @abstractmethod
    def init(self, problem: FiniteSum) -> Any:
        """The state that `run` carries on."""

    @abstractmethod
    def move(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: Any, iteration: Array
    ) -> tuple[Particles, Any, SamplerInfo]:
        """`steps` moves of every particle."""

    def run(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: Any, iteration: Array
    ) -> tuple[Particles, Any, SamplerInfo]:
        """`steps` moves from where the particles are, or from new draws of the prior if `fresh`."""
        if self.fresh:
            particles = gibbs.problem.prior(jax.random.fold_in(key, self.steps), particles.shape[0])
        return self.move(key, gibbs, particles, state, iteration)

    @property
    @abstractmethod
    def remedy(self) -> str:
        """What to change when the particles run away."""

    def check(self, iterations: int) -> None:
        """Refuse schedules that leave their range within the iterations to come."""


class ULA(Sampler):
    r"""Unadjusted Langevin: theta <- theta - eta grad U(theta) + sqrt(2 eta temperature) xi, `steps` times.

    The paper's Algorithm 2. Its stationary law is biased by O(step_size), and so is a gap computed from it.

    Args:
        step_size: eta', a number or a schedule of the outer iteration.
        steps: S, moves per outer iteration.
        fresh: start each outer iteration from new draws of the prior.
    """

    step_size: float | Schedule
    steps: int
    fresh: bool

    def __init__(self, step_size: float | Schedule = 0.01, steps: int = 10, fresh: bool = False):
        self.step_size = number_or_schedule("ULA", "step_size", step_size)
        self.steps = whole("ULA", "steps", steps)
        self.fresh = flag("ULA", "fresh", fresh)

    def init(self, problem: FiniteSum) -> None:
        return None

    def move(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: None, iteration: Array
    ) -> tuple[Particles, None, SamplerInfo]:
        eta = jnp.asarray(value_at(self.step_size, iteration), particles.dtype)

        noise = step_noise(key, self.steps, particles)

        def step(s: Array, theta: Particles) -> Particles:
            return langevin(noise(s), theta, gibbs.gradient(theta), eta, gibbs.temperature)

        particles = jax.lax.fori_loop(0, self.steps, step, particles)
        return particles, None, SamplerInfo(jnp.ones_like(eta), eta, self.steps)

    @property
    def remedy(self) -> str:
        return (
            f"Reduce the step_size of ULA (now {_show(self.step_size)}; it must be below 1/l2, and below twice the "
            "inverse of the potential's largest curvature), or use MALA, which refuses moves that lead astray."
        )

    def check(self, iterations: int) -> None:
        check_schedule("ULA", "step_size", self.step_size, iterations)


class MALA(Sampler):
    r"""Metropolis-adjusted Langevin: ULA's proposal, accepted so that the Gibbs measure is exactly invariant.

    Args:
        steps: S, moves per outer iteration.
        step_size: "adapt" steers the cloud's mean acceptance to 0.574 with a gain that falls as the run goes on;
            a number or a schedule of the outer iteration is taken as it is.
        fresh: start each outer iteration from new draws of the prior.
        jumps: jumps between particles (differential evolution) among those steps, which carry from mode to mode.
        leaps: moves to draws of a kernel density of the cloud, before those steps. They mix modes best where there are few
            parameters, and are left out where there are more than five.
    """

    steps: int
    step_size: float | Schedule | str
    fresh: bool
    jumps: int
    leaps: int

    def __init__(
        self,
        steps: int = 10,
        step_size: float | Schedule | str = "adapt",
        fresh: bool = False,
        jumps: int = 0,
        leaps: int = 0,
    ):
        self.leaps = whole("MALA", "leaps", leaps, least=0)
        self.steps = whole("MALA", "steps", steps)
        self.jumps = whole("MALA", "jumps", jumps, least=0)
        if self.jumps > self.steps:
            raise invalid("MALA", "jumps", f"at most steps = {steps}", jumps)
        if isinstance(step_size, str) and step_size == "adapt":
            self.step_size = step_size
        else:
            self.step_size = number_or_schedule("MALA", "step_size", step_size)
        self.fresh = flag("MALA", "fresh", fresh)

    def init(self, problem: FiniteSum) -> StepAdaptation:
        return first_step(problem.dim, problem.l2, problem.dtype)

    def move(
        self,
        key: PRNGKeyArray,
        gibbs: Gibbs,
        particles: Particles,
        state: StepAdaptation,
        iteration: Array,
    ) -> tuple[Particles, StepAdaptation, SamplerInfo]:
        adapt = isinstance(self.step_size, str)
        if not adapt:
            fixed = jnp.asarray(value_at(self.step_size, iteration), particles.dtype)  # type: ignore[arg-type]
            state = StepAdaptation(jnp.log(fixed), state.adapted)

        walkers, state, moved = metropolis_moves(
            key,
            gibbs,
            particles,
            state,
            steps=self.steps,
            jumps=self.jumps,
            leaps=self.leaps,
            adapt=adapt,
        )
        return (
            walkers.particles,
            state,
            SamplerInfo(moved.acceptance, jnp.exp(state.log_step), moved.pulls),
        )

    @property
    def remedy(self) -> str:
        return "The potential itself is not finite somewhere: check the features and the loss at the last finite state."

    def check(self, iterations: int) -> None:
        if not isinstance(self.step_size, str):
            check_schedule("MALA", "step_size", self.step_size, iterations)


def sampler_or_default(owner: str, sampler: object) -> Sampler:
    """The sampler given, or an adaptive `MALA`."""
    if sampler is None:
        return MALA()
    if not isinstance(sampler, Sampler):
        raise invalid(owner, "sampler", "a sampler such as ULA() or MALA()", sampler)
    return sampler


def _show(value: float | Schedule | str) -> str:
    return "a schedule" if callable(value) else f"{value}"
