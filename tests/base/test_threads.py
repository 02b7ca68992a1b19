"""LAPACK has one thread while JAX computes, and its old number afterwards."""

from threading import Barrier, Thread

import pytest

import entroplay as ep
from entroplay.base.threads import _let_go, _libraries, lapack_on_one_thread


def counts():
    return [library.num_threads for library in _libraries().lib_controllers]


BEFORE = counts()
"""As many threads as there are cores, unless OPENBLAS_NUM_THREADS says otherwise."""


@pytest.fixture(autouse=True)
def several_threads():
    """Two threads, also where the environment allows only one."""
    with _libraries().limit(limits=2):
        # Otherwise the thread of the test would go on controlling the number.
        _let_go()
        yield
    assert counts() == BEFORE


def test_one_thread_inside_and_the_old_number_outside():
    assert counts() == [2] * len(counts())
    assert counts()
    with lapack_on_one_thread():
        assert counts() == [1] * len(counts())
        with lapack_on_one_thread():
            pass
        assert counts() == [1] * len(counts())
    assert counts() == [2] * len(counts())


def test_an_error_restores_the_number():
    with pytest.raises(ZeroDivisionError), lapack_on_one_thread():
        _ = 1 / 0
    assert counts() == [2] * len(counts())


def test_contexts_of_two_threads_may_overlap():
    """The first to open is the first to close, while the other one is still open."""
    first_open, second_open, first_closed = Barrier(2), Barrier(2), Barrier(2)
    seen = []

    def first():
        with lapack_on_one_thread():
            first_open.wait(5)
            second_open.wait(5)
        first_closed.wait(5)

    def second():
        first_open.wait(5)
        with lapack_on_one_thread():
            second_open.wait(5)
            first_closed.wait(5)
            seen.append(counts())

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == [[1] * len(counts())]
    assert counts() == [2] * len(counts())


def test_a_problem_computes_on_one_thread():
    problem = ep.FiniteSum(ep.Neurons([[1.0]]), ep.Squared([0.5]), temperature=0.1, l2=0.1)
    with problem.arithmetic():
        assert counts() == [1] * len(counts())
