"""Holds traces made without a GPU against those that NVIDIA's NVBit recorded of the same programs on hardware.

    python tests/validation/cuda/nvbit.py SOURCES TRACES [--scratch FOLDER]

SOURCES is a checkout of github.com/yuhc/gpu-rodinia at ``rodinia.COMMIT``; TRACES a folder with ``bfs`` and
``simple-trace-example`` in Accel-Sim's format, as github.com/sarchlab/mgpusim has them. It writes ``RESULTS-NVBIT.md``.

The input of the recorded bfs is not known. But its graph is: each thread loads the edges of its node, and then for each
edge whether the node at its end was visited, so that the traced addresses name both ends of every edge.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import manyscale
from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import LaunchTrace, Space
from manyscale.runner.readers import accelsim, workload_folder

HERE = Path(__file__).parent
TARGET = "rtx3070"
VECTOR_ADD = HERE.parents[1] / "programs" / "cuda_vector_add.cu"


@dataclass(frozen=True)
class Compared:
    """One launch here and as recorded: ``instructions`` and ``cycles`` of both; ``roots``: warp instructions of each
    root; ``same_accesses``: whether each warp makes the same global accesses, in the same
    order, by as many threads, to the same sectors but for the constant ``base`` between the heaps (bytes)."""

    kernel: str
    instructions: tuple[int, int]
    cycles: tuple[int, int]
    roots: dict[str, tuple[int, int]]
    same_accesses: bool
    base: int


def graph_of(folder: Path) -> str:
    """The graph that a recorded bfs walked through, as Rodinia's program reads it: nodes with first edge and number of
    edges, the source, and for each edge the node at its end. Raises ValueError where an edge was not walked."""
    nodes, edges, _, _, visited = _copies(folder)[:5]  # in the order of the program's allocations
    ends: dict[int, int] = {}
    starts: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for path in sorted(folder.glob("kernel-*.traceg.xz")):
        for each in _loads(path):
            if edges[0] <= each.address < edges[0] + edges[1]:
                last[each.thread] = (each.address - edges[0]) // 4
            elif visited[0] <= each.address < visited[0] + visited[1] and each.thread in last:
                edge = last.pop(each.thread)
                ends[edge] = each.address - visited[0]
                starts.setdefault(each.thread, []).append(edge)
    if len(ends) != edges[1] // 4 or len(starts) != nodes[1] // 8:
        raise ValueError(f"{folder}: {len(ends)} of {edges[1] // 4} edges were walked")
    lines = [str(len(starts))]
    lines += [f"{min(starts[node])} {len(starts[node])}" for node in range(len(starts))]
    lines += ["0", str(len(ends)), *(f"{ends[edge]} 1" for edge in range(len(ends)))]
    return "\n".join(lines) + "\n"


def _copies(folder: Path) -> list[tuple[int, int]]:
    """(address, bytes) of what is copied to the device."""
    lines = [line.split(",") for line in (folder / "kernelslist.g").read_text().splitlines() if line[:6] == "Memcpy"]
    return [(int(address, 16), int(size)) for _, address, size in lines]


@dataclass(frozen=True)
class _Load:
    thread: int  # of the grid
    address: int


def _loads(path: Path) -> Iterator[_Load]:
    """Global loads of a launch of blocks in one dimension, in the order of the trace (version 3 of the format)."""
    threads = first = 0
    with lzma.open(path, "rt") as file:
        for line in file:
            words = line.split()
            if line.startswith("-block dim"):
                threads = int(line.split("(")[1].split(",")[0])
            elif line.startswith("thread block"):
                block = int(words[3].split(",")[0])
            elif line.startswith("warp ="):
                first = block * threads + 32 * int(words[2])
            elif " LDG" in line:
                yield from _of_line(words, first)


def _of_line(words: list[str], first: int) -> Iterator[_Load]:
    """``PC mask count registers opcode count registers width mode addresses``, of a warp whose first thread is given;
    mode 0: all addresses; 1: one and the stride; 2: one and the steps from each to the next."""
    lanes = [lane for lane in range(32) if int(words[1], 16) >> lane & 1]
    opcode = 3 + int(words[2])
    _, mode, *given = words[opcode + 2 + int(words[opcode + 1]) :]
    if not lanes:
        return
    address = int(given[0], 16)
    for place, lane in enumerate(lanes):
        if place and mode == "0":
            address = int(given[place], 16)
        elif place:
            address += int(given[1 if mode == "1" else place])
        yield _Load(first + lane, address)


def compared(own: Workload, recorded: Workload, cycles: Sequence[Sequence[int]]) -> list[Compared]:
    """Launch by launch; ``cycles`` of both. Raises ValueError where the launches are not the same."""
    assert own.gpu is not None
    assert recorded.gpu is not None
    pairs = list(zip(own.gpu.launch_ids, recorded.gpu.launch_ids, strict=True))
    found = []
    for place, (mine, theirs) in enumerate(pairs):
        traces = own.gpu.trace(mine), recorded.gpu.trace(theirs)
        if len({(each.kernel_name, each.grid, each.block) for each in traces}) != 1:
            raise ValueError(f"launch {mine}: {traces[0].kernel_name} is not {traces[1].kernel_name}, or of its shape")
        counts = own.gpu.executed(mine), recorded.gpu.executed(theirs)
        roots = sorted(set(counts[0]) | set(counts[1]))
        of_roots = {root: (counts[0].get(root, 0), counts[1].get(root, 0)) for root in roots}
        same, base = _same_accesses(*traces)
        instructions = traces[0].num_instructions, traces[1].num_instructions
        of_place = (cycles[0][place], cycles[1][place])
        found.append(Compared(traces[0].kernel_name, instructions, of_place, of_roots, same, base))
    return found


def _same_accesses(own: LaunchTrace, recorded: LaunchTrace) -> tuple[bool, int]:
    """Whether they are the same but for a constant, and that constant in bytes."""
    one, other = _accesses(own), _accesses(recorded)
    if any(not np.array_equal(a, b) for a, b in zip(one[:-1], other[:-1], strict=True)):
        return False, 0
    steps = np.unique(other[-1] - one[-1])
    return len(steps) == 1, 32 * int(steps[0])


def _accesses(trace: LaunchTrace) -> tuple[np.ndarray, ...]:
    """Of global memory: warp, kind, threads and sectors of each access; bytes written and address of each sector."""
    static = trace.static
    is_global = (static.space == Space.global_)[trace.instruction]
    warp = np.repeat(np.arange(trace.num_warps), np.diff(trace.warp_instructions))
    return (
        warp[is_global],
        static.access[trace.instruction][is_global],
        trace.active[is_global],
        trace.accesses[is_global],
        trace.written,
        trace.sector,
    )


def predicted(path: Path) -> list[int]:
    """Cycles of each launch on ``TARGET``."""
    table = manyscale.run(str(path), target=TARGET).table("launches")
    return [int(each) for each in table.column("cycles").to_pylist()]


def traced(source: Path, arguments: Sequence[str], scratch: Path) -> Path:
    """Compiles a program for sm_80, the recorded one's architecture, and traces it."""
    from rodinia import MANYSCALE, called, nvcc

    path, link = nvcc()
    made = scratch / source.stem
    status, out, told = called([path, "-w", "-arch=sm_80", str(source), "-o", str(made), *link], source.parent)
    if not status:
        words = ["trace", "--level", "gpu", "--as", "a100", "-o", f"{made}-trace", "--", str(made), *arguments]
        status, out, told = called([*MANYSCALE, *words], scratch)
    if status:
        raise RuntimeError(f"{source}: {out}{told}")
    return Path(f"{made}-trace")


