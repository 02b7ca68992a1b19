"""1000 -> 50 particles of the paper's network: errors at points that were held out.

Compared are the three methods of `compress` and random subsets.
"""

from __future__ import annotations

import time

import numpy as np
import tables

import entroplay as ep
from entroplay.measures.calibration import calibrated_weights

SIZE, SUBSETS = 50, 20


def main() -> None:
    problem = ep.teacher.paper_network(temperature=1e-3, l2=1e-3)
    solution = ep.solve(problem, iterations=60)
    X = np.random.default_rng(1).normal(size=(1000, 5))
    full, at = np.asarray(solution.predict(X)), problem.features.at(X)

    def errors(cloud, weights) -> tuple[float, float]:
        """Root mean square errors with equal and with calibrated weights."""
        return tuple(
            float(np.sqrt(np.mean((np.asarray(at.average(cloud, w)) - full) ** 2)))
            for w in (None, weights)
        )

    rng = np.random.default_rng(2)
    subsets = [solution.particles[rng.choice(1000, SIZE, replace=False)] for _ in range(SUBSETS)]
    chance = np.mean(
        [errors(s, calibrated_weights(problem, s, solution.moments)) for s in subsets], axis=0
    )
    rows = [
        [
            f"random, mean of {SUBSETS}",
            f"{chance[0]:.4f}",
            f"{chance[1]:.4f}",
            f"{chance[0] / chance[1]:.1f}",
            "",
        ]
    ]
    for method in ("herding", "stein", "thinning"):
        ep.compress(solution, SIZE, method)  # compiles
        start = time.perf_counter()
        small = ep.compress(solution, SIZE, method)
        seconds = time.perf_counter() - start
        plain, weighted = errors(small.particles, small.weights)
        rows.append(
            [
                method,
                f"{plain:.4f}",
                f"{weighted:.4f}",
                f"{chance[0] / weighted:.1f}",
                f"{seconds:.2f}",
            ]
        )
    spread = float(full.std())
    note = (
        "Root mean square distance from the predictions of all 1000 particles at 1000 new points, "
        f"where these have a standard deviation of {spread:.3f}. The gain is that of the "
        "calibrated subset over random ones with equal weights."
    )
    tables.write(
        "compression",
        ["method", "equal weights", "calibrated weights", "gain", "seconds"],
        rows,
        note,
    )


if __name__ == "__main__":
    main()
