"""Builds self-checking CUDA programs of several suites, runs them under ``manyscale trace --level gpu`` on machines
without a GPU, and writes down which compute what they should.

    python tests/validation/cuda/suites.py SOURCES [--suite NAME] [--only NAME] [--arch 75,80,86,90] [--scratch FOLDER]

SOURCES is a folder that holds a checkout of each suite under its name (``cuda-samples``, ``HeCBench``, ...); one that
is not there is cloned. The commits stand in the tables (``suite_*.py``). A program is compiled with ``-Xptxas -O3`` for
all architectures, and with ``-Xptxas -O0`` for one of them. It is right where its own check says so, and where its
results are alike on all architectures and at both levels. ``RESULTS-SUITES.md`` is written from all results that the
scratch folder holds, so that suites may be run one by one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import suite_hecbench
import suite_parboil
import suite_polybench
import suite_samples
from self_checking import Program, Suite
from suite_report import write_report
from tracing import (
    HERE,
    SHOWN,
    called,
    checkout,
    children_seconds,
    first_error,
    nvcc,
    object_file,
    traced,
    write_turing,
)

from manyscale.runner.readers import workload_folder

SUITES = (suite_samples.SUITE, suite_hecbench.SUITE, suite_polybench.SUITE, suite_parboil.SUITE)
CPU_LIMIT = int(os.environ.get("CPU_LIMIT", "60"))  # seconds, of a run
KEPT = ("cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpyFromSymbol", "cudaMallocManaged", "cudaFree")  # by results.c


@dataclass(frozen=True)
class Ran:
    """One run; ``problem``: why it is not right, or None; ``digest`` of what came back from the device."""

    architecture: int
    level: int
    problem: str | None
    launches: int = 0
    instructions: int = 0
    seconds: float = 0.0
    digest: str = ""
    difference: float = 0.0

    def problem_of(self, program: Program) -> str | None:
        """Also where its results are not like those of the first run."""
        if self.problem is None and program.alike is not None and self.difference > program.alike:
            return f"its results differ by {self.difference:.2g} from those of the first run"
        return self.problem


def checked_out(suite: Suite, program: Program, sources: Path, scratch: Path) -> Path:
    """A copy of what the program needs, at the suite's commit, with its edits. Raises RuntimeError."""
    repository = checkout(sources, suite.checkout, suite.url)
    root = scratch / "sources" / suite.checkout / program.name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    archive = root.with_suffix(".tar")
    wanted = [program.folder, *suite.needs, *program.needs, ":(exclude,glob)**/doc/**"]
    for command in (["git", "archive", "-o", str(archive), suite.commit, *wanted],
                    ["tar", "-xf", str(archive), "-C", str(root)]):  # fmt: skip
        status, _, told = called(command, repository)
        if status:
            raise RuntimeError(f"{suite.name}, {program.name}: {told}")
    archive.unlink()
    if program.inputs is not None:
        program.inputs(root / program.folder)
    for name, old, new in program.edits:
        path = root / program.folder / name
        text = path.read_text(errors="surrogateescape")
        if old not in text:
            raise RuntimeError(f"{suite.name}, {program.name}: {name} has no `{old}`")
        path.write_text(text.replace(old, new), errors="surrogateescape")
    return root


def compiled(suite: Suite, program: Program, root: Path, level: int, codes: list[int], kept: Path, made: Path) -> str:
    """Compiles for the architectures ``codes``; the first error, or ""."""
    folder = root / program.folder
    found = [sorted(folder.glob(each)) for each in program.sources.split() or ("*.cu", "*.cpp")]
    files = [str(path.relative_to(folder)) for each in found for path in each]
    path, link = nvcc()
    command = [path, "-w", "-O2", f"-Xptxas=-O{level}", *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in codes)]
    command += ["-I.", *suite.words.format(root=root).split(), *program.words.format(root=root).split(), *files]
    command += [str(kept), *(word for name in KEPT for word in ("-Xlinker", f"--wrap={name}")), "-o", str(made), *link]
    status, out, told = called(command, folder)
    return first_error(told + out) if status else ""


def run(
    program: Program, made: Path, root: Path, architecture: int, level: int, scratch: Path, *, keeps: bool
) -> tuple[Ran, bytes]:
    """Traces and checks a program that is built; and what came back from the device. ``keeps`` what was traced."""
    folder = scratch / "runs" / made.parent.name / f"{made.name}-{architecture}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shown = str(scratch / "turing.yaml") if architecture == 75 else SHOWN[architecture]
    words = ["--level", "gpu", "--as", shown, "-o", str(folder / "traced"), "--", str(made)]
    words += program.arguments.format(root=root).split()
    before = children_seconds()
    sys.stdout.flush()
    results = str(folder / "results")
    status, printed, told = traced(words, root / program.folder, CPU_LIMIT, RESULTS=results)
    seconds = children_seconds() - before
    (folder / "printed").write_text(f"{printed}\n--- {status}\n{told}")
    problem = failure(program, printed, told, status)
    kept = (folder / "results").read_bytes() if (folder / "results").exists() else b""
    (folder / "results").unlink(missing_ok=True)
    if not (folder / "traced" / "workload.json").exists():
        return Ran(architecture, level, problem or "nothing was recorded", seconds=seconds), kept
    workload = workload_folder.read(folder / "traced")
    if set(workload.column("launches", "binary_version").tolist()) != {architecture}:
        problem = "ran machine code of another architecture"
    instructions = int(workload.column("launches", "warp_instructions").sum())
    if not keeps:
        shutil.rmtree(folder / "traced")
    digest = hashlib.sha256(kept).hexdigest() if kept else ""
    launches = workload.tables["launches"].num_rows
    return Ran(architecture, level, problem, launches, instructions, seconds, digest), kept


