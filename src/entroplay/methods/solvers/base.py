"""What a solver is: a record with `init` and `step`. The loop around them is written once, in `entroplay.verbs.solve`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...measures.gap import bregman_gap, sampling_bias
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers.base import Sampler, SamplerInfo


class State(Protocol):
    """What every solver's state has, whatever else it carries."""

    @property
    def particles(self) -> Particles: ...
    @property
    def moments(self) -> Moments: ...


class Start(NamedTuple):
    """Where a run begins: a cloud, and the moments to begin with."""

    particles: Particles
    moments: Moments
    """The cloud's own, unless the start is warm and the data are the same."""
    warm: bool
    """False: the cloud is the prior's. True: it comes from an earlier solution."""
    beta: float = 1.0
    """The cloud is one of q_{beta g}, g the moments' dual: below one only for solvers that ask for it (`scales_loss`)."""


class Info(NamedTuple):
    """The diagnostics of one iteration: a row of the history."""

    gap: Float[Array, ""]
    """Estimate of L(q_g) - D(g) for the dual at which this iteration sampled; NaN where there is none."""
    loss_moments: Float[Array, ""]
    """F_0 at the moments with which the iteration began."""
    loss_particles: Float[Array, ""]
    """F_0 at the mean features of the iteration's particles."""
    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]
    pulls: Float[Array, ""]
    """Gradient passes over all particles."""
    passes: Float[Array, ""]
    """All passes over all particles: averages, potentials and pulls."""


class Solver(eqx.Module):
    """A method for `FiniteSum` problems."""

    @abstractmethod
    def init(self, problem: FiniteSum, start: Start, iterations: int) -> Any:
        """The first state."""

    @abstractmethod
    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: Any, iteration: Array
    ) -> tuple[Any, Any]:
        """One outer iteration: the new state and a row of the history, an `Info` or a tuple with its fields and more.

        The key belongs to this iteration alone.
        """

    @property
    @abstractmethod
    def remedy(self) -> str:
        """What to change when a run diverges."""

    @property
    def scales_loss(self) -> bool:
        """Whether a run can start from the Gibbs measure of a fraction beta of the loss. That is what the solution at a
        temperature 1/beta times as high is, if the prior is the same.
        """
        return False

    def dual(self, problem: FiniteSum, state: Any) -> Moments:
        """The dual vector that the state stands for."""
        return problem.slope(state.moments)

    def target(self, problem: FiniteSum, state: Any) -> Moments:
        """The dual vector whose Gibbs measure the particles of this state follow."""
        return self.dual(problem, state)

    def iterate(self, state: Any) -> Particles | None:
        """A cloud whose law is the method's iterate mu^(t) itself, where it has one."""
        return None

    def check(self, problem: FiniteSum, iterations: int) -> None:
        """Refuse what the method cannot do, before any work is done."""


def scalar(value: Any, problem: FiniteSum) -> Float[Array, ""]:
    """A number as the history stores it."""
    return jnp.asarray(value, problem.dtype)


ITERATE = 0x69746572
"""Sets the tosses of `follow_iterate` apart from the sampler's noise."""


def follow_iterate(
    key: PRNGKeyArray, iterate: Particles, particles: Particles, rate: Array
) -> Particles:
    """From a cloud ~ mu to one ~ (1 - rate) mu + rate q: slot r takes the r-th draw of q with probability `rate`.

    Slots are matched, so that no particle ever stands twice in the cloud, and a k-NN entropy can be had of it.
    """
    taken = (
        jax.random.uniform(jax.random.fold_in(key, ITERATE), (iterate.shape[0], 1), iterate.dtype)
        < rate
    )
    return jnp.where(taken, particles, iterate)


class Play(NamedTuple):
    """A cloud drawn from the Gibbs measure of the present moments, its mean features, and the history's row."""

    particles: Particles
    sampler: Any
    mean: Moments
    trace: Float[Array, ""]
    """tr J, an upper bound of the largest eigenvalue of J = Cov_q(h) W loss'' / temperature."""
    info: Info


def judged(
    problem: FiniteSum,
    particles: Particles,
    anchor: Moments,
    moved: SamplerInfo,
    *,
    other_passes: int = 0,
) -> tuple[Moments, Float[Array, "n *kk"], Info]:
    """Mean and covariance of h over draws of q_g, g = loss'(anchor), and the history's row with the gap of g."""
    mean, covariance = problem.features.mean_and_covariance(particles)
    bias = sampling_bias(problem, mean, covariance, particles.shape[0])
    info = Info(
        gap=bregman_gap(problem, mean, anchor) - bias,
        loss_moments=problem.empirical_loss(anchor),
        loss_particles=problem.empirical_loss(mean),
        acceptance=moved.acceptance,
        step_size=moved.step_size,
        pulls=scalar(moved.pulls, problem),
        passes=scalar(moved.pulls + 1 + other_passes, problem),
    )
    return mean, covariance, info


def play_gibbs(
    problem: FiniteSum,
    sampler: Sampler,
    key: PRNGKeyArray,
    state: Any,
    iteration: Array,
    *,
    other_passes: int = 0,
) -> Play:
    """The best response of fictitious play: sample q_g, g = loss'(moments), and estimate the gap of g."""
    gibbs = Gibbs(problem, problem.slope(state.moments))
    particles, carried, moved = sampler.run(key, gibbs, state.particles, state.sampler, iteration)
    mean, covariance, info = judged(
        problem, particles, state.moments, moved, other_passes=other_passes
    )
    trace = 2 * sampling_bias(problem, state.moments, covariance, 1) / problem.temperature
    return Play(particles, carried, mean, trace, info)
