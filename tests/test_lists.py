"""The lists of the README and of the documentation hold exactly what the code has."""

import argparse
import importlib
import inspect
import re
from pathlib import Path

import pytest

import entroplay as ep
import entroplay.sklearn
from entroplay.commands import COMMANDS
from entroplay.painting.export import ENDINGS
from entroplay.reproduce.names import PARTS
from entroplay.runs.solution import Reason

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# The type checks of the tests add an import of jaxtyping to every module.
PUBLIC = [name for name in ep.__all__ if name != "jaxtyping"]
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def page(name):
    return (ROOT / name).read_text()


def section(name, heading):
    """The text below a heading, up to the next heading of the same level or above."""
    level = len(heading.split()[0])
    following = re.split(rf"^{re.escape(heading)}\n", page(name), flags=re.MULTILINE)
    assert len(following) == 2, f"{name} has no single heading {heading}"
    return re.split(rf"^#{{1,{level}}} ", following[1], flags=re.MULTILINE)[0]


def table(name, first):
    """The rows of the table whose first heading is `first`, as lists of cells."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-:|]+\|\n((?:\|.*\n)+)", page(name), re.M)
    assert found, f"{name} has no table of each {first}"
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for row in found.group(1).splitlines()
    ]


def names(text):
    """The classes that a text names in code: `Squared`, and also `Squared(y)`."""
    return set(re.findall(r"`([A-Z]\w*)", text))


def readme_row(label):
    (row,) = [line for line in page("README.md").splitlines() if line.startswith(f"| {label} |")]
    return row


def documented(text):
    """The objects that a text asks autodoc to document."""
    return re.findall(r"^\.\. auto(?:class|function):: entroplay\.([\w.]+)", text, re.MULTILINE)


def family(base):
    """The public classes that implement a base class."""
    found = set()
    for name in PUBLIC:
        kind = getattr(ep, name)
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            found.add(name)
    return found


def public_losses_with_a_conjugate():
    return {name for name in family(ep.Loss) if "conjugate" in vars(getattr(ep, name))}


FAMILIES = [
    # base class, heading of the tutorial's table, row of the README, section of the reference
    (ep.Loss, "loss", "losses", "## Losses"),
    (ep.FeatureMap, "features", "feature maps", "## Features"),
    (ep.Solver, "solver", "solvers", "## Solvers"),
    (ep.Sampler, "sampler", "samplers", "## Samplers"),
]


@pytest.mark.parametrize(("base", "column", "row", "heading"), FAMILIES)
def test_families_are_listed_completely(base, column, row, heading):
    expected = family(base)
    assert len(expected) >= 2
    first_cells = [cells[0] for cells in table("docs/tutorial.md", column)]
    assert len(first_cells) == len(expected)
    assert set().union(*map(names, first_cells)) == expected
    assert names(readme_row(row)) == expected
    assert set(documented(section("docs/api.md", heading))) == expected | {base.__name__}


def test_the_conjugates_of_the_mathematics_page():
    listed = set().union(*(names(cells[0]) for cells in table("docs/mathematics.md", "loss")))
    assert listed == public_losses_with_a_conjugate() >= {"Squared", "Huber"}


def test_choosing_speaks_of_every_solver():
    text = section("docs/choosing.md", "## Which solver")
    bullets = set(re.findall(r"^- `(\w+)`", text, re.MULTILINE))
    default = re.findall(r"^\*\*Use the default, `(\w+)`", text, re.MULTILINE)
    assert bullets | set(default) == family(ep.Solver)


@pytest.mark.parametrize("column", [column for _, column, _, _ in FAMILIES])
def test_the_tutorials_arguments_exist(column):
    for cells in table("docs/tutorial.md", column):
        name, arguments = re.fullmatch(r"`(\w+)\((.*)\)`", cells[0]).groups()
        parameters = inspect.signature(getattr(ep, name)).parameters
        for argument in filter(None, arguments.split(", ")):
            word, _, value = argument.partition("=")
            assert word in parameters, f"{name} has no argument {word}"
            assert not value or str(parameters[word].default) == value


def test_the_readme_lists_every_command():
    listed = [re.match(r"`entroplay (\w+)", cells[0]) for cells in table("README.md", "command")]
    assert [found.group(1) for found in listed] == list(COMMANDS)


def options_of(command):
    parser = argparse.ArgumentParser()
    importlib.import_module(f"entroplay.commands.{command}").COMMAND.add(parser)
    return set(parser._option_string_actions) | {"--seed", "--quiet", "--json"}


def test_the_commands_shown_can_be_given():
    shown = 0
    for path in PAGES:
        text = path.read_text()
        blocks = "".join(re.findall(r"^```(?:sh|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        lines = re.findall(r"^entroplay (.*)", blocks, re.MULTILINE)
        for line in lines + re.findall(r"`entroplay ([^`]*)`", text):
            words = line.split("#")[0].split()
            if words[0] == "COMMAND":
                continue
            assert words[0] in COMMANDS, f"{path.name}: entroplay {line}"
            unknown = {word for word in words if word.startswith("--")} - options_of(words[0])
            assert not unknown, f"{path.name}: entroplay {words[0]} has no {unknown}"
            shown += 1
    assert shown >= 15


def test_the_formats_of_paintings():
    cells = [cells[0] for cells in table("docs/painting.md", "ending")]
    assert set(re.findall(r"`(\.\w+)`", " ".join(cells))) == set(ENDINGS)


def test_the_parts_of_the_reproduction():
    sentence = re.search(r"The parts are (.*?)\.\s", page("docs/reproduce.md"), re.DOTALL).group(1)
    assert tuple(re.findall(r"`(\w+)`", sentence)) == PARTS


def test_the_reasons_why_a_run_stops():
    text = page("docs/api.md")
    sentence = re.search(r"`status\.reason` is one of (.*?);", text, re.DOTALL).group(1)
    assert set(re.findall(r'"([\w ]+)"', sentence)) == {reason.value for reason in Reason}


def test_the_reference_holds_every_public_name():
    public = page("docs/api.md").split("## Implementation")[0]
    listed = documented(public)
    assert len(listed) == len(set(listed))
    modules = {name for name in PUBLIC if inspect.ismodule(getattr(ep, name))}
    assert {name for name in listed if "." not in name} == set(PUBLIC) - modules
    assert modules <= {name.split(".")[0] for name in listed if "." in name}
    estimators = {name.split(".")[1] for name in listed if name.startswith("sklearn.")}
    assert estimators == set(entroplay.sklearn.__all__)


def test_what_the_reference_names_exists():
    for name in documented(page("docs/api.md")):
        found = entroplay
        for depth, part in enumerate(name.split("."), start=1):
            if not hasattr(found, part):
                importlib.import_module("entroplay." + ".".join(name.split(".")[:depth]))
            found = getattr(found, part)
        assert found.__doc__, f"{name} has no docstring"


def test_every_figure_is_listed():
    functions = inspect.getmembers(ep.plot, inspect.isfunction)
    own = {name for name, function in functions if function.__module__ == ep.plot.__name__}
    figures = {name for name in own if not name.startswith("_")} - {"pyplot"}
    assert set(re.findall(r"`ep\.plot\.(\w+)`", readme_row("figures"))) == figures
    listed = documented(section("docs/api.md", "## Figures"))
    assert {name.removeprefix("plot.") for name in listed} == figures


def test_the_index_links_to_every_page():
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    text = page("docs/index.md")
    assert set(re.findall(r"\]\((\w+)\.md\)", text)) == pages
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    entries = [line for tree in trees for line in tree.splitlines() if re.fullmatch(r"\w+", line)]
    assert sorted(entries) == sorted(pages)


def test_the_links_between_pages_lead_somewhere():
    for path in DOCS.glob("*.md"):
        for target, anchor in re.findall(r"\]\((\w*(?:\.md)?)#([\w-]+)\)", path.read_text()):
            text = (DOCS / target).read_text() if target else path.read_text()
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            plain = [re.sub(r"[^\w -]", "", heading).lower() for heading in headings]
            slugs = {heading.replace(" ", "-") for heading in plain}
            assert anchor in slugs, f"{path.name} links to {target}#{anchor}"
