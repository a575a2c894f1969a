"""The command line. Exit status: 0, 1 for a run that failed, 2 for bad input, 130 when interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors become one line on standard error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    commands = import_module(f"manyscale.runner.cli.{options.module}")
    try:
        return int(getattr(commands, options.command.replace("-", "_"))(options))
    except BrokenPipeError:
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if options.debug:
            raise
        status, line = _status_and_line(error)
        print(f"manyscale: {line}", file=sys.stderr)
        return status


def _status_and_line(error: BaseException) -> tuple[int, str]:
    line = " ".join(str(error).split("\n"))
    if isinstance(error, UserError):
        return 2, line
    if isinstance(error, RunError):
        return 1, line
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted; continue with --resume -o DIR"
    if isinstance(error, OSError) and error.filename is not None:
        return 1, f"{error.filename}: {error.strerror}; mend this and run again"
    return 1, f"a defect of manyscale, not of the input ({type(error).__name__}: {line}); --debug shows where"


class _Parser(argparse.ArgumentParser):
    """Errors in one line, as those of the commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"manyscale: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="manyscale",
        description="Predicts how long a parallel application takes on a machine that may not exist yet.",
    )
    parser.add_argument("--version", action="version", version=f"manyscale {__version__}")
    parser.set_defaults(debug=False, command=None, module="commands")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_run(commands)
    _add_plan(commands)
    _add_trace(commands)
    _add_convert(commands)
    _add_profile(commands)
    _add_predict(commands)
    _add_evaluate(commands)
    _add_questions(commands)

    status = _command(commands, "status", "say how far a run is")
    status.add_argument("directory", type=Path, help="run directory")

    report = _command(commands, "report", "write the timeline traces and the report of a finished run")
    report.add_argument("directory", type=Path, help="run directory")

    accuracy = _command(commands, "accuracy", "predict the shipped validation cases and compare with their references")
    accuracy.add_argument("cases", nargs="*", help="names of cases (default: all)")
    _add_cache(accuracy)

    _add_calibrate(commands)

    extrapolate = _command(commands, "extrapolate", "make a workload for more ranks than were traced")
    extrapolate.set_defaults(module="extrapolate")
    extrapolate.add_argument("traces", nargs="+", metavar="TRACE", help="traces of different numbers of ranks")
    extrapolate.add_argument("--ranks", type=int, metavar="N", required=True, help="ranks of the workload that is made")
    extrapolate.add_argument(
        "--grid", metavar="XxYxZ", help="its grid, the first number varies fastest (default: as the largest trace's)"
    )
    extrapolate.add_argument("--format", default="auto", metavar="NAME", help="format of the traces (default: found)")
    extrapolate.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder to write")

    _command(commands, "examples", "list the shipped examples, targets and what can be plugged in")
    return parser


def _add_calibrate(commands: argparse._SubParsersAction[_Parser]) -> None:
    calibrate = _command(
        commands, "calibrate", "make a target machine from measured ping-pongs (its network) or of this node (--node)"
    )
    calibrate.set_defaults(module="calibrate")
    calibrate.add_argument(
        "measurements", nargs="*", type=Path, help="output of osu_latency (and osu_bw), IMB PingPong, NetPIPE, or CSV"
    )
    calibrate.add_argument("--node", action="store_true", help="measure caches, memory and instructions of this node")
    calibrate.add_argument("--quick", action="store_true", help="measure the node in 10 s, less exactly")
    calibrate.add_argument("--core", type=int, metavar="N", help="CPU that is measured (default: the last)")
    calibrate.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="CACHE=SIZE",
        help="size of a cache that the system does not say, or says wrongly, such as L3='32 MiB'",
    )  # fmt: skip
    calibrate.add_argument(
        "--base", default="laptop", metavar="NAME", help="machine whose network (or, with --node, node) is replaced"
    )
    calibrate.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/calibration-NNN)")


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(command=name)
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    return parser


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="where results of work units are kept (default: the user's cache)"
    )


def _add_executor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--executor", default="auto", metavar="NAME", help="auto, local or ray (default: auto)")
    parser.add_argument("--address", help="Ray cluster to join, e.g. auto or 10.0.0.1:6379")
    parser.add_argument("--workers", type=int, metavar="N", help="Ray actors (default: one per core)")


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", nargs="?", help="a study file, or the name of a shipped example")
    parser.add_argument("--workload", metavar="PATH", help="a trace, instead of a study")
    parser.add_argument("--format", metavar="NAME", help="format of the trace (default: found out)")
    parser.add_argument("--launch", metavar="LIST", help="kernel launches of a GPU's trace to read, e.g. 9,11 or 3-8")
    parser.add_argument("--target", metavar="NAME", help="target machine: a shipped name or a YAML file")
    parser.add_argument(
        "--model", action="append", default=[], metavar="LEVEL=NAME", help="model of a level, e.g. cpu=burst"
    )
    parser.add_argument(
        "--sampling", action="append", default=[], metavar="LEVEL=METHOD", help="sampling of a level, e.g. ranks=full"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help="replace one key of the study, e.g. target.network.latency='2 us'",
    )  # fmt: skip
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="WHAT",
        help="predict this, too: ideal-network, zero-latency, infinite-bandwidth, perfect-balance, "
        "faster:LEVEL:NAME=N (region, rank, phase, cluster) or KEY=VALUE",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    _add_cache(parser)


