"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.models.workload.notes import Note
    from manyscale.runner.api.inputs import Asked

MOST_NUMBER: Final = 2**63 - 1
MOST_RANGES: Final = 256  # that the tracer of CUDA programs takes


def place(text: str) -> Path:
    """The path of what is named by a path or by an address of object storage. Raises UserError."""
    if ":/" not in text:
        return Path(text)
    from manyscale.runner.storage.address import located

    return located(text)


def at(directory: Path | None) -> str:
    """A directory as its user named it."""
    from manyscale.runner.storage.address import shown

    return "" if directory is None else shown(directory)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """``--cache``."""
    parser.add_argument(
        "--cache",
        type=place,
        metavar="DIR",
        help="where traces and results of work units are kept: a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX "
        "(default: the user's cache)",
    )


def add_executor(parser: argparse.ArgumentParser) -> None:
    """``--executor``, ``--address`` and ``--workers``."""
    parser.add_argument("--executor", default="auto", metavar="NAME", help="auto, local or ray (default: auto)")
    parser.add_argument("--address", help="Ray cluster to join, e.g. auto or 10.0.0.1:6379")
    parser.add_argument("--workers", type=int, metavar="N", help="Ray actors at most (default: one per core)")


def add_target(parser: argparse.ArgumentParser, what: str = "machine that is predicted", former: str = "") -> None:
    """``--target``, which has no default but the study's own; ``former``: what a command took until now."""
    default = f" (must be given from the next release on; until then {former})" if former else " (default: the study's)"
    parser.add_argument("--target", metavar="NAME", help=f"{what}: a shipped name or a YAML file{default}")


def target_of(options: argparse.Namespace, former: str, *, names_it: bool = False) -> str | dict[str, Any]:
    """``--target`` with what ``--set target.KEY=VALUE`` replaces of it. Without, it is ``former``, with a line that
    says so unless the input ``names_it``."""
    if options.target is None and not names_it:
        options.told.append(f"no --target: {former}, as before; name it from the next release on")
    name = former if options.target is None else str(options.target)
    return changed_target(name, options.assignments)


def changed_target(name: str, assignments: Sequence[str]) -> str | dict[str, Any]:
    """A target's name, or that with keys of it replaced. Raises UserError."""
    from manyscale.runner.study import assign, parse_assignment

    content: dict[str, Any] = {"target": name}
    for text in assignments:
        key, value = parse_assignment(text)
        if key.startswith("target."):
            content = assign(content, key, value)
    found: str | dict[str, Any] = content["target"]
    return found


def add_format(parser: argparse.ArgumentParser, default: str | None = "auto") -> None:
    """``--format``."""
    parser.add_argument("--format", default=default, metavar="NAME", help="format of what is read (default: found out)")


def add_output(parser: argparse.ArgumentParser, default: str | None, what: str = "folder to write") -> None:
    """``-o``: a folder that is made; ``default``: its name without the option, None where it must be given."""
    parser.add_argument(
        "-o", "--output", type=place, metavar="DIR", required=default is None,
        help=what if default is None else f"{what} (default: {default})",
    )  # fmt: skip


def add_table_output(parser: argparse.ArgumentParser, files: str) -> None:
    """``-o`` of a command that writes nothing without it: a folder for ``files``, or a file for the table alone."""
    parser.add_argument(
        "-o", "--output", type=place, metavar="DIR",
        help=f"folder to write, with {files}, or a file NAME.parquet of the table alone (default: nothing)",
    )  # fmt: skip


def output_folder(options: argparse.Namespace) -> Path | None:
    """The folder that ``add_table_output``'s option names, None where it names none or a file."""
    output: Path | None = options.output
    return None if output is None or output.suffix == ".parquet" else output


def write_table_file(options: argparse.Namespace, table: pa.Table) -> None:
    """The table, where that option names a file. Raises UserError where it cannot be written."""
    if options.output is None or output_folder(options) is not None:
        return
    from manyscale.runner.run.parquet import write_table
    from manyscale.runner.storage.address import refuse

    refuse(options.output, "-o", "a table alone is written to a file")
    with written(options.output):
        write_table(table, options.output)


def add_report(parser: argparse.ArgumentParser) -> None:
    """``--no-report``."""
    parser.add_argument("--no-report", action="store_true", help="write no page and no traces for other tools")


def add_set(parser: argparse.ArgumentParser, example: str, of: str = "of the study") -> None:
    """``--set``."""
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help=f"replace one key {of}, e.g. {example}",
    )  # fmt: skip


def add_seed(parser: argparse.ArgumentParser) -> None:
    """``--seed``."""
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random (default: 0)")


def add_notes(parser: argparse.ArgumentParser) -> None:
    """``--accept`` and ``--strict``."""
    parser.add_argument(
        "--accept", action="append", default=[], metavar="CODE", help="give the number in spite of notes with this code"
    )
    parser.add_argument("--strict", action="store_true", help="refuse a number that a note says is changed, too")


def add_self_contained(parser: argparse.ArgumentParser) -> None:
    """``--self-contained``."""
    parser.add_argument(
        "--self-contained", action="store_true",
        help="of a sweep: every page holds all that it needs (default: they share plotly.min.js beside report.html)",
    )  # fmt: skip


def print_notes(notes: Sequence[Note]) -> None:
    """As the last lines of a command."""
    from manyscale.runner.notes import lines

    for line in lines(notes):
        print(line)


