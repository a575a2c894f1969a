"""llm.c's GPT-2, traced without a GPU, against NumPy and PyTorch on the CPU.

    python tests/validation/cuda/transformer.py SOURCES [--torch PYTHON] [--only TYPE] [--scratch FOLDER]

SOURCES is a folder that holds a checkout of llm.c under this name; if it is not there, it is cloned. The commit stands
below. Its kernels are compiled as they are but for one barrier (``WITHOUT_BARRIER``), with drivers and a stand-in for
cuBLAS that stand in ``gpt2/``, for sm_80 and sm_90, and traced as on a100 and h100: in single precision
(train_gpt2_fp32.cu), and in bfloat16 (train_gpt2.cu), whose products use tensor cores by way of WMMA. The model is
small, with random parameters. In bfloat16 there is a forward pass alone: llm.c's loss in bfloat16 takes vocabularies of
8,192 and more.

Logits and losses are compared with those of NumPy in double precision (``gpt2/reference.py``), and the gradients by
the derivative of NumPy's loss along them. PYTHON, which is this one by default, is one that can import PyTorch: where
it can, logits, losses, all gradients, and the losses of the next steps are compared with PyTorch's, too. Then each
trace is run. ``RESULTS-TRANSFORMER.md`` is written.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gpt2.reference import Parameters, Shape, logits_of, losses_of, random_model, slope, write_model
from tracing import HERE, MANYSCALE, SHOWN, called, checkout, first_error, nvcc

URL = "https://github.com/karpathy/llm.c"
CHECKOUT = "llm.c"
COMMIT = "f1e2ace651495b74ae22d45d1723443fd00ecd3a"
ARCHITECTURES = (80, 90)
WITHOUT_BARRIER = "            __stcs(dpreatt_bth + t3, scale * acc);\n        }\n"
"""Where softmax_autoregressive_backward_kernel of train_gpt2_fp32.cu lacks a barrier: a warp writes its sum of the next
row into ``block_acc`` while others may still read those of this row. Warps run one after the other here, up to a
barrier, so that the sums are wrong; on hardware warps that happen to run side by side hide it. The barrier is added."""
SEED = 20240326
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Case:
    """A type of data. Tolerances are of the largest element of a tensor; without ``steps`` there are logits only."""

    steps: int
    shape: Shape
    logits: float
    gradients: float
    words: tuple[str, ...] = ()


CASES = {
    "fp32": Case(2, Shape(), 1e-5, 1e-5),
    # some 16 tensors, each rounded by half a unit in the last place at most, lie between the tokens and the logits
    "bf16": Case(0, Shape(channels=256), 16 * 2.0**-9, 0.0, ("-std=c++17", "-DENABLE_BF16")),
}


@dataclass
class Compared:
    """``errors`` are relative to the largest element; ``problems`` say what is not within its tolerance."""

    type_of_data: str
    architecture: int
    errors: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    launches: int = 0
    warp_instructions: int = 0
    cycles: float = 0.0

    def expect(self, what: str, got: npt.ArrayLike, expected: npt.ArrayLike, tolerance: float) -> None:
        got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        self.errors[what] = error
        if not error <= tolerance:  # NaN, too
            self.problems.append(f"{what}: {error:.1e} instead of at most {tolerance:.0e}")


def checked_out(repository: Path, scratch: Path) -> Path:
    """The sources at the commit, with the barrier. Raises RuntimeError."""
    sources = scratch / "sources"
    sources.mkdir(exist_ok=True)
    status, _, told = called(["sh", "-c", f"git -C '{repository}' archive {COMMIT} | tar x -C '{sources}'"], scratch)
    if status:
        raise RuntimeError(told)
    single = sources / "train_gpt2_fp32.cu"
    text = single.read_text()
    if text.count(WITHOUT_BARRIER) != 1:
        raise RuntimeError(f"{single}: the loop that lacks a barrier is not there")
    single.write_text(text.replace(WITHOUT_BARRIER, WITHOUT_BARRIER + "        block.sync();\n"))
    return sources


def build(type_of_data: str, architecture: int, sources: Path, scratch: Path) -> Path:
    """The program. Raises RuntimeError."""
    program = scratch / f"{type_of_data}-{architecture}"
    if program.exists():
        return program
    compiler, linked = nvcc()
    words = ["-O3", f"-arch=sm_{architecture}", *CASES[type_of_data].words, f"-I{sources}", f"-I{HERE / 'gpt2'}"]
    status, _, told = called(
        [compiler, *words, str(HERE / "gpt2" / f"{type_of_data}.cu"), "-o", str(program), *linked], scratch
    )
    if status:
        raise RuntimeError(first_error(told))
    return program


@dataclass(frozen=True)
class Result:
    """What the program computed: logits (B, T, V), and where it took steps, losses (B, T), gradients by name, the mean
    loss of each step."""

    logits: Floats
    losses: Floats
    gradients: Mapping[str, Floats]
    means: Floats

    @staticmethod
    def read(path: Path, case: Case) -> Result:
        shape, values = case.shape, np.fromfile(path, np.float32)
        sizes: dict[str, tuple[int, ...]] = {"logits": (shape.batch, shape.tokens, shape.vocabulary)}
        if case.steps:
            sizes |= {"losses": (shape.batch, shape.tokens), **shape.parameters(), "means": (case.steps,)}
        ends = np.cumsum([math.prod(size) for size in sizes.values()])
        if ends[-1] != len(values):
            raise RuntimeError(f"{path.name} has {len(values)} numbers instead of {ends[-1]}")
        parts = {name: part.reshape(sizes[name]) for name, part in zip(sizes, np.split(values, ends[:-1]), strict=True)}
        nothing = np.zeros(0, np.float32)
        gradients = {name: parts[name] for name in shape.parameters() if name in parts}
        return Result(parts["logits"], parts.get("losses", nothing), gradients, parts.get("means", nothing))


def traced(
    type_of_data: str, architecture: int, program: Path, model: Path, tokens: Path, scratch: Path
) -> tuple[Path, Result]:
    """The trace, and what the program computed. Raises RuntimeError."""
    case, name = CASES[type_of_data], f"{type_of_data}-{architecture}"
    trace, result = scratch / f"trace-{name}", scratch / f"result-{name}"
    arguments = [str(model), str(tokens), str(result), *map(str, (case.shape.batch, case.shape.tokens, case.steps))]
    if not trace.exists():
        words = [
            "trace",
            "--level",
            "gpu",
            "--as",
            SHOWN[architecture],
            "-o",
            str(trace),
            "--",
            str(program),
            *arguments,
        ]
        status, out, told = called([*MANYSCALE, *words], scratch)
        if status:
            raise RuntimeError(
                first_error("\n".join(line for line in (out + told).splitlines() if "tracing" not in line))
            )
    return trace, Result.read(result, case)


def with_torch(
    python: str, type_of_data: str, parameters: Parameters, tokens: npt.NDArray[np.int32], scratch: Path
) -> dict[str, Floats] | None:
    """What PyTorch computes, or None where that Python has none. Raises RuntimeError."""
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        return None
    case, given, made = CASES[type_of_data], scratch / f"case-{type_of_data}.npz", scratch / f"torch-{type_of_data}.npz"
    numbers = {"heads": case.shape.heads, "vocabulary": case.shape.vocabulary, "steps": case.steps}
    exact = {name: each.astype(np.float32) for name, each in parameters.items()}
    np.savez(given, tokens=tokens, bf16=type_of_data == "bf16", **numbers, **exact)
    done = subprocess.run(
        [python, str(HERE / "gpt2" / "with_torch.py"), str(given), str(made)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(np.load(made))


def compare_with_numpy(
    compared: Compared, case: Case, result: Result, parameters: Parameters, tokens: npt.NDArray[np.int32]
) -> None:
    logits = logits_of(case.shape, parameters, tokens[0])
    losses = losses_of(logits, tokens[1])
    compared.expect("logits, NumPy", result.logits, logits, case.logits)
    if not case.steps:
        return
    compared.expect("losses, NumPy", result.losses, losses, case.logits)
    compared.expect("mean loss, NumPy", result.means[:1], losses.mean(), case.logits)
    generator = np.random.default_rng(SEED + 1)
    worst, at = 0.0, ""
    for name, gradient in result.gradients.items():
        # along the gradient itself, and along a random direction, by which one that is wrong elsewhere differs
        exact = gradient.astype(np.float64)
        length = float(np.sqrt((exact**2).sum()))
        noise = generator.normal(size=exact.shape)
        for direction in (exact / length, noise / math.sqrt(float((noise**2).sum()))):
            error = (
                abs(slope(case.shape, parameters, tokens, {name: direction}, 1e-3) - float((exact * direction).sum()))
                / length
            )
            worst, at = max((worst, at), (error, name))
    compared.errors["slopes, NumPy"] = worst
    if not worst <= case.gradients:
        compared.problems.append(f"slope along {at}: {worst:.1e} instead of at most {case.gradients:.0e}")


def compare_with_torch(compared: Compared, case: Case, result: Result, torch: Mapping[str, Floats]) -> None:
    compared.expect("logits, PyTorch", result.logits, torch["logits"], case.logits)
    if not case.steps:
        return
    compared.expect("losses, PyTorch", result.losses, torch["losses"], case.logits)
    for name, gradient in result.gradients.items():
        compared.expect(f"gradient of {name}, PyTorch", gradient, torch[f"gradient_{name}"], case.gradients)
    compared.expect("mean losses of the steps, PyTorch", result.means, torch["means"], case.logits)


def run(compared: Compared, trace: Path, scratch: Path) -> None:
    """Raises RuntimeError."""
    out = scratch / f"run-{compared.type_of_data}-{compared.architecture}"
    if not out.exists():
        words = [
            "run",
            "--workload",
            str(trace),
            "--target",
            SHOWN[compared.architecture],
            "--no-report",
            "-o",
            str(out),
        ]
        status, _, told = called([*MANYSCALE, *words], scratch)
        if status:
            raise RuntimeError(first_error(told))
    stats = json.loads((out / "stats.json").read_text())
    compared.launches = int(stats["gpu.launches"]["value"])
    compared.warp_instructions = int(stats["gpu.warp_instructions"]["value"])
    compared.cycles = float(stats["gpu.cycles"]["value"])


def compared_case(
    type_of_data: str, architecture: int, sources: Path, python: str, scratch: Path
) -> tuple[Compared, Path]:
    """The comparison, and the trace. Raises RuntimeError."""
    case, compared = CASES[type_of_data], Compared(type_of_data, architecture)
    parameters = random_model(case.shape, type_of_data, SEED)
    tokens = np.random.default_rng(SEED).integers(0, case.shape.vocabulary, (2, case.shape.batch, case.shape.tokens))
    tokens = tokens.astype(np.int32)
    model, tokens_file = scratch / f"model-{type_of_data}.bin", scratch / f"tokens-{type_of_data}.bin"
    write_model(model, case.shape, type_of_data, parameters)
    tokens.tofile(tokens_file)
    program = build(type_of_data, architecture, sources, scratch)
    trace, result = traced(type_of_data, architecture, program, model, tokens_file, scratch)
    compare_with_numpy(compared, case, result, parameters, tokens)
    torch = with_torch(python, type_of_data, parameters, tokens, scratch)
    if torch is not None:
        compare_with_torch(compared, case, result, torch)
        compared.expect("PyTorch itself", torch["logits"], logits_of(case.shape, parameters, tokens[0]), case.logits)
    return compared, trace


def write_report(results: list[Compared], torch_version: str) -> None:
    lines = [
        "# llm.c's GPT-2 without a GPU",
        "",
        f"Written by `transformer.py` from {URL} at {COMMIT[:12]},",
        "with a stand-in for cuBLAS (`gpt2/`). Errors are the largest difference over the largest element: of the",
        "logits, of the loss of each token, and of the gradients, where the worst of 16 tensors is told. NumPy",
        "computes in double precision; its *slopes* are derivatives of its loss along the gradients and along random",
        f"directions, over the gradient's length. PyTorch {torch_version} computes on the CPU in the program's type.",
        "In single precision, steps of training are taken, and the losses of all steps are compared; in bfloat16 there",
        "is a forward pass alone. The column before the last has the error of PyTorch's logits to NumPy's.",
        "",
        "One kernel of llm.c's, `softmax_autoregressive_backward_kernel`, lacks a barrier, which is added. Without it",
        "most gradients are wrong here, by up to 16 % of the largest element, as warps run one after the other up to",
        "each barrier.",
        "",
        "| type | GPU | launches | warp instructions | cycles | logits, NumPy | losses, NumPy | slopes, NumPy "
        "| logits, PyTorch | losses, PyTorch | gradients, PyTorch | steps, PyTorch | PyTorch itself | within |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for each in results:
        of_gradients = max((error for what, error in each.errors.items() if what.startswith("gradient")), default=None)
        columns = ["logits, NumPy", "losses, NumPy", "slopes, NumPy", "logits, PyTorch", "losses, PyTorch"]
        errors = [each.errors.get(name) for name in columns]
        errors += [
            of_gradients,
            each.errors.get("mean losses of the steps, PyTorch"),
            each.errors.get("PyTorch itself"),
        ]
        cells = [each.type_of_data, SHOWN[each.architecture], f"{each.launches:,}", f"{each.warp_instructions:,}",
                 f"{each.cycles:,.0f}", *("" if error is None else f"{error:.1e}" for error in errors),
                 "; ".join(each.problems) or "yes"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "The models, and the tolerances:",
        "",
        "| type | layers, heads, channels, vocabulary | batch, tokens | steps | logits, losses | gradients |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, case in CASES.items():
        shape = case.shape
        sizes = f"{shape.layers}, {shape.heads}, {shape.channels}, {shape.vocabulary} | {shape.batch}, {shape.tokens}"
        of_gradients = f"{case.gradients:.1e}" if case.steps else ""
        lines.append(f"| {name} | {sizes} | {case.steps} | {case.logits:.1e} | {of_gradients} |")
    (HERE / "RESULTS-TRANSFORMER.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="transformer-"))).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        sources = checked_out(checkout(options.sources, CHECKOUT, URL), scratch)
    except RuntimeError as error:
        sys.exit(str(error))
    results = []
    for type_of_data in CASES if options.only is None else (options.only,):
        for architecture in ARCHITECTURES:
            compared = Compared(type_of_data, architecture)
            try:
                compared, trace = compared_case(type_of_data, architecture, sources, options.torch, scratch)
                run(compared, trace, scratch)
            except RuntimeError as error:
                compared.problems.append(str(error))
            results.append(compared)
            print(compared, flush=True)
    if options.only is None:
        made = next(scratch.glob("torch-*.npz"), None)
        write_report(results, str(np.load(made)["version"]) if made else "(not there)")
    return int(any(each.problems for each in results))


if __name__ == "__main__":
    sys.exit(main())
