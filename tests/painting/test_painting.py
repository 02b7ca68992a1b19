"""The painting itself: its triangles, pictures at any size, its words, and its file."""

import io

import jax.numpy as jnp
import numpy as np
import pytest
from painting.cases import SIZE
from PIL import Image

import entroplay as ep
from entroplay.problems.features import raster_reference


def test_the_picture_is_the_sum_of_its_triangles(painting):
    vertices, colours = painting.triangles
    assert len(vertices) == len(colours) == 20
    corners = (vertices * [SIZE[1], SIZE[0]]).reshape(20, 6)
    drawn = raster_reference.reference_deposit(
        jnp.asarray(corners, jnp.float32), jnp.asarray(colours), height=SIZE[0], width=SIZE[1]
    )
    np.testing.assert_allclose(
        np.clip(np.asarray(drawn) + painting.background, 0, 1), painting.picture, atol=2e-5
    )


def test_it_renders_at_any_resolution(painting):
    """A larger picture, averaged over blocks, is the smaller one where nothing is clipped."""
    large = painting.render((72, 96))
    assert painting.render(96).shape == large.shape == (72, 96, 3)
    blocks = large.reshape(24, 3, 32, 3, 3).mean(axis=(1, 3))
    inside = ((large > 0) & (large < 1)).reshape(24, 3, 32, 3, 3).all(axis=(1, 3))
    np.testing.assert_allclose(blocks[inside], painting.picture[inside], atol=1e-5)
    assert np.mean((painting.render_mean(64) - painting.render(64)) ** 2) < painting.mse


def test_it_says_what_it_is_and_shows_itself(painting):
    text = repr(painting)
    assert "20 triangles, 32 x 24 pixels" in text
    assert "against the zero dual" in text
    image = Image.open(io.BytesIO(painting._repr_png_()))
    assert np.abs(np.asarray(image) / 255 - painting.picture).max() <= 0.5 / 255 + 1e-6


def test_a_painting_comes_back_from_its_file(painting, tmp_path):
    painting.save(tmp_path / "a.safetensors")
    loaded = ep.load(tmp_path / "a.safetensors")
    assert repr(loaded) == repr(painting)
    for name in ("picture", "mean_picture", "target"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(painting, name))
    with pytest.raises(ValueError, match="data"):
        ep.save(painting, tmp_path / "b.safetensors", data=False)
    raw = bytearray((tmp_path / "a.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(ep.FileFormatError, match="altered"):
        ep.load(tmp_path / "a.safetensors")