def compare(name: str, own: Path, recorded: Path) -> list[str]:
    """The part of the results about one program."""
    rows = compared(workload_folder.read(own), accelsim.read(recorded), [predicted(own), predicted(recorded)])
    totals = [[sum(getattr(row, key)[side] for row in rows) for side in (0, 1)] for key in ("instructions", "cycles")]
    lines = [
        f"## {name}", "",
        f"{totals[0][0]:,} warp instructions here, {totals[0][1]:,} recorded; {totals[1][0]:,} and {totals[1][1]:,} "
        f"cycles on {TARGET} ({totals[1][0] / totals[1][1] - 1:+.2%}).", "",
        "| launch | kernel | instructions | recorded | cycles | of the recorded | ratio | global accesses |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for number, row in enumerate(rows, 1):
        same = "equal" if row.same_accesses else "differ"
        lines.append(
            f"| {number} | `{row.kernel}` | {row.instructions[0]:,} | {row.instructions[1]:,} | {row.cycles[0]:,} | "
            f"{row.cycles[1]:,} | {row.cycles[0] / row.cycles[1]:.4f} | {same} |"
        )
    sums: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for row in rows:
        for root, pair in row.roots.items():
            for side in (0, 1):
                sums[side][root] += pair[side]
    told = {root: f"{root} {sums[0][root]:,} and {sums[1][root]:,}" for root in sorted(sums[0] | sums[1])}
    equal = [root for root in told if sums[0][root] == sums[1][root]]
    lines += ["", f"As often here as recorded: {', '.join(equal)}."]
    lines += [f"More or less often: {', '.join(told[root] for root in told if root not in equal) or 'none'}.", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    scratch = options.scratch or Path(tempfile.mkdtemp(prefix="nvbit-"))
    scratch.mkdir(parents=True, exist_ok=True)
    recorded = {path.name: path for path in options.traces.rglob("*") if (path / "kernelslist.g").is_file()}
    (scratch / "vectorAdd.cu").write_text(VECTOR_ADD.read_text())
    (scratch / "graph").write_text(graph_of(recorded["bfs"]))
    lines = compare("vectorAdd", traced(scratch / "vectorAdd.cu", [], scratch), recorded["simple-trace-example"])
    bfs = traced(options.sources / "cuda" / "bfs" / "bfs.cu", [str(scratch / "graph")], scratch)
    lines += compare("bfs", bfs, recorded["bfs"])
    (HERE / "RESULTS-NVBIT.md").write_text("\n".join([*HEAD, *lines]).rstrip("\n") + "\n")


HEAD = [
    "# Traces made without a GPU and traces of NVBit",
    "",
    "Programs compiled by today's nvcc for sm_80 and traced by `manyscale trace --level gpu`, and what NVIDIA's NVBit "
    "recorded of the same programs on hardware (github.com/sarchlab/mgpusim, MIT). Made by "
    "`python tests/validation/cuda/nvbit.py SOURCES TRACES`. The cycles are predicted from both traces alike; they say "
    "how much the traces differ, not how right the prediction is.",
    "",
    "The graph of the recorded bfs is taken from its addresses: each thread loads the edges of its node, and then for "
    "each edge whether the node at its end was visited. All 24,576 edges of the 4,096 nodes are walked, so that the "
    "graph is the recorded run's. The compilers differ (the recorded code computes addresses by IMAD.WIDE where "
    "today's uses LEA and LEA.HI.X). *Global accesses*: the loads and stores of each warp in their order, with the "
    "number of threads, the sectors of 32 bytes and the bytes written, but for the constant between the two heaps.",
    "",
]


if __name__ == "__main__":
    main()
