"""The loop: chunks of iterations inside JAX, driven from Python.

Between chunks Python shows progress, saves checkpoints, consults the stopping rules and watches for
Ctrl-C; inside a chunk nothing leaves the device. The length of a chunk is an argument of the
compiled function, so one trace serves a whole run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..base.compilation import traced
from ..methods.solvers import Solver
from ..methods.solvers.base import Start
from ..problems.features.base import mean_features
from ..problems.problem import FiniteSum
from .checkpoints import Checkpoints, read_checkpoint
from .chunk import ADVANCE, CHUNK
from .history import as_history, empty_history, extend
from .observers import Observer
from .solution import History, Reason, Status
from .stopping import Rule

CHUNK_SECONDS = 0.1
"""Time for which Python lets JAX work before it looks at the clock and the keyboard again."""
RUNAWAY = 1e6
"""Factor by which the loss may exceed the first one; beyond it a run has diverged."""


class Stage(NamedTuple):
    """A problem, and the iteration (counted from the beginning of the run) at which it ends.

    A later stage may see the same particles through other features, such as a larger picture.
    """

    problem: FiniteSum
    last: int


class Snapshot(NamedTuple):
    """A consistent view of a run: its stage, its state, its observers' memories, its history."""

    stage: int
    state: Any
    memories: dict[str, Any]
    history: History


