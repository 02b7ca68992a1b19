"""The one loop: chunks of iterations inside JAX, driven from Python.

Between chunks Python shows progress, calls back, watches for Ctrl-C and decides whether to stop; inside a chunk nothing
leaves the device. A chunk's length is an argument of the compiled function, so that one trace serves a whole solve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .arguments import flag, invalid, positive, whole
from .features import Moments, Particles, mean_features, traced
from .problem import FiniteSum
from .solution import History, Reason, Solution, Status
from .solvers import EFP, Info, Solver

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
    start: Solution | None = None,
) -> Solution:
    """Minimise a `FiniteSum` over probability measures.

    Args:
        problem: what to minimise.
        solver: the method; default `EFP()`.
        particles: m, the size of the cloud.
        iterations: the number of outer iterations, T.
        seed: all randomness comes from it; the same seed gives the same numbers.
        tolerance: stop once the gap, averaged over ten iterations, is below this by two standard errors. It is the
            run's own estimate, which can be trusted when the chains have mixed.
        callback: called after every iteration with a `Report`; a true return value stops the run.
        progress: show a progress bar (needs tqdm; without it, a line now and then).
        start: an earlier `Solution` to go on from: its particles, and its moments where the data are the same.

    Returns:
        A `Solution`. Ctrl-C returns the solution so far; a run that diverges returns its last finite state.

    >>> import entroplay as ep
    >>> problem = ep.FiniteSum(ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8]), temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, ep.EFP(rate=0.1), particles=200, iterations=100)
    >>> solution.status.reason
    <Reason.ITERATIONS: 'iterations'>
    """
    _check_arguments(problem, solver, seed, callback, start)
    solver = EFP() if solver is None else solver
    m, iterations = whole("solve", "particles", particles), whole("solve", "iterations", iterations)
    tolerance = None if tolerance is None else positive("solve", "tolerance", tolerance)
    bar = _progress_bar(flag("solve", "progress", progress), iterations)
    with jax.enable_x64(problem.dtype == jnp.float64), bar as advance_bar:
        solver.check(problem, iterations)
        prior_key, run_key = jax.random.split(jax.random.key(seed))
        cloud, moments = _first_cloud(problem, prior_key, m, start)
        run = _Run(problem, solver, run_key, cloud, moments, iterations)
        status = run.drive(tolerance, callback, advance_bar)
        state, history = run.latest
        return Solution(
            problem=problem,
            solver=solver,
            particles=state.particles,
            moments=state.moments,
            dual=solver.dual(problem, state),
            weights=jnp.full(m, 1 / m, problem.dtype),
            history=history,
            status=status,
            seed=seed,
        )


def _check_arguments(problem: object, solver: object, seed: object, callback: object, start: object) -> None:
    if not isinstance(problem, FiniteSum):
        raise invalid("solve", "problem", "a FiniteSum", problem)
    if solver is not None and not isinstance(solver, Solver):
        raise invalid("solve", "solver", "a solver such as EFP() or MFLD()", solver)
    if whole("solve", "seed", seed, least=0) >= 2**32:
        raise invalid("solve", "seed", "a whole number from 0 to 2**32 - 1", seed)
    if callback is not None and not callable(callback):
        raise invalid("solve", "callback", "a function of one Report", callback)
    if start is not None and not isinstance(start, Solution):
        raise invalid("solve", "start", "a Solution", start)


def _first_cloud(problem: FiniteSum, key: PRNGKeyArray, m: int, start: Solution | None) -> tuple[Particles, Moments]:
    """Draws of the prior, or the cloud to start from, with moments that belong to this problem's data."""
    if start is None:
        cloud = problem.prior(key, m)
        return cloud, mean_features(problem.features, cloud)
    if start.particles.shape != (m, problem.dim):
        raise invalid("solve", "start", f"a Solution with particles of shape {(m, problem.dim)}", start.particles.shape)
    cloud = start.particles.astype(problem.dtype)
    if bool(eqx.tree_equal(start.problem.features, problem.features)):
        return cloud, start.moments
    return cloud, mean_features(problem.features, cloud)


