"""`path`: solutions from hot to cold, for users who do not know which temperature they want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..base.arguments import flag, invalid, real_array, whole
from ..methods.solvers import Solver
from ..problems.losses import Loss
from ..problems.problem import FiniteSum
from ..runs.progress import progress_bar
from ..runs.solution import Solution
from .certificate import Certificate
from .certify import certify
from .solve import solve


@dataclass(frozen=True)
class TemperaturePath(Sequence[Solution]):
    """Solutions of one problem at several temperatures, the hottest first.

    It is a sequence of `Solution`s.

    Attributes:
        solutions: one per temperature.
        certificates: one per temperature, or none if none were requested.
    """

    solutions: tuple[Solution, ...]
    certificates: tuple[Certificate, ...] = ()

    @property
    def temperatures(self) -> np.ndarray:
        """The temperatures, from hot to cold."""
        return np.array([solution.problem.temperature for solution in self.solutions])

    def __getitem__(self, index):  # type: ignore[override]
        return self.solutions[index]

    def __len__(self) -> int:
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def validate(self, X: object, loss: Loss) -> np.ndarray:
        """The mean loss at other rows, one number per temperature.

        Args:
            X: rows that were held out.
            loss: a loss with the targets of those rows, for instance `Squared(y_held_out)`.
        """
        if not isinstance(loss, Loss):
            raise invalid("validate", "loss", "a loss for the rows of X, such as Squared(y)", loss)
        losses = []
        for solution in self.solutions:
            prediction = solution.predict(X)
            if loss.data_shape not in (None, prediction.shape):
                must_be = f"one for predictions of shape {prediction.shape}"
                raise invalid("validate", "loss", must_be, f"one for {loss.data_shape}")
            with solution.problem.precision():
                losses.append(float(jnp.mean(loss.value(prediction))))
        return np.array(losses)

    def best(self, X: object, loss: Loss) -> Solution:
        """The solution with the smallest mean loss at other rows."""
        losses = self.validate(X, loss)
        if not np.isfinite(losses).any():
            raise ValueError("No temperature has a finite loss at these rows.")
        return self.solutions[int(np.nanargmin(losses))]

    def __repr__(self) -> str:
        head = f"TemperaturePath of {len(self)} solutions\n  temperature        loss    spread"
        lines = [head + ("        bound" if self.certificates else "")]
        for i, solution in enumerate(self.solutions):
            loss = solution.history["loss_moments"][-1]
            spread = float(jnp.std(solution.particles))
            line = f"  {solution.problem.temperature:>11.3g}  {loss:>10.4g}  {spread:>8.3g}"
            if self.certificates:
                certificate = self.certificates[i]
                unverified = "" if certificate.verified else "  not verified"
                line += f"  {certificate.bound:>11.2g}{unverified}"
            lines.append(line)
        return "\n".join(lines)


def path(
    problem: FiniteSum,
    temperatures: object = None,
    *,
    solver: Solver | None = None,
    particles: int = 1000,
    iterations: int = 60,
    seed: int = 0,
    certified: bool = False,
    fixed_prior: bool = False,
    progress: bool = False,
) -> TemperaturePath:
    """Solve a problem at several temperatures, from hot to cold; each run starts from the last one.

    Args:
        problem: the problem; its own temperature counts only if `temperatures` is not given.
        temperatures: a sequence of positive numbers, in any order. By default seven, from thirty
            times the problem's own temperature down to it.
        solver: as in `solve`.
        particles: as in `solve`.
        iterations: the number of iterations at each temperature.
        seed: as in `solve`; the noise differs from temperature to temperature.
        certified: make a certificate at each temperature.
        fixed_prior: let l2 fall with the temperature, which keeps the prior
            N(0, temperature / (2 l2)) of `problem`. Otherwise l2 stays and the prior shrinks.
        progress: show a progress bar over the temperatures.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> path = ep.path(problem, [0.1, 0.01], solver=ep.MFLD(0.1), particles=100, iterations=20)
    >>> path.temperatures
    array([0.1 , 0.01])
    """
    if not isinstance(problem, FiniteSum):
        raise invalid("path", "problem", "a FiniteSum", problem)
    ladder = _ladder(problem, temperatures)
    flag("path", "fixed_prior", fixed_prior)
    flag("path", "certified", certified)
    progress = flag("path", "progress", progress)
    seed = whole("path", "seed", seed, least=0)
    solutions: list[Solution] = []
    certificates: list[Certificate] = []
    with progress_bar(progress, len(ladder), "temperature") as show_progress:
        for i, temperature in enumerate(ladder):
            l2 = problem.l2 * (temperature / problem.temperature) if fixed_prior else problem.l2
            posed = eqx.tree_at(lambda p: (p.temperature, p.l2), problem, (temperature, l2))
            start = solutions[-1] if solutions else None
            run_seed = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
            solution = solve(
                posed,
                solver,
                particles=particles,
                iterations=iterations,
                seed=run_seed,
                start=start,
            )
            solutions.append(solution)
            if certified:
                certificates.append(certify(solution, seed=run_seed))
            show_progress(1, solution.history)
            if solution.status == "interrupted":
                break
    return TemperaturePath(tuple(solutions), tuple(certificates))


def _ladder(problem: FiniteSum, temperatures: object) -> list[float]:
    """The temperatures to solve at, from hot to cold."""
    if temperatures is None:
        return [float(t) for t in problem.temperature * np.geomspace(30, 1, 7)]
    values = np.asarray(real_array("path", "temperatures", temperatures, ndim=(1,)), np.float64)
    if not (values > 0).all():
        raise invalid("path", "temperatures", "a sequence of positive numbers", temperatures)
    return sorted(values.tolist(), reverse=True)
