"""JSON schemas of studies, targets and hosts: they accept what is shipped, and refuse what the readers refuse."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.schemas import KINDS, path, schema_of
from manyscale.runner.shipped import shipped_targets
from manyscale.runner.study.schema import parse_study
from manyscale.runner.study.targets import build_machine

pytestmark = pytest.mark.contract
ROOT = Path(__file__).parents[2]
STUDIES = [file for file in sorted((ROOT / "runner" / "examples").glob("*.yaml")) if file.stem != "validation"]
VALIDATORS = {kind: jsonschema.Draft202012Validator(schema_of(kind)) for kind in KINDS}
STUDY: dict[str, Any] = {"schema": 1, "workload": {"path": "lulesh-8"}, "target": "crossbar256"}


def accepts(kind: str, content: object) -> bool:
    return not list(VALIDATORS[kind].iter_errors(content))


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_schemas_are_those_of_the_code(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))
    told = f"write it anew: python -m manyscale.runner.schemas {kind} > runner/schemas/{kind}.schema.json"
    assert json.loads(path(kind).read_text()) == schema_of(kind), told


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_shipped_studies_are_accepted(file: Path) -> None:
    assert [error.message for error in VALIDATORS["study"].iter_errors(yaml.safe_load(file.read_text()))] == []


@pytest.mark.parametrize("name", shipped_targets())
def test_shipped_targets_are_accepted(name: str) -> None:
    content = yaml.safe_load(shipped_targets()[name].read_text())
    assert [error.message for error in VALIDATORS["target"].iter_errors(content)] == []
    assert accepts("study", {**STUDY, "target": content})
    assert accepts("study", {**STUDY, "target": {"name": name, "network": {"latency": "2 us"}}})


def test_shipped_hosts_of_our_own_format_are_accepted() -> None:
    assert accepts("host", yaml.safe_load((ROOT / "cluster_configs" / "host" / "local.yaml").read_text()))


def changed(content: dict[str, Any], dotted: str, value: object) -> dict[str, Any]:
    """A copy with one key set, or removed where the value is Ellipsis."""
    result = deepcopy(content)
    *heads, last = dotted.split(".")
    inner = result
    for head in heads:
        inner = inner.setdefault(head, {})
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return result


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workload", ...),
        ("workload.path", ...),
        ("target", ...),
        ("schema", 2),
        ("wrkload", {}),
        ("model.cpu", "detail"),
        ("model.network", "latency_bandwidth"),
        ("sampling.tasks", "sometimes"),
        ("sampling.ranks", "one-in-0"),
        ("mapping.placement", "blocks"),
        ("mapping.cores_per_rank", 0),
        ("mapping.cores_per_rank", "8 cores"),
        ("cpu_ratio", 0),
        ("cpu_ratio", "half"),
        ("seed", -1),
        ("sweep", {"target.network.latency": []}),
        ("sweep", ["target.network.latency"]),
        ("workload.flop_rate", 1e9),
        ("workload.flop_rate", "1 GHz"),
        ("workload.polls", "dropped"),
        ("runtime.create", "60"),
        ("taskpoint.history", 0),
        ("ipc_correction.ranks", {0: "fast"}),
        ("target", {"network": {"latency": "1 us"}}),
        ("amm.form", "both"),
    ],
)
def test_what_a_study_must_not_say_is_refused_by_both(key: str, value: object) -> None:
    assert accepts("study", STUDY)
    content = changed(STUDY, key, value)
    with pytest.raises(UserError):
        parse_study(content, "study.yaml")
    assert not accepts("study", content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", ...),
        ("nodes", 0),
        ("nodes", "many"),
        ("node.sockets", ...),
        ("node.frequency", "2.6"),
        ("node.frequency", 2.6e9),
        ("node.frequency", "2.6 GB"),
        ("node.cashes", {}),
        ("node.caches", {"L1D": {"size": "32 KiB", "replacement": "fifo"}}),
        ("node.caches", {"L1D": {"ways": 8}}),
        ("node.gpu", {"sms": 4}),
        ("network.latency", "-1 us"),
        ("network.latency", "inf s"),
        ("network.bandwith", "1 GB/s"),
        ("network.bandwidth", "10 Gb/s"),
        ("network.transfer_start", "late"),
        ("network.collectives", "mpich3"),
        ("network.collectives", {"preset": "mpich", "rules": [{"collectives": ["all-reduce"], "algorithm": "ring"}]}),
        ("network.topology", {"kind": "mesh"}),
        ("network.topology", {"kind": "torus"}),
        ("network.loggops", {"overhead": "1 us"}),
        ("storage", {"latency": "2 ms"}),
    ],
)
def test_what_a_target_must_not_say_is_refused_by_both(key: str, value: object) -> None:
    machine = yaml.safe_load(shipped_targets()["marenostrum3"].read_text())
    content = changed(machine, key, value)
    with pytest.raises(UserError):
        build_machine(content, "machine.yaml")
    assert not accepts("target", content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", ...),
        ("executor", "slurm"),
        ("workers", 0),
        ("workers", "all"),
        ("object_store_memory", "8 G"),
        ("x", 1),
    ],
)
def test_what_a_host_must_not_say_is_refused_by_both(key: str, value: object, tmp_path: Path) -> None:
    content = changed({"schema": 1, "executor": "local"}, key, value)
    file = tmp_path / "host.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError):
        load_host(file)
    assert not accepts("host", content)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: str) -> None:
    schema = schema_of(kind)
    models = {"": schema, **schema.get("$defs", {})}
    missing = [
        f"{name}.{key}" for name, model in models.items() if not name.startswith("target") for key, field in
        model.get("properties", {}).items() if "description" not in field and "$ref" not in field
    ]  # fmt: skip
    assert missing == []
