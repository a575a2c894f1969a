"""Finding a trace's format asks every reader, and so loads only how traces begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from manyscale.runner.registry import lookup, names
found = [name for name in names("reader") if lookup("reader", name).can_read(Path(sys.argv[1]))]
heavy = {"numba", "pyarrow", "pandas", "manyscale.models.workload"} & sys.modules.keys()
print(*found, *heavy)
"""


def test_no_reader_loads_what_reading_needs(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("main;work 10\nmain;rest 5\n")
    done = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["folded"]
