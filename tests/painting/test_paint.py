"""`paint`: quality, reproducibility, reasons to stop, earlier paintings, bad arguments."""

import numpy as np
import pytest
from painting.cases import SIZE, photograph

import entroplay as ep


def test_it_comes_close(painting):
    """Twenty triangles explain 98 % of the variance of a disc and a stripe.

    Six would do for the stripe and a hexagon.
    """
    target = photograph() / 255
    np.testing.assert_allclose(painting.target, target, atol=1e-6)
    assert painting.mse < 0.02 * target.var(axis=(0, 1)).mean()
    assert painting.picture.shape == painting.mean_picture.shape == (*SIZE, 3)
    assert painting.mse == pytest.approx(np.mean((painting.picture - target) ** 2))
    assert painting.psnr == pytest.approx(-10 * np.log10(painting.mse))


def test_the_same_seed_gives_the_same_picture_and_another_one_another(painting):
    again, other = (
        ep.paint(photograph(), triangles=20, iterations=400, seed=seed) for seed in (0, 1)
    )
    np.testing.assert_array_equal(again.solution.particles, painting.solution.particles)
    assert np.abs(other.picture - painting.picture).max() > 0.01


@pytest.mark.parametrize("stop", ["callback", "target", "seconds"])
def test_reasons_to_stop(stop):
    reports = []
    options = {
        "callback": {
            "iterations": 400,
            "callback": lambda report: reports.append(report) or report.iteration >= 30,
        },
        "target": {"iterations": 400, "target_mse": 0.02},
        "seconds": {"seconds": 0.5},
    }[stop]
    painting = ep.paint(photograph(), triangles=20, **options)
    done = len(painting.solution.history["iteration"])
    if stop == "callback":
        assert painting.solution.status == "callback"
        assert 30 <= done < 400
        assert "PSNR" in str(reports[-1])
    elif stop == "target":
        assert painting.solution.status == "converged"
        assert done < 400
        # The run looks at the sum of the triangles; the picture is also clipped.
        assert painting.mse <= 0.021
    else:
        assert done == painting.solution.solver.iterations


def test_it_goes_on_from_an_earlier_painting(painting, tmp_path):
    painting.save(tmp_path / "p.safetensors")
    earlier = ep.load(tmp_path / "p.safetensors")
    further = ep.paint(photograph(), triangles=20, iterations=200, start=earlier)
    assert further.mse < painting.mse
    with pytest.raises(ValueError, match="30 triangles"):
        ep.paint(photograph(), triangles=30, iterations=5, start=painting)


def test_an_interrupted_painting_is_finished(painting, tmp_path):
    """From its file, about as well as without the interruption: only the momentum is lost."""
    begun = ep.paint(
        photograph(), triangles=20, iterations=400, callback=lambda report: report.iteration >= 150
    )
    begun.save(tmp_path / "begun.safetensors")
    ended = ep.paint(photograph(), triangles=20, start=ep.load(tmp_path / "begun.safetensors"))
    assert ended.solution.history["iteration"].tolist() == list(range(1, 401))
    assert ended.film.iterations.tolist() == sorted(set(ended.film.iterations.tolist()))
    assert ended.mse < 2 * painting.mse


def test_the_papers_method_paints_too(tmp_path):
    """A tenth of the paper's iterations. The running mean is H, closer than any one cloud."""
    painting = ep.paint(photograph(), triangles=200, iterations=200, preset="paper")
    start = np.mean((painting.target - painting.background) ** 2)
    assert np.mean((painting.mean_picture - painting.target) ** 2) < 0.5 * start
    np.testing.assert_array_equal(painting.running_mean.reshape(-1, 3), painting.solution.moments)
    painting.save(tmp_path / "efp.safetensors")
    loaded = ep.load(tmp_path / "efp.safetensors")
    assert repr(loaded) == repr(painting)
    assert loaded.solution.solver.sampler.step_size(0) == pytest.approx(0.1)


def test_greyscale_and_backgrounds():
    grey = ep.paint(photograph()[..., 0], triangles=20, iterations=20, background="black")
    assert grey.shape == (*SIZE, 1)
    np.testing.assert_array_equal(grey.background, [0.0])
    assert grey.triangles.colours.shape == (20, 1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"triangles": 0}, "triangles"),
        ({"method": "magic"}, "method"),
        ({"preset": "loud"}, "preset"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": 1, "iterations": 5}, "seconds"),
        ({"target_mse": 0}, "target_mse"),
        ({"background": "no such colour"}, "background"),
        ({"size": 0}, "size"),
        ({"seed": -1}, "seed"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=f"'{word}'"):
        ep.paint(photograph(), **{"iterations": None if "seconds" in arguments else 2, **arguments})
