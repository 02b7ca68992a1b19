"""The contract of a sampler: a Markov chain that moves all particles of a cloud at once.

A sampler is a record with two methods. `init` makes the small state that it carries from one outer
iteration to the next, and `move` moves the cloud. Noise is keyed by (key, step, particle) alone,
never by the data.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import invalid
from ...measures.gibbs import Gibbs
from ...problems.features.base import Particles
from ...problems.problem import FiniteSum


class SamplerInfo(NamedTuple):
    """Diagnostics of the moves in one outer iteration. The names are those of the history."""

    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]
    pulls: int
    """Gradient passes over all particles."""


class Sampler(eqx.Module):
    """Moves particles by a chain whose stationary law is (close to) a Gibbs measure."""

    steps: eqx.AbstractVar[int]
    """S, the number of moves per outer iteration."""
    fresh: eqx.AbstractVar[bool]
    """Whether each outer iteration starts from new draws of the prior instead of the last cloud."""

    @abstractmethod
    def init(self, problem: FiniteSum) -> Any:
        """The state before the first move."""

    @abstractmethod
    def move(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: Any, iteration: Array
    ) -> tuple[Particles, Any, SamplerInfo]:
        """Move every particle `steps` times."""

    def run(
        self, key: PRNGKeyArray, gibbs: Gibbs, particles: Particles, state: Any, iteration: Array
    ) -> tuple[Particles, Any, SamplerInfo]:
        """Move every particle `steps` times, starting from new draws of the prior if `fresh`."""
        if self.fresh:
            # Steps count from 0 to steps - 1, so this number does not collide with any of them.
            particles = gibbs.problem.prior(jax.random.fold_in(key, self.steps), particles.shape[0])
        return self.move(key, gibbs, particles, state, iteration)

    @property
    @abstractmethod
    def remedy(self) -> str:
        """Advice for a user whose particles run away."""

    def check(self, iterations: int) -> None:
        """Refuse schedules that leave their range within the given number of iterations."""


def sampler_or_default(owner: str, sampler: object, default: Sampler) -> Sampler:
    """The sampler that the user passed to `owner`, or `default` if that is None."""
    if sampler is None:
        return default
    if not isinstance(sampler, Sampler):
        raise invalid(owner, "sampler", "a sampler such as ULA() or MALA()", sampler)
    return sampler
