"""Files that are safe to keep and safe to open: `save` and `load`.

A file holds one result: a solution, or whatever else registers as one (`base.registry.result`). A
result says itself whether its parts fit each other (`validate`) and what it is without its
training rows (`without_rows`). If the file holds it in another form, it converts one into the other
(`to_record`, `restore`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..base.arguments import flag, invalid
from ..base.registry import KINDS, kind_of, load_home
from .codec import Decoder, Encoder, MissingFunctionError
from .container import MAX_BYTES, Contents, FileFormatError, FilePath, header_kind, read, write

__all__ = ["FileFormatError", "MissingFunctionError", "kind_in", "load", "read_record", "save"]


def save(solution: Any, path: FilePath, *, data: bool = True) -> None:
    """Write a solution, a painting or a fitted estimator of `entroplay.sklearn` to a file.

    The file replaces what was there: after a crash it is the old one or the new one, whole. A
    process that is killed may leave a file ".entroplay-*.tmp" behind.

    Functions (h, the function of a loss, schedules) are stored by name only and given again to
    `load`. Classes of your own and numbers that are not finite are refused.

    Args:
        solution: the result to store.
        path: the file.
        data: False leaves out the training rows, targets and sample weights, and everything with
            one entry per row (moments, dual, path). Such a file predicts, but can be neither
            certified nor continued.

    >>> import tempfile, entroplay as ep
    >>> features, loss = ep.Neurons([[1.0], [2.0]]), ep.Squared([0.5, 0.8])
    >>> problem = ep.FiniteSum(features, loss, temperature=0.01, l2=0.01)
    >>> solution = ep.solve(problem, ep.EFP(rate=0.1), particles=20, iterations=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ep.save(solution, f"{folder}/network.safetensors")
    ...     same = ep.load(f"{folder}/network.safetensors")
    >>> bool((same.predict([[1.5]]) == solution.predict([[1.5]])).all())
    True
    """
    record = solution.to_record() if hasattr(solution, "to_record") else solution
    kind = kind_of(record)
    if kind is None:
        must_be = "a Solution, a Painting or an estimator of entroplay.sklearn"
        raise invalid("save", "solution", must_be, solution)
    if not flag("save", "data", data):
        record = record.without_rows()
    record.validate()
    encoder = Encoder()
    write(path, Contents(kind, encoder(record), encoder.tensors))


def load(
    path: FilePath,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read what `save` wrote: a `Solution` or a `Painting` in its precision, or an estimator.

    Args:
        path: the file; a `FileFormatError` says why one cannot be read.
        functions: the functions that the file names, by the field that held them, `{"h": h}`, or
            with the owner's name if several records have such a field, `{"ULA.step_size": f}`.
        max_bytes: a larger file is refused before it is read.
    """
    record = read_record(path, functions=functions, max_bytes=max_bytes)
    with refused(path):
        return record.restore() if hasattr(record, "restore") else record


def read_record(
    path: FilePath,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    max_bytes: int = MAX_BYTES,
    kinds: tuple[str, ...] = ("solution", "painting", "model"),
) -> Any:
    """The record that a file of one of these kinds holds, validated, in the form of the file."""
    functions = dict(functions or {})
    if not all(map(callable, functions.values())):
        raise invalid("load", "functions", "a dictionary of functions", functions)
    with refused(path):
        contents = read(path, max_bytes)
        if contents.kind not in kinds:
            raise FileFormatError(
                f"{path} holds a {contents.kind}, not a {' or a '.join(kinds)}: load reads "
                "solutions, paintings and models, solve(checkpoint=) and paint(checkpoint=) read "
                "checkpoints."
            )
        load_home(contents.kind)
        decoder = Decoder(contents.description, contents.tensors, functions)
        record = decoder.result(KINDS[contents.kind])
        record.validate()
    if unused := functions.keys() - decoder.used:
        must_be = f"a dictionary of functions that {path} asks for"
        raise invalid("load", "functions", must_be, sorted(unused))
    return record


def kind_in(path: FilePath) -> str:
    """The kind that a file's header states, such as "solution", without reading the rest."""
    with refused(path):
        return header_kind(path)


@contextmanager
def refused(path: FilePath) -> Iterator[None]:
    """Turn whatever a bad file makes JSON, safetensors, NumPy or a record raise into one error."""
    try:
        yield
    except (FileFormatError, MissingFunctionError, OSError, ImportError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FileFormatError(
            f"{path} is damaged, or not a file of entroplay ({reason}). "
            "Restore it, or save it again."
        ) from error
