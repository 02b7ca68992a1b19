"""The painter: photographs in, triangles out, files of every kind, and what happens when something is wrong."""

import io
import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import entroplay as ep
from entroplay.commands import main
from entroplay.methods.solvers.base import Start
from entroplay.painting import export as files
from entroplay.painting.images import ImageError, colour, read_image
from entroplay.painting.relocation import Vacancy, fresh_corners
from entroplay.painting.triangle_painter import scattered_triangles
from entroplay.problems.features import raster, raster_reference

SIZE = (24, 32)
GOLDEN = Path(__file__).parents[1] / "golden"
SHORT = ["--triangles", "20", "--iterations", "40"]


def photograph():
    """A disc and a stripe, in colour."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    picture = np.full((*SIZE, 3), [0.2, 0.3, 0.6])
    picture[(y - 12) ** 2 + (x - 12) ** 2 < 50] = [0.9, 0.8, 0.1]
    picture[:, 24:28] = [0.1, 0.5, 0.2]
    return np.round(picture * 255).astype(np.uint8)


@pytest.fixture(scope="module")
def painting():
    return ep.paint(photograph(), triangles=20, iterations=400)


@pytest.fixture
def file(tmp_path):
    Image.fromarray(photograph()).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


# The painting ---------------------------------------------------------------------------------------------------------------


def test_it_comes_close(painting):
    """Twenty triangles explain 98 % of the variance of a disc and a stripe (six would do for the stripe and a hexagon)."""
    target = photograph() / 255
    np.testing.assert_allclose(painting.target, target, atol=1e-6)
    assert painting.mse < 0.02 * target.var(axis=(0, 1)).mean()
    assert painting.picture.shape == painting.mean_picture.shape == (*SIZE, 3)
    assert painting.mse == pytest.approx(np.mean((painting.picture - target) ** 2))
    assert painting.psnr == pytest.approx(-10 * np.log10(painting.mse))


def test_the_picture_is_the_sum_of_its_triangles(painting):
    vertices, colours = painting.triangles
    assert len(vertices) == len(colours) == 20
    corners = (vertices * [SIZE[1], SIZE[0]]).reshape(20, 6)
    drawn = raster_reference.reference_deposit(
        jnp.asarray(corners, jnp.float32), jnp.asarray(colours), height=SIZE[0], width=SIZE[1]
    )
    np.testing.assert_allclose(
        np.clip(np.asarray(drawn) + painting.background, 0, 1), painting.picture, atol=2e-5
    )


def test_the_same_seed_gives_the_same_picture_and_another_one_another(painting):
    again, other = (
        ep.paint(photograph(), triangles=20, iterations=400, seed=seed) for seed in (0, 1)
    )
    np.testing.assert_array_equal(again.solution.particles, painting.solution.particles)
    assert np.abs(other.picture - painting.picture).max() > 0.01


def test_it_renders_at_any_resolution(painting):
    """A larger picture, averaged over blocks, is the smaller one where nothing is clipped."""
    large = painting.render((72, 96))
    assert painting.render(96).shape == large.shape == (72, 96, 3)
    blocks = large.reshape(24, 3, 32, 3, 3).mean(axis=(1, 3))
    inside = ((large > 0) & (large < 1)).reshape(24, 3, 32, 3, 3).all(axis=(1, 3))
    np.testing.assert_allclose(blocks[inside], painting.picture[inside], atol=1e-5)
    assert np.mean((painting.render_mean(64) - painting.render(64)) ** 2) < painting.mse


def test_it_says_what_it_is_and_shows_itself(painting):
    text = repr(painting)
    assert "20 triangles, 32 x 24 pixels" in text
    assert "not verified" in text
    image = Image.open(io.BytesIO(painting._repr_png_()))
    assert np.abs(np.asarray(image) / 255 - painting.picture).max() <= 0.5 / 255 + 1e-6


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
    """The objective of m triangles, without one and with either the old or the fresh one, computed from its definition."""
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
    # Its colour is the best one: the objective is a parabola in it, with its top here.
    for change in (-0.05, 0.05):
        assert lowered(fresh[None].at[0, 6].add(change)) < lowered(fresh[None])


def test_at_a_fixed_temperature_the_dynamics_keep_the_prior():
    """Triangles too pale to matter: U = l2 |theta|^2, whose law is N(0, temperature / (2 l2)). 2,000 x 9 numbers, started too
    narrow by half, are nearly independent after 400 steps: their variance is known to sqrt(2 / 12,000) = 1.3 % for the corners
    and 1.8 % for the colours; four of these, and 1 % for steps of 1.6 % of the prior's width (corners) and 4 % (colours).
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


def _scattered(painting):
    """A solution whose triangles are where a painting begins."""
    cloud = scattered_triangles(jax.random.key(3), 20, 9, 1.0, jnp.float32)
    return eqx.tree_at(lambda s: s.particles, painting.solution, cloud)


