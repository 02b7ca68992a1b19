"""Areas and integrals of triangles over pixels, by the kernels and by their reference in JAX.

They are compared with polygon clipping, with finite differences, with their own transpose and with
each other.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapely

import entroplay as ep
from entroplay.base import native
from entroplay.problems.features import raster, raster_reference

HEIGHT, WIDTH = 11, 13
KERNELS = pytest.mark.skipif(native.missing() is not None, reason="no kernels here")


def triangles(kind, count, rng):
    """`count` triangles of a kind: (count, 6) corners in pixels."""
    size = np.array([WIDTH, HEIGHT])
    inside = rng.uniform(size=(count, 3, 2)) * size
    match kind:
        case "ordinary":
            corners = inside
        case "slivers":
            corners = (
                inside[:, :1]
                + rng.normal(size=(count, 1, 2)) * np.array([0, 1, 1.001])[None, :, None] * 4
            )
            corners = corners + 1e-3 * rng.normal(size=corners.shape)
        case "horizontal edge":
            corners = inside
            corners[:, 1, 1] = corners[:, 0, 1]
        case "vertical edge":
            corners = inside
            corners[:, 1, 0] = corners[:, 0, 0]
        case "off canvas":
            corners = inside + rng.choice([-1, 0, 1], size=(count, 1, 2)) * size * 0.8
        case "flipped":
            corners = inside[:, ::-1]
        case "huge":
            corners = (inside - size / 2) * 50
        case "tiny":
            corners = inside[:, :1] + 0.3 * rng.normal(size=(count, 3, 2))
        case "inside one pixel":
            corners = np.floor(inside[:, :1]) + rng.uniform(0.05, 0.95, size=(count, 3, 2))
    return corners.reshape(count, 6)


KINDS = (
    "ordinary",
    "slivers",
    "horizontal edge",
    "vertical edge",
    "off canvas",
    "flipped",
    "huge",
    "tiny",
    "inside one pixel",
)
IMPLEMENTATIONS = {
    "reference": (
        raster_reference.reference_gather,
        lambda c, k: raster_reference.reference_deposit(c, k, height=HEIGHT, width=WIDTH),
    ),
    "kernel": (raster.gather, lambda c, k: raster.deposit(c, k, HEIGHT, WIDTH)),
}


def clipped_area(corners):
    """The area of every pixel that a triangle covers, by shapely."""
    triangle = shapely.Polygon(np.reshape(corners, (3, 2)))
    pixels = [[shapely.box(x, y, x + 1, y + 1) for x in range(WIDTH)] for y in range(HEIGHT)]
    return shapely.area(shapely.intersection(triangle, np.array(pixels)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_coverage_is_the_clipped_area(implementation, kind):
    """40 triangles of each kind, value by value.

    The rounding error of clipping itself is 1e-13, and 50 times that for huge triangles.
    """
    rng = np.random.default_rng(1)
    _, deposit = IMPLEMENTATIONS[implementation]
    with jax.enable_x64(True):
        one = jax.jit(lambda c: deposit(c[None], jnp.ones((1, 1)))[..., 0])
        for corners in triangles(kind, 40, rng):
            np.testing.assert_allclose(one(jnp.asarray(corners)), clipped_area(corners), atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_coverage_pixel_by_pixel_is_the_clipped_area(kind):
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        features = ep.Triangles((HEIGHT, WIDTH), channels=1)
        corners = triangles(kind, 10, rng)
        covered = raster_reference.coverage(
            jnp.asarray(corners), features.rows[:, 0], features.rows[:, 1]
        )
    for row, one in zip(np.asarray(covered), corners, strict=True):
        np.testing.assert_allclose(row.reshape(HEIGHT, WIDTH), clipped_area(one), atol=1e-9)


def difference_quotient(function, corners, step=1e-6):
    gradient = np.zeros(6)
    for c in range(6):
        shift = np.zeros(6)
        shift[c] = step
        gradient[c] = (float(function(corners + shift)) - float(function(corners - shift))) / (
            2 * step
        )
    return gradient


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("horizontal edge", "vertical edge")]
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_are_difference_quotients(implementation, kind):
    """The gradient of an integral against central differences with a step of 1e-6.

    The integral is piecewise cubic, with kinks where a corner crosses a line of the grid; with
    these seeds no corner is within 1e-6 of one. For values of order ten, rounding causes an error
    of 1e-10. Huge triangles have gradients 50 times as large.
    """
    rng = np.random.default_rng(3)
    gather, _ = IMPLEMENTATIONS[implementation]
    with jax.enable_x64(True):
        picture = jnp.asarray(rng.normal(size=(HEIGHT, WIDTH, 3)))
        colour = jnp.asarray(rng.normal(size=(1, 3)))
        both = jax.jit(lambda c: gather(c[None], colour, picture))
        value = lambda c: both(jnp.asarray(c))[0][0] @ colour[0]  # noqa: E731
        for corners in triangles(kind, 40, rng):
            expected = difference_quotient(value, corners)
            scale = 1 + np.abs(corners).max()
            np.testing.assert_allclose(
                both(jnp.asarray(corners))[1][0], expected, atol=3e-8 * scale
            )


def test_edges_along_the_axes_have_a_gradient_too():
    """A right triangle in a picture of ones, whose integral is its area.

    A corner that moves by e at right angles to the opposite edge changes the area by e/2 times the
    length of that edge.
    """
    with jax.enable_x64(True):
        picture = jnp.ones((HEIGHT, WIDTH, 1))
        corners = jnp.asarray([[2.3, 2.6, 8.3, 2.6, 2.3, 7.6]])
        for gather, _ in IMPLEMENTATIONS.values():
            value, gradient = gather(corners, jnp.ones((1, 1)), picture)
            np.testing.assert_allclose(value, [[15.0]])
            np.testing.assert_allclose(gradient, [[-2.5, -3.0, 2.5, 0.0, 0.0, 3.0]], atol=1e-12)


def test_a_collapsed_triangle_can_open():
    """With all corners on a line there is no area, but a corner that leaves the line gains some."""
    with jax.enable_x64(True):
        picture = jnp.ones((HEIGHT, WIDTH, 1))
        corners = jnp.asarray([[2.3, 2.6, 8.3, 2.6, 5.3, 2.6]])
        for gather, _ in IMPLEMENTATIONS.values():
            value, gradient = gather(corners, jnp.ones((1, 1)), picture)
            np.testing.assert_allclose(value, 0, atol=1e-12)
            np.testing.assert_allclose(gradient[0, 5], 3.0)


@pytest.mark.parametrize("channels", [1, 3])
def test_deposit_is_the_transpose_of_the_integral(channels):
    rng = np.random.default_rng(4)
    corners = np.concatenate([triangles(kind, 20, rng) for kind in KINDS])
    with jax.enable_x64(True):
        colours = jnp.asarray(rng.normal(size=(len(corners), channels)))
        picture = jnp.asarray(rng.normal(size=(HEIGHT, WIDTH, channels)))
        for gather, deposit in IMPLEMENTATIONS.values():
            integral, _ = gather(jnp.asarray(corners), colours, picture)
            left = jnp.sum(integral * colours)
            right = jnp.sum(deposit(jnp.asarray(corners), colours) * picture)
            np.testing.assert_allclose(left, right, rtol=1e-11)


@KERNELS
@pytest.mark.parametrize(("channels", "dtype"), [(1, np.float64), (3, np.float64), (3, np.float32)])
def test_the_kernels_are_the_reference(channels, dtype):
    """In double precision they agree to rounding.

    In single precision the kernels still compute in double, but the reference does not. Its tables
    sum 13 numbers of order one (error 13 * 6e-8). Coordinates of huge triangles, of order 300, are
    known to only 2e-5, which edges of up to 13 pixels multiply: 1e-3.
    """
    rng = np.random.default_rng(5)
    corners = np.concatenate([triangles(kind, 30, rng) for kind in KINDS])
    with jax.enable_x64(dtype == np.float64):
        corners, colours = (
            jnp.asarray(corners, dtype),
            jnp.asarray(rng.normal(size=(len(corners), channels)), dtype),
        )
        picture = jnp.asarray(rng.normal(size=(HEIGHT, WIDTH, channels)), dtype)
        weights = jnp.asarray(rng.uniform(size=(HEIGHT, WIDTH)), dtype)
        size = {"height": HEIGHT, "width": WIDTH}
        pairs = [
            (
                raster.gather(corners, colours, picture)[0],
                raster_reference.reference_gather(corners, colours, picture)[0],
            ),
            (
                raster.deposit(corners, colours, **size),
                raster_reference.reference_deposit(corners, colours, **size),
            ),
            (
                raster.square_norm(corners, weights),
                raster_reference.reference_square_norm(corners, weights),
            ),
            (
                raster.deposit_squares(corners, colours, **size),
                raster_reference.reference_deposit_squares(corners, colours, **size),
            ),
        ]
        tolerance = 1e-10 if dtype == np.float64 else 2e-3
        for kernel, reference in pairs:
            np.testing.assert_allclose(kernel, reference, atol=tolerance, rtol=tolerance)
        ours, theirs = (
            g(corners, colours, picture)[1]
            for g in (raster.gather, raster_reference.reference_gather)
        )
        scale = 1 + np.abs(np.asarray(corners)).max(axis=1, keepdims=True)
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=tolerance)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_layers_are_what_a_viewer_shows_and_know_their_slopes(implementation, channels):
    """The picture against clipped areas laid one after the other, rounded to 8 bits and not.

    The gradient is compared with difference quotients. Their own error is of order step^2 = 1e-10
    and rounding / step = 1e-10 of the distance, a number of order 50.
    """
    rng = np.random.default_rng(6)
    corners = np.concatenate([triangles(kind, 2, rng) for kind in KINDS])
    colours, opacities = rng.uniform(size=(len(corners), channels)), rng.uniform(size=len(corners))
    background, target = (
        np.round(rng.uniform(size=channels) * 255) / 255,
        rng.uniform(size=(HEIGHT, WIDTH, channels)),
    )
    lay = jax.jit(
        raster.lay if implementation == "kernel" else raster_reference.reference_lay,
        static_argnames="levels",
    )
    pictures = {
        0.0: np.broadcast_to(background, target.shape),
        255.0: np.broadcast_to(background, target.shape),
    }
    for triangle, colour, opacity in zip(corners, colours, opacities, strict=True):
        for levels, picture in pictures.items():
            picture = picture + opacity * clipped_area(triangle)[..., None] * (colour - picture)
            pictures[levels] = np.round(picture * levels) / levels if levels else picture
    with jax.enable_x64(True):
        fixed = [jnp.asarray(a) for a in (corners, colours, opacities, background, target)]
        for levels, picture in pictures.items():
            np.testing.assert_allclose(lay(*fixed, levels=levels)[0], picture, atol=1e-9)
        _, in_colours, in_opacities = lay(*fixed, levels=0.0)

        def distance(colours, opacities):
            picture = lay(
                fixed[0], jnp.asarray(colours), jnp.asarray(opacities), *fixed[3:], levels=0.0
            )[0]
            return float(jnp.sum((picture - fixed[4]) ** 2)) / 2

        for r in range(0, len(corners), 3):
            step = np.zeros(len(corners))
            step[r] = 1e-5
            along = (
                distance(colours, opacities + step) - distance(colours, opacities - step)
            ) / 2e-5
            np.testing.assert_allclose(in_opacities[r], along, atol=1e-7)
            painted = step[:, None] * np.eye(channels)[:1]
            along = (
                distance(colours + painted, opacities) - distance(colours - painted, opacities)
            ) / 2e-5
            np.testing.assert_allclose(in_colours[r, 0], along, atol=1e-7)


@KERNELS
def test_single_precision_keeps_its_digits():
    """Single against double precision at the same corners, in a picture of 200 x 230 pixels.

    Where edges cross many rows, the kernel takes another way in single precision, by differences of
    sums. The result is rounded to 6e-8 of itself. Differences of SS (up to 230^2 / 2 of order one,
    rounded to 1e-16 of that) over pieces of 0.02 pixels lose less than 1e-7. What remains is the
    error of values and gradients near zero: 1e-6 of their typical size.
    """
    rng = np.random.default_rng(9)
    scale = np.tile([230 / WIDTH, 200 / HEIGHT], 3)
    corners = np.concatenate([triangles(kind, 60, rng) for kind in KINDS if kind != "huge"]) * scale
    nearly_vertical = corners * [1, 1, 1e-3, 1, 1e-3, 1]
    corners = np.concatenate([corners, nearly_vertical]).astype(np.float32)
    colours = rng.normal(size=(len(corners), 3)).astype(np.float32)
    picture = rng.normal(size=(200, 230, 3)).astype(np.float32)

    def gathered(dtype):
        arguments = (jnp.asarray(a, dtype) for a in (corners, colours, picture))
        return [np.asarray(x) for x in raster.gather(*arguments)]

    single = gathered(jnp.float32)
    with jax.enable_x64(True):
        double = gathered(jnp.float64)
    for rounded, exact in zip(single, double, strict=True):
        np.testing.assert_allclose(
            rounded, exact, rtol=1e-6, atol=1e-6 * np.sqrt(np.mean(exact**2))
        )


coordinates = st.one_of(
    st.floats(-40, 40, width=32),
    st.integers(-3, 16).map(float),
    st.sampled_from([1e6, -1e6, 1e-30]),
)


@KERNELS
@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
@hypothesis.given(corners=st.lists(coordinates, min_size=6, max_size=6))
def test_whatever_the_corners_kernel_reference_and_transpose_agree(corners):
    """Corners may lie on grid lines, edges may coincide, and all may be far away.

    Double precision knows a coordinate of 1e6 pixels to 1e-10.
    """
    rng = np.random.default_rng(6)
    with jax.enable_x64(True):
        corners, colours = jnp.asarray([corners], jnp.float64), jnp.ones((1, 1))
        picture = jnp.asarray(rng.normal(size=(HEIGHT, WIDTH, 1)))
        value, gradient = raster.gather(corners, colours, picture)
        reference_value, _ = _jitted_reference(corners, colours, picture)
        covered = raster.deposit(corners, colours, HEIGHT, WIDTH)
    assert np.isfinite(gradient).all()
    assert (np.asarray(covered) > -1e-8).all()
    assert (np.asarray(covered) < 1 + 1e-8).all()
    np.testing.assert_allclose(value, reference_value, atol=1e-7)
    np.testing.assert_allclose(
        value[0, 0], np.sum(np.asarray(covered) * np.asarray(picture)), atol=1e-7
    )


# The older code generator of `make test` computes the ends of a piece twice, with different
# rounding: on the border of a pixel, the pixel and the offset inside it then do not match.
_jitted_reference = jax.jit(
    raster_reference.reference_gather,
    compiler_options={"xla_cpu_use_fusion_emitters": True}
    if jax.default_backend() == "cpu"
    else None,
)
