"""Painters side by side: ours, `primitive` and geometrizejs, on the same picture at 256 x 256.

Run: python benchmarks/painters.py IMAGE. The peers are fetched from npm into bench-out/peers
(sqip-plugin-primitive contains the binary of primitive) and left out where that fails. All errors
are those of 8-bit pictures of exactly m triangles. Seconds are wall clock; ours include
compilation. Writes bench-out/painters.json, painters.md and painters.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import report
from PIL import Image, ImageDraw

import entroplay as ep
from entroplay.painting.export import to_image
from entroplay.painting.images import astronaut, read_image

SIDE = 256
OUT = Path("bench-out")
PEERS = OUT / "peers"
AIMS = {200: (0.0011, 10), 1000: (0.0006, 20)}
"""Mean squared error and seconds to be reached on IMAGE, by the number of triangles."""
GEOMETRIZE = """
const fs = require('fs');
const { Bitmap, ImageRunner, ShapeTypes } = require(process.argv[2]);
const [width, height, count] = process.argv.slice(5, 8).map(Number);
const bitmap = Bitmap.createFromByteArray(width, height, fs.readFileSync(process.argv[3]));
const runner = new ImageRunner(bitmap);
const options = {
  shapeTypes: [ShapeTypes.TRIANGLE], candidateShapesPerStep: 50, shapeMutationsPerStep: 100,
  alpha: 128
};
for (let i = 0; i < count; i++) runner.step(options);
const bytes = runner.getImageData().getBytes();
fs.writeFileSync(process.argv[4], Buffer.from(bytes.b || bytes));
"""
"""Program for node: paints `count` triangles; pixels are read and written as raw RGBA."""
Result = tuple[np.ndarray, float]
"""A picture and the seconds it took."""


def fetched(package: str, inside: str) -> Path | None:
    """A file of an npm package, downloaded once; None where that fails."""
    folder = PEERS / package.replace("@", "-")
    if not folder.exists():
        if shutil.which("npm") is None:
            return None
        PEERS.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "pack", package], cwd=PEERS, capture_output=True, text=True)
        if done.returncode:
            return None
        with tarfile.open(PEERS / done.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
    path = folder / "package" / inside
    return path if path.exists() else None


def ours(target: np.ndarray, m: int, **options: Any) -> Result:
    """Our picture of m triangles, and the seconds it took."""
    before = time.perf_counter()
    painting = ep.paint(target, triangles=m, size=SIDE, **options)
    return np.asarray(to_image(painting.picture).convert("RGB")) / 255, time.perf_counter() - before


def primitive(target: np.ndarray, m: int) -> Result | None:
    """The picture of `primitive`, or None where it cannot be fetched."""
    binary = fetched("sqip-plugin-primitive@1.0.0-beta.2", "primitive-binaries/primitive-linux-x64")
    if binary is None:
        return None
    binary.chmod(0o755)
    source, out = PEERS / "in.png", PEERS / "primitive.png"
    to_image(target).save(source)
    # -m 1 means triangles; -r and -s are the sides at which it works and draws.
    sizes = ["-n", str(m), "-m", "1", "-r", str(SIDE), "-s", str(SIDE)]
    command = [str(binary.resolve()), "-i", str(source), "-o", str(out), *sizes]
    before = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    elapsed = time.perf_counter() - before
    return np.asarray(Image.open(out).convert("RGB")) / 255, elapsed


def geometrize(target: np.ndarray, m: int) -> Result | None:
    """The picture of geometrizejs, or None where it cannot be fetched or run."""
    library = fetched("geometrizejs@0.0.19", "dist/src/index.js")
    if library is None or shutil.which("node") is None:
        return None
    height, width, _ = target.shape
    rgba = np.dstack(
        [np.asarray(to_image(target).convert("RGB")), np.full((height, width), 255, np.uint8)]
    )
    source, out, script = (PEERS / name for name in ("in.rgba", "geometrize.rgba", "geometrize.js"))
    source.write_bytes(rgba.tobytes())
    script.write_text(GEOMETRIZE)
    before = time.perf_counter()
    command = [
        "node",
        *(str(p.resolve()) for p in (script, library)),
        *(str(p.absolute()) for p in (source, out)),
    ]
    done = subprocess.run(
        [*command, str(width), str(height), str(m)], capture_output=True, text=True
    )
    if done.returncode:
        print(f"geometrizejs failed: {done.stderr.strip().splitlines()[-1:]}")
        return None
    elapsed = time.perf_counter() - before
    pixels = np.frombuffer(out.read_bytes(), np.uint8)
    return pixels.reshape(height, width, 4)[:, :, :3] / 255, elapsed


def side_by_side(pictures: dict[str, np.ndarray], path: Path) -> None:
    """All pictures with their titles on one sheet."""
    columns = 4
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (SIDE + 8), rows * (SIDE + 24)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (name, picture) in enumerate(pictures.items()):
        place = (i % columns * (SIDE + 8) + 4, i // columns * (SIDE + 24) + 18)
        sheet.paste(to_image(picture).convert("RGB"), place)
        draw.text((place[0], place[1] - 15), name, fill="black")
    sheet.save(path)


class Contest:
    """The pictures to paint, and what every painter made of them."""

    def __init__(self, subjects: dict[str, np.ndarray]):
        self.subjects = subjects
        self.rows: list[dict[str, Any]] = []
        self.pictures: dict[str, np.ndarray] = {}

    def enter(self, subject: str, painter: str, m: int, result: Result | None) -> float:
        """Add a result and return its mean squared error, infinite if there is none."""
        if result is None:
            print(f"{subject}: {painter} could not be run")
            return np.inf
        picture, seconds = result
        mse = float(np.mean((picture - self.subjects[subject]) ** 2))
        psnr = -10 * np.log10(mse)
        self.rows.append(
            {
                "picture": subject,
                "painter": painter,
                "m": m,
                "mse": mse,
                "psnr": psnr,
                "seconds": seconds,
            }
        )
        self.pictures[f"{subject}: {painter}, {m}, {mse:.5f}, {seconds:.0f} s"] = picture
        scores = f"{m:>6}{mse:>11.6f}{psnr:>7.1f} dB{seconds:>8.1f} s"
        print(f"{subject:<12}{painter:<28}{scores}", flush=True)
        return mse

    def run(self, quick: bool) -> dict[tuple[str, str, int], float]:
        """Run every painter on every picture; errors by picture, painter and m."""
        errors = {}
        for subject, picture in self.subjects.items():
            self.pictures[f"{subject}: the picture"] = picture
            for m in AIMS:
                errors[subject, "ours", m] = self.enter(subject, "entroplay", m, ours(picture, m))
                if m == 1000 and quick:
                    continue
                errors[subject, "primitive", m] = self.enter(
                    subject, "primitive", m, primitive(picture, m)
                )
                if m == 200:
                    errors[subject, "geometrize", m] = self.enter(
                        subject, "geometrizejs", m, geometrize(picture, m)
                    )
        return errors

    def checks(self, errors: dict[tuple[str, str, int], float], name: str) -> dict[str, bool]:
        """Our aims on the picture `name`, and whether we come closer than each peer."""
        checks = {}
        for row in self.rows:
            if row["picture"] == name and row["painter"] == "entroplay":
                m, mse, seconds = row["m"], row["mse"], row["seconds"]
                error, limit = AIMS[m]
                aim = f"{name}, m={m}: {error} within {limit} s ({mse:.6f}, {seconds:.1f} s)"
                checks[aim] = mse <= error and seconds <= limit
        for (subject, painter, m), error in errors.items():
            if painter != "ours":
                closer = errors[subject, "ours", m] < error
                checks[f"{subject}, m={m}: closer than {painter}"] = closer
        return checks

    def table(self) -> str:
        """The rows in Markdown."""
        lines = [
            "| picture | painter | m | MSE | PSNR | seconds |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for r in self.rows:
            lines.append(
                f"| {r['picture']} | {r['painter']} | {r['m']} | {r['mse']:.6f} "
                f"| {r['psnr']:.1f} dB | {r['seconds']:.1f} |"
            )
        return "\n".join([*lines, "", "Made by `benchmarks/painters.py`.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument(
        "--table", type=Path, default=OUT / "painters.md", help="where to write the table"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="without the paper's preset and without 1,000 triangles of the peers",
    )
    options = parser.parse_args()
    target = read_image(options.image, size=SIDE)
    target = target if target.shape[2] == 3 else np.repeat(target, 3, axis=2)
    name = options.image.stem
    contest = Contest({name: target, "astronaut": read_image(astronaut(), size=SIDE)})
    checks = contest.checks(contest.run(options.quick), name)
    if not options.quick:
        picture, elapsed = ours(target, 1000, preset="paper")
        contest.enter(name, "entroplay, paper's preset", 1000, (picture, elapsed))
        aim = f"the paper's preset, 20,000 Langevin steps, within 90 s ({elapsed:.0f})"
        checks[aim] = elapsed <= 90
    OUT.mkdir(exist_ok=True)
    options.table.write_text(contest.table())
    side_by_side(contest.pictures, OUT / "painters.png")
    rows = json.loads(json.dumps(contest.rows))
    report("painters", {"rows": rows, "cores": os.cpu_count()}, checks)


if __name__ == "__main__":
    main()
