"""How far a predicted time can be trusted: sampling error, and what the chosen models leave out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.headline import has_launches, has_ranks
from manyscale.runner.report.text import duration, escape, percent, table
from manyscale.runner.run.results import Result

_NETWORK: Final = {
    "latency-bandwidth": (
        "Network latency-bandwidth: a message takes latency + size / bandwidth whatever else is under way. Links and "
        "adapters are never shared, so where the network is busy the predicted time is too short.",
        "MPI calls cost no processor time of their own; matching, copying and progress are part of the latency.",
    ),
    "loggops": (
        "Network loggops: processors and network interfaces serve one message after another; what lies between the "
        "interfaces is never crowded. Every message costs the same overhead, whatever has to be matched or copied.",
        "Messages go on while a processor is free, not during compute: a library with its own progress overlaps more.",
    ),
    "dimemas": (
        "Network dimemas: a transfer holds its links and bus for size / bandwidth; others wait, they do not share. "
        "Which switches a route crosses plays no part.",
        "The latency is processor time of sends, blocking receives and waits; an adapter that works on its own leaves "
        "more to compute.",
    ),
    "flow": (
        "Network flow: messages are fluids that share the links of their routes fairly. Packets, buffers of switches, "
        "credits and congestion that spreads to other links are not modelled, nor is other users' traffic: a network "
        "that is crowded by many small messages or by one receiver may be slower than predicted.",
        "Routes are fixed ({routing}); a network that chooses routes by load spreads its traffic better.",
        "MPI calls cost no processor time of their own; matching, copying and progress are part of the latency.",
    ),
}
_COLLECTIVES: Final = (
    "Collectives are replayed as the messages of their algorithm ({preset}); a library that chooses another algorithm, "
    "or hardware that helps, differs."
)
_FORMULAS: Final = (
    "Collectives that cost what a formula says ({preset}): all ranks wait for the last one, then all go on together. "
    "Their messages are not replayed, and neither take bandwidth from others nor wait for it."
)
_CPU: Final = {
    "burst": (
        "CPU burst: the time between MPI calls is that of the traced run, scaled by cpu_ratio = {cpu_ratio} and the "
        "IPC correction. The target's caches, memory bandwidth and clock are not modelled, nor is noise of the system.",
    ),
    "amm": (
        "CPU amm ({amm_form}): compute that was traced in detail ({compute_detailed} of the traced compute time) is "
        "predicted from its blocks and accesses, on one core whose caches nobody else uses. The rest takes its traced "
        "time, scaled like detailed time at the same place of other iterations or ranks ({compute_same_place}), of the "
        "same region ({compute_same_region}), or at all ({compute_other}).",
        "What the detailed level does not see takes no time: libraries that were not instrumented, the MPI library and "
        "the OpenMP runtime among them, and the system.",
    ),
    "detailed": (
        "CPU detailed: cores, caches and main memory were simulated for {cells} of the ranks' iterations, "
        "{detailed_share} of their instructions in detail. All other phases take their traced time, scaled by the "
        "ratio of predicted to traced time of each task type.",
        "Cores are buffers of instructions with latencies and units; instruction caches and address translation are "
        "not modelled. Ranks of one node do not disturb each other. Working sets that just fill a shared cache depend "
        "on the order of single accesses: a few per cent either way.",
        "The runtime system's own time is the traced one, or what the study's key runtime says.",
    ),
    "interval": (
        "CPU interval: task instances of {cells} of the ranks' iterations take what an analytical model of a core "
        "says; all other phases their traced time, scaled by the ratio of each task type. Address translation "
        "and conflicts in sets of first caches are not modelled, and prefetchers fetch in time.",
        "Contention in shared caches and DRAM is that of what runs at the same time, by queues; instances use their "
        "lines when they begin.",
    ),
}

_GPU: Final = {
    "detailed": (
        "GPU detailed: the SMs execute the traced instructions cycle by cycle; which thread executed what, and where "
        "its threads accessed memory, is that of the traced run, whatever the target. Instruction caches and address "
        "translation are not modelled, launches run one after the other, and copies of the host take no time.",
    ),
    "gpumech": (
        "GPU gpumech ({gpu_form}): representative warps stand for all, and the time that they wait for each other, for "
        "MSHRs and for DRAM follows from formulas. Launches run one after the other. Of large launches whose waves of "
        "blocks are alike, some waves may stand for others; the interval of the cycles is then how far they differ.",
    ),
}
_SAMPLED_INTERVALS: Final = (  # instead of the CPU model's
    "CPU detailed, of intervals: {intervals_share} of the instructions were simulated in {intervals_simulated} of "
    "{intervals_total} intervals of the program, and stand for the others. Caches at the begin of each are "
    "{intervals_caches}: what they are off is in no confidence interval.",
    "What the detailed level does not hold takes no time. Cores are buffers of instructions with latencies and "
    "units; instruction caches and address translation are not modelled, and the program has the node to itself.",
)
_SAMPLED_LAUNCHES: Final = (
    "Of {launches} launches {simulated_launches} were simulated ({simulated_share} of the warp instructions); the "
    "others are taken to perform like those that stand for them."
)
_CACHES: Final = {  # at the begin of an interval
    "cold": "empty",
    "warm": "warmed by the instructions before it",
    "last-uses": "filled with the lines that were used last before it",
    "stitched": "as the simulated interval before it left them",
}
_WHOLE: Final = Statistic(1.0, "1", "ratio", "")


def certainty(result: Result) -> str:
    """HTML: confidence intervals, or that nothing was sampled."""
    rows = []
    for name, statistic in result.statistics.items():
        if statistic.ci_low is None or statistic.ci_high is None:
            continue
        show = percent if statistic.kind == "ratio" else duration if statistic.unit == "s" else "{:,.6g}".format
        rows.append((escape(name), show(statistic.value), show(statistic.ci_low), show(statistic.ci_high)))
    if rows:
        return table(("statistic", "estimate", "low", "high"), rows)
    if result.statistics.get("intervals.share", _WHOLE).value < 1:
        why = result.statistics["intervals.cpi"].description
        return (
            f"<p><strong>The sample does not tell.</strong> {escape(why)}. Draw several of each cluster "
            "(<code>intervals.per_cluster</code>), or at random.</p>"
        )
    what = "Every rank and every call was replayed" if has_ranks(result) else "All of it was simulated"
    if has_launches(result):
        what = "Every launch was simulated" + (", every call of every rank replayed" if has_ranks(result) else "")
    return (
        f"<p><strong>Nothing was sampled.</strong> {what}, so there is no sampling "
        "error and no confidence interval. What remains is how well the models and the trace describe the target.</p>"
    )


def limits(result: Result) -> Iterator[str]:
    """One text per known limit of the models that were used."""
    model: Any = result.resolved.get("model", {})
    chosen: Mapping[str, Any] = model if isinstance(model, Mapping) else {}
    collectives = CollectiveRules.model_validate(result.machine.network.collectives)
    values = {
        "preset": str(collectives),
        "routing": _routing(result),
        "cpu_ratio": f"{float(result.resolved.get('cpu_ratio', 1.0)):g}",
    }
    cells, share = (result.statistics.get(f"node.{name}") for name in ("cells", "detailed_share"))
    values["cells"] = "-" if cells is None else f"{cells.value:,}"
    values["detailed_share"] = "-" if share is None else percent(float(share.value))
    amm = result.resolved.get("amm", {})
    values["amm_form"] = str(amm.get("form", "")) if isinstance(amm, Mapping) else ""
    for basis in ("detailed", "same_place", "same_region", "other"):
        share = result.statistics.get(f"application.compute_{basis}")
        values[f"compute_{basis}"] = "-" if share is None else percent(share.value)
    network, cpu = str(chosen.get("network", "")), str(chosen.get("cpu", ""))
    texts: list[str] = []
    if has_ranks(result):
        texts += _NETWORK.get(network, (f"Network model: {network or 'not recorded'}.",))
        texts += [_COLLECTIVES] * collectives.sends_messages + [_FORMULAS] * collectives.has_formulas
    if result.launches is not None:
        gpu = str(chosen.get("gpu") or "detailed")
        texts += _GPU.get(gpu, (f"GPU model: {gpu}.",))
        texts += [_SAMPLED_LAUNCHES] * (result.statistics["gpu.simulated_share"].value < 1)
        values |= _of_launches(result)
    if result.intervals is None and (has_ranks(result) or not has_launches(result)):
        texts += _CPU.get(cpu, (f"CPU model: {cpu or 'not recorded'}.",))
    if result.intervals is not None:
        texts += _SAMPLED_INTERVALS
        values |= _of_intervals(result)
    for text in texts:
        yield text.format(**values)


def _of_launches(result: Result) -> dict[str, str]:
    choice = result.resolved.get("gpu", {})
    counts = {name: f"{result.statistics[f'gpu.{name}'].value:,}" for name in ("launches", "simulated_launches")}
    share = percent(float(result.statistics["gpu.simulated_share"].value))
    form = str(choice.get("form", "")) if isinstance(choice, Mapping) else ""
    return {**counts, "simulated_share": share, "gpu_form": form}


def _of_intervals(result: Result) -> dict[str, str]:
    choice = result.resolved.get("intervals", {})
    return {
        "intervals_total": f"{result.statistics['intervals.total'].value:,}",
        "intervals_simulated": f"{result.statistics['intervals.simulated'].value:,}",
        "intervals_share": percent(float(result.statistics["intervals.share"].value)),
        "intervals_caches": _CACHES.get(choice.get("caches", ""), "") if isinstance(choice, Mapping) else "",
    }


def _routing(result: Result) -> str:
    """The topology and how it routes."""
    topology = result.machine.network.topology
    if topology is None:
        return "the target names no topology"
    routing = getattr(topology, "routing", "")
    return f"{topology.kind}, {routing}" if routing else topology.kind
