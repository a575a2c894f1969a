"""Compiles the kernels that commands need, by running such commands on small inputs, side by side on all cores.

The build of a wheel runs ``python -m manyscale.runner.wheel.exercises [--data tests/data] [--into FOLDER]``. Kernels
are then in the user's cache directory, and with ``--into`` a copy of all that belong to the present sources there.
Whatever a user can ask for that compiles something has a line below; ``tests/test_wheel.py`` finds what has none.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import manyscale
from manyscale.models.kernels import compiled
from manyscale.runner import shipped
from manyscale.runner.system import usable_cpus

# Each entry is a process, which runs its commands one after the other; what takes longest comes first. {examples}: the
# shipped traces; {data}: tests/data of a checkout, without which entries that name it are left out.
EXERCISES: Final[tuple[tuple[str, ...], ...]] = (
    (
        "run bfs-16",
        "run bfs-16 --sampling launches=tbpoint",
        "run bfs-16 --launch 9-10 --sampling blocks=tbpoint",
        "run bfs-16 --launch 9 --set gpu.order=windows --set gpu.groups=2",
        "run bfs-16 --launch 9-10 --set gpu.caches=warm",
        "run bfs-16 --launch 9 --set target.node.gpu.scheduler=two-level",
        "run bfs-16 --launch 9 --target a100",
        "run bfs-16 --launch 9 --target rtx3080ti",
    ),
    (
        "run multizone-8-design --set sweep={{}}",
        "run multizone-8-design --set sweep={{}} --sampling tasks=lazy --target marenostrum3",
        "run multizone-8-design --set sweep={{}} --model cpu=interval",
        "run multizone-8 --target marenostrum3 --model cpu=detailed --set workload.detail=multizone-8-detail"
        " --set mapping.cores_per_rank=8",
        "run multizone-8 --target marenostrum3 --model cpu=detailed --set workload.detail=multizone-8-detail"
        " --set mapping.cores_per_rank=8 --set runtime.policy=data-reuse",
        "run multizone-8 --target marenostrum3 --model cpu=interval --set workload.detail=multizone-8-detail"
        " --set mapping.cores_per_rank=8 --set runtime.policy=data-reuse",
    ),
    (
        "predict matmul --sizes 40",
        "predict matmul --sizes 40 --target epyc-zen4 --steady",
        "profile {examples}/matmul-20.tar.zst --target epyc-zen4 --simulate --steady",
        "profile {examples}/matmul-20.tar.zst --simulate '50 %' --method shards --rate '100 %'",
        "profile {examples}/matmul-20.tar.zst --granularity byte",
        "profile {examples}/matmul-20.tar.zst --method blocks --frames random --together --simulate",
        "profile {examples}/matmul-20.tar.zst --method blocks-statstack --simulate --prefetch",
        "profile {examples}/matmul-20.tar.zst --method statstack --granularity word",
    ),
    (
        "run bfs-16 --launch 9-10 --model gpu=gpumech",
        "run bfs-16 --launch 9-10 --model gpu=gpumech --set gpu.form=extended",
    ),
    (
        "run --workload {data}/gpu/two-streams/kernelslist.g --target rtx3070",
        "run --workload {data}/chakra/pair --target dgx-h100",
        "run dlrm-8",
        "run dlrm-8 --model network=flow --set gpu.collectives=model",
        "run --workload {data}/gpu/two-streams/kernelslist.g --target rtx3070 --model network=flow",
        "run --workload {data}/gpu/two-streams/kernelslist.g --target rtx3070 --model network=dimemas",
    ),
    (
        "run cholesky-8 --target marenostrum3 --set mapping.cores_per_rank=8",
        "run cholesky-8 --target marenostrum3 --set mapping.cores_per_rank=8 --set runtime.policy=critical-path",
        "run cholesky-8 --target marenostrum3 --set mapping.cores_per_rank=16 --set mapping.ranks_per_node=1"
        " --set 'target.node.core_kinds=[{{cores: 4, speed: 1}}, {{cores: 12, speed: 0.4}}]'"
        " --set runtime.policy=predicted-critical-path",
        "run jacobi-8 --target marenostrum3 --set mapping.cores_per_rank=4",
        "run jacobi-8 --target marenostrum3 --set mapping.cores_per_rank=4 --model network=dimemas",
        "run jacobi-8 --target fattree256 --set target.node.cores_per_socket=4 --set mapping.cores_per_rank=4"
        " --model network=flow",
        "run cholesky-8",
    ),
    (
        "run lulesh-64 --target fattree256 --model network=flow",
        "run lulesh-64 --model network=loggops",
        "run lulesh-64 --target marenostrum3 --model network=dimemas",
    ),
    (
        "evaluate {data}/detail/cholesky-4.omt.xz --cores 4",
        "profile {data}/detail/cholesky-4.omt.xz --interval 10000 --cores 4 --target marenostrum3 --steady",
        "plan --method taskpoint {examples}/multizone-8-detail.tar.zst --set cores=8 --target marenostrum3 -o tasks",
    ),
    (
        "run lulesh-64",
        "view",
        "what-if lulesh-8",
        "clusters {examples}/lulesh-8.tar.zst",
        "show cholesky-8 -o shown",
        "predictability {examples}/cholesky-8.tar.zst",
        "iterations {examples}/lulesh-8.tar.zst",
        "convert {examples}/lulesh-8.tar.zst --to goal -o goal",
        "convert goal -o from-goal",
        "run --workload goal --target laptop --model network=loggops",
        "extrapolate hpcg-8 hpcg-64 --ranks 1331 -o hpcg-1331",  # collectives of many ranks are called
        "run --workload hpcg-1331 --target crossbar256 --set target.nodes=1331",
        "convert {data}/paraver/lulesh-7+1.prv.gz -o from-paraver",
        "convert {data}/dimemas/ar.dim.gz -o from-dimemas",
        "convert {data}/dumpi/testtrace.meta -o from-dumpi",
    ),
    (
        "convert {data}/detail/bs16_O1.lk.xz -o from-lackey",
        "convert {data}/detail/bs16_clangO1_sancov.npz -o from-coverage",
        "plan --method simpoint {data}/detail/phases.m.bb.xz -o points",
        "plan --method simpoint {data}/detail/bs16_O1.lk.xz --set interval=1000 --set vectors=signature -o signatures",
        "run --workload {data}/detail/bs16_O1.lk.xz --target epyc-zen4 --model cpu=detailed"
        " --sampling intervals=simpoint --set intervals.instructions=1000",
        "run --workload {data}/chapter6/hydro-1-detail.tar.zst --target marenostrum3 --model cpu=detailed"
        " --sampling intervals=sbbv+ccv+mcv --set intervals.instructions=20000 --set mapping.cores_per_rank=4",
        "plan --method simprof {data}/stacks/spstk.stk.xz -o units",
        "plan --method tbpoint {examples}/bfs-16 -o launches",
    ),
)
_HERE: Final = {"run": ["--executor", "local"], "predict": ["--executor", "local"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of them; 1 if one failed."""
    parser = argparse.ArgumentParser(description="Compile the kernels that commands need.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="tests/data of a checkout: traces in more formats")
    parser.add_argument("--into", type=Path, metavar="DIR", help="folder for a copy of the kernels")
    parser.add_argument("--line", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.line is not None:
        return _run(options.line.split("\n"))
    modules = _kernel_modules()
    done = compiled.folder() / f"exercised-{_digest(modules, options.data is not None)}"  # by an earlier build
    failed = False if done.exists() else _run_all(_with_places(options.data))
    if not failed:
        done.touch()
    if options.into is not None:
        print(f"{copy_kernels(modules, options.into)} compiled kernels, {_size(options.into):.1f} MB", flush=True)
    return int(failed)


def _with_places(data: Path | None) -> list[list[str]]:
    places = {"examples": shipped.folder(), "data": data and data.absolute()}
    usable = [entry for entry in EXERCISES if data is not None or "{data}" not in "".join(entry)]
    return [[command.format(**places) for command in entry] for entry in usable]


def _run_all(entries: Sequence[Sequence[str]]) -> bool:
    """One more at a time than there are cores: one may wait for a kernel that another compiles."""
    workers = len(usable_cpus()) + 1
    print(f"compiling kernels for {compiled.environment()} on {workers - 1} cores ...", flush=True)
    begin = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        failures = [failure for failure in pool.map(_process, entries) if failure]
    print(f"{len(entries)} processes, {time.monotonic() - begin:.0f} s", flush=True)
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    return bool(failures)


def _process(commands: Sequence[str]) -> str:
    """Run commands in a process and a folder of its own, so that only kernels are kept. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **os.environ, "XDG_CACHE_HOME": f"{scratch}/cache", "NUMBA_CACHE_DIR": str(compiled.folder().parent)
        }  # fmt: skip
        command = [sys.executable, "-m", __spec__.name, "--line", "\n".join(commands)]
        begin = time.monotonic()
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
    print(f"  {time.monotonic() - begin:5.0f} s  {commands[0]}", flush=True)
    return "" if done.returncode == 0 else f"failed: {done.stderr.strip()[-1500:]}"


def _run(commands: Sequence[str]) -> int:
    from manyscale.runner.cli import main as run_command
    from manyscale.runner.view import tiles

    for command in commands:
        words = shlex.split(command)
        if words == ["view"]:  # it would serve until it is interrupted
            tiles.warm()
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            status = run_command([*words, *_HERE.get(words[0], []), "--debug"])
        if status:
            print(f"{command}: exit status {status}", file=sys.stderr)
            return status
    return 0


def _digest(modules: Sequence[str], *more: object) -> str:
    """Of everything that kernels and the exercises follow from."""
    digests = [compiled.sources_digest(module) for module in modules]
    return hashlib.sha256(f"{digests} {EXERCISES} {more}".encode()).hexdigest()[:24]


def copy_kernels(modules: Sequence[str], into: Path) -> int:
    """Copy every kept kernel that belongs to the present sources. Returns how many."""
    kept = compiled.folder()
    target = into / compiled.environment()
    target.mkdir(parents=True, exist_ok=True)
    number = 0
    for module in modules:
        for file in kept.glob(f"{module}.*-{compiled.sources_digest(module)}-*.nbc"):
            shutil.copyfile(file, target / file.name)
            number += 1
    return number


def _kernel_modules() -> list[str]:
    """Modules of manyscale with kernels, loaded: their sources name where ``njit`` comes from."""
    found = []
    for info in pkgutil.walk_packages(manyscale.__path__, "manyscale."):
        spec = find_spec(info.name)
        if spec is not None and spec.origin and "manyscale.models.kernels" in Path(spec.origin).read_text("utf-8"):
            import_module(info.name)
            found.append(info.name)
    return found


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*.nbc")) / 1e6


if __name__ == "__main__":
    sys.exit(main())