def _add_run(commands: argparse._SubParsersAction[_Parser]) -> None:
    run = _command(commands, "run", "predict a study's time and write its run directory")
    _add_study(run)
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-NNN)")
    _add_executor(run)
    run.add_argument(
        "--host", type=Path, metavar="FILE", help="where the simulator runs: a file of cluster_configs/host"
    )
    run.add_argument("--resume", action="store_true", help="continue the run in -o DIR")
    run.add_argument("--dry-run", action="store_true", help="say what would be simulated; write nothing")
    run.add_argument("--no-report", action="store_true", help="write statistics and Parquet only")


def _add_plan(commands: argparse._SubParsersAction[_Parser]) -> None:
    plan = _command(commands, "plan", "write which elements a study would simulate, without simulating")
    _add_study(plan)
    plan.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder for plan.parquet")
    plan.add_argument(
        "--method", metavar="NAME",
        help="choose of a profile, named instead of a study, what to simulate: intervals by simpoint, simprof, code, "
        "random, systematic, second, full or sbbv+ccv (and the like); kernel launches by tbpoint, tbpoint:auto or the "
        "baselines; task instances by taskpoint. --set KEY=VALUE then sets a rule of the method, and -o may name a "
        ".parquet file",
    )  # fmt: skip
    plan.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    plan.add_argument(
        "--export", metavar="LIST", help="of --method: write it for gem5, pinpoints, sniper; bb, projection: its input"
    )
    plan.add_argument(
        "--warmup", type=int, default=0, metavar="N", help="intervals that exports run before each one for its caches"
    )
    plan.add_argument(
        "--sensitivity", action="append", default=[], metavar="PROFILE",
        help="of --method simprof: a profile on another input; which phases change, and what stands for it",
    )  # fmt: skip
    plan.add_argument(
        "--measured", type=Path, metavar="FILE",
        help="of --method simprof: CSV of unit,cpi that were simulated; whether they are enough, and which are next",
    )  # fmt: skip
    plan.add_argument(
        "--projection", type=Path, metavar="FILE", help="of --method: SimPoint's projection matrix to use"
    )


def _add_trace(commands: argparse._SubParsersAction[_Parser]) -> None:
    trace = _command(commands, "trace", "run a program and write its trace as a workload")
    trace.set_defaults(module="trace")
    trace.add_argument(
        "--level", default="mpi", choices=("mpi", "tasks", "detailed", "stacks"), help="what is recorded (default: mpi)"
    )
    trace.add_argument("--ranks", metavar="LIST", help="ranks of the detailed level, such as 0,5 or all (default: 0)")
    trace.add_argument(
        "--iterations", default="2", metavar="LIST",
        help="iterations of the detailed level, from 1, or all (default: 2, the first is not representative)",
    )  # fmt: skip
    trace.add_argument("--regions", metavar="LIST", help="marked regions of the detailed level, such as solve,halo")
    trace.add_argument(
        "--route", default="coverage", choices=("coverage", "qemu", "valgrind"),
        help="how the detailed level records: the program built with --flags detailed (default), or as it is",
    )  # fmt: skip
    trace.add_argument("--function", metavar="NAME", help="what qemu and valgrind record (default: the whole program)")
    trace.add_argument("--counting", type=Path, metavar="FILE", help="the program built with --flags counting")
    trace.add_argument(
        "--flags", choices=("detailed", "counting"), help="print what clang needs to build a program for a level"
    )
    trace.add_argument(
        "--source", default="auto", choices=("auto", "perf", "py-spy", "jfr"), help="profiler of --level stacks"
    )
    trace.add_argument(
        "--unit-instructions", type=int, default=100_000_000, metavar="N", help="a sampling unit (default: 100 million)"
    )
    trace.add_argument(
        "--unit-time",
        default="100 ms",
        metavar="TIME",
        help="a unit where no instructions are counted (default: 100 ms)",
    )
    trace.add_argument("--snapshots", type=int, default=10, metavar="N", help="call stacks per unit (default: 10)")
    trace.add_argument("--max-gb", type=float, metavar="N", help="stop recording at N GB on disk (default: no limit)")
    trace.add_argument("--mpi", choices=("mpich", "openmpi"), help="the program's MPI (default: found out)")
    trace.add_argument("--keep-raw", action="store_true", help="keep the tracer's files, in raw/")
    _add_cache(trace)
    trace.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write")
    trace.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")


