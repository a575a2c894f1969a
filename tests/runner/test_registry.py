"""The registry: built-ins by name, plug-ins by entry point, unknown names refused with the known ones."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from manyscale.runner import registry
from manyscale.runner.errors import UserError

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("seam", list(registry._BUILT_IN))
def test_every_built_in_loads(seam):
    for name in registry._BUILT_IN[seam]:
        assert registry.lookup(seam, name) is not None


def test_unknown_name_lists_the_known():
    with pytest.raises(UserError, match="unknown network model 'teleport'; known are latency-bandwidth"):
        registry.lookup("network", "teleport")


def test_plug_in_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "other_reader.py").write_text("def can_read(path): return False\n")
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[manyscale.reader]\nother = other_reader\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry._plug_ins.cache_clear()
    registry.lookup.cache_clear()
    try:
        assert "other" in registry.names("reader")
        assert registry.lookup("reader", "other").can_read(tmp_path) is False
    finally:
        registry._plug_ins.cache_clear()
        registry.lookup.cache_clear()
