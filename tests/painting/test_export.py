"""Paintings as pictures, vector files and logs."""

import json
import xml.etree.ElementTree as ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from painting.cases import SIZE, pixels_of

from entroplay.painting.export import write
from entroplay.problems.features import raster


def test_pictures_are_written_as_rendered(painting, tmp_path):
    painting.save(tmp_path / "a.png")
    painting.save(tmp_path / "a.mean.png")
    painting.save(tmp_path / "b.png", size=100)
    painting.save(tmp_path / "c.jpg")
    read = pixels_of(tmp_path / "a.png")
    np.testing.assert_allclose(read, painting.picture, atol=0.5 / 255 + 1e-6)
    read = pixels_of(tmp_path / "a.mean.png")
    np.testing.assert_allclose(read, painting.mean_picture, atol=0.5 / 255 + 1e-6)
    assert pixels_of(tmp_path / "b.png").shape == (75, 100, 3)
    assert pixels_of(tmp_path / "c.jpg").shape == (24, 32, 3)
    assert not list(tmp_path.glob(".*"))


def _numbers(colour):
    """#rrggbb as three numbers from 0 to 255."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def test_an_svg_has_all_triangles_and_states_its_error(painting, tmp_path):
    facts = write(painting, tmp_path / "a.svg", size=64)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polygon")) == 20
    assert (root.get("width"), root.get("height")) == ("64", "48")
    assert f"{facts['mse']:.6f}" in root.find(f"{space}desc").text
    # The picture is composed again, shape by shape, from what the file says, in whole numbers from
    # 0 to 255 as in viewers: colour times opacity is rounded, opacity is multiplied by coverage,
    # and what shines through is rounded (first picture) or truncated (second picture).
    ground = _numbers(root.find(f"{space}rect").get("fill"))
    pictures = [np.broadcast_to(ground, (*SIZE, 3)) for _ in range(2)]
    for shape in root.findall(f"{space}polygon"):
        points = [point.split(",") for point in shape.get("points").split()]
        corners = jnp.asarray([[float(x) for point in points for x in point]], jnp.float32)
        share = np.asarray(raster.deposit(corners, jnp.ones((1, 1), jnp.float32), *SIZE))
        opacity = float(shape.get("fill-opacity"))
        added = np.round(_numbers(shape.get("fill")) * opacity) * share
        through = [(1 - opacity * share) * picture for picture in pictures]
        lost = 0.5 * (share > 1e-9)
        pictures = [np.round(added + through[0]), np.round(added + through[1] - lost)]
    errors = [np.mean((picture / 255 - painting.target) ** 2) for picture in pictures]
    assert max(errors) == pytest.approx(facts["mse"], rel=0.02)
    assert facts["mse"] < 0.05 * painting.target.var(axis=(0, 1)).mean()


def test_the_log_has_a_line_per_snapshot(painting, tmp_path):
    painting.save(tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == painting.film.iterations.tolist()
    assert rows[-1]["mse"] == pytest.approx(painting.mse, rel=0.2)
    assert rows[-1]["mse"] < 0.2 * rows[0]["mse"]
