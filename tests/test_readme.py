"""The README's example does what the README says it does."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_prints_its_output():
    code, output = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", README, re.DOTALL).groups()
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(code, "README.md", "exec"), {})
    assert stream.getvalue() == output
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def test_the_links_lead_somewhere():
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (root / target).exists(), target
