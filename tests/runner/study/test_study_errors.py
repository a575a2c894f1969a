"""Studies, targets and options that are wrong: one line that names the file, the key and the mend; exit status 2;
nothing written, and nothing of an earlier run lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from manyscale.runner.study.targets import shipped_targets

# -- studies and targets ---------------------------------------------------------------------------------------------

BASE = {"schema": 1, "workload": {"path": "trace"}, "target": "laptop"}


def study_text(**changes: object) -> str:
    return yaml.safe_dump({key: value for key, value in {**BASE, **changes}.items() if value is not None})


def flop_rate(value: object) -> str:
    return study_text(workload={"path": "trace", "flop_rate": value})


def laptop(**changes: object) -> dict[str, object]:
    return {"target": {"name": "laptop", **changes}}


BAD_STUDIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "invalid YAML": ("schema: 1\nworkload: {path: trace\ntarget: laptop\n", ("study.yaml:3: ", "not valid YAML")),
    "tabs": ("schema: 1\n\ttarget: laptop\n", ("study.yaml:2: ", "not valid YAML")),
    "impossible date": ("schema: 1\nname: 2024-99-99\n", ("study.yaml", "not valid YAML")),
    "nesting without end": ("[" * 5000, ("study.yaml", "not valid YAML")),
    "binary": ("\x00\x01", ("study.yaml", "YAML")),
    "empty": ("", ("study.yaml: ", "a study is a mapping of keys")),
    "list": ("- a\n- b\n", ("study.yaml: ", "a study is a mapping of keys")),
    "unknown key": (study_text(wrkload=1), ("study.yaml: wrkload: ", "unknown key; did you mean 'workload'?")),
    "unknown nested key": (study_text(model={"gpuu": "x"}), ("study.yaml: model.gpuu: ", "unknown key")),
    "number for a key": ("1: 2\n" + study_text(), ("study.yaml: 1: ", "should be strings")),
    "other schema": (study_text(schema=2), ("study.yaml: schema: ", "2 is not one of 1")),
    "missing workload": (study_text(workload=None), ("study.yaml: workload: ", "missing; add it")),
    "missing path": (study_text(workload={}), ("study.yaml: workload.path: ", "missing; add it")),
    "missing target": (study_text(target=None), ("study.yaml: target: ", "missing; add it")),
    "target without a name": (study_text(target={"nodes": 1}), ("study.yaml: target: ", "needs the key 'name'")),
    "target of another type": (study_text(target=5), ("study.yaml: target: 5 is not a text or a mapping of keys",)),
    "wrong unit": (
        flop_rate("1 GHz"), ("study.yaml: workload.flop_rate: ", "'GHz' is not a unit of rate"),
    ),
    "bare number": (
        flop_rate(5), ("study.yaml: workload.flop_rate: ", "5 has no unit", "1 Gflop/s"),
    ),
    "number without a unit": (
        flop_rate("5"), ("workload.flop_rate: ", "no unit"),
    ),
    "negative quantity": (
        flop_rate("-1 Gflop/s"), ("workload.flop_rate: ", "is negative"),
    ),
    "endless exponent": (
        flop_rate("1e999999999 flop/s"), ("workload.flop_rate: ", "1 Gflop/s"),
    ),
    "negative ratio": (study_text(cpu_ratio=-1), ("study.yaml: cpu_ratio: ", "-1 is not above 0")),
    "negative seed": (study_text(seed=-1), ("study.yaml: seed: ", "-1 is below 0")),
    "unknown cpu model": (
        study_text(model={"cpu": "magic"}), ("study.yaml: model.cpu: ", "unknown model 'magic'; known are burst"),
    ),
    "unknown network model": (
        study_text(model={"network": "magic"}), ("model.network: ", "known are latency-bandwidth"),
    ),
    "unknown sampling": (
        study_text(sampling={"ranks": "some"}), ("study.yaml: sampling.ranks: ", "unknown method 'some'; known are "),
    ),
    "unknown sampling of iterations": (
        study_text(sampling={"iterations": "third"}),
        ("sampling.iterations: ", "unknown method 'third'; known are auto, traced, full, second, joined, one-in-N,"),
    ),
    "unknown sampling of tasks": (
        study_text(sampling={"tasks": "some"}),
        ("sampling.tasks: ", "unknown method 'some'; known are full, periodic, lazy"),
    ),
    "unknown sampling of launches": (
        study_text(sampling={"launches": "some"}),
        ("sampling.launches: ", "unknown method 'some'; known are tbpoint, "),
    ),
    "traced ranks of traced times": (
        study_text(sampling={"ranks": "traced"}), ("sampling: model cpu: burst takes all from the trace",),
    ),
    "unknown format": (
        study_text(workload={"path": "trace", "format": "otf9"}), ("workload.format: unknown format 'otf9'",),
    ),
    "unknown target": (study_text(target="cray1"), ("study.yaml: target: unknown target 'cray1'", "known are a100")),
    "wrong target key": (
        study_text(**laptop(network={"latencyy": "1 us"})), ("study.yaml", "network.latencyy: ", "unknown key"),
    ),
    "wrong target unit": (
        study_text(**laptop(network={"latency": "1 GB"})),
        ("study.yaml", "network.latency: ", "'GB' is not a unit of time"),
    ),
    "bare target number": (
        study_text(**laptop(network={"latency": 5})), ("study.yaml", "network.latency: ", "5 has no unit"),
    ),
    "endless latency": (
        study_text(**laptop(network={"latency": "1e20 s"})), ("study.yaml", "network.latency: ", "beyond 53 days"),
    ),
    "rate of almost nothing": (
        study_text(**laptop(network={"bandwidth": "1e-300 B/s"})), ("study.yaml", "network.bandwidth: ", "rate"),
    ),
    "unknown collectives": (study_text(**laptop(network={"collectives": "magic"})), ("collectives", "magic")),
    "bad sweep key": (study_text(sweep={"foo.bar": [1]}), ("study.yaml: sweep foo.bar=1: ", "foo: unknown key")),
    "empty sweep list": (study_text(sweep={"cpu_ratio": []}), ("study.yaml: sweep.cpu_ratio: ", "at least 1")),
    "sweep without a list": (study_text(sweep={"cpu_ratio": 2}), ("study.yaml: sweep.cpu_ratio: ", "list")),
    "sweep value of a wrong unit": (
        study_text(sweep={"target.network.latency": ["1 us", "2 GHz"]}),
        ("study.yaml: sweep target.network.latency=2 GHz: ", "network.latency: ", "'GHz' is not a unit of time"),
    ),
    "sweep into a text": (study_text(sweep={"seed.x": [1]}, seed=1), ("study.yaml", "'seed' holds no keys")),
    "mapping of a wrong length": (
        study_text(mapping={"placement": [0]}), ("study.yaml", "1 nodes for 2 ranks; list one for each"),
    ),
    "mapping out of range": (
        study_text(mapping={"placement": [0, 1]}), ("study.yaml", "node 1 is not one of the 1 of laptop"),
    ),
    "mapping below range": (
        study_text(mapping={"placement": [-2, 0]}), ("study.yaml", "mapping.placement: node -2 is not one"),
    ),
    "mapping beyond integers": (
        study_text(mapping={"placement": [0, 10**30]}), ("study.yaml", "mapping.placement: node 1000"),
    ),
    "mapping of a wrong kind": (
        study_text(mapping={"placement": "spiral"}), ("study.yaml: mapping.placement", "block"),
    ),
    "more ranks than cores": (
        study_text(**laptop(node={"cores_per_socket": 1})),
        ("study.yaml", "2 ranks do not fit on laptop", "mapping.oversubscribe"),
    ),
    "more ranks than cores on a node": (
        study_text(**laptop(nodes=2, node={"cores_per_socket": 1}), mapping={"ranks_per_node": 2}),
        ("study.yaml", "node 0 of laptop would run 2 ranks on 1 cores", "mapping.oversubscribe"),
    ),
    "correction of an unknown rank": (
        study_text(ipc_correction={"ranks": {9: 2.0}}), ("ipc_correction.ranks: rank 9",),
    ),
    "correction of an unknown region": (study_text(ipc_correction={"regions": {"a": 2.0}}), ("unknown region 'a'",)),
    "correction of an unknown phase": (study_text(ipc_correction={"phases": {"0/9": 2.0}}), ("rank 0 has no phase 9",)),
    "trace that does not exist": (study_text(workload={"path": "nowhere"}), ("nowhere: ", "does not exist")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_STUDIES)
def test_bad_study_is_named_with_its_key(refused, cli, scene, tmp_path, name):
    text, words = BAD_STUDIES[name]
    scene.good_trace()
    study = scene.file("study.yaml", text)
    for command in (("run", study, "-o", "out", "--no-report"), ("run", study, "-o", "out", "--dry-run")):
        outcome = cli(*command)
        if command[-1] == "--dry-run" and name.startswith(("unknown collectives", "correction of")):
            continue  # found where the work is done
        refused(outcome, *words)
        assert not (tmp_path / "out").exists()


def target_text(**changes: object) -> str:
    content = {**yaml.safe_load(shipped_targets()["laptop"].read_text()), **changes}
    return yaml.safe_dump({key: value for key, value in content.items() if value is not None})


BAD_TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown key": (target_text(nodess=1), ("machine.yaml: nodess: ", "unknown key")),
    "missing key": (target_text(nodes=None), ("machine.yaml: nodes: ", "missing; add it")),
    "no sources": (target_text(sources=None), ("machine.yaml: sources: ", "missing; add it")),
    "a part without a source": (
        target_text(sources={"nodes": "x", "node": "y"}), ("machine.yaml: ", "no source is given for network"),
    ),
    "no nodes": (target_text(nodes=0), ("machine.yaml: nodes: ", "0 is below 1")),
    "half a node": (target_text(nodes=1.5), ("machine.yaml: nodes: ", "1.5 is not a whole number")),
    "text": ("fast\n", ("machine.yaml: ", "a machine is a mapping of keys")),
    "invalid YAML": ("schema: 1\nnodes: [\n", ("machine.yaml:3: ", "not valid YAML")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_bad_target_is_named_with_its_key(refused, cli, scene, tmp_path, name):
    text, words = BAD_TARGETS[name]
    scene.file("machine.yaml", text)
    outcome = cli("run", "--workload", scene.good_trace(), "--target", "machine.yaml", "-o", "out")
    refused(outcome, *words)
    assert not (tmp_path / "out").exists()


# -- options and directories -----------------------------------------------------------------------------------------

RUN = ("run", "study.yaml", "--no-report")
BAD_COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "missing study file": (
        ("run", "nothing.yaml", "-o", "out"), ("unknown study 'nothing.yaml'", "known are bfs-16"),
    ),
    "unknown example": (("run", "lulesh-9"), ("unknown study 'lulesh-9'", "lulesh-8")),
    "study that is a folder": (("run", "trace"), ("trace: is a trace, which needs a target",)),
    "nothing to run": (("run",), ("name a study, or --workload PATH --target NAME",)),
    "workload without a target": (("run", "--workload", "trace"), ("--workload needs --target",)),
    "assignment without a value": ((*RUN, "--set", "seed"), ("--set 'seed': write KEY=VALUE",)),
    "assignment without a key": ((*RUN, "--set", "=5"), ("not a dotted key",)),
    "assignment that is no YAML": ((*RUN, "--set", "seed=["), ("--set 'seed=['", "not valid YAML")),
    "assignment of a wrong unit": (
        (*RUN, "--set", "target.network.latency=2 GHz"), ("network.latency: ", "'GHz' is not a unit of time"),
    ),
    "model without a level": ((*RUN, "--model", "burst"), ("--model 'burst': write LEVEL=NAME",)),
    "sampling of an unknown level": ((*RUN, "--sampling", "warps=full"), ("--sampling warps=full: unknown key",)),
    "unknown executor": (
        (*RUN, "-o", "out", "--executor", "slurm"), ("unknown executor 'slurm'; known are auto, local, ray",),
    ),
    "no workers": ((*RUN, "--workers", "0"), ("--workers 0: at least one",)),
    "negative seed": ((*RUN, "--seed", "-1"), ("--seed -1: a seed is not negative",)),
    "seed that is no number": ((*RUN, "--seed", "x"), ("--seed x: is not a whole number",)),
    "unknown option": ((*RUN, "--fast"), ("--fast",)),
    "unknown command": (("simulate",), ("unknown command 'simulate'",)),
    "unknown format": (
        ("run", "--workload", "trace", "--target", "laptop", "--format", "otf9"),
        ("--format: unknown format 'otf9'; did you mean 'otf2'",),
    ),
    "unknown format to convert": (("convert", "trace", "-o", "out", "--format", "otf9"), ("--format: unknown format",)),
    "rate without a unit": (("convert", "trace", "-o", "out", "--flop-rate", "5"), ("--flop-rate: ", "no unit")),
    "output is a file": ((*RUN, "-o", "study.yaml"), ("study.yaml: is a file; name a directory with -o",)),
    "output is not empty": ((*RUN, "-o", "trace"), ("trace: is not empty", "--resume")),
    "output cannot be written": ((*RUN, "-o", "study.yaml/below"), ("study.yaml/below: cannot be written", "-o")),
    "output with an endless name": ((*RUN, "-o", "x" * 300), ("x" * 300, "name")),
    "plan into a full folder": (("plan", "study.yaml", "-o", "trace"), ("trace: is not empty",)),
    "convert into a full folder": (("convert", "trace", "-o", "trace"), ("trace: is not empty",)),
    "resume of nothing": (
        (*RUN, "--resume", "-o", "trace"), ("trace: is no run directory", "manifest.json", "--resume"),
    ),
    "resume of a missing folder": ((*RUN, "--resume", "-o", "nowhere"), ("nowhere: is no run directory",)),
    "resume without a folder": ((*RUN, "--resume"), ("--resume needs the run directory: -o DIR",)),
    "status of nothing": (("status", "trace"), ("trace: is no run directory", "manifest.json")),
    "status of a missing folder": (("status", "nowhere"), ("nowhere: does not exist",)),
    "status of a file": (("status", "study.yaml"), ("study.yaml: is no run directory",)),
    "report of nothing": (("report", "trace"), ("trace: is no run directory",)),
    "unknown case": (("accuracy", "magic"), ("unknown case 'magic'; known are ",)),
    "cache that is a file": (
        (*RUN, "-o", "out", "--cache", "study.yaml"), ("study.yaml", "the cache cannot be written", "--cache DIR"),
    ),
    "cache of a dry run": (
        (*RUN, "--dry-run", "--cache", "study.yaml"), ("the cache cannot be written", "--cache DIR"),
    ),
    "cache of an archive": (
        ("run", "--workload", "t.txt", "--target", "laptop", "--dry-run", "--cache", "study.yaml"),
        ("the cache cannot be written", "--cache DIR"),
    ),
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "cache" not in file.parts
    }


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_command_changes_nothing(refused, cli, scene, tmp_path, name):
    arguments, words = BAD_COMMANDS[name]
    scene.good_trace()
    scene.file("study.yaml", study_text())
    scene.file("t.txt", "0 init\n0 finalize\n")
    before = contents(tmp_path)
    refused(cli(*arguments), *words)
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


@pytest.fixture
def finished_run(cli, scene, tmp_path) -> Path:
    scene.good_trace()
    scene.file("study.yaml", study_text())
    assert cli(*RUN, "-o", "done").status == 0
    return tmp_path / "done"


def test_resume_with_another_study_leaves_the_run_as_it_was(refused, cli, finished_run):
    before = contents(finished_run)
    outcome = cli(*RUN, "-o", finished_run, "--resume", "--set", "cpu_ratio=2")
    refused(outcome, "done/resolved.yaml: ", "another study (cpu_ratio differ)")
    assert contents(finished_run) == before
    assert cli(*RUN, "-o", finished_run, "--resume").status == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": 1}'])
def test_damaged_manifest(refused, cli, finished_run, content):
    (finished_run / "manifest.json").write_bytes(content)
    for command in (("status", finished_run), ("report", finished_run)):
        refused(cli(*command), "manifest.json: ")


@pytest.mark.parametrize("content", [b"", b"- a\n", b"a: [\n", b"\xff"])
def test_damaged_resolved_study(refused, cli, finished_run, content):
    (finished_run / "resolved.yaml").write_bytes(content)
    refused(cli("report", finished_run), "resolved.yaml")
    refused(cli(*RUN, "-o", finished_run, "--resume"), "resolved.yaml")
    refused(cli("run", "--resume", "-o", finished_run, "--no-report"), "resolved.yaml")


@pytest.mark.parametrize("tail", [b'{"key": "a', b"5\n", b"\xff\xfe\n", b"{}\n"])
def test_damaged_end_of_a_journal_is_left_out(cli, finished_run, tail):
    with (finished_run / "units.jsonl").open("ab") as journal:
        journal.write(tail)
    outcome = cli("status", finished_run)
    assert outcome.status == 0
    assert "2 units finished" in outcome.out