def add_time(parser: argparse.ArgumentParser) -> None:
    """``--time``."""
    parser.add_argument(
        "--time", choices=("auto", "cpu", "process", "wall"),
        help="clock by which phases outside MPI take their time, where the trace read several (default: auto, of the "
        "tracer's own what the longest thread takes)",
    )  # fmt: skip


def add_study(parser: argparse.ArgumentParser) -> None:
    """A study, or what stands for one, and what replaces keys of it."""
    parser.add_argument("study", nargs="?", help="a study file, or the name of a shipped example")
    parser.add_argument("--workload", metavar="PATH", help="a trace, instead of a study")
    parser.add_argument(
        "--beside", action="append", default=[], metavar="PATH",
        help="a trace of a further job that runs on the machine at the same time (manyscale share: what that costs)",
    )  # fmt: skip
    parser.add_argument("--launch", metavar="LIST", help="kernel launches of a GPU's trace to read, e.g. 9,11 or 3-8")
    add_changes(parser)
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="WHAT",
        help="predict this, too: ideal-network, zero-latency, infinite-bandwidth, perfect-balance, "
        "faster:LEVEL:NAME=N (region, rank, phase, cluster), of steps on GPUs no-skew, free-collectives, "
        "no-launch-latency, slower:rank:N=F, or KEY=VALUE, such as target=NAME",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="run a sweep of more than 10,000 points")
    add_seed(parser)
    add_cache(parser)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """What replaces keys of a study."""
    add_format(parser, default=None)
    add_time(parser)
    add_target(parser)
    parser.add_argument(
        "--model", action="append", default=[], metavar="LEVEL=NAME", help="model of a level, e.g. cpu=burst"
    )
    parser.add_argument(
        "--sampling", action="append", default=[], metavar="LEVEL=METHOD", help="sampling of a level, e.g. ranks=full"
    )
    add_set(parser, "target.network.latency='2 us'")


def study_content(options: argparse.Namespace) -> Asked:
    """The content of a study that ``add_study``'s options ask for, the place it is from, and the folder that its paths
    may be relative to. Raises UserError."""
    from manyscale.runner.api.inputs import Asked, changed
    from manyscale.runner.study import assign, parse_assignment

    content, place, beside = _chosen_study(options)
    if options.study is not None and options.workload is not None:
        content = assign(content, "workload.path", options.workload)
    if options.beside:
        content = assign(content, "workload.beside", [{"path": path} for path in options.beside])
    content = changed(
        content,
        target=options.target,
        format=options.format,
        time=options.time,
        launches=None if options.launch is None else launch_numbers(options.launch),
        model=dict(parse_assignment(text, "--model") for text in options.model),
        sampling=dict(parse_assignment(text, "--sampling") for text in options.sampling),
        set=dict(parse_assignment(text) for text in options.assignments),
        seed=options.seed,
        what_ifs=options.what_if,
    )
    return Asked(content, place, beside)


def _chosen_study(options: argparse.Namespace) -> Asked:
    """That of a file, an example, a trace, the options, or a run that is resumed."""
    from manyscale.runner import shipped
    from manyscale.runner.api.inputs import Asked, named_study
    from manyscale.runner.run import directory as rundir

    if options.study is not None:
        return named_study(options.study, options.target)
    if options.workload is not None:
        if options.target is None:
            raise UserError(f"--workload needs --target: a YAML file, or one of {', '.join(shipped.shipped_targets())}")
        return Asked({"schema": 1, "workload": {"path": options.workload}}, "command line", None)
    if getattr(options, "resume", False) and options.output is not None:
        place = options.output / rundir.RESOLVED
        return Asked(rundir.read_resolved(options.output), str(place), None)
    raise UserError(f"name a study, or --workload PATH --target NAME; examples are {', '.join(shipped.studies())}")


def parse_numbers(text: str, option: str, least: int = 1) -> list[int]:
    """Numbers and ranges such as 0,5,8-11, in the order of the list. Raises UserError that names ``option``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        is_list = first.isdecimal() and (last.isdecimal() or not dash) and least <= int(first) <= int(last or first)
        if not is_list:
            example = f"{least},{least + 3}-{least + 5}"
            raise UserError(f"{option} {text}: is no list of numbers from {least}, such as {example}")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def parse_steps(text: str, option: str) -> list[tuple[int, int, int]]:
    """(first, last, step) of numbers and ranges from 0 such as 0,5,8-11, each with a step or a step alone: 0-999::4,
    ::16. Raises UserError that names ``option``."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(?:(\d+)(?:-(\d+))?)?(?:::(\d+))?", part.strip())
        if match is None or not part.strip():
            raise UserError(f"{option} {text}: is no list of numbers from 0, such as 0-63, or ::16 for each 16th")
        first, step = int(match[1] or 0), int(match[3] or 1)
        last = int(match[2]) if match[2] else first if match[1] and not match[3] else MOST_NUMBER
        if not step or not first <= last <= MOST_NUMBER:
            raise UserError(f"{option} {text}: {part.strip()} has a step of 0, or ends before it begins")
        found.append((first, last, step))
    if len(found) > MOST_RANGES:
        raise UserError(f"{option}: has {len(found)} ranges; at most {MOST_RANGES} can be given")
    return found


def launch_numbers(text: str) -> list[int]:
    """Numbers and ranges of ``--launch``, such as 9,11 or 3-8. Raises UserError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(last or first) < int(first):
            raise UserError(f"--launch {text!r}: write numbers of launches, counted from 1, such as 9,11 or 3-8")
        found += range(int(first), int(last or first) + 1)
    return found


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lines with the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Around what writes a file that an option names. Raises UserError where it cannot be written."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"{path}: cannot be written ({why}); name another file") from None
