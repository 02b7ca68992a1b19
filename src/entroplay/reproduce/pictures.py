"""Figures 3 to 5: a picture by fictitious play at the paper's setting, beside what the default painter makes of it."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..painting.images import read_image
from ..painting.paint import paint
from ..painting.painting import Painting, psnr
from ..verbs.plot import pyplot
from .claims import Claim, Part

ASTRONAUT = "astronaut (scikit-image)"
CHOICES = (
    "The paper leaves open how a triangle is parameterised; see the documentation of painting for the form used here.",
    "Temperature 1e-5, l2 1e-4, S = 10, rate 0.01, step from 0.1 to 0.01 by a cosine, as the paper says.",
    "At this temperature chains do not mix: that any of these pictures is optimal is not verified.",
    "The paper paints the Mona Lisa, and its claims are judged on what --target names or the package mvtb-data brings. The "
    "astronaut, painted where there is neither, has more contrast and is not finished after so many iterations: it is shown, not "
    "judged.",
)


@dataclass(frozen=True)
class Scale:
    """How large."""

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
        """The paper speaks of the Mona Lisa. The astronaut has more contrast: at full size it is not finished after T iterations,
        with either number of triangles, which says nothing about the paper's claims.
        """
        return self.scale is not FULL or self.target_name != ASTRONAUT

    @property
    def target(self) -> np.ndarray:
        return self.efp[self.scale.many].target


def find_target(path: str | None) -> tuple[str, object]:
    """The file that was given, else the Mona Lisa of the package mvtb-data, else scikit-image's astronaut."""
    if path is not None:
        return Path(path).name, path
    if importlib.util.find_spec("mvtbdata") is not None:
        import mvtbdata  # pyright: ignore[reportMissingImports]

        found = sorted(Path(next(iter(mvtbdata.__path__))).rglob("monalisa.*"))
        if found:
            return "Mona Lisa (mvtb-data)", str(found[0])
    from skimage.data import astronaut

    return ASTRONAUT, astronaut()


@functools.lru_cache(maxsize=2)
def gallery(quick: bool, seed: int, target: str | None) -> Gallery:
    """All four paintings; kept, since three figures show them."""
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
    """Between the two pictures."""
    return float(np.mean((painting.mean_picture - painting.picture) ** 2))


def show(panel, picture: np.ndarray, title: str) -> None:
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
    """Target and H^(T)."""
    g = gallery(quick, seed, target)
    painting, beside = g.efp[g.scale.many], g.default[g.scale.many]
    error = errors(painting)[0]
    plt = pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.7), layout="constrained")
    show(panels[0], g.target, g.target_name)
    show(panels[1], painting.mean_picture, f"H^(T) by EFP, m = {g.scale.many}\nMSE {error:.5f}")
    show(
        panels[2],
        beside.picture,
        f"the default painter, exactly {g.scale.many} triangles\nMSE {beside.mse:.5f}",
    )
    variance = float(g.target.var(axis=(0, 1)).mean())
    return Part(
        name="fig3",
        title="Figure 3: a picture by fictitious play",
        paper="Algorithm 2 with m = 1000 and T = 2000 generates a reasonable image of the target.",
        found=f"H^(T) has a mean squared error of {error:.5f} ({psnr(error):.1f} dB); exactly {g.scale.many} triangles of "
        f"the default "
        f"painter have {beside.mse:.5f} ({beside.psnr:.1f} dB).",
        figures={"fig3": figure},
        captions={
            "fig3": "Target, the paper's generated image H^(T), and what the default painter reaches with as many triangles."
        },
        claims=(
            Claim(
                "Figure 3",
                "H^(T) resembles the target: a quarter of its variance is left at most",
                f"m = {g.scale.many}",
                error,
                0.25 * variance,
            ),
        )
        if g.judged
        else (),
        numbers={
            "target": g.target_name,
            "variance": variance,
            "MSE of H": error,
            "MSE of the default painter": beside.mse,
        },
        choices=CHOICES,
    )


