"""The contract of a solver: a record with `init` and `step`. One loop runs all of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...measures.gap import bregman_gap, sampling_bias
from ...measures.gibbs import Gibbs
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import Sampler, SamplerInfo


class Start(NamedTuple):
    """The starting point of a run: a cloud and moments."""

    particles: Particles
    moments: Moments
    """Mean features of the cloud, or an earlier solution's moments if the data are the same."""
    warm: bool
    """Whether the cloud comes from elsewhere than the prior, such as an earlier solution."""
    key: PRNGKeyArray
    """Randomness for `init`, apart from that of the steps."""
    beta: float = 1.0
    """The cloud follows q_{beta g}, where g is the dual of the moments. Below one only for solvers
    with `turns_on_loss`."""
    most: int = 0
    """Number of particles up to which the cloud may grow; it may not if it is smaller than the
    cloud."""


class Info(NamedTuple):
    """The diagnostics of one iteration: a row of the history. `Info.of` fills it in."""

    gap: Float[Array, ""]
    """Estimate of L(q_g) - D(g) for the dual g at which this iteration sampled, or NaN."""
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
    extra: Any = None
    """Further columns of the history: a NamedTuple of scalars, or None."""

    @classmethod
    def of(
        cls,
        problem: FiniteSum,
        moments: Moments,
        mean: Moments,
        *,
        step_size: Any,
        passes: Any,
        gap: Any = math.nan,
        acceptance: Any = 1,
        pulls: Any = 1,
        extra: Any = None,
    ) -> Info:
        """A row from the moments with which the iteration began and the particles' mean features.

        The defaults suit a method without a sampler that moves every particle once. With one,
        pass `**moved._asdict()` of its `SamplerInfo`.
        """
        return cls(
            gap=scalar(gap, problem),
            loss_moments=problem.empirical_loss(moments),
            loss_particles=problem.empirical_loss(mean),
            acceptance=scalar(acceptance, problem),
            step_size=scalar(step_size, problem),
            pulls=scalar(pulls, problem),
            passes=scalar(passes, problem),
            extra=extra,
        )


class Solver(eqx.Module):
    """A method for `FiniteSum` problems."""

    nickname: ClassVar[str] = ""
    """Short name by which estimators offer the solver; empty if they do not."""
    turns_on_loss: ClassVar[bool] = False
    """Whether a run can start from the Gibbs measure of a fraction beta of the loss. The solution
    at a temperature 1/beta times as high is such a measure if the prior is the same."""

    @abstractmethod
    def init(self, problem: FiniteSum, start: Start, iterations: int) -> Any:
        """The first state."""

    @abstractmethod
    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: Any, iteration: Array
    ) -> tuple[Any, Info]:
        """One outer iteration: the new state and a row of the history.

        The key belongs to this iteration alone.
        """

    @property
    def remedy(self) -> str:
        """Advice for a user whose run diverged. Default: that of the solver's sampler, if any."""
        sampler = getattr(self, "sampler", None)
        return sampler.remedy if isinstance(sampler, Sampler) else ""

    def check(self, problem: FiniteSum, iterations: int) -> None:
        """Refuse what the method cannot do, before any work is done. Default: check the sampler."""
        sampler = getattr(self, "sampler", None)
        if isinstance(sampler, Sampler):
            sampler.check(iterations)

    def fraction(self, state: Any) -> Any:
        """Fraction of the loss that is turned on."""
        return 1.0

    def dual(self, problem: FiniteSum, state: Any) -> Moments:
        """The dual vector that the state represents."""
        return problem.slope(state.moments)

    def target(self, problem: FiniteSum, state: Any) -> Moments:
        """The dual vector whose Gibbs measure the particles of this state follow."""
        return self.dual(problem, state)

    def waits(self, state: Any) -> Array:
        """Whether the state needs `resumed` before the next step. Never, by default."""
        return jnp.asarray(False)

    def resumed(self, problem: FiniteSum, key: PRNGKeyArray, state: Any) -> tuple[Any, str | None]:
        """A state from which the run can go on, which may have more particles; or the same state
        and the reason why the run ends with it.

        Called outside the compiled loop, for states that wait.
        """
        return state, None

    def iterate(self, state: Any) -> Particles | None:
        """A cloud whose law is the method's iterate mu^(t), or None if the method has none."""
        return None


def scalar(value: Any, problem: FiniteSum) -> Float[Array, ""]:
    """A number in the problem's precision, as the history stores it."""
    return jnp.asarray(value, problem.dtype)


ITERATE = 0x69746572
"""Separates the random numbers of `follow_iterate` from the sampler's noise."""


def follow_iterate(
    key: PRNGKeyArray, iterate: Particles, particles: Particles, rate: Array
) -> Particles:
    """A cloud with law (1 - rate) mu + rate q, eq. (8), from one with law mu and draws of q.

    Slot r takes the r-th draw of q with probability `rate`. Because slots are matched, no particle
    occurs twice in the cloud, and a k-NN entropy can be computed from it.
    """
    toss_key = jax.random.fold_in(key, ITERATE)
    taken = jax.random.uniform(toss_key, (iterate.shape[0], 1), iterate.dtype) < rate
    return jnp.where(taken, particles, iterate)


class Play(NamedTuple):
    """Draws from the Gibbs measure of the present moments, and what was computed from them."""

    particles: Particles
    sampler: Any
    mean: Moments
    """The mean features of the draws."""
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
    """Mean and covariance of h over draws of q_g, g = loss'(anchor), and a row with its gap."""
    mean, covariance = problem.features.mean_and_covariance(particles)
    bias = sampling_bias(problem, mean, covariance, particles.shape[0])
    info = Info.of(
        problem,
        anchor,
        mean,
        gap=bregman_gap(problem, mean, anchor) - bias,
        # The moves, and one pass for mean and covariance.
        passes=moved.pulls + 1 + other_passes,
        **moved._asdict(),
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
    """The best response of fictitious play: sample q_g, g = loss'(moments), and judge g."""
    # q_g is the proximal Gibbs measure of the iterate, eq. (5).
    gibbs = Gibbs(problem, problem.slope(state.moments))
    particles, carried, moved = sampler.run(key, gibbs, state.particles, state.sampler, iteration)
    mean, covariance, info = judged(
        problem, particles, state.moments, moved, other_passes=other_passes
    )
    # The bias of one draw is tr(W loss'' Cov) / 2.
    trace = 2 * sampling_bias(problem, state.moments, covariance, 1) / problem.temperature
    return Play(particles, carried, mean, trace, info)
