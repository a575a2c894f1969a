"""A small trace in each format that is read, by the reader's name."""

from __future__ import annotations

import json
import lzma
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import chakra_files
import cuda_records
import kineto_traces
import nsys_files
import numpy as np

from manyscale.runner import shipped
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.raw_trace import files as raw_files
from manyscale.runner.readers.raw_trace.header import FORMAT, HEADER, VERSION
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES
from manyscale.runner.report.traces import simgrid_ti as simgrid_writer
from manyscale.testing.workloads import known

DATA = Path(__file__).parent / "data"
CALLGRIND = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir
fn=(1) main
0 4000
cfn=(2) work
calls=1 0
0 9000
fn=(2)
0 9000
"""
NSIGHT = """\
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum",\
"launch__registers_per_thread","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sm__cycles_elapsed.max","smsp__inst_executed.sum","smsp__thread_inst_executed.sum"
"","","","","","","","","","usecond","register/thread","sector","cycle","inst","inst"
"0","5","add(int *)","1","7","(256, 1, 1)","(1024, 2, 1)","0","8.0","12.5","32","4,096","15,000","1,234,567","39,000"
"1","5","scale","1","7","(128, 1, 1)","(32, 1, 1)","0","8.0","4","20","64","5,100","1,000","32,000"
"""

SIMAI = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 checkpoints: 0 \
checkpoint_initiates: 0
2
layer1 -1 1000 ALLREDUCE 4096 900 NONE 0 800 NONE 0 1
layer2 -1 1000 NONE 0 900 NONE 0 800 ALLREDUCE 65536 1
"""


def kept(name: str) -> Callable[[Path], Path]:
    """A trace of the repository, without its compression by xz."""

    def made(folder: Path) -> Path:
        source = DATA / name
        if source.suffix != ".xz":
            return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, folder / source.name))
        path = folder / source.stem
        path.write_bytes(lzma.decompress(source.read_bytes()))
        return path

    return made


