"""The painter's solver: relocation lowers the objective, and Langevin dynamics keeps its law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import entroplay as ep
from entroplay.methods.solvers.base import Start
from entroplay.painting.relocation import Vacancy, fresh_corners
from entroplay.painting.triangle_painter import scattered_triangles


def _scattered(painting):
    """A solution whose triangles are where a painting begins."""
    cloud = scattered_triangles(jax.random.key(3), 20, 9, 1.0, jnp.float32)
    return eqx.tree_at(lambda s: s.particles, painting.solution, cloud)


def test_relocation_pays(painting):
    """The same run without it ends with a larger error: here by more than a third."""
    pixels = painting.target - painting.background
    problem = painting.solution.problem
    errors = {}
    for every in (0, 10):
        solver = ep.TrianglePainter(400, relocate_every=every)
        solution = ep.solve(
            problem, solver, particles=20, iterations=400, seed=1, start=_scattered(painting)
        )
        errors[every] = np.mean((np.asarray(solution.moments).reshape(pixels.shape) - pixels) ** 2)
    assert errors[10] < 0.75 * errors[0]


def test_a_replacement_lowers_the_objective_by_what_was_promised(painting):
    """The objective of m triangles is computed from its definition.

    One triangle is left out, and then either the old one or a fresh one takes its place.
    """
    problem, particles = painting.solution.problem, painting.solution.particles
    l2, share = 30 * problem.l2_row, jnp.full(1, 1 / 20, jnp.float32)
    old = particles[3][None]
    without = problem.features.average(particles) - problem.features.average(old, share)
    mass = jnp.cumsum(jnp.ones(problem.features.shape[0], jnp.float32))
    corners = fresh_corners(jax.random.key(0), problem.features, mass, 150)
    of_old, of_fresh, fresh = Vacancy(problem, without, l2, 20).contest(old, corners)

    def lowered(triangle):
        after = without + problem.features.average(triangle, share)
        loss = problem.empirical_loss(without) - problem.empirical_loss(after)
        return float(loss) - float(jnp.sum(l2 * triangle**2)) / 20

    assert float(of_old) == pytest.approx(lowered(old), rel=1e-3)
    assert float(of_fresh) == pytest.approx(lowered(fresh[None]), rel=1e-3)
    # The fresh colour is the best one: the objective is a parabola in it, with its vertex here.
    for change in (-0.05, 0.05):
        assert lowered(fresh[None].at[0, 6].add(change)) < lowered(fresh[None])


def test_at_a_fixed_temperature_the_dynamics_keep_the_prior():
    """Triangles too pale to matter: U = l2 |theta|^2, whose law is N(0, temperature / (2 l2)).

    2,000 x 9 numbers, which start too narrow by half, are nearly independent after 400 steps. Their
    variance is known to sqrt(2 / 12,000) = 1.3 % for the corners and to 1.8 % for the colours. We
    allow four of these, and 1 % for steps of 1.6 % of the prior's width (corners) and 4 %
    (colours).
    """
    features = ep.Triangles((4, 4), scale=1e-6)
    problem = ep.FiniteSum(
        features, ep.Squared(np.zeros(features.shape)), temperature=0.02, l2=0.02
    )
    solver = ep.TrianglePainter(
        1000, heat=1.0, corner_step=0.02, colour_step=0.03, last_step=1.0, relocate_every=0
    )
    narrow = 0.5 * problem.prior(jax.random.key(1), 2000)
    state = solver.init(problem, Start(narrow, None, warm=False, key=jax.random.key(0)), 1)

    @jax.jit
    def run(state):
        return jax.lax.fori_loop(
            0, 400, lambda i, s: solver.step(problem, jax.random.key(i), s, i)[0], state
        )

    square = np.asarray(run(state).particles) ** 2 / 0.5
    assert abs(square[:, :6].mean() - 1) < 4 * 0.013 + 0.01
    assert abs(square[:, 6:].mean() - 1) < 4 * 0.018 + 0.01
