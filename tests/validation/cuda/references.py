"""What Rodinia's kernels must compute, in NumPy in double precision (integers exactly), from what was copied to the
device; each function returns the largest error of what was copied back, relative to the largest value where it is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Array = np.ndarray


@dataclass
class Copies:
    """``to``, ``back``: bytes of each copy to the device and from it, in the program's order."""

    to: list[bytes]
    back: list[bytes]

    @classmethod
    def read(cls, path: Path) -> Copies:
        data, at, found = path.read_bytes(), 0, cls([], [])
        while at < len(data):
            kind, size = np.frombuffer(data, np.int64, 2, at).tolist()
            (found.to if kind == 1 else found.back).append(data[at + 16 : at + 16 + size])
            at += 16 + size
        return found

    def sent(self, number: int, kind: str) -> Array:
        return np.frombuffer(self.to[number], kind)

    def got(self, number: int, kind: str) -> Array:
        return np.frombuffer(self.back[number], kind)


def relative(found: Array, expected: Array) -> float:
    """Largest difference over the largest expected value; infinite where a value is not finite or nothing is there."""
    if not expected.size or not np.isfinite(found).all() or not np.isfinite(expected).all():
        return np.inf
    return float(np.abs(found.astype(float) - expected).max() / max(np.abs(expected).max(), 1e-300))


def wrong(found: Array, expected: Array) -> float:
    """Share of unequal values."""
    return float((found != expected).mean()) if expected.size and found.shape == expected.shape else np.inf


def backprop(copies: Copies) -> float:
    units, weights = copies.sent(0, "f4").astype(float), copies.sent(1, "f4").astype(float).reshape(-1, 17)
    delta, before = copies.sent(2, "f4").astype(float), copies.sent(3, "f4").astype(float).reshape(-1, 17)
    sums = (weights[1:, 1:] * units[1:, None]).reshape(-1, 16, 16).sum(axis=1)
    units[0] = 1
    changed = copies.sent(4, "f4").astype(float).reshape(-1, 17)
    changed[:, 1:] += 0.3 * delta[1:] * units[:, None] + 0.3 * before[:, 1:]
    return max(relative(copies.got(0, "f4"), sums.ravel()), relative(copies.got(2, "f4"), changed.ravel()))


def bfs(copies: Copies) -> float:
    nodes, edges = copies.sent(0, "i4").reshape(-1, 2), copies.sent(1, "i4")
    cost = np.full(len(nodes), -1)
    cost[0], front, depth = 0, [0], 0
    while front:
        depth += 1
        ends = np.unique(np.concatenate([edges[first : first + count] for first, count in nodes[front]]))
        front = ends[cost[ends] < 0].tolist()
        cost[front] = depth
    return wrong(copies.got(-1, "i4"), cost)


def btree(copies: Copies) -> float:
    """Command j (ranges) sends nine arrays and gets two, then k (keys) sends six; records stand in the keys' order."""
    start, end, records, keys = (copies.sent(number, "i4") for number in (5, 6, 9, 13))
    first, length = copies.got(0, "i4"), copies.got(1, "i4")
    found = np.where(np.isin(keys, records), keys, -1)
    return max(wrong(records[first], start), wrong(length, end - start + 1), wrong(copies.got(2, "i4"), found))


def lifting(image: Array) -> Array:
    """One level of the forward 5/3 transform along the last axis, mirrored at its ends: low half, then high half. The
    programs' division rounds to zero."""
    low, high = image[..., ::2].copy(), image[..., 1::2].copy()
    count = high.shape[-1]
    right = np.concatenate([low, low[..., -1:]], axis=-1)[..., 1 : count + 1]
    high -= np.trunc((low[..., :count] + right) / 2).astype(int)
    left = np.concatenate([high[..., :1], high], axis=-1)[..., : low.shape[-1]]
    right = np.concatenate([high, high[..., -1:]], axis=-1)[..., : low.shape[-1]]
    low += np.trunc((left + right + 2) / 4).astype(int)
    return np.concatenate([low, high], axis=-1)


def dwt2d(inputs: Path, folder: Path, levels: int = 2) -> float:
    """Bands of each level one behind the other, smallest first: LL, HL (right), LH (below), HH; as bytes plus 128."""
    pixels = np.fromfile(inputs / "data" / "dwt2d" / "image.rgb", np.uint8).astype(int).reshape(80, 96, 3) - 128
    worst = 0.0
    for channel, name in enumerate("rgb"):
        band, tail = pixels[:, :, channel], []
        for _ in range(levels):
            both = lifting(lifting(band.T).T)
            rows, columns = (band.shape[0] + 1) // 2, (band.shape[1] + 1) // 2
            tail = [both[:rows, columns:].ravel(), both[rows:, :columns].ravel(), both[rows:, columns:].ravel(), *tail]
            band = both[:rows, :columns]
        expected = np.clip(np.concatenate([band.ravel(), *tail]) + 128, 0, 255)
        worst = max(worst, wrong(np.fromfile(folder / f"out.{name}", np.uint8), expected))
    return worst


