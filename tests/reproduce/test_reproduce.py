"""The whole reproduction at the quick scale: every part, every claim, one page, one seed."""

import json
import re
import shutil
import subprocess

import pytest

from entroplay.commands import main
from entroplay.reproduce import names, parts

PARTS = ("fig1", "fig2", "fig3", "fig4", "fig5", "density", "theorems", "memory")


def test_every_name_has_one_function_and_one_group():
    assert tuple(parts.REPRODUCE) == names.PARTS == PARTS
    assert sorted(name for group in names.GROUPS for name in group) == sorted(PARTS)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduced")
    assert main(["reproduce", "all", "--scale", "quick", "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.mark.slow
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


@pytest.mark.slow
def test_one_seed_gives_the_same_numbers(everything, tmp_path):
    assert main(["reproduce", "fig1", "--scale", "quick", "--out", str(tmp_path), "--quiet"]) == 0
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
