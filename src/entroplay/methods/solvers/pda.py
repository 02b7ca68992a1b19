"""Particle dual averaging: Nitanda, Wu and Suzuki (2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...base.arguments import flag, invalid
from ...base.registry import storable
from ...measures.gap import fenchel_young_gap, sampling_bias
from ...measures.gibbs import Gibbs
from ...measures.weights import effective_sample_size
from ...problems.features.base import Moments, Particles
from ...problems.problem import FiniteSum
from ..samplers import MALA, Sampler, sampler_or_default
from .base import Info, Solver, Start


class PDAState(eqx.Module):
    """The averaged dual and moments, and a cloud at a somewhat higher temperature."""

    particles: Particles
    moments: Moments
    dual: Moments
    sampler: Any


@storable
class PDA(Solver):
    r"""Averages slopes, where fictitious play averages moments.

    At time t = 1, 2, ..., starting from particles_1 ~ prior:

        dual <- average over s <= t of loss'(average(particles_s)), weighted by 2 s / (t (t + 1));
        particles_{t+1} ~ q_dual at (t + 2)/t times the temperature.

    `solution.moments` are averaged with the same weights. The particles are hotter than the
    problem, by a factor that tends to one; the gap in the history re-weights them to the true
    temperature.

    Slopes must be bounded on the range of h: `NegLog`, whose slope -1/z is not, is refused.

    Args:
        sampler: draws from the Gibbs measures; default `MALA()`.
        weighted: False for the simpler form that a footnote of the fictitious play paper
            illustrates: the plain mean of all slopes so far, at the problem's own temperature.
    """

    nickname: ClassVar[str] = "pda"

    sampler: Sampler
    weighted: bool = eqx.field(static=True)

    def __init__(self, sampler: Sampler | None = None, weighted: bool = True):
        self.sampler = sampler_or_default("PDA", sampler, MALA())
        self.weighted = flag("PDA", "weighted", weighted)

    def init(self, problem: FiniteSum, start: Start, iterations: int) -> PDAState:
        zero = jnp.zeros_like(start.moments)
        return PDAState(start.particles, start.moments, zero, self.sampler.init(problem))

    def step(
        self, problem: FiniteSum, key: PRNGKeyArray, state: PDAState, iteration: Array
    ) -> tuple[PDAState, Info]:
        t = (iteration + 1).astype(problem.dtype)
        seen = problem.features.average(state.particles)
        heat = (t + 2) / t if self.weighted else jnp.ones_like(t)
        dual = averaged(state.dual, problem.slope(seen), t, weighted=self.weighted)
        moments = averaged(state.moments, seen, t, weighted=self.weighted)
        particles, sampler, moved = self.sampler.run(
            key, Gibbs(problem, dual, heat=heat), state.particles, state.sampler, iteration
        )
        info = Info.of(
            problem,
            moments,
            seen,
            gap=_gap_at_true_temperature(problem, particles, dual, heat),
            # The moves, the average above, and three passes for the gap.
            passes=moved.pulls + 4,
            **moved._asdict(),
        )
        return PDAState(particles, moments, dual, sampler), info

    def dual(self, problem: FiniteSum, state: PDAState) -> Moments:
        return state.dual

    def check(self, problem: FiniteSum, iterations: int) -> None:
        # On a bounded range, slopes are bounded if the loss's open domain contains both ends.
        ends = jnp.asarray(problem.features.bounds, problem.dtype)
        inside = [
            bool(jnp.all(problem.loss.domain(jnp.full(problem.features.shape, end, problem.dtype))))
            for end in ends
        ]
        if not all(inside):
            name = type(problem.loss).__name__
            raise invalid(
                "PDA",
                "problem",
                "one whose loss has bounded slopes on the range of the features (averages of "
                "unbounded slopes diverge)",
                f"{name}, whose domain ends within that range; NewtonEFP, EFP and PSDCA solve it",
            )
        super().check(problem, iterations)


def averaged(mean: Moments, new: Moments, t: Array, *, weighted: bool = True) -> Moments:
    """The mean over s <= t with weights 2 s / (t (t + 1)), or 1 / t, from that over s <= t - 1."""
    return mean + (2 / (t + 1) if weighted else 1 / t) * (new - mean)


def _gap_at_true_temperature(
    problem: FiniteSum, particles: Particles, dual: Moments, heat: Array
) -> Float[Array, ""]:
    """The Fenchel-Young gap of the dual, from a re-weighted cloud that is `heat` times too hot."""
    # exp(-U / T) over exp(-U / (heat T)).
    log_weights = -Gibbs(problem, dual).energy(particles) * (1 - 1 / heat) / problem.temperature
    mean = problem.features.average(particles, jax.nn.softmax(log_weights))
    _, covariance = problem.features.mean_and_covariance(particles)
    # A weighted mean is as noisy as a plain one of this effective number of draws.
    bias = sampling_bias(problem, mean, covariance, 1) / effective_sample_size(log_weights)
    return fenchel_young_gap(problem, mean, dual) - bias
