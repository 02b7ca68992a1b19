"""`paint`: from a photograph to triangles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..base.arguments import flag, invalid, one_of, positive, whole
from ..base.compilation import compiled, traced
from ..methods.samplers.base import ULA
from ..methods.solvers import EFP, Solver
from ..methods.solvers.base import Start
from ..problems.features.base import Particles, mean_features
from ..problems.features.triangles import Triangles
from ..problems.losses.base import Squared
from ..problems.problem import FiniteSum
from ..runs.history import empty_history, extend
from ..runs.solution import History, Reason, Solution, Status
from .images import colour, read_image
from .painting import Film, Painting, psnr
from .triangle_painter import CosineSteps, TrianglePainter, scattered_triangles

METHODS, PRESETS = ("mfld", "efp"), ("paper",)
FRAMES, LAST_FRAMES = 80, 20
"""Snapshots of the film, at iterations ever further apart; and those of the last hundred iterations, evenly spaced."""
COARSE_SHARE, COARSE_FROM, COARSE_TRIANGLES = 0.4, 128, 500
"""The share of the iterations that is painted at half the size, where the shorter side has at least so many pixels and there are
at least so many triangles."""
AGAIN = 0.1
"""The share of the first temperature at which a finished painting is taken up again."""
MEAN_RATE = 0.02
"""The weight of the newest picture in the painter's running mean."""
CHUNK_SECONDS, LONGEST_CHUNK = 0.15, 200


@dataclass(frozen=True)
class Progress:
    """What a callback hears now and then."""

    iteration: int
    iterations: int
    seconds: float
    mse: float
    """Of the triangles as they are, not clipped to [0, 1]."""

    def __str__(self) -> str:
        return f"{self.iteration} of {self.iterations}, {self.seconds:.1f} s, MSE {self.mse:.6f}, PSNR {psnr(self.mse):.1f} dB"


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
) -> Painting:
    """Paint a photograph with transparent triangles.

    Args:
        image: a path, a Pillow image, or an array, in colour or greyscale; see `entroplay.painting.images.read_image`.
        triangles: m, how many.
        seconds: how long to paint, compilation not counted: a few steps are timed, and so many taken as fit. `iterations`
            instead gives the same picture on every machine.
        iterations: the number of steps; by default 2,000.
        target_mse: stop as soon as the mean squared error is below this.
        seed: all randomness comes from it.
        method: "mfld", the interacting, cooled and greedily relocating `TrianglePainter`; or "efp", the paper's method.
        preset: "paper" for EFP at the setting of the paper's Figure 4: temperature 1e-5, l2 1e-4, 2,000 iterations of 10 steps,
            rate 0.01, step sizes falling from 0.1 to 0.01.
        size: the longer side of the picture that is fitted; a larger photograph is reduced to that.
        background: the colour of the canvas, by name or as numbers from 0 to 1; default: the picture's mean colour. It also
            lies behind a transparent picture, which is white by default.
        start: an earlier painting to go on from, with as many triangles. One that was interrupted is finished, with the
            iterations it was begun for; one that was finished is warmed up a little and cooled again.
        callback: called now and then with a `Progress`; a true return value stops the painting.
        progress: print a line now and then.

    Returns:
        A `Painting`. Ctrl-C returns what there is.

    >>> import numpy as np, entroplay as ep
    >>> square = np.zeros((24, 24))
    >>> square[6:18, 6:18] = 1.0
    >>> painting = ep.paint(square, triangles=12, iterations=150)
    >>> painting.triangles.vertices.shape
    (12, 3, 2)
    >>> bool(painting.mse < 0.1 * square.var())
    True
    """
    m, paper = whole("paint", "triangles", triangles), preset is not None
    if paper:
        one_of("paint", "preset", preset, PRESETS)
    efp = one_of("paint", "method", method, METHODS) == "efp" or paper
    if whole("paint", "seed", seed, least=0) >= 2**32:
        raise invalid("paint", "seed", "a whole number from 0 to 2**32 - 1", seed)
    if seconds is not None and iterations is not None:
        raise invalid("paint", "seconds", "None where iterations are given", seconds)
    if callback is not None and not callable(callback):
        raise invalid("paint", "callback", "a function of one Progress", callback)
    limit = None if target_mse is None else positive("paint", "target_mse", target_mse)
    tell = _told(callback, flag("paint", "progress", progress))
    steps = whole("paint", "iterations", iterations) if iterations is not None else 2000
    pixels = read_image(
        image,
        size=whole("paint", "size", size),
        matte="white" if background is None else background,
    )
    canvas = np.asarray(
        pixels.mean(axis=(0, 1)) if background is None else colour(background, pixels.shape[2]),
        np.float32,
    )
    first_key, run_key = jax.random.split(jax.random.key(seed))
    unfinished = start is not None and _unfinished(start, efp)
    if start is not None and unfinished and iterations is None and seconds is None:
        solver: Any = start.solution.solver
        steps = round(solver.iterations)
    if efp:
        plan = _efp_plan(pixels - canvas, steps)
    else:
        plan = _painter_plan(pixels - canvas, m, steps, again=start is not None and not unfinished)
    if start is None:
        cloud = scattered_triangles(first_key, m, plan.problem.dim, plan.spread, plan.problem.dtype)
    else:
        cloud = _started(start, m, plan.problem)
    run = _Run(plan, run_key, cloud, seed, limit)
    if start is not None and unfinished and seconds is None:
        run.take_up(start)
    if seconds is not None:
        run.fit_into(positive("paint", "seconds", seconds))
    status = run.drive(tell)
    return run.painting(canvas, status)


