"""Fit a network to weighted rows, in rounds that each end with a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..measures.calibration import prediction_weights
from ..methods.solvers import Solver
from ..problems.features.base import FeatureMap, Particles
from ..problems.losses.base import Loss
from ..problems.problem import FiniteSum
from ..runs.history import joined
from ..runs.observers import PATH, LastClouds
from ..runs.solution import Solution
from ..verbs.certificate import Certificate
from ..verbs.certify import certify
from ..verbs.mixture_bound import explicit_certificate
from ..verbs.solve import run, solution_of
from .rows import WeightedRows, bucket, padded

ITERATIONS, FEW = 10, 4
"""Iterations of the first round, after the whole loss is on; and those of the only round where each
of them takes long."""
LONG = 2**23
"""Number of features of a cloud, at all rows, above which iterations take long."""
PARTICLES = 4096
"""Minimum number of particles of the answer, pooled from the last clouds."""
LEAST_CLOUDS = 2
"""Minimum number of clouds that are kept of a run."""
GOOD = 0.1
"""Share of the best constant's loss below which a verified bound is good, whatever `tol` is."""
QUICK, THOROUGH = 100, 1000
"""Gradient passes at the target of the first certificate, and of those that follow."""
ISLAND = 64
"""Number of particles in each island of a certificate."""
WORTH_WHILE = 2.0
"""A fit goes on only while bound / tol is at most this factor times max_iter / iterations done."""
TEMPERING = (1e-3, 1e-2, 0.03, 0.1, 0.3)
"""Multiples of the dual along which a certificate approaches it without a path from the prior."""
POOLED_RIDGE = 1e-4
"""Ridge of the weights of pooled clouds; the moments of a short run are no more precise."""


@dataclass(frozen=True)
class Trained:
    """A solution with the last clouds of its run."""

    solution: Solution
    clouds: list[Particles]
    rising: int
    """Number of iterations before the whole loss was on."""

    def pooled(self) -> Solution:
        """The solution with all those clouds as particles, weighted so as to meet the moments."""
        cloud = jnp.concatenate(self.clouds)
        problem, moments = self.solution.problem, self.solution.moments
        weights, _ = prediction_weights(problem, cloud, moments, ridge=POOLED_RIDGE)
        return eqx.tree_at(lambda s: (s.particles, s.weights), self.solution, (cloud, weights))


class Begin(NamedTuple):
    """Where a fit begins instead of at the prior.

    Attributes:
        solution: a solution with the same parameters.
        path: dual vectors from the prior to that of the solution, if they are known.
    """

    solution: Solution
    path: np.ndarray | None


