"""What malformed inputs are shown to: every reader, and whatever else a user hands over as a file."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from mutate import mutate_folder
from reader_samples import DATA, SAMPLES, kept

from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.readers import counter_table, workload_folder
from manyscale.runner.readers.simpoint_bb import markers, points, projection
from manyscale.runner.registry import lookup, names
from manyscale.runner.study.traces import with_phases
from manyscale.testing.workloads import known

Make = Callable[[Path], Path]


@dataclass(frozen=True)
class Subject:
    """``make``: the right input, in a folder that is empty; ``use(path, folder)``: what is done with it, in which a
    scratch folder may be written. ``files``: those of a folder that are changed, if not any."""

    name: str
    make: Make
    use: Callable[[Path, Path], None]
    files: tuple[str, ...] = ()


def attempt(subject: Subject, folder: Path) -> Callable[[int], None]:
    """A function of the number of an input; -1 is the right one."""
    (folder / "right").mkdir()
    sample = subject.make(folder / "right")
    (folder / "wrong").mkdir()
    for companion in (folder / "right").iterdir():
        if companion != sample:
            (shutil.copytree if companion.is_dir() else shutil.copy)(companion, folder / "wrong" / companion.name)
    copy = folder / "wrong" / sample.name
    scratch = folder / "scratch"

    def of(number: int) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        if number >= 0:
            mutate_folder(sample, copy, f"{subject.name} {number}", subject.files)
        subject.use(sample if number < 0 else copy, scratch)

    return of


def of_reader(name: str) -> Callable[[Path, Path], None]:
    """Shown to all sniffers, read, and used: lazy parts read through, messages matched, and kept as a workload."""

    def use(path: Path, scratch: Path) -> None:
        for each in names("reader"):
            if not isinstance(lookup("reader", each).can_read(path), bool):
                raise TypeError(f"can_read of {each} returns no bool")
        workload: Workload = with_phases(lookup("reader", name).read(path))
        if workload.detail is not None:
            for batch in workload.detail.batches(1 << 16):
                len(batch.block_ids)
            bounds = workload.detail.execution_bounds()
            workload.detail.read_executions(int(bounds[0]), int(bounds[min(1, len(bounds) - 1)]))
        if workload.gpu is not None:
            for launch in workload.column("launches", "launch_id").tolist():
                workload.gpu.trace(launch)
        build_program(workload, "mpich", keep_graph=True)
        workload_folder.write(workload, scratch / "kept", compression=None)

    return use


def unpacked(source: Path, most_bytes: int = 0) -> Make:
    """A file without its compression, or a folder; cut to whole lines of ``most_bytes``."""

    def made(folder: Path) -> Path:
        if source.is_dir():
            return Path(shutil.copytree(source, folder / source.name))
        opened: Any = {".xz": lzma.open, ".gz": gzip.open}.get(source.suffix, open)
        with opened(source, "rb") as file:
            content = file.read()
        if most_bytes and len(content) > most_bytes:
            content = content[: content.rindex(b"\n", 0, most_bytes) + 1]
        path = folder / (source.name if opened is open else source.stem)
        path.write_bytes(content)
        return path

    return made


def with_companion(first: Make, *others: Make) -> Make:
    def made(folder: Path) -> Path:
        for other in others:
            other(folder)
        return first(folder)

    return made


def text(name: str, content: str) -> Make:
    def made(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return made


def _counters(path: Path, scratch: Path) -> None:
    counter_table.read(path, [Path("x.bb")], [4], [])


def _target(path: Path, scratch: Path) -> None:
    """Read, and replayed on by every model that can."""
    from manyscale.runner.study.targets import target_named

    machine, _ = target_named(str(path))
    workload = known()[1].workload
    node = np.arange(workload.num_ranks, dtype=np.int32) % machine.num_nodes
    program = build_program(workload, machine.network.collectives, keep_graph=True)
    for name in names("network"):
        if name == "flow" and machine.network.topology is None:
            continue
        model = lookup("network", name)
        try:
            model.replay(
                program, np.ones(workload.num_operations, np.int64), machine.network, Placement(node, machine.num_nodes)
            )
        except (ValueError, ReplayError) as error:  # as the runner says them
            raise UserError(error) from None


def _study(path: Path, scratch: Path) -> None:
    from manyscale.runner.study.content import load_study_content, sweep_points
    from manyscale.runner.study.schema import parse_study

    content = load_study_content(path)
    if isinstance(content, dict) and "sweep" in content:
        for _ in zip(range(20), sweep_points(content, str(path)), strict=False):
            pass
    else:
        parse_study(content, str(path))


def _ping_pong(path: Path, scratch: Path) -> None:
    from manyscale.runner.report import calibration_page
    from manyscale.runner.run.calibration import network

    fitted = network.calibrate_network([path])
    network.figures(fitted)
    calibration_page.network_page(fitted)


def _stream(path: Path, scratch: Path) -> None:
    from manyscale.runner.run.calibration import network

    network.calibrate_network([DATA / "pingpong" / "mpich-shared-memory.latency", path])


def _sizes(path: Path, scratch: Path) -> None:
    from manyscale.runner.run.questions.memory import read_measured

    read_measured(path)


def _units(path: Path, scratch: Path) -> None:
    from manyscale.runner.run.plans.measured import read

    read(path, np.arange(100))


def _placement(path: Path, scratch: Path) -> None:
    from manyscale.runner.predict import placement

    placement.placement_file(path)


def _projection(path: Path, scratch: Path) -> None:
    projection.read(path)


_COUNTERS: Final = "interval,tid,instrs,cycles,misses\n0,1,100,250.5,3\n1,1,100,300,\n2,1,90,99,1\n3,1,100,1e3,2\n"
_NETPIPE: Final = "1 0.5 0.0000012\n2 1.0 0.0000013\n1024 90 0.000002\n65536 900 0.00003\n1048576 1000 0.0005\n"
_PROGRESS: Final = "  0:       1 bytes  100 times -->      6.5 Mbps in       1.17 usec\n" \
    "  1:    1024 bytes  100 times -->    600 Mbps in       13 usec\n" \
    "  2:  100000 bytes  100 times -->    900 Mbps in      880 usec\n"  # fmt: skip
_IMB: Final = """#---------------------------------------------------
# Benchmarking PingPong
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         1.15         0.00
            1         1000         1.17         0.86
         1024         1000         2.50       409.60
        65536          640        20.10      3260.50
      4194304           10       900.00      4660.34
