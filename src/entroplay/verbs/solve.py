"""`solve`: minimise a `FiniteSum` over probability measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..base.arguments import flag, invalid, per_row, positive, seed_number, whole
from ..base.compilation import traced
from ..measures.calibration import prediction_weights
from ..methods.smc import bridge
from ..methods.solvers import NewtonEFP, Solver
from ..methods.solvers.base import Start
from ..problems.features.base import Particles, mean_features
from ..problems.problem import FiniteSum
from ..runs.checkpoints import Checkpoints
from ..runs.identity import fingerprint
from ..runs.loop import Loop, Stage
from ..runs.observers import DualPath, Observer
from ..runs.progress import progress_bar
from ..runs.solution import Solution, Status
from ..runs.stopping import Callback, Report, Rule, Tolerance
from .certificate import Certificate
from .certify import Dual, certify_dual

START = 0x73746172
"""Separates the randomness of a solver's `init` from the draws of the prior."""

PARTICLES, MOST_PARTICLES = 1000, 8192
"""Number of particles with which a run begins by default, and up to which it may go."""


def solve(
    problem: FiniteSum,
    solver: Solver | None = None,
    *,
    particles: int | None = None,
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
        particles: m, the size of the cloud. By default 1000, or as many as `start` has; `NewtonEFP`
            then adds as many as a low temperature needs, up to 8192. A given number stays: where it
            is too small, the run ends at a higher temperature, and its status says so.
        iterations: T, the number of outer iterations.
        seed: the source of all randomness; the same seed gives the same numbers.
        tolerance: stop once a certificate (see `certify`) bounds the distance to the optimum by
            this number. A certificate is made when the run's own estimate of the gap is below the
            tolerance, and again after half as many more iterations if it did not pass.
        callback: called after every iteration with a `Report`; a true return value stops the run.
        progress: show a progress bar (with tqdm; without it, print a line every few seconds).
        checkpoint: a file in which the run is saved every `checkpoint_seconds` and at its end. If
            it exists, the run continues from it, with the numbers of an uninterrupted run. A file
            of another run is refused.
        checkpoint_seconds: see `checkpoint`.
        start: an earlier `Solution` to continue from: its particles, and its moments if the data
            are the same. After a change of the temperature, l2 or the targets, sequential Monte
            Carlo first leads the cloud to the new Gibbs measure.
        calibrate: weigh the particles so that they reproduce the moments (`Solution.weights`).
            False leaves equal weights and saves time if the solution is an intermediate result.

    Returns:
        A `Solution`. Ctrl-C returns the solution so far; a run that diverges returns its last
        finite state.

    >>> import entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, ep.EFP(rate=0.1), particles=200, iterations=100)
    >>> solution.status.reason
    <Reason.ITERATIONS: 'iterations'>
    """
    _check_arguments(problem, solver, callback, start)
    rules: list[Rule] = []
    if callback is not None:
        rules.append(Callback(callback))
    if tolerance is not None:
        rules.append(Tolerance(positive("solve", "tolerance", tolerance), _certificate))
    calibrate = flag("solve", "calibrate", calibrate)
    seconds = positive("solve", "checkpoint_seconds", checkpoint_seconds)
    loop, status = run(
        problem,
        NewtonEFP() if solver is None else solver,
        particles=None if particles is None else whole("solve", "particles", particles),
        iterations=whole("solve", "iterations", iterations),
        seed=seed_number("solve", seed),
        start=start,
        rules=rules,
        progress=flag("solve", "progress", progress),
        checkpoint=None if checkpoint is None else (checkpoint, seconds),
    )
    return solution_of(loop, status, seed, calibrate=calibrate)


def run(
    problem: FiniteSum,
    solver: Solver,
    *,
    particles: int | None,
    iterations: int,
    seed: int,
    most: int = MOST_PARTICLES,
    start: Solution | None = None,
    observers: Mapping[str, Observer] | None = None,
    rules: Sequence[Rule] = (),
    progress: bool = False,
    checkpoint: tuple[str | PathLike[str], float] | None = None,
) -> tuple[Loop, Status]:
    """The run behind `solve`, with observers and stopping rules; arguments are not checked again.

    `checkpoint` is a path and the seconds between two saves. Without a number of particles the
    cloud may grow, up to `most`.
    """
    if particles is None:
        m = PARTICLES if start is None else start.particles.shape[0]
    else:
        m = most = particles
    with problem.arithmetic(), progress_bar(progress, iterations) as show_progress:
        solver.check(problem, iterations)
        prior_key, run_key = jax.random.split(jax.random.key(seed))
        loop = Loop(
            [Stage(problem, iterations)],
            solver,
            run_key,
            # Not kept under a name: the first cloud's memory is free once the particles have moved.
            _first_cloud(problem, prior_key, m, start, solver)._replace(most=most),
            observers={"path": DualPath(), **(observers or {})},
        )
        if checkpoint is not None:
            identity = fingerprint(problem, solver, particles or 0, seed)
            loop.keep_checkpoints(Checkpoints(*checkpoint, identity))
        status = loop.drive(rules, show_progress)
        loop.save_checkpoint(now=True)
    return loop, status


def solution_of(loop: Loop, status: Status, seed: int, *, calibrate: bool) -> Solution:
    """The result of a run, with calibrated or with equal weights."""
    problem, solver, state = loop.problem, loop.solver, loop.state
    m = state.particles.shape[0]
    if "path" in loop.observers:
        path = loop.memory("path").recorded()
    else:
        path = np.zeros((0, *problem.features.shape), problem.dtype)
    with problem.arithmetic():
        if calibrate:
            weights, complaint = prediction_weights(problem, state.particles, state.moments)
            if complaint:
                status = Status(status.reason, f"{status.message} {complaint}")
        else:
            weights = jnp.full(m, 1 / m, problem.dtype)
        return Solution(
            problem=problem,
            solver=solver,
            particles=state.particles,
            moments=state.moments,
            dual=solver.dual(problem, state),
            weights=weights,
            history=loop.history,
            status=status,
            path=jax.device_put(path),
            seed=seed,
            iterate=solver.iterate(state),
        )


def _certificate(loop: Loop) -> Certificate:
    """An independent judgement of the run's present dual."""
    state, problem = loop.state, loop.problem
    dual = loop.solver.dual(problem, state)
    recorded = loop.memory("path").recorded()
    judged = Dual.of(problem, dual, state.moments, recorded)
    return certify_dual(problem, judged, state.particles, seed=loop.done)


