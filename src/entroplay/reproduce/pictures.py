"""Figures 3 to 5: a picture by fictitious play at the paper's setting.

The default painter's picture of the same target stands beside it.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..painting.images import astronaut, read_image
from ..painting.paint import paint
from ..painting.painting import Painting, psnr
from ..verbs.plot import pyplot
from .claims import Claim, Part

ASTRONAUT = "astronaut (scikit-image)"
"""Name of the target that is shown without a verdict."""
CHOICES = (
    "The paper leaves open how a triangle is parameterised; see the documentation of painting for "
    "the form used here.",
    "Temperature 1e-5, l2 1e-4, S = 10, rate 0.01, step from 0.1 to 0.01 by a cosine, as the paper "
    "says.",
    "At this temperature chains do not mix: that any of these pictures is optimal is not verified.",
    "The paper paints the Mona Lisa, and its claims are judged on the picture named by --target or "
    "the one in the package mvtb-data. Without either, the astronaut is painted. It has more "
    "contrast and is not finished after that many iterations: it is shown, not judged.",
)
RESEMBLANCE = 0.25
"""Fraction of the target's variance that a picture resembling it may leave."""


@dataclass(frozen=True)
class Scale:
    """The sizes of all four paintings."""

    size: int
    few: int
    many: int
    iterations: int
    default_iterations: int


FULL, QUICK = Scale(256, 200, 1000, 2000, 2000), Scale(40, 50, 300, 400, 150)


@dataclass(frozen=True)
class Gallery:
    """The paper's method and the default painter, with few and with many triangles."""

    target_name: str
    scale: Scale
    efp: dict[int, Painting]
    default: dict[int, Painting]

    @property
    def judged(self) -> bool:
        """Whether the paper's claims, which concern the Mona Lisa, can be judged on this target.

        The astronaut has more contrast: at full size it is not finished after T iterations, with
        either number of triangles, which says nothing about the claims.
        """
        return self.scale is not FULL or self.target_name != ASTRONAUT

    @property
    def sizes(self) -> tuple[int, int]:
        """The two numbers of triangles."""
        return self.scale.few, self.scale.many

    @property
    def target(self) -> np.ndarray:
        """The picture to be painted."""
        return self.efp[self.scale.many].target


def find_target(path: str | None) -> tuple[str, object]:
    """The name of the target, and the picture or its path.

    It is the given file, the Mona Lisa of the package mvtb-data, or scikit-image's astronaut.
    """
    if path is not None:
        return Path(path).name, path
    if importlib.util.find_spec("mvtbdata") is not None:
        import mvtbdata  # pyright: ignore[reportMissingImports]

        found = sorted(Path(next(iter(mvtbdata.__path__))).rglob("monalisa.*"))
        if found:
            return "Mona Lisa (mvtb-data)", str(found[0])
    return ASTRONAUT, astronaut()


@functools.lru_cache(maxsize=2)
def gallery(quick: bool, seed: int, target: str | None) -> Gallery:
    """All four paintings; cached because three figures show them."""
    scale = QUICK if quick else FULL
    name, image = find_target(target)
    pixels = read_image(image, size=scale.size)
    efp = {
        m: paint(pixels, m, preset="paper", iterations=scale.iterations, size=scale.size, seed=seed)
        for m in (scale.few, scale.many)
    }
    default = {
        m: paint(pixels, m, iterations=scale.default_iterations, size=scale.size, seed=seed)
        for m in (scale.few, scale.many)
    }
    return Gallery(name, scale, efp, default)


def errors(painting: Painting) -> tuple[float, float]:
    """Mean squared errors of H^(T) and of the particles' picture."""
    return float(np.mean((painting.mean_picture - painting.target) ** 2)), painting.mse


def discrepancy(painting: Painting) -> float:
    """Mean squared difference between the two pictures."""
    return float(np.mean((painting.mean_picture - painting.picture) ** 2))


def show(panel, picture: np.ndarray, title: str) -> None:
    """Draw a picture, in grey if it has one channel."""
    panel.imshow(
        picture if picture.shape[2] == 3 else picture[:, :, 0],
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    panel.set_title(title, fontsize=9)
    panel.axis("off")


def figure3(*, quick: bool, seed: int = 0, target: str | None = None) -> Part:
    """Figure 3: the target and H^(T)."""
    g = gallery(quick, seed, target)
    m = g.scale.many
    painting, beside = g.efp[m], g.default[m]
    error = errors(painting)[0]
    plt = pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.7), layout="constrained")
    show(panels[0], g.target, g.target_name)
    show(panels[1], painting.mean_picture, f"H^(T) by EFP, m = {m}\nMSE {error:.5f}")
    title = f"the default painter, exactly {m} triangles\nMSE {beside.mse:.5f}"
    show(panels[2], beside.picture, title)
    variance = float(g.target.var(axis=(0, 1)).mean())
    resembles = Claim(
        "Figure 3",
        "H^(T) resembles the target: a quarter of its variance is left at most",
        f"m = {m}",
        error,
        RESEMBLANCE * variance,
    )
    return Part(
        name="fig3",
        title="Figure 3: a picture by fictitious play",
        paper="Algorithm 2 with m = 1000 and T = 2000 generates a reasonable image of the target.",
        found=f"H^(T) has a mean squared error of {error:.5f} ({psnr(error):.1f} dB); exactly {m} "
        f"triangles of the default painter have {beside.mse:.5f} ({beside.psnr:.1f} dB).",
        figures={"fig3": figure},
        captions={
            "fig3": "Target, the paper's generated image H^(T), and the default painter's picture "
            "with as many triangles."
        },
        claims=(resembles,) if g.judged else (),
        numbers={
            "target": g.target_name,
            "variance": variance,
            "MSE of H": error,
            "MSE of the default painter": beside.mse,
        },
        choices=CHOICES,
    )


