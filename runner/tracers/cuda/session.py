"""``--level gpu``: runs a CUDA program with manyscale's runtime in place of NVIDIA's, and reads what it recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from manyscale.models.workload import Workload
from manyscale.runner.errors import TerminationError, UserError
from manyscale.runner.readers import cuda, workload_folder
from manyscale.runner.readers.cuda.layout import OF_RANKS, PROCESS
from manyscale.runner.readers.cuda.reader import Collected
from manyscale.runner.readers.workload_folder.layout import RAW
from manyscale.runner.tracers import build, launch
from manyscale.runner.tracers.cuda import device_code
from manyscale.runner.tracers.cuda.arriving import ArrivingCode
from manyscale.runner.tracers.cuda.collector import BlockRange, Collector, Wanted
from manyscale.runner.tracers.cuda.compiler import Toolkit, toolkit
from manyscale.runner.tracers.cuda.device import Device
from manyscale.runner.tracers.cuda.library import nccl_library, runtime_library
from manyscale.runner.tracers.cuda.module import ModuleFiles
from manyscale.runner.tracers.cuda.sass.listing import functions
from manyscale.runner.tracers.cuda.two_runs import Choose, first_run, hidden_streams

COUNTING: Final = "counting"  # those of a first run, until the second begins
PROFILER: Final = "profiler"  # a region, from cudaProfilerStart to cudaProfilerStop


def find_program(command: Sequence[str], library: str | None = None) -> tuple[launch.Program, Toolkit]:
    """The program of a command, with MPI ``library`` (default: found out), and the toolkit that it was built with.
    Raises UserError where it cannot be traced."""
    program = launch.find_program(command, library)
    if program.path is None:  # a script, say: what it starts brings its code when it runs
        return replace(program, library=program.library if library or launch.launches_mpi(command) else None), toolkit()
    linked = device_code.linked(program.path)
    return program, toolkit(device_code.check(program.path, linked))


@dataclass(frozen=True)
class Recording:
    """What is recorded. ``regions``: names of NVTX ranges, or profiler, outside of which launches are left out;
    ``launches``: numbers of those whose instructions are recorded, None: all; ``choose``: the program runs twice, and
    this says which by what the first run counts; ``blocks`` of each launch, none: all; ``max_bytes`` on disk.
    ``keep_raw``: the tracer's files stay; ``keeps_lanes``, ``checks_memory``, ``workers``: see ``Device.write``.
    ``announces``: a line on standard error says what is run."""

    regions: Sequence[str] = ()
    launches: Collection[int] | None = None
    choose: Choose | None = None
    blocks: Sequence[BlockRange] = ()
    max_bytes: int | None = None
    keep_raw: bool = False
    keeps_lanes: bool = False
    checks_memory: bool = False
    workers: int = 1
    announces: bool = True

    @property
    def in_files(self) -> bool:
        """Whether the tracer leaves files."""
        return self.keep_raw or self.keeps_lanes


def trace(
    command: Sequence[str],
    program: launch.Program,
    kit: Toolkit,
    device: Device,
    directory: Path,
    cache: Path,
    recording: Recording,
) -> tuple[Workload, int]:
    """Run, read and write into ``directory``, an existing folder that is taken away where nothing was recorded. The
    workload, and the program's exit status, negative for a signal. Raises UserError."""
    raw = directory / RAW
    try:
        workload, status = _recorded(command, program, kit, device, raw, cache, recording)
        workload = replace(workload, name=directory.resolve().name)
    except UserError:
        shutil.rmtree(directory)
        raise
    workload_folder.write(workload, directory, links=not recording.in_files)
    if not recording.in_files:
        shutil.rmtree(raw)
        workload = workload_folder.read(directory, verify=False)
    return workload, status


def _recorded(
    command: Sequence[str],
    program: launch.Program,
    kit: Toolkit,
    device: Device,
    raw: Path,
    cache: Path,
    recording: Recording,
) -> tuple[Workload, int]:
    """Run the program once."""
    if recording.blocks and recording.in_files:
        raise UserError("--blocks: no files can be kept; leave out --keep-raw and --keep-addresses")
    run = partial(_run, command, program, kit, device, cache, recording)
    if recording.choose is None:
        status, found = run(raw, Wanted(recording.launches, recording.blocks, recording.max_bytes, recording.in_files))
        return _read(raw, command, None if recording.in_files else found), status
    if recording.in_files:
        raise UserError("--launches tbpoint: no files can be kept; leave out --keep-raw and --keep-addresses")
    counting = raw.with_name(COUNTING)
    _, counted = run(counting, Wanted(()), is_shown=False)
    first = first_run(counted, recording.choose)
    shutil.rmtree(counting)
    status, found = run(raw, Wanted(first.recorded, recording.blocks, recording.max_bytes))
    first.check(found)
    return _read(raw, command, found), status


