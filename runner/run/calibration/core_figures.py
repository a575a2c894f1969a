"""What the micro-benchmark's single figures say of a core: costs of instructions, rates, and what else a target has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ELIMINATED_CYCLES: Final = 0.5  # a move in less takes no unit
_CLASSES: Final = (
    "int_alu", "int_mul", "int_div", "fp_add", "fp_mul", "fp_fma", "fp_div", "fp_sqrt", "fp_other", "simd_int",
)  # fmt: skip
# cycles of what brings an operand back to the same value, beside the instruction that is measured
_BESIDE: Final = {"int_div": 1.0, "fp_sqrt": 2.0}


def instructions(single: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Latency and reciprocal throughput by class; without fused multiply-add those of a multiplication and an addition
    stand for it."""
    if "int_alu_latency" not in single:
        return {}
    costs = {
        name: (single[f"{name}_latency"] - _BESIDE.get(name, 0.0), single[f"{name}_throughput"])
        for name in _CLASSES
        if f"{name}_latency" in single
    }
    if "fp_fma" not in costs:
        add, multiply = costs["fp_add"], costs["fp_mul"]
        costs["fp_fma"] = (add[0] + multiply[0], add[1] + multiply[1])
    half = single["call_and_return"] / 2
    move = "cross" if _eliminates_moves(single) else "move"
    return costs | {
        "move": (single[f"{move}_latency"], single[f"{move}_throughput"]),
        "other": costs["int_alu"],
        "branch": (costs["int_alu"][0], single["branch_taken"]),
        "call": (half, half),
        "call_return": (half, half),
        "nop": (0.0, single["nop"]),
    }


def _eliminates_moves(single: Mapping[str, float]) -> bool:
    return single["move_latency"] < _ELIMINATED_CYCLES


def core(single: Mapping[str, float], first_latency: float) -> dict[str, float]:
    """Figures of the core, in cycles or per cycle. A mispredicted branch on a loaded byte costs its own end (the load,
    and one cycle), too; half of the random ones are. A load of a vector register is measured together with the move to
    a general one that makes an address of it, taken as half of the way there and back."""
    if "mixed" not in single:
        return {}
    mispredicted = 2 * single["branch_random"] - single["branch_constant"]
    return {
        "vector_loads_per_cycle": 1 / single["vector_load_throughput"],
        "vector_stores_per_cycle": 1 / single["vector_store_throughput"],
        "accesses_per_cycle": 1 / single["access_throughput"],
        "string_bytes_per_cycle": 1 / single["string_copy"],
        "forwarded_loads_per_cycle": 1 / single["forward_throughput"],
        "vector_load": max(0.0, single["vector_load_latency"] - first_latency - single["cross_latency"]),
        "misprediction": max(0.0, mispredicted - first_latency - 1),
        "eliminates_moves": float(_eliminates_moves(single)),
        "width": 1 / min(single["mixed"], single["zero"], single["move_throughput"]),
        "loads_per_cycle": 1 / single["load_throughput"],
        "stores_per_cycle": 1 / single["store_throughput"],
        "store_to_load_fp": single["forward_fp"],
        "store_to_load_integer": single["forward_integer"],
        "branch_taken": single["branch_taken"],
        "branch_not_taken": single["branch_not_taken"],
    }
