"""CPU and wall time of an object: ``measure_storage.py s3://BUCKET/PREFIX``, keys and server by the environment."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from manyscale.runner.storage.remote import remote


def timed(number: int, one: Callable[[int], object]) -> str:
    cpu, wall = time.process_time(), time.perf_counter()
    for index in range(number):
        one(index)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return f"CPU {1e3 * cpu / number:.2f} ms, wall {1e3 * wall / number:.2f} ms"


def main(place: str) -> None:
    storage = remote(place)
    storage.check()
    with tempfile.TemporaryDirectory() as scratch:
        for size, number in ((2_000, 300), (100_000, 300), (2_000_000, 60)):
            content, to = os.urandom(size), Path(scratch, "got")
            print(f"{size:,} bytes: put {timed(number, lambda i, s=size, c=content: storage.put(f'{s}/{i}', c))}")
            print(f"{size:,} bytes: get {timed(number, lambda i, s=size, t=to: storage.get(f'{s}/{i}', t))}")
            print(f"not there: {timed(number, lambda i, t=to: storage.get(f'none/{i}', t))}")


if __name__ == "__main__":
    main(sys.argv[1])