def _read(raw: Path, command: Sequence[str], found: Mapping[int, Collected] | None) -> Workload:
    """What was recorded. Raises UserError that names the program, because the folder goes with the error."""
    try:
        return cuda.read(raw, collected=found)
    except UserError as error:
        raise UserError(str(error).replace(f"{raw}:", f"{command[0]}:", 1)) from None


def _run(
    command: Sequence[str],
    program: launch.Program,
    kit: Toolkit,
    device: Device,
    cache: Path,
    recording: Recording,
    raw: Path,
    wanted: Wanted,
    *,
    is_shown: bool = True,
) -> tuple[int, dict[int, Collected]]:
    """The program's exit status, and what was stored of each process. ``is_shown``: its output."""
    raw.mkdir()
    device.write(
        raw,
        checks_memory=recording.checks_memory,
        keeps_lanes=recording.keeps_lanes,
        regions=recording.regions,
        workers=recording.workers,
    )
    files = ModuleFiles(raw)
    with tempfile.TemporaryDirectory(prefix="manyscale-cubins-") as scratch:
        linked = device_code.linked(program.path) if program.path is not None else device_code.NOTHING
        cubins = device_code.extract(linked.files, device.capability, kit, Path(scratch))
        files.add(
            [(each, functions(device_code.disassembled(each, kit, cache)) if each.kernels else {}) for each in cubins]
        )
    library = runtime_library(kit, cache)
    if recording.announces:
        what = "tracing" if is_shown else "counting what launches execute (the output is not shown)"
        told = f"manyscale: {what} at level gpu, as {device.name}: {shlex.join(command)}"
        print(told, file=sys.stderr, flush=True)
    tracers = [library]
    of_ranks = _of_ranks(command, program, raw)
    if linked.has_nccl:
        tracers.append(nccl_library(kit, cache))
    tracers.insert(0, build.tracer(program.library, cache))
    with (
        ArrivingCode(files, device.capability, kit, raw, cache) as code,
        Collector(raw, wanted, files.kernel) as collector,
    ):
        environment = (
            _environment(library, raw, code)
            | {"MANYSCALE_CUDA_SOCKET": str(collector.path)}
            | {"LD_PRELOAD": _with_others("LD_PRELOAD", *tracers)}
            | of_ranks
        )
        if set(recording.regions) - {PROFILER}:
            environment["NVTX_INJECTION64_PATH"] = str(library)  # NVTX loads what stands there
        streams = {} if is_shown else hidden_streams()
        child = subprocess.Popen(launch.traced_command(command, program, environment), **streams)
        status = _waited(child)
    shutil.rmtree(raw / "nccl", ignore_errors=True)  # messages that nobody has read
    files.close()
    if not any(raw.glob(PROCESS)):
        raise UserError(
            f"{command[0]}: neither it nor a program that it started launched a kernel by the shared CUDA runtime or "
            "the driver; if one should, build it with nvcc and what `manyscale trace --nvcc` prints"
        )
    return status, collector.finish()


def _environment(library: Path, raw: Path, code: Path) -> dict[str, str]:
    """Variables of the program: its runtime is loaded before NVIDIA's, and what looks for the driver finds it, too."""
    return {
        "MANYSCALE_CUDA_DIR": str(raw.resolve()),
        "MANYSCALE_CUDA_CODE": str(code),
        "LD_LIBRARY_PATH": _with_others("LD_LIBRARY_PATH", library.parent),
        "TRITON_LIBCUDA_PATH": str(library.parent),
    }


def _with_others(variable: str, *own: Path) -> str:
    return ":".join([*map(str, own), *filter(None, [os.environ.get(variable)])])


def _waited(child: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return child.wait()
        except TerminationError:
            child.terminate()
        except KeyboardInterrupt:  # the terminal told the program, too; what it did until then is the trace
            continue


def _of_ranks(command: Sequence[str], program: launch.Program, raw: Path) -> dict[str, str]:
    """What the tracer of MPI programs is told, which records the ranks' calls beside."""
    from manyscale.runner.tracers.session import write_header

    folder = raw / OF_RANKS
    folder.mkdir()
    write_header(folder, raw.resolve().parent.name, "mpi", command, program)
    return {"MANYSCALE_TRACE_DIR": str(folder.resolve()), "MANYSCALE_TRACE_LEVEL": "1"}
