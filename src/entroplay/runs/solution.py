"""The result of a run: what was solved, how, and why it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..base.arguments import positive
from ..base.notebook import card, sparkline
from ..base.registry import result, storable
from ..measures.mixture import Mixture
from ..measures.mixture_fit import fit_mixture
from ..methods.solvers import Solver
from ..problems.features.base import Moments, Particles, mean_features
from ..problems.problem import FiniteSum

History = dict[str, np.ndarray]
RECENT = 10
"""Number of iterations over which a run's own estimate of the gap is averaged."""


class Reason(StrEnum):
    """Why a run stopped."""

    CONVERGED = "converged"
    ITERATIONS = "iterations"
    CALLBACK = "callback"
    DIVERGED = "diverged"
    TOO_COLD = "too cold"
    INTERRUPTED = "interrupted"


@storable
@dataclass(frozen=True)
class Status:
    """Why a run stopped, with a sentence. It equals the bare reason: `status == "converged"`."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.reason == other
        return isinstance(other, Status) and (self.reason, self.message) == (
            other.reason,
            other.message,
        )

    def __hash__(self) -> int:
        return hash(self.reason)


@storable
@dataclass(frozen=True)
class Compression:
    """How a solution became smaller, and what that cost: see `compress`."""

    method: str
    before: int
    """Number of particles before the compression."""
    error: float
    """Root mean square change of the predictions at the training rows."""
    random_error: float
    """The change to expect from a random subset of this size with equal weights."""

    def __str__(self) -> str:
        return (
            f"from {self.before} particles by {self.method}: predictions at the training rows are "
            f"off by {self.error:.2g} (root mean square; a random subset: {self.random_error:.2g})"
        )


@result("solution")
class Solution(eqx.Module):
    """What `solve` returns.

    Attributes:
        problem: the problem that was solved.
        solver: the method that solved it, or its description if it is not a `Solver`; None in old
            files that do not say.
        particles: (m, d), draws of the last Gibbs measure.
        moments: H, of shape (n,) or (n, k).
        dual: the dual vector, loss'(H).
        weights: (m,), the weights of the particles in `predict`; they sum to one.
        history: dictionary of arrays with one entry per iteration: "iteration", "gap",
            "loss_moments", "loss_particles", "acceptance", "step_size", "pulls" and "passes"
            (cumulative), "seconds", and further columns of some methods.
        status: why the run stopped, with a sentence.
        path: (k, n) or (k, n, c), a sample of the dual vectors whose Gibbs measures the particles
            followed; `certify` replays it.
        seed: the seed of all randomness in the run.
        iterate: (m, d), a cloud that follows mu^(t) itself if the method has such an iterate (EFP,
            NaiveEFP, MFLD), else None. For EFP its law is the mixture of all Gibbs measures so far,
            in constant memory.
        compression: how the solution was made smaller, if it was.
    """

    problem: FiniteSum
    solver: Solver | str | None
    particles: Particles
    moments: Moments
    dual: Moments
    weights: Float[Array, "m"]
    history: History
    status: Status
    path: Float[Array, "path n *k"]
    seed: int
    iterate: Particles | None = None
    compression: Compression | None = None

    @cached_property
    def measure(self) -> Mixture:
        """An explicit measure near the solution: a mixture of normals around its particles.

        It can be sampled, its density and its predictions are explicit, and so is its value of the
        objective: `solution.measure.objective(solution.problem)`. Computed when first asked for.
        """
        self.problem.needs_rows("measure")
        parts = (self.problem, self.particles, self.dual, self.moments, self.weights)
        return fit_mixture(*parts, seed=self.seed)

    def predict(self, X: object) -> Array:
        """The weighted mean of h over the particles, at new rows: (rows,) or (rows, k)."""
        with self.problem.arithmetic():
            return mean_features(self.problem.features.at(X), self.particles, self.weights)

    def validate(self) -> None:
        """Refuse parts that do not fit each other; the training rows may be missing."""
        problem, moments, m = self.problem, self.moments.shape, self.weights.shape[0]
        shapes = (problem.features.shape, (0, *problem.features.channels))
        fit = self.particles.shape == (m, problem.dim) and moments in shapes
        fit = fit and moments == self.dual.shape == self.path.shape[1:]
        fit = fit and problem.weights.shape == moments[:1]
        if not fit or problem.loss.data_shape not in (None, *shapes):
            raise ValueError(
                "The shapes of the solution's arrays do not fit its problem: store it as solve "
                "returned it."
            )
        positive("FiniteSum", "temperature", problem.temperature)
        l2 = np.asarray(problem.l2)
        if l2.shape not in ((), (problem.dim,)) or not (l2 > 0).all():
            raise ValueError(
                "The l2 of the solution's problem does not fit it: store it as solve returned it."
            )

    def without_rows(self) -> Solution:
        """The solution without the training data and everything that has one entry per row."""
        return self.first_rows(0)

    def first_rows(self, n: int) -> Solution:
        """The solution with its first n rows only, for instance without rows that were padding."""

        def cut(tree: Any) -> Any:
            return jax.tree.map(lambda a: _head(a, n) if eqx.is_array(a) and a.ndim else a, tree)

        problem = self.problem
        with problem.arithmetic():
            features = problem.features
            if "rows" in vars(features):  # a map that computes its rows holds no data
                features = eqx.tree_at(lambda f: f.rows, features, cut(features.rows))
            parts = (features, cut(problem.loss), cut(problem.weights))
            problem = eqx.tree_at(lambda p: (p.features, p.loss, p.weights), problem, parts)
            path = jax.device_put(np.asarray(self.path)[:, :n])
            parts = (problem, cut(self.moments), cut(self.dual), path)
            return eqx.tree_at(lambda s: (s.problem, s.moments, s.dual, s.path), self, parts)

    def __repr__(self) -> str:
        first, *others = self._facts()
        lines = [f"Solution of {self.problem}", f"  by {first[1]}"]
        return "\n".join([*lines, *(f"  {label:<11} {text}" for label, text in others)])

    def _repr_html_(self) -> str:
        """The solution as a small table, for notebooks."""
        losses = self.history.get("loss_moments", ())
        picture = sparkline(losses, f"loss at the moments, {len(losses)} iterations")
        return card("Solution", [("problem", str(self.problem)), *self._facts()], picture)

    def _facts(self) -> list[tuple[str, str]]:
        """What there is to say about the run, as labelled sentences; the method comes first."""
        by = self.solver if isinstance(self.solver, str) else "a method that the file does not name"
        if isinstance(self.solver, Solver):
            by = eqx.tree_pformat(self.solver, width=1000)
        facts = [
            ("method", f"{by}, {self.particles.shape[0]} particles, seed {self.seed}"),
            ("stopped", str(self.status)),
        ]
        if self.compression is not None:
            facts.append(("compressed", str(self.compression)))
        if len(self.history["iteration"]) == 0:
            return [*facts, ("work", "no iteration was completed")]
        last = {name: values[-1] for name, values in self.history.items()}
        facts.append(
            (
                "loss",
                f"{last['loss_moments']:.6g} at the moments, "
                f"{last['loss_particles']:.6g} at the particles' mean",
            )
        )
        facts.append(("gap", self._gap_sentence()))
        work = f"{last['iteration']:.0f} iterations, {last['pulls']:.0f} pulls, "
        facts.append(("work", f"{work}{last['passes']:.0f} passes, {last['seconds']:.3g} s"))
        if not np.isfinite(self.problem.features.bounds).all():
            note = "the features are not known to be bounded: the theory's rates do not apply"
            facts.append(("note", note))
        return facts

    def _gap_sentence(self) -> str:
        recent = self.history["gap"][-RECENT:]
        recent = recent[~np.isnan(recent)]
        if len(recent) == 0:
            return "not estimated: the method has no estimate, or its loss was not fully on yet"
        mean = float(recent.mean())
        error = float(recent.std(ddof=1) / np.sqrt(len(recent))) if len(recent) > 1 else 0.0
        estimate = f"estimated {mean:.2g} +- {error:.1g} over the last {len(recent)} iterations"
        if mean <= 2 * error:
            estimate += ", not distinguishable from zero with this many particles"
        return estimate + " (trust it only if the chains have mixed)"


def _head(array: Any, n: int) -> Any:
    """The first n entries, cut by NumPy: JAX would compile a program for every n."""
    return jax.device_put(np.asarray(array)[:n])
