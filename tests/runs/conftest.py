"""A small solution, and a file for it."""

import pytest
from runs.cases import MARKER, solution_of

import entroplay as ep


@pytest.fixture
def path(tmp_path):
    return tmp_path / "solution.safetensors"


@pytest.fixture(scope="session")
def small():
    features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, MARKER])
    return solution_of(ep.FiniteSum(features, loss, temperature=0.01, l2=0.01), m=2)
