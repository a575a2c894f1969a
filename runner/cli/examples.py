"""``manyscale examples``: what is shipped and what can be plugged in."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options."""


def run(options: argparse.Namespace) -> int:
    """Print the lists."""
    from manyscale.runner.registry import names
    from manyscale.runner.study import load_study_content, shipped
    from manyscale.runner.study.targets import shipped_targets

    print("examples (manyscale run NAME):")
    for name, text in shipped.described().items():
        print(f"  {name:<16} {text}")
    print("memory traces (manyscale predict NAME --sizes LIST):")
    for name, traces in shipped.memory_traces().items():
        print(f"  {name:<16} inputs {', '.join(map(str, traces))}")
    print("targets (--target NAME):")
    for name, path in shipped_targets().items():
        print(f"  {name:<16} {load_study_content(path).get('description', '')}")
    for seam in ("reader", "cpu", "network", "sampling", "executor"):
        print(f"{seam}: {', '.join(names(seam))}")
    return 0
