"""Addresses that are made up for launches without them: the same sectors, bytes and conflicts follow from them, by
rules written anew here, and the whole trace when it is written in Accel-Sim's format and read again."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from test_cuda_accelsim import MIXED, assert_equal

import manyscale
from manyscale.models.workload.launch_trace import MAX_OPERANDS, Access, LaunchTrace, Space, StaticInstructions
from manyscale.runner.cli import main
from manyscale.runner.readers import accelsim, workload_folder
from manyscale.runner.report.traces.made_up_lanes import NotMadeError, made_up

WARPS, BLOCKS = 3, 5  # of a block, of the grid
NAMES = {
    (Space.global_, Access.load): "LDG", (Space.global_, Access.store): "STG", (Space.global_, Access.atomic): "ATOMG",
    (Space.local, Access.load): "LDL", (Space.local, Access.store): "STL", (Space.shared, Access.load): "LDS",
    (Space.shared, Access.store): "STS",
}  # fmt: skip


def requests(kind, lanes, width, warp) -> list[tuple[int, int]]:
    """(sector, bytes written), ascending; of shared memory nothing. Of threads by lane."""
    space, access = kind
    if access == Access.atomic:
        found: list[tuple[int, set[int]]] = []
        for _, address in sorted(lanes.items()):
            own = set(range(address % 32, address % 32 + width))
            free = next((taken for sector, taken in found if sector == address // 32 and not taken & own), None)
            if free is None:
                found.append((address // 32, own))
            else:
                free |= own
        return sorted((sector, 0xFFFFFFFF) for sector, _ in found)
    touched: dict[int, int] = defaultdict(int)
    for lane, address in lanes.items():
        for byte in range(address, address + width):
            place = byte
            if space == Space.local:  # words of a warp's threads stand side by side
                line = byte // 4 * (BLOCKS * WARPS | 1) + warp
                place = (1 << 62) + 128 * line + 4 * lane + byte % 4
            touched[place // 32] |= 1 << place % 32
    return [(sector, bits if access == Access.store else 0) for sector, bits in sorted(touched.items())]


def conflicts(kind, lanes, width) -> int:
    """Words that banks give one after the other: 128 bytes of threads make a request, and two requests of loads one
    where all active threads n and n ^ 1, or all n and n ^ 2, load the same."""
    own = 128 // max(4, width)
    total = 0
    for first in range(0, 32, 2 * own):
        parts = [
            {lane: lanes[lane] for lane in range(start, min(start + own, 32)) if lane in lanes}
            for start in (first, first + own)
        ]
        both = parts[0] | parts[1]
        in_pairs = any(all(both.get(lane ^ step, at) == at for lane, at in both.items()) for step in (1, 2))
        total += sum(busiest(part, width) for part in ([both] if in_pairs and kind[1] == Access.load else parts))
    return total


def busiest(lanes, width) -> int:
    banks = defaultdict(set)
    for address in lanes.values():
        for byte in range(address, address + width):
            banks[byte // 4 % 32].add(byte // 4)
    return max(map(len, banks.values()), default=0)


def trace_of(kind, lanes, width, warp) -> LaunchTrace:
    """A block whose one warp, of index ``warp`` in the launch's first block, makes one access."""
    found = requests(kind, lanes, width, warp) if kind[0] != Space.shared else []
    count = len(found) if kind[0] != Space.shared else conflicts(kind, lanes, width)
    one, none = np.zeros(1, np.uint8), np.full((1, MAX_OPERANDS), -1, np.int16)
    static = StaticInstructions(
        (NAMES[kind],), np.zeros(1, np.int64), np.zeros(1, np.int32), one, one + int(kind[0]), one + int(kind[1]),
        np.zeros(1, np.int32), one.astype(np.bool_), none, none,
    )  # fmt: skip
    own = [int(each == warp) for each in range(WARPS)]
    return LaunchTrace(
        1, "k", (BLOCKS, 1, 1), (32 * WARPS, 1, 1), 0, 8, 80, static, np.array([0, WARPS]),
        np.array([0, *np.cumsum(own)]), np.array([0, *np.cumsum(own) * len(found)]), np.zeros(1, np.int32),
        one + len(lanes), one + count, np.array([each[0] for each in found], np.int64),
        np.array([each[1] for each in found], np.uint32),
    )  # fmt: skip


