"""One Langevin step of the paper's network (n=500, d=5, m=1000): ours, plain PyTorch, fused C++.

Run: python benchmarks/langevin_step.py. All have two threads, noise is included, and the best of
interleaved rounds counts.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from harness import interleaved_best, report

import entroplay as ep
from entroplay.measures.gibbs import Gibbs
from entroplay.problems.features.base import FeatureMap

N, D, M, STEPS = 500, 5, 1000, 50
ETA, L2, TEMPERATURE = 0.01, 0.01, 0.01


def ours(features: FeatureMap, y: np.ndarray, start: np.ndarray):
    """STEPS steps of the sampler ULA."""
    problem = ep.FiniteSum(features, ep.Squared(y), temperature=TEMPERATURE, l2=L2)
    gibbs = Gibbs(problem, problem.slope(jnp.zeros(N)))
    sampler, particles = ep.ULA(step_size=ETA, steps=STEPS), jnp.asarray(start, jnp.float32)
    move = jax.jit(lambda key, p: sampler.run(key, gibbs, p, None, jnp.asarray(0))[0])
    return lambda: move(jax.random.key(0), particles).block_until_ready()


def with_torch(X: np.ndarray, v: np.ndarray, start: np.ndarray, autograd: bool):
    """The same steps in PyTorch, with the gradient by autograd or by hand."""
    torch.set_num_threads(2)
    x, vector = torch.tensor(X, dtype=torch.float32), torch.tensor(v, dtype=torch.float32)

    def run():
        theta = torch.tensor(start, dtype=torch.float32)
        for _ in range(STEPS):
            if autograd:
                leaf = theta.requires_grad_(True)
                (torch.tanh(leaf @ x.T) @ vector).sum().backward()
                gradient, theta = leaf.grad, leaf.detach()
                assert gradient is not None
            else:
                hidden = torch.tanh(theta @ x.T)
                gradient = (vector * (1 - hidden * hidden)) @ x
            theta = (
                theta
                - ETA * (gradient + 2 * L2 * theta)
                + (2 * ETA * TEMPERATURE) ** 0.5 * torch.randn(M, D)
            )
        return theta

    return run


def fused(X: np.ndarray, v: np.ndarray, start: np.ndarray):
    """The same steps in C++ without any intermediate array: the limit of what is possible."""
    library = Path(tempfile.mkdtemp()) / "kernel.so"
    source = Path(__file__).with_name("langevin_kernel.cpp")
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    kernel = ctypes.CDLL(str(library)).langevin
    pointer, real = ctypes.c_void_p, ctypes.c_float
    sizes, scalars = [ctypes.c_int] * 3, [real] * 3
    kernel.argtypes = [*[pointer] * 3, *sizes, *scalars, ctypes.c_uint64, ctypes.c_int]
    columns, vector = np.ascontiguousarray(X.T, np.float32), np.asarray(v, np.float32)

    def run():
        theta = np.array(start, np.float32)
        arrays = (array.ctypes.data for array in (theta, columns, vector))
        kernel(*arrays, M, N, D, ETA, L2, TEMPERATURE, 1, STEPS)  # with the seed 1
        return theta

    return run


def main() -> None:
    X, y = ep.teacher.cosine_teacher(N, D)
    v = -y / N  # the weighted slope of the squared loss at moments zero
    start = np.random.default_rng(1).normal(size=(M, D)) * np.sqrt(TEMPERATURE / (2 * L2))
    contestants = {
        "Neurons": ours(ep.Neurons(X), y, start),
        "FunctionFeatures": ours(
            ep.FunctionFeatures(lambda theta, x: jnp.tanh(theta @ x), X, dim=D), y, start
        ),
        "PyTorch, autograd": with_torch(X, v, start, autograd=True),
        "PyTorch, gradient by hand": with_torch(X, v, start, autograd=False),
        "fused C++ (limit)": fused(X, v, start),
    }
    # All sample the same law, hence their means agree up to noise, whose standard deviation is
    # sqrt(2 eta temperature steps / m) = 0.003.
    means = {name: np.asarray(work()).mean(axis=0) for name, work in contestants.items()}
    for name, mean in means.items():
        assert np.abs(mean - means["Neurons"]).max() < 0.02, f"{name} does something else"
    best = interleaved_best(contestants)
    milliseconds = {name: 1e3 * seconds / STEPS for name, seconds in best.items()}
    ratios = {name: value / milliseconds["Neurons"] for name, value in milliseconds.items()}
    print(f"One Langevin step, n={N}, d={D}, m={M}, two threads, best of interleaved rounds")
    for name in contestants:
        print(f"{name:<28}{milliseconds[name]:8.3f} ms{ratios[name]:8.2f} x Neurons")
    plain = min(ratios["PyTorch, autograd"], ratios["PyTorch, gradient by hand"])
    above_limit = 1 / ratios["fused C++ (limit)"]
    function = ratios["FunctionFeatures"]
    checks = {
        f"Neurons at least 3 times faster than either PyTorch ({plain:.2f})": plain >= 3,
        f"Neurons within 1.5 times the limit ({above_limit:.2f})": above_limit <= 1.5,
        f"FunctionFeatures within 1.5 times Neurons ({function:.2f})": function <= 1.5,
    }
    report("langevin_step", {"milliseconds": milliseconds, "ratios": ratios}, checks)


if __name__ == "__main__":
    main()
