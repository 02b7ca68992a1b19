"""The reproduction of the paper.

Verdicts follow from numbers, numbers from the seed, and the page holds everything that it shows.
"""

import json
import re
import shutil
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

import entroplay as ep
from entroplay import commands as cli
from entroplay.measures.quadrature import Quadrature
from entroplay.problems.datasets import real
from entroplay.reproduce import exact, names, parts, theorems
from entroplay.reproduce.claims import Claim, Part, plain
from entroplay.reproduce.page import write_page
from entroplay.reproduce.settings import Run, bounded_settings

PARTS = ("fig1", "fig2", "fig3", "fig4", "fig5", "density", "theorems", "memory")


def test_every_name_has_one_function_and_one_group():
    assert tuple(parts.REPRODUCE) == names.PARTS == PARTS
    assert sorted(name for group in names.GROUPS for name in group) == sorted(PARTS)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduced")
    assert cli.main(["reproduce", "all", "--scale", "quick", "--out", str(folder), "--quiet"]) == 0
    return folder


def test_all_parts_are_written_and_none_surprises(everything):
    summary = json.loads((everything / "summary.json").read_text())
    assert summary["surprises"] == []
    assert summary["parts"] == list(PARTS)
    for part in PARTS:
        content = json.loads((everything / f"{part}.json").read_text())
        assert content["claims"]
        assert all(claim["as_expected"] for claim in content["claims"])
        if part != "theorems":
            assert (everything / f"{part}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (everything / f"{part}.svg").read_text()[:1000]
    page = (everything / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(PARTS) - 1
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing is fetched from elsewhere


def test_one_seed_gives_the_same_numbers(everything, tmp_path):
    assert (
        cli.main(["reproduce", "fig1", "--scale", "quick", "--out", str(tmp_path), "--quiet"]) == 0
    )
    for name in ("fig1.json", "fig1.svg"):
        assert (tmp_path / name).read_text() == (everything / name).read_text()


@pytest.mark.slow
def test_a_browser_shows_every_picture(everything, tmp_path):
    browser = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if browser is None:
        pytest.skip("no browser here")
    count = (
        "<script>onload = () => document.title = "
        "[...document.images].filter(i => i.naturalWidth > 100).length</script>"
    )
    copy = tmp_path / "page.html"
    copy.write_text((everything / "index.html").read_text().replace("</body>", count + "</body>"))
    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        copy.as_uri(),
    ]
    page = subprocess.run(
        [browser, *arguments], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert f"<title>{len(PARTS) - 1}</title>" in page


@pytest.fixture(scope="module")
def setting():
    return bounded_settings(quick=True)[1]


def verdicts(setting):
    run = Run.of(setting.quadrature, exact.fictitious_play(setting.quadrature, 0.1), 20)
    return {(c.where, c.statement): c.as_expected for c in theorems.duality(setting, run)}


def test_a_wrong_sign_in_the_dual_turns_verdicts_red(setting, monkeypatch):
    assert all(verdicts(setting).values())
    right = Quadrature.dual_at

    def wrong(self, moments):
        """D with +temperature log Z."""
        return (
            right(self, moments) + 2 * self.problem.temperature * self.gibbs(self.slope(moments))[1]
        )

    monkeypatch.setattr(Quadrature, "dual_at", wrong)
    assert not verdicts(setting)["Theorem 2", "L(mu) - D(g_mu) = temperature KL(mu | mu-hat)"]


def test_so_does_a_wrong_rate_in_the_dynamics(setting):
    """A flow with a fifth of the speed that gamma says does not decay like exp(-gamma t)."""
    slow = Run.of(setting.quadrature, exact.continuous_play(setting.quadrature, 0.02), 61)
    claims = {c.where: c.holds for c in theorems.continuous(setting, slow, 0.1)}
    assert not claims["Theorem 1"]
    assert not claims["Theorem 3"]


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


def test_the_langevin_equation_on_a_grid():
    """Without features the law stays normal, with variance
    T/(2 l2) + (v - T/(2 l2)) exp(-4 l2 t). Implicit steps of size h err by h/2 times the second
    derivative of that: less than 8 l2^2 (T/(2 l2)) h t. The optimum of a network does not move.
    """
    nothing = ep.FunctionFeatures(lambda theta, x: 0.0 * theta[0] * x, [1.0, 2.0], dim=1)
    problem = ep.FiniteSum(nothing, ep.Squared([0.0, 0.0]), temperature=0.5, l2=0.25)
    quadrature = Quadrature.on(problem, (np.linspace(-9, 9, 1201),))
    axis, start, h, steps = quadrature.axes[0], 0.3, 0.01, 100
    density = np.exp(-(axis**2) / (2 * start)) / np.sqrt(2 * np.pi * start)
    density = next(islice(exact.langevin(quadrature, h, density), steps, None))
    variance = float((density * axis**2).sum() * quadrature.cell)
    assert float(density.sum() * quadrature.cell) == pytest.approx(1, abs=1e-9)
    assert (density >= 0).all()
    assert variance == pytest.approx(1 + (start - 1) * np.exp(-1), abs=8 * 0.25**2 * h + 1e-3)
    network = ep.grid.solve(
        bounded_settings(quick=True)[1].quadrature.problem, iterations=0, points=501
    )
    optimum = network.density.ravel()
    later = next(islice(exact.langevin(network.quadrature, 0.1, optimum), 50, None))
    np.testing.assert_allclose(later, optimum, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["fig9"], "fig9"),
        (["fig3", "--scale", "huge"], "huge"),
        (["fig3", "--target", "no.png"], "no.png"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, word, tmp_path, capsys):
    try:
        code = cli.main(["reproduce", *arguments, "--out", str(tmp_path / "never")])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert word in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_without_any_picture_it_says_where_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mvtbdata", None)
    monkeypatch.setitem(sys.modules, "skimage.data", None)
    assert cli.main(["reproduce", "fig4", "--out", str(tmp_path / "never")]) == 2
    assert "or give one with --target" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_an_interruption_keeps_the_parts_that_were_done(tmp_path, monkeypatch, capsys):
    def one_part(request, say):
        part = Part("theorems", "title", "says", "found")
        parts.write_part(part, request.out)
        yield part
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "run_parts", one_part)
    assert cli.main(["reproduce", "all", "--out", str(tmp_path)]) == 130
    assert json.loads((tmp_path / "summary.json").read_text())["parts"] == ["theorems"]
    assert "found" in (tmp_path / "index.html").read_text()
    assert "interrupted" in capsys.readouterr().out


def test_the_teachers_inputs_have_variance_one():
    """The variance of 20,000 numbers with kurtosis k has a standard error of
    sqrt((k - 1)/20000): 1 % for normal ones (k = 3).
    """
    for inputs in ("normal", "uniform"):
        X, y = ep.teacher.cosine_teacher(n=4000, inputs=inputs)
        assert X.var() == pytest.approx(1, abs=0.04)
        assert np.abs(y).max() <= 1
    assert np.abs(X).max() <= 3**0.5
    with pytest.raises(ValueError, match="'inputs' parameter of cosine_teacher"):
        ep.teacher.cosine_teacher(inputs="none")


def test_the_real_sets_are_whole():
    assert real.load("galaxies").shape == (82, 1)
    assert real.load("faithful").shape == (272, 2)
    assert real.load("galaxies").mean() == pytest.approx(20828, abs=1)