def text(name: str, content: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return made


def workload(folder: Path) -> Path:
    workload_folder.write(known()[1].workload, folder / "halo")
    return folder / "halo"


def simgrid(folder: Path) -> Path:
    (folder / "halo").mkdir()
    simgrid_writer.write_trace(known()[1].workload, folder / "halo")
    return folder / "halo"


def launches(folder: Path) -> Path:
    """Two of the launches of the shipped example."""
    shutil.copytree(shipped.folder() / "bfs-16", folder / "bfs")
    (folder / "bfs" / "kernelslist.g").write_text("kernel-1.traceg.xz\nkernel-2.traceg.xz\n")
    for path in (folder / "bfs").glob("kernel-*"):
        if path.name not in ("kernel-1.traceg.xz", "kernel-2.traceg.xz"):
            path.unlink()
    return folder / "bfs"


def raw(folder: Path) -> Path:
    """Two processes, a message between them."""
    path = folder / "raw"
    path.mkdir()
    head = {"format": FORMAT, "version": VERSION, "name": "made"}
    (path / HEADER).write_text(json.dumps(head))
    for rank, call in enumerate(("MPI_Send", "MPI_Recv")):
        calls = np.zeros(3, raw_files.OPERATION)
        calls["call"] = [NAMES.index(name) for name in ("MPI_Init", call, "MPI_Finalize")]
        for name, value in (("peer", -2), ("source", -2), ("request", -1), ("region", -1), ("cpu_ns", 7)):
            calls[name] = value
        calls["peer"][1], calls["bytes" if rank == 0 else "receive_bytes"][1] = 1 - rank, 8
        calls["start_ns"], calls["end_ns"] = [0, 100, 200], [5, 150, 205]
        definitions = [
            {"trace": raw_files.VERSION, "host": "h", "clock_offset_ns": 0, "operation_bytes": calls.itemsize}
            | {"event_bytes": raw_files.EVENT.itemsize},
            {"rank": rank, "size": 2, "library": "MPI"},
            {"calls": list(NAMES)},
            {"end": True, "rest_cpu_ns": 9, "end_ns": 1000},
        ]
        streams = {
            raw_files.DEFINITIONS: "".join(json.dumps(each) + "\n" for each in definitions).encode(),
            raw_files.OPERATIONS: calls.tobytes(),
        }
        chunks = [
            struct.pack("<IHHQQ", 0x4B43534D, stream, 0, len(content), len(content)) + content
            for stream, content in streams.items()
        ]
        (path / f"{rank}.trace").write_bytes(b"".join(chunks))
    return path


def qemu(folder: Path) -> Path:
    """One block of a load and an addition, executed twice."""

    def chunk(kind: int, content: bytes) -> bytes:
        return struct.pack("<IHHQQ", 0x4B51534D, kind, 0, len(content), len(content)) + content

    code = (bytes.fromhex("488b07"), bytes.fromhex("4801c8"))  # mov rax, [rdi]; add rax, rcx
    block = struct.pack("<QII", 0x100, 2, 6) + bytes(map(len, code)) + b"".join(code)
    runs, access = 1 << 63, 0x2000 | 3 << 48
    end = {"end": True, "program": "", "code": 0, "entries": -1, "lost": 0, "other_threads": 0, "stopped": ""}
    words = np.array([runs, access, runs, 8 | 3 << 48], np.uint64).tobytes()
    content = b"MSQEMU1\0" + chunk(1, block) + chunk(2, words) + chunk(3, json.dumps(end).encode() + b"\n")
    (folder / "x.qemu").write_bytes(content)
    return folder / "x.qemu"


def dumpi(folder: Path) -> Path:
    """One of the folder's two traces."""
    path = kept("dumpi")(folder)
    (path / "every_function.bin").unlink()
    return path


def stacks(folder: Path) -> Path:
    """Two ranks as py-spy saw them."""
    for rank in (0, 1):
        (folder / "recorded" / f"rank-{rank}").mkdir(parents=True)
        shutil.copy(
            DATA / "stacks" / "subprocess.speedscope.json", folder / "recorded" / f"rank-{rank}" / "speedscope.json"
        )
    head = {"format": "manyscale call stacks", "version": 1, "source": "py-spy", "name": "made", "rules": {}}
    (folder / "recorded" / "stacks.json").write_text(json.dumps(head))
    return folder / "recorded"


SAMPLES: dict[str, Callable[[Path], Path]] = {
    "workload": workload,
    "accelsim": launches,
    "cuda": cuda_records.write,
    "simgrid-ti": simgrid,
    "chakra": chakra_files.sample,
    "nsys": nsys_files.sample,
    "simai": text("w.txt", SIMAI),
    "goal": kept("goal/random_3.goal"),
    "dimemas": kept("dimemas/half-duplex-pair.dim.gz"),
    "paraver": kept("paraver/test1.prv"),
    "dumpi": dumpi,
    "otf2": kept("otf2/pipit-ping-pong"),
    "kineto": kineto_traces.two_ranks,
    "raw-trace": raw,
    "qemu-trace": qemu,
    "lackey": kept("detail/bs16_O1.lk.xz"),
    "drmemtrace": kept("drmemtrace/drmemtrace.allasm_x86_64.trace.zip"),
    "sancov-npz": kept("detail/bs16_clangO1_sancov.npz"),
    "omt": kept("detail/cholesky-4.omt.xz"),
    "simpoint-bb": kept("simpoint/lengths.bb.xz"),
    "stacks": stacks,
    "unit-stacks": kept("stacks/bzip2-even.stk.xz"),
    "callgrind": text("callgrind.out", CALLGRIND),
    "jfr": kept("stacks/wc2_jfr_stacks.tsv.gz"),
    "speedscope": kept("stacks/subprocess.speedscope.json"),
    "perf-script": kept("stacks/threads.perf.txt.gz"),
    "folded": kept("stacks/py-spy.folded"),
    "launch-counters": text("run.csv", NSIGHT),
}