def failure(program: Program, printed: str, told: str, status: int) -> str | None:
    """Why a run is not right, by what was said and printed."""
    for code in ("cuda-launch-stopped", "cuda-not-supported"):
        if code in told:
            lines = [line for line in told.splitlines() if "manyscale" in line and "tracing at level" not in line]
            return next((line for line in lines), code)
    if status in (-9, -24, 137, 152) or "signal 24" in told:
        return f"took more than {CPU_LIMIT} CPU seconds"
    if found := re.search(program.fails, printed):
        return f"printed `{line_of(printed, found.start())}`"
    if status or not re.search(program.passes, printed):
        lines = [line for line in (told.strip() or printed.strip()).splitlines() if line.strip()]
        return f"exit status {status}, its check did not pass; last line `{lines[-1].strip() if lines else ''}`"
    return None


def line_of(text: str, place: int) -> str:
    return text[text.rfind("\n", 0, place) + 1 :].partition("\n")[0].strip()


def pieces(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int(np.frombuffer(data, np.int64, 1, at)[0])
        found.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return found


def difference(one: bytes, two: bytes, numbers: str) -> float:
    """The largest difference of two runs' results, of each piece relative to its largest number; infinite where the
    pieces are others, or where one number is finite and the other is not."""
    worst = 0.0
    first, second = pieces(one), pieces(two)
    if [len(each) for each in first] != [len(each) for each in second]:
        return np.inf
    for left, right in zip(first, second, strict=True):
        if left == right:
            continue
        if len(left) % int(numbers[1:]):
            return np.inf
        a, b = (np.frombuffer(each, numbers).astype(float) for each in (left, right))
        differs = np.frombuffer(left, f"u{numbers[1:]}") != np.frombuffer(right, f"u{numbers[1:]}")
        if not np.isfinite(a[differs]).all() or not np.isfinite(b[differs]).all():
            return np.inf
        finite = np.isfinite(a) & np.isfinite(b)
        worst = max(worst, float(np.abs(a - b)[differs].max() / max(np.abs(a[finite]).max(), 1e-300)))
    return worst


def all_runs(
    suite: Suite, program: Program, number: int, codes: list[int], sources: Path, scratch: Path, *, reuses: bool,
    keeps: bool,
) -> list[Ran]:  # fmt: skip
    """Of one program: all architectures at -O3, and one, by its number, at -O0. ``reuses`` what was built before,
    ``keeps`` what is traced, of -O3."""
    root = checked_out(suite, program, sources, scratch)
    programs = scratch / "programs" / suite.checkout / program.name
    programs.mkdir(parents=True, exist_ok=True)
    kept = object_file("results.c", scratch)
    found: list[Ran] = []
    first = b""
    number, remainder = divmod(number, suite.unoptimised_every)
    codes = [code for code in codes if code >= program.least]
    for level, of in ((3, codes), (0, [] if remainder else [codes[number % len(codes)]])):
        if not of:
            continue
        made = programs / f"{program.name}-O{level}"
        is_there = reuses and made.exists()
        error = "" if is_there else compiled(suite, program, root, level, of, kept, made)
        for architecture in of:
            if error:
                found.append(Ran(architecture, level, f"not built: {error}"))
                continue
            ran, results = run(program, made, root, architecture, level, scratch, keeps=keeps and level == 3)
            first = first or results
            by = difference(first, results, program.numbers) if first and program.alike is not None else 0.0
            found.append(Ran(**{**asdict(ran), "difference": by}))
            state = found[-1].problem_of(program) or "right"
            print(f"{suite.name} {program.name} sm_{architecture} -O{level}: {state}; {ran.launches} launches, "
                  f"{ran.instructions} warp instructions, {ran.seconds:.1f} CPU s, {found[-1].difference:.2g}",
                  flush=True)  # fmt: skip
        if error:
            print(f"{suite.name} {program.name} -O{level}: {error}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--suite", help="names that contain this")
    parser.add_argument("--only", help="programs with these names, with commas between them")
    parser.add_argument("--arch", default="75,80,86,90")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--reuse", action="store_true", help="programs that the scratch folder holds")
    parser.add_argument("--keep", action="store_true", help="what is traced, in the scratch folder, under runs")
    parser.add_argument("--report", action="store_true", help="write RESULTS-SUITES.md of what was run before")
    options = parser.parse_args()
    codes = [int(each) for each in options.arch.split(",")]
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="suites-"))).resolve()
    (scratch / "results").mkdir(parents=True, exist_ok=True)
    write_turing(scratch)
    bad = False
    for suite in SUITES:
        for number, program in enumerate(suite.programs):
            wanted = options.only is None or program.name in options.only.split(",")
            if options.report or not wanted or (options.suite or "") not in suite.name:
                continue
            runs = all_runs(suite, program, number, codes, options.sources.resolve(), scratch,
                            reuses=options.reuse, keeps=options.keep)  # fmt: skip
            bad |= any(each.problem_of(program) for each in runs)
            if options.arch == parser.get_default("arch"):
                stored = json.dumps([asdict(each) for each in runs])
                (scratch / "results" / f"{suite.checkout}-{program.name}.json").write_text(stored)
    stored = {(suite.name, program.name): [Ran(**each) for each in json.loads(path.read_text())]
              for suite in SUITES for program in suite.programs
              if (path := scratch / "results" / f"{suite.checkout}-{program.name}.json").exists()}  # fmt: skip
    if options.report:
        found = scratch / "opcodes.json"
        opcodes = json.loads(found.read_text()) if found.exists() else None
        write_report(SUITES, stored, opcodes, HERE / "RESULTS-SUITES.md")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
