"""``manyscale examples``: what is shipped and what can be plugged in."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options."""


def run(options: argparse.Namespace) -> int:
    """Print the lists."""
    from manyscale.runner.api.catalogue import examples

    found = examples()
    print("examples (manyscale run NAME):")
    for name, text in found.examples.items():
        print(f"  {name:<16} {text}")
    print("memory traces (manyscale predict NAME --sizes LIST):")
    for name, inputs in found.memory_traces.items():
        print(f"  {name:<16} inputs {', '.join(map(str, inputs))}")
    print("targets (--target NAME):")
    for name, text in found.targets.items():
        print(f"  {name:<16} {text}")
    for seam, names in found.plug_ins.items():
        print(f"{seam}: {', '.join(names)}")
    return 0