@pytest.mark.parametrize("kind", NAMES, ids=NAMES.values())
def test_the_same_follows_from_them(kind):
    random = np.random.default_rng(len(NAMES[kind]) + kind[0])
    for width in (4, 8) if kind[1] == Access.atomic else (1, 2, 4, 8, 16):
        for _ in range(60):
            active = sorted(random.choice(32, random.integers(1, 33), replace=False).tolist())
            span = int(random.integers(1, 200))
            lanes = {lane: width * int(random.integers(span)) for lane in active}
            warp = int(random.integers(WARPS))
            trace = trace_of(kind, lanes, width, warp)
            found = made_up(trace, 0, 0, [width])
            assert int(found.mask[0]).bit_count() == len(lanes) == int(found.count[0])
            again = [lane for lane in range(32) if int(found.mask[0]) >> lane & 1]
            made = dict(zip(again, (found.address & ((1 << 60) - 1)).tolist(), strict=True))
            if kind[0] == Space.local:
                made = {lane: address & ((1 << 24) - 1) for lane, address in made.items()}
            if kind[0] == Space.shared:
                assert conflicts(kind, made, width) == conflicts(kind, lanes, width)
            else:
                assert requests(kind, made, width, warp) == requests(kind, lanes, width, warp)


def test_what_no_aligned_addresses_give_is_refused():
    kind = (Space.global_, Access.store)
    with pytest.raises(NotMadeError):
        made_up(trace_of(kind, {0: 2}, 4, 0), 0, 0, [4])  # four bytes from the second on


MATRICES = """
#include <cuda_runtime.h>
__global__ void matrices(int *out) {
    __shared__ __align__(128) int tile[256];
    const int t = threadIdx.x;
    for (int k = 0; k < 8; k++) tile[32 * k + t] = t * k;
    __syncwarp();
    unsigned from = (unsigned)__cvta_generic_to_shared(tile) + 32 * (t % 32), a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from));
    out[t] = a + b + c + d;
}
int main() {
    int *out;
    cudaMalloc(&out, 128);
    matrices<<<2, 32>>>(out);
    return cudaDeviceSynchronize();
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), [("mixed", MIXED), ("matrices", MATRICES)])
def test_a_trace_without_addresses_is_written_and_read_again(name, program, nvcc, tracer_cache, tmp_path, capfd):
    made = nvcc(name, program, "-arch=sm_80")
    traced, kept = tmp_path / "traced", tmp_path / "kept"
    words = ["trace", "--level", "gpu", "--as", "a100", "--cache", str(tracer_cache)]
    assert main([*words, "-o", str(traced), "--", str(made)]) == 0
    assert main([*words, "--keep-addresses", "-o", str(kept), "--", str(made)]) == 0
    expected = workload_folder.read(traced)
    capfd.readouterr()
    for source, place in ((traced, "made-up"), (kept / "raw", "exact")):
        assert main(["convert", str(source), "-o", str(tmp_path / place), "--to", "accelsim"]) == 0
        said = capfd.readouterr().out
        assert ("[addresses-made-up]" in said) == (tmp_path / place / "ADDRESSES").exists() == (place == "made-up")
        found = accelsim.read(tmp_path / place)
        for launch_id in expected.gpu.launch_ids:
            assert_equal(found.gpu.trace(launch_id), expected.gpu.trace(launch_id))
    cycles = [
        manyscale.run(str(path), target="rtx3070", cache=tracer_cache).table("launches").column("cycles").to_pylist()
        for path in (traced, tmp_path / "made-up")
    ]
    assert cycles[0] == cycles[1]
