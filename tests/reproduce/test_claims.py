"""Claims and the page that shows them."""

import numpy as np

from entroplay.reproduce.claims import Claim, Part, plain
from entroplay.reproduce.page import write_page


def test_a_verdict_is_a_comparison():
    def claim(measured, bound, **options):
        return Claim("Theorem 0", "a <= b", "nowhere", measured, bound, **options)

    assert claim(1.0, 2.0).verdict == "holds"
    assert claim(2.0, 1.0).verdict == "FAILS"
    assert not claim(float("nan"), 1.0).as_expected
    assert claim(1.0, 9.0, trivial=3.0).verdict == "holds, but says nothing here"
    assert claim(2.0, 1.0, misprint=True).as_expected
    assert not claim(1.0, 2.0, misprint=True).as_expected
    assert plain({"a": np.array([1.0, np.inf]), "b": np.int32(3)}) == {"a": [1.0, None], "b": 3}


def test_the_page_shows_a_failure_in_red(tmp_path):
    part = Part(
        "theorems",
        "A <title>",
        "says",
        "found",
        claims=(Claim("here", "1 <= 0", "always", 1.0, 0.0),),
    )
    page = write_page([part], tmp_path, "heading").read_text()
    assert 'class="bad">FAILS' in page
    assert "A &lt;title&gt;" in page
    assert "0 of 1 statements" in page
