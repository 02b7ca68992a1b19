"""Moves for NewtonEFP's cloud, compared at the same number of gradient passes.

Run: python benchmarks/mixing.py [passes [part of a problem's name]]. A run is judged by the
distance of its moments from those of a reference, two long runs of four times as many particles:
the mean Bregman divergence of the loss over all rows. A fifth of the rows of the cold problems has
no weight: there nothing but the particles determines the moments. Shown are the geometric mean, the
smallest and the largest distance over SEEDS runs, and that between the two reference runs:
differences near it mean nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from harness import report
from newton import breast_cancer
from sklearn.datasets import load_diabetes, make_friedman1

import entroplay as ep
from entroplay.measures.gap import bregman_gap
from entroplay.methods.samplers import Sampler, SamplerInfo
from entroplay.methods.samplers.langevin import (
    OPTIMAL_ACCEPTANCE,
    StepAdaptation,
    adapted,
    first_step,
    mala_step,
)
from entroplay.methods.samplers.population import LEAP_DIMENSIONS, jump, leap
from entroplay.methods.samplers.walkers import (
    Noise,
    Walkers,
    drawn_by_step,
    metropolis,
    move_noise,
    walkers_at,
)

SEEDS = range(6)
PARTICLES = 2048
HMC_ACCEPTANCE = 0.65
"""Acceptance rate to which the step of Hamiltonian Monte Carlo is adapted."""


def toy(temperature: float = 1e-3) -> ep.FiniteSum:
    """The README's regression, colder."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(200, 1))
    y = np.sin(2 * X[:, 0]) / 2 + 0.1 * rng.normal(size=200)
    features = ep.Neurons(X, bias=True, output_weight=True, scale=3)
    return ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=1e-3)


def table(X: Any, y: Any, activation: str, temperature: float, variance: float) -> ep.FiniteSum:
    """A standardised table as `benchmarks/cold.py` poses it, with a fifth of its rows held out."""
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    features = ep.Neurons(
        X / np.sqrt(X.shape[1]), activation, bias=True, output_weight=True, scale=10.0
    )
    weights = (np.arange(len(y)) % 5 > 0).astype(float)
    l2 = temperature / (2 * variance)
    return ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=l2, weights=weights)


def friedman(activation: str, temperature: float, variance: float = 1.0) -> ep.FiniteSum:
    """Friedman's first regression problem, 300 rows."""
    X, y = make_friedman1(300, 10, noise=1.0, random_state=0)
    return table(X, y, activation, temperature, variance)


def diabetes(activation: str, temperature: float, variance: float = 1.0) -> ep.FiniteSum:
    """The progression of a disease, 442 rows."""
    X, y = load_diabetes(return_X_y=True)
    return table(np.asarray(X), np.asarray(y), activation, temperature, variance)


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
    "breast cancer, d=31, 1e-2": breast_cancer,
    "density, d=2, 1e-1": density,
    "friedman1, tanh, 1e-2": lambda: friedman("tanh", 1e-2),
    "friedman1, tanh, 3e-4": lambda: friedman("tanh", 3e-4),
    "friedman1, relu, 3e-4": lambda: friedman("relu", 3e-4),
    "friedman1, tanh, variance 9, 3e-4": lambda: friedman("tanh", 3e-4, 9.0),
    "diabetes, relu, 1e-3": lambda: diabetes("relu", 1e-3),
}


