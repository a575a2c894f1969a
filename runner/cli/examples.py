"""``manyscale examples``: what is shipped and what can be plugged in."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options."""


def run(options: argparse.Namespace) -> int:
    """Print the lists."""
    from manyscale.runner import registry, shipped
    from manyscale.runner.problems import load_yaml

    print("examples (manyscale run NAME):")
    for name, text in shipped.described().items():
        print(f"  {name:<16} {text}")
    print("memory traces (manyscale predict NAME --sizes LIST):")
    for name, traces in shipped.memory_traces().items():
        print(f"  {name:<16} inputs {', '.join(map(str, traces))}")
    print("targets (--target NAME):")
    for name, path in shipped.shipped_targets().items():
        print(f"  {name:<16} {load_yaml(path).get('description', '')}")
    levels = ("rank", "iteration", "task", "launch", "block", "interval")
    for seam in ("reader", "cpu", "gpu", "network", *(f"{level}-sampler" for level in levels), "executor"):
        print(f"{seam}: {', '.join(registry.names(seam))}")
    return 0
