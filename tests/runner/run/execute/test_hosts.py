"""Host files: every shipped one is valid for whoever reads it, and mistakes are told in one line."""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from manyscale.runner.cli import run as run_command
from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.run.execute.ray import RayExecutor

DATA = Path(__file__).parents[4] / "tests" / "data"
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


@pytest.mark.parametrize(("words", "restarts", "finished"), [
    (["my study.yaml", "-o", "out"], 0, ["my study.yaml", "-o", "out"]),
    (["my study.yaml", "-o", "out"], 1, ["my study.yaml", "-o", "out", "--resume"]),
    (["my study.yaml", "--output=nothing"], 1, ["my study.yaml", "--output=nothing"]),  # it had not begun
    (["my study.yaml"], 0, ["my study.yaml", "-o", "manyscale-42"]),
    (["--seed", "3", "my study.yaml", "-oout"], 2, ["--seed", "3", "my study.yaml", "-oout", "--resume"]),
])  # fmt: skip
def test_the_slurm_script_launches_the_study_it_is_given(
    tmp_path: Path, words: list[str], restarts: int, finished: list[str]
) -> None:
    """The script as Slurm would run it, each of its commands replaced by one that tells what it was called with."""
    commands = {
        "srun": 'echo "srun $*"',
        "scontrol": "printf 'node7\\nnode8\\n'",
        "python3": "echo secret",
        "manyscale": '[ "$*" = "status out" ] || exit 2',
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
    } | ({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {})
    launch = ["bash", str(SHIPPED / "slurm.sh"), *words]
    found = subprocess.run(launch, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "srun rm -rf /tmp/ray-42",
        "srun mkdir -p /tmp/ray-42/ray",
        "srun --kill-on-bad-exit=1 ray symmetric-run --address node7:6379 --min-nodes 2 --num-cpus 48 "
        f"-- manyscale run {' '.join(finished)} --executor ray --address auto",
        "srun rm -rf /tmp/ray-42",
    ]
    assert subprocess.run(launch[:2], env=environment, capture_output=True).returncode == 2  # without a study


def closed(schema: Any) -> Any:
    """A schema that refuses keys which it does not name. Kubernetes drops them without a word, so that a misspelt one
    would have no effect."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and "additionalProperties" not in schema:
        found["additionalProperties"] = False
    return found


@pytest.fixture(scope="module")
def ray_job() -> Draft7Validator:
    """KubeRay's own schema of a RayJob (tests/data/kuberay)."""
    schema = closed(json.loads(gzip.decompress((DATA / "kuberay" / "rayjob-1.7.0.json.gz").read_bytes())))
    schema["properties"]["metadata"] = {"type": "object", "required": ["generateName"]}  # Kubernetes' own
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def test_the_kuberay_resource_has_only_keys_that_kuberay_knows(ray_job: Draft7Validator) -> None:
    content = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())
    assert [error.message for error in ray_job.iter_errors(content)] == []
    content["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplica"] = 1
    content["spec"]["rayClusterSpec"]["autoscalerOptions"]["idleTimeoutSeconds"] = "a minute"
    assert len(list(ray_job.iter_errors(content))) == 2


def test_pods_come_and_go_with_the_work_and_share_nothing() -> None:
    cluster = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is True
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] == workers["replicas"] == 0 < workers["maxReplicas"]
    for pod in (cluster["headGroupSpec"], workers):
        spec = pod["template"]["spec"]
        assert spec["restartPolicy"] == "Never"  # KubeRay's autoscaler needs it
        memory = [volume for volume in spec["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert [mounts[volume["name"]] for volume in memory] == ["/dev/shm"]
        assert spec["securityContext"]["runAsNonRoot"] is True
    claims = [volume for volume in workers["template"]["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == []


def test_the_kuberay_resource_is_consistent() -> None:
    cluster = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [container for pod in pods for container in pod["template"]["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1
    for pod in pods:
        spec = pod["template"]["spec"]
        mounted = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}


@pytest.mark.parametrize("begun", [False, True])
def test_the_kuberay_entrypoint_runs_or_resumes(tmp_path: Path, begun: bool) -> None:
    """As the shell of Ray's job runs it, with a stand-in for manyscale."""
    entry = yaml.safe_load((SHIPPED / "kuberay.yaml").read_text())["spec"]["entrypoint"]
    told = f'case $1 in status) exit {0 if begun else 2};; esac; echo "$@"'
    write(tmp_path / "manyscale", f"#!/bin/sh\n{told}\n").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", entry], env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.split()
    assert words[0] == "run"
    assert words[-4:] == ["--executor", "ray", "--address", "auto"]
    assert ("--resume" in words) == begun
    places = [words[words.index(option) + 1] for option in ("-o", "--cache")]
    assert all(place.startswith("s3://") for place in places)
    parser = argparse.ArgumentParser()
    run_command.arguments(parser)
    parser.parse_args(words[1:])  # each option is known


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
