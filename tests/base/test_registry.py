"""The registry of records: what files may hold, and nothing else."""

import pytest

import entroplay as ep
from entroplay.base.registry import (
    HOMES,
    KINDS,
    RECORDS,
    kind_of,
    load_home,
    record_named,
    result,
    storable,
)

LIBRARY = {
    "entroplay.problems": {
        "FiniteSum",
        *("Squared", "Huber", "Logistic", "CrossEntropy", "NegLog", "FunctionLoss"),
        *("Neurons", "GaussianKernel", "FunctionFeatures", "Triangles"),
    },
    "entroplay.methods": {
        *("ULA", "MALA"),
        *("NewtonEFP", "EFP", "NaiveEFP", "MFLD", "PDA", "PSDCA"),
    },
    "entroplay.runs": {"Solution", "Status", "Compression", "Checkpoint"},
    "entroplay.verbs": {"Certificate"},
    "entroplay.sklearn": {
        "Model",
        *("Columns", "NumberColumn", "CategoryColumn", "DateColumn", "IgnoredColumn"),
    },
    "entroplay.painting": {"Painting", "Film", "TrianglePainter", "CosineSteps"},
}
"""The library's records by package, written out: reading a file can make instances of these
classes only. A class is added here after a look at what its fields can do to a reader."""


@pytest.fixture
def unchanged(monkeypatch):
    """Give the tests a copy of the registry to add to."""
    monkeypatch.setattr("entroplay.base.registry.RECORDS", copy := dict(RECORDS))
    monkeypatch.setattr("entroplay.base.registry.KINDS", kinds := dict(KINDS))
    return copy, kinds


def named(name, module):
    return type(name, (), {"__module__": module})


def test_files_may_hold_exactly_these_records():
    for kind in HOMES:
        load_home(kind)
    assert ep.solve  # loads the core
    homes = {name: cls.__module__ for name, cls in RECORDS.items()}
    found = {
        package: {name for name, home in homes.items() if home.startswith(f"{package}.")}
        for package in LIBRARY
    }
    assert found == LIBRARY
    assert set(homes) == set().union(*LIBRARY.values())


def test_a_whole_file_holds_one_of_four_kinds():
    for kind in HOMES:
        load_home(kind)
    names = {kind: cls.__name__ for kind, cls in KINDS.items()}
    assert names == {
        "solution": "Solution",
        "checkpoint": "Checkpoint",
        "painting": "Painting",
        "model": "Model",
    }
    assert all(RECORDS[cls.__name__] is cls for cls in KINDS.values())
    assert kind_of(ep.EFP()) is None
    assert kind_of(object.__new__(ep.Solution)) == "solution"


def test_two_classes_of_one_name_are_refused(unchanged):
    records, kinds = unchanged
    other = named("Squared", "elsewhere")
    with pytest.raises(TypeError, match=r"elsewhere and entroplay\.problems.*register Squared"):
        storable(other)
    assert records["Squared"] is ep.Squared
    with pytest.raises(TypeError, match="register Solution"):
        result("another kind")(named("Solution", "elsewhere"))
    assert "another kind" not in kinds


def test_a_module_that_is_loaded_again_registers_its_classes_again(unchanged):
    records, _ = unchanged
    first, second = (storable(named("Reloaded", "somewhere")) for _ in range(2))
    assert first is not second
    assert records["Reloaded"] is second


def test_only_registered_classes_are_found_by_name():
    assert record_named("TrianglePainter") is ep.TrianglePainter
    for name in ("Path", "Loss", "object", "entroplay.problems.problem.FiniteSum", ""):
        with pytest.raises(KeyError):
            record_named(name)
