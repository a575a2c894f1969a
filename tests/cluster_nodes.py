"""Nodes of a Ray cluster on this machine that share nothing: each in namespaces of its own for network, mounts,
processes, host name and shared memory, with private folders for temporary files, caches and run-time data; code and
compiled kernels are mounted read-only, as if they were installed there. Nodes hang on one bridge by a veth pair each.

Needs root, iproute2 and util-linux (``missing()``). ``NodeCluster`` cleans up whatever happens, and at the next start
what a killed one left.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import psutil

PORT: Final = 6379
MOST_CLUSTERS: Final = 64  # of one name, side by side
_HIDDEN: Final = Path("/tmp")
_MIB: Final = 2**20
_TOOLS: Final = ("ip", "unshare", "nsenter", "mount")
_SETUP: Final = r"""
set -e
name=$1 address=$2 shared_bytes=$3 temporary_bytes=$4; shift 4
mount --make-rprivate /
ip link set lo up
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs tmpfs /run
mkdir /run/below
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >/run/hosts
mount --bind /run/hosts /etc/hosts
mount --bind /dev/null /etc/resolv.conf  # no name server: what is not known is said at once
mount --rbind /tmp /run/below
mount -t tmpfs -o size="$temporary_bytes" tmpfs /tmp
chmod 1777 /tmp
while [ "$1" != -- ]; do
    case $1 in
        ro:/tmp/*) path=${1#ro:}; mkdir -p "$path"; mount --bind "/run/below/${path#/tmp/}" "$path"
                   mount -o remount,bind,ro "$path" ;;
        rw:/tmp/*) path=${1#rw:}; mkdir -p "$path"; mount --bind "/run/below/${path#/tmp/}" "$path" ;;
        hide:*) mount -t tmpfs tmpfs "${1#hide:}" ;;
    esac
    shift
done
shift
umount -l /run/below
mount -t tmpfs -o size="$shared_bytes" tmpfs /dev/shm
mkdir -p /tmp/home /tmp/cache /tmp/ray
echo "private folders are there"
exec "$@"
"""


def missing() -> str:
    """What this machine lacks for nodes of their own; empty if nothing."""
    if os.geteuid() != 0:
        return "nodes in network namespaces need root"
    tools = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if tools:
        return f"not installed: {', '.join(tools)}"
    probe = f"probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if done.returncode:
        return f"no network namespaces here: {done.stderr.strip()}"
    _ip("netns", "delete", probe)
    return "" if _cpu_groups() is not None else "no writable control group for CPU time"


class Node:
    """One node: an address, the processes in its namespaces, and what can befall it."""

    def __init__(self, cluster: NodeCluster, number: int, process: subprocess.Popen[bytes]) -> None:
        self.name, self.address = cluster.name_of(number), f"{cluster.subnet}.{number}"
        self._link = cluster.link_of(number)
        self._log = cluster.folder / f"{self.name}.log"
        self._process = process
        self._group: Path | None = None
        self.is_cut = False

    # What runs there

    def processes(self, *names: str) -> list[psutil.Process]:
        """Processes of this node in order of their numbers, or those whose command begins with one of the ``names``
        (``raylet``, ``ray::Shard``)."""
        done = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        found = []
        for number in sorted(map(int, done.stdout.split())):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(number)
                if process.status() != psutil.STATUS_ZOMBIE and (not names or _command(process).startswith(names)):
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """The workers of a run on this node."""
        return self.processes("ray::Shard")

    def is_up(self) -> bool:
        """Whether the node runs, raylet and all; it may be cut off, stopped or slow."""
        return self._process.poll() is None and bool(self.processes("raylet"))

    def wait_until_joined(self) -> None:
        """Until Ray says that it runs there; raises RuntimeError with what it printed."""
        self.wait_for("Ray runtime started")

    def wait_for(self, words: str, seconds: float = 120) -> None:
        """Until the node has printed this; raises RuntimeError with what it printed."""
        end = time.monotonic() + seconds
        while words not in (printed := self._log.read_text(errors="replace")):
            if self.has_ended() or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start: {printed}")
            time.sleep(0.05)

    def has_ended(self) -> bool:
        """Whether nothing of the node runs any more."""
        return self._process.poll() is not None

    @property
    def first_process(self) -> int:
        """The number of the node's first process, by whose namespaces others enter the node."""
        return psutil.Process(self._process.pid).children()[0].pid

    # What can befall it

    def signal(self, number: signal.Signals, *names: str) -> int:
        """Send a signal to processes of the node (all without ``names``); returns to how many."""
        count = 0
        for process in self.processes(*names):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                count += 1
        return count

    def kill(self) -> None:
        """As a power cut does: no process of it says good-bye, and no packet comes any more."""
        self.cut()
        with suppress(psutil.NoSuchProcess, IndexError):
            psutil.Process(self.first_process).kill()  # the kernel ends all others with it
        self._process.wait()

    def cut(self) -> None:
        """Pull the cable."""
        self.is_cut = True
        _ip("link", "set", self._link, "down")

    def restore(self) -> None:
        """Plug the cable in again."""
        self.is_cut = False
        _ip("link", "set", self._link, "up")

    def slow_down(self, share: float) -> None:
        """Leave all its processes together this share of one core; 0 takes the limit away."""
        groups = _cpu_groups()
        assert groups is not None
        if self._group is None:
            self._group = groups / self.name
            self._group.mkdir(exist_ok=True)
        quota = int(100_000 * share) if share else -1
        if (self._group / "cpu.cfs_quota_us").exists():
            (self._group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self._group / "cpu.max").write_text(f"{quota if share else 'max'} 100000")
        for process in self.processes():
            with suppress(OSError):  # it ended meanwhile
                (self._group / "cgroup.procs").write_text(str(process.pid))

    def fill_disk(self) -> None:
        """Leave nothing free in the folder of temporary files."""
        self.inside("sh", "-c", "cat /dev/zero >/tmp/full 2>/dev/null || true")

    def free_disk(self) -> None:
        """Take back what ``fill_disk`` did."""
        self.inside("rm", "-f", "/tmp/full")

    def inside(self, *command: str) -> str:
        """What a command prints that runs in the node's namespaces."""
        return subprocess.run(self.enter(*command), capture_output=True, text=True, check=True).stdout

    def enter(self, *command: str) -> list[str]:
        """The command that runs another one in the node's namespaces."""
        spaces = ("--net", "--mount", "--pid", "--uts", "--ipc")
        return ["nsenter", "--target", str(self.first_process), *spaces, "--", *command]

    def close(self) -> None:
        """End it, and leave nothing of it."""
        self._process.kill()  # and, by --kill-child, the node's first process
        self._process.wait()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(10)
        _ip("netns", "delete", self.name)
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True)  # may have gone with the namespace
        if self._group is not None:
            _remove_group(self._group)


class NodeCluster:
    """A head without CPUs and any number of nodes with some, on a bridge of their own. ``name`` (at most 6 letters)
    begins all names on this machine, ``network`` is the first two numbers of the addresses. Commands on the head see
    ``folder``; nodes see nothing but code (``keep``: more folders that they see). Without ``starts_ray`` nothing
    runs on head and nodes."""

    def __init__(
        self, name: str, network: str, folder: Path, keep: Sequence[Path] = (), *, starts_ray: bool = True
    ) -> None:
        self._starts_ray = starts_ray
        self._name, self._network, self.folder = name, network, folder
        self._keep = keep
        self._lock: IO[str] | None = None
        self.token = secrets.token_hex(32)
        self.nodes: list[Node] = []  # without the head
        self._count = 0

    def __enter__(self) -> NodeCluster:
        self._lock, self._place = _free_place(self._name)
        self.subnet = f"{self._network}.{self._place}"
        self._bridge = f"{self._name}{self._place}"
        self._remove_leftovers()
        _ip("link", "add", self._bridge, "type", "bridge")
        try:
            _ip("link", "set", self._bridge, "up")
            self.head = self._start("--head", f"--port={PORT}", "--include-dashboard=false", cpus=0, sees=self.folder)
            if self._starts_ray:
                self._wait_for_head()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        head = [self.head] if hasattr(self, "head") else []
        for node in [*self.nodes, *head]:
            node.close()
        self._remove_leftovers()
        assert self._lock is not None
        self._lock.close()

    def name_of(self, number: int) -> str:
        """The name of a node, here and there."""
        return f"{self._bridge}-{number}"

    def link_of(self, number: int) -> str:
        """This machine's end of a node's veth pair."""
        return f"{self._bridge}v{number}"

    @property
    def address(self) -> str:
        """Where the cluster is joined."""
        return f"{self.head.address}:{PORT}"

    def add(
        self,
        cpus: int = 1,
        environment: Mapping[str, str] | None = None,
        *,
        python_path: Sequence[Path] = (),
        temporary_bytes: int = 512 * _MIB,
    ) -> Node:
        """Start another node; it joins when it is ready. ``python_path``: folders before all others there."""
        node = self._start(
            f"--address={self.address}",
            cpus=cpus,
            environment=environment or {},
            python_path=python_path,
            temporary_bytes=temporary_bytes,
        )
        self.nodes.append(node)
        return node

    def remove(self, node: Node) -> None:
        """End a node and forget it."""
        self.nodes.remove(node)
        node.close()

    def command(self, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """The command that runs ``arguments`` on the head, as a user there would."""
        settings = self._environment() | dict(environment or {})
        words = [f"{name}={value}" for name, value in settings.items()]
        return self.head.enter("env", "-i", "-C", str(self.folder), *words, *arguments)

    # How it is built

    def _environment(self, python_path: Sequence[Path] = ()) -> dict[str, str]:
        from manyscale.models.kernels import compiled

        paths = [*map(str, python_path), *_python_path()]
        return {
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            ),
            "PYTHONPATH": os.pathsep.join(paths),
            "HOME": "/tmp/home",
            "XDG_CACHE_HOME": "/tmp/cache",
            "NUMBA_CACHE_DIR": str(compiled.folder().parent),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # a node has its cores to itself; Ray's 15 would starve beside other tests here
            "LC_ALL": "C.UTF-8",
        }

    def _start(
        self,
        *options: str,
        cpus: int,
        environment: Mapping[str, str] | None = None,
        python_path: Sequence[Path] = (),
        sees: Path | None = None,
        temporary_bytes: int = 512 * _MIB,
    ) -> Node:
        self._count += 1
        number = self._count
        name, link = self.name_of(number), self.link_of(number)
        address = f"{self.subnet}.{number}"
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "route", "add", "default", "dev", "eth0")  # Ray looks by which address it would leave
        settings = self._environment(python_path) | dict(environment or {})
        mounts = [f"ro:{path}" for path in [*_code(), *map(str, self._keep), *map(str, python_path)]]
        if sees is not None:
            mounts.append(f"rw:{sees}")
        elif not self.folder.is_relative_to(_HIDDEN):
            mounts.append(f"hide:{self.folder}")
        spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
        setup = ["sh", "-c", _SETUP, "setup", name, address, str(192 * _MIB), str(temporary_bytes)]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        start += [f"--num-cpus={cpus}", f"--object-store-memory={100 * _MIB}"]
        start += [f"--node-ip-address={address}", *_PORTS, *options]
        if not self._starts_ray:
            start = ["sh", "-c", "touch /run/ready; while :; do sleep 1000 & wait; done"]  # it reaps what ends there
        elif sees is not None:  # users' commands go on where the head's Ray has ended
            start = ["sh", "-c", '"$@"; exec sleep infinity', "head", *start]
        words = ["env", "-i", *(f"{key}={value}" for key, value in settings.items())]
        log = (self.folder / f"{name}.log").open("wb")
        command = ["ip", "netns", "exec", name, *words, "unshare", *spaces, *setup, *mounts, "--", *start]
        with log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        node = Node(self, number, process)
        node.wait_for("private folders are there")  # before that, what is done inside would be done here
        return node

    def _wait_for_head(self, seconds: float = 60) -> None:
        """Until its port answers; raises RuntimeError with what it printed."""
        end = time.monotonic() + seconds
        probe = f"import socket; socket.create_connection(('{self.head.address}', {PORT}), 2)"
        while time.monotonic() < end and self.head._process.poll() is None:
            words = ["ip", "netns", "exec", self.head.name, sys.executable, "-S", "-c", probe]
            if subprocess.run(words, capture_output=True).returncode == 0:
                return
            time.sleep(0.2)
        raise RuntimeError((self.folder / f"{self.head.name}.log").read_text())

    def _remove_leftovers(self) -> None:
        """What a cluster of this name and place left that was killed."""
        for name in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split():
            if name.startswith(f"{self._bridge}-"):
                pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
                for number in map(int, pids.split()):
                    with suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)
                _ip("netns", "delete", name)
        for link in Path("/sys/class/net").iterdir():
            if link.name == self._bridge or link.name.startswith(f"{self._bridge}v"):
                subprocess.run(["ip", "link", "delete", link.name], capture_output=True)
        groups = _cpu_groups()
        for group in groups.glob(f"{self._bridge}-*") if groups is not None else ():
            _remove_group(group)


_PORTS: Final = (
    "--node-manager-port=6380",
    "--object-manager-port=6381",
    "--runtime-env-agent-port=6382",
    "--dashboard-agent-listen-port=6383",
    "--dashboard-agent-grpc-port=6384",
    "--metrics-export-port=6385",
    "--min-worker-port=10002",
    "--max-worker-port=10999",
)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {shlex.join(words)}: {done.stderr.strip()}")


def _free_place(name: str) -> tuple[IO[str], int]:
    """A place no living cluster of the name has; its lock goes with this process, however that ends."""
    for place in range(MOST_CLUSTERS):
        lock = Path(f"/run/lock/{name}-{place}.lock").open("w")  # noqa: SIM115 (its caller closes it)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return lock, place
    raise RuntimeError(f"{MOST_CLUSTERS} clusters named {name} run already")


def _python_path() -> list[str]:
    """Where this process finds modules that are not installed."""
    own = Path(sys.prefix)
    return [
        path
        for path in dict.fromkeys(
            os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(":") if entry
        )
        if not Path(path).is_relative_to(own)
    ]


def _code() -> list[str]:
    """Folders that hold code and compiled kernels, none inside another."""
    import manyscale
    from manyscale.models.kernels import compiled

    repository = Path(__file__).resolve().parents[1]
    package = Path(manyscale.__file__)
    places = [
        sys.prefix,
        repository,
        package.parent,
        package.resolve().parent,
        compiled.folder().parent,
        *_python_path(),
    ]
    paths = sorted({Path(place) for place in places})
    return [str(path) for path in paths if not any(path != other and path.is_relative_to(other) for other in paths)]


def _command(process: psutil.Process) -> str:
    """A process's command by its last name: ``raylet``, ``ray::Shard.run``, ``python3``."""
    with suppress(psutil.Error):
        words = process.cmdline()
        return (words[0] if words[0].startswith("ray::") else Path(words[0]).name) if words else ""
    return ""


def _cpu_groups() -> Path | None:
    """The folder of control groups by which CPU time can be limited, if this machine lets us make some."""
    root = Path("/sys/fs/cgroup")
    version_2 = root / "cgroup.subtree_control"
    for place in (root / "cpu", root / "cpu,cpuacct", root):
        limits = (place / "cpu.cfs_quota_us", place / "cpu.shares")
        if any(limit.exists() for limit in limits) or (place == root and _hands_down_cpu(version_2)):
            return place if os.access(place, os.W_OK) else None
    return None


def _hands_down_cpu(control: Path) -> bool:
    return control.exists() and "cpu" in control.read_text().split()


def _remove_group(group: Path) -> None:
    """Once its last process is gone."""
    end = time.monotonic() + 5
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
