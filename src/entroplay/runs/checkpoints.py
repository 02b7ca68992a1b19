"""Checkpoints: a run under way in a file, from which it continues as if nothing had happened."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.arguments import whole
from ..base.registry import result
from .codec import Encoder
from .container import MAX_BYTES, Contents, FilePath, write
from .files import read_record
from .solution import History


@result("checkpoint")
@dataclass(frozen=True)
class Checkpoint:
    """A run under way.

    Attributes:
        fingerprint: digest of everything that decides the run, see `identity`.
        iteration: iterations done.
        leaves: the arrays of the run's state and of its observers, in the order of the tree.
        history: one row for each iteration done.
        iterations: iterations planned; zero in files that do not say.
        particles: the size of the cloud, which may have grown; zero in files that do not say.
    """

    fingerprint: str
    iteration: int
    leaves: list[Any]
    history: History
    iterations: int = 0
    particles: int = 0

    def validate(self) -> None:
        """Nothing to check here: `Checkpoints.resume` compares everything with the run."""


def write_checkpoint(path: FilePath, checkpoint: Checkpoint) -> None:
    """Write the state of a run. Floating leaves must be finite; the history need not be."""
    whole("write_checkpoint", "iteration", checkpoint.iteration, least=0)
    encoder = Encoder()
    write(path, Contents("checkpoint", encoder(checkpoint), encoder.tensors))


def read_checkpoint(path: FilePath, *, max_bytes: int = MAX_BYTES) -> Checkpoint | None:
    """Read a checkpoint, or None if there is no file."""
    with suppress(FileNotFoundError):
        return read_record(path, max_bytes=max_bytes, kinds=("checkpoint",))


@dataclass
class Checkpoints:
    """The checkpoint file of a run, the seconds between two saves, and the run's fingerprint."""

    path: FilePath
    seconds: float
    identity: str
    saved: float = field(default_factory=time.perf_counter)
    """The time of the last save; a run that has just begun counts as saved."""

    def resume(self, tree: Any, found: Checkpoint) -> Any:
        """The arrays of a checkpoint in the structure of `tree`; one of another run is refused."""
        leaves, structure = jax.tree.flatten(tree)
        fits = [np.shape(x) for x in found.leaves] == [np.shape(x) for x in leaves]
        if found.fingerprint != self.identity or not fits:
            raise ValueError(
                f"The checkpoint {self.path} belongs to another run: the problem, the solver, the "
                "number of particles or the seed differ. Give another path, or delete the file."
            )
        return jax.tree.unflatten(structure, [jnp.asarray(x) for x in found.leaves])

    def save(
        self,
        tree: Any,
        history: History,
        iterations: int,
        particles: int,
        *,
        now: bool = False,
    ) -> None:
        """Write the run if it is due, or `now`. If the disk is full, warn and go on."""
        if not now and time.perf_counter() - self.saved < self.seconds:
            return
        done, leaves = len(history["iteration"]), jax.tree.leaves(tree)
        try:
            write_checkpoint(
                self.path,
                Checkpoint(self.identity, done, leaves, dict(history), iterations, particles),
            )
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self.path} could not be written: {error}. The run goes on.",
                stacklevel=4,
            )
        self.saved = time.perf_counter()
