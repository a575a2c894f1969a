"""What docs/howto/on-premise.md says is done, step by step, on a head and two nodes that share nothing but code."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import cluster_nodes
import pytest
import yaml
from cluster_nodes import Node, NodeCluster

SHIPPED = Path(str(files("manyscale.cluster_configs").joinpath("host")))
PAGE = Path(__file__).parents[4] / "docs" / "howto" / "on-premise.md"
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
_STUDY = "lulesh-8"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(cluster_nodes.missing()), reason=cluster_nodes.missing()),
    pytest.mark.skipif(not Path(SSHD).exists() or not shutil.which("rsync"), reason="not installed: sshd or rsync"),
]

# A host as its owner set it up: a home of its own, an SSH server, and the key of whoever may enter.
_HOST = r"""
set -e
sed 's|^root:.*|root:x:0:0:root:/tmp/home:/bin/bash|' /etc/passwd >/run/passwd
mount --bind /run/passwd /etc/passwd
sed 's|^root:[^:]*:|root:*:|' /etc/shadow >/run/shadow  # without a password, yet not locked
mount --bind /run/shadow /etc/shadow
mkdir -p /run/sshd /tmp/home/.ssh
chmod 755 /run /run/sshd; chmod 700 /tmp/home /tmp/home/.ssh
cp "$1"/id_ed25519 "$1"/id_ed25519.pub /tmp/home/.ssh/ 2>/dev/null || true
cp "$1"/id_ed25519.pub /tmp/home/.ssh/authorized_keys
ssh-keygen -q -t ed25519 -N '' -f /run/host_key
"$2" -f /dev/null -h /run/host_key -o PermitRootLogin=yes -o UsePAM=no -o StrictModes=no -o PidFile=/run/sshd.pid \
    -o AuthorizedKeysFile=/tmp/home/.ssh/authorized_keys -E /run/sshd.log
"""


def environment_of(cluster: NodeCluster) -> str:
    """The shell lines by which a host gets the environment that holds manyscale; nodes have no way to a registry."""
    names = ("PATH", "PYTHONPATH", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "LC_ALL")
    settings = cluster._environment()
    exports = "; ".join(f"export {name}={settings[name]}" for name in names)
    ray = f"exec {sys.executable} -m ray.scripts.scripts"
    return (
        "mkdir -p ~/manyscale-env/bin && "
        f"echo '{exports}; export PATH=~/manyscale-env/bin:$PATH' >~/manyscale-env/bin/activate && "
        f"printf '#!/bin/sh\\n. ~/manyscale-env/bin/activate\\n{ray} \"$@\"\\n' >~/manyscale-env/bin/ray && "
        f"printf '#!/bin/sh\\nexec {sys.executable} -m manyscale \"$@\"\\n' >~/manyscale-env/bin/manyscale && "
        "chmod +x ~/manyscale-env/bin/*"
    )


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    folder = tmp_path_factory.mktemp("hosts")
    keys = folder / "keys"
    keys.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519"], check=True)
    with NodeCluster("ops", "10.78", folder, starts_ray=False, keep=[keys]) as cluster:
        nodes = [cluster.head, cluster.add(), cluster.add()]
        for node in nodes:
            wait_until(lambda node=node: subprocess.run(node.enter("test", "-e", "/run/ready")).returncode == 0)
            node.inside("bash", "-c", _HOST, "host", str(keys), SSHD)
        yield cluster


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def on(node: Node, line: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    """What a user's shell on a host says to a line."""
    words = ["env", "-i", "HOME=/tmp/home", "PATH=/usr/bin:/bin:/usr/sbin", "USER=root", "bash", "-c"]
    before = ". ~/manyscale-env/bin/activate; cd ~; "
    return subprocess.run(
        node.enter(*words, before + line), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
    )


