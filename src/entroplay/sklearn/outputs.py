"""The outputs of a network at any number of rows, in bounded memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..problems.features.base import mean_features
from ..problems.features.neurons import Neurons
from .rows import padded

BLOCKS = (64, 1024)
"""Numbers of rows that are predicted at once.

With two fixed shapes, predictions for another number of rows compile nothing.
"""


def outputs_at(
    X: np.ndarray, network: Neurons, particles: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The weighted mean of the neurons (n, k) at rows X, in double precision, block by block.

    `network` says what the neurons are; its own rows do not count.
    """
    block = BLOCKS[0] if len(X) <= BLOCKS[0] else BLOCKS[1]
    blocks = []
    with jax.enable_x64(True):
        cloud, shares = jnp.asarray(particles), jnp.asarray(weights)
        for first in range(0, len(X), block):
            part = X[first : first + block]
            features = Neurons(
                padded(part, block),
                network.activation,
                bias=True,
                output_weight=True,
                outputs=network.outputs,
                scale=float(network.scale),
            )
            values = np.asarray(mean_features(features, cloud, shares))
            blocks.append(values.reshape(block, -1)[: len(part)])
    return np.concatenate(blocks)
