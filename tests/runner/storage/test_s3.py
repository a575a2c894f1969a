"""Caches and run directories on a real server of S3's protocol: equal to local ones byte by byte, from any machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import KEYS  # type: ignore[import-not-found]
from refusing import nobody, refusing, silent

from manyscale.runner.storage import fetching, lease, publishing
from manyscale.runner.storage import remote as objects
from manyscale.runner.storage.address import located
from manyscale.runner.storage.remote import remote

pytestmark = pytest.mark.slow
OF_THE_RUN = {
    "manifest.json",
    "simulator.json",
    "status.json",
    "units.jsonl",
    "units.parquet",
    "files.json",
    "points.jsonl",
}


def figures(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in OF_THE_RUN
    }


def names(address: str) -> list[str]:
    return [entry.name for entry in remote(address).entries()]


def fetched(address: str) -> dict[str, bytes]:
    return {name: remote(address).read(name) or b"" for name in names(address) if Path(name).name not in OF_THE_RUN}


def no_keys(text: str | bytes) -> bool:
    found = text if isinstance(text, bytes) else text.encode()
    return not any(key.encode() in found for key in KEYS)


def test_a_run_on_a_bucket_is_the_local_one(bucket: str, on: Callable, tmp_path: Path) -> None:
    assert on("calm", "run", "lulesh-8", "-o", "local").status == 0
    done = on("one", "run", "lulesh-8", "--cache", f"{bucket}/cache", "-o", f"{bucket}/runs/a")
    assert done.status == 0, done.err
    assert f"results: {bucket}/runs/a\n" in done.out
    assert "9 simulated" in done.out
    local = figures(tmp_path / "local")
    assert fetched(f"{bucket}/runs/a") == local
    assert len(local) > 10
    again = on("two", "run", "lulesh-8", "--cache", f"{bucket}/cache", "-o", "of-two")
    assert "9 reused" in again.out
    assert figures(tmp_path / "of-two") == local
    everything = [content for name in names(bucket) if (content := remote(bucket).read(name)) is not None]
    assert all(map(no_keys, [*everything, done.out, done.err]))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("s3")]


def test_finished_runs_are_read_from_another_machine(bucket: str, on: Callable, tmp_path: Path) -> None:
    run = f"{bucket}/runs/a"
    assert on("one", "run", "lulesh-8", "-o", run, "--no-report").status == 0
    assert on("two", "status", run).out == f"{run}: complete; 9 units finished (9 simulated, 0 reused, 0 failed)\n"
    assert f"A: {run}, 8 ranks\nB: {run}, 8 ranks" in on("three", "compare", run, run).out
    assert f"report: {run}/report.html" in on("four", "report", run).out
    assert "report.html" in names(run)
    remote(run).remove("trace.prv")
    assert f", {run}/trace.prv," in on("five", "report", run, "--trace", "paraver").out
    assert "trace.prv" in names(run)
    assert on("five", "status", f"{bucket}/runs/none").err.startswith(f"manyscale: {bucket}/runs/none: does not exist")
    taken = on("six", "run", "lulesh-8", "-o", run)
    assert taken.status == 2
    assert taken.err.startswith(f"manyscale: {run}: is not empty")


def test_traces_are_read_from_a_bucket(bucket: str, on: Callable, tmp_path: Path, write_trace: Callable) -> None:
    folder = write_trace({0: ["init", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]})
    for path in folder.iterdir():
        remote(bucket).put(f"traces/small/{path.name}", path)
    shown = on("one", "show", f"{bucket}/traces/small", "-o", "shown")
    assert shown.status == 0, shown.err
    converted = on("one", "convert", f"{bucket}/traces/small", "-o", f"{bucket}/converted")
    assert converted.status == 0, converted.err
    assert on("two", "show", f"{bucket}/converted", "-o", "again").status == 0
    done = on("two", "run", "--workload", f"{bucket}/traces/small", "--target", "crossbar256", "-o", "run")
    assert done.status == 0, done.err
    resolved = (tmp_path / "run" / "resolved.yaml").read_text()
    assert f"path: {bucket}/traces/small" in resolved


def test_a_sweep_that_was_killed_goes_on_elsewhere(
    bucket: str, on: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is killed when some points are there; another machine takes what the first had published, when it has
    waited for a sign of the first."""
    monkeypatch.setattr(lease, "OLD_SECONDS", 1.5)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.2)
    study = tmp_path / "study.yaml"
    study.write_text(
        "workload: {path: lulesh-8}\ntarget: marenostrum3\nsweep: {cpu_ratio: [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]}\n"
    )
    assert on("calm", "run", study, "-o", "local", "--no-report").status == 0
    run = f"{bucket}/runs/sweep"
    code = (
        "import os, signal, sys; from manyscale.runner.storage import publishing; publishing.SECONDS_BETWEEN = 0.02;"
        "put = publishing.publish_point; seen = []\n"
        "def publish(folder, claim):\n"
        "    put(folder, claim); seen.append(folder)\n"
        "    if len(seen) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "publishing.publish_point = publish\n"
        "from manyscale.runner.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "run", str(study), "-o", run, "--no-report", "--executor", "local"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "one")}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed
    before = names(run)
    assert "sweep.parquet" not in before
    assert "files.json" not in before
    assert json.loads(remote(run).read("manifest.json") or b"")["status"] == "running"
    assert "running" in on("two", "status", run).out
    resumed = on("three", "run", study, "-o", run, "--resume", "--no-report")
    assert resumed.status == 0, resumed.err
    assert fetched(run) == figures(tmp_path / "local")
    assert "8 sweep points written" in on("four", "status", run).out
    assert not [name for name in names(run) if ".parts/" in name]


def test_a_damaged_file_of_a_run_is_told(bucket: str, on: Callable) -> None:
    run = f"{bucket}/runs/a"
    assert on("one", "run", "lulesh-8", "-o", run, "--no-report").status == 0
    content = bytearray(remote(run).read("timeline/ranks.parquet") or b"")
    content[len(content) // 2] ^= 1
    remote(run).put("timeline/ranks.parquet", bytes(content))
    refused = on("two", "compare", run, run)
    assert refused.status == 2
    first, last = refused.err.splitlines()[0], refused.err.splitlines()[-1]
    assert first == (f"manyscale: {run}/timeline/ranks.parquet: is damaged (its checksum differs) and is left out")
    assert last.startswith(f"manyscale: {run}: is damaged")
    assert on("three", "run", "lulesh-8", "-o", run, "--no-report", "--resume").status == 0
    assert on("four", "compare", run, run).status == 0


def test_a_refused_run_leaves_nothing(bucket: str, on: Callable, write_trace: Callable) -> None:
    write_trace({0: ["init", "recv 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]})
    refused = on("one", "run", "--workload", "trace", "--target", "crossbar256", "-o", f"{bucket}/runs/a")
    assert refused.status == 2, refused
    assert names(bucket) == []


@pytest.mark.parametrize(
    ("status", "code", "needle"),
    [
        (403, "AccessDenied", "permission is denied; let its owner allow"),
        (404, "NoSuchBucket", "there is no such bucket; make it"),
        (403, "RequestTimeTooSkewed", "the clock of this machine differs too much"),
        (301, "PermanentRedirect", "the bucket is in another region; set AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region; set AWS_REGION"),
        (403, "InvalidAccessKeyId", "does not take these keys"),
        (403, "SignatureDoesNotMatch", "does not take these keys"),
        (400, "ExpiredToken", "keys may have expired"),
        (507, "QuotaExceeded", "it is full"),
        (418, "Teapot", "the storage refused"),
    ],
)
def test_what_a_storage_refuses_is_one_line(
    status: int, code: str, needle: str, bucket: str, on: Callable, refused: Callable, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(objects, "ATTEMPTS", 0)
    with refusing(status, code) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        done = on("one", "run", "lulesh-8", "--cache", "s3://b/region/timeout", "-o", "run")
        refused(done, "s3://b/region/timeout", needle)
        assert no_keys(done.err)
        assert not (tmp_path / "run").exists()
        refused(on("one", "show", "lulesh-8", "-o", "s3://b/region/timeout"), "s3://b/region/timeout", needle)
        if status != 404:
            refused(on("one", "status", "s3://b/region/timeout"), needle)


def test_without_keys_that_is_said(bucket: str, on: Callable, refused: Callable, monkeypatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with refusing(403, "AccessDenied") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        refused(on("one", "run", "lulesh-8", "-o", "s3://b/p"), "there are no keys in the environment or ~/.aws")


def test_nothing_that_answers_is_waited_for_not_long(
    bucket: str, on: Callable, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(objects, "ATTEMPTS", 0)
    for server in (silent(), nobody()):
        if isinstance(server, str):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server)
            refused(on("one", "run", "lulesh-8", "-o", "s3://b/p"), "nothing answers there")
            continue
        with server as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)
            refused(on("one", "run", "lulesh-8", "-o", "s3://b/p"), "nothing answers there")


def test_commands_that_write_folders_alone_say_so(bucket: str, on: Callable, refused: Callable) -> None:
    refused(on("one", "trace", "-o", f"{bucket}/t", "--", "true"), "-o", "name a folder of this machine")
    assert names(bucket) == []


def test_a_run_is_read_while_it_is_written(bucket: str, on: Callable, monkeypatch, tmp_path: Path) -> None:
    """On the same machine the copy itself is read; elsewhere what has been published."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    monkeypatch.setattr(publishing, "SECONDS_BETWEEN", 0.01)
    copy = located(f"{bucket}/run")
    copy.mkdir(parents=True)
    (copy / "manifest.json").write_text("{}")
    with publishing.published(copy), (copy / "units.jsonl").open("a", buffering=1) as journal:
        for number in range(3):
            journal.write(f'{{"line": {number}}}\n')
            while not any(f"000000{number}" in name or f"-00000{number}" in name for name in names(f"{bucket}/run")):
                pass
        journal.write('{"line": cut')
        journal.flush()
        fetching.fetch(copy, again=True)
        assert (copy / "units.jsonl").read_text().endswith("cut"), "it is left as it is"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
        other = located(f"{bucket}/run")
        fetching.fetch(other, again=True)
        assert (other / "units.jsonl").read_text() == '{"line": 0}\n{"line": 1}\n{"line": 2}\n'
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))


def test_a_second_machine_does_not_write_the_same_run(
    bucket: str, on: Callable, refused: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Times of objects are whole seconds there."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.3)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.5)
    command = ["run", "lulesh-8", "-o", f"{bucket}/run", "--no-report"]
    assert on("one", *command).status == 0
    with publishing.published(located(f"{bucket}/run")):
        refused(on("two", *command, "--resume"), f"{bucket}/run: another process writes there (", "wait until it has")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    assert not remote(f"{bucket}/run").hidden(lease.CLAIM)
    assert on("two", *command, "--resume").status == 0


def test_workers_that_share_no_folder_use_the_bucket_directly(bucket: str, on: Callable, tmp_path: Path) -> None:
    """A Ray node whose cache directory is another one: results and points that it makes do not travel through the
    driver, whose copy has none of them."""
    pytest.importorskip("ray")
    study = tmp_path / "study.yaml"
    study.write_text("workload: {path: lulesh-8}\ntarget: marenostrum3\nsweep: {cpu_ratio: [1, 1.1, 1.2, 1.3]}\n")
    assert on("calm", "run", study, "-o", "local", "--no-report").status == 0
    temporary = Path(tempfile.mkdtemp(prefix="ray-storage-", dir="/tmp"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "node"), "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=2", "--include-dashboard=false"]
    ray += ["--object-store-memory=100000000", f"--temp-dir={temporary}", "--head", f"--port={port}"]
    node = subprocess.Popen(ray, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_for(port)
        run = f"{bucket}/runs/sweep"
        command = [sys.executable, "-m", "manyscale", "run", str(study), "-o", run, "--cache", f"{bucket}/cache"]
        command += ["--no-report", "--address", f"127.0.0.1:{port}", "--workers", "2"]
        driver = {**environment, "XDG_CACHE_HOME": str(tmp_path / "driver")}
        done = subprocess.run(command, env=driver, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert fetched(run) == figures(tmp_path / "local")
        copies = tmp_path / "driver" / "manyscale" / "remote"
        assert not list(copies.rglob("points/*/stats.json")), "the driver wrote none"
        assert len(list((tmp_path / "node" / "manyscale" / "remote").rglob("points/*/stats.json"))) == 4
        assert [name for name in names(f"{bucket}/cache") if name.startswith("units/")]
        assert not list((copies / quote(f"{bucket}/cache", safe="") / "units").rglob("*.arrow"))
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        shutil.rmtree(temporary, ignore_errors=True)


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            threading.Event().wait(0.1)
    raise AssertionError("the node did not start")