@pytest.mark.parametrize("stop", ["callback", "target", "seconds"])
def test_reasons_to_stop(stop):
    heard = []
    options = {
        "callback": {
            "iterations": 400,
            "callback": lambda report: heard.append(report) or report.iteration >= 30,
        },
        "target": {"iterations": 400, "target_mse": 0.02},
        "seconds": {"seconds": 0.5},
    }[stop]
    painting = ep.paint(photograph(), triangles=20, **options)
    done = len(painting.solution.history["iteration"])
    if stop == "callback":
        assert painting.solution.status == "callback"
        assert 30 <= done < 400
        assert "PSNR" in str(heard[-1])
    elif stop == "target":
        assert painting.solution.status == "converged"
        assert done < 400
        assert (
            painting.mse <= 0.021
        )  # the run looks at the sum of triangles, the picture is also clipped
    else:
        assert done == painting.solution.solver.iterations


def test_it_goes_on_from_an_earlier_painting(painting, tmp_path):
    painting.save(tmp_path / "p.safetensors")
    further = ep.paint(
        photograph(), triangles=20, iterations=200, start=ep.load(tmp_path / "p.safetensors")
    )
    assert further.mse < painting.mse
    with pytest.raises(ValueError, match="30 triangles"):
        ep.paint(photograph(), triangles=30, iterations=5, start=painting)


def test_an_interrupted_painting_is_finished(painting, tmp_path):
    """From its file, and as well as if nothing had happened: only the momentum of one step is lost."""
    begun = ep.paint(
        photograph(), triangles=20, iterations=400, callback=lambda report: report.iteration >= 150
    )
    begun.save(tmp_path / "begun.safetensors")
    ended = ep.paint(photograph(), triangles=20, start=ep.load(tmp_path / "begun.safetensors"))
    assert ended.solution.history["iteration"].tolist() == list(range(1, 401))
    assert ended.film.iterations.tolist() == sorted(set(ended.film.iterations.tolist()))
    assert ended.mse < 2 * painting.mse


def test_the_papers_method_paints_too(tmp_path):
    """A tenth of the paper's iterations. The running mean is H, closer than any one cloud is."""
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


def test_the_film_ends_with_the_picture(painting):
    np.testing.assert_array_equal(painting.film.particles[-1], painting.solution.particles)
    assert painting.film.iterations[-1] == 400
    assert frame_iterations(1) == [1]
    assert frame_iterations(3) == [1, 2, 3]


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
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(ValueError, match=f"'{word}'"):
        ep.paint(photograph(), **{"iterations": None if "seconds" in arguments else 2, **arguments})


# Photographs ----------------------------------------------------------------------------------------------------------------


def saved(image, path, **options):
    image.save(path, **options)
    return path


def test_photographs_of_all_kinds(tmp_path):
    """Each as the same picture, to the precision of its format."""
    rgb = photograph()
    image = Image.fromarray(rgb)
    grey = np.asarray(image.convert("L"))
    turned = image.transpose(
        Image.Transpose.ROTATE_90
    )  # a camera that was held upright stores it so, and says so
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {
        "png": (saved(image, tmp_path / "a.png"), rgb / 255, 1e-6),
        "exif": (saved(turned, tmp_path / "b.png", exif=exif), rgb / 255, 1e-6),
        "grey": (saved(image.convert("L"), tmp_path / "c.png"), grey[..., None] / 255, 1e-6),
        "palette": (saved(image.quantize(64), tmp_path / "d.png"), rgb / 255, 0.02),
        "cmyk": (saved(image.convert("CMYK"), tmp_path / "e.tiff"), rgb / 255, 0.02),
        "16 bit": (
            saved(Image.fromarray(grey.astype(np.uint16) * 257), tmp_path / "f.png"),
            grey[..., None] / 255,
            1e-6,
        ),
        "bilevel": (
            saved(image.convert("1"), tmp_path / "g.png"),
            np.asarray(image.convert("1"))[..., None] * 1.0,
            1e-6,
        ),
    }
    for name, (path, expected, tolerance) in files.items():
        np.testing.assert_allclose(read_image(path), expected, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(read_image(image), rgb / 255, atol=1e-6)
    np.testing.assert_allclose(read_image(rgb / 255.0), rgb / 255, atol=1e-6)
    np.testing.assert_allclose(read_image(rgb.astype(np.uint16) * 257), rgb / 255, atol=1e-6)


def test_transparency_lies_over_the_matte(tmp_path):
    rgba = np.dstack([photograph(), np.full(SIZE, 51, np.uint8)])
    path = saved(Image.fromarray(rgba), tmp_path / "a.png")
    expected = 0.2 * photograph() / 255 + 0.8 * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(read_image(path, matte="red"), expected, atol=1e-6)


def test_large_photographs_are_reduced_and_small_ones_are_not(tmp_path):
    assert read_image(np.zeros((300, 100)), size=60).shape == (60, 20, 1)
    assert read_image(np.zeros((30, 10)), size=60).shape == (30, 10, 1)
    ramp = np.broadcast_to(np.linspace(0, 1, 400)[:, None, None], (400, 40, 3))
    np.testing.assert_allclose(
        read_image(ramp, size=100)[10:-10], ramp[1::4, ::4][10:-10], atol=0.01
    )


@pytest.mark.parametrize("value", ["white", "#ffffff", 1, (1, 1, 1)])
def test_colours(value):
    assert colour(value, 3) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="background"):
        colour((1, 2, 3), 3)