def succeeded(node: Node, line: str) -> str:
    done = on(node, line)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_steps_of_the_file(hosts: NodeCluster) -> None:
    head, first, second = hosts.head, *hosts.nodes
    content = yaml.safe_load((SHIPPED / "on-premise.yaml").read_text())
    # the lines marked EDIT
    content["provider"] |= {"head_ip": head.address, "worker_ips": [first.address, second.address]}
    content["auth"]["ssh_user"] = "root"
    content["setup_commands"][0] = environment_of(hosts)
    (hosts.folder / "on-premise.yaml").write_text(yaml.safe_dump(content))
    head.inside("bash", "-c", f"HOME=/tmp/home; {environment_of(hosts)}")

    succeeded(head, "ray get-auth-token --generate >/dev/null")
    succeeded(head, f"cp {hosts.folder}/on-premise.yaml . && ray up --yes on-premise.yaml")
    wait_until(lambda: first.is_up() and second.is_up(), 120)
    for node in (head, first, second):
        assert succeeded(node, "stat -c %a ~/.ray ~/.ray/auth_token").split() == ["700", "600"]

    succeeded(head, f"manyscale run {_STUDY} --host on-premise.yaml -o out --no-report")
    check_bytes(head, "out")

    found = {node.name: opened(node) for node in (head, first)}
    at_head, at_nodes = ports_of_the_page()
    assert found[first.name] <= at_nodes
    assert found[head.name] <= at_nodes | at_head
    assert {6379, 6380, 6381} <= found[head.name]
    assert {6380, 6381} <= found[first.name]

    succeeded(first, "mv ~/.ray ~/kept")
    without = on(first, f"manyscale run {_STUDY} --address {head.address}:6379 -o none")
    succeeded(first, "mkdir ~/.ray; echo 0123456789abcdef >~/.ray/auth_token")
    of_another = on(first, f"manyscale run {_STUDY} --address {head.address}:6379 -o none")
    address = f"manyscale: {head.address}:6379: this Ray cluster "
    for done, why in ((without, "asks for a token, and there is none"), (of_another, "is another user's")):
        assert done.returncode == 2
        *before, last = done.stderr.splitlines()
        assert last.startswith(address + why)
        assert all(line.startswith("manyscale: ") for line in before), before  # how far it was
    assert on(first, "ls none").returncode == 2

    succeeded(head, "ray down --yes on-premise.yaml")
    wait_until(lambda: not head.processes("gcs_server"))
    for node in (first, second):  # where it leaves one
        succeeded(node, "ray stop")
    wait_until(lambda: not (first.is_up() or second.is_up()))


@pytest.fixture
def prepared(hosts: NodeCluster) -> Iterator[tuple[Node, Node, Node]]:
    """The hosts, each with the environment and the head's token; Ray is started, and ends with the test."""
    head, first, second = hosts.head, *hosts.nodes
    for node in (head, first, second):
        node.inside("bash", "-c", f"HOME=/tmp/home; rm -rf ~/.ray; {environment_of(hosts)}")
    succeeded(head, "ray get-auth-token --generate >/dev/null")
    for node in (first, second):
        there = f"ssh -o StrictHostKeyChecking=no {node.address}"
        succeeded(head, f"{there} mkdir -m 700 .ray && {there} 'umask 077; cat >.ray/auth_token' <~/.ray/auth_token")
    yield head, first, second
    for node in (first, second, head):
        succeeded(node, step("ray stop"))
    wait_until(lambda: not any(node.is_up() for node in (head, first, second)))


def test_steps_by_hand(prepared: tuple[Node, Node, Node]) -> None:
    head, first, second = prepared
    start(head)
    join(first, head)
    join(second, head)
    run = step("manyscale run").replace("HEAD", head.address).replace("study.yaml", _STUDY)
    succeeded(second, f"{run} -o by-hand --no-report")
    check_bytes(second, "by-hand")


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="not installed: manyscale[cluster]")
def test_a_job_from_a_machine_that_is_no_node(prepared: tuple[Node, Node, Node]) -> None:
    head, node, elsewhere = prepared
    start(head, "--dashboard-host=0.0.0.0")
    join(node, head)
    succeeded(
        elsewhere, f"manyscale submit {_STUDY} --dashboard http://{head.address}:8265 -o /tmp/home/job --no-report"
    )
    check_bytes(head, "job")


def start(head: Node, more: str = "") -> None:
    succeeded(head, f"{step('export')}; {step('ray start --head').replace('ADDRESS', head.address)} {more}")


def join(node: Node, head: Node) -> None:
    succeeded(node, f"{step('export')}; {step('ray start --address').replace('HEAD', head.address)}")


def check_bytes(node: Node, output: str) -> None:
    """Those of a run without Ray."""
    succeeded(node, f"manyscale run {_STUDY} --executor local --cache calm-{output}-cache -o calm-{output} --no-report")
    succeeded(node, f"cmp {output}/stats.json calm-{output}/stats.json")


def step(words: str) -> str:
    """The page's line that begins so, without its comment."""
    block = re.search(r"^## By hand$.*?^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block
    (line,) = (line for line in block[1].splitlines() if line.startswith(words))
    return line.partition("#")[0].strip()


def opened(node: Node) -> set[int]:
    """Ports that Ray listens at on a node, beyond the node itself."""
    lines = node.inside("ss", "-ltnpH").splitlines()
    places = [line.split()[3] for line in lines if "sshd" not in line]
    return {int(place.rpartition(":")[2]) for place in places if "127.0.0.1" not in place}


def ports_of_the_page() -> tuple[set[int], set[int]]:
    """Those of the head alone, and those of every node."""
    found: dict[str, set[int]] = {"head": set(), "every node": set()}
    for ports, where in re.findall(r"^\| ([\d, to]+) \| (head|every node) \|", PAGE.read_text(), re.MULTILINE):
        numbers = [int(number) for number in re.findall(r"\d+", ports)]
        found[where] |= set(range(numbers[0], numbers[-1] + 1)) if "to" in ports else set(numbers)
    return found["head"], found["every node"]