def _add_convert(commands: argparse._SubParsersAction[_Parser]) -> None:
    convert = _command(commands, "convert", "read a trace in any format and write it in another")
    convert.add_argument("trace", help="the trace")
    convert.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder to write")
    convert.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    convert.add_argument("--to", default="workload", metavar="NAME", help="format to write (default: workload)")
    convert.add_argument("--flop-rate", default="1 Gflop/s", metavar="RATE", help="speed behind a trace's flop counts")
    convert.add_argument("--time-unit", default="1 ns", metavar="TIME", help="unit of a format that names none (goal)")
    convert.add_argument("--application", type=int, default=1, metavar="N", help="which one of a trace with several")


def _add_profile(commands: argparse._SubParsersAction[_Parser]) -> None:
    profile = _command(commands, "profile", "measure the stack distances of a memory trace, and hit rates of caches")
    profile.set_defaults(module="profile")
    profile.add_argument("trace", metavar="TRACE", help="a trace with memory accesses")
    profile.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    profile.add_argument("--target", default="laptop", metavar="NAME", help="machine with caches (default: laptop)")
    profile.add_argument(
        "--granularity", default="line", metavar="SIZE", help="units: byte, word, line or a size (default: line)"
    )
    profile.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    profile.add_argument(
        "--sampling", default="exact", choices=("exact", "blocks", "blocks-statstack", "statstack", "shards"),
        help="how distances are found (default: exact)",
    )  # fmt: skip
    profile.add_argument("--rate", default="1 %", metavar="SHARE", help="what is sampled (default: 1 %%)")
    profile.add_argument(
        "--simulate", nargs="?", const="100 %", metavar="SHARE",
        help="simulate the caches with their real sets, too, or a share of the sets, such as 2%%",
    )  # fmt: skip
    profile.add_argument(
        "--prefetch",
        action="store_true",
        help="simulated caches prefetch as the machine says (default: off)",
    )
    profile.add_argument(
        "--together", action="store_true", help="threads run at the same time and share caches (default: each alone)"
    )
    profile.add_argument(
        "--frames",
        default="virtual",
        choices=("virtual", "random"),
        help="where simulated pages lie (default: virtual)",
    )
    profile.add_argument(
        "--interval", type=int, metavar="N",
        help="instead, simulate the target's cores in detail and write the blocks and counters of every N instructions "
        "of all cores, for plan --method sbbv+ccv",
    )  # fmt: skip
    profile.add_argument("--cores", type=int, metavar="N", help="cores that --interval simulates (default: 4)")
    profile.add_argument("--rank", type=int, metavar="N", help="one rank only")
    profile.add_argument("--thread", type=int, metavar="N", help="one thread only")
    _add_executor(profile)
    profile.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    _add_cache(profile)
    profile.add_argument("--no-report", action="store_true", help="write statistics and Parquet only")
    profile.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-profile-NNN)")


def _add_predict(commands: argparse._SubParsersAction[_Parser]) -> None:
    predict = _command(commands, "predict", "predict hit rates and time at input sizes that never ran")
    predict.set_defaults(module="predict", seed=None)
    predict.add_argument(
        "traces", nargs="+", metavar="SIZE=TRACE", help="traces of a program at small inputs (or a shipped one's name)"
    )
    predict.add_argument("--sizes", required=True, metavar="LIST", help="inputs to predict, such as 100,200,400")
    predict.add_argument("--format", default="auto", metavar="NAME", help="format of the traces (default: found out)")
    predict.add_argument("--target", default="xeon-e5-2695", metavar="NAME", help="machine (default: xeon-e5-2695)")
    predict.add_argument("--measured", type=Path, metavar="FILE", help="CSV (size, seconds) to compare with")
    predict.add_argument("--steady", action="store_true", help="as if the same had run just before (default: cold)")
    predict.add_argument(
        "--recipe", default="operands", choices=("operands", "paper"),
        help="how profiles are extrapolated: per operand in many bins, or as AMM was published (default: operands)",
    )  # fmt: skip
    predict.add_argument(
        "--amm", action="append", default=[], metavar="KEY=VALUE",
        help="a parameter of AMM, such as bound=latency, block_bytes=8 or gap_bytes=56",
    )  # fmt: skip
    _add_executor(predict)
    _add_cache(predict)
    predict.add_argument("--no-report", action="store_true", help="write statistics and Parquet only")
    predict.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-predict-NNN)")


