"""RESULTS-SUITES.md: what the programs of the suites computed, made of the results that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from self_checking import Program, Suite
from tracing import range_of

if TYPE_CHECKING:
    from suites import Ran

Stored = Mapping[tuple[str, str], Sequence["Ran"]]

_HEAD = """\
# CUDA programs traced without a GPU: programs that check themselves

Programs of {suites}, compiled by NVIDIA's nvcc for sm_75, sm_80, sm_86 and sm_90 with `-Xptxas -O3`, and some of them
for one of these with `-Xptxas -O0`; run under `manyscale trace --level gpu` on small inputs. **{right} of {all}
programs are right in all their runs**, of {runs} runs {good}. Made by `python tests/validation/cuda/suites.py SOURCES
--scratch FOLDER`, and then with `--report`.

A program is right where its own check says so, and where what it gets back from the device is alike in all its runs:
*equal* is equal in every bit; a number is the largest difference that was seen, relative to the largest number of the
copy; *not compared* says that the results depend on times or on the order of threads, or that the program copies
nothing back. Launches, warp instructions and CPU seconds (program, emulation and trace, on a machine that others use,
too) are ranges over the runs at `-O3`; under `-O0` stands the architecture of the run at that level.
"""


def write_report(suites: Sequence[Suite], stored: Stored, opcodes: Mapping[str, Any] | None, path: Path) -> None:
    """Of programs that were not run nothing is written. ``opcodes``: what ``opcodes.py`` found."""
    programs = {(suite.name, program.name): program for suite in suites for program in suite.programs}
    good = [[run.problem_of(programs[name]) is None for run in each] for name, each in stored.items()]
    present = [suite for suite in suites if any(name == suite.name for name, _ in stored)]
    named = ", ".join(f"[{suite.name}]({suite.url}) at {suite.commit[:10]} ({suite.licence})" for suite in present)
    head = _HEAD.format(suites=named, right=sum(map(all, good)), all=len(stored),
                        runs=sum(map(len, good)), good=sum(map(sum, good)))  # fmt: skip
    lines = head.replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n\n").splitlines()
    for suite in present:
        lines += ["", *_table(suite, stored)]
    if opcodes is not None:
        lines += ["", *_instructions(opcodes)]
    path.write_text("\n".join(lines).rstrip() + "\n")


def _instructions(found: Mapping[str, Any]) -> list[str]:
    refused = ", ".join(f"{name} ({count})" for name, count in found["refused"].items()) or "none"
    return [
        "## Instructions",
        "",
        f"The machine code of {found['programs']} of these executables, and of programs with each function of CUDA's"
        f" headers, has {found['instructions']:,} instructions on the four architectures, of {found['opcodes']} opcodes"
        f" with their modifiers ({found['roots']} without). The decoder refuses: {refused}. Their records were compared"
        f" with the encodings, read independently (`opcodes.py`): of {found['immediates']:,} immediates and"
        f" {found['constants']:,} constants {len(found['wrong'])} differ.",
    ]


def _table(suite: Suite, stored: Stored) -> list[str]:
    lines = [f"## {suite.name}", "",
             "| program | right on | launches | warp instructions | results | -O0 | CPU s |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    problems: list[str] = []
    for program in suite.programs:
        runs = stored.get((suite.name, program.name))
        if runs is None:
            continue
        lines.append("| " + " | ".join(_cells(program, runs)) + " |")
        problems += _problems(program, runs)
    changed = [program for program in suite.programs if program.edits and (suite.name, program.name) in stored]
    if changed:
        listed = (f"{each.name} ({', '.join(f'`{old}` to `{new}`' for _, old, new in each.edits)})" for each in changed)
        lines += ["", f"Sizes that are constants of the source were made smaller: {'; '.join(listed)}."]
    whys: dict[str, list[str]] = {}
    for each in suite.programs:
        if each.why and (suite.name, each.name) in stored:
            whys.setdefault(each.why, []).append(each.name)
    if whys:
        lines += ["", "Why results are not equal, or not compared:", ""]
        lines += [f"- {', '.join(names)}: {why}" for why, names in whys.items()]
    problems += [f"- {name}: {why}" for name, why in suite.left_out.items()]
    return lines + (["", "Not right, or not run:", "", *problems] if problems else [])


def _cells(program: Program, runs: Sequence[Ran]) -> list[str]:
    good = [run for run in runs if run.problem_of(program) is None]
    fast = [run for run in good if run.level == 3]
    of = [f"sm_{run.architecture}" for run in runs if run.level == 3]
    every = f"all from sm_{program.least}" if program.least else "all"
    place = every if len(fast) == len(of) else ", ".join(f"sm_{run.architecture}" for run in fast) or "none"
    slow = next((run for run in runs if run.level == 0), None)
    checked = "" if slow is None else f"sm_{slow.architecture}" + ("" if slow.problem_of(program) is None else ": no")
    if not fast:
        return [program.name, place, "", "", "", checked, ""]
    worst = max(run.difference for run in good)
    alike = "equal" if worst == 0 else f"{worst:.1e}"
    if program.alike is None or not fast[0].digest:
        alike = "not compared"
    return [program.name, place, range_of([run.launches for run in fast]), range_of([run.instructions for run in fast]),
            alike, checked, range_of([run.seconds for run in fast], ".1f")]  # fmt: skip


def _problems(program: Program, runs: Sequence[Ran]) -> list[str]:
    """One line for a reason, with where it holds."""
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if problem := run.problem_of(program):
            reasons.setdefault(problem, []).append(f"sm_{run.architecture} -O{run.level}")
    return [f"- {program.name}, {', '.join(places)}: {reason}" for reason, places in reasons.items()]
