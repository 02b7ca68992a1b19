"""The one loop: chunks of iterations inside JAX, driven from Python.

Between chunks Python shows progress, calls back, watches for Ctrl-C and decides whether to stop; inside a chunk nothing
leaves the device. A chunk's length is an argument of the compiled function, so that one trace serves a whole solve.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..base.arguments import flag, invalid, positive, whole
from ..base.compilation import compiled, traced
from ..measures.calibration import calibrated_weights
from ..methods.smc import bridge
from ..methods.solvers import NewtonEFP, Solver, Start
from ..problems.features.base import Moments, Particles, mean_features
from ..problems.problem import FiniteSum
from ..runs.checkpoints import fingerprint
from ..runs.files import read_checkpoint, write_checkpoint
from ..runs.history import Path, empty_history, empty_path, extend, record
from ..runs.progress import progress_bar
from ..runs.solution import History, Reason, Solution, Status
from .certify import Certificate, anchor_of, certify_dual, full_path

CHUNK = 256
"""Iterations in one chunk at the most: the length of the history buffers inside JAX."""
CHUNK_SECONDS = 0.1
"""How long Python lets JAX work before it looks at the clock, the keyboard and the callback again."""
RUNAWAY = 1e6
"""A run whose loss exceeds the first one by this factor has diverged, even if all numbers are still finite."""
WINDOW = 10
"""Iterations whose mean gap is held against the tolerance."""


@dataclass(frozen=True)
class Report:
    """What a callback sees after an iteration; `row` is that iteration's entry in the history."""

    iteration: int
    row: dict[str, float]
    particles: Particles
    moments: Moments
    iterate: Particles | None = None

    def __getattr__(self, name: str) -> float:
        try:
            return self.row[name]
        except KeyError:
            raise AttributeError(name) from None


def solve(
    problem: FiniteSum,
    solver: Solver | None = None,
    *,
    particles: int = 1000,
    iterations: int = 600,
    seed: int = 0,
    tolerance: float | None = None,
    callback: Callable[[Report], Any] | None = None,
    progress: bool = False,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    start: Solution | None = None,
    calibrate: bool = True,
) -> Solution:
    """Minimise a `FiniteSum` over probability measures.

    Args:
        problem: what to minimise.
        solver: the method; default `NewtonEFP()`.
        particles: m, the size of the cloud.
        iterations: the number of outer iterations, T.
        seed: all randomness comes from it; the same seed gives the same numbers.
        tolerance: stop once a certificate (see `certify`) bounds the distance to the optimum by this. A certificate is
            drawn up when the run's own estimate of the gap is below the tolerance, and again after half as many more
            iterations where it did not pass.
        callback: called after every iteration with a `Report`; a true return value stops the run.
        progress: show a progress bar (needs tqdm; without it, a line now and then).
        checkpoint: a file in which the run is saved every `checkpoint_seconds` and at its end, and from which it goes on if
            the file exists; the numbers are those of an uninterrupted run. A file of another run is refused.
        checkpoint_seconds: see `checkpoint`.
        start: an earlier `Solution` to go on from: its particles, and its moments where the data are the same. After a change
            of the temperature, l2 or the targets, sequential Monte Carlo first leads the cloud to the new Gibbs measure.
        calibrate: weigh the particles so that they reproduce the moments (`Solution.weights`). False leaves equal weights, and
            saves that time where a solution is only passed through.

    Returns:
        A `Solution`. Ctrl-C returns the solution so far; a run that diverges returns its last finite state.

    >>> import entroplay as ep
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, ep.EFP(rate=0.1), particles=200, iterations=100)
    >>> solution.status.reason
    <Reason.ITERATIONS: 'iterations'>
    """
    _check_arguments(problem, solver, seed, callback, start)
    solver = NewtonEFP() if solver is None else solver
    m, iterations = whole("solve", "particles", particles), whole("solve", "iterations", iterations)
    tolerance = None if tolerance is None else positive("solve", "tolerance", tolerance)
    bar = progress_bar(flag("solve", "progress", progress), iterations)
    with jax.enable_x64(problem.dtype == jnp.float64), bar as advance_bar:
        solver.check(problem, iterations)
        prior_key, run_key = jax.random.split(jax.random.key(seed))
        run = _Run(
            problem, solver, run_key, _first_cloud(problem, prior_key, m, start, solver), iterations
        )
        if checkpoint is not None:
            every = positive("solve", "checkpoint_seconds", checkpoint_seconds)
            run.keep_checkpoints(checkpoint, every, fingerprint(problem, solver, m, seed))
        status = run.drive(tolerance, callback, advance_bar)
        run.save_checkpoint(now=True)
        state, path, history = run.latest
        if flag("solve", "calibrate", calibrate):
            weights = calibrated_weights(problem, state.particles, state.moments)
        else:
            weights = jnp.full(m, 1 / m, problem.dtype)
        return Solution(
            problem=problem,
            solver=solver,
            particles=state.particles,
            moments=state.moments,
            dual=solver.dual(problem, state),
            weights=weights,
            history=history,
            status=status,
            path=jax.device_put(
                np.asarray(path.vectors)[: int(path.length)]
            ),  # cut by NumPy: no program for every length
            seed=seed,
            iterate=solver.iterate(state),
        )


