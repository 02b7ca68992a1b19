"""Moves for NewtonEFP's cloud, compared at the same number of gradient passes.

Run: python benchmarks/mixing.py [passes [part of a problem's name]]. Gaps are true ones: the run's
dual is judged by 40,000 particles of two long reference runs, re-weighted to it. Shown are the
geometric mean, the smallest and the largest gap over SEEDS runs of 1,000 particles, and the gap of
a reference itself: differences near it mean nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import report
from newton import breast_cancer
from sklearn.datasets import make_friedman1

import entroplay as ep
from entroplay.measures.gap import bregman_gap
from entroplay.methods.samplers import Sampler, SamplerInfo
from entroplay.methods.samplers.langevin import (
    OPTIMAL_ACCEPTANCE,
    StepAdaptation,
    adapted,
    first_step,
    mala_step,
    step_noise,
)
from entroplay.methods.samplers.population import jump, leap
from entroplay.methods.samplers.walkers import Walkers, metropolis, walkers_at

SEEDS = range(10)
HMC_ACCEPTANCE = 0.65
"""Acceptance rate to which the step of Hamiltonian Monte Carlo is adapted."""


def toy(temperature: float = 1e-3) -> ep.FiniteSum:
    """The README's regression, colder."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(200, 1))
    y = np.sin(2 * X[:, 0]) / 2 + 0.1 * rng.normal(size=200)
    features = ep.Neurons(X, bias=True, output_weight=True, scale=3)
    return ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=1e-3)


def friedman(temperature: float = 1e-2, l2: float = 1e-2) -> ep.FiniteSum:
    """Friedman's first regression problem, standardised."""
    X, y = make_friedman1(600, 10, noise=1.0, random_state=0)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    return ep.FiniteSum(
        ep.Neurons(X, bias=True, output_weight=True, scale=3),
        ep.Squared(y),
        temperature=temperature,
        l2=l2,
    )


def density(temperature: float = 1e-1, l2: float = 1e-2) -> ep.FiniteSum:
    """Three clusters in the plane."""
    rng = np.random.default_rng(0)
    centres = np.array([[-1.5, 0.0], [1.5, 0.5], [0.0, 1.5]])
    X = centres[rng.integers(0, 3, 300)] + 0.4 * rng.normal(size=(300, 2))
    return ep.FiniteSum(
        ep.GaussianKernel(X, bandwidth=0.3), ep.NegLog(), temperature=temperature, l2=l2
    )


PROBLEMS = {
    "regression, d=3, 1e-3": toy,
    "network, d=6, 1e-3": lambda: ep.teacher.paper_network(temperature=1e-3, l2=1e-3),
    "friedman1, d=12, 1e-2": friedman,
    "breast cancer, d=31, 1e-2": breast_cancer,
    "density, d=2, 1e-1": density,
}


class Study(Sampler):
    """`steps` local moves, preceded by `jumps` and `leaps` (independence proposals)."""

    steps: int = 5
    fresh: bool = False
    local: str = "mala"
    jumps: int = 1
    leaps: int = 0
    leapfrogs: int = 1

    def init(self, problem: ep.FiniteSum) -> StepAdaptation:
        return first_step(problem.dim, problem.l2, problem.dtype)

    @property
    def work(self) -> int:
        """Gradient passes in one iteration."""
        return self.steps * self.leapfrogs + self.jumps + self.leaps + 1

    @property
    def remedy(self) -> str:
        return ""

    def move(
        self, key: Any, gibbs: Any, particles: Any, state: StepAdaptation, iteration: Any
    ) -> Any:
        keys = jax.random.split(key, 4)
        walkers = walkers_at(gibbs, particles)
        for j in range(self.jumps):
            walkers, _ = jump(jax.random.fold_in(keys[0], j), gibbs, walkers, 1)
        for j in range(self.leaps):
            walkers, _ = leap(jax.random.fold_in(keys[1], j), gibbs, walkers, 1)
        noise = step_noise(keys[2], self.steps, particles)
        shape = jnp.eye(particles.shape[1], dtype=particles.dtype)
        if self.local == "preconditioned":
            shape = cloud_shape(particles)
        aim = HMC_ACCEPTANCE if self.local == "hmc" else OPTIMAL_ACCEPTANCE
        acceptance = jnp.zeros(())
        for s in range(self.steps):
            step_key, normal = jax.random.fold_in(keys[3], s), noise(jnp.asarray(s))
            eta = jnp.exp(state.log_step)
            if self.local == "hmc":
                walkers, rate = hmc_step(step_key, normal, gibbs, walkers, eta, self.leapfrogs)
            elif self.local == "preconditioned":
                walkers, rate = shaped_step(step_key, normal, gibbs, walkers, eta, shape)
            else:
                walkers, rate = mala_step(step_key, normal, gibbs, walkers, eta)
            # `adapted` steers to OPTIMAL_ACCEPTANCE: shift the rate to steer to another aim.
            state = adapted(state, rate + OPTIMAL_ACCEPTANCE - aim)
            acceptance = acceptance + rate / self.steps
        return walkers.particles, state, SamplerInfo(acceptance, jnp.exp(state.log_step), self.work)


def cloud_shape(particles: Any) -> Any:
    """A factor of the cloud's covariance, scaled to determinant one."""
    covariance = jnp.cov(particles.T) + 1e-6 * jnp.eye(particles.shape[1])
    factor = jnp.linalg.cholesky(covariance)
    return factor / jnp.exp(jnp.mean(jnp.log(jnp.diag(factor))))


