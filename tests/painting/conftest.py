"""A painting that many tests look at, and the file of the photograph that it shows."""

import pytest
from painting.cases import photograph, saved
from PIL import Image

import entroplay as ep


@pytest.fixture(scope="session")
def painting():
    return ep.paint(photograph(), triangles=20, iterations=400)


@pytest.fixture
def file(tmp_path):
    return saved(Image.fromarray(photograph()), tmp_path / "photo.png")
