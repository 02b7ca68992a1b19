"""Two small real data sets for density estimation.

`galaxies`: velocities of 82 galaxies of the Corona Borealis region in km/s (Postman, Huchra and
Geller 1986; Roeder 1990), as in R's MASS (Roeder's 78th value is 26960). `faithful`: durations of
272 eruptions of Old Faithful and waiting times to the next eruption (Haerdle 1991), as in R.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

NAMES = ("galaxies", "faithful")


def load(name: str) -> np.ndarray:
    """The rows of one of the data sets in `NAMES`, an (n, d) array."""
    with (files("entroplay.problems.datasets") / f"{name}.csv").open() as file:
        return np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2)