def figure4(*, quick: bool, seed: int = 0, target: str | None = None) -> Part:
    """Both pictures for few and for many triangles."""
    g = gallery(quick, seed, target)
    few, many = g.efp[g.scale.few], g.efp[g.scale.many]
    plt = pyplot()
    figure, panels = plt.subplots(2, 3, figsize=(9.5, 6.8), layout="constrained")
    for row, m in zip(panels, (g.scale.few, g.scale.many), strict=True):
        of_moments, of_particles = errors(g.efp[m])
        show(row[0], g.efp[m].mean_picture, f"m = {m}: mu^(T)\nMSE {of_moments:.5f}")
        show(row[1], g.efp[m].picture, f"m = {m}: its Gibbs particles\nMSE {of_particles:.5f}")
        show(
            row[2],
            g.default[m].picture,
            f"m = {m}: the default painter\nMSE {g.default[m].mse:.5f}",
        )
    numbers = {
        str(m): {
            "MSE of H": errors(g.efp[m])[0],
            "MSE of the particles": errors(g.efp[m])[1],
            "discrepancy": discrepancy(g.efp[m]),
            "MSE of the default painter": g.default[m].mse,
        }
        for m in (g.scale.few, g.scale.many)
    }
    setting = f"m = {g.scale.few} and {g.scale.many}"
    return Part(
        name="fig4",
        title="Figure 4: mu^(T) and its Gibbs particles",
        paper="As m grows both pictures improve, and the discrepancy between them becomes smaller.",
        found=f"With {g.scale.few} triangles the two pictures differ by {discrepancy(few):.5f}, with {g.scale.many} by "
        f"{discrepancy(many):.5f} (mean square).",
        figures={"fig4": figure},
        captions={
            "fig4": "The running mean mu^(T), the particles of its Gibbs measure, and the default painter."
        },
        claims=(
            Claim(
                "Figure 4",
                "the picture of mu^(T) improves with m",
                setting,
                errors(many)[0],
                errors(few)[0],
            ),
            Claim(
                "Figure 4",
                "the picture of the particles improves with m",
                setting,
                errors(many)[1],
                errors(few)[1],
            ),
            Claim(
                "Figure 4",
                "their discrepancy falls with m",
                setting,
                discrepancy(many),
                discrepancy(few),
            ),
        )
        if g.judged
        else (),
        numbers=numbers,
        choices=CHOICES,
    )


def figure5(*, quick: bool, seed: int = 0, target: str | None = None) -> Part:
    """Squared errors along the runs."""
    g = gallery(quick, seed, target)
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.9), sharey=True, layout="constrained")
    numbers, claims = {}, []
    for panel, m in zip(panels, (g.scale.few, g.scale.many), strict=True):
        curves = {
            "mu^(t)": _curve(g.efp[m], "loss_moments"),
            "its Gibbs particles": _curve(g.efp[m], "loss_particles"),
        }
        for index, (label, curve) in enumerate(curves.items()):
            panel.plot(np.arange(1, len(curve) + 1), curve, color=f"C{index}", lw=1.2, label=label)
        panel.axhline(
            g.default[m].mse, color="k", ls="--", lw=1, label="the default painter, at its end"
        )
        panel.set(xlabel="iteration", yscale="log", title=f"m = {m}")
        panel.grid(alpha=0.3)
        kept = np.unique(np.geomspace(1, len(curves["mu^(t)"]), 40).astype(int)) - 1
        numbers[str(m)] = {"iteration": kept + 1} | {
            label: curve[kept] for label, curve in curves.items()
        }
        for label, curve in curves.items():
            claims.append(
                Claim(
                    "Figure 5",
                    "the squared error falls along the run",
                    f"m = {m}, {label}",
                    float(curve[-1]),
                    0.5 * float(curve[0]),
                    note="last against half the first",
                )
            )
    panels[0].set_ylabel("squared error per pixel and channel")
    panels[0].legend(fontsize="small")
    return Part(
        name="fig5",
        title="Figure 5: squared error along the run",
        paper="The squared error of mu^(t) and of its Gibbs particles falls; more particles bring both down.",
        found=", ".join(
            f"m = {m}: {errors(g.efp[m])[0]:.5f} and {errors(g.efp[m])[1]:.5f}" for m in g.efp
        )
        + " at the end.",
        figures={"fig5": figure},
        captions={"fig5": "Mean squared error of both pictures, before clipping to [0, 1]."},
        claims=tuple(claims),
        numbers=numbers,
        choices=CHOICES,
    )


def _curve(painting: Painting, name: str) -> np.ndarray:
    return 2 * painting.solution.history[name] / painting.shape[2]
