"""The names of shipped examples and traces stand for them wherever a trace or a study is read; a path goes first."""

from __future__ import annotations

import pytest

import manyscale as ms
from manyscale.runner import shipped
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import located


@pytest.fixture(autouse=True)
def _in_an_empty_folder(private_cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.contract
@pytest.mark.parametrize("name", ["lulesh-8", "matmul-10", "bfs-16"])
def test_a_name_reads_what_its_path_reads(name) -> None:
    path = shipped.traces()[name]
    assert ms.read_workload(name).digest == ms.read_workload(path).digest
    assert ms.read_workload({"path": name}).digest == ms.read_workload(str(path)).digest


@pytest.mark.contract
def test_every_shipped_trace_has_a_name() -> None:
    files = {file.name.removesuffix(".tar.zst") for file in shipped.folder().glob("*.tar.zst")}
    assert set(shipped.traces()) == files | {"bfs-16"}
    assert set(ms.examples().traces) == set(shipped.traces())
    for name, sizes in shipped.memory_traces().items():
        assert {f"{name}-{size}" for size in sizes} <= set(shipped.traces())


@pytest.mark.contract
def test_a_path_goes_before_a_name(write_trace, tmp_path) -> None:
    write_trace({0: ["init", "compute 5", "finalize"]}, "lulesh-8")
    assert ms.read_workload("lulesh-8").num_ranks == 1
    assert ms.run({"workload": {"path": "lulesh-8"}, "target": "laptop"}).makespan_seconds == pytest.approx(5e-9)


@pytest.mark.contract
def test_a_study_says_how_its_trace_is_read_unless_the_user_does() -> None:
    own = located(WorkloadChoice(path="multizone-8-design"))
    assert own.detail == str(shipped.folder() / "multizone-8-detail.tar.zst")
    assert own.format == "workload"
    assert located(WorkloadChoice(path="lulesh-8", format="auto", flop_rate="2 Gflop/s")).flop_rate == "2 Gflop/s"
    assert located(WorkloadChoice(path="lulesh-8", format="auto")).format == "simgrid-ti"
    named = located(WorkloadChoice(path="some/trace", detail="multizone-8-detail"))
    assert (named.path, named.detail) == ("some/trace", own.detail)


@pytest.mark.contract
def test_a_study_without_schema_names_a_trace() -> None:
    """The contract of ``run``: the same as the example itself."""
    result = ms.run({"workload": {"path": "lulesh-8"}, "target": "crossbar256"})
    assert result.figures == ms.run("lulesh-8").figures
    assert result.resolved["workload"]["path"] == str(shipped.traces()["lulesh-8"].resolve())
    assert len(repr(result)) <= 400


@pytest.mark.contract
def test_commands_take_names(cli, tmp_path) -> None:
    by_name = cli("convert", "lulesh-8", "--to", "goal", "-o", "by-name")
    by_path = cli("convert", shipped.traces()["lulesh-8"], "--to", "goal", "-o", "by-path")
    assert by_name.status == by_path.status == 0, by_name.err
    (one,), (other,) = (sorted((tmp_path / name).iterdir()) for name in ("by-name", "by-path"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.contract
@pytest.mark.parametrize(
    "line",
    [
        "iterations lulesh-8",
        "run --workload jacobi-8 --target laptop --no-report",
        "plan --method tbpoint bfs-16 -o out",
        pytest.param("clusters lulesh-8 -o out", marks=pytest.mark.slow),
        pytest.param("profile matmul-10 --target laptop -o out", marks=pytest.mark.slow),
        pytest.param(
            "predict 10=matmul-10 12=matmul-12 15=matmul-15 17=matmul-17 --sizes 20 --target epyc-zen4",
            marks=pytest.mark.slow,
        ),
        pytest.param("extrapolate lulesh-8 lulesh-64 --ranks 216 -o out", marks=pytest.mark.slow),
    ],
)
def test_a_command_takes_a_name(cli, line) -> None:
    outcome = cli(*line.split())
    assert outcome.status == 0, outcome.err


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (("profile", "matmul"), ("matmul: is shipped as traces at several inputs", "matmul-10, matmul-12")),
        (("iterations", "lulesh-9"), ("lulesh-9: does not exist", "the name of a shipped one")),
        (("pop", "lulesh-8"), ("lulesh-8", "does not say when its operations began")),
        (("run", "matmul-10"), ("matmul-10: is a trace, which needs a target",)),
    ],
)
def test_names_that_do_not_do_are_told(cli, refused, words, needles) -> None:
    refused(cli(*words), *needles)
