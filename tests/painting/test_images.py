"""Photographs of all kinds, colours, and files that are no pictures."""

import numpy as np
import pytest
from painting.cases import SIZE, photograph, saved
from PIL import Image

from entroplay.painting.images import ImageError, colour, read_image


def test_photographs_of_all_kinds(tmp_path):
    """Each is the same picture, to the precision of its format."""
    rgb = photograph()
    image = Image.fromarray(rgb)
    grey, two_tone = np.asarray(image.convert("L")), image.convert("1")
    # A camera that was held upright stores the picture turned, and says so.
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    sixteen_bits = Image.fromarray(grey.astype(np.uint16) * 257)
    one_channel, black_and_white = grey[..., None] / 255, np.asarray(two_tone)[..., None] * 1.0
    files = {
        "png": (saved(image, tmp_path / "a.png"), rgb / 255, 1e-6),
        "exif": (saved(turned, tmp_path / "b.png", exif=exif), rgb / 255, 1e-6),
        "grey": (saved(image.convert("L"), tmp_path / "c.png"), one_channel, 1e-6),
        "palette": (saved(image.quantize(64), tmp_path / "d.png"), rgb / 255, 0.02),
        "cmyk": (saved(image.convert("CMYK"), tmp_path / "e.tiff"), rgb / 255, 0.02),
        "16 bit": (saved(sixteen_bits, tmp_path / "f.png"), one_channel, 1e-6),
        "bilevel": (saved(two_tone, tmp_path / "g.png"), black_and_white, 1e-6),
    }
    for name, (path, expected, tolerance) in files.items():
        np.testing.assert_allclose(read_image(path), expected, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(read_image(image), rgb / 255, atol=1e-6)
    np.testing.assert_allclose(read_image(rgb / 255.0), rgb / 255, atol=1e-6)
    np.testing.assert_allclose(read_image(rgb.astype(np.uint16) * 257), rgb / 255, atol=1e-6)


def test_transparency_lies_over_the_matte(tmp_path):
    rgba = np.dstack([photograph(), np.full(SIZE, 51, np.uint8)])
    path = saved(Image.fromarray(rgba), tmp_path / "a.png")
    expected = 0.2 * photograph() / 255 + 0.8 * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(read_image(path, matte="red"), expected, atol=1e-6)


def test_large_photographs_are_reduced_and_small_ones_are_not():
    assert read_image(np.zeros((300, 100)), size=60).shape == (60, 20, 1)
    assert read_image(np.zeros((30, 10)), size=60).shape == (30, 10, 1)
    ramp = np.broadcast_to(np.linspace(0, 1, 400)[:, None, None], (400, 40, 3))
    np.testing.assert_allclose(
        read_image(ramp, size=100)[10:-10], ramp[1::4, ::4][10:-10], atol=0.01
    )


@pytest.mark.parametrize("value", ["white", "#ffffff", 1, (1, 1, 1)])
def test_colours(value):
    assert colour(value, 3) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="background"):
        colour((1, 2, 3), 3)


@pytest.mark.parametrize("what", ["text", "empty", "cut short", "bomb", "folder", "missing"])
def test_what_is_no_picture_is_refused(what, tmp_path, file, monkeypatch):
    path = tmp_path / "bad.png"
    if what == "text":
        path.write_text("not a picture")
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "cut short":
        path.write_bytes(file.read_bytes()[:80])
    elif what == "bomb":
        path = file
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    elif what == "folder":
        path = tmp_path
    with pytest.raises(ImageError, match=r"bad.png|photo.png|cannot be read"):
        read_image(path)
