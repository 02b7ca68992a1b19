"""`paint`: from a photograph to triangles."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..base.arguments import flag, invalid, one_of, positive, seed_number, whole
from ..methods.solvers import EFP
from ..methods.solvers.base import Start
from ..problems.features.base import Particles, mean_features
from ..problems.problem import FiniteSum
from ..runs.checkpoints import Checkpoints, read_checkpoint
from ..runs.identity import fingerprint
from ..runs.loop import Loop
from ..runs.observers import RunningMean
from ..runs.progress import progress_bar
from ..runs.solution import Status
from ..runs.stopping import Rule
from ..verbs.solve import solution_of
from .film import Camera, film_of
from .images import colour, read_image
from .painting import Painting
from .plan import Plan, efp_plan, painter_plan
from .triangle_painter import TrianglePainter, scattered_triangles
from .watching import Progress, ProgressCallback, TargetMSE, present_mse, quality

METHODS, PRESETS = ("mfld", "efp"), ("paper",)
"""Names that `method` and `preset` accept."""
ITERATIONS = 2000
"""Number of iterations unless the caller says otherwise."""
CHECKPOINT_SECONDS = 2.0
"""Time between two checkpoints: a killed painting loses at most this much."""
WARM_UP, TIMED = 10, 20
"""Iterations that are run, and then timed, to find out how many fit into a time budget."""


def paint(
    image: object,
    triangles: int = 1000,
    *,
    seconds: float | None = None,
    iterations: int | None = None,
    target_mse: float | None = None,
    seed: int = 0,
    method: str = "mfld",
    preset: str | None = None,
    size: int = 256,
    background: object = None,
    start: Painting | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool = False,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Painting:
    """Paint a photograph with transparent triangles.

    Args:
        image: a path, a Pillow image, or an array, in colour or greyscale; see
            `entroplay.painting.images.read_image`.
        triangles: m, the number of triangles.
        seconds: time budget, without compilation: a few steps are timed, and as many are taken as
            fit. `iterations` instead gives the same picture on every machine.
        iterations: the number of steps; by default 2,000.
        target_mse: stop as soon as the mean squared error is below this number.
        seed: the source of all randomness.
        method: "mfld", the interacting, cooled and greedily relocating `TrianglePainter`; or "efp",
            the paper's method.
        preset: "paper" for EFP at the setting of the paper's Figure 4: temperature 1e-5, l2 1e-4,
            2,000 iterations of 10 steps, rate 0.01, step sizes falling from 0.1 to 0.01. It is the
            same as method="efp".
        size: the longer side of the picture that is fitted; a larger photograph is reduced to it.
        background: the colour of the canvas, by name or as numbers from 0 to 1; default: the mean
            colour of the picture. It also lies behind a transparent picture, which is white by
            default.
        start: an earlier painting to continue from, with as many triangles. One that was
            interrupted is completed with the iterations it was begun for; one that was complete is
            warmed up a little and cooled again.
        callback: called several times per second with a `Progress`; a true return value stops the
            painting.
        progress: show a progress bar (with tqdm; without it, print a line every few seconds).
        checkpoint: a file in which the painting is saved every `checkpoint_seconds`. If it exists,
            the painting continues from it, with the numbers of an uninterrupted one. A file of
            another painting is refused.
        checkpoint_seconds: see `checkpoint`.

    Returns:
        A `Painting`. Ctrl-C returns the painting so far; one that diverges returns its last finite
        state.

    >>> import numpy as np, entroplay as ep
    >>> square = np.zeros((24, 24))
    >>> square[6:18, 6:18] = 1.0
    >>> painting = ep.paint(square, triangles=12, iterations=150)
    >>> painting.triangles.vertices.shape
    (12, 3, 2)
    >>> bool(painting.mse < 0.1 * square.var())
    True
    """
    m = whole("paint", "triangles", triangles)
    if preset is not None:
        one_of("paint", "preset", preset, PRESETS)
    efp = one_of("paint", "method", method, METHODS) == "efp" or preset is not None
    seed = seed_number("paint", seed)
    steps = _planned(seconds, iterations)
    rules = _rules(callback, target_mse)
    if start is not None and not isinstance(start, Painting):
        raise invalid("paint", "start", "a Painting", start)
    every = positive("paint", "checkpoint_seconds", checkpoint_seconds)
    pixels, canvas = _on_canvas(image, whole("paint", "size", size), background)
    unfinished = start is not None and not efp and _stopped_early(start)
    if start is not None and unfinished and steps is None and seconds is None:
        steps = _iterations_of(start)
    found = None if checkpoint is None or seconds is None else read_checkpoint(checkpoint)
    if found is not None:
        # The clock decided on the number of iterations when the painting was begun.
        steps, seconds = found.iterations, None

    def planned(iterations: int) -> Plan:
        if efp:
            return efp_plan(pixels - canvas, iterations)
        again = start is not None and not unfinished
        return painter_plan(pixels - canvas, m, iterations, again=again)

    first_key, run_key = jax.random.split(jax.random.key(seed))
    plan = planned(steps or ITERATIONS)
    if start is None:
        dim, dtype = plan.problem.dim, plan.problem.dtype
        cloud = scattered_triangles(first_key, m, dim, plan.spread, dtype)
    else:
        cloud = _taken_over(start, m, plan.problem)
    if seconds is not None:
        budget = positive("paint", "seconds", seconds)
        plan = planned(max(1, int(budget / _seconds_per_step(plan, run_key, cloud))))
    # A time budget makes a new schedule: an unfinished painting is then not completed but painted
    # again from its triangles.
    continued = start if unfinished and seconds is None else None
    loop = _loop(plan, run_key, cloud, continued)
    if checkpoint is not None:
        identity = fingerprint(plan.problem, plan.solver, m, seed)
        loop.keep_checkpoints(Checkpoints(checkpoint, every, identity))
    wanted = flag("paint", "progress", progress)
    with progress_bar(
        wanted, plan.iterations, describe=lambda rows: quality(present_mse(plan.problem, rows))
    ) as show_progress:
        if loop.done:
            show_progress(loop.done, loop.history)
        status = loop.drive(rules, show_progress)
    loop.save_checkpoint(now=True)
    return _painting(plan, loop, canvas, status, seed)


def _on_canvas(image: object, size: int, background: object) -> tuple[np.ndarray, np.ndarray]:
    """The picture at the size of the fit, and the colour of the canvas."""
    matte = "white" if background is None else background
    pixels = read_image(image, size=size, matte=matte)
    mean = pixels.mean(axis=(0, 1))
    canvas = mean if background is None else colour(background, len(mean))
    return pixels, np.asarray(canvas, np.float32)


def _planned(seconds: object, iterations: object) -> int | None:
    """The number of iterations that was asked for, if one was."""
    if seconds is not None and iterations is not None:
        raise invalid("paint", "seconds", "None where iterations are given", seconds)
    return None if iterations is None else whole("paint", "iterations", iterations)


def _rules(callback: Callable[[Progress], Any] | None, target_mse: object) -> list[Rule]:
    rules: list[Rule] = []
    if callback is not None:
        if not callable(callback):
            raise invalid("paint", "callback", "a function of one Progress", callback)
        rules.append(ProgressCallback(callback))
    if target_mse is not None:
        rules.append(TargetMSE(positive("paint", "target_mse", target_mse)))
    return rules


def _iterations_of(start: Painting) -> int:
    """The number of iterations over which the painter of `start` cools."""
    solver = start.solution.solver
    return round(solver.iterations) if isinstance(solver, TrianglePainter) else 0


def _stopped_early(start: Painting) -> bool:
    """Whether the painting stopped before its schedule ended, so that it can be completed."""
    return len(start.solution.history["iteration"]) < _iterations_of(start)


def _taken_over(start: Painting, m: int, problem: FiniteSum) -> Particles:
    """The triangles of an earlier painting as particles of this problem."""
    features: Any = problem.features
    if start.solution.particles.shape != (m, problem.dim):
        must_be = f"a Painting of {m} triangles in as many channels"
        raise invalid("paint", "start", must_be, start.solution.particles.shape)
    if start.features.colour != features.colour:
        must_be = f"a Painting with {features.colour} colours"
        raise invalid("paint", "start", must_be, start.features.colour)
    # What a triangle adds to the picture stays the same if the scale or the unit of length differs.
    ratio = np.array([start.features.spread / features.spread] * 6 + [1.0] * (problem.dim - 6))
    if features.colour == "linear":
        ratio[6:] = start.features.scale / features.scale
    return start.solution.particles * jnp.asarray(ratio, problem.dtype)[None]


def _loop(plan: Plan, key: PRNGKeyArray, cloud: Particles, continued: Painting | None) -> Loop:
    """The run of a plan, from its beginning or from where an unfinished painting stopped."""
    history = None if continued is None else dict(continued.solution.history)
    done = 0 if history is None else len(history["iteration"])
    stages = plan.stages
    problem = next((s.problem for s in stages if s.last > done), plan.problem)
    # The painter's solvers draw no randomness when they begin.
    start = Start(cloud, mean_features(problem.features, cloud), warm=True, key=key)
    observers = {"film": Camera(plan.iterations), "mean": RunningMean(plan.mean_rate)}
    # Compiled kernels do the work: optimising the code between them would take seconds for little.
    loop = Loop(stages, plan.solver, key, start, observers=observers, history=history, level=1)
    if continued is not None:
        camera = observers["film"]
        assert isinstance(camera, Camera)
        loop.remember("film", camera.continued(loop.memory("film"), continued.film))
    return loop


def _seconds_per_step(plan: Plan, key: PRNGKeyArray, cloud: Particles) -> float:
    """Mean time of an iteration over all stages, each tried for a few iterations."""
    total, begun = 0.0, 0
    for stage in plan.stages:
        alone = Plan(stage.problem, None, plan.solver, plan.iterations, plan.spread, plan.mean_rate)
        loop = _loop(alone, key, cloud, None)
        loop.advance(WARM_UP)  # compiles, and fills the caches
        loop.advance(TIMED)
        total += (stage.last - begun) / plan.iterations * loop.elapsed / TIMED
        begun = stage.last
    return total


def _painting(plan: Plan, loop: Loop, canvas: np.ndarray, status: Status, seed: int) -> Painting:
    """The result of a run, shown at the full size even if it ended before."""
    loop.finish_stages()
    problem, solver, state = plan.problem, plan.solver, loop.state
    solution = solution_of(loop, status, seed, calibrate=False)
    film = film_of(loop.memory("film"), loop.done, state.particles)
    # EFP's moments are a running mean themselves.
    running = state.moments if isinstance(solver, EFP) else loop.memory("mean")
    features: Any = problem.features
    mean = np.asarray(running).reshape(*features.size, features.colour_channels)
    return Painting(solution, canvas, mean, plan.mean_rate, film)