@dataclass(frozen=True)
class Trainer:
    """Everything that a fit needs apart from temperature and l2.

    Attributes:
        rows: standardised inputs, multiplied by their relevance, and targets.
        relevance: the factors of the inputs.
        features: makes a feature map from inputs.
        loss: makes a loss from targets (n, t).
        solver: the method.
        particles: the size of the cloud.
        most: the size up to which a cloud for more rows may grow.
        hottest: the temperature at which a search begins.
        seed: the seed of all randomness.
        stratify: whether targets are labels, each of which must be on both sides of a split.
        progress: whether to show a progress bar for the last rounds.
        say: prints a line of progress.
    """

    rows: WeightedRows
    relevance: np.ndarray
    features: Callable[[np.ndarray], FeatureMap]
    loss: Callable[[np.ndarray], Loss]
    solver: Solver
    particles: int
    most: int
    hottest: float
    seed: int
    stratify: bool
    progress: bool
    say: Callable[[str], None]

    @cached_property
    def size(self) -> int:
        """Number of rows with padding, so that sets of nearly the same size share programs."""
        return bucket(len(self.rows))

    def clouds(self, iterations: int) -> int:
        """Number of clouds to keep from a run with this many iterations at the full loss."""
        return min(max(LEAST_CLOUDS, -(-PARTICLES // self.particles)), iterations)

    @property
    def outputs(self) -> int:
        """Number of outputs of the network."""
        return int(np.prod(self._posed[0].channels))

    @cached_property
    def _posed(self) -> tuple[FeatureMap, Loss]:
        features = self.features(padded(self.rows.X, self.size))
        return features, self.loss(padded(self.rows.y, self.size))

    def problem(self, temperature: float, l2: Any, weights: np.ndarray | None = None) -> FiniteSum:
        """The problem, padded by rows without weight; `weights` replace the rows' own."""
        weights = padded(self.rows.weights if weights is None else weights, self.size)
        return FiniteSum(*self._posed, temperature=temperature, l2=l2, weights=weights)

    def run(
        self,
        problem: FiniteSum,
        iterations: int,
        limit: int,
        *,
        seed: int,
        start: Solution | None,
        clouds: int | None = None,
        progress: bool = False,
    ) -> Trained:
        """Solve with this many iterations after the whole loss is on, and at most `limit` in all.

        Runs that keep equally many clouds share one program.
        """
        clouds = self.clouds(iterations) if clouds is None else clouds
        loop, status = run(
            problem,
            self.solver,
            particles=self.particles,
            iterations=limit,
            seed=seed,
            start=start,
            observers={"clouds": LastClouds(clouds, iterations)},
            progress=progress,
        )
        solution = solution_of(loop, status, seed, calibrate=False)
        kept, seen = loop.memory("clouds")
        # A run that was cut short has fewer clouds: the last one takes the place of the missing.
        there = list(kept[max(0, clouds - int(seen)) :])
        there = (there + [solution.particles] * clouds)[:clouds]
        return Trained(solution, there, rising=max(0, loop.done - int(seen)))

    def fit(
        self,
        temperature: float,
        l2: float,
        *,
        tol: float,
        max_iter: int,
        begin: Begin | None,
        drafted: Callable[[Trained], None] | None = None,
    ) -> tuple[Trained, Certificate | None]:
        """Rounds of iterations, each twice as long as the last and followed by a certificate.

        They end when the certificate is good enough, or so bad that the iterations left will not
        mend it. The certificate follows the path from the prior that `begin` or the first round
        took; without one it follows multiples of the dual. `drafted` is called before every
        certificate.
        """
        problem = self.problem(temperature, l2)
        done, budget, history = 0, QUICK, None
        # Methods that turn the loss on gradually have converged soon after it is on; the others get
        # all iterations at once.
        rounds = self.solver.turns_on_loss
        length = ITERATIONS if rounds else max_iter
        if long := rounds and self.particles * int(np.prod(problem.features.shape)) > LONG:
            length = FEW
        start = None if begin is None else begin.solution
        approach = None if begin is None else begin.path
        while True:
            trained = self.run(
                problem,
                length,
                max_iter - done,
                seed=self.seed + done,
                start=start,
                progress=self.progress,
            )
            history = joined(history, trained.solution.history)
            done = len(history["iteration"])
            solution = eqx.tree_at(lambda s: s.history, trained.solution, history)
            trained = replace(trained, solution=solution)
            if solution.status == "interrupted":
                return trained, None
            if drafted is not None:
                drafted(trained)
            if approach is None and begin is None:
                approach = _without_detours(trained)
            try:
                certificate = self._certificate(solution, approach, budget)
            except KeyboardInterrupt:  # the fit is there, only its bound is missing
                return trained, None
            self.say(f"{done} iterations: {certificate.verdict}")
            met = certificate.verified and certificate.bound <= tol
            # The bound falls at best WORTH_WHILE times as fast as iterations grow: beyond that, the
            # iterations left cannot reach tol.
            hopeless = certificate.bound > WORTH_WHILE * tol * max_iter / done
            # What is left of a mixture's bound is the price of its explicit form and of the lower
            # bound; measured, a second round lowers it by one per cent.
            settled = certificate.measure == "mixture" and certificate.relative_bound < GOOD
            settled = settled and certificate.verified
            over = met or settled or hopeless or long or done >= max_iter
            if over or solution.status == "diverged":
                return trained, certificate
            length, budget, start = 2 * length, THOROUGH, solution

    def _certificate(self, solution: Solution, path: Any, budget: int) -> Certificate:
        """The certificate of an explicit mixture against the zero dual, if that is good.

        It takes a second and assumes nothing. Otherwise clouds are drawn, led by `path`.
        """
        explicit = explicit_certificate(solution, seed=self.seed)
        if explicit.verified and explicit.relative_bound < GOOD:
            return explicit
        if path is None:
            path = jnp.stack([b * solution.dual for b in TEMPERING])
        return certify(solution, seed=self.seed, particles=ISLAND, budget=budget, path=path)


def _without_detours(trained: Trained) -> np.ndarray:
    """The path as far as the loss was being turned on.

    After that a run circles around its goal. A certificate that followed it there would spend most
    of its time on edges of hardly any length. A full path drops vectors whose neighbours are close,
    which is after the rise: its first entries are those of the rise.
    """
    path = np.asarray(trained.solution.path)[: trained.rising + 1]
    # Zeros stand for the prior. With one length for all paths, checks compile once.
    return np.concatenate([np.zeros((PATH - len(path), *path.shape[1:]), path.dtype), path])