def _add_evaluate(commands: argparse._SubParsersAction[_Parser]) -> None:
    evaluate = _command(commands, "evaluate", "compare samples with what they stand for")
    evaluate.set_defaults(module="commands")
    evaluate.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="traces with tasks and their detailed level; or profiles of intervals, call stacks or kernel launches "
        "with known cycles",
    )  # fmt: skip
    evaluate.add_argument(
        "--target", default="grass-high-performance", metavar="NAME", help="machine (default: grass-high-performance)"
    )
    evaluate.add_argument("--cores", default="8,16,32,64", metavar="LIST", help="cores of a rank (default: 8,16,32,64)")
    evaluate.add_argument(
        "--methods", metavar="LIST",
        help="lazy or periodic, with any of +source (its parameters), +types, +classes, +model, +stale, +warm, "
        "+settle, +unsettled; or interval. Of profiles: those of plan --method",
    )  # fmt: skip
    evaluate.add_argument(
        "--on", action="append", metavar="OTHER",
        help="of profiles: judge by this machine's profile, or table of counters, of the same intervals",
    )  # fmt: skip
    evaluate.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    evaluate.add_argument("--seeds", type=int, default=10, metavar="N", help="draws of each method on a profile (10)")
    evaluate.add_argument(
        "--iterations", default="joined", metavar="METHOD", help="what is simulated, as sampling.iterations says"
    )
    evaluate.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help="replace one key of the studies, e.g. taskpoint.history=8",
    )  # fmt: skip
    evaluate.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/evaluation-NNN)")
    _add_cache(evaluate)


def _add_questions(commands: argparse._SubParsersAction[_Parser]) -> None:
    asked = _command(commands, "what-if", "predict a study or a run again under other assumptions, and compare")
    _add_study(asked)
    asked.add_argument("-o", "--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-NNN)")
    asked.add_argument("--executor", default="auto", metavar="NAME", help="auto, local or ray (default: auto)")
    asked.set_defaults(module="questions", workers=None)

    compare = _command(commands, "compare", "say where two runs, or a run and its measured trace, differ")
    compare.add_argument("a", metavar="A", help="run directory, or a trace with measured times")
    compare.add_argument("b", metavar="B", help="run directory, or a trace with measured times")
    compare.add_argument("-o", "--output", type=Path, metavar="FILE", help="write all differences as Parquet")
    compare.add_argument("--json", type=Path, metavar="FILE", help="write all differences as JSON")
    compare.add_argument("--top", type=int, default=10, metavar="N", help="rows shown of each group (default: 10)")
    compare.add_argument("--format", default="auto", metavar="NAME", help="format of traces (default: found out)")
    _add_cache(compare)
    compare.set_defaults(module="questions")

    pop = _command(commands, "pop", "print the efficiencies of several runs or measured traces, and how they scale")
    pop.add_argument("runs", nargs="+", metavar="RUN", help="run directory, or a trace with measured times")
    pop.add_argument("--weak", action="store_true", help="the work per rank was meant to stay (default: all work)")
    pop.add_argument("--target", metavar="NAME", help="machine whose protocol the ideal replay of a trace follows")
    pop.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table as Parquet")
    _add_cache(pop)
    pop.set_defaults(module="questions")

    iterations = _command(commands, "iterations", "find the iterations of a trace's main loop")
    iterations.set_defaults(module="iterations")
    iterations.add_argument("workload", metavar="TRACE", help="the trace")
    iterations.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table as Parquet")
    iterations.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    iterations.add_argument("--min-repeats", type=int, default=3, metavar="N", help="rounds of a loop (default: 3)")
    iterations.add_argument("--level", type=int, default=0, metavar="N", help="0 the main loop, 1 the one inside, ...")
    _add_cache(iterations)

    clusters = _command(commands, "clusters", "find the phase clusters of a trace's bursts")
    clusters.add_argument("workload", metavar="TRACE", help="the trace")
    clusters.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/NAME-clusters-NNN)")
    clusters.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    clusters.add_argument(
        "--axes", default="auto", choices=("auto", "instructions", "ipc", "duration"),
        help="what stands beside duration (default: auto)",
    )  # fmt: skip
    clusters.add_argument("--eps", type=float, metavar="X", help="radius, of axes scaled to 0..1 (default: found)")
    clusters.add_argument("--min-points", type=int, default=10, metavar="N", help="bursts that are dense (default: 10)")
    clusters.add_argument(
        "--coverage", type=float, default=0.99, metavar="X", help="share of the time that is clustered (default: 0.99)"
    )
    _add_cache(clusters)
    clusters.set_defaults(module="questions")