def _told(callback: Callable[[Progress], Any] | None, progress: bool) -> Callable[[Progress], bool]:
    last = -np.inf

    def tell(report: Progress) -> bool:
        nonlocal last
        if progress and (report.seconds - last > 1 or report.iteration == report.iterations):
            last = report.seconds
            print(report, flush=True)
        return callback is not None and bool(callback(report))

    return tell


def _unfinished(start: object, efp: bool) -> bool:
    """Whether the painting stopped before its time, so that the same schedule can be followed to its end."""
    if not isinstance(start, Painting):
        raise invalid("paint", "start", "a Painting", start)
    solver: Any = start.solution.solver
    early = (
        isinstance(solver, TrianglePainter)
        and len(start.solution.history["iteration"]) < solver.iterations
    )
    return early and not efp


def _started(start: Painting, m: int, problem: FiniteSum) -> Particles:
    features: Any = problem.features
    if start.solution.particles.shape != (m, problem.dim):
        raise invalid(
            "paint",
            "start",
            f"a Painting of {m} triangles in as many channels",
            start.solution.particles.shape,
        )
    if start.features.colour != features.colour:
        raise invalid(
            "paint", "start", f"a Painting with {features.colour} colours", start.features.colour
        )
    # What a triangle adds to the picture stays the same where the scale or the unit of length is another.
    ratio = np.array([start.features.spread / features.spread] * 6 + [1.0] * (problem.dim - 6))
    if features.colour == "linear":
        ratio[6:] = start.features.scale / features.scale
    return start.solution.particles * jnp.asarray(ratio, problem.dtype)[None]


@dataclass(frozen=True)
class _Plan:
    """What to solve and how; the first iterations perhaps on a smaller picture."""

    problem: FiniteSum
    coarse: FiniteSum | None
    solver: Solver
    iterations: int
    spread: float
    mean_rate: float

    @property
    def coarse_iterations(self) -> int:
        return 0 if self.coarse is None else int(COARSE_SHARE * self.iterations)


def _problem(pixels: np.ndarray, temperature: float, l2: float, **options: Any) -> FiniteSum:
    height, width, channels = pixels.shape
    features = Triangles((height, width), channels=channels, **options)
    return FiniteSum(
        features, Squared(pixels.reshape(features.shape)), temperature=temperature, l2=l2
    )