@pytest.mark.parametrize("what", ["text", "empty", "cut short", "bomb", "folder", "missing"])
def test_what_is_no_picture_is_refused(what, tmp_path, file, monkeypatch):
    path = tmp_path / "bad.png"
    if what == "text":
        path.write_text("not a picture")
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "cut short":
        path.write_bytes(file.read_bytes()[:80])
    elif what == "bomb":
        path = file
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    elif what == "folder":
        path = tmp_path
    with pytest.raises(ImageError, match=r"bad.png|photo.png|cannot be read"):
        read_image(path)


# Files ----------------------------------------------------------------------------------------------------------------------


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image) / 255


def test_pictures_are_written_as_rendered(painting, tmp_path):
    painting.save(tmp_path / "a.png")
    painting.save(tmp_path / "a.mean.png")
    painting.save(tmp_path / "b.png", size=100)
    painting.save(tmp_path / "c.jpg")
    read = pixels_of(tmp_path / "a.png")
    np.testing.assert_allclose(read, painting.picture, atol=0.5 / 255 + 1e-6)
    read = pixels_of(tmp_path / "a.mean.png")
    np.testing.assert_allclose(read, painting.mean_picture, atol=0.5 / 255 + 1e-6)
    assert pixels_of(tmp_path / "b.png").shape == (75, 100, 3)
    assert pixels_of(tmp_path / "c.jpg").shape == (24, 32, 3)
    assert not list(tmp_path.glob(".*"))


