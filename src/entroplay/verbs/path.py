"""`path`: solutions from hot to cold, for users who do not know which temperature they want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..base.arguments import flag, invalid, real_array, whole
from ..methods.solvers import NewtonEFP, Solver
from ..problems.losses import Loss
from ..problems.problem import FiniteSum
from ..runs.observers import LastClouds
from ..runs.progress import progress_bar
from ..runs.solution import Reason, Solution, Status
from .certificate import Certificate
from .certify import certify
from .leave_one_out import LeaveOneOut, judged_rows
from .solve import run, solution_of

MOST_RISING = 100
"""Maximum number of iterations on the way from one temperature to the next."""
CLEARLY = 0.5
"""Standard errors by which a colder solution must be better to be preferred."""


@dataclass(frozen=True)
class TemperaturePath(Sequence[Solution]):
    """Solutions of one problem at several temperatures, the hottest first.

    It is a sequence of `Solution`s.

    Attributes:
        solutions: one per temperature. A run whose cloud is too small for a temperature ends the
            path above it; `status` says so.
        certificates: one per temperature, or none if none were requested.
        left_out: one result of `leave_one_out` per temperature.
    """

    solutions: tuple[Solution, ...]
    certificates: tuple[Certificate, ...] = ()
    left_out: tuple[LeaveOneOut, ...] = ()

    @property
    def temperatures(self) -> np.ndarray:
        """The temperatures, from hot to cold."""
        return np.array([solution.problem.temperature for solution in self.solutions])

    @property
    def status(self) -> Status:
        """Why the last run of the path stopped."""
        return self.solutions[-1].status

    @property
    def leave_one_out(self) -> np.ndarray:
        """The leave-one-out loss at each temperature."""
        return np.array([result.loss for result in self.left_out])

    @property
    def d_eff(self) -> np.ndarray:
        """The effective number of degrees of freedom at each temperature."""
        return np.array([result.d_eff for result in self.left_out])

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
            with solution.problem.arithmetic():
                losses.append(float(jnp.mean(loss.value(prediction))))
        return np.array(losses)

    def best(self, X: object = None, loss: Loss | None = None) -> Solution:
        """The solution that predicts best: by its loss at other rows, or by leaving out one row.

        Without rows, the smallest leave-one-out loss counts among the temperatures at which it is
        not too optimistic. A colder solution is preferred only if it is better by more than half a
        standard error of the difference.
        """
        if (X is None) != (loss is None):
            raise TypeError("best takes both X and loss, or neither.")
        if loss is None:
            return self.solutions[self._best_left_out()]
        losses = self.validate(X, loss)
        if not np.isfinite(losses).any():
            raise ValueError("No temperature has a finite loss at these rows.")
        return self.solutions[int(np.nanargmin(losses))]

    def _best_left_out(self) -> int:
        """The number of the solution with the best leave-one-out loss."""
        best = 0
        for i, candidate in enumerate(self.left_out):
            if i == 0 or candidate.too_optimistic:
                continue
            weights = np.asarray(self.solutions[i].problem.weights, np.float64)
            rows = weights > 0
            gain = (self.left_out[best].losses - candidate.losses)[rows]
            mean = weights[rows] @ gain
            error = np.sqrt(weights[rows] ** 2 @ (gain - mean) ** 2)
            best = i if mean > CLEARLY * error else best
        return best

    def __repr__(self) -> str:
        head = f"TemperaturePath of {len(self)} solutions\n  temperature        loss    spread"
        head += "  leave-one-out     d_eff" if self.left_out else ""
        lines = [head + ("        bound" if self.certificates else "")]
        for i, solution in enumerate(self.solutions):
            loss = solution.history["loss_moments"][-1]
            spread = float(jnp.std(solution.particles))
            line = f"  {solution.problem.temperature:>11.3g}  {loss:>10.4g}  {spread:>8.3g}"
            if self.left_out:
                rows = self.left_out[i]
                line += f"  {rows.loss:>13.4g}  {rows.d_eff:>8.1f}"
                line += " too optimistic" if rows.too_optimistic else ""
            if self.certificates:
                certificate = self.certificates[i]
                unverified = "" if certificate.verified else "  not verified"
                line += f"  {certificate.bound:>11.2g}{unverified}"
            lines.append(line)
        if self.status == Reason.TOO_COLD:
            lines.append(f"  stopped     {self.status}")
        return "\n".join(lines)


def path(
    problem: FiniteSum,
    temperatures: object = None,
    *,
    solver: Solver | None = None,
    particles: int | None = None,
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
        iterations: the number of iterations at each temperature. `NewtonEFP` counts them from
            where the path has reached the temperature; with the prior fixed, the path is then one
            run from hot to cold.
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
    iterations = whole("path", "iterations", iterations)
    particles = None if particles is None else whole("path", "particles", particles)
    if solver is not None and not isinstance(solver, Solver):
        raise invalid("path", "solver", "a solver such as EFP() or MFLD()", solver)
    solver = NewtonEFP() if solver is None else solver
    problem.needs_rows("path")
    solutions: list[Solution] = []
    certificates: list[Certificate] = []
    left_out: list[LeaveOneOut] = []
    with progress_bar(progress, len(ladder), "temperature") as show_progress:
        for i, temperature in enumerate(ladder):
            l2 = problem.l2 * (temperature / problem.temperature) if fixed_prior else problem.l2
            posed = eqx.tree_at(lambda p: (p.temperature, p.l2), problem, (temperature, l2))
            start = solutions[-1] if solutions else None
            run_seed = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
            solution = _arrived(posed, solver, particles, iterations, run_seed, start)
            solutions.append(solution)
            left_out.append(judged_rows(solution))
            if certified:
                certificates.append(certify(solution, seed=run_seed))
            show_progress(1, solution.history)
            # What a cloud cannot carry here it cannot carry in the cold either.
            if solution.status in (Reason.INTERRUPTED, Reason.TOO_COLD):
                break
    return TemperaturePath(tuple(solutions), tuple(certificates), tuple(left_out))


def _arrived(
    problem: FiniteSum,
    solver: Solver,
    particles: int | None,
    iterations: int,
    seed: int,
    start: Solution | None,
) -> Solution:
    """A run with so many iterations after the whole loss is on."""
    # Methods that turn the loss on gradually get as many as that takes.
    rising = MOST_RISING if solver.turns_on_loss else 0
    loop, status = run(
        problem,
        solver,
        particles=particles,
        iterations=iterations + rising,
        seed=seed,
        start=start,
        observers={"arrived": LastClouds(1, iterations)},
    )
    return solution_of(loop, status, seed, calibrate=True)


def _ladder(problem: FiniteSum, temperatures: object) -> list[float]:
    """The temperatures to solve at, from hot to cold."""
    if temperatures is None:
        return [float(t) for t in problem.temperature * np.geomspace(30, 1, 7)]
    values = np.asarray(real_array("path", "temperatures", temperatures, ndim=(1,)), np.float64)
    if not (values > 0).all():
        raise invalid("path", "temperatures", "a sequence of positive numbers", temperatures)
    return sorted(values.tolist(), reverse=True)
