"""Host files: every shipped one is valid for whoever reads it, and mistakes are told in one line."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.run.execute.ray import RayExecutor

SHIPPED = Path(str(files("manyscale.cluster_configs").joinpath("host")))


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_host(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_every_shipped_file_loads() -> None:
    kinds = {path.name: load_host(path).kind for path in sorted(SHIPPED.iterdir())}
    assert kinds == {
        "kuberay.yaml": "kuberay",
        "local.yaml": "local",
        "on-premise.yaml": "on-premise",
        "slurm.sh": "slurm",
    }


# This machine


def test_local_by_default_takes_all_cores() -> None:
    host = load_host(SHIPPED / "local.yaml")
    assert (host.executor, host.num_workers, host.object_store_memory_bytes) == ("auto", None, None)
    assert (host.address, host.temp_dir, host.launch_command) == (None, None, None)
    host.require_direct()
    with pytest.raises(ValueError, match="needs no launch command"):
        host.launch_text()


def test_commented_keys_of_the_shipped_file_are_valid_too(tmp_path: Path) -> None:
    text = (SHIPPED / "local.yaml").read_text()
    for key in ("object_store_memory: ", "temp_dir: "):
        assert text.count(f"# {key}") == 1
        text = text.replace(f"# {key}", key)
    host = load_host(write(tmp_path / "host.yaml", text))
    assert host.object_store_memory_bytes == 8 * 2**30
    assert host.temp_dir == Path("/local/ray")


def test_a_local_file_configures_the_executor(tmp_path: Path) -> None:
    content = {"schema": 1, "executor": "ray", "workers": 3, "object_store_memory": "1 GB", "temp_dir": "/tmp/r"}
    host = load_host(write(tmp_path / "host.yaml", content))
    assert (host.kind, host.executor, host.num_workers) == ("local", "ray", 3)
    assert (host.object_store_memory_bytes, host.temp_dir) == (10**9, Path("/tmp/r"))


@pytest.mark.parametrize(("change", "message"), [
    ({"worker": 3}, ": worker: unknown key; did you mean 'workers'?"),
    ({"schema": 2}, ": schema: 2 is not one of 1"),
    ({"schema": None}, ": schema: this key is missing; add it"),
    ({"executor": "slurm"}, ": executor: 'slurm' is not one of 'auto', 'local' or 'ray'"),
    ({"workers": 0}, ": workers: 0 is not a number of workers; write 'cores' or a whole number of at least 1"),
    ({"workers": True}, ": workers: True is not a number of workers"),
    ({"workers": "all"}, ": workers: 'all' is not a number of workers"),
    ({"object_store_memory": 8}, ": object_store_memory: 8 has no unit"),
    ({"object_store_memory": "8"}, ": object_store_memory: '8' has no unit"),
    ({"object_store_memory": "1 MiB"}, ": object_store_memory: Ray needs at least 75 MiB"),
    ({"temp_dir": "ray"}, ": temp_dir: 'ray' is not an absolute path"),
])  # fmt: skip
def test_mistakes_name_file_and_key(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = {key: value for key, value in ({"schema": 1} | change).items() if value is not None}
    assert refusal(write(tmp_path / "host.yaml", content)).startswith(message)


@pytest.mark.parametrize(("name", "text", "message"), [
    ("host.yaml", "- a list", ": a host is a mapping of keys"),
    ("host.yaml", "schema: 1: 1", ":1: is not valid YAML"),
    ("host.sh", "#!/bin/sh\nmanyscale run\n", ": is not a Slurm script (no line begins with #SBATCH)"),
    ("host.yaml", "apiVersion: batch/v1\nkind: Job", ": apiVersion: 'batch/v1' is not one of KubeRay's"),
    ("host.yaml", "apiVersion: ray.io/v1\nkind: RayCluster", ": kind: 'RayCluster' runs no command by itself"),
    ("host.yaml", "apiVersion: ray.io/v1\nkind: RayJob\nspec: {}", ": spec.entrypoint: this key is missing"),
    ("host.yaml", "cluster_name: a", ": provider: this key is missing"),
    ("host.yaml", "cluster_name: a\nprovider: {type: aws}", ": provider.type: 'aws' does not say where the head is"),
    ("host.yaml", "cluster_name: a\nprovider: {type: local}", ": provider.head_ip: this key is missing"),
])  # fmt: skip
def test_what_is_no_host_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert refusal(write(tmp_path / name, text)).startswith(message)


@pytest.mark.parametrize("name", ["host.yaml", "host.sh"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    assert "No such file" in refusal(tmp_path / name)


# A cluster of one's own machines


def test_ray_s_own_schema_accepts_the_cluster_file() -> None:
    check = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent)) or shutil.which("check-jsonschema")
    assert check is not None
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    schema = Path(spec.origin).parent / "autoscaler" / "ray-schema.json"
    found = subprocess.run([check, "--schemafile", schema, SHIPPED / "on-premise.yaml"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_cluster_file_leads_to_its_head(tmp_path: Path) -> None:
    assert load_host(SHIPPED / "on-premise.yaml").address == "head.example.org:6379"
    content = yaml.safe_load((SHIPPED / "on-premise.yaml").read_text())
    for command, port in (
        ("ray start --head --port=7000", 7000),
        ("ulimit -n 9; ray start --port 7001 --block --head", 7001),
        ("ray start --head", 6379),
        ("ray start --head; other --port=9", 6379),
    ):
        content["head_start_ray_commands"] = ["ray stop", command]
        assert load_host(write(tmp_path / "host.yaml", content)).address == f"head.example.org:{port}"


def test_both_nodes_ports_and_authentication_agree_in_the_cluster_file() -> None:
    content = yaml.safe_load((SHIPPED / "on-premise.yaml").read_text())
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "RAY_AUTH_MODE=token" in content[key][-1]
    assert "--port=6379" in content["head_start_ray_commands"][-1]
    assert "--address=$RAY_HEAD_IP:6379" in content["worker_start_ray_commands"][-1]


# Hosts that are launched


def test_the_slurm_script_is_sound() -> None:
    script = str(SHIPPED / "slurm.sh")
    assert subprocess.run(["bash", "-n", script], capture_output=True).returncode == 0
    if shellcheck := shutil.which("shellcheck"):
        found = subprocess.run([shellcheck, script], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout


def test_the_slurm_script_launches_the_study_it_is_given(tmp_path: Path) -> None:
    """The script as Slurm would run it, each of its commands replaced by one that tells what it was called with."""
    commands = {
        "srun": 'echo "srun $*"',
        "scontrol": "printf 'node7\\nnode8\\n'",
        "python3": "echo secret",
    }
    for name, body in commands.items():
        write(tmp_path / name, f"#!/bin/sh\n{body}\n").chmod(0o755)
    (tmp_path / "manyscale-env" / "bin").mkdir(parents=True)
    (tmp_path / "manyscale-env" / "bin" / "activate").touch()
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "48",
    }
    command = ["bash", str(SHIPPED / "slurm.sh"), "my study.yaml", "-o", "out"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "srun mkdir -p /tmp/ray-42/ray",
        "srun --kill-on-bad-exit=1 ray symmetric-run --address node7:6379 --min-nodes 2 --num-cpus 48 "
        "-- manyscale run my study.yaml -o out --executor ray --address auto",
        "srun rm -rf /tmp/ray-42",
    ]
    assert subprocess.run(command[:2], env=environment, capture_output=True).returncode == 2  # without a study


_STRING, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}


def mapping(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


# The part of KubeRay's RayJob (ray.io/v1, operator 1.7) that the file uses; the resource itself knows more keys.
# Kubernetes drops a key that it does not know without a word, so that a misspelt one would have no effect.
_RESOURCES = mapping("cpu", "memory", cpu=_STRING, memory=_STRING)
_CONTAINER = mapping(
    "name", "image", "resources",
    name=_STRING, image=_STRING, resources=mapping("requests", "limits", requests=_RESOURCES, limits=_RESOURCES),
    volumeMounts={"type": "array", "items": mapping("name", "mountPath", name=_STRING, mountPath=_STRING)},
)  # fmt: skip
_VOLUME = mapping("name", name=_STRING, persistentVolumeClaim=mapping("claimName", claimName=_STRING))
_TEMPLATE = mapping("spec", spec=mapping(
    "containers",
    containers={"type": "array", "items": _CONTAINER, "minItems": 1}, volumes={"type": "array", "items": _VOLUME},
))  # fmt: skip
_PARAMETERS = {"type": "object", "additionalProperties": _STRING}
_HEAD = mapping("template", template=_TEMPLATE, rayStartParams=_PARAMETERS)
_WORKERS = mapping(
    "groupName", "minReplicas", "maxReplicas", "template",
    groupName=_STRING, replicas=_COUNT, minReplicas=_COUNT, maxReplicas=_COUNT, rayStartParams=_PARAMETERS,
    template=_TEMPLATE,
)  # fmt: skip
_CLUSTER = mapping(
    "headGroupSpec",
    rayVersion=_STRING, authOptions=mapping("mode", mode={"enum": ["disabled", "token"]}), headGroupSpec=_HEAD,
    workerGroupSpecs={"type": "array", "items": _WORKERS},
)  # fmt: skip
RAY_JOB = mapping(
    "apiVersion", "kind", "metadata", "spec",
    apiVersion={"const": "ray.io/v1"}, kind={"const": "RayJob"},
    metadata=mapping("generateName", generateName={"pattern": "^[a-z0-9-]+$"}),
    spec=mapping(
        "entrypoint", "rayClusterSpec",
        entrypoint=_STRING, shutdownAfterJobFinishes={"type": "boolean"}, ttlSecondsAfterFinished=_COUNT,
        backoffLimit=_COUNT, rayClusterSpec=_CLUSTER,
    ),
)  # fmt: skip


def test_the_kuberay_resource_has_only_keys_that_kuberay_knows() -> None:
    Draft7Validator.check_schema(RAY_JOB)
    content = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())
    assert [error.message for error in Draft7Validator(RAY_JOB).iter_errors(content)] == []
    content["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplica"] = 1
    assert len(list(Draft7Validator(RAY_JOB).iter_errors(content))) == 1


def test_the_kuberay_resource_is_consistent() -> None:
    cluster = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [container for pod in pods for container in pod["template"]["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1
    for pod in pods:
        spec = pod["template"]["spec"]
        mounted = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}


def test_the_kuberay_entrypoint_is_a_valid_command() -> None:
    words = shlex.split(yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())["spec"]["entrypoint"])
    assert words[:2] == ["manyscale", "run"]
    assert words[-4:] == ["--executor", "ray", "--address", "auto"]


@pytest.mark.parametrize(("name", "launched"), [
    ("slurm.sh", "a Slurm script is launched, not joined; run: sbatch {path} STUDY"),
    ("kuberay.yaml", "a KubeRay resource is launched, not joined; run: kubectl create -f {path}"),
])  # fmt: skip
def test_a_host_that_is_launched_is_refused_as_an_executor(name: str, launched: str) -> None:
    with pytest.raises(UserError) as caught:
        RayExecutor(host=SHIPPED / name)
    assert str(caught.value) == f"{SHIPPED / name}: {launched.format(path=SHIPPED / name)}"


def test_the_launch_command_takes_the_arguments_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "our site.sh"
    shutil.copy(SHIPPED / "slurm.sh", path)
    assert load_host(path).launch_text(["my study.yaml", "-o", "out"]) == f"sbatch '{path}' 'my study.yaml' -o out"
    assert load_host(SHIPPED / "kuberay.yaml").launch_text(["a"]) == f"kubectl create -f {SHIPPED / 'kuberay.yaml'}"


def test_a_cluster_file_is_joined_by_the_executor(tmp_path: Path) -> None:
    content = {"cluster_name": "a", "provider": {"type": "local", "head_ip": "127.0.0.1", "worker_ips": []}}
    content["head_start_ray_commands"] = ["ray start --head --port=1"]
    with pytest.raises(UserError, match=r"^127\.0\.0\.1:1: no Ray cluster answers"):
        RayExecutor(host=write(tmp_path / "host.yaml", content))
