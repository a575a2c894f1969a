"""A breadth-first search compiled and traced here against NVBit's trace of Rodinia's, on the recorded run's graph."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from nvbit import compared, graph_of, predicted

from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import accelsim, workload_folder
from manyscale.runner.tracers.cuda import compiler

RECORDED = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "gpu" / "bfs"
# Harish and Narayanan, "Accelerating large graph algorithms on the GPU using CUDA", 2007: what Rodinia's program does
PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
struct Node { int starting, no_of_edges; };
__global__ void Kernel(Node *nodes, int *edges, bool *front, bool *next, bool *visited, int *cost, int n) {
    const int own = blockIdx.x * 512 + threadIdx.x;
    if (own >= n || !front[own]) return;
    front[own] = false;
    for (int k = nodes[own].starting; k < nodes[own].no_of_edges + nodes[own].starting; k++) {
        const int end = edges[k];
        if (visited[end]) continue;
        cost[end] = cost[own] + 1;
        next[end] = true;
    }
}
__global__ void Kernel2(bool *front, bool *next, bool *visited, bool *more, int n) {
    const int own = blockIdx.x * 512 + threadIdx.x;
    if (own >= n || !next[own]) return;
    front[own] = true;
    visited[own] = true;
    *more = true;
    next[own] = false;
}
template <typename T> T *copied(const T *from, int n) {
    T *to;
    cudaMalloc(&to, n * sizeof(T));
    cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyHostToDevice);
    return to;
}
int main(int, char **words) {
    FILE *file = fopen(words[1], "r");
    static Node nodes[4096];
    static int edges[24576], cost[4096], n, source, m, unused;
    static bool none[4096], first[4096];
    first[0] = true;
    bool wrong = fscanf(file, "%d", &n) != 1 || n != 4096;
    for (int k = 0; k < n; k++) wrong |= fscanf(file, "%d %d", &nodes[k].starting, &nodes[k].no_of_edges) != 2;
    wrong |= fscanf(file, "%d %d", &source, &m) != 2 || m != 24576;
    for (int k = 0; k < m; k++) wrong |= fscanf(file, "%d %d", &edges[k], &unused) != 2;
    for (int k = 1; k < n; k++) cost[k] = -1;
    Node *d_nodes = copied(nodes, n);
    int *d_edges = copied(edges, m);
    bool *front = copied(first, n), *next = copied(none, n), *visited = copied(first, n);
    int *d_cost = copied(cost, n);
    bool *d_more, more = true;
    cudaMalloc(&d_more, 1);
    while (more && !wrong) {
        more = false;
        cudaMemcpy(d_more, &more, 1, cudaMemcpyHostToDevice);
        Kernel<<<8, 512>>>(d_nodes, d_edges, front, next, visited, d_cost, n);
        Kernel2<<<8, 512>>>(front, next, visited, d_more, n);
        cudaMemcpy(&more, d_more, 1, cudaMemcpyDeviceToHost);
    }
    cudaMemcpy(cost, d_cost, sizeof cost, cudaMemcpyDeviceToHost);
    for (int k = 0; k < n; k++) printf("%d\\n", cost[k]);
    return wrong;
}
"""


def levels(graph: str) -> list[int]:
    """How many edges each node is away from the source."""
    numbers = [int(word) for word in graph.split()]
    n = numbers[0]
    nodes = [numbers[1 + 2 * k : 3 + 2 * k] for k in range(n)]
    ends = numbers[1 + 2 * n + 2 :: 2]
    found = [-1] * n
    found[0], front = 0, [0]
    while front:
        reached = {ends[k] for own in front for k in range(nodes[own][0], sum(nodes[own]))}
        step = found[front[0]] + 1
        front = [each for each in reached if found[each] < 0]
        for each in front:
            found[each] = step
    return found


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(not RECORDED.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
def test_bfs_makes_the_recorded_accesses_and_takes_the_recorded_time(tmp_path, private_cache, capfd):
    try:
        kit = compiler.toolkit()
        nvcc = kit.tool("nvcc")
    except UserError as error:
        pytest.skip(f"nvcc is not installed: {error}")
    graph = graph_of(RECORDED)
    (tmp_path / "graph").write_text(graph)
    (tmp_path / "walk.cu").write_text(PROGRAM)
    command = [str(nvcc), "-arch=sm_80", str(tmp_path / "walk.cu"), "-o", str(tmp_path / "walk")]
    subprocess.run([*command, *compiler.flags(kit, private_cache)], check=True)
    words = ["--as", "a100", "--cache", str(private_cache), "-o", str(tmp_path / "own")]
    capfd.readouterr()
    command = [str(tmp_path / "walk"), str(tmp_path / "graph")]
    assert main(["trace", "--level", "gpu", *words, "--", *command]) == 0
    printed = capfd.readouterr().out.splitlines()
    expected = levels(graph)
    assert [int(line) for line in printed[: len(expected)]] == expected
    rows = compared(
        workload_folder.read(tmp_path / "own"),
        accelsim.read(RECORDED),
        [predicted(tmp_path / "own"), predicted(RECORDED)],
    )
    assert len(rows) == 2 * (max(expected) + 1) == 16
    assert all(row.same_accesses for row in rows)
    assert len({row.base for row in rows}) == 1
    for row in rows:
        assert row.cycles[0] == pytest.approx(row.cycles[1], rel=0.03)
        for root in ("LDG", "STG", "BRA", "ISETP", "S2R"):
            assert row.roots.get(root, (0, 0))[0] == row.roots.get(root, (0, 0))[1], root
