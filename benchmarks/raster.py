"""The gradient of 1,000 triangles at 256 x 256 RGB: our kernel, pure JAX, PyTorch and DEODR.

Run: python benchmarks/raster.py. Vertices are drawn from N(centre, 0.2 of the side); all have two
threads; the best of interleaved rounds counts. A gradient is that of <picture, triangle> in all
nine numbers of every triangle, and includes the tables of the picture. Ours are timed 20 in a row,
each at the point to which the one before led, as in a run.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from harness import interleaved_best, report

from entroplay.base import native
from entroplay.problems.features import raster, raster_reference

M, SIDE, STEPS = 1000, 256, 20
FEW = 5
"""Number of triangles by which the slow contestants are timed."""


def corners_and_picture(side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners, colours and a picture: the same for every contestant."""
    rng = np.random.default_rng(0)
    corners = side * (0.5 + 0.2 * rng.normal(size=(M, 6)))
    return corners, rng.normal(size=(M, 3)), rng.normal(size=(side, side, 3))


def ours(gather, side: int):
    """STEPS gradients in one compiled loop."""
    corners, colours, picture = (jnp.asarray(a, jnp.float32) for a in corners_and_picture(side))

    @jax.jit
    def run(corners):
        return jax.lax.fori_loop(
            0, STEPS, lambda _, c: c - 1e-6 * gather(c, colours, picture)[1], corners
        )

    return lambda: jax.block_until_ready(run(corners))


def soft_rasteriser(count: int):
    """The obvious program: at each pixel a sigmoid of the distances to three lines, by autograd."""
    import torch

    torch.set_num_threads(2)
    corners, colours, picture = (
        torch.tensor(a, dtype=torch.float32) for a in corners_and_picture(SIDE)
    )
    y, x = torch.meshgrid(torch.arange(SIDE) + 0.5, torch.arange(SIDE) + 0.5, indexing="ij")

    def one(r: int):
        vertex = corners[r].reshape(3, 2).clone().requires_grad_(True)
        colour = colours[r].clone().requires_grad_(True)
        inside = torch.ones(SIDE, SIDE)
        side, other = vertex[1] - vertex[0], vertex[2] - vertex[0]
        orientation = torch.sign(side[0] * other[1] - side[1] * other[0])
        for v in range(3):
            a, b = vertex[v], vertex[(v + 1) % 3]
            distance = ((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])) / (b - a).norm()
            inside = inside * torch.sigmoid(4 * orientation * distance)
        (inside[:, :, None] * colour * picture).sum().backward()
        return vertex.grad

    return lambda: [one(r) for r in range(count)]


def deodr_scene(count: int):
    """DEODR, with one scene and its adjoint per triangle.

    It draws opaque triangles into one picture, whereas ours do not hide each other.
    """
    from deodr import differentiable_renderer as deodr

    corners, colours, picture = corners_and_picture(SIDE)

    def one(r: int):
        ij = corners[r].reshape(3, 2)
        side, other = ij[1] - ij[0], ij[2] - ij[0]
        # DEODR draws one side of a triangle only: turn those that show the other.
        ij = ij if side[0] * other[1] > side[1] * other[0] else ij[::-1]
        scene = deodr.Scene2D(
            faces=np.array([[0, 1, 2]], np.uint32),
            faces_uv=np.array([[0, 1, 2]], np.uint32),
            ij=ij.copy(),
            depths=np.ones(3),
            textured=np.zeros(1, bool),
            uv=np.zeros((3, 2)),
            shade=np.ones(3),
            colors=np.tile(colours[r], (3, 1)),
            shaded=np.zeros(1, bool),
            edgeflags=np.ones((1, 3), bool),
            height=SIDE,
            width=SIDE,
            nb_colors=3,
            texture=np.zeros((2, 2, 3)),
            background_image=np.zeros((SIDE, SIDE, 3)),
            clockwise=True,
            backface_culling=True,
        )
        image, depth = np.zeros((SIDE, SIDE, 3)), np.zeros((SIDE, SIDE))
        scene.clear_gradients()
        deodr.renderScene(scene, 1.0, image, depth)
        deodr.renderSceneB(scene, 1.0, image, depth, picture.copy())
        return scene.ij_b

    return lambda: [one(r) for r in range(count)]


def timed(work) -> float:
    """Seconds, the best of three after a first call that is not timed."""
    work()
    best = np.inf
    for _ in range(3):
        before = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - before)
    return best


def main() -> None:
    assert native.missing() is None, native.missing()
    contestants = {
        "kernel, 256": ours(raster.gather, 256),
        "kernel, 1024": ours(raster.gather, 1024),
        "pure JAX, 256": ours(raster_reference.reference_gather, 256),
    }
    milliseconds = {
        name: 1e3 * s / STEPS for name, s in interleaved_best(contestants, rounds=10).items()
    }
    milliseconds["PyTorch, 256"] = 1e3 * timed(soft_rasteriser(FEW)) * M / FEW
    try:
        milliseconds["DEODR, 256"] = 1e3 * timed(deodr_scene(FEW)) * M / FEW
    except ImportError:
        print("DEODR is not installed: pip install deodr")
    print(f"The gradient of {M} triangles, two threads")
    for name, value in milliseconds.items():
        print(f"{name:<18}{value:12.2f} ms {value / milliseconds['kernel, 256']:12.1f} x kernel")
    kernel, torch = milliseconds["kernel, 256"], milliseconds["PyTorch, 256"]
    growth = milliseconds["kernel, 1024"] / kernel
    checks = {
        f"kernel about 1 ms at 256 x 256 ({kernel:.2f})": kernel <= 1.1,
        f"growth from 256 to 1024 at most 5.5 times ({growth:.2f})": growth <= 5.5,
        "at least 1,000 times faster than PyTorch": torch >= 1000 * kernel,
    }
    report("raster", {"milliseconds": milliseconds, "growth": growth}, checks)


if __name__ == "__main__":
    main()
