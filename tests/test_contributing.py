"""The skeletons of CONTRIBUTING.md run as they are, from the files that the page names."""

import re
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.base.registry import RECORDS

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
SKELETONS = re.findall(
    r"Copy\s+this\s+into\s+`src/(entroplay/[\w/]+)\.py`.*?```python\n(.*?)```", PAGE, re.DOTALL
)
X = np.linspace(-2, 2, 12)[:, None]
Y = np.sin(1.5 * X[:, 0])


@pytest.fixture
def skeleton(monkeypatch):
    """Loads a skeleton as the module it is meant to become; the registry forgets it afterwards."""
    known = dict(RECORDS)

    def load(name):
        path, code = next(item for item in SKELETONS if item[0].endswith(f"/{name}"))
        module = types.ModuleType(path.replace("/", "."))
        module.__package__ = module.__name__.rpartition(".")[0]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, f"{path}.py", "exec"), module.__dict__)
        return module

    yield load
    RECORDS.clear()
    RECORDS.update(known)


def test_there_is_one_skeleton_for_each_family():
    families = sorted(Path(path).parent.name for path, _ in SKELETONS)
    assert families == ["features", "losses", "samplers", "solvers"]


def test_the_loss_has_the_slope_and_the_conjugate_of_its_closed_form(skeleton):
    """log cosh has the slope tanh and, at g = tanh z, the conjugate z tanh z - log cosh z."""
    with jax.enable_x64(True):
        loss, z = skeleton("log_cosh").LogCosh(Y), jnp.asarray(Y + np.linspace(-2, 2, 12))
        t = np.asarray(z) - Y
        np.testing.assert_allclose(loss.slope(z), np.tanh(t), atol=1e-12)
        closed = np.asarray(z) * np.tanh(t) - np.log(np.cosh(t))
        np.testing.assert_allclose(loss.conjugate(loss.slope(z)), closed, atol=1e-6)


def test_the_feature_map_keeps_its_laws(skeleton):
    """`potential` is the transpose of `average`, and `pull` its gradient."""
    features = skeleton("cosines").Cosines(X)
    rng = np.random.default_rng(0)
    cloud, c, v = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((7, 2), (7,), (12,)))
    left = float(v @ features.average(cloud, c))
    assert left == pytest.approx(float(c @ features.potential(cloud, v)), rel=1e-5)
    gradient = jax.grad(lambda p: jnp.sum(features.potential(p, v)))(cloud)
    np.testing.assert_allclose(features.pull(cloud, v), gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(features.at(X).average(cloud), features.average(cloud))


def test_the_sampler_leaves_the_prior_invariant(skeleton):
    """4000 draws of N(0, s^2) moved 30 times: variance within 5 errors, s^2 sqrt(2/4000) each.

    From draws twice as wide, 200 moves lead to the same variance, so the test could fail.
    """
    problem = ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=0.2, l2=0.5)
    gibbs = ep.Gibbs(problem, jnp.zeros(12, jnp.float32))
    variance = 0.2 / (2 * 0.5)
    error = variance * np.sqrt(2 / 4000)
    draws = problem.prior(jax.random.key(1), 4000)
    for start, steps in ((draws, 30), (2 * draws, 200)):
        sampler = skeleton("random_walk").RandomWalk(steps=steps, scale=1.0)
        moved, _, info = sampler.run(jax.random.key(2), gibbs, start, None, jnp.asarray(0))
        assert abs(float(jnp.var(moved)) - variance) < 5 * error
        assert 0.2 < float(info.acceptance) < 0.9


def test_the_solver_solves_and_is_kept_in_files(skeleton, tmp_path):
    """The anchor's pull fades like 1/t: after 300 iterations the moments are near those of EFP."""
    problem = ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=0.05, l2=0.05)
    solver = skeleton("halpern_efp").HalpernEFP(0.2, ep.MALA(steps=3))
    solution = ep.solve(problem, solver, particles=200, iterations=300)
    exact = ep.grid.solve(problem, iterations=0)
    first = float(problem.empirical_loss(jnp.zeros(12, jnp.float32)))
    distance = np.mean((np.asarray(solution.moments) - exact.moments) ** 2) / 2
    assert distance < 0.02 * first
    ep.save(solution, tmp_path / "halpern.safetensors")
    assert type(ep.load(tmp_path / "halpern.safetensors").solver) is type(solver)
