"""The one result: what was solved, how, and why it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..methods.solvers import Solver
from ..problems.features.base import Moments, Particles, mean_features
from ..problems.problem import FiniteSum

History = dict[str, np.ndarray]


class Reason(StrEnum):
    """Why a run stopped."""

    CONVERGED = "converged"
    ITERATIONS = "iterations"
    CALLBACK = "callback"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Status:
    """Why a run stopped, and a sentence about it. Compares equal to the bare reason: `status == "converged"`."""

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


@dataclass(frozen=True)
class Compression:
    """How a solution became smaller, and what that cost: see `compress`."""

    method: str
    before: int
    """Particles that there were."""
    error: float
    """Root mean square distance of the predictions at the training rows from those of the whole solution."""
    random_error: float
    """What to expect of a random subset of this size with equal weights."""

    def __str__(self) -> str:
        return (
            f"from {self.before} particles by {self.method}: predictions at the training rows are off by {self.error:.2g} "
            f"(root mean square; a random subset: {self.random_error:.2g})"
        )


class Solution(eqx.Module):
    """What `solve` returns.

    Attributes:
        problem: the problem that was solved.
        solver: the method that solved it; None where that was no `Solver`: the status then says what was done.
        particles: (m, d), draws of the last Gibbs measure.
        moments: H, shaped (n,) or (n, k).
        dual: the dual vector, loss'(H).
        weights: (m,), the particles' weights in `predict`; they sum to one.
        history: dictionary of arrays with one entry per iteration: "iteration", "gap", "loss_moments",
            "loss_particles", "acceptance", "step_size", "pulls" and "passes" (cumulative), "seconds".
        status: why the run stopped, with a sentence.
        path: (k, n) or (k, n, c), a few dual vectors along which the run's Gibbs measures moved, for `certify`.
        seed: the seed of all randomness in the run.
        iterate: (m, d), a cloud that follows mu^(t) itself where the method has such an iterate (EFP, NaiveEFP, MFLD), else
            None. For EFP its law is the mixture of all Gibbs measures so far, in constant memory.
        compression: how it was made smaller, if it was.
    """

    problem: FiniteSum
    solver: Solver | None
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

    def predict(self, X: object) -> Array:
        """The weighted mean of h over the particles, at new rows: (rows,) or (rows, k)."""
        with jax.enable_x64(self.problem.dtype == jnp.float64):
            return mean_features(self.problem.features.at(X), self.particles, self.weights)

    def __repr__(self) -> str:
        m = self.particles.shape[0]
        by = (
            "a measure on weighted points"
            if self.solver is None
            else eqx.tree_pformat(self.solver, width=1000)
        )
        lines = [
            f"Solution of {self.problem}",
            f"  by {by}, {m} particles, seed {self.seed}",
            f"  stopped     {self.status}",
        ]
        if self.compression is not None:
            lines.append(f"  compressed  {self.compression}")
        if len(self.history["iteration"]) == 0:
            return "\n".join([*lines, "  no iteration was completed"])
        last = {name: values[-1] for name, values in self.history.items()}
        lines.append(
            f"  loss        {last['loss_moments']:.6g} at the moments, {last['loss_particles']:.6g} at the particles' mean"
        )
        lines.append(f"  gap         {self._gap_sentence()}")
        lines.append(
            f"  work        {last['iteration']:.0f} iterations, {last['pulls']:.0f} pulls, "
            f"{last['passes']:.0f} passes, {last['seconds']:.3g} s"
        )
        if not np.isfinite(self.problem.features.bounds).all():
            lines.append(
                "  note        the features are not known to be bounded: the theory's rates do not apply"
            )
        return "\n".join(lines)

    def _gap_sentence(self) -> str:
        recent = self.history["gap"][-10:]
        if np.isnan(recent).all():
            return "not estimated: this method's moments are its particles' own"
        mean, error = (
            float(recent.mean()),
            float(recent.std(ddof=1) / np.sqrt(len(recent))) if len(recent) > 1 else 0.0,
        )
        estimate = f"estimated {mean:.2g} +- {error:.1g} over the last {len(recent)} iterations"
        if mean <= 2 * error:
            estimate += ", not distinguishable from zero with this many particles"
        return estimate + " (trust it only if the chains have mixed)"
