"""Traces of GPUs that are cut or of which a field was changed: a workload or one line, never another error."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import chakra_files
import nsys_files
import pytest
from kineto_traces import MAIN, Recorded, host_trace, told, two_ranks
from reader_samples import SIMAI

from manyscale.models.workload import WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.readers import chakra, kineto, nsys, simai

PUBLISHED = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "ai" / "hta"
CUTS = 10
ODD = (-1, -5, 0, None, "", "x", "0x10", 1.5, True, [], {}, float("nan"), 1e300, 2**31, 2**33 + 1, 2**61, 2**64, 10**40)


def of_kineto(folder: Path) -> Path:
    """Two ranks; the second one with a collective of each kind, messages, waits of all kinds, and a host trace."""
    two_ranks(folder)
    made = Recorded(2, 3)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace('"world_size": 2', '"world_size": 3'))
    names = ("allreduce", "all_to_allv", "_reduce_scatter_base", "broadcast", "send", "coalesced", "_allgather_base")
    for at, name in zip(range(0, 700, 100), names, strict=True):
        splits = {"In split size": "[8]", "Out split size": "[8]"} if name == "all_to_allv" else {}
        of = told(name, 8, "7", "[2]", **{"Group size": 1, "Rank": 0, "Dst Rank": 5}, **splits)
        made.operator("record_param_comms", at + 2, 30, **{"External id": at})
        made.add(
            "user_annotation", "nccl:send 0->1", at + 3, 20, MAIN, **{"Input Dims": [[8]], "Input type": ["float"]}
        )
        made.launch(at + 5, at + 20, 30, 20 + at % 3, "ncclDevKernel_SendRecv(x)", **of)
        wait = made.call("cudaStreamWaitEvent", at + 15, 1)
        made.add("cuda_sync", "Stream Wait Event", at + 15, 1, 7, correlation=wait, stream=7, wait_on_stream=20,
                 wait_on_cuda_event_record_corr_id=1)  # fmt: skip
        for more, call in enumerate(("cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize")):
            made.call(call, at + 60 + 6 * more, 5)
    made.write(folder / "rank2.json")
    host_trace(folder / "et_2.json", ("all_to_allv", 3, 3, [1, 2], [1, 2]))
    return folder


def of_chakra(folder: Path) -> Path:
    return chakra_files.sample(folder)


def of_nsys(folder: Path) -> Path:
    made = nsys_files.rank(folder / "a.sqlite", later=True)
    made.mark("ncclGroupStart", 200, 201)
    made.mark("ncclSend(): commHash 0xc, data_size 9, peer 1", 202, 203)
    made.mark("ncclGroupEnd", 204, 220, payload='{"a": 1}')
    made.kernel("ncclDevKernel_SendRecv(x)", 230, 240, made.call("cuLaunchKernelEx", 206, 207), 20)
    made.graph(250, 260, made.call("cudaGraphLaunch", 245, 246))
    return made.write().parent


def of_simai(folder: Path) -> Path:
    (folder / "w.txt").write_text(SIMAI)
    return folder / "w.txt"


READERS: tuple[tuple[ModuleType, Callable[[Path], Path]], ...] = (
    (kineto, of_kineto), (chakra, of_chakra), (nsys, of_nsys), (simai, of_simai),
)  # fmt: skip
all_readers = pytest.mark.parametrize(("reader", "write"), READERS, ids=lambda each: each.__name__.rsplit(".", 1)[-1])


def attempt(reader: ModuleType, path: Path) -> bool:
    """Whether it is read; what is refused is so in one line that names a file."""
    reader.can_read(path)
    try:
        reader.read(path)
    except UserError as error:
        line = str(error)
    except WorkloadError as error:  # to which the study adds the path
        line = f"{path}: {error}"
    else:
        return True
    assert "\n" not in line
    assert str(path.parent) in line
    return False


@all_readers
def test_files_that_are_cut(reader: ModuleType, write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Each file at ten places. Of JSON, SQLite and compressed files nothing is read that lacks its end."""
    path = write(tmp_path)
    for file in [path] if path.is_file() else sorted(path.rglob("*.*")):
        whole = file.read_bytes()
        for cut in range(CUTS):
            file.write_bytes(whole[: len(whole) * cut // CUTS])
            is_read = attempt(reader, path)
            assert not is_read or reader not in (kineto, nsys)
        file.write_bytes(whole)
    assert attempt(reader, path)


@all_readers
@pytest.mark.slow
def test_bytes_that_are_others(reader: ModuleType, write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Up to four of a file's, at random."""
    path, chance = write(tmp_path), random.Random(11)
    files = [path] if path.is_file() else sorted(path.rglob("*.*"))
    whole = {file: file.read_bytes() for file in files}
    for _ in range(40):
        file = chance.choice(files)
        content = bytearray(whole[file])
        for _ in range(chance.choice((1, 2, 4))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        file.write_bytes(content)
        attempt(reader, path)
        file.write_bytes(whole[file])


def change(document: dict[str, Any], chance: random.Random) -> None:
    """One field of an event, of its arguments or of the head has an odd value, is left out, or an event stands there
    twice."""
    events = document.get("traceEvents") or document["nodes"]
    event = chance.choice(events)
    where = chance.choice((event, event.get("args") or event, document, None))
    if where is None:
        events.append(json.loads(json.dumps(event)))
    elif chance.random() < 0.2:
        where.pop(chance.choice(list(where)))
    else:
        where[chance.choice([each for each in where if where[each] is not events])] = chance.choice(ODD)


@pytest.mark.slow
def test_fields_of_kinetos_that_are_odd(tmp_path: Path) -> None:
    path, chance = of_kineto(tmp_path / "job"), random.Random(5)
    files = sorted(path.iterdir())
    documents = {file: json.loads(file.read_text()) for file in files}
    for _ in range(100):
        file = chance.choice(files)
        document = json.loads(json.dumps(documents[file]))
        for _ in range(chance.choice((1, 1, 3))):
            if document.get("traceEvents") or document.get("nodes"):
                change(document, chance)
        file.write_text(json.dumps(document))
        attempt(kineto, path)
        file.write_text(json.dumps(documents[file]))


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
def test_published_traces_that_are_cut(tmp_path: Path) -> None:
    """Plain and compressed, at ten places: none is read, for none has its end."""
    small = [path for path in sorted(PUBLISHED.glob("*trace*.json.gz")) if path.stat().st_size < 5_000]
    assert len(small) > 2
    for path in small:
        for name, whole in (("a.json", gzip.decompress(path.read_bytes())), ("a.json.gz", path.read_bytes())):
            for cut in range(CUTS):
                shutil.rmtree(tmp_path / "job", ignore_errors=True)
                (tmp_path / "job").mkdir()
                (tmp_path / "job" / name).write_bytes(whole[: len(whole) * cut // CUTS])
                assert not attempt(kineto, tmp_path / "job")
