"""Files of the driver's host for workers of other hosts. They are read there in pieces by Ray tasks that take no CPU:
no process has to be there for it before a file is missed, and none has to outlive another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

PIECE_BYTES: Final = 1 << 24


def fetch(home: str, path: Path, copy: Path) -> None:
    """Copy a file or a folder from ``path`` on the node with the id ``home``. Raises OSError. O(bytes), of which a
    piece is in memory."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def there(function: Any, *arguments: Any) -> Any:
        strategy = NodeAffinitySchedulingStrategy(node_id=home, soft=False)
        return ray.get(ray.remote(num_cpus=0, scheduling_strategy=strategy)(function).remote(*arguments))

    try:
        for name, size in there(_listed, str(path)):
            place = copy / name if name else copy
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                for offset in range(0, size, PIECE_BYTES):
                    file.write(there(_piece, str(path / name if name else path), offset))
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise OSError(f"{path}: cannot be had from the host of the run ({cause or type(error).__name__})") from None


def _listed(path: str) -> list[tuple[str, int]]:
    """Names below a folder and sizes; of a file, without a name."""
    if not os.path.isdir(path):
        return [("", os.path.getsize(path))]
    files = [file for file in sorted(Path(path).rglob("*")) if file.is_file()]
    return [(str(file.relative_to(path)), file.stat().st_size) for file in files]


def _piece(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)
