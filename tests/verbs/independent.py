"""Answers of small problems in plain NumPy and SciPy, which share no code with the library.

A problem has features, a loss and an integral of its own here. Integrals are sums over
Gauss-Legendre panels whose widths grow geometrically away from every local minimum of the energy
and from every kink: a mode of any width is resolved by some of them. In the plane they are
iterated, line by line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import erf, expit, log_softmax, softmax

CUT = 55.0
"""Densities below exp(-CUT) times the greatest are left out."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def activation(kind, z):
    return {
        "tanh": np.tanh,
        "relu": lambda t: np.maximum(t, 0),
        "sigmoid": expit,
        "erf": erf,
    }[kind](z)


@dataclass(frozen=True)
class Problem:
    """Minimise sum_i loss_i(E[h_i]) / n + l2 E|theta|^2 + temperature Ent."""

    kind: str
    rows: np.ndarray
    loss: str
    targets: np.ndarray | None
    temperature: float
    variance: float
    dim: int
    scale: float = 1.0
    """The factor of the features."""
    strength: float = 1.0
    """The scale of the squared loss, Huber's delta, or the bandwidth of the kernel."""
    cache: dict = field(default_factory=dict, compare=False, repr=False)

    @property
    def l2(self):
        return self.temperature / (2 * self.variance)

    def features(self, theta):
        """h at points of shape (N, d): (N, n), or (N, n, 2)."""
        x = self.rows
        if self.kind == "kernel":
            square = ((theta[:, None, :] - x[None]) ** 2).sum(axis=2) / self.strength**2
            return np.exp(-square / 2) / (np.sqrt(2 * np.pi) * self.strength) ** self.dim
        first = theta[:, :1]
        if self.kind == "wave":
            return np.sin(first * x) / (1 + first**2 / 9)
        if self.kind == "product":
            return np.tanh(first * x) * np.tanh(theta[:, 1:])
        if self.kind == "pair":
            other = np.tanh(theta[:, 1:] + x) * (first / (1 + first**2))
            return np.stack([np.tanh(first * x), other], axis=2)
        bias = theta[:, 1:] if self.dim == 2 else 0
        return self.scale * activation(self.kind, first * x + bias)

    def kinks(self, first=None):
        """Kinks along the last coordinate, where the first one is given in the plane."""
        if self.kind != "relu":
            return np.zeros(0)
        return np.zeros(1) if self.dim == 1 else -first * self.rows

    def value(self, moments):
        z, y = moments, self.targets
        if self.loss == "squared":
            terms = self.strength * (z - y) ** 2 / 2
        elif self.loss == "logistic":
            terms = np.logaddexp(0, -y * z)
        elif self.loss == "huber":
            a = np.abs(z - y)
            terms = np.where(a <= self.strength, a**2 / 2, self.strength * (a - self.strength / 2))
        elif self.loss == "neg_log":
            terms = -np.log(z)
        else:
            terms = -log_softmax(z, axis=1)[np.arange(len(z)), y]
        return terms.mean()

    def slope(self, moments):
        z, y = moments, self.targets
        if self.loss == "squared":
            return self.strength * (z - y)
        if self.loss == "logistic":
            return -y * expit(-y * z)
        if self.loss == "huber":
            return np.clip(z - y, -self.strength, self.strength)
        if self.loss == "neg_log":
            return -1 / z
        return softmax(z, axis=1) - np.eye(2)[y]

    def energy(self, theta, dual):
        h = self.features(theta)
        potential = h.reshape(len(theta), -1) @ dual.ravel() / len(dual)
        return potential + self.l2 * (theta**2).sum(axis=1)


def bracket(problem, moments):
    """D(g) and L(q_g) at g = loss'(moments), and E_{q_g}[h]: the minimum lies between the two."""
    dual = problem.slope(moments)
    log_z, mean = integrals(problem, dual)
    below = (
        problem.value(moments) - (dual * moments).sum() / len(dual) - problem.temperature * log_z
    )
    gap = problem.value(mean) - problem.value(moments) - (dual * (mean - moments)).sum() / len(dual)
    return below, below + gap, mean


def attained(problem, dual):
    """L(q_g) for any g: loss(P) - <g, P> - T log Z_g with P = E_{q_g}[h]."""
    log_z, mean = integrals(problem, dual)
    return problem.value(mean) - (dual * mean).sum() / len(dual) - problem.temperature * log_z