def gaussian(copies: Copies) -> float:
    size = len(copies.to[2]) // 4
    before, right = copies.sent(1, "f4").reshape(size, size).astype(float), copies.sent(2, "f4").astype(float)
    upper = np.triu(copies.got(1, "f4").reshape(size, size).astype(float))
    return relative(np.linalg.solve(upper, copies.got(2, "f4").astype(float)), np.linalg.solve(before, right))


def hotspot(copies: Copies, steps: int = 4) -> float:
    heat, power = (copies.sent(k, "f4").astype(float).reshape(64, 64) for k in (0, 1))
    side, thickness = 0.016 / 64, 0.0005
    capacity = 0.5 * 1.75e6 * thickness * side * side
    across, up = side / (2 * 100 * thickness * side), thickness / (100 * side * side)
    step = 0.001 / (3.0e6 / (0.5 * thickness * 1.75e6))
    for _ in range(steps):
        edge = np.pad(heat, 1, mode="edge")
        around = edge[2:, 1:-1] + edge[:-2, 1:-1] + edge[1:-1, 2:] + edge[1:-1, :-2] - 4 * heat
        heat = heat + step / capacity * (power + around / across + (80 - heat) / up)
    return relative(copies.got(0, "f4"), heat.ravel())


def kmeans(copies: Copies) -> float:
    """Each iteration sends memberships and centres and gets memberships: the nearest centre of each point, where it is
    nearer than the others by more than single precision can tell."""
    points = copies.sent(0, "f4").astype(float).reshape(-1, 6)
    errors = []
    for number, _ in enumerate(copies.back):
        centres = copies.sent(2 + 2 * number, "f4").astype(float).reshape(-1, 6)
        distance = ((points[:, None] - centres) ** 2).sum(axis=2)
        first, second = np.sort(distance, axis=1)[:, :2].T
        clear = second - first > 1e-5 * second
        if clear.mean() < 0.99:
            return np.inf
        errors.append(wrong(copies.got(number, "i4")[clear], distance.argmin(axis=1)[clear]))
    return max(errors)


def lavamd(copies: Copies) -> float:
    nearby = np.dtype([("place", "i4", 3), ("number", "i4"), ("offset", "i8")], align=True)
    of_box = np.dtype([("home", nearby), ("count", "i4"), ("near", nearby, 26)], align=True)
    boxes = copies.sent(0, of_box)
    place, charge = copies.sent(1, "f8").reshape(-1, 100, 4), copies.sent(2, "f8").reshape(-1, 100)
    forces = np.zeros_like(place)
    for number, box in enumerate(boxes):
        for other in [number, *box["near"]["number"][: box["count"]].tolist()]:
            mine, theirs = place[number], place[other]
            distance = mine[:, :1] + theirs[:, 0] - mine[:, 1:] @ theirs[:, 1:].T
            pull = charge[other] * np.exp(-2 * 0.5 * 0.5 * distance)
            forces[number, :, 0] += pull.sum(axis=1)
            shift = mine[:, None, 1:] - theirs[None, :, 1:]
            forces[number, :, 1:] += (2 * pull[..., None] * shift).sum(axis=1)
    return relative(copies.got(0, "f8"), forces.ravel())


def lud(copies: Copies) -> float:
    size = round((len(copies.to[0]) // 4) ** 0.5)
    found = copies.got(0, "f4").astype(float).reshape(size, size)
    return relative((np.tril(found, -1) + np.eye(size)) @ np.triu(found), copies.sent(0, "f4").reshape(size, size))


def nn(copies: Copies) -> float:
    latitude, longitude = copies.sent(0, "f4").astype(float).reshape(-1, 2).T
    return relative(copies.got(0, "f4"), np.hypot(30 - latitude, 90 - longitude))


def nw(copies: Copies, penalty: int = 10) -> float:
    """Needleman-Wunsch; the program fills the last row and column beyond the matrix not at all."""
    size = round((len(copies.to[0]) // 4) ** 0.5)
    scores, matrix = copies.sent(0, "i4").reshape(size, size), copies.sent(1, "i4").reshape(size, size).copy()
    for row in range(1, size):
        for column in range(1, size):
            matrix[row, column] = max(matrix[row - 1, column - 1] + scores[row, column],
                                      matrix[row, column - 1] - penalty, matrix[row - 1, column] - penalty)  # fmt: skip
    return wrong(copies.got(0, "i4"), matrix.ravel())


def _random(seeds: Array) -> Array:
    """The next number of each generator in ``seeds``; 32-bit arithmetic that wraps, a remainder with the sign of C."""
    number = (1103515245 * seeds.astype(np.int64) + 12345 + (1 << 31)) % (1 << 32) - (1 << 31)
    seeds[:] = np.where(number < 0, -(-number % 2147483647), number % 2147483647)
    return np.abs(seeds / 2147483647.0)


def _normal(seeds: Array) -> Array:
    first, second = _random(seeds), _random(seeds)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)


def particlefilter(copies: Copies, size: int = 32, frames: int = 4) -> float:
    film, offsets = copies.sent(0, "u1").astype(int), copies.sent(1, "i4").reshape(-1, 2)
    x, y, seeds = copies.sent(3, "f8").copy(), copies.sent(4, "f8").copy(), copies.sent(5, "i4").copy()
    for frame in range(1, frames):
        at_x, at_y = x + 1 + 5 * _normal(seeds), y - 2 + 2 * _normal(seeds)
        column = np.trunc(at_x)[:, None].astype(int) + offsets[:, 1]
        row = np.trunc(at_y)[:, None].astype(int) + offsets[:, 0]
        place = np.abs(column * size * frames + row * frames + frame)
        value = film[np.where(place >= film.size, 0, place)]
        likelihood = (((value - 100) ** 2 - (value - 228) ** 2) / 50.0).sum(axis=1) / len(offsets)
        weights = np.exp(likelihood) / len(x)
        weights /= weights.sum()
        uniform = _random(seeds[:1]) / len(x) + np.arange(len(x)) / len(x)
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), uniform), len(x) - 1)
        x, y = at_x[chosen], at_y[chosen]
    expected = at_x, at_y, weights
    return max(relative(copies.got(k, "f8"), each) for k, each in enumerate(expected))


