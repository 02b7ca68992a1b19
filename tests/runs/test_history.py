"""The history: one row per iteration, sums where a column counts, and the join of two runs."""

from typing import NamedTuple

import numpy as np
import pytest

from entroplay.methods.solvers.base import Info
from entroplay.runs.history import as_history, empty_history, extend, joined, last_row

COLUMNS = [
    "iteration",
    "gap",
    "loss_moments",
    "loss_particles",
    "acceptance",
    "step_size",
    "pulls",
    "passes",
    "seconds",
]


class Extra(NamedTuple):
    beta: object
    ess: object


def infos(extra=None):
    """The buffers of a chunk, five rows each: the gap is 10, 11, 12, ..."""
    return Info(*(np.arange(5) + 10 * (i + 1) for i in range(7)), extra=extra)._replace(
        pulls=np.full(5, 3.0), passes=np.full(5, 4.0)
    )


def test_an_empty_history_has_all_columns():
    history = empty_history()
    assert list(history) == COLUMNS
    assert all(len(values) == 0 for values in history.values())


def test_rows_are_appended_and_work_and_time_add_up():
    first = extend(empty_history(), infos(), 2, elapsed=1.0)
    assert list(first) == COLUMNS
    np.testing.assert_array_equal(first["iteration"], [1, 2])
    np.testing.assert_array_equal(first["gap"], [10, 11])
    np.testing.assert_array_equal(first["pulls"], [3, 6])
    np.testing.assert_array_equal(first["passes"], [4, 8])
    np.testing.assert_array_equal(first["seconds"], [0.5, 1.0])
    second = extend(first, infos(), 3, elapsed=6.0)
    np.testing.assert_array_equal(second["iteration"], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(second["gap"], [10, 11, 10, 11, 12])
    np.testing.assert_array_equal(second["pulls"], [3, 6, 9, 12, 15])
    np.testing.assert_array_equal(second["seconds"], [0.5, 1, 3, 5, 7])
    assert len(first["gap"]) == 2  # the earlier history is left as it was


def test_a_chunk_without_a_complete_iteration_adds_nothing():
    history = extend(empty_history(), infos(), 0, elapsed=1.0)
    assert list(history) == COLUMNS
    assert all(len(values) == 0 for values in history.values())


def test_the_first_row_decides_on_further_columns():
    extra = Extra(beta=np.linspace(0, 1, 5), ess=np.ones(5))
    history = extend(empty_history(), infos(extra), 3, elapsed=1.0)
    assert list(history) == [*COLUMNS[:-1], "beta", "ess", "seconds"]
    np.testing.assert_array_equal(history["beta"], [0, 0.25, 0.5])
    assert last_row(history)["beta"] == 0.5


@pytest.mark.parametrize("convert", [lambda history: history, as_history])
def test_columns_that_count_are_whole_numbers(convert):
    """A file may hold them in another type."""
    history = extend(empty_history(), infos(), 2, elapsed=1.0)
    if convert is as_history:
        history = {name: values.astype(np.float32) for name, values in history.items()}
    history = convert(history)
    for name, values in history.items():
        whole = name in ("iteration", "pulls", "passes")
        assert values.dtype == (np.int64 if whole else np.float64), name


def test_two_runs_are_joined_as_if_they_had_been_one():
    """Columns that count go on where the first run stopped; the others are put side by side."""
    whole = extend(extend(empty_history(), infos(), 2, elapsed=1.0), infos(), 3, elapsed=6.0)
    parts = [extend(empty_history(), infos(), k, elapsed=t) for k, t in ((2, 1.0), (3, 6.0))]
    both = joined(*parts)
    assert list(both) == list(whole)
    for name, values in whole.items():
        np.testing.assert_array_equal(both[name], values, strict=True)


def test_without_an_earlier_run_the_history_is_the_later_ones():
    history = extend(empty_history(), infos(), 2, elapsed=1.0)
    assert joined(None, history) is history
    after_nothing = joined(empty_history(), history)
    for name, values in history.items():
        np.testing.assert_array_equal(after_nothing[name], values)
