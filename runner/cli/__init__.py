"""The command line. A command is a file of its own, of which only the one at hand is loaded: ``arguments(parser)`` adds
its options, ``run(options)`` does it and returns the exit status.

Exit status: 0, 1 for a run that failed, 2 for bad input, 130 when interrupted (SIGINT), 143 when terminated (SIGTERM).
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn

from manyscale.runner.cli import completion, figures
from manyscale.runner.cli.parser import Parser, in_words_typed
from manyscale.runner.errors import InterruptedRunError, RunError, TerminationError, UserError, WrongKeyError
from manyscale.runner.frames import in_large_frame
from manyscale.runner.version import __version__

GROUPS: Final = {  # by what a user wants, in the order of --help; a file is named like its command, with _ for -
    "predict a time": {
        "run": "predict a study's time and write its run directory",
        "submit": "have a Ray cluster run a study, from a machine that is no node of it",
        "what-if": "predict a study or a run again under other assumptions, and compare",
        "share": "say what jobs that share a machine cost each other",
        "scaling": "say how the time changes with the number of cores or ranks",
        "predict": "predict hit rates and time at input sizes that never ran",
        "extrapolate": "make a workload for more ranks than were traced",
        "calibrate": "make a target machine from measured ping-pongs (its network) or of this node (--node)",
    },
    "get a trace": {
        "trace": "run a program and write its trace as a workload",
        "synthesise": "make a step of training a model from its shape, on as many GPUs as wanted",
        "convert": "read a trace in any format and write it in another",
        "profile": "measure the stack distances of a memory trace, and hit rates of caches",
        "iterations": "find the iterations of a trace's main loop",
        "clusters": "find the phase clusters of a trace's bursts",
    },
    "choose what is simulated": {
        "plan": "write which elements a study would simulate, without simulating",
        "evaluate": "compare samples with what they stand for",
        "predictability": "say how well a few task instances predict the others",
    },
    "ask finished runs": {
        "compare": "say where two runs, or a run and its measured trace, differ",
        "pop": "print the efficiencies of several runs or measured traces, and how they scale",
        "accuracy": "predict the shipped validation cases and compare with their references",
    },
    "look": {
        "show": "say what a trace holds before anything is predicted, and what it can be given to",
        "examples": "list the shipped examples, targets and what can be plugged in",
        "status": "say how far a run is",
        "report": "write the timeline traces and the report of a finished run",
        "view": "show runs, their reports and their timelines in a browser, on this computer",
        "completion": "print the script by which bash, zsh or fish completes words of this command line",
    },
}
COMMANDS: Final = {name: text for group in GROUPS.values() for name, text in group.items()}


_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000  # Python's own 700 are met some 300 times by imports alone


def process() -> int:
    """``main`` as a process of its own, which spends a third less of its time on what nobody needs (measured: 1.0
    instead of 1.4 CPU seconds for a run of which the trace is kept as read): Python looks less often for objects that
    refer to each other and are used no more, not at all when it ends, and the threads that numpy starts wait for work
    asleep. It takes a tenth less memory: Arrow's tables come from the heap that all else comes from, and goes back to
    (measured: 526 instead of 565 MB for nas-cg-A-64, 318 instead of 346 for lulesh-64, at the same CPU time). Plug-ins
    of pydantic's, which may look at every value, are not looked for."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2^4 cycles; read when numpy is loaded
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when pyarrow is loaded
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    if completion.is_asked():
        completion.complete(_parser)
    try:
        return in_large_frame(main)
    finally:
        gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors become one line on standard error. Without ``arguments``, those of the process, an
    interrupt ends the process: threads may still be in kernels."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:  # as other programs have it
        words = [*words[1:2], "--help"]
    options = argparse.Namespace(debug="--debug" in words, command=None)
    try:
        if arguments is None and callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # runner/entry.py's was for the start
        with _heeding_sigterm():
            parser = _parser(next((word for word in words if not word.startswith("-")), None))
            options = parser.parse_args(words)
            options.told = parser.told
            if options.command is None:
                parser.print_help()
                return 2
            with _bounded(options.most_gb), figures.alone(options):
                status = int(_module(options.command).run(options))
            for line in options.told:
                print(f"manyscale: {line}", file=sys.stderr)
            return status
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt as error:
        status, line = _interrupted(error, words, options)
        print(f"manyscale: {line}", file=sys.stderr)
        if arguments is None:
            _end(status)
        return status
    except Exception as error:
        if options.debug:
            raise
        status, line = _status_and_line(error, options)
        if isinstance(error, RunError) and error.directory is not None:
            line += f", then: {_resumed(error.directory, words, options)}"
        print(f"manyscale: {line}", file=sys.stderr)
        return status


