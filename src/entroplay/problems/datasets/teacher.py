"""The paper's student-teacher problem: a cosine teacher, a tanh student."""

from __future__ import annotations

import numpy as np

from ...base.arguments import one_of
from ..features import Neurons
from ..losses import Squared
from ..problem import FiniteSum


def cosine_teacher(
    n: int = 500, d: int = 5, *, width: int = 10, inputs: str = "normal", seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs x of variance one and labels y = mean_j cos(v_j . x) of a teacher network.

    The inputs are normal or uniform, and v_j ~ N(0, I_d / d) for j = 1..width. The paper gives
    n = 500, d = 5 and the cosine; the law of the inputs and the teacher's width are our choice.
    """
    rng = np.random.default_rng(seed)
    if one_of("cosine_teacher", "inputs", inputs, ("normal", "uniform")) == "normal":
        X = rng.normal(size=(n, d))
    else:
        # Uniform on [-sqrt(3), sqrt(3)] has variance one.
        X = rng.uniform(-(3**0.5), 3**0.5, size=(n, d))
    teacher = rng.normal(size=(width, d)) / np.sqrt(d)
    return X, np.cos(X @ teacher.T).mean(axis=1)


def paper_network(*, temperature: float = 0.01, l2: float = 0.01, seed: int = 0) -> FiniteSum:
    """The network of Section 6.1: n = 500, d = 5, squared loss, a tanh student with a bias.

    >>> import entroplay as ep
    >>> ep.teacher.paper_network()
    FiniteSum(Neurons, Squared, n=500, d=6, temperature=0.01, l2=0.01)
    """
    X, y = cosine_teacher(seed=seed)
    student = Neurons(X, activation="tanh", bias=True)
    return FiniteSum(student, Squared(y), temperature=temperature, l2=l2)
