"""What cannot be predicted of launches is one line, and exit status 2; what can be, with a doubt, is a note."""

from __future__ import annotations

import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.runner.api import studies
from manyscale.runner.errors import UserError


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (Launch("a", (1,), threads=2048), "launch 2 .*2048 threads a block.*does not fit on rtx3070.*more threads"),
        (Launch("a", (1,), threads=1024, registers=72), "launch 2 .*72 registers a thread.*more registers"),
        (Launch("a", (1,), shared_bytes=200_000), r"launch 2 .*200000 B of shared memory.*more shared memory"),
    ],
)
def test_blocks_that_do_not_fit(run_launches, launch, words):
    with pytest.raises(UserError, match=words):
        run_launches(gpu_workload(Launch("a", (1,)), launch))


def test_clusters_that_do_not_fit(run_launches):
    workload = gpu_workload(Launch("a", (1,)))
    workload.gpu.cluster_blocks = lambda launch_id: 32
    with pytest.raises(UserError, match=r"launch 1 .*does not fit on h100: a cluster of 32 blocks"):
        run_launches(workload, target="h100")


def test_a_target_without_gpus(run_launches, two_kernels):
    with pytest.raises(UserError, match="laptop: its nodes have no GPU"):
        run_launches(two_kernels, target="laptop")


@pytest.mark.parametrize(
    "keys", [{"model": {"gpu": "detailed"}}, {"sampling": {"launches": "tbpoint"}}, {"sampling": {"blocks": "tbpoint"}}]
)
def test_a_workload_without_launches(cli, scene, keys, refused, tmp_path):
    scene.good_trace()
    options = [
        f"--{level}={name}={value}" for level, names in keys.items() for name, value in names.items()
    ]  # fmt: skip
    outcome = cli("run", "--workload", tmp_path / "trace", "--target", "rtx3070", *options, "-o", tmp_path / "out")
    refused(outcome, "has no kernel launches")


def test_code_of_a_later_architecture_is_told_and_counted(run_launches):
    mixed = gpu_workload(Launch("a", (8,), binary_version=90), Launch("a", (8,), binary_version=80))
    result = run_launches(mixed)
    assert [note.count for note in result.notes if note.code == "later-code"] == [1]
    assert result.statistics["gpu.newer_binaries"].value == 1


def test_code_of_the_target_s_own_architecture_is_not_told(run_launches):
    result = run_launches(gpu_workload(Launch("a", (8,), binary_version=90)), target="h100")
    assert [note.code for note in result.notes] == ["no-control-bits"]
    assert "gpu.newer_binaries" not in result.statistics


@pytest.mark.parametrize("text", ["", "0", "a", "3-", "5-3", "1,,2"])
def test_bad_numbers_of_launches(cli, scene, refused, tmp_path, text):
    scene.good_trace()
    outcome = cli("run", "--workload", tmp_path / "trace", "--target", "rtx3070", "--launch", text)
    refused(outcome, "launch")


def test_block_sampling_is_of_the_detailed_model(cli, scene, refused, tmp_path):
    scene.good_trace()
    options = ("--model", "gpu=gpumech", "--sampling", "blocks=tbpoint")
    outcome = cli("run", "--workload", tmp_path / "trace", "--target", "rtx3070", *options)
    refused(outcome, "--sampling blocks=tbpoint", "choose that model")


MAPPINGS = {
    "no file": (None, "cannot be read"),
    "empty": ("", "line 1: the columns are rank, phase, launch, not none"),
    "other columns": ("rank,phase\n", "line 1: the columns are rank, phase, launch, not rank, phase"),
    "nothing": ("rank,phase,launch\n", "maps no phase"),
    "rank": ("rank,phase,launch\n7,0,1\n", "line 2: rank 7 is not one of the run's 1 ranks"),
    "phase": ("rank,phase,launch\n0,0,1\n0,4,1\n", "line 3: rank 0 has no phase 4"),
    "launch": ("rank,phase,launch\n0,0,9\n", "line 2: .*has no launch 9; it has 1, 2, 3, 4"),
    "no number": ("rank,phase,launch\n0,first,1\n", "line 2: '0,first,1' is not a whole number"),
    "short": ("rank,phase,launch\n0,1\n", "line 2"),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_bad_mapping_files(two_kernels, tmp_path, name):
    from manyscale.runner.predict.gpu.mapping import read_mapping

    text, words = MAPPINGS[name]
    path = tmp_path / "map.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=rf"^{path}: .*{words}|^{path}: {words}"):
        read_mapping(path, two_kernels, two_kernels, "trace")


def test_a_mapping_needs_a_trace():
    study = {"schema": 1, "workload": {"path": "x"}, "target": "rtx3070", "mapping": {"launches": "m.csv"}}
    with pytest.raises(UserError, match="give both"):
        studies.run(study)