def particlefilter_naive(copies: Copies) -> float:
    worst = 0.0
    for frame in range(len(copies.to) // 6):
        x, y, _, _, sums, uniform = (copies.sent(6 * frame + k, "f8") for k in range(6))
        first = np.array([np.argmax(sums >= u) if (sums >= u).any() else len(x) - 1 for u in uniform])
        for number, expected in ((2 * frame, y[first]), (2 * frame + 1, x[first])):
            worst = max(worst, wrong(copies.got(number, "f8"), expected))
    return worst if copies.to else np.inf


def pathfinder(copies: Copies) -> float:
    cost = copies.sent(0, "i4")
    for row in copies.sent(1, "i4").reshape(-1, len(cost)):
        edge = np.pad(cost, 1, constant_values=1 << 30)
        cost = row + np.minimum(np.minimum(edge[:-2], edge[2:]), cost)
    return wrong(copies.got(0, "i4"), cost)


def _diffuse(image: Array, rate: float, region: Array) -> Array:
    """A step of speckle reducing anisotropic diffusion; rows down, columns to the right."""
    q0 = region.var() / region.mean() ** 2
    edge = np.pad(image, 1, mode="edge")
    north, south = edge[:-2, 1:-1] - image, edge[2:, 1:-1] - image
    west, east = edge[1:-1, :-2] - image, edge[1:-1, 2:] - image
    gradient = (north**2 + south**2 + west**2 + east**2) / image**2
    laplacian = (north + south + west + east) / image
    q = (0.5 * gradient - laplacian**2 / 16) / (1 + 0.25 * laplacian) ** 2
    factor = np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)
    after = np.pad(factor, 1, mode="edge")
    return image + 0.25 * rate * (factor * (north + west) + after[2:, 1:-1] * south + after[1:-1, 2:] * east)


def srad_v1(copies: Copies, steps: int = 3, rows: int = 64, columns: int = 32) -> float:
    """The image stands column by column."""
    image = np.exp(copies.sent(4, "f4").astype(float).reshape(columns, rows).T / 255)
    for _ in range(steps):
        image = _diffuse(image, 0.5, image)
    return relative(copies.got(-1, "f4"), (np.log(image) * 255).T.ravel())


def srad_v2(copies: Copies, size: int = 64) -> float:
    worst = 0.0
    for sent, got in zip(copies.to, copies.back, strict=True):
        image = np.frombuffer(sent, "f4").astype(float).reshape(size, size)
        expected = _diffuse(image, 0.5, image[:32, :32])
        worst = max(worst, relative(np.frombuffer(got, "f4"), expected.ravel()))
    return worst if copies.to else np.inf


def numbers(text: str) -> Array:
    """All numbers of a text."""
    return np.array([float(word) for word in re.findall(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)\b", text)])


def texts(found: str, expected: str, skipped: int = 0) -> float:
    """Largest relative difference of the numbers of two texts behind ``skipped`` lines; each by itself, but those that
    are smaller than a thousandth of the largest. Infinite where one text has more numbers than the other."""
    left, right = (numbers("\n".join(text.splitlines()[skipped:])) for text in (found, expected))
    if left.shape != right.shape or not left.size or not np.isfinite(left).all() or not np.isfinite(right).all():
        return np.inf
    return float((np.abs(left - right) / np.maximum(np.abs(right), np.abs(right).max() / 1000)).max())
