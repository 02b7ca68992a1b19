"""The documentation builds, its paper page points at existing code, and its tables are included."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, DOCS = ROOT / "src" / "entroplay", ROOT / "docs"


def rows_of_the_paper_page():
    for line in (DOCS / "paper.md").read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        files = [name for cell in cells for name in re.findall(r"`([\w/]+\.py)`", cell)]
        if files:
            names = [
                name
                for cell in cells
                for name in re.findall(r"`([A-Za-z_][\w.]*)`", cell)
                if not name.endswith(".py")
            ]
            yield files[0], names


def test_every_name_of_the_paper_page_stands_in_its_file():
    rows = list(rows_of_the_paper_page())
    assert len(rows) >= 35
    for file, names in rows:
        assert names
        text = (SOURCE / file).read_text()
        # The first name must be there as a word; "A.b" means b in the class A.
        for part in names[0].split("."):
            assert re.search(rf"\b{part}\b", text), f"{part} is not in {file}"


@pytest.mark.parametrize("table", ["choosing", "compression", "entropy_bias", "painters"])
def test_every_generated_table_has_its_script_and_its_page(table):
    text = (DOCS / "tables" / f"{table}.md").read_text()
    assert text.count("|") > 20
    script = re.search(r"Made by `([\w/.]+)`", text).group(1)
    assert (ROOT / script).exists()
    assert any(f"tables/{table}.md" in page.read_text() for page in DOCS.glob("*.md"))


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning():
    """`make docs` turns every warning of Sphinx into an error."""
    result = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "docs/_build/html/index.html" in result.stdout
    assert (DOCS / "_build" / "html" / "index.html").exists()