"""


def _shipped(path: Path) -> Make:
    return lambda folder: Path(shutil.copy(path, folder / path.name))


def others() -> list[Subject]:
    """What is no trace."""
    data = DATA
    cfgs = sorted((data / "dimemas").glob("*.cfg"))
    targets = shipped.shipped_targets()
    subjects = [
        Subject("counters", text("x.csv", _COUNTERS), _counters),
        Subject("ping-pong", _shipped(data / "pingpong/mpich-shared-memory.latency"), _ping_pong),
        Subject("ping-pong stream", _shipped(data / "pingpong/mpich-shared-memory.bandwidth"), _stream),
        Subject("ping-pong netpipe", text("np.out", _NETPIPE), _ping_pong),
        Subject("ping-pong progress", text("np.txt", _PROGRESS), _ping_pong),
        Subject("ping-pong imb", text("imb.txt", _IMB), _ping_pong),
        Subject("ping-pong csv", text("x.csv", "bytes,time_us\n1,1.1\n1024,2\n65536,20\n1048576,300\n"), _ping_pong),
        Subject("measured sizes", text("x.csv", "size,seconds\n100,1e-3\n200,0.002\n"), _sizes),
        Subject("measured units", text("x.csv", "unit,cpi,piece\n1,1.5,0\n1,1.25,1\n7,0.5,\n"), _units),
        Subject("placement", text("x.txt", "0 0 1 1 # two each\n2 3\n"), _placement),
        Subject("projection", _shipped(data / "simpoint/lengths.proj"), _projection),
    ]
    subjects += [Subject(f"target {path.name}", _shipped(path), _target) for path in cfgs]
    subjects += [Subject(f"target {name}", _shipped(path), _target) for name, path in sorted(targets.items())]
    subjects += [Subject(f"study {name}", _shipped(path), _study) for name, path in sorted(shipped.studies().items())]
    return subjects


def readers() -> list[Subject]:
    """A small trace of each format."""
    return [Subject(name, SAMPLES[name], of_reader(name)) for name in names("reader")]


def _simpoint(name: str, *companions: str) -> Make:
    made = [unpacked(DATA / "simpoint" / each) for each in (name, *companions)]
    return with_companion(*made)


def more_traces() -> list[Subject]:
    """Further traces of the repository, and those of $MANYSCALE_DATA that are small."""
    found: list[tuple[str, Make]] = [
        *(("dimemas", unpacked(DATA / "dimemas" / f"{name}.dim.gz")) for name in (
            "ar", "links-and-buses", "non-blocking-collectives", "collectives-linear")),
        ("paraver", unpacked(DATA / "paraver/test2.prv")),
        ("paraver", unpacked(DATA / "paraver/aliasing-lt_autoparallel.prv.gz")),
        ("goal", unpacked(DATA / "goal/binomial_tree.goal")),
        ("goal", unpacked(DATA / "goal/random_42.goal")),
        ("otf2", unpacked(DATA / "otf2/pipit-ping-pong-papi")),
        ("simpoint-bb", _simpoint("prog.global.bb.xz", "prog.regions.csv")),
        ("jfr", unpacked(DATA / "stacks/threads.jfr.json.xz")),
        ("perf-script", unpacked(DATA / "stacks/threads.perf.txt.gz")),
        ("accelsim", unpacked(DATA / "gpu/vectoradd")),
        ("lackey", unpacked(DATA / "detail/bs16_O0.lk.xz", 40_000)),
    ]  # fmt: skip
    outside = os.environ.get("MANYSCALE_DATA")
    if outside:
        root = Path(outside)
        listed: Sequence[tuple[str, str, int]] = (
            ("paraver", "formats/paraver/mess-lulesh/lulesh_7+1_with_uncores_sockets1+2.chop8.prv", 0),
            ("paraver", "formats/paraver/pypop-epoch/epoch_1proc.prv.gz", 0),
            ("otf2", "formats/otf2/sst-macro-10ranks", 0),
            ("dumpi", "formats/dumpi/taufer-alltoall4", 0),
            ("launch-counters", "formats/nsight/microgpusim/nsight_vectoradd_100_32_metrics_all.csv", 0),
            ("launch-counters", "formats/nsight/microgpusim/nvprof_vectoradd_100_32_metrics_all.txt", 0),
            ("accelsim", "gpu/micro/coal110", 0),
            ("simpoint-bb", "phase/phases.m.bb.xz", 100_000),
            ("simpoint-bb", "phase/mt4g.bb.xz", 50_000),
            ("unit-stacks", "phase/spstk.stk.xz", 50_000),
            ("jfr", "phase/wc2_jfr_stacks.tsv.gz", 50_000),
            ("omt", "tasks/nbody-48.omt.xz", 0),
            ("simgrid-ti", "mpi/nas-is-A-8/trace.tar.zst", 0),
            ("dimemas", "mpi/dimemas/ar.dim.gz", 0),
        )
        found += [(name, unpacked(root / path, most)) for name, path, most in listed if (root / path).exists()]
    return [Subject(f"{name} {number}", make, of_reader(name)) for number, (name, make) in enumerate(found)]


__all__ = ["Subject", "attempt", "kept", "markers", "more_traces", "others", "points", "readers"]
