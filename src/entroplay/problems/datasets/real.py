"""Two small real sets for density estimation.

`galaxies`: velocities of 82 galaxies of the Corona Borealis region in km/s (Postman, Huchra and Geller 1986; Roeder 1990), as R's
MASS has them (Roeder's 78th value is 26960). `faithful`: duration of and waiting time to 272 eruptions of Old Faithful (Haerdle
1991), as R has them.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

NAMES = ("galaxies", "faithful")


def load(name: str) -> np.ndarray:
    """(n, d)."""
    with (files(__name__) / f"{name}.csv").open() as file:
        return np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2)
