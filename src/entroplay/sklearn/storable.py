"""Estimators taken apart for `entroplay.save`, and put together again by `entroplay.load`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..base.registry import RECORDS, result
from ..runs.solution import Solution
from ..verbs.certificate import Certificate

TABLE = "columns_"
"""Key in the state of a model where the command line keeps the columns of its table."""


@result("model")
@dataclass(frozen=True)
class Model:
    """An estimator of `entroplay.sklearn` as a file holds it: plain records.

    Attributes:
        name: the name of its class.
        parameters: the arguments of its constructor.
        state: what it has learned apart from the solution: numbers, texts, arrays, and lists and
            dictionaries of them.
        solution: its `solution_`.
        certificate: its `certificate_`.
    """

    name: str
    parameters: dict[str, Any]
    state: dict[str, Any]
    solution: Solution
    certificate: Certificate | None

    def validate(self) -> None:
        """Refuse parts that do not fit each other."""
        self.solution.validate()

    def without_rows(self) -> Model:
        """The model without its training data."""
        return replace(self, solution=self.solution.without_rows())

    def restore(self) -> Any:
        """The estimator, which is one of those that `entroplay.sklearn` exports."""
        package = importlib.import_module("entroplay.sklearn")
        if self.name not in package.__all__:
            raise TypeError(f"there is no estimator {self.name}")
        return getattr(package, self.name).from_record(self)


class Storable:
    """What an estimator needs to be kept in a file.

    `_learned` names its learned attributes, with the record behind each if there is one; `_derive`
    sets the attributes that follow from the solution and the certificate.
    """

    _learned: ClassVar[dict[str, type | None]] = {}
    solution_: Solution
    certificate_: Certificate | None
    get_params: Callable[..., dict[str, Any]]

    def _derive(self) -> None:
        """Set the attributes that follow from `solution_` and `certificate_`."""
        raise NotImplementedError

    def to_record(self) -> Model:
        """The estimator as a record.

        A `random_state` that is not a number, and classes of your own, cannot be stored.
        """
        check_is_fitted(self)
        parameters = {
            name: _pack_parameter(name, value)
            for name, value in self.get_params(deep=False).items()
        }
        state = {name: _pack(getattr(self, name)) for name in self._learned if hasattr(self, name)}
        name = type(self).__name__
        return Model(name, parameters, state, self.solution_, self.certificate_)

    @classmethod
    def from_record(cls, model: Model) -> Any:
        """The estimator that was taken apart."""
        estimator = cls(**{name: _unpack_parameter(v) for name, v in model.parameters.items()})
        state = {name: value for name, value in model.state.items() if name != TABLE}
        if unknown := state.keys() - cls._learned.keys():
            raise TypeError(
                f"{cls.__name__} has no attributes {sorted(unknown)} in this version of entroplay"
            )
        for name, value in state.items():
            record = cls._learned[name]
            setattr(estimator, name, _unpack(value) if record is None else record(**value))
        estimator.solution_, estimator.certificate_ = model.solution, model.certificate
        estimator._derive()
        return estimator


def _pack_parameter(name: str, value: Any) -> Any:
    if isinstance(value, dict):  # class_weight, whose keys need not be texts
        return {"pairs": [[_plain(k), _plain(v)] for k, v in value.items()]}
    if name == "random_state" and not (value is None or isinstance(value, int | np.integer)):
        raise ValueError(
            f"random_state is a {type(value).__name__}, which no file can hold: "
            "use a number or None."
        )
    return _plain(value)


def _unpack_parameter(value: Any) -> Any:
    return dict(map(tuple, value["pairs"])) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _pack(value: Any) -> Any:
    if RECORDS.get(type(value).__name__) is type(value):
        return value  # files hold it as it is
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUSb":  # labels and names
        return {"labels": value.tolist()}
    if isinstance(value, list):
        return [
            tuple(map(_plain, item)) if isinstance(item, tuple) else _plain(item) for item in value
        ]
    return _plain(value)


def _unpack(value: Any) -> Any:
    if isinstance(value, dict) and "labels" in value:
        labels = value["labels"]
        return np.array(labels, object if any(isinstance(label, str) for label in labels) else None)
    return value