def _check_arguments(problem: object, solver: object, callback: object, start: object) -> None:
    if not isinstance(problem, FiniteSum):
        raise invalid("solve", "problem", "a FiniteSum", problem)
    problem.needs_rows("solve")
    if solver is not None and not isinstance(solver, Solver):
        raise invalid("solve", "solver", "a solver such as EFP() or MFLD()", solver)
    if callback is not None and not callable(callback):
        raise invalid("solve", "callback", "a function of one Report", callback)
    if start is not None and not isinstance(start, Solution):
        raise invalid("solve", "start", "a Solution", start)


def _first_cloud(
    problem: FiniteSum, key: PRNGKeyArray, m: int, start: Solution | None, solver: Solver
) -> Start:
    """Draws of the prior, or the cloud of `start`, with moments for this problem's data."""
    init_key = jax.random.fold_in(key, START)
    if start is None:
        cloud = problem.prior(key, m)
        return Start(cloud, mean_features(problem.features, cloud), warm=False, key=init_key)
    if start.particles.shape != (m, problem.dim):
        must_be = f"a Solution with particles of shape {(m, problem.dim)}"
        raise invalid("solve", "start", must_be, start.particles.shape)
    cloud = start.particles.astype(problem.dtype)
    if not bool(eqx.tree_equal(start.problem.features, problem.features)):
        return Start(cloud, mean_features(problem.features, cloud), warm=True, key=init_key)
    if bool(eqx.tree_equal(start.problem, problem)):
        return Start(cloud, start.moments, warm=True, key=init_key)
    if solver.turns_on_loss and (beta := _colder(problem, start)) is not None:
        return Start(cloud, start.moments, warm=True, key=init_key, beta=beta)
    cloud = _led_over(problem, key, cloud, start)
    return Start(cloud, start.moments, warm=True, key=init_key)


def _colder(problem: FiniteSum, start: Solution) -> float | None:
    """beta, if the problem is the earlier one at beta times its temperature, with the same prior.

    The Gibbs measure of the earlier problem is then that of beta times this problem's loss, so a
    method that turns the loss on gradually can begin there. None otherwise.
    """
    old = start.problem
    beta = problem.temperature / old.temperature
    as_before = eqx.tree_at(lambda p: (p.temperature, p.l2), problem, (old.temperature, old.l2))
    penalties = np.asarray(problem.l2), beta * np.asarray(old.l2)
    same_prior = np.allclose(*penalties, rtol=1e-6, atol=0)
    same_otherwise = bool(eqx.tree_equal(as_before, old))
    return beta if beta < 1 and same_prior and same_otherwise else None


def _led_over(
    problem: FiniteSum, key: PRNGKeyArray, cloud: Particles, start: Solution
) -> Particles:
    """The cloud of another problem's Gibbs measure, led to this problem's.

    The temperature, the penalty, the loss or the rows' weights have changed. The old measure is
    written as one of this problem: exp(-U / T') = exp(-(T / T') U / T), with the old weights of the
    rows moved into the dual.
    """
    old = start.problem
    ratio = problem.temperature / old.temperature
    weights = old.weights / jnp.where(problem.weights > 0, problem.weights, 1)
    dual = ratio * start.dual * per_row(weights, start.dual)
    l2 = jnp.broadcast_to(jnp.asarray(ratio * old.l2, problem.dtype), jnp.shape(problem.l2))
    return bridge(traced(problem), key, cloud, dual, l2, problem.slope(start.moments))
