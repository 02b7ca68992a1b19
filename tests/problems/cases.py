"""Small problems that many tests share, and tables of all losses and all feature maps.

A new loss or feature map is one line in `LOSSES` or `FEATURES`: the tests of their laws and of
files run over these tables, and a class that is missing there fails a test.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np

import entroplay as ep

INPUTS = np.linspace(-2, 2, 12)
VELOCITIES = np.concatenate([np.linspace(-1.6, -0.6, 9), np.linspace(0.4, 1.9, 11)])


def two_channels(theta, x):
    return jnp.stack(
        [jnp.tanh(theta[0] * x), jnp.tanh(theta[1] + x) * theta[0] / (1 + theta[0] ** 2)]
    )


def squared(temperature=0.05, l2=0.05, d=1):
    features = ep.Neurons(INPUTS[:, None], bias=d == 2)
    return ep.FiniteSum(
        features,
        ep.Squared(np.sin(1.5 * INPUTS)),
        temperature=temperature,
        l2=l2,
        weights=1 + INPUTS**2,
    )


def logistic(temperature=0.05, l2=0.05, d=1):
    features = ep.Neurons(INPUTS[:, None], bias=d == 2, scale=3.0)
    return ep.FiniteSum(
        features, ep.Logistic(np.where(INPUTS > 0.4, 1, -1)), temperature=temperature, l2=l2
    )


def cross_entropy(temperature=0.05, l2=0.05):
    features = ep.FunctionFeatures(two_channels, INPUTS, dim=2)
    return ep.FiniteSum(
        features,
        ep.CrossEntropy((INPUTS > 0.4).astype(int), classes=2),
        temperature=temperature,
        l2=l2,
    )


def negative_log(temperature=0.05, l2=0.05):
    return ep.FiniteSum(
        ep.GaussianKernel(VELOCITIES, bandwidth=0.4), ep.NegLog(), temperature=temperature, l2=l2
    )


ALL = {
    "squared": squared,
    "logistic": logistic,
    "cross_entropy": cross_entropy,
    "negative_log": negative_log,
}
"""One small problem for each of four losses. All are solved by quadrature in milliseconds."""


def linear(n=8, d=2, temperature=0.5, l2=0.3, seed=3):
    """Linear features and the half squared loss: the optimum is N(centre, temperature/(2 l2) I).

    Returns the problem, the centre, and the weighted second moments of the rows.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n) + 4
    weights = rng.uniform(0.2, 3, size=n)
    features = ep.FunctionFeatures(lambda theta, x: theta @ x, X, dim=d)
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=temperature, l2=l2, weights=weights)
    w = weights / weights.sum()
    hessian = (X.T * w) @ X
    centre = np.linalg.solve(hessian + 2 * np.diag(np.broadcast_to(l2, d)), (X.T * w) @ y)
    return problem, centre, hessian


def exported(package, base):
    """The concrete classes of a family that its package offers: those that a table must hold."""
    classes = [item for item in vars(package).values() if isinstance(item, type)]
    return {cls for cls in classes if issubclass(cls, base) and not cls.__abstractmethods__}


# Every loss, for N rows of one channel or of K.

N, K = 40, 3
_RNG = np.random.default_rng(0)
TARGETS, MATRIX = _RNG.normal(size=N), _RNG.normal(size=(N, K))
SIGNS, LABELS = np.where(_RNG.uniform(size=N) < 0.5, -1, 1), _RNG.integers(0, K, size=N)


def pseudo_huber(z, y):
    return jnp.sqrt(1 + (z - y) ** 2) - 1


LOSSES = {
    "squared": (lambda: ep.Squared(TARGETS, scale=2.5), ()),
    "squared channels": (lambda: ep.Squared(MATRIX, scale=0.7), (K,)),
    "huber": (lambda: ep.Huber(TARGETS, delta=1.2), ()),
    "huber channels": (lambda: ep.Huber(MATRIX, delta=0.8), (K,)),
    "logistic": (lambda: ep.Logistic(SIGNS), ()),
    "cross entropy": (lambda: ep.CrossEntropy(LABELS, classes=K), (K,)),
    "negative log": (lambda: ep.NegLog(), ()),
    "user's function": (lambda: ep.FunctionLoss(pseudo_huber, TARGETS), ()),
}
"""For each loss, a function that makes it (in the precision of the caller) and its channels."""


# Every feature map. Those with data have 17 rows, of three columns or of one.

_RNG = np.random.default_rng(0)
X, LINE = _RNG.normal(size=(17, 3)), _RNG.normal(size=17)


def tanh_of_product(theta, x):
    return jnp.tanh(theta @ x)


def three_channels(theta, x):
    return jnp.stack(
        [jnp.sin(theta[0] * x[0]), jnp.exp(-((theta[1] - x[1]) ** 2)), theta[2] * x[2]]
    )


FEATURES = {
    "tanh": lambda: ep.Neurons(X),
    "sigmoid bias": lambda: ep.Neurons(X, activation="sigmoid", bias=True, scale=2.0),
    "sine weight": lambda: ep.Neurons(X, activation="sine", bias=True, output_weight=True),
    "erf weight": lambda: ep.Neurons(X, activation="erf", bias=True, output_weight=True),
    "relu": lambda: ep.Neurons(X, activation="relu", bias=True),
    "three outputs": lambda: ep.Neurons(X, bias=True, output_weight=True, outputs=3, scale=1.5),
    "gaussian 1-D": lambda: ep.GaussianKernel(LINE, bandwidth=0.7),
    "gaussian 3-D": lambda: ep.GaussianKernel(X, bandwidth=[0.7, 1.0, 1.4]),
    "function": lambda: ep.FunctionFeatures(tanh_of_product, X, dim=3),
    "function vector": lambda: ep.FunctionFeatures(three_channels, X, dim=3),
    "triangles": lambda: ep.Triangles((4, 5), scale=2.0, spread=1.3, colour="tanh"),
    "grey triangles": lambda: ep.Triangles((4, 5), channels=1),
}
"""For each feature map, a function that makes it (in the precision of the caller)."""


def elsewhere(features):
    """Rows other than its own at which a map can be evaluated; another canvas for triangles."""
    if isinstance(features, ep.Triangles):
        return (3, 7)
    return np.asarray(features.rows)[:3] + 0.25


# Every loss and every feature map as a part of a whole problem.


def with_loss(name):
    """A problem with this loss, and features that are positive where there is one channel."""
    make, channels = LOSSES[name]
    rows = np.stack([TARGETS, TARGETS**2], axis=1)
    if channels:
        features = ep.Neurons(rows, bias=True, output_weight=True, outputs=channels[0])
    else:
        features = ep.Neurons(rows, activation="sigmoid", bias=True)
    return ep.FiniteSum(features, make(), temperature=0.1, l2=1 / 3)


def with_features(name):
    """A problem with this feature map and the squared loss."""
    features = FEATURES[name]()
    targets = np.cos(np.arange(np.prod(features.shape))).reshape(features.shape)
    return ep.FiniteSum(features, ep.Squared(targets), temperature=0.1, l2=0.1)


PROBLEMS = {
    **ALL,
    **{f"loss: {name}": partial(with_loss, name) for name in LOSSES},
    **{f"features: {name}": partial(with_features, name) for name in FEATURES},
}
"""The small problems, and one for each entry of the two tables."""
FUNCTIONS = {
    "cross_entropy": {"h": two_channels},
    "loss: user's function": {"function": pseudo_huber},
    "features: function": {"h": tanh_of_product},
    "features: function vector": {"h": three_channels},
}
"""For each of `PROBLEMS` that holds a function of the user, that function by its field's name."""
