r"""Markov chains that move a cloud of particles towards a Gibbs measure, all particles at once.

A sampler is a record with `init`, which makes the little state it carries from one outer iteration to the next,
and `run`, which moves the cloud. Noise is keyed by (key, step, particle) alone, never by the data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .arguments import Schedule, check_schedule, flag, invalid, number_or_schedule, value_at, whole
from .features import Particles
from .gibbs import Gibbs
from .problem import FiniteSum

OPTIMAL_ACCEPTANCE = 0.574
"""The acceptance rate at which MALA mixes fastest in high dimension (Roberts and Rosenthal 1998)."""

NOISE_ELEMENTS = 2**21
"""Random numbers that may be drawn ahead of their use."""


class SamplerInfo(NamedTuple):
    """What a sampler tells about one run."""

    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]


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
    def pulls(self) -> int:
        """Gradient passes over all particles in one run."""

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
        return particles, None, SamplerInfo(jnp.ones_like(eta), eta)

    @property
    def pulls(self) -> int:
        return self.steps

    @property
    def remedy(self) -> str:
        return (
            f"Reduce the step_size of ULA (now {_show(self.step_size)}; it must be below 1/l2, and below twice the "
            "inverse of the potential's largest curvature), or use MALA, which refuses moves that lead astray."
        )

    def check(self, iterations: int) -> None:
        check_schedule("ULA", "step_size", self.step_size, iterations)


def step_noise(key: PRNGKeyArray, steps: int, particles: Particles) -> Callable[[Array], Particles]:
    """Standard normal noise for each step: drawn for all steps at once while that is small, which halves its cost, else
    when it is needed. The numbers are the same either way.
    """

    def draw(s: Array) -> Particles:
        return jax.random.normal(jax.random.fold_in(key, s), particles.shape, particles.dtype)

    if steps * particles.size > NOISE_ELEMENTS:
        return draw
    table = jax.vmap(draw)(jnp.arange(steps))
    return lambda s: table[s]


def langevin(noise: Particles, theta: Particles, gradient: Particles, eta: Array, temperature: Any) -> Particles:
    """One Euler-Maruyama step of the Langevin diffusion."""
    return theta - eta * gradient + jnp.sqrt(2 * eta * temperature) * noise


class StepAdaptation(NamedTuple):
    """The logarithm of MALA's step and how often it was adapted."""

    log_step: Float[Array, ""]
    adapted: Float[Array, ""]


class MALA(Sampler):
    r"""Metropolis-adjusted Langevin: ULA's proposal, accepted so that the Gibbs measure is exactly invariant.

    Args:
        steps: S, moves per outer iteration.
        step_size: "adapt" steers the cloud's mean acceptance to 0.574 with a gain that falls as the run goes on;
            a number or a schedule of the outer iteration is taken as it is.
        fresh: start each outer iteration from new draws of the prior.
    """

    steps: int
    step_size: float | Schedule | str
    fresh: bool

    def __init__(self, steps: int = 10, step_size: float | Schedule | str = "adapt", fresh: bool = False):
        self.steps = whole("MALA", "steps", steps)
        if isinstance(step_size, str) and step_size == "adapt":
            self.step_size = step_size
        else:
            self.step_size = number_or_schedule("MALA", "step_size", step_size)
        self.fresh = flag("MALA", "fresh", fresh)

    def init(self, problem: FiniteSum) -> StepAdaptation:
        # The optimal step for the prior itself: proposals of variance (1.65^2 d^{-1/3}) times the prior's.
        step = jnp.asarray(1.65**2 * problem.dim ** (-1 / 3) / (4 * problem.l2), problem.dtype)
        return StepAdaptation(jnp.log(step), jnp.zeros((), problem.dtype))

    def move(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: StepAdaptation, iteration: Array
    ) -> tuple[Particles, StepAdaptation, SamplerInfo]:
        adapt = isinstance(self.step_size, str)
        if not adapt:
            fixed = jnp.asarray(value_at(self.step_size, iteration), particles.dtype)  # type: ignore[arg-type]
            state = StepAdaptation(jnp.log(fixed), state.adapted)

        normal_key, uniform_key = jax.random.split(key)
        noise = step_noise(normal_key, self.steps, particles)

        def step(s: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            theta, energy, gradient, adaptation, accepted = carry
            eta = jnp.exp(adaptation.log_step)
            proposal = langevin(noise(s), theta, gradient, eta, gibbs.temperature)
            new_energy, new_gradient = gibbs.energy_and_gradient(proposal)
            log_alpha = log_acceptance(theta, energy, gradient, proposal, new_energy, new_gradient, eta, gibbs.temperature)
            uniform = jax.random.uniform(jax.random.fold_in(uniform_key, s), energy.shape, energy.dtype)
            accept = jnp.log1p(-uniform) < log_alpha
            theta = jnp.where(accept[:, None], proposal, theta)
            energy = jnp.where(accept, new_energy, energy)
            gradient = jnp.where(accept[:, None], new_gradient, gradient)
            rate = jnp.mean(jnp.exp(jnp.minimum(log_alpha, 0)))
            if adapt:
                adaptation = _adapt(adaptation, rate)
            return theta, energy, gradient, adaptation, accepted + rate

        energy, gradient = gibbs.energy_and_gradient(particles)
        start = (particles, energy, gradient, state, jnp.zeros((), particles.dtype))
        particles, _, _, state, accepted = jax.lax.fori_loop(0, self.steps, step, start)
        return particles, state, SamplerInfo(accepted / self.steps, jnp.exp(state.log_step))

    @property
    def pulls(self) -> int:
        return self.steps + 1

    @property
    def remedy(self) -> str:
        return "The potential itself is not finite somewhere: check the features and the loss at the last finite state."

    def check(self, iterations: int) -> None:
        if not isinstance(self.step_size, str):
            check_schedule("MALA", "step_size", self.step_size, iterations)


def log_acceptance(
    theta: Particles,
    energy: Float[Array, "m"],
    gradient: Particles,
    proposal: Particles,
    new_energy: Float[Array, "m"],
    new_gradient: Particles,
    eta: Array,
    temperature: Any,
) -> Float[Array, "m"]:
    r"""log of pi(theta') q(theta' -> theta) / (pi(theta) q(theta -> theta')); minus infinity where it is not a number.

    q(theta -> .) = N(theta - eta grad U(theta), 2 eta temperature I).
    """
    backward = jnp.sum((theta - proposal + eta * new_gradient) ** 2, axis=1)
    forward = jnp.sum((proposal - theta + eta * gradient) ** 2, axis=1)
    log_alpha = -(new_energy - energy) / temperature - (backward - forward) / (4 * eta * temperature)
    return jnp.where(jnp.isnan(log_alpha), -jnp.inf, log_alpha)


def _adapt(state: StepAdaptation, acceptance: Array) -> StepAdaptation:
    """Robbins-Monro on the log step; the gain's floor lets the step follow a target that keeps moving."""
    gain = jnp.maximum((state.adapted + 1) ** -0.6, 0.02)
    return StepAdaptation(state.log_step + 2 * gain * (acceptance - OPTIMAL_ACCEPTANCE), state.adapted + 1)


def sampler_or_default(owner: str, sampler: object) -> Sampler:
    """The sampler given, or an adaptive `MALA`."""
    if sampler is None:
        return MALA()
    if not isinstance(sampler, Sampler):
        raise invalid(owner, "sampler", "a sampler such as ULA() or MALA()", sampler)
    return sampler


def _show(value: float | Schedule | str) -> str:
    return "a schedule" if callable(value) else f"{value}"