class _Run:
    """A run under way. `latest` holds the last finite state with the history that led to it, replaced at one stroke,
    so that an interruption at any moment finds a consistent pair.
    """

    def __init__(self, problem: FiniteSum, solver: Solver, key: PRNGKeyArray, cloud: Particles, moments: Moments, iterations: int):
        self.problem, self.solver = traced((problem, solver))
        self.key = key
        self.iterations = iterations
        self.remedy = solver.remedy
        state = solver.init(problem, cloud, moments, iterations)
        first_loss = float(problem.empirical_loss(state.moments))
        self.ceiling = jnp.asarray(RUNAWAY * (abs(first_loss) + problem.temperature), problem.dtype)
        self.latest: tuple[Any, History] = (state, _empty_history())

    @property
    def done(self) -> int:
        return len(self.latest[1]["iteration"])

    def drive(self, tolerance: float | None, callback: Callable[[Report], Any] | None, advance_bar: Callable[..., None]) -> Status:
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
                history = self.latest[1]
                if not finite:
                    return self._diverged()
                advance_bar(length, history)
                if callback is not None and callback(self._report()):
                    return Status(Reason.CALLBACK, f"the callback asked to stop after iteration {self.done}.")
                if tolerance is not None and self.done % WINDOW == 0 and _below(history["gap"][-WINDOW:], tolerance):
                    return Status(Reason.CONVERGED, f"the estimated gap fell below {tolerance:g} after {self.done} iterations.")
        except KeyboardInterrupt:
            return Status(Reason.INTERRUPTED, f"interrupted after {self.done} of {self.iterations} iterations; go on with start=.")
        return Status(Reason.ITERATIONS, f"all {self.iterations} iterations done.")

    def _advance(self, length: int) -> bool:
        """Run `length` iterations; False if the last of them left the finite range (its state is not kept)."""
        state, history = self.latest
        before = time.perf_counter()
        first = jnp.asarray(self.done, jnp.int32)
        state, infos, completed, finite = _advance_chunk(
            self.problem, self.solver, self.key, state, first, jnp.asarray(length, jnp.int32), self.ceiling
        )
        kept = int(completed)
        elapsed = time.perf_counter() - before
        if length:
            self.latest = state, _extend(history, infos, kept, elapsed)
        return bool(finite)

    def _report(self) -> Report:
        state, history = self.latest
        return Report(self.done, {k: float(v[-1]) for k, v in history.items()}, state.particles, state.moments)

    def _diverged(self) -> Status:
        problem, (state, _) = self.problem, self.latest
        where = f"iteration {self.done + 1} left the finite range, or its loss grew {RUNAWAY:g}-fold"
        if not bool(jnp.all(problem.loss.domain(state.moments) & jnp.isfinite(problem.loss.value(state.moments)))):
            return Status(
                Reason.DIVERGED,
                "some moments lie outside the loss's domain: no particle is near those rows. Widen the kernel's bandwidth "
                "or the prior (a smaller l2), or rescale the data.",
            )
        return Status(Reason.DIVERGED, f"{where}; the last finite state is returned. {self.remedy}")


@eqx.filter_jit
def _advance_chunk(
    problem: FiniteSum, solver: Solver, key: PRNGKeyArray, state: Any, first: Array, length: Array, ceiling: Array
) -> tuple[Any, Info, Array, Array]:
    """At most `length` iterations from `first` on; stops before the first state that is not finite."""

    def iterate(state: Any, i: Array) -> tuple[Any, Info]:
        return solver.step(problem, jax.random.fold_in(key, first + i), state, first + i)

    row = jax.eval_shape(iterate, state, first)[1]
    buffers = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), row)

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, state, buffers, _ = carry
        new, info = iterate(state, i)
        fine = _all_finite(new) & jnp.isfinite(info.loss_moments) & (info.loss_moments <= ceiling)
        state = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, state)
        buffers = jax.tree.map(lambda buffer, value: buffer.at[i].set(value), buffers, info)
        return i + fine.astype(i.dtype), state, buffers, fine

    def going(carry: tuple[Any, ...]) -> Array:
        return (carry[0] < length) & carry[3]

    start = (jnp.zeros_like(first), state, buffers, jnp.asarray(True))
    completed, state, buffers, fine = jax.lax.while_loop(going, body, start)
    return state, buffers, completed, fine


def _all_finite(tree: Any) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _empty_history() -> History:
    names = ("iteration", *Info._fields, "seconds")
    return {name: np.zeros(0, np.int64 if name in ("iteration", "pulls", "passes") else np.float64) for name in names}


def _extend(history: History, infos: Info, kept: int, elapsed: float) -> History:
    """The history with `kept` more rows; a chunk's time is spread evenly over its iterations."""
    rows = {name: np.asarray(values)[:kept] for name, values in infos._asdict().items()}
    done = len(history["iteration"])
    rows["iteration"] = np.arange(done + 1, done + kept + 1)
    for name in ("pulls", "passes"):
        rows[name] = _last(history[name]) + np.cumsum(rows[name])
    rows["seconds"] = _last(history["seconds"]) + elapsed * np.arange(1, kept + 1) / max(kept, 1)
    return {name: np.concatenate([history[name], rows[name].astype(history[name].dtype)]) for name in history}


def _last(values: np.ndarray) -> float:
    return float(values[-1]) if len(values) else 0.0


def _below(gaps: np.ndarray, tolerance: float) -> bool:
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return bool(gaps.mean() + 2 * error <= tolerance)


@contextmanager
def _progress_bar(wanted: bool, iterations: int) -> Iterator[Callable[[int, History], None]]:
    """tqdm where it is installed, a printed line every few seconds where it is not, nothing unless asked."""
    if not wanted:
        yield lambda length, history: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        last = [time.perf_counter()]

        def line(length: int, history: History) -> None:
            if time.perf_counter() - last[0] > 5 or len(history["iteration"]) == iterations:
                last[0] = time.perf_counter()
                print(f"iteration {len(history['iteration'])} of {iterations}, {_postfix(history)}", flush=True)

        yield line
        return
    with tqdm(total=iterations, unit="it") as bar:

        def advance(length: int, history: History) -> None:
            bar.set_postfix_str(_postfix(history), refresh=False)
            bar.update(length)

        yield advance


def _postfix(history: History) -> str:
    gap = history["gap"][-1]
    loss = f"loss {history['loss_particles'][-1]:.4g}"
    return loss if np.isnan(gap) else f"{loss}, gap {gap:.2g}"
