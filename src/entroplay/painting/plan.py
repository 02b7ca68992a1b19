"""What a painting solves and how: problem, solver, and the sizes at which it is painted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..methods.samplers import ULA
from ..methods.solvers import EFP, Solver
from ..problems.features import Triangles
from ..problems.losses import Squared
from ..problems.problem import FiniteSum
from ..runs.loop import Stage
from .triangle_painter import CosineSteps, TrianglePainter

COARSE_SHARE, COARSE_FROM, COARSE_TRIANGLES = 0.4, 128, 500
"""Fraction of the iterations painted at half size, and the least shorter side in pixels and number
of triangles for which this is done."""
AGAIN = 0.1
"""Fraction of the first temperature at which a finished painting is taken up again."""
AGAIN_STEP = 0.3
"""Fraction of the first steps' length with which it is taken up again."""
MEAN_RATE = 0.02
"""Weight of the newest picture in the painter's running mean."""
FIRST_TEMPERATURE = 0.0017
"""First temperature of the painter, as a fraction of the picture's contrast in all channels."""
PENALTY = 1.5
"""l2 in units of the temperature: the prior stays the same while both fall."""
COLOUR_SCALE = 59.0
"""Scale of the triangles' colours, in units of the picture's standard deviation."""
LEAST_CONTRAST = 1e-6
"""Mean square contrast that a plain picture is taken to have."""

PAPER_TEMPERATURE, PAPER_L2, PAPER_RATE, PAPER_STEPS = 1e-5, 1e-4, 0.01, 10
"""Setting of the paper's Figure 4."""
PAPER_FIRST_STEP, PAPER_LAST_STEP = 0.1, 0.01
"""Step sizes of the paper's Langevin dynamics, at the beginning and at the end."""
PAPER_SCALE, PAPER_SPREAD = 10.0, 1.0
"""Scale of the colours and unit of length of the paper's preset, which the paper leaves open."""


@dataclass(frozen=True)
class Plan:
    """What to solve and how; the first iterations may see a smaller picture."""

    problem: FiniteSum
    coarse: FiniteSum | None
    solver: Solver
    iterations: int
    spread: float
    mean_rate: float

    @property
    def stages(self) -> list[Stage]:
        """The smaller picture, if there is one, and the whole one."""
        last = int(COARSE_SHARE * self.iterations)
        whole = Stage(self.problem, self.iterations)
        return [whole] if self.coarse is None or last == 0 else [Stage(self.coarse, last), whole]


def painter_plan(pixels: np.ndarray, m: int, iterations: int, *, again: bool) -> Plan:
    """The default painter, for pixels less the background.

    The temperature follows the picture's contrast, and the prior stays fixed. Painting `again` what
    was finished before begins cooler and with shorter steps.
    """
    contrast = max(float(np.mean(pixels**2)), LEAST_CONTRAST)
    solver = TrianglePainter(iterations)
    temperature = FIRST_TEMPERATURE * pixels.shape[2] * contrast / solver.heat
    if again:
        solver = TrianglePainter(
            iterations,
            heat=AGAIN * solver.heat,
            corner_step=AGAIN_STEP * solver.corner_step,
            colour_step=AGAIN_STEP * solver.colour_step,
        )
    setting = {
        "temperature": temperature,
        "l2": PENALTY * temperature,
        "scale": COLOUR_SCALE * contrast**0.5,
    }
    large = min(pixels.shape[:2]) >= COARSE_FROM and m >= COARSE_TRIANGLES
    coarse = _problem(_halved(pixels), **setting) if large and not again else None
    return Plan(_problem(pixels, **setting), coarse, solver, iterations, 1.0, MEAN_RATE)


def efp_plan(pixels: np.ndarray, iterations: int) -> Plan:
    """The paper's setting; it leaves the parameterisation open, this one fits its step sizes.

    The paper's loss has no factor 1/2 and `Squared` has one: in the paper's units, temperature and
    l2 are twice as large here.
    """
    steps = CosineSteps(PAPER_FIRST_STEP, PAPER_LAST_STEP, float(iterations))
    solver = EFP(PAPER_RATE, ULA(step_size=steps, steps=PAPER_STEPS))
    problem = _problem(
        pixels,
        PAPER_TEMPERATURE,
        PAPER_L2,
        scale=PAPER_SCALE,
        spread=PAPER_SPREAD,
        colour="tanh",
    )
    return Plan(problem, None, solver, iterations, PAPER_SPREAD, PAPER_RATE)


def _problem(pixels: np.ndarray, temperature: float, l2: float, **options: Any) -> FiniteSum:
    height, width, channels = pixels.shape
    features = Triangles((height, width), channels=channels, **options)
    loss = Squared(pixels.reshape(features.shape))
    return FiniteSum(features, loss, temperature=temperature, l2=l2)


def _halved(pixels: np.ndarray) -> np.ndarray:
    """Means over blocks of two by two pixels; an odd last row or column is left out."""
    height, width = (side // 2 for side in pixels.shape[:2])
    even = pixels[: 2 * height, : 2 * width]
    return even.reshape(height, 2, width, 2, -1).mean(axis=(1, 3))