@contextmanager
def _bounded(gigabytes: str | None) -> Iterator[None]:
    """``--max-gb`` for this process and those that it starts."""
    if gigabytes is None:
        yield
        return
    from manyscale.runner.readers.archive import MOST_GB, most_bytes

    before = os.environ.get(MOST_GB)
    os.environ[MOST_GB] = gigabytes
    try:
        most_bytes()
        yield
    finally:
        if before is None:
            del os.environ[MOST_GB]
        else:
            os.environ[MOST_GB] = before


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """SIGTERM is an exception, as SIGINT is; a second one waits for the end that the first one brings about."""

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminationError

    if threading.current_thread() is not threading.main_thread():  # others cannot
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupted(error: KeyboardInterrupt, words: Sequence[str], options: argparse.Namespace) -> tuple[int, str]:
    """Status and line."""
    by = error.by if isinstance(error, InterruptedRunError) else error
    status, what = (143, "terminated") if isinstance(by, TerminationError) else (130, "interrupted")
    if not isinstance(error, InterruptedRunError):
        return status, f"{what}; run the command again"
    return status, f"{what}; continue with: {_resumed(error.directory, words, options)}"


def _resumed(directory: Path, words: Sequence[str], options: argparse.Namespace) -> str:
    """The command that goes on where a run was left, in the same words as before."""
    from manyscale.runner.storage.address import shown

    again = list(words) if options.command == "run" else ["run"]
    if options.command != "run" or not options.resume:
        again.append("--resume")
    if options.command != "run" or options.output is None:
        again += ["-o", shown(directory)]
    return shlex.join(["manyscale", *again])


def _end(status: int) -> NoReturn:
    """Leave at once, without waiting for threads that compute what nobody needs any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()  # temporary folders go
    os._exit(status)


def _module(command: str) -> ModuleType:
    return import_module(f"manyscale.runner.cli.{command.replace('-', '_')}")


def _status_and_line(error: BaseException, options: argparse.Namespace) -> tuple[int, str]:
    from manyscale.runner import limits, shipped  # loads YAML, which help does without
    from manyscale.runner.storage.address import with_addresses

    line = shipped.without_folders(" ".join(str(error).split("\n")))
    if not isinstance(error, limits.LimitError):  # which is one of this machine, where copies are
        line = with_addresses(line)
    if isinstance(error, WrongKeyError):
        return 2, in_words_typed(error.place, error.key, error.problem, options) or line
    if isinstance(error, UserError):
        return 2, line
    if isinstance(error, RunError):
        return 1, line
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and limits.is_limit(error)):
        place = getattr(error, "filename", None)
        return 1, f"{f'{place}: ' if place else ''}{limits.in_words(error, Path(place) if place else None)}; run again"
    if isinstance(error, OSError) and error.filename is not None:
        return 1, f"{error.filename}: {error.strerror}; mend this and run again"
    return 1, f"a defect of manyscale, not of the input ({type(error).__name__}: {line}); --debug shows where"


def _parser(asked: str | None) -> Parser:
    """All commands by name, and the options of the one that is ``asked`` for."""
    parser = Parser(
        prog="manyscale",
        description="Predicts how long a parallel application takes on a machine that may not exist yet.",
        epilog="manyscale COMMAND --help shows the options of a command; manyscale examples, what is shipped.",
        groups=GROUPS,
    )
    parser.add_argument("--version", action="version", version=f"manyscale {__version__}")
    parser.set_defaults(debug=False, command=None, most_gb=None, json=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(command=name)
        command.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
        if name != "trace":  # which reads none, and has an option of this name for what it records
            command.add_argument(
                "--max-gb", dest="most_gb", metavar="GB",
                help="what one compressed file may decompress to (default: half of the memory)",
            )  # fmt: skip
        if name == asked:
            _module(name).arguments(command)
    return parser
