"""The paper's student-teacher problem: a cosine teacher, a tanh student."""

from __future__ import annotations

import numpy as np

from ...base.arguments import one_of
from ..features.neurons import Neurons
from ..losses.base import Squared
from ..problem import FiniteSum


def cosine_teacher(
    n: int = 500, d: int = 5, *, width: int = 10, inputs: str = "normal", seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x of variance one, normal or uniform, and labels y = mean_j cos(v_j . x), v_j ~ N(0, I_d / d), j = 1..width.

    The paper gives n = 500, d = 5 and the cosine; the law of the inputs and the teacher's width are our choice.
    """
    rng = np.random.default_rng(seed)
    if one_of("cosine_teacher", "inputs", inputs, ("normal", "uniform")) == "normal":
        X = rng.normal(size=(n, d))
    else:
        X = rng.uniform(-(3**0.5), 3**0.5, size=(n, d))
    teacher = rng.normal(size=(width, d)) / np.sqrt(d)
    return X, np.cos(X @ teacher.T).mean(axis=1)


def paper_network(*, temperature: float = 0.01, l2: float = 0.01, seed: int = 0) -> FiniteSum:
    """The paper's experiment: n = 500, d = 5, squared loss, a tanh student with a bias.

    >>> import entroplay as ep
    >>> ep.teacher.paper_network()
    FiniteSum(Neurons, Squared, n=500, d=6, temperature=0.01, l2=0.01)
    """
    X, y = cosine_teacher(seed=seed)
    return FiniteSum(
        Neurons(X, activation="tanh", bias=True), Squared(y), temperature=temperature, l2=l2
    )
