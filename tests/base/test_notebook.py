"""Pieces of HTML for notebooks."""

import re
from xml.etree import ElementTree

import numpy as np

from entroplay.base.notebook import HEIGHT, WIDTH, card, sparkline


def test_a_card_is_well_formed_and_its_texts_are_escaped():
    html = card("<b>", [("a & b", "<script>alert(1)</script>")], sparkline([1.0, 2.0], '"<loss>"'))
    cells = [cell.text for cell in ElementTree.fromstring(html).iter("td")]
    assert cells[:2] == ["a & b", "<script>alert(1)</script>"]
    assert "<script" not in html


def test_a_sparkline_stays_inside_its_picture_and_leaves_out_what_is_not_finite():
    line = sparkline([np.nan, 3.0, np.inf, 1.0, 2.0], "loss")
    points = np.array(re.findall(r"([\d.]+),([\d.]+)", line), float)
    assert len(points) == 3
    assert (points >= 0).all()
    assert (points <= [WIDTH, HEIGHT]).all()
    assert points[0, 1] < points[2, 1] < points[1, 1]  # the axis points downwards: 3 > 2 > 1


def test_long_and_constant_series():
    assert sparkline(np.arange(10_000.0), "loss").count(",") <= 200 + 2
    heights = re.findall(r"[\d.]+,([\d.]+)", sparkline([1.0, 1.0], "loss"))
    assert set(heights) == {f"{HEIGHT / 2:.1f}"}
