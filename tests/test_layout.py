"""The architecture: data flows one way, a file imports only from the files above it in this list."""

import ast
import subprocess
import sys
from pathlib import Path

ORDER = [
    "arguments", "compilation", "losses", "features", "native", "neurons", "raster", "triangles", "problem", "gibbs",
    "moves", "samplers", "quadrature",
    "smc", "cloud", "calibration", "certificate.gap", "certificate.entropy", "certificate.partition", "certificate.certify",
    "solvers.solver", "solvers.efp", "solvers.naive_efp", "solvers.mfld", "solvers.newton_efp", "solvers.pda", "solvers.psdca",
    "solvers", "solution", "model", "paint.painting", "paint.solver", "storage", "fingerprint", "recorder", "progress", "solve",
    "temperatures", "compress", "grid", "plot", "teacher", "paint.images", "paint.painter", "paint.svg", "paint.files",
    "paint.command", "data", "reproduce.report", "reproduce.exact", "reproduce.settings", "reproduce.misprints",
    "reproduce.theorems", "reproduce.figure1", "reproduce.figure2", "reproduce.painting", "reproduce.density", "reproduce.memory",
    "reproduce.page", "reproduce.command", "sklearn.rows", "sklearn.files", "sklearn.training", "sklearn.network",
    "sklearn.coordinates", "sklearn.support", "sklearn.bandwidth",
    "sklearn.density", "sklearn.drawing", "sklearn", "tables", "estimate", "", "cli", "__main__",
]  # fmt: skip
SOURCE = Path(__file__).parents[1] / "src" / "entroplay"


def module_name(path):
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path):
    """The project's modules that a file imports outside of TYPE_CHECKING and functions, relative names resolved."""
    package = list(path.relative_to(SOURCE).parts[:-1])
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)] + (
                node.module.split(".") if node.module else []
            )
            if node.module:
                yield ".".join(base)
            else:
                for name in node.names:
                    inner = SOURCE.joinpath(*base, name.name)
                    yield (
                        ".".join([*base, name.name])
                        if inner.is_dir() or inner.with_suffix(".py").exists()
                        else ".".join(base)
                    )


def test_every_file_stands_in_the_order_and_imports_only_upwards():
    for path in SOURCE.rglob("*.py"):
        name = module_name(path)
        if name in ("certificate", "paint", "reproduce"):
            continue
        assert name in ORDER, f"{name} is not in the order of tests/test_layout.py"
        for imported in imported_modules(path):
            assert ORDER.index(imported) < ORDER.index(name), (
                f"{name} imports {imported}, which stands below it"
            )


def test_importing_the_package_is_light():
    """No plotting, no progress bar, no scikit-learn and no change of JAX's global flags."""
    script = (
        "import jax, sys; before = jax.config.jax_enable_x64\nimport entroplay\n"
        "assert jax.config.jax_enable_x64 == before\n"
        "print([m for m in ('matplotlib', 'tqdm', 'sklearn', 'skimage', 'PIL', 'torch', 'blackjax') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_public_names_exist():
    import entroplay as ep

    for name in ep.__all__:
        assert getattr(ep, name).__doc__
