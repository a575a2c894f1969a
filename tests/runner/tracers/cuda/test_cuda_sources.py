"""``manyscale trace --level gpu -- app.cu``: the source is compiled first; the program that is shipped."""

from __future__ import annotations

import pytest

from manyscale.runner import shipped
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.tracers.cuda import sources


@pytest.mark.slow
def test_the_shipped_program_runs(kit, tracer_cache, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["trace", "--level", "gpu", "--as", "a100", "--cache", str(tracer_cache), "-o", "traced"]
    assert main([*command, "--", "matmul.cu", "48"]) == 0
    said = capfd.readouterr()
    assert said.out.startswith("PASSED\n")
    assert "compiling for sm_80" in said.err
    workload = workload_folder.read(tmp_path / "traced")
    launch = workload.gpu.stored(1)
    n, tiles = 48, 3
    executed = launch.executed()
    assert executed["FFMA"] == n**3 // 32
    assert executed["LDG"] == 2 * tiles * n * n // 32  # each thread loads two elements of a tile
    assert executed["STG"] == n * n // 32
    assert {path.rpartition("/")[2] for path in launch.static.details.files} == {"matmul.cu"}


def test_what_is_no_source_stays_as_it_is(tmp_path):
    device = shown_device("a100")
    assert sources.built(["./app", "x.cu"], device, tmp_path, tmp_path) == ["./app", "x.cu"]
    assert sources.built([], device, tmp_path, tmp_path) == []
    with pytest.raises(UserError, match=r"none\.cu: no such file"):
        sources.built([str(tmp_path / "none.cu")], device, tmp_path, tmp_path)


@pytest.mark.slow
def test_a_source_with_an_error_is_told(kit, tmp_path, capfd):
    (tmp_path / "bad.cu").write_text("int main() { return missing; }\n")
    with pytest.raises(UserError, match=r"bad\.cu: nvcc does not compile it"):
        sources.built([str(tmp_path / "bad.cu")], shown_device("a100"), tmp_path, tmp_path)
    assert "missing" in capfd.readouterr().err


def test_the_source_is_listed_and_copied_once(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["examples"]) == 0
    assert "matmul.cu " in capfd.readouterr().out
    assert main(["examples", "--copy", "matmul.cu"]) == 0
    assert (tmp_path / "matmul.cu").read_text() == shipped.programs()["matmul.cu"].read_text()
    assert shipped.program_path("matmul.cu") == "matmul.cu"  # a file here goes before
    assert main(["examples", "--copy", "matmul.cu"]) == 2
    assert main(["examples", "--copy", "matmull.cu"]) == 2
    assert "did you mean 'matmul.cu'" in capfd.readouterr().err