def _check_arguments(
    problem: object, solver: object, seed: object, callback: object, start: object
) -> None:
    if not isinstance(problem, FiniteSum):
        raise invalid("solve", "problem", "a FiniteSum", problem)
    if problem.features.shape[0] == 0:
        raise ValueError("The problem has no rows: it was saved without its data (data=False).")
    if solver is not None and not isinstance(solver, Solver):
        raise invalid("solve", "solver", "a solver such as EFP() or MFLD()", solver)
    if whole("solve", "seed", seed, least=0) >= 2**32:
        raise invalid("solve", "seed", "a whole number from 0 to 2**32 - 1", seed)
    if callback is not None and not callable(callback):
        raise invalid("solve", "callback", "a function of one Report", callback)
    if start is not None and not isinstance(start, Solution):
        raise invalid("solve", "start", "a Solution", start)


def _first_cloud(
    problem: FiniteSum, key: PRNGKeyArray, m: int, start: Solution | None, solver: Solver
) -> Start:
    """Draws of the prior, or the cloud to start from, with moments that belong to this problem's data."""
    if start is None:
        cloud = problem.prior(key, m)
        return Start(cloud, mean_features(problem.features, cloud), warm=False)
    if start.particles.shape != (m, problem.dim):
        raise invalid(
            "solve",
            "start",
            f"a Solution with particles of shape {(m, problem.dim)}",
            start.particles.shape,
        )
    cloud = start.particles.astype(problem.dtype)
    if not bool(eqx.tree_equal(start.problem.features, problem.features)):
        return Start(cloud, mean_features(problem.features, cloud), warm=True)
    if bool(eqx.tree_equal(start.problem, problem)):
        return Start(cloud, start.moments, warm=True)
    if solver.scales_loss and (beta := _colder(problem, start)) is not None:
        return Start(cloud, start.moments, warm=True, beta=beta)
    return Start(_led_over(problem, key, cloud, start), start.moments, warm=True)


def _colder(problem: FiniteSum, start: Solution) -> float | None:
    """beta, where the problem is the earlier one at beta times its temperature and with the same prior: then the earlier Gibbs
    measure is that of beta times this problem's loss. None elsewhere.
    """
    old = start.problem
    beta = problem.temperature / old.temperature
    as_before = eqx.tree_at(lambda p: (p.temperature, p.l2), problem, (old.temperature, old.l2))
    same_prior = np.allclose(np.asarray(problem.l2), beta * np.asarray(old.l2), rtol=1e-6, atol=0)
    return beta if beta < 1 and same_prior and bool(eqx.tree_equal(as_before, old)) else None


def _led_over(
    problem: FiniteSum, key: PRNGKeyArray, cloud: Particles, start: Solution
) -> Particles:
    """The cloud of another problem's Gibbs measure, led to this problem's: the temperature, the penalty, the loss or the
    rows' weights have changed.
    """
    ratio = problem.temperature / start.problem.temperature
    weights = start.problem.weights / jnp.where(problem.weights > 0, problem.weights, 1)
    old = ratio * start.dual * weights.reshape(-1, *[1] * (start.dual.ndim - 1))
    l2 = jnp.broadcast_to(
        jnp.asarray(ratio * start.problem.l2, problem.dtype), jnp.shape(problem.l2)
    )
    return bridge(traced(problem), key, cloud, old, l2, problem.slope(start.moments))