def shaped_step(key: Any, noise: Any, gibbs: Any, walkers: Walkers, eta: Any, shape: Any) -> Any:
    """MALA in the coordinates in which the cloud is round."""
    T = gibbs.temperature
    proposal = (
        walkers.particles
        - eta * walkers.gradient @ shape @ shape.T
        + jnp.sqrt(2 * eta * T) * noise @ shape.T
    )
    there = walkers_at(gibbs, proposal)
    inverse = jnp.linalg.inv(shape)

    def log_density(start: Walkers, end: Walkers) -> Any:
        """Log density of proposing `end` at `start`, up to a constant."""
        z = (end.particles - start.particles) @ inverse.T + eta * start.gradient @ shape
        return -jnp.sum(z**2, axis=1) / (4 * eta * T)

    log_alpha = (
        -(there.energy - walkers.energy) / T
        + log_density(there, walkers)
        - log_density(walkers, there)
    )
    return metropolis(key, walkers, there, log_alpha)


def hmc_step(key: Any, noise: Any, gibbs: Any, walkers: Walkers, eta: Any, leapfrogs: int) -> Any:
    """Hamiltonian Monte Carlo with steps h.

    eta = h^2 / (2 temperature) makes one leapfrog step MALA's proposal.
    """
    T = gibbs.temperature
    h = jnp.sqrt(2 * eta * T)
    momentum, there = noise, walkers
    for _ in range(leapfrogs):
        momentum = momentum - h / 2 * there.gradient / T
        there = walkers_at(gibbs, there.particles + h * momentum)
        momentum = momentum - h / 2 * there.gradient / T
    kinetic = jnp.sum(momentum**2 - noise**2, axis=1) / 2
    return metropolis(key, walkers, there, -(there.energy - walkers.energy) / T - kinetic)


MOVERS = {
    "MALA 5": Study(jumps=0),
    "MALA 5, jumps 1": Study(),
    "MALA 5, jumps 3": Study(jumps=3),
    "MALA 10, jumps 2": Study(steps=10, jumps=2),
    "preconditioned 5, jumps 1": Study(local="preconditioned"),
    "HMC 3 x 3, jumps 1": Study(local="hmc", steps=3, leapfrogs=3),
    "MALA 5, leaps 1": Study(jumps=0, leaps=1),
    "MALA 5, jumps 1, leaps 1": Study(leaps=1),
    "MALA 10, jumps 2, leaps 1": Study(steps=10, jumps=2, leaps=1),
}


class Reference:
    """The optimum H* by two long, large runs, and draws of its Gibbs measure.

    The draws can be re-weighted to any dual nearby.
    """

    def __init__(self, problem: ep.FiniteSum):
        solver = ep.NewtonEFP(Study(steps=20, jumps=10))
        runs = [
            ep.solve(problem, solver, particles=20_000, iterations=60, seed=100 + s)
            for s in range(2)
        ]
        self.problem = problem
        self.moments = (runs[0].moments + runs[1].moments) / 2
        self.cloud = jnp.concatenate([run.particles for run in runs])
        self.plain = problem.features.average(self.cloud)
        self.noise = max(self.gap(run.moments)[0] for run in runs)

    def gap(self, moments: Any) -> tuple[float, float]:
        """The true gap of loss'(H), and the effective fraction of the cloud that measures it."""
        problem, moments = self.problem, jnp.asarray(moments)
        turn = problem.slope(moments) - problem.slope(self.moments)
        weights = jax.nn.softmax(
            -problem.features.potential(self.cloud, problem.weigh(turn)) / problem.temperature
        )
        # H* + (re-weighted mean - plain mean): the cloud's error is in both means and cancels.
        mean = self.moments + problem.features.average(self.cloud, weights) - self.plain
        share = float(1 / jnp.sum(weights**2) / weights.size)
        return float(bregman_gap(problem, mean, moments)), share


def main() -> None:
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    results: dict[str, Any] = {}
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for name in [name for name in PROBLEMS if wanted in name]:
        problem = PROBLEMS[name]()
        reference = Reference(problem)
        print(f"\n{name}: gap of a reference {reference.noise:.1e}", flush=True)
        rows = {}
        for mover, sampler in MOVERS.items():
            iterations = max(1, round(passes / sampler.work))
            runs = [
                ep.solve(problem, ep.NewtonEFP(sampler), iterations=iterations, seed=s)
                for s in SEEDS
            ]
            gaps, shares = zip(*(reference.gap(run.moments) for run in runs), strict=True)
            seconds = float(runs[-1].history["seconds"][-1])
            jax.clear_caches()  # compiled programs would fill the memory
            rows[mover] = {
                "iterations": iterations,
                "gaps": gaps,
                "effective shares": shares,
                "seconds": seconds,
            }
            mean, reach = np.exp(np.mean(np.log(gaps))), f"[{min(gaps):.0e}, {max(gaps):.0e}]"
            cost = f"{seconds:.2f} s  ess {min(shares):.2f}"
            print(f"  {mover:<28} {mean:.1e} {reach}  {cost}", flush=True)
        results[name] = {"gap of a reference": reference.noise, "movers": rows}
    report("mixing", results, {})


if __name__ == "__main__":
    main()
