"""Small inputs of Rodinia's programs, in the formats that the programs read, all from one seed; and of Parboil's what
several scripts need."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def make(folder: Path) -> None:
    """All inputs, in ``folder`` and in ``folder/data``, which programs that run two or three folders deeper find."""
    rng = np.random.default_rng(20)
    folder.mkdir(parents=True, exist_ok=True)
    _graph(rng, folder / "graph.txt", 4096)
    for name, low, high, layers in (("temp_64", 320, 345, 1), ("power_64", 0, 0.01, 1),
                                    ("temp_64x8", 320, 345, 8), ("power_64x8", 0, 0.01, 8)):  # fmt: skip
        count = layers * 64 * 64
        (folder / name).write_text("".join(f"{value:.6f}\n" for value in rng.uniform(low, high, count)))
    keys = rng.permutation(3000)
    (folder / "keys.txt").write_text("3000\n" + "".join(f"{key}\n" for key in keys))
    (folder / "commands.txt").write_text("j 60 30\nk 100\n")
    (folder / "data" / "dwt2d").mkdir(parents=True, exist_ok=True)
    rng.integers(0, 256, 96 * 80 * 3, dtype=np.uint8).tofile(folder / "data" / "dwt2d" / "image.rgb")
    rng.choice(256, 1 << 15, p=np.arange(1, 257) / 32896).astype(np.uint8).tofile(folder / "symbols.in")
    (folder / "files.txt").write_text(f"{folder}/storms.db\n")
    (folder / "storms.db").write_text("".join(_storm(rng) for _ in range(3000)))
    (folder / "mesh.txt").write_text(_mesh(rng, 16, 12))
    (folder / "data" / "srad").mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(1, 256, 502 * 458)
    rows = "\n".join(" ".join(map(str, row)) for row in pixels.reshape(502, 458))
    (folder / "data" / "srad" / "image.pgm").write_text(f"P2\n458 502\n255\n{rows}\n")
    (folder / "data" / "myocyte").mkdir(exist_ok=True)
    state = rng.uniform(0.05, 0.9, 91)
    state[38] = -80  # the membrane's potential
    (folder / "data" / "myocyte" / "y.txt").write_text("".join(f"{value:.6f}\n" for value in state))
    (folder / "data" / "myocyte" / "params.txt").write_text(
        "".join(f"{value:.6f}\n" for value in rng.uniform(0.5, 2, 18))
    )
    centres = rng.uniform(0, 10, (5, 6))
    points = centres[rng.integers(0, 5, 600)] + rng.normal(0, 1.5, (600, 6))
    rows = (" ".join([str(number), *(f"{value:.4f}" for value in point)]) for number, point in enumerate(points))
    (folder / "points.txt").write_text("\n".join(rows) + "\n")


def _graph(rng: np.random.Generator, path: Path, nodes: int) -> None:
    """A directed graph as bfs reads it: first edge and number of edges of each node, the source, the edges' ends."""
    degrees = rng.integers(1, 7, nodes)
    firsts = np.cumsum(degrees) - degrees
    lines = [str(nodes), *(f"{first} {degree}" for first, degree in zip(firsts, degrees, strict=True)), "", "0", ""]
    lines += [str(degrees.sum()), *(f"{end} 1" for end in rng.integers(0, nodes, degrees.sum()))]
    path.write_text("\n".join(lines) + "\n")


def _storm(rng: np.random.Generator) -> str:
    """A record of nn: 48 characters and the end of the line; latitude in columns 28 to 32, longitude in 33 to 37."""
    latitude, longitude = rng.uniform(7, 70), rng.uniform(0, 358)
    return f"{rng.integers(1950, 2005):4d} 12 24 12 18 {'ALBERTO':<9s} {latitude:5.1f}{longitude:5.1f}  100  500\n"


def _mesh(rng: np.random.Generator, columns: int, rows: int) -> str:
    """Quadrilaterals with shifted corners, as cfd reads them: area, then of each of four sides the neighbour (from 1;
    0: wall, below 0: far field) and the outward normal as long as the side. Walls above and below, far field elsewhere.
    """
    corners = np.stack(np.meshgrid(np.arange(columns + 1.0), np.arange(rows + 1.0), indexing="ij"), axis=-1)
    corners += rng.uniform(-0.15, 0.15, corners.shape)
    lines = [str(columns * rows)]
    for cell in range(columns * rows):
        x, y = divmod(cell, rows)
        around = [corners[x, y], corners[x + 1, y], corners[x + 1, y + 1], corners[x, y + 1]]
        neighbours = [cell if y else 0, cell + rows + 1 if x < columns - 1 else -2,
                      cell + 2 if y < rows - 1 else 0, cell - rows + 1 if x else -2]  # fmt: skip
        area = 0.0
        words = []
        for side, neighbour in enumerate(neighbours):
            start, end = around[side], around[(side + 1) % 4]
            area += (start[0] * end[1] - end[0] * start[1]) / 2
            words.append(f"{neighbour} {end[1] - start[1]:.9g} {start[0] - end[0]:.9g} 0")
        lines.append(" ".join([f"{area:.9g}", *words]))
    return "\n".join(lines) + "\n"


def banded_matrix(folder: Path, rows: int, rng: np.random.Generator) -> None:
    """A symmetric banded matrix and a vector, as Parboil's spmv reads them: ``matrix.mtx`` and ``vector.bin``."""
    row = np.repeat(np.arange(rows), rng.integers(4, 40, rows))
    column = np.maximum(row - rng.integers(0, 400, len(row)), 0)
    pairs = np.unique(np.stack((row, column), axis=1), axis=0)
    value = rng.uniform(-1, 1, len(pairs))
    lines = [f"{a + 1} {b + 1} {v:.6f}" for (a, b), v in zip(pairs.tolist(), value.tolist(), strict=True)]
    head = ["%%MatrixMarket matrix coordinate real symmetric", f"{rows} {rows} {len(pairs)}"]
    (folder / "matrix.mtx").write_text("\n".join([*head, *lines]) + "\n")
    rng.uniform(-1, 1, rows).astype("<f4").tofile(folder / "vector.bin")
