"""Kernels whose cycles Nsight Compute measured on an RTX 3080 Ti, by both issue models: prints the table of
RESULTS-HARDWARE.md.

    python hardware.py FOLDER [KERNEL...]

FOLDER holds checkouts of github.com/WHUDYF/modern-gpu-simulator-micro-2025 (mini_transformer.cu at 8b0cac7) and of
github.com/accel-sim/gpu-app-collection; what is not there is cloned. It needs nvcc (pip's packages do) and gcc. The
repository's root must stand in PYTHONPATH's ``manyscale``, ``tests/validation/cuda`` too.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
from tracing import called, checkout, traced

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import build_machine, shipped_targets
from manyscale.runner.tracers.cuda.compiler import toolkit

HERE = Path(__file__).parent
TARGET = "rtx3080ti"
SIMULATOR = "https://github.com/WHUDYF/modern-gpu-simulator-micro-2025"
SUITE = "https://github.com/accel-sim/gpu-app-collection"
REVISION = "8b0cac7:experiments/mini_transformer/mini_transformer.cu"
MAIN = """
int main() {
    float *x, *y, *z, *s;
    size_t n = SEQ_LEN * HIDDEN_DIM, m = HIDDEN_DIM * HIDDEN_DIM;
    cudaMalloc(&x, n * 4); cudaMalloc(&y, m * 4); cudaMalloc(&z, n * 4);
    cudaMalloc(&s, NUM_HEADS * SEQ_LEN * SEQ_LEN * 4);
    float *h = (float *)malloc(m * 4);
    srand(42);
    for (size_t i = 0; i < m; i++) h[i] = ((float)rand() / RAND_MAX - 0.5f) * 0.1f;
    cudaMemcpy(x, h, n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(y, h, m * 4, cudaMemcpyHostToDevice);
    dim3 block(16, 16);
    residual_add<<<(n + 255) / 256, 256>>>(z, x, n);
    layernorm_kernel<<<SEQ_LEN, 256, 1024>>>(z, SEQ_LEN, HIDDEN_DIM);
    softmax_kernel<<<NUM_HEADS * SEQ_LEN, 256, 1024>>>(s, NUM_HEADS * SEQ_LEN, SEQ_LEN);
    attention_score<<<dim3(32, 32, 12), block>>>(x, z, s, SEQ_LEN, HEAD_DIM, NUM_HEADS);
    context_mul<<<dim3(4, 32, 12), block>>>(s, x, z, SEQ_LEN, HEAD_DIM, NUM_HEADS);
    gemm_tiled<<<dim3(48, 32), block>>>(x, y, z, SEQ_LEN, HIDDEN_DIM, HIDDEN_DIM);
    return cudaDeviceSynchronize();
}
"""
"""One launch of each kernel, of the size that was measured; the program's own makes some 480 million warp instructions
a layer."""


def gpu(*, has_core: bool) -> Gpu:
    """The target, whose L2 Nsight Compute empties before each launch."""
    content = load_yaml(shipped_targets()[TARGET])
    content["node"]["gpu"]["l2"]["kept_between_launches"] = False
    if not has_core:
        del content["node"]["gpu"]["core"]
    found = build_machine(content, TARGET).node.gpu
    assert found is not None
    return found


def built(source: Path, folder: Path) -> Path:
    program = folder / source.stem
    flags = subprocess.run(
        [sys.executable, "-m", "manyscale", "trace", "--nvcc"], capture_output=True, text=True, check=True
    ).stdout.split()
    status, _, told = called(
        [str(toolkit().tool("nvcc")), "-w", "-arch=sm_86", "-O3", str(source), "-o", str(program), *flags], folder
    )
    if status:
        sys.exit(told)
    return program


def recorded(program: Path, *words: str) -> Path:
    trace = program.with_name(f"{program.name}-trace")
    if not trace.exists():
        traced(["--level", "gpu", "--as", TARGET, "-o", str(trace), "--", str(program), *words], program.parent, 600)
    return trace


def transformer(sources: Path) -> Path:
    """The kernels of mini_transformer.cu with a main of our own."""
    repository = checkout(sources, "modern-gpu-simulator-micro-2025", SIMULATOR)
    text = subprocess.run(["git", "-C", repository, "show", REVISION], capture_output=True, text=True, check=True)
    source = sources / "mini_transformer.cu"
    source.write_text(text.stdout[: text.stdout.index("void launch_gemm")] + MAIN)
    return recorded(built(source, sources))


def nearest(sources: Path) -> Path:
    """Rodinia's nn with data by its own generator: four files of 10,690 records."""
    folder = checkout(sources, "gpu-app-collection", SUITE) / "src/cuda/rodinia/2.0-ft/nn"
    (sources / "data").mkdir(exist_ok=True)
    called(["gcc", "-w", str(folder / "hurricane_gen.c"), "-o", "hurricane_gen", "-lm"], sources)
    called([str(sources / "hurricane_gen"), "42760", "4"], sources)
    (sources / "list4").write_text("".join(f"data/cane4_{k}.db\n" for k in range(4)))
    source = sources / "nn.cu"
    text = (folder / "nn_cuda.cu").read_text()
    source.write_text(text.replace("cudaThreadSynchronize", "cudaDeviceSynchronize"))
    return recorded(built(source, sources), "list4", "5", "30", "90", "gold")


def main(sources: Path, kernels: list[str]) -> None:
    sources = sources.resolve()
    with (HERE / "hardware_rtx3080ti.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not kernels or row["kernel"] in kernels]
    traces = (
        {"euclid": nearest} if all(row["kernel"] == "euclid" for row in rows) else {"euclid": nearest, "": transformer}
    )
    found = {name: workload_folder.read(make(sources)).gpu for name, make in traces.items()}
    models = [gpu(has_core=True), gpu(has_core=False)]
    errors = []
    print("| kernel | warp instructions | hardware | control bits | error | scoreboard | error |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        streams = found["euclid" if row["kernel"] == "euclid" else ""]
        assert streams is not None
        launches = (streams.trace(each) for each in streams.launch_ids)
        trace = next(each for each in launches if row["kernel"] in each.kernel_name)
        cycles = [detailed.simulate(trace, each)[0].cycles for each in models]
        off = [each / float(row["cycles"]) - 1 for each in cycles]
        errors.append(off)
        columns = [row["kernel"] + " " + row["launch"], f"{trace.num_instructions:,}", f"{float(row['cycles']):,.0f}"]
        columns += [text for each, error in zip(cycles, off, strict=True) for text in (f"{each:,}", f"{error:+.1%}")]
        print("| " + " | ".join(columns) + " |", flush=True)
    mean = np.abs(errors).mean(axis=0)
    print(f"| mean absolute error |  |  |  | {mean[0]:.1%} |  | {mean[1]:.1%} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