@dataclass
class _Checkpoints:
    """Where a run is saved, how often, and as what."""

    path: str | PathLike[str]
    seconds: float
    identity: str
    saved: float = field(default_factory=time.perf_counter)

    def due(self) -> bool:
        return time.perf_counter() - self.saved >= self.seconds


class _Run:
    """A run under way. `latest` holds the last finite state with the history that led to it, replaced at one stroke,
    so that an interruption at any moment finds a consistent pair.
    """

    def __init__(
        self, problem: FiniteSum, solver: Solver, key: PRNGKeyArray, start: Start, iterations: int
    ):
        self.problem, self.solver = traced((problem, solver))
        self.given_problem, self.next_certificate = problem, 0
        self.checkpoint: _Checkpoints | None = None
        self.key = key
        self.iterations = iterations
        self.remedy = solver.remedy
        state = solver.init(problem, start, iterations)
        first_loss = float(problem.empirical_loss(state.moments))
        self.ceiling = jnp.asarray(RUNAWAY * (abs(first_loss) + problem.temperature), problem.dtype)
        self.latest: tuple[Any, Path, History] = (
            state,
            empty_path(problem),
            empty_history(problem, solver, state),
        )

    def keep_checkpoints(self, path: str | PathLike[str], seconds: float, identity: str) -> None:
        """Go on from the checkpoint if there is one, and save the run there from now on."""
        self.checkpoint = _Checkpoints(path, seconds, identity)
        found = read_checkpoint(path)
        if found is None:
            return
        state, recorded, history = self.latest
        leaves, structure = jax.tree.flatten((state, recorded))
        if found.fingerprint != identity or [x.shape for x in found.leaves] != [
            x.shape for x in leaves
        ]:
            raise ValueError(
                f"The checkpoint {path} belongs to another run: the problem, the solver, the number of particles or the seed "
                "differ. Give another path, or delete the file."
            )
        state, recorded = jax.tree.unflatten(structure, [jnp.asarray(x) for x in found.leaves])
        kept = {name: found.history[name].astype(values.dtype) for name, values in history.items()}
        self.latest = state, recorded, kept

    def save_checkpoint(self, *, now: bool = False) -> None:
        """Write the checkpoint when it is due. A full disk is no reason to lose the run: it warns and goes on."""
        if self.checkpoint is None or not (now or self.checkpoint.due()):
            return
        state, recorded, history = self.latest
        leaves = jax.tree.leaves((state, recorded))
        try:
            write_checkpoint(
                self.checkpoint.path,
                fingerprint=self.checkpoint.identity,
                iteration=self.done,
                leaves=leaves,
                history=history,
            )
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self.checkpoint.path} could not be written: {error}. The run goes on.",
                stacklevel=4,
            )
        self.checkpoint.saved = time.perf_counter()

    @property
    def done(self) -> int:
        return len(self.latest[2]["iteration"])

    def drive(
        self,
        tolerance: float | None,
        callback: Callable[[Report], Any] | None,
        advance_bar: Callable[..., None],
    ) -> Status:
        """Chunk after chunk, until there is a reason to stop."""
        count = 1
        try:
            self._advance(0)  # compiles; the clock starts afterwards
            while self.done < self.iterations:
                length = min(count, self.iterations - self.done)
                if callback is not None:
                    length = 1  # so that the callback's word takes effect at once, and the same way in every run
                elif tolerance is not None:
                    length = min(length, WINDOW - self.done % WINDOW)
                before = time.perf_counter()
                finite = self._advance(length)
                elapsed = time.perf_counter() - before
                count = int(np.clip(CHUNK_SECONDS * length / max(elapsed, 1e-9), 1, CHUNK))
                history = self.latest[2]
                if not finite:
                    return self._diverged()
                self.save_checkpoint()
                advance_bar(length, history)
                if callback is not None and callback(self._report()):
                    return Status(
                        Reason.CALLBACK, f"the callback asked to stop after iteration {self.done}."
                    )
                if tolerance is not None and self._worth_certifying(tolerance):
                    certificate = self._certify()
                    if certificate.mixed and certificate.bound <= tolerance:
                        sentence = (
                            f"certified to be at most {certificate.bound:.3g} above the optimum"
                        )
                        return Status(Reason.CONVERGED, f"{sentence} after {self.done} iterations.")
        except KeyboardInterrupt:
            return Status(
                Reason.INTERRUPTED,
                f"interrupted after {self.done} of {self.iterations} iterations; go on with start=.",
            )
        return Status(Reason.ITERATIONS, f"all {self.iterations} iterations done.")

    def _worth_certifying(self, tolerance: float) -> bool:
        """Whether the run believes to be there, at iterations that do not depend on the clock."""
        if self.done % WINDOW or self.done < self.next_certificate:
            return False
        recent = self.latest[2]["gap"][-WINDOW:]
        if not np.isnan(recent).all() and not np.nanmean(recent) <= tolerance:
            return False
        self.next_certificate = self.done + self.done // 2
        return True

    def _certify(self) -> Certificate:
        """An independent judgement of the present dual."""
        state, path, _ = self.latest
        dual = self.solver.dual(self.problem, state)
        vectors = full_path(np.asarray(path.vectors)[: int(path.length)], dual)
        problem, anchor = self.given_problem, anchor_of(self.given_problem, state.moments, dual)
        return certify_dual(
            problem, dual, anchor, vectors, state.particles, seed=self.done, size=500, budget=200
        )

    def _advance(self, length: int) -> bool:
        """Run `length` iterations; False if the last of them left the finite range (its state is not kept)."""
        state, path, history = self.latest
        before = time.perf_counter()
        first = jnp.asarray(self.done, jnp.int32)
        state, path, infos, completed, finite = _advance_chunk(
            self.problem,
            self.solver,
            self.key,
            state,
            path,
            first,
            jnp.asarray(length, jnp.int32),
            self.ceiling,
        )
        kept = int(completed)
        elapsed = time.perf_counter() - before
        if length:
            self.latest = state, path, extend(history, infos, kept, elapsed)
        return bool(finite)

    def _report(self) -> Report:
        state, _, history = self.latest
        row = {name: float(values[-1]) for name, values in history.items()}
        return Report(self.done, row, state.particles, state.moments, self.solver.iterate(state))

    def _diverged(self) -> Status:
        problem, (state, _, _) = self.problem, self.latest
        where = (
            f"iteration {self.done + 1} left the finite range, or its loss grew {RUNAWAY:g}-fold"
        )
        if not bool(
            jnp.all(
                problem.loss.domain(state.moments) & jnp.isfinite(problem.loss.value(state.moments))
            )
        ):
            return Status(
                Reason.DIVERGED,
                "some moments lie outside the loss's domain: no particle is near those rows. Widen the kernel's bandwidth "
                "or the prior (a smaller l2), or rescale the data.",
            )
        return Status(Reason.DIVERGED, f"{where}; the last finite state is returned. {self.remedy}")