class Study(Sampler):
    """`steps` local moves, preceded by `jumps` and `leaps` (independence proposals)."""

    steps: int = 5
    fresh: bool = False
    local: str = "mala"
    jumps: int = 1
    leaps: int = 0
    leapfrogs: int = 1
    local_every: int = 1
    """Local moves come with every so many of the `steps`; the others are jumps alone."""

    def init(self, problem: ep.FiniteSum) -> StepAdaptation:
        return first_step(problem.dim, problem.l2, problem.dtype)

    @property
    def work(self) -> int:
        """Gradient passes in one iteration."""
        local = -(-self.steps // self.local_every)
        return local * self.leapfrogs + self.jumps + self.leaps + 1

    @property
    def remedy(self) -> str:
        return ""

    def move(
        self, key: Any, gibbs: Any, particles: Any, state: StepAdaptation, iteration: Any
    ) -> Any:
        population = self.jumps + self.leaps
        noise = drawn_by_step(
            key, self.steps + population, particles.size, lambda key: move_noise(key, particles)
        )
        shape = cloud_shape(particles) if self.local == "preconditioned" else None
        aim = HMC_ACCEPTANCE if self.local == "hmc" else OPTIMAL_ACCEPTANCE
        every = max(1, self.steps // max(self.jumps, 1))
        zero = jnp.zeros((), particles.dtype)

        def step(s: Any, carry: Any) -> Any:
            walkers, state, acceptance = carry
            if self.jumps:
                walkers = jax.lax.cond(
                    (s % every == 0) & (s // every < self.jumps),
                    lambda w: jump(noise(self.steps + s // every), gibbs, w, 1)[0],
                    lambda w: w,
                    walkers,
                )

            def local(walkers: Walkers, state: StepAdaptation) -> Any:
                eta, drawn = jnp.exp(state.log_step), noise(s)
                if self.local == "hmc":
                    walkers, rate = hmc_step(drawn, gibbs, walkers, eta, self.leapfrogs)
                elif self.local == "preconditioned":
                    walkers, rate = shaped_step(drawn, gibbs, walkers, eta, shape)
                else:
                    walkers, rate = mala_step(drawn, gibbs, walkers, eta)
                # `adapted` steers to OPTIMAL_ACCEPTANCE: shift the rate to steer to another aim.
                return walkers, adapted(state, rate + OPTIMAL_ACCEPTANCE - aim), rate

            def none(walkers: Walkers, state: StepAdaptation) -> Any:
                return walkers, state, zero

            walkers, state, rate = jax.lax.cond(
                s % self.local_every == 0, local, none, walkers, state
            )
            return walkers, state, acceptance + rate * self.local_every / self.steps

        walkers = walkers_at(gibbs, particles)
        if particles.shape[1] <= LEAP_DIMENSIONS:
            for j in range(self.leaps):
                drawn = noise(jnp.asarray(self.steps + self.jumps + j))
                walkers, _ = leap(drawn, gibbs, walkers, 1)
        walkers, state, acceptance = jax.lax.fori_loop(0, self.steps, step, (walkers, state, zero))
        return walkers.particles, state, SamplerInfo(acceptance, jnp.exp(state.log_step), self.work)


def cloud_shape(particles: Any) -> Any:
    """A factor of the cloud's covariance, scaled to determinant one."""
    covariance = jnp.cov(particles.T) + 1e-6 * jnp.eye(particles.shape[1])
    factor = jnp.linalg.cholesky(covariance)
    return factor / jnp.exp(jnp.mean(jnp.log(jnp.diag(factor))))


def shaped_step(noise: Noise, gibbs: Any, walkers: Walkers, eta: Any, shape: Any) -> Any:
    """MALA in the coordinates in which the cloud is round."""
    T = gibbs.temperature
    proposal = (
        walkers.particles
        - eta * walkers.gradient @ shape @ shape.T
        + jnp.sqrt(2 * eta * T) * noise.normal @ shape.T
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
    return metropolis(noise.coins[:, 0], walkers, there, log_alpha)


def hmc_step(noise: Noise, gibbs: Any, walkers: Walkers, eta: Any, leapfrogs: int) -> Any:
    """Hamiltonian Monte Carlo with steps h.

    eta = h^2 / (2 temperature) makes one leapfrog step MALA's proposal.
    """
    T = gibbs.temperature
    h = jnp.sqrt(2 * eta * T)
    momentum, there = noise.normal, walkers
    for _ in range(leapfrogs):
        momentum = momentum - h / 2 * there.gradient / T
        there = walkers_at(gibbs, there.particles + h * momentum)
        momentum = momentum - h / 2 * there.gradient / T
    kinetic = jnp.sum(momentum**2 - noise.normal**2, axis=1) / 2
    log_alpha = -(there.energy - walkers.energy) / T - kinetic
    return metropolis(noise.coins[:, 0], walkers, there, log_alpha)


MOVERS = {
    "MALA 5": Study(jumps=0),
    "MALA 5, jumps 1, leaps 1": Study(leaps=1),
    "MALA 5, jumps 5, leaps 1": Study(jumps=5, leaps=1),
    "MALA 10, jumps 10, leaps 1": Study(steps=10, jumps=10, leaps=1),
    "MALA 2, jumps 8, leaps 1": Study(steps=8, jumps=8, leaps=1, local_every=4),
    "preconditioned 5, jumps 5, leaps 1": Study(jumps=5, leaps=1, local="preconditioned"),
    "HMC 2 x 5, jumps 2, leaps 1": Study(local="hmc", steps=2, leapfrogs=5, jumps=2, leaps=1),
}


class Reference:
    """The optimum's moments by two long runs with large clouds."""

    def __init__(self, problem: ep.FiniteSum):
        solver = ep.NewtonEFP(Study(steps=20, jumps=20, leaps=1))
        runs = [
            ep.solve(problem, solver, particles=4 * PARTICLES, iterations=60, seed=100 + s)
            for s in range(2)
        ]
        for run in runs:
            assert run.history["beta"][-1] == 1, run.status
        rows = jnp.full_like(problem.weights, 1 / problem.weights.size)
        self.judge = eqx.tree_at(lambda p: p.weights, problem, rows)
        self.moments = (runs[0].moments + runs[1].moments) / 2
        self.noise = self.distance(runs[0].moments)

    def distance(self, moments: Any) -> float:
        """The mean Bregman divergence of the loss between the moments, over all rows."""
        return float(bregman_gap(self.judge, jnp.asarray(moments), self.moments))


def main() -> None:
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    results: dict[str, Any] = {}
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    for name in [name for name in PROBLEMS if wanted in name]:
        problem = PROBLEMS[name]()
        reference = Reference(problem)
        print(f"\n{name}: distance of a reference {reference.noise:.1e}", flush=True)
        rows = {}
        for mover, sampler in MOVERS.items():
            iterations = max(1, round(passes / sampler.work))
            solver = ep.NewtonEFP(sampler)
            runs = [
                ep.solve(problem, solver, particles=PARTICLES, iterations=iterations, seed=s)
                for s in SEEDS
            ]
            distances = [reference.distance(run.moments) for run in runs]
            arrived = sum(run.history["beta"][-1] == 1 for run in runs)
            seconds = float(runs[-1].history["seconds"][-1])
            jax.clear_caches()  # compiled programs would fill the memory
            rows[mover] = {
                "iterations": iterations,
                "distances": distances,
                "arrived": arrived,
                "seconds": seconds,
            }
            mean = np.exp(np.mean(np.log(distances)))
            reach = f"[{min(distances):.0e}, {max(distances):.0e}]"
            cost = f"{seconds:.2f} s, {arrived} of {len(runs)} arrived"
            print(f"  {mover:<36} {mean:.1e} {reach}  {cost}", flush=True)
        results[name] = {"distance of a reference": reference.noise, "movers": rows}
    report("mixing", results, {})


if __name__ == "__main__":
    main()
