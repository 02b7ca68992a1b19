"""The architecture: data flows one way, and a folder imports only from the folders to its left."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

RULE = (
    "base < problems < measures < methods < runs < verbs < sklearn, painting < reproduce < commands"
)
LEVELS = {
    room: level for level, rooms in enumerate(RULE.split(" < ")) for room in rooms.split(", ")
}
SOURCE = Path(__file__).parents[1] / "src" / "entroplay"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parent


def room_of(path):
    """The folder that a file stands in; files beside the folders are above all of them."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def folders(place):
    return {path.name for path in place.iterdir() if path.is_dir() and path.name != "__pycache__"}


def imported_rooms(path):
    """Folders that a file imports from, at the top or inside a function, each with its line."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(package[: len(package) - (node.level - 1)])
            module = base + (node.module.split(".") if node.module else [])
            names = [module] if module else [[alias.name] for alias in node.names]
            for name in names:
                yield name[0], node.lineno
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            assert not any(m == "entroplay" or m.startswith("entroplay.") for m in modules), (
                f"{path}:{node.lineno} imports by an absolute name; use a relative one"
            )


def test_every_folder_has_its_place():
    assert folders(SOURCE) == set(LEVELS)


def test_the_tests_stand_in_the_same_folders():
    """No folder of tests is a package: `sklearn` would hide scikit-learn."""
    assert folders(TESTS) - {"golden"} == set(LEVELS)
    assert not list(TESTS.rglob("__init__.py"))


def test_files_of_tests_stay_short():
    for path in TESTS.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, f"{path} is over 400 lines long"


@pytest.mark.parametrize("room", LEVELS)
def test_a_folder_imports_only_from_its_left(room):
    for path in FILES:
        if room_of(path) != room:
            continue
        for imported, line in imported_rooms(path):
            place = f"{path.relative_to(SOURCE)}:{line}"
            assert imported in LEVELS, f"{place} imports {imported}, which is above all folders"
            lower = LEVELS[imported] < LEVELS[room]
            assert imported == room or lower, (
                f"{place} imports {imported}, which is not to its left"
            )


def test_the_guard_sees_imports_inside_functions(tmp_path, monkeypatch):
    """A guard that cannot fail guards nothing."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    file = tmp_path / "base" / "arguments.py"
    file.parent.mkdir()
    file.write_text("def f():\n    from ..runs.files import load\n    return load\n")
    assert list(imported_rooms(file)) == [("runs", 2)]


def test_modules_are_imported_by_name_only_where_the_registry_says():
    """`import_module` evades the rule: only the registry and the lazy packages may use it."""
    users = {str(p.relative_to(SOURCE)) for p in FILES if "import_module" in p.read_text()}
    allowed = {"__init__.py", "base/registry.py", "commands/__init__.py", "sklearn/storable.py"}
    assert users <= allowed


def test_every_folder_says_what_it_holds():
    for path in FILES:
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_files_and_functions_stay_short():
    """A file over 300 lines or a function over 60, docstring not counted, holds two concepts."""
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 300, f"{path} is over 300 lines long"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node, clean=False) is not None
                body = node.body[1:] if documented else node.body
                length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert length <= 60, f"{path}: {node.name} is {length} lines long"


def run_python(script):
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.strip()


def test_importing_the_package_is_light():
    """Public names load JAX, but no plotting, progress bar or scikit-learn, and no flags change."""
    script = (
        "import jax, sys; before = jax.config.jax_enable_x64\n"
        "import entroplay\nentroplay.solve\n"
        "assert jax.config.jax_enable_x64 == before\n"
        "heavy = ('matplotlib', 'tqdm', 'sklearn', 'skimage', 'PIL', 'torch', 'blackjax')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert run_python(script) == "[]"


def test_the_package_itself_does_not_import_jax():
    assert run_python("import sys, entroplay; print('jax' in sys.modules)") == "False"


def test_the_public_names_exist():
    import entroplay as ep

    for name in ep.__all__:
        assert getattr(ep, name).__doc__
