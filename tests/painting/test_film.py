"""The film of a painting: which iterations it shows, and the files that play it."""

import numpy as np
import pytest
from PIL import Image

from entroplay.painting.film import frame_iterations


def test_the_film_ends_with_the_picture(painting):
    np.testing.assert_array_equal(painting.film.particles[-1], painting.solution.particles)
    assert painting.film.iterations[-1] == 400
    assert frame_iterations(1) == [1]
    assert frame_iterations(3) == [1, 2, 3]


def test_a_film_shows_every_snapshot(painting, tmp_path):
    painting.save(tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as film:
        # Pillow joins frames that do not differ.
        assert film.n_frames >= 0.5 * len(painting.film.iterations)
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB")) / 255
    assert np.mean((last - painting.picture) ** 2) < 1e-3


@pytest.mark.parametrize("ending", [".mp4", ".webm"])
def test_films_as_video(painting, tmp_path, ending):
    av = pytest.importorskip("av")
    painting.save(tmp_path / f"a{ending}")
    with av.open(str(tmp_path / f"a{ending}")) as container:
        frames = list(container.decode(video=0))
    assert (frames[0].width, frames[0].height) == (32, 24)
    assert len(frames) >= len(painting.film.iterations)
