"""Where the simulator runs: files such as those of ``cluster_configs/host/``, read into a Host.

Four kinds, told apart by what they are: our own YAML (this machine), a ``ray up`` cluster file (joined at its head), a
Slurm batch script and a KubeRay resource (both launched by their own command, which then runs manyscale inside).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from manyscale.models.workload.parameters import Bytes, Strict
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml, wrong_key

RAY_PORT: Final = 6379  # of a head node, unless its start command names another
_SMALLEST_OBJECT_STORE_BYTES: Final = 75 * 2**20  # Ray refuses to start with less
_PORT: Final = re.compile(
    r"ray start\b[^;&|]*--head\b[^;&|]*--port[= ](\d+)|ray start\b[^;&|]*--port[= ](\d+)[^;&|]*--head\b"
)


@dataclass(frozen=True)
class Host:
    """A host file, validated. ``address`` is a running cluster to join; ``launch_command`` starts a run on hosts that
    are not joined from outside. None: not given, the executor's default holds."""

    path: Path
    kind: Literal["local", "on-premise", "slurm", "kuberay"]
    executor: Literal["auto", "local", "ray"] = "ray"
    address: str | None = None
    num_workers: int | None = None
    object_store_memory_bytes: int | None = None
    temp_dir: Path | None = None
    launch_command: str | None = None

    def launch_text(self, arguments: Sequence[str] = ()) -> str:
        """The exact command that runs ``manyscale run ARGUMENTS`` on a host of kind slurm or kuberay."""
        if self.launch_command is None:
            raise ValueError(f"{self.path}: a host of kind {self.kind} needs no launch command")
        if self.kind == "slurm":
            return f"{self.launch_command} {shlex.join(arguments) if arguments else 'STUDY'}"
        return self.launch_command  # the resource names the study itself, in spec.entrypoint

    def require_direct(self) -> None:
        """Raises UserError if this host cannot be used from here, only launched."""
        if self.launch_command is not None:
            what = {"slurm": "a Slurm script", "kuberay": "a KubeRay resource"}[self.kind]
            raise UserError(f"{self.path}: {what} is launched, not joined; run: {self.launch_text()}")


def _worker_count(value: object) -> int | None:
    if value == "cores":
        return None
    if type(value) is int and value >= 1:
        return value
    raise ValueError(f"{value!r} is not a number of workers; write 'cores' or a whole number of at least 1")


class LocalHost(Strict):
    """This machine: which executor, with how many workers (None: one per core)."""

    schema_version: Literal[1] = Field(alias="schema")
    """The version of this format. It is 1."""
    executor: Literal["auto", "local", "ray"] = "auto"
    """Who computes work units: `local`, this process; `ray`, one worker process per core; `auto` takes Ray where the
    work repays its start."""
    num_workers: Annotated[int | None, BeforeValidator(_worker_count)] = Field(default=None, alias="workers")
    """The number of worker processes: `cores`, one for each core that this process may use, or a number."""
    object_store_memory_bytes: Bytes | None = Field(default=None, alias="object_store_memory")
    """The shared memory for what all workers map. By default Ray takes 30 % of the memory."""
    temp_dir: Path | None = None
    """The folder of Ray's sockets and logs: an absolute, short path. By default a temporary folder that goes with the
    run."""

    @field_validator("object_store_memory_bytes")
    @classmethod
    def _large_enough(cls, value: int | None) -> int | None:
        if value is not None and value < _SMALLEST_OBJECT_STORE_BYTES:
            raise ValueError("Ray needs at least 75 MiB")
        return value

    @field_validator("temp_dir")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError(f"{str(value)!r} is not an absolute path")
        return value


def load_host(path: Path) -> Host:
    """The host that a file describes. Raises UserError, in one line, naming the file and the key."""
    if path.suffix in (".sh", ".sbatch"):
        return _slurm_host(path)
    content = load_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: a host is a mapping of keys (schema, executor, workers, ...)")
    if "apiVersion" in content or "kind" in content:
        return _kuberay_host(path, content)
    if "cluster_name" in content or "provider" in content:
        return _cluster_host(path, content)
    try:
        local = LocalHost.model_validate(content)
    except ValidationError as error:
        raise wrong_key(error, LocalHost, str(path)) from None
    return Host(
        path,
        "local",
        executor=local.executor,
        num_workers=local.num_workers,
        object_store_memory_bytes=local.object_store_memory_bytes,
        temp_dir=local.temp_dir,
    )


def _slurm_host(path: Path) -> Host:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'not a text file'})") from None
    if not re.search(r"^#SBATCH\s", text, re.MULTILINE):
        raise UserError(f"{path}: is not a Slurm script (no line begins with #SBATCH)")
    return Host(path, "slurm", launch_command=f"sbatch {shlex.quote(str(path))}")


def _kuberay_host(path: Path, content: dict[str, Any]) -> Host:
    version, kind = content.get("apiVersion"), content.get("kind")
    if not str(version).startswith("ray.io/"):
        raise UserError(f"{path}: apiVersion: {version!r} is not one of KubeRay's; write ray.io/v1")
    if kind != "RayJob":
        raise UserError(f"{path}: kind: {kind!r} runs no command by itself; write RayJob")
    spec = content.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("entrypoint"), str):
        raise UserError(f"{path}: spec.entrypoint: this key is missing; add it (manyscale run STUDY --address auto)")
    return Host(path, "kuberay", launch_command=f"kubectl create -f {shlex.quote(str(path))}")


def _cluster_host(path: Path, content: dict[str, Any]) -> Host:
    """A ``ray up`` file: Ray checks the rest of it; here only what leads to the head."""
    provider = content.get("provider")
    if not isinstance(provider, dict):
        raise UserError(f"{path}: provider: this key is missing; add it (type: local, head_ip, worker_ips)")
    if provider.get("type") != "local":
        raise UserError(
            f"{path}: provider.type: {provider.get('type')!r} does not say where the head is; "
            "only 'local' does (elsewhere run on the cluster: ray exec FILE 'manyscale run ...')"
        )
    head = provider.get("head_ip")
    if not isinstance(head, str) or not head:
        raise UserError(f"{path}: provider.head_ip: this key is missing; add it")
    commands = content.get("head_start_ray_commands") or []
    found = next((match for command in commands if (match := _PORT.search(str(command)))), None)
    port = int(found.group(1) or found.group(2)) if found else RAY_PORT
    return Host(path, "on-premise", address=f"{head}:{port}")
