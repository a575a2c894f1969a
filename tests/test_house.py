"""The contract that no module imports itself over others (pyproject.toml, run by lint-imports) sees every import."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest
from house import cycles

HOUSE = {
    "attic/__init__.py": "",
    "attic/top.py": "from attic import middle\n",
    "attic/middle.py": "def lazy():\n    from attic import bottom\n",
    "attic/bottom.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from attic import middle\n",
}


@pytest.mark.contract
def test_a_circle_of_a_lazy_import_and_one_for_types_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in HOUSE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert cycles(grimp.build_graph("attic", cache_dir=None), "attic") == [["attic.bottom", "attic.middle"]]
