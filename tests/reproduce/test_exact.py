"""Dynamics of densities on a grid."""

from itertools import islice

import numpy as np
import pytest

import entroplay as ep
from entroplay.measures.quadrature import Quadrature
from entroplay.reproduce import exact
from entroplay.reproduce.settings import bounded_settings


def test_the_langevin_equation_on_a_grid():
    """Without features the law stays normal, with variance
    T/(2 l2) + (v - T/(2 l2)) exp(-4 l2 t). Implicit steps of size h err by h/2 times the second
    derivative of that: less than 8 l2^2 (T/(2 l2)) h t. The optimum of a network does not move.
    """
    nothing = ep.FunctionFeatures(lambda theta, x: 0.0 * theta[0] * x, [1.0, 2.0], dim=1)
    problem = ep.FiniteSum(nothing, ep.Squared([0.0, 0.0]), temperature=0.5, l2=0.25)
    quadrature = Quadrature.on(problem, (np.linspace(-9, 9, 1201),))
    axis, start, h, steps = quadrature.axes[0], 0.3, 0.01, 100
    density = np.exp(-(axis**2) / (2 * start)) / np.sqrt(2 * np.pi * start)
    density = next(islice(exact.langevin(quadrature, h, density), steps, None))
    variance = float((density * axis**2).sum() * quadrature.cell)
    assert float(density.sum() * quadrature.cell) == pytest.approx(1, abs=1e-9)
    assert (density >= 0).all()
    assert variance == pytest.approx(1 + (start - 1) * np.exp(-1), abs=8 * 0.25**2 * h + 1e-3)
    network = ep.grid.solve(
        bounded_settings(quick=True)[1].quadrature.problem, iterations=0, points=501
    )
    optimum = network.density.ravel()
    later = next(islice(exact.langevin(network.quadrature, 0.1, optimum), 50, None))
    np.testing.assert_allclose(later, optimum, atol=1e-8)