def _painter_plan(pixels: np.ndarray, m: int, iterations: int, *, again: bool) -> _Plan:
    """The temperature follows the picture's contrast; the prior stays fixed, l2 = 1.5 temperature. Painting `again` what was
    finished before begins cooler and with shorter steps.
    """
    contrast = max(float(np.mean(pixels**2)), 1e-6)
    solver = TrianglePainter(iterations)
    temperature = 0.0017 * pixels.shape[2] * contrast / solver.heat
    if again:
        solver = TrianglePainter(
            iterations, heat=AGAIN * solver.heat, corner_step=0.3 * 0.008, colour_step=0.3 * 0.06
        )
    problem = _problem(pixels, temperature, 1.5 * temperature, scale=59 * contrast**0.5)
    height, width = pixels.shape[:2]
    coarse = None
    if min(height, width) >= COARSE_FROM and m >= COARSE_TRIANGLES and not again:
        small = (
            pixels[: height // 2 * 2, : width // 2 * 2]
            .reshape(height // 2, 2, width // 2, 2, -1)
            .mean(axis=(1, 3))
        )
        coarse = _problem(small, temperature, 1.5 * temperature, scale=59 * contrast**0.5)
    return _Plan(problem, coarse, solver, iterations, 1.0, MEAN_RATE)


def _efp_plan(pixels: np.ndarray, iterations: int) -> _Plan:
    """The paper's setting. It leaves the parameterisation open; this one works at its step sizes."""
    solver = EFP(0.01, ULA(step_size=CosineSteps(0.1, 0.01, float(iterations)), steps=10))
    problem = _problem(pixels, 1e-5, 1e-4, scale=PAPER_SCALE, spread=PAPER_SPREAD, colour="tanh")
    return _Plan(problem, None, solver, iterations, PAPER_SPREAD, 0.01)


PAPER_SCALE, PAPER_SPREAD = 10.0, 1.0
"""Colours and unit of length of the paper's preset, see the documentation."""


class _Run:
    """A painting under way."""

    def __init__(
        self, plan: _Plan, key: PRNGKeyArray, cloud: Particles, seed: int, target_mse: float | None
    ):
        self.plan, self.key, self.cloud, self.seed, self.target_mse = (
            plan,
            key,
            cloud,
            seed,
            target_mse,
        )
        self.done = 0
        self.history: History | None = None
        self.frames: list[tuple[int, np.ndarray]] = []
        self.state: Any = None
        self.mean: Any = None

    def take_up(self, start: Painting) -> None:
        """Go on where an unfinished painting stopped, its history and film included."""
        self.history = dict(start.solution.history)
        self.done = len(self.history["iteration"])
        self.frames = list(zip(start.film.iterations.tolist(), start.film.particles, strict=True))

    def fit_into(self, seconds: float) -> None:
        """Choose the number of iterations by the clock: time a few, and begin anew."""
        share = self.plan.coarse_iterations / self.plan.iterations
        per_step = 0.0
        for problem, weight in ((self.plan.coarse, share), (self.plan.problem, 1 - share)):
            if problem is None or weight == 0:
                continue
            self._begin(problem)
            self._advance(problem, 10)
            before = time.perf_counter()
            self._advance(problem, 20)
            per_step += weight * (time.perf_counter() - before) / 20
        iterations = max(1, int(seconds / per_step))
        solver: Any = self.plan.solver
        if isinstance(solver, TrianglePainter):
            solver = eqx.tree_at(lambda s: s.iterations, solver, float(iterations))
        self.plan = _Plan(
            self.plan.problem,
            self.plan.coarse,
            solver,
            iterations,
            self.plan.spread,
            self.plan.mean_rate,
        )
        self.done, self.history, self.frames, self.state = 0, None, [], None

    def drive(self, tell: Callable[[Progress], bool]) -> Status:
        plan = self.plan
        stops = _snapshots(plan.iterations)
        try:
            for problem, last in (
                (plan.coarse, plan.coarse_iterations),
                (plan.problem, plan.iterations),
            ):
                if problem is None or last <= self.done:
                    continue
                self._begin(problem)
                self._advance(problem, 0)
                count = 1
                while self.done < last:
                    following = next(s for s in stops if s > self.done)
                    length = min(count, following - self.done, last - self.done)
                    before = time.perf_counter()
                    if not self._advance(problem, length):
                        return Status(
                            Reason.DIVERGED,
                            f"left the finite range after iteration {self.done}. {plan.solver.remedy}",
                        )
                    elapsed = time.perf_counter() - before
                    count = int(
                        np.clip(CHUNK_SECONDS * length / max(elapsed, 1e-9), 1, LONGEST_CHUNK)
                    )
                    history = self._history()
                    features: Any = problem.features
                    mse = 2 * float(history["loss_particles"][-1]) / features.colour_channels
                    if self.done in stops:
                        self.frames.append((self.done, np.asarray(self.state.particles)))
                    if tell(
                        Progress(self.done, plan.iterations, float(history["seconds"][-1]), mse)
                    ):
                        return Status(
                            Reason.CALLBACK,
                            f"the callback asked to stop after iteration {self.done}.",
                        )
                    if (
                        self.target_mse is not None
                        and mse <= self.target_mse
                        and problem is plan.problem
                    ):
                        return Status(
                            Reason.CONVERGED,
                            f"the mean squared error {mse:.6f} is below {self.target_mse:g}.",
                        )
        except KeyboardInterrupt:
            return Status(
                Reason.INTERRUPTED,
                f"interrupted after {self.done} of {plan.iterations} iterations.",
            )
        return Status(Reason.ITERATIONS, f"all {plan.iterations} iterations done.")

    def _begin(self, problem: FiniteSum) -> None:
        cloud = self.cloud if self.state is None else self.state.particles
        moments = mean_features(problem.features, cloud)
        self.state = self.plan.solver.init(
            problem, Start(cloud, moments, warm=False), self.plan.iterations
        )
        self.mean = moments
        if self.history is None:
            self.history = empty_history(problem, self.plan.solver, self.state)

    def _advance(self, problem: FiniteSum, count: int) -> bool:
        """`count` iterations; False if they left the finite range, in which case what was there before is kept."""
        before = time.perf_counter()
        first, length = jnp.asarray(self.done, jnp.int32), jnp.asarray(count, jnp.int32)
        rate = jnp.asarray(self.plan.mean_rate, problem.dtype)
        problem, solver = traced((problem, self.plan.solver))
        state, mean, infos = _advance_chunk(
            problem, solver, self.key, self.state, self.mean, first, length, rate
        )
        if not np.isfinite(np.asarray(state.particles)).all():
            return False
        if count:
            history = extend(self._history(), infos, count, time.perf_counter() - before)
            self.state, self.mean, self.history, self.done = state, mean, history, self.done + count
        return True

    def _history(self) -> History:
        assert self.history is not None
        return self.history

    def painting(self, canvas: np.ndarray, status: Status) -> Painting:
        problem, solver = self.plan.problem, self.plan.solver
        if self.state is None or self.state.moments.shape != problem.features.shape:
            self._begin(problem)  # it ended while the picture was still small
        state: Any = self.state
        m = self.cloud.shape[0]
        if not self.frames or self.frames[-1][0] != self.done:
            self.frames.append((self.done, np.asarray(state.particles)))
        solution = Solution(
            problem=problem,
            solver=solver,
            particles=state.particles,
            moments=state.moments,
            dual=solver.dual(problem, state),
            weights=jnp.full(m, 1 / m, problem.dtype),
            history=self._history(),
            status=status,
            path=jnp.zeros((0, *problem.features.shape), problem.dtype),
            seed=self.seed,
            iterate=solver.iterate(state),
        )
        film = Film(np.array([i for i, _ in self.frames]), np.stack([p for _, p in self.frames]))
        features: Any = problem.features
        running = state.moments if isinstance(solver, EFP) else self.mean
        mean = np.asarray(running).reshape(*features.size, features.colour_channels)
        return Painting(solution, canvas, mean, self.plan.mean_rate, film)


def _snapshots(iterations: int) -> list[int]:
    """The iterations after which the film takes a picture."""
    early = np.geomspace(1, iterations, min(FRAMES, iterations)).round().astype(int)
    late = (
        np.linspace(max(1, iterations - 100), iterations, min(LAST_FRAMES, iterations))
        .round()
        .astype(int)
    )
    return sorted({*early.tolist(), *late.tolist(), iterations})


# The work is done by kernels that are compiled already: little is gained by optimising what connects them, for seconds.
@partial(compiled, level=1)
def _advance_chunk(
    problem: FiniteSum,
    solver: Solver,
    key: PRNGKeyArray,
    state: Any,
    mean: Array,
    first: Array,
    length: Array,
    rate: Array,
) -> tuple[Any, Array, Any]:
    """`length` iterations, and the rows of the history they leave."""
    blank = jax.eval_shape(lambda s: solver.step(problem, key, s, first)[1], state)
    rows = jax.tree.map(lambda x: jnp.zeros((LONGEST_CHUNK, *x.shape), x.dtype), blank)

    def iterate(i: Array, carry: tuple[Any, Array, Any]) -> tuple[Any, Array, Any]:
        state, mean, rows = carry
        state, info = solver.step(problem, jax.random.fold_in(key, first + i), state, first + i)
        rows = jax.tree.map(lambda table, x: table.at[i].set(x), rows, info)
        return state, (1 - rate) * mean + rate * state.moments, rows

    return jax.lax.fori_loop(0, length, iterate, (state, mean, rows))
