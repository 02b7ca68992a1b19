"""Painters side by side: ours, `primitive` and geometrizejs, on the same picture at 256 x 256.

Run: python benchmarks/painters.py IMAGE. The peers come from npm (sqip-plugin-primitive carries the binary of primitive) into
bench-out/peers; what cannot be had is left out. All errors are of 8-bit pictures of exactly m triangles; seconds are wall
clock, ours with compilation. Writes bench-out/painters.json, painters.md and painters.png.
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
from entroplay.painting.images import read_image

SIDE = 256
PEERS = Path("bench-out") / "peers"
GEOMETRIZE = """
const fs = require('fs');
const { Bitmap, ImageRunner, ShapeTypes } = require(process.argv[2]);
const [width, height, count] = process.argv.slice(5, 8).map(Number);
const bitmap = Bitmap.createFromByteArray(width, height, fs.readFileSync(process.argv[3]));
const runner = new ImageRunner(bitmap);
const options = { shapeTypes: [ShapeTypes.TRIANGLE], candidateShapesPerStep: 50, shapeMutationsPerStep: 100, alpha: 128 };
for (let i = 0; i < count; i++) runner.step(options);
fs.writeFileSync(process.argv[4], Buffer.from(runner.getImageData().getBytes().b || runner.getImageData().getBytes()));
"""


def fetched(package: str, inside: str) -> Path | None:
    """A file of an npm package."""
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


def ours(target: np.ndarray, m: int, **options: Any) -> tuple[np.ndarray, float]:
    before = time.perf_counter()
    painting = ep.paint(target, triangles=m, size=SIDE, **options)
    return np.asarray(to_image(painting.picture).convert("RGB")) / 255, time.perf_counter() - before


def primitive(target: np.ndarray, m: int) -> tuple[np.ndarray, float] | None:
    binary = fetched("sqip-plugin-primitive@1.0.0-beta.2", "primitive-binaries/primitive-linux-x64")
    if binary is None:
        return None
    binary.chmod(0o755)
    source, out = PEERS / "in.png", PEERS / "primitive.png"
    to_image(target).save(source)
    before = time.perf_counter()
    command = [
        str(binary.resolve()),
        "-i",
        str(source),
        "-o",
        str(out),
        "-n",
        str(m),
        "-m",
        "1",
        "-r",
        str(SIDE),
        "-s",
        str(SIDE),
    ]
    subprocess.run(command, check=True, capture_output=True)
    elapsed = time.perf_counter() - before
    return np.asarray(Image.open(out).convert("RGB")) / 255, elapsed


def geometrize(target: np.ndarray, m: int) -> tuple[np.ndarray, float] | None:
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


def astronaut() -> np.ndarray:
    from skimage.data import astronaut

    return read_image(astronaut(), size=SIDE)


def side_by_side(pictures: dict[str, np.ndarray], path: Path) -> None:
    columns = 4
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (SIDE + 8), rows * (SIDE + 24)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (name, picture) in enumerate(pictures.items()):
        place = (i % columns * (SIDE + 8) + 4, i // columns * (SIDE + 24) + 18)
        sheet.paste(to_image(picture).convert("RGB"), place)
        draw.text((place[0], place[1] - 15), name, fill="black")
    sheet.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument(
        "--table",
        type=Path,
        default=Path("bench-out") / "painters.md",
        help="where to write the table",
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
    subjects = {name: target, "astronaut": astronaut()}
    rows: list[dict[str, Any]] = []
    pictures: dict[str, np.ndarray] = {}

    def enter(subject: str, painter: str, m: int, result: tuple[np.ndarray, float] | None) -> float:
        if result is None:
            print(f"{subject}: {painter} could not be had")
            return np.inf
        picture, seconds = result
        mse = float(np.mean((picture - subjects[subject]) ** 2))
        rows.append(
            {
                "picture": subject,
                "painter": painter,
                "m": m,
                "mse": mse,
                "psnr": -10 * np.log10(mse),
                "seconds": seconds,
            }
        )
        pictures[f"{subject}: {painter}, {m}, {mse:.5f}, {seconds:.0f} s"] = picture
        print(
            f"{subject:<12}{painter:<28}{m:>6}{mse:>11.6f}{-10 * np.log10(mse):>7.1f} dB{seconds:>8.1f} s",
            flush=True,
        )
        return mse

    errors: dict[Any, float] = {}
    for subject, picture in subjects.items():
        pictures[f"{subject}: the picture"] = picture
        for m in (200, 1000):
            errors[subject, "ours", m] = enter(subject, "entroplay", m, ours(picture, m))
            if m == 1000 and options.quick:
                continue
            errors[subject, "primitive", m] = enter(subject, "primitive", m, primitive(picture, m))
            if m == 200:
                errors[subject, "geometrize", m] = enter(
                    subject, "geometrizejs", m, geometrize(picture, m)
                )
    seconds = {
        (row["picture"], row["m"]): row["seconds"] for row in rows if row["painter"] == "entroplay"
    }
    checks = {
        f"{name}, m=200: 0.0011 within 10 s ({errors[name, 'ours', 200]:.6f}, {seconds[name, 200]:.1f} s)":
            errors[name, "ours", 200] <= 0.0011 and seconds[name, 200] <= 10,
        f"{name}, m=1000: 0.0006 within 20 s ({errors[name, 'ours', 1000]:.6f}, {seconds[name, 1000]:.1f} s)":
            errors[name, "ours", 1000] <= 0.0006 and seconds[name, 1000] <= 20,
    }  # fmt: skip
    for key, error in errors.items():
        if key[1] != "ours":
            checks[f"{key[0]}, m={key[2]}: closer than {key[1]}"] = (
                errors[key[0], "ours", key[2]] < error
            )
    if not options.quick:
        picture, elapsed = ours(target, 1000, preset="paper")
        enter(name, "entroplay, paper's preset", 1000, (picture, elapsed))
        checks[f"the paper's preset, 20,000 Langevin steps, within 90 s ({elapsed:.0f})"] = (
            elapsed <= 90
        )
    lines = ["| picture | painter | m | MSE | PSNR | seconds |", "|---|---|---:|---:|---:|---:|"]
    for r in rows:
        lines.append(
            f"| {r['picture']} | {r['painter']} | {r['m']} | {r['mse']:.6f} | {r['psnr']:.1f} dB | {r['seconds']:.1f} |"
        )
    Path("bench-out").mkdir(exist_ok=True)
    options.table.write_text("\n".join([*lines, "", "Made by `benchmarks/painters.py`.", ""]))
    side_by_side(pictures, Path("bench-out") / "painters.png")
    report("painters", {"rows": json.loads(json.dumps(rows)), "cores": os.cpu_count()}, checks)


if __name__ == "__main__":
    main()