def integrals(problem, dual):
    """log Z_g and E_{q_g}[h]."""
    half = box(problem, dual)
    if problem.dim == 1:
        points, weights = line(problem, dual, half)
    else:
        points, weights = plane(problem, dual, half)
    logs = -problem.energy(points, dual) / problem.temperature
    mass = np.exp(logs - logs.max()) * weights
    mean = np.tensordot(mass, problem.features(points), 1) / mass.sum()
    return logs.max() + np.log(mass.sum()), mean


def box(problem, dual):
    """Half the width of a box outside of which the density is negligible."""
    half = np.sqrt(CUT * problem.temperature / problem.l2)
    for _ in range(200):
        reach = np.concatenate([[0], np.geomspace(1e-3, 1, 60)]) * half
        axis = np.concatenate([-reach, reach])
        points = np.stack([a.ravel() for a in np.meshgrid(*[axis] * problem.dim)], axis=1)
        potential = problem.energy(points, dual) - problem.l2 * (points**2).sum(axis=1)
        needed = np.sqrt((np.ptp(potential) + CUT * problem.temperature) / problem.l2)
        if needed <= half:
            return half
        half = 1.1 * needed
    raise AssertionError("no box")


def scan(problem, half, count):
    """Points along one coordinate, even around the origin and geometric far from it."""
    width = np.sqrt(problem.variance)
    far = np.geomspace(1e-4 * width, half, count)
    near = np.linspace(0, min(12 * width, half), count)
    side = np.concatenate([far, near])
    return np.unique(np.concatenate([-side, side]))


def minima(energy, grid):
    """Local minima of a function of one variable, by golden sections between points of a grid."""
    values = energy(grid)
    inner = np.flatnonzero((values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])) + 1
    low, high = grid[inner - 1], grid[inner + 1]
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(50):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        down = energy(left) < energy(right)
        low, high = np.where(down, low, left), np.where(down, right, high)
    return np.concatenate([grid[inner], (low + high) / 2])


def panels(marks, half, per_side, smallest):
    """The ends of panels that shrink geometrically towards every mark."""
    offsets = np.concatenate([[0], np.geomspace(smallest, 2 * half, per_side)])
    ends = (marks[:, None] + np.concatenate([-offsets, offsets])).ravel()
    ends = np.unique(np.concatenate([np.clip(ends, -half, half), [0.0]]))
    return ends[:-1], ends[1:]


def finest(problem, dual, half):
    """A length over which the log-density changes by less than about a hundredth."""
    size = np.abs(problem.rows).max() * np.abs(dual).mean() * max(problem.scale, 1)
    return min(1e-2 * problem.temperature / (size + 1e-9), 1e-3 * half)


def spread(left, right):
    """The nodes and weights of panels."""
    centre, radius = (left + right) / 2, (right - left) / 2
    return (centre[:, None] + radius[:, None] * NODES).ravel(), (radius[:, None] * WEIGHTS).ravel()


def line(problem, dual, half, first=None, least=None, count=3000, per_side=150):
    """Points and weights along the last coordinate; None where all densities are negligible."""

    def at(t):
        return t[:, None] if first is None else np.stack([np.full(len(t), first), t], axis=1)

    def energy(t):
        return problem.energy(at(t), dual)

    kinks = problem.kinks(first)
    kinks = kinks[np.abs(kinks) < half]
    found = np.concatenate([minima(energy, np.union1d(scan(problem, half, count), kinks)), kinks])
    values = energy(found)
    least = values.min() if least is None else min(least, values.min())
    floor = least + CUT * problem.temperature
    if values.min() > floor:
        return None
    left, right = panels(
        found[(values <= floor) | np.isin(found, kinks)],
        half,
        per_side,
        finest(problem, dual, half),
    )
    # Panels with a density that counts at an end or in the middle.
    lowest = np.minimum.reduce([energy(left), energy(right), energy((left + right) / 2)])
    keep = lowest <= floor
    keep = keep | np.append(keep[1:], False) | np.append(False, keep[:-1])
    nodes, weights = spread(left[keep], right[keep])
    return at(nodes), weights


def plane(problem, dual, half):
    """Points and weights in the plane: lines through the nodes of panels along the first axis."""
    modes, least = deepest(problem, dual, half)
    left, right = panels(np.append(modes, 0.0), half, 32, finest(problem, dual, half))
    ends = np.unique(np.concatenate([left, right, (left + right) / 2]))
    floor = least + CUT * problem.temperature

    def lowest(first):
        grid = scan(problem, half, 200)
        kinks = problem.kinks(first)

        def energy(t):
            return problem.energy(np.stack([np.full(len(t), first), t], axis=1), dual)

        found = minima(energy, np.union1d(grid, kinks[np.abs(kinks) < half]))
        return energy(np.concatenate([found, kinks])).min()

    counts = {t: lowest(t) <= floor for t in ends}
    keep = np.array(
        [counts[a] or counts[b] or counts[(a + b) / 2] for a, b in zip(left, right, strict=True)]
    )
    keep = keep | np.append(keep[1:], False) | np.append(False, keep[:-1])
    points, weights = [], []
    for first, weight in zip(*spread(left[keep], right[keep]), strict=True):
        found = line(problem, dual, half, first, least, count=200, per_side=40)
        if found is not None:
            points.append(found[0])
            weights.append(weight * found[1])
    return np.concatenate(points), np.concatenate(weights)