def test_a_film_shows_every_snapshot(painting, tmp_path):
    painting.save(tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames >= 0.5 * len(
            painting.film.iterations
        )  # Pillow joins frames that do not differ
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB")) / 255
    assert np.mean((last - painting.picture) ** 2) < 1e-3


@pytest.mark.parametrize("ending", [".mp4", ".webm"])
def test_films_as_video(painting, tmp_path, ending):
    av = pytest.importorskip("av")
    painting.save(tmp_path / f"a{ending}")
    with av.open(str(tmp_path / f"a{ending}")) as container:
        frames = list(container.decode(video=0))
    assert (frames[0].width, frames[0].height) == (32, 24)
    assert len(frames) >= len(painting.film.iterations)


def _numbers(colour):
    """#rrggbb as three numbers from 0 to 255."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def test_an_svg_has_all_triangles_and_states_its_error(painting, tmp_path):
    facts = files.write(painting, tmp_path / "a.svg", size=64)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polygon")) == 20
    assert (root.get("width"), root.get("height")) == ("64", "48")
    assert f"{facts['mse']:.6f}" in root.find(f"{space}desc").text
    # Composed anew, shape by shape, from what the file says, in whole numbers from 0 to 255 as viewers do: colour times opacity
    # rounded, opacity times coverage, and what shines through rounded or cut off.
    pictures = [
        np.broadcast_to(_numbers(root.find(f"{space}rect").get("fill")), (*SIZE, 3))
        for _ in range(2)
    ]
    for shape in root.findall(f"{space}polygon"):
        corners = np.array(
            [[float(x) for x in point.split(",")] for point in shape.get("points").split()]
        ).reshape(1, 6)
        share = np.asarray(
            raster.deposit(jnp.asarray(corners, jnp.float32), jnp.ones((1, 1), jnp.float32), *SIZE)
        )
        opacity = float(shape.get("fill-opacity"))
        added = np.round(_numbers(shape.get("fill")) * opacity) * share
        through = [(1 - opacity * share) * picture for picture in pictures]
        lost = 0.5 * (share > 1e-9)
        pictures = [np.round(added + through[0]), np.round(added + through[1] - lost)]
    errors = [np.mean((picture / 255 - painting.target) ** 2) for picture in pictures]
    assert max(errors) == pytest.approx(facts["mse"], rel=0.02)
    assert facts["mse"] < 0.05 * painting.target.var(axis=(0, 1)).mean()


def test_the_log_has_a_line_per_snapshot(painting, tmp_path):
    painting.save(tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == painting.film.iterations.tolist()
    assert rows[-1]["mse"] == pytest.approx(painting.mse, rel=0.2)
    assert rows[-1]["mse"] < 0.2 * rows[0]["mse"]


def test_a_painting_comes_back_from_its_file(painting, tmp_path):
    painting.save(tmp_path / "a.safetensors")
    loaded = ep.load(tmp_path / "a.safetensors")
    assert repr(loaded) == repr(painting)
    for name in ("picture", "mean_picture", "target"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(painting, name))
    with pytest.raises(ValueError, match="data"):
        ep.save(painting, tmp_path / "b.safetensors", data=False)
    raw = bytearray((tmp_path / "a.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(ep.FileFormatError, match="altered"):
        ep.load(tmp_path / "a.safetensors")


# The command ----------------------------------------------------------------------------------------------------------------


def test_the_command_paints_several_images_into_several_files(file, tmp_path, capsys):
    second = saved(Image.fromarray(photograph()).convert("L"), tmp_path / "grey.png")
    outputs = [
        "--out",
        str(tmp_path / "{name}-out.png"),
        "--out",
        str(tmp_path / "{name}.safetensors"),
    ]
    assert (
        main(["paint", str(file), str(second), *outputs, *SHORT, "--render-size", "50", "--json"])
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert [p["image"] for p in summary["paintings"]] == [str(file), str(second)]
    assert pixels_of(tmp_path / "photo-out.png").shape == (38, 50, 3)
    assert pixels_of(tmp_path / "grey-out.png").shape == (38, 50)
    resumed = [
        "paint",
        str(file),
        "--out",
        str(tmp_path / "b.png"),
        "--resume",
        str(tmp_path / "photo.safetensors"),
        "--iterations",
        "3",
    ]
    assert main(resumed) == 0
    assert "MSE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["missing.png"], "missing.png"),
        (["PHOTO", "--out", "nowhere/a.png"], "nowhere"),
        (["PHOTO", "--out", "a.bmpx"], "a.bmpx"),
        (["PHOTO", "--seconds", "-1"], "--seconds"),
        (["PHOTO", "--seconds", "1", "--iterations", "2"], "not allowed with argument --seconds"),
        (["PHOTO", "--target-mse", "0"], "--target-mse"),
        (["PHOTO", "--background", "nocolour"], "nocolour"),
        (["PHOTO", "PHOTO", "--out", "a.png"], "{name}"),
        (["PHOTO", "--resume", "PHOTO"], "photo.png"),
        (["PHOTO", "--resume", "SOLUTION"], "holds a solution, not a painting or a checkpoint"),
        (["PHOTO", "--resume", "missing"], "missing"),
        (["PHOTO", "--checkpoint", "nowhere/a"], "nowhere"),
        (["PHOTO", "PHOTO", "--out", "{name}.png", "--checkpoint", "a"], "takes one image"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(
    arguments, word, file, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    words = {"PHOTO": str(file), "SOLUTION": str(GOLDEN / "efp.safetensors")}
    try:
        code = main(["paint", *[words.get(a, a) for a in arguments]])
    except SystemExit as end:  # of the parser
        code = end.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert word in captured.err
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_continues_from_a_checkpoint(file, tmp_path, capsys):
    """A checkpoint takes up the same painting; --resume reads one, and asks for one image."""
    kept, out = tmp_path / "kept", str(tmp_path / "{name}-out.png")
    options = ["paint", str(file), "--out", out, *SHORT]
    twice = ["paint", str(file), str(file), "--out", out]
    assert main([*options, "--checkpoint", str(kept), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["paintings"][0]
    assert main([*options, "--resume", str(kept), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["paintings"][0]
    assert (again["iterations"], again["mse"]) == (whole["iterations"], whole["mse"])
    assert main([*twice, "--resume", str(kept)]) == 2
    assert "is the checkpoint of one painting" in capsys.readouterr().err
    assert main([*options, "--resume", str(kept), "--checkpoint", str(tmp_path / "b")]) == 2
    assert "two different checkpoints" in capsys.readouterr().err
    assert main([*options, "--resume", str(kept), "--seed", "1"]) == 2
    assert "belongs to another run" in capsys.readouterr().err


def test_no_triangles_is_wrong_usage(file, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["paint", str(file), "--triangles", "0"])
    assert caught.value.code == 2
    assert "--triangles" in capsys.readouterr().err


def test_an_interruption_keeps_what_there_is(file, tmp_path):
    out = tmp_path / "kept.png"
    command = [
        sys.executable,
        "-m",
        "entroplay",
        "paint",
        str(file),
        "--out",
        str(out),
        "--triangles",
        "20",
        "--iterations",
        "100000000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "MSE" in line
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "interrupted" in printed
    assert pixels_of(out).shape == (24, 32, 3)
