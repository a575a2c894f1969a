"""``manyscale examples``: what is shipped and what can be plugged in."""

from __future__ import annotations

import argparse

from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--copy", metavar="NAME", help="copy the source of a shipped program to the current folder")


def run(options: argparse.Namespace) -> int:
    """Print the lists, or copy a source."""
    from manyscale.runner import shipped
    from manyscale.runner.api.catalogue import examples

    if options.copy:
        return _copy(options.copy)
    found = examples()
    print("examples (manyscale run NAME):")
    for name, text in found.examples.items():
        print(f"  {name:<16} {text}")
    print("memory traces (manyscale predict NAME --sizes LIST):")
    for name, inputs in found.memory_traces.items():
        print(f"  {name:<16} inputs {', '.join(map(str, inputs))}")
    print("programs (manyscale trace --level gpu -o DIR -- NAME):")
    for name, path in shipped.programs().items():
        print(f"  {name:<16} {path.read_text().splitlines()[0].lstrip('/ ')}")
    print("targets (--target NAME):")
    for name, text in found.targets.items():
        print(f"  {name:<16} {text}")
    for seam, names in found.plug_ins.items():
        print(f"{seam}: {', '.join(names)}")
    return 0


def _copy(name: str) -> int:
    from pathlib import Path

    from manyscale.models.spelling import unknown
    from manyscale.runner import shipped

    programs = shipped.programs()
    if name not in programs:
        raise UserError(unknown("program", name, programs))
    try:
        with Path(name).open("xb") as file:
            file.write(programs[name].read_bytes())
    except FileExistsError:
        raise UserError(f"{name}: is there already; remove it first, or copy in another folder") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be written ({error.strerror or error})") from None
    print(name)
    return 0