def deepest(problem, dual, half):
    """The first coordinates of all modes that count in the plane, and the least energy."""
    axis = scan(problem, half, 120)
    points = np.stack([a.ravel() for a in np.meshgrid(axis, axis, indexing="ij")], axis=1)
    if "lattice" not in problem.cache or problem.cache["lattice"][0] != half:
        problem.cache["lattice"] = (half, problem.features(points).reshape(len(points), -1))
    energy = problem.cache["lattice"][1] @ dual.ravel() / len(dual)
    energy = (energy + problem.l2 * (points**2).sum(axis=1)).reshape(len(axis), -1)
    padded = np.pad(energy, 1, constant_values=np.inf)
    around = np.minimum.reduce(
        [
            padded[1 + i : len(axis) + 1 + i, 1 + j : len(axis) + 1 + j]
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
        ]
    )
    local = np.flatnonzero((energy <= around).ravel())
    starts = points[local[np.argsort(energy.ravel()[local])[:30]]]
    if problem.kind == "kernel":
        starts = np.concatenate([starts, problem.rows])
    ends, values = [], []
    for start in starts:
        size = 0.05 * (1 + np.abs(start).max())
        simplex = start + size * np.array([[0, 0], [1, 0], [0, 1]])
        options = {"initial_simplex": simplex, "xatol": 1e-12, "fatol": 1e-15, "maxiter": 600}
        result = minimize(
            lambda t: problem.energy(t[None], dual)[0], start, method="Nelder-Mead", options=options
        )
        ends.append(result.x[0])
        values.append(result.fun)
    ends, values = np.array(ends), np.array(values)
    near = ends[values <= values.min() + CUT * problem.temperature]
    near = near[np.unique(np.round(near / half * 1e9), return_index=True)[1]]
    return near, values.min()


def optimum(problem):
    """The minimum and its moments in one dimension, by Newton's method at falling temperatures.

    The dual is maximised in the moments H, g = loss'(H), with steps (I + J)^{-1} (E_q[h] - H).
    """
    moments = integrals(problem, np.zeros(problem.features(np.zeros((1, 1))).shape[1:]))[1]
    if problem.loss == "neg_log":
        moments = np.maximum(moments, 1e-3)
    temperature = max(10.0, problem.temperature)
    while True:
        moments = _newton(replace(problem, temperature=temperature, cache={}), moments)
        if temperature == problem.temperature:
            return bracket(problem, moments)[0], moments
        temperature = max(problem.temperature, temperature / 3)


def _newton(problem, moments):
    n = len(moments)
    half_step = 1e-6

    def state(z):
        dual = problem.slope(z)
        half = box(problem, dual)
        points, weights = line(problem, dual, half, count=800, per_side=120)
        logs = -problem.energy(points, dual) / problem.temperature
        mass = np.exp(logs - logs.max()) * weights
        log_z = logs.max() + np.log(mass.sum())
        value = problem.value(z) - (dual * z).sum() / n - problem.temperature * log_z
        return value, problem.features(points), mass / mass.sum()

    value, h, mass = state(moments)
    for _ in range(60):
        mean = mass @ h
        residual = mean - moments
        curvature = (problem.slope(moments + half_step) - problem.slope(moments - half_step)) / (
            2 * half_step
        )
        centred = (h - mean) * np.sqrt(mass)[:, None]
        jacobian = centred.T @ centred * curvature / (n * problem.temperature)
        step = np.linalg.solve(np.eye(n) + jacobian, residual)
        if np.abs(step).max() <= 1e-11 * (1 + np.abs(moments).max()):
            break
        for halving in range(40):
            trial = moments + 0.5**halving * step
            if problem.loss == "neg_log" and (trial <= 0).any():
                continue
            new, new_h, new_mass = state(trial)
            if new >= value - 1e-14 * (1 + abs(value)):
                break
        else:
            break
        stuck = new <= value + 1e-15 * (1 + abs(value)) and halving > 10
        moments, value, h, mass = trial, new, new_h, new_mass
        if stuck:
            break
    return moments