def figure4(*, quick: bool, seed: int = 0, target: str | None = None) -> Part:
    """Figure 4: both pictures, for few and for many triangles."""
    g = gallery(quick, seed, target)
    few, many = (g.efp[m] for m in g.sizes)
    plt = pyplot()
    figure, panels = plt.subplots(2, 3, figsize=(9.5, 6.8), layout="constrained")
    for row, m in zip(panels, g.sizes, strict=True):
        efp, default = g.efp[m], g.default[m]
        of_moments, of_particles = errors(efp)
        show(row[0], efp.mean_picture, f"m = {m}: mu^(T)\nMSE {of_moments:.5f}")
        show(row[1], efp.picture, f"m = {m}: its Gibbs particles\nMSE {of_particles:.5f}")
        show(row[2], default.picture, f"m = {m}: the default painter\nMSE {default.mse:.5f}")
    numbers = {
        str(m): {
            "MSE of H": errors(g.efp[m])[0],
            "MSE of the particles": errors(g.efp[m])[1],
            "discrepancy": discrepancy(g.efp[m]),
            "MSE of the default painter": g.default[m].mse,
        }
        for m in g.sizes
    }
    return Part(
        name="fig4",
        title="Figure 4: mu^(T) and its Gibbs particles",
        paper="As m grows both pictures improve, and the discrepancy between them becomes smaller.",
        found=f"With {g.scale.few} triangles the two pictures differ by {discrepancy(few):.5f}, "
        f"with {g.scale.many} by {discrepancy(many):.5f} (mean square).",
        figures={"fig4": figure},
        captions={
            "fig4": "The running mean mu^(T), the particles of its Gibbs measure, and the default "
            "painter."
        },
        claims=_figure4_claims(g) if g.judged else (),
        numbers=numbers,
        choices=CHOICES,
    )


def _figure4_claims(g: Gallery) -> tuple[Claim, ...]:
    """Everything improves with the number of triangles."""
    few, many = (g.efp[m] for m in g.sizes)
    setting = f"m = {g.scale.few} and {g.scale.many}"
    compared = {
        "the picture of mu^(T) improves with m": (errors(many)[0], errors(few)[0]),
        "the picture of the particles improves with m": (errors(many)[1], errors(few)[1]),
        "their discrepancy falls with m": (discrepancy(many), discrepancy(few)),
    }
    return tuple(
        Claim("Figure 4", statement, setting, measured, bound)
        for statement, (measured, bound) in compared.items()
    )


def figure5(*, quick: bool, seed: int = 0, target: str | None = None) -> Part:
    """Figure 5: squared errors along the runs."""
    g = gallery(quick, seed, target)
    curves = {
        m: {
            "mu^(t)": _curve(g.efp[m], "loss_moments"),
            "its Gibbs particles": _curve(g.efp[m], "loss_particles"),
        }
        for m in g.sizes
    }
    ends = (f"m = {m}: {errors(g.efp[m])[0]:.5f} and {errors(g.efp[m])[1]:.5f}" for m in g.efp)
    return Part(
        name="fig5",
        title="Figure 5: squared error along the run",
        paper="The squared error of mu^(t) and of its Gibbs particles falls; more particles bring "
        "both down.",
        found=", ".join(ends) + " at the end.",
        figures={"fig5": _draw_curves(curves, g)},
        captions={"fig5": "Mean squared error of both pictures, before clipping to [0, 1]."},
        claims=tuple(
            Claim(
                "Figure 5",
                "the squared error falls along the run",
                f"m = {m}, {label}",
                float(curve[-1]),
                0.5 * float(curve[0]),
                note="last against half the first",
            )
            for m in g.sizes
            for label, curve in curves[m].items()
        ),
        numbers={str(m): _thinned(curves[m]) for m in g.sizes},
        choices=CHOICES,
    )


def _draw_curves(curves: dict[int, dict[str, np.ndarray]], g: Gallery):
    """One panel per number of triangles."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.9), sharey=True, layout="constrained")
    for panel, m in zip(panels, g.sizes, strict=True):
        for index, (label, curve) in enumerate(curves[m].items()):
            panel.plot(np.arange(1, len(curve) + 1), curve, color=f"C{index}", lw=1.2, label=label)
        panel.axhline(
            g.default[m].mse, color="k", ls="--", lw=1, label="the default painter, at its end"
        )
        panel.set(xlabel="iteration", yscale="log", title=f"m = {m}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("squared error per pixel and channel")
    panels[0].legend(fontsize="small")
    return figure


def _thinned(curves: dict[str, np.ndarray]) -> dict[str, Any]:
    """About 40 points of each curve, equally spaced on a logarithmic axis."""
    kept = np.unique(np.geomspace(1, len(curves["mu^(t)"]), 40).astype(int)) - 1
    return {"iteration": kept + 1} | {label: curve[kept] for label, curve in curves.items()}


def _curve(painting: Painting, name: str) -> np.ndarray:
    """The squared error per channel: the loss is half the squared error, summed over channels."""
    return 2 * painting.solution.history[name] / painting.shape[2]