class Loop:
    """A run under way.

    `latest` holds the last finite snapshot. It is replaced as a whole, so an interruption at any
    moment finds a state and the history that led to it.

    Args:
        stages: what to solve, one after the other; most runs have one stage.
        solver: the method.
        key: randomness of all iterations; iteration t uses `fold_in(key, t)`.
        start: the first cloud.
        observers: what to remember inside the compiled loop, by name.
        history: rows of an earlier run that this one continues.
        level: XLA's optimisation level, see `compiled`.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        solver: Solver,
        key: PRNGKeyArray,
        start: Start,
        *,
        observers: Mapping[str, Observer] | None = None,
        history: History | None = None,
        level: int = 2,
    ):
        self.stages, self.solver, self.key = tuple(stages), solver, key
        self.start_key = start.key
        self.observers = dict(observers or {})
        self.checkpoints: Checkpoints | None = None
        self._chunk = ADVANCE[level]
        self.elapsed = 0.0  # seconds that the last chunk took
        history = empty_history() if history is None else history
        self.latest = self._beginning(self._stage_after(len(history["iteration"])), start, history)
        first_loss = float(self.problem.empirical_loss(self.state.moments))
        ceiling = RUNAWAY * (abs(first_loss) + self.problem.temperature)
        self.ceiling = jnp.asarray(ceiling, self.problem.dtype)

    @property
    def done(self) -> int:
        """Number of iterations done."""
        return len(self.latest.history["iteration"])

    @property
    def iterations(self) -> int:
        """Number of iterations planned."""
        return self.stages[-1].last

    @property
    def problem(self) -> FiniteSum:
        """The problem of the present stage."""
        return self.stages[self.latest.stage].problem

    @property
    def state(self) -> Any:
        return self.latest.state

    @property
    def size(self) -> int:
        """Number of particles."""
        return self.state.particles.shape[0]

    @property
    def history(self) -> History:
        return self.latest.history

    def memory(self, observer: str) -> Any:
        """What this observer has remembered."""
        return self.latest.memories[observer]

    def remember(self, observer: str, memory: Any) -> None:
        """Give an observer the memory of an earlier run that this one continues."""
        memories = self.latest.memories | {observer: memory}
        self.latest = self.latest._replace(memories=memories)

    def drive(
        self,
        rules: Sequence[Rule] = (),
        show_progress: Callable[[int, History], None] = lambda length, history: None,
    ) -> Status:
        """Run chunk after chunk until there is a reason to stop."""
        count, compiled = 1, None
        try:
            while self.done < self.iterations:
                if (self.latest.stage, self.size) != compiled:
                    self.advance(0)  # compiles; the clock of the history starts afterwards
                    count, compiled = 1, (self.latest.stage, self.size)
                until_stage_ends = self.stages[self.latest.stage].last - self.done
                looks = [rule.interval(self.done) for rule in rules]
                length = min(count, until_stage_ends, *looks)
                before = self.done
                status = self.advance(length)
                # Chunks grow until they take about CHUNK_SECONDS.
                count = int(np.clip(CHUNK_SECONDS * length / self.elapsed, 1, CHUNK))
                if self.done > before:
                    show_progress(self.done - before, self.history)
                    self.save_checkpoint()
                # Lazily: no rule is asked once there is a reason to stop.
                verdicts = (rule.verdict(self) for rule in rules)
                status = status or next((v for v in verdicts if v is not None), None)
                status = status or self._attend()
                if status is not None:
                    return status
                self.latest = self._following()
        except KeyboardInterrupt:
            return Status(
                Reason.INTERRUPTED,
                f"interrupted after {self.done} of {self.iterations} iterations; "
                "go on with start=.",
            )
        return Status(Reason.ITERATIONS, f"all {self.iterations} iterations done.")

    def advance(self, length: int) -> Status | None:
        """Run at most `length` iterations; returns why the run must end with them, if it must.

        The state of an iteration that left the finite range is not kept. A length of zero only
        compiles the chunk.
        """
        stage, state, memories, history = self.latest
        began = time.perf_counter()
        first = jnp.asarray(self.done, jnp.int32)
        problem, solver, observers = traced((self.problem, self.solver, self.observers))
        outcome = self._chunk(
            problem,
            solver,
            observers,
            self.key,
            state,
            memories,
            first,
            jnp.asarray(length, jnp.int32),
            self.ceiling,
        )
        kept, finite = int(outcome.completed), bool(outcome.finite)
        self.elapsed = max(time.perf_counter() - began, 1e-9)
        if length:
            history = extend(history, outcome.infos, kept, self.elapsed)
            self.latest = Snapshot(stage, outcome.state, outcome.memories, history)
        if not finite:
            return self._diverged()
        if length:
            for name, observer in self.observers.items():
                if bool(observer.satisfied(self.memory(name))):
                    return observer.status(self.memory(name), self.done)
        return None

    def _attend(self) -> Status | None:
        """Let the solver help a state that waits; returns why the run ends with it, if it does."""
        if self.done == self.iterations or not bool(self.solver.waits(self.state)):
            return None
        # Iterations use the numbers from zero on, so these are different from all of them.
        key = jax.random.fold_in(self.start_key, self.done)
        state, message = self.solver.resumed(self.problem, key, self.state)
        if message is not None:
            return Status(Reason.TOO_COLD, message)
        self._replace_state(state)
        return None

    def _replace_state(self, state: Any) -> None:
        """Go on from another state of the same stage, whose arrays may have other shapes."""
        memories = dict(self.latest.memories)
        for name, observer in self.observers.items():
            empty = observer.init(self.problem, state)
            shapes = (jax.tree.map(np.shape, tree) for tree in (empty, memories[name]))
            # Memories that do not depend on the size of the cloud stay.
            memories[name] = memories[name] if len(set(map(str, shapes))) == 1 else empty
        self.latest = self.latest._replace(state=state, memories=memories)

    def keep_checkpoints(self, checkpoints: Checkpoints) -> None:
        """Continue from the checkpoint if there is one, and save the run there from now on."""
        self.checkpoints = checkpoints
        found = read_checkpoint(checkpoints.path)
        if found is None:
            return
        stage = self._stage_after(found.iteration)
        if stage != self.latest.stage:
            self.latest = self._restarted(stage)
        shape = (found.particles, self.problem.dim)
        if found.particles != self.size and shape in map(np.shape, found.leaves):
            # The cloud has grown; only the shapes matter here.
            particles = jnp.resize(self.state.particles, shape)
            start = Start(particles, self.state.moments, warm=True, key=self.start_key)
            self._replace_state(self.solver.init(self.problem, start, self.iterations))
        state, memories = checkpoints.resume((self.state, self.latest.memories), found)
        self.latest = Snapshot(stage, state, memories, as_history(found.history))

    def save_checkpoint(self, *, now: bool = False) -> None:
        """Save the run if it keeps checkpoints and one is due, or `now`."""
        if self.checkpoints is not None:
            # At the end of a stage the next one is saved: a run that continues begins with it.
            _, state, memories, history = self._following()
            self.checkpoints.save((state, memories), history, self.iterations, self.size, now=now)

    def finish_stages(self) -> None:
        """Show the last stage the present particles, if the run ended before it."""
        if self.latest.stage != len(self.stages) - 1:
            self.latest = self._restarted(len(self.stages) - 1)

    def _stage_after(self, done: int) -> int:
        """The stage of the iteration that follows `done` iterations; the last one at the end."""
        later = [i for i, stage in enumerate(self.stages) if stage.last > done]
        return later[0] if later else len(self.stages) - 1

    def _following(self) -> Snapshot:
        """The present snapshot, or the beginning of the next stage if its stage is complete."""
        stage = self._stage_after(self.done)
        return self.latest if stage == self.latest.stage else self._restarted(stage)

    def _restarted(self, stage: int) -> Snapshot:
        """The beginning of another stage, with the particles as they are."""
        particles = self.state.particles
        moments = mean_features(self.stages[stage].problem.features, particles)
        start = Start(particles, moments, warm=True, key=self.start_key)
        earlier, snapshot = self.latest.memories, self._beginning(stage, start, self.history)
        memories = {
            name: observer.restart(earlier[name], self.stages[stage].problem, snapshot.state)
            for name, observer in self.observers.items()
        }
        return snapshot._replace(memories=memories)

    def _beginning(self, stage: int, start: Start, history: History) -> Snapshot:
        problem = self.stages[stage].problem
        state = self.solver.init(problem, start, self.iterations)
        memories = {name: o.init(problem, state) for name, o in self.observers.items()}
        return Snapshot(stage, state, memories, history)

    def _diverged(self) -> Status:
        loss, moments = self.problem.loss, self.state.moments
        inside = loss.domain(moments) & jnp.isfinite(loss.value(moments))
        if not bool(jnp.all(inside)):
            return Status(
                Reason.DIVERGED,
                "some moments lie outside the loss's domain: no particle is near those rows. Widen "
                "the kernel's bandwidth or the prior (a smaller l2), or rescale the data.",
            )
        return Status(
            Reason.DIVERGED,
            f"iteration {self.done + 1} left the finite range, or its loss grew {RUNAWAY:g}-fold; "
            f"the last finite state is returned. {self.solver.remedy}",
        )
