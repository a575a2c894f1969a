"""``manyscale calibrate``: a target machine from measured ping-pongs or collectives, or of the node at hand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_output
from manyscale.runner.cli.parser import Parser
from manyscale.runner.cli.progress import progress_bar

if TYPE_CHECKING:
    from manyscale.models.network.calibration import Calibration
    from manyscale.runner.run.calibration.nccl import NcclCalibration
    from manyscale.runner.run.calibration.node import NodeCalibration
    from manyscale.runner.run.calibration.training import TrainingCalibration

NCCL_TESTS = "nccl-tests"  # the word before files of it
TRAINING = "training"  # the word before a table of measured steps


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "measurements",
        nargs="*",
        type=Path,
        help="output of osu_latency (and osu_bw), IMB PingPong, NetPIPE, or CSV; or the word nccl-tests and then files "
        "of nccl-tests (or CSV of them), for collectives of GPUs; or the word training and then a CSV of measured "
        "steps, for what a framework reaches on GPUs",
    )
    parser.add_argument("--node", action="store_true", help="measure caches, memory and instructions of this node")
    parser.add_argument("--quick", action="store_true", help="measure the node in 10 s, less exactly")
    parser.add_argument("--core", type=int, metavar="N", help="CPU that is measured (default: the last)")
    parser.add_argument(
        "--cache-size", action="append", default=[], dest="assignments", metavar="CACHE=SIZE",
        help="size of a cache that the system does not say, or says wrongly, such as L3='32 MiB'",
    )  # fmt: skip
    parser.add_former("--set", "--cache-size")
    parser.add_argument(
        "--base", metavar="NAME",
        help="machine whose network (or, with --node, node) is replaced (default: laptop, of GPUs dgx-a100)",
    )  # fmt: skip
    parser.add_argument(
        "--collective", metavar="KIND", help="of nccl-tests, where its files do not tell: allreduce, ..."
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="of nccl-tests: GPUs that took part")
    parser.add_argument("--nodes", type=int, metavar="N", help="of nccl-tests: nodes that they were on")
    parser.add_argument(
        "--recompute", choices=["none", "selective", "full"], default="none",
        help="of training: what backward passes computed again (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=int, default=1, metavar="N",
        help="of training: fit every N-th row, sorted by configuration; the others judge (default: 1)",
    )  # fmt: skip
    add_output(parser, "runs/calibration-NNN")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure or fit, write the machine, the fit and its plot, and print a table."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.machines import MACHINE, PLOT, calibrate
    from manyscale.runner.run.calibration.nccl import NcclCalibration
    from manyscale.runner.run.calibration.network import NetworkCalibration
    from manyscale.runner.run.calibration.training import TrainingCalibration

    files = options.measurements
    word = str(files[0]) if files else ""
    is_nccl, is_training = word == NCCL_TESTS, word == TRAINING
    with progress_bar() as progress:
        made = calibrate(
            files[1:] if is_nccl or is_training else files, options.output or NUMBERED, node=options.node,
            quick=options.quick, core=options.core, base=options.base,
            caches=dict(_cache(text) for text in options.assignments),
            nccl=is_nccl, collective=options.collective, gpus=options.gpus, nodes=options.nodes, training=is_training,
            recompute=options.recompute, every=options.every, progress=progress,
        )  # fmt: skip
    show(options, made)
    if isinstance(made.found, TrainingCalibration):
        _print_training(made.found)
    elif isinstance(made.found, NcclCalibration):
        _print_nccl(made.found)
    elif isinstance(made.found, NetworkCalibration):
        _print_network(made.found.fit)
    else:
        _print_node(made.found)
    print(f"machine: {made.directory}/{MACHINE}; plot: {made.directory}/{PLOT}")
    return 0


def _cache(text: str) -> tuple[str, str]:
    """``L3=32 MiB`` and so on."""
    name, _, size = text.partition("=")
    return name, size


def _print_training(found: TrainingCalibration) -> None:
    from manyscale.runner.run.calibration.training import content, shares

    for name, value in content(found.framework).items():
        print(f"{name:>18} {value}")
    for name, text in shares(found).items():
        print(f"{name}: {text}")
    for note in found.notes:
        print(f"note: {note}")


def _print_nccl(found: NcclCalibration) -> None:
    from manyscale.runner.run.calibration.nccl import mean_errors

    print(f"{'errors in %, mean (largest)':<36} {'>= 16 MiB':>16} {'below':>16}")
    for table in found.tables:
        print(f"{table.name}, floor {table.floor_ps / 1e6:.1f} us, {len(table.kept)} of {len(table.sizes)} rows kept")
        for name, errors in (("base", table.before), ("by the other tables", table.held_out), ("itself", table.after)):
            if errors is not None:
                mean, most, small, small_most = (100 * value for value in mean_errors(table, errors))
                print(f"  {name:<34} {f'{mean:.1f} ({most:.1f})':>16} {f'{small:.1f} ({small_most:.1f})':>16}")
    for text in found.said:
        print(text)


def _print_network(fit: Calibration) -> None:
    print(f"{'from':>10} {'to':>10} {'latency us':>20} {'bandwidth MB/s':>22}")
    for part in fit.classes:
        end = "" if part.end_bytes is None else str(part.end_bytes)
        latency = f"{part.latency_ps / 1e6:.3f} +- {part.latency_error_ps / 1e6:.3f}"
        rate = "inf" if part.ps_per_byte == 0 else f"{1e6 / part.ps_per_byte:.1f}"
        spread = part.ps_per_byte_error / part.ps_per_byte if part.ps_per_byte else 0.0
        print(f"{part.first_bytes:>10} {end:>10} {latency:>20} {rate + f' +- {100 * spread:.1f} %':>22}")
    threshold = "none seen" if fit.eager_threshold_bytes is None else f"{fit.eager_threshold_bytes} B"
    print(f"eager threshold: {threshold}")
    if fit.overhead_ps is not None and fit.gap_ps is not None:
        print(f"overhead: {fit.overhead_ps / 1e6:.3f} us, gap: {fit.gap_ps / 1e6:.3f} us")
    worst = 100 * abs(fit.residual)
    print(f"residuals: mean {worst.mean():.2f} %, largest {worst.max():.2f} %")


def _print_node(found: NodeCalibration) -> None:
    from manyscale.runner.run.calibration.last_cache import left_of_last_cache, shown_size
    from manyscale.runner.run.calibration.node import uncertain

    system, measured, clock = found.system, found.measured, found.figures["clock"]
    print(f"{system.cpu_name}: {measured.frequency_ghz:.3f} GHz (spread {100 * clock.spread_ratio:.1f} %)")
    print(f"{'level':>8} {'size':>10} {'cycles':>8} {'ns':>8} {'read':>8} {'write':>8} {'copy B/ns':>10}")
    for name, latency in measured.latency_cycles.items():
        size = "" if name == "memory" else shown_size(system.caches[name].size_bytes)
        print(
            f"{name:>8} {size:>10} {latency:>8.1f} {latency / measured.frequency_ghz:>8.2f} "
            f"{measured.read[name]:>8.1f} {measured.write[name]:>8.1f} {measured.copy[name]:>10.1f}"
        )
    print(
        f"all cores together read {measured.node_read:.1f} B/ns; "
        f"a page walk takes {measured.page_walk_cycles:.0f} cycles"
    )
    for level, (entries, cost) in enumerate(measured.tlbs, start=1):
        print(f"L{level} TLB: {entries} entries, {cost:.1f} cycles")
    shown = {name: f"{measured.core[name]:.2f}" for name in measured.core}
    shown |= {key: str(getattr(measured, key)) for key in ("line_fill_buffers", "window", "vector_window")}
    print(", ".join(f"{name} {value}" for name, value in shown.items()))
    for name, (latency, throughput) in measured.instructions.items():
        print(f"{name:>12} {latency:>7.2f} cycles, one per {throughput:.2f}")
    costs = found.machine["node"].get("runtime_system")
    words = ", ".join(f"{name} {value}" for name, value in costs.items()) if costs else found.runtime
    print(f"runtime system: {words}")
    for text in uncertain(measured):
        print(text)
    left = left_of_last_cache(system, measured.held_bytes)
    if left is not None:
        last = list(system.data_caches)[-1]
        print(
            f"{last}: random walks find {shown_size(left)} of its {shown_size(system.caches[last].size_bytes)}: other "
            "programs or guests use this cache, too; the machine has what is left"
        )