@compiled
def _advance_chunk(
    problem: FiniteSum,
    solver: Solver,
    key: PRNGKeyArray,
    state: Any,
    path: Path,
    first: Array,
    length: Array,
    ceiling: Array,
) -> tuple[Any, Path, Any, Array, Array]:
    """At most `length` iterations from `first` on; stops before the first state that is not finite."""

    def iterate(state: Any, i: Array) -> tuple[Any, Any]:
        return solver.step(problem, jax.random.fold_in(key, first + i), state, first + i)

    row = jax.eval_shape(iterate, state, first)[1]
    buffers = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), row)

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, state, path, buffers, _ = carry
        new, info = iterate(state, i)
        fine = _all_finite(new) & jnp.isfinite(info.loss_moments) & (info.loss_moments <= ceiling)
        state = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, state)
        buffers = jax.tree.map(lambda buffer, value: buffer.at[i].set(value), buffers, info)
        path = record(path, solver.target(problem, state), first + i)
        return i + fine.astype(i.dtype), state, path, buffers, fine

    def going(carry: tuple[Any, ...]) -> Array:
        return (carry[0] < length) & carry[4]

    start = (jnp.zeros_like(first), state, path, buffers, jnp.asarray(True))
    completed, state, path, buffers, fine = jax.lax.while_loop(going, body, start)
    return state, path, buffers, completed, fine


def _all_finite(tree: Any) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
