"""Traces of Kineto's made by hand: what rows and times follow from them (waits, sizes and groups: the files beside)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kineto_traces import MAIN, ONE_STEP, Recorded, codes, gaps, gpu_rows, two_ranks

from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import kineto
from manyscale.runner.readers.kineto.kernels import class_of, precision_of
from manyscale.runner.readers.kineto.nesting import innermost
from manyscale.runner.readers.kineto.trace import Spans
from manyscale.runner.readers.options import ReadOptions

_US = 1_000_000
_G = GpuOperationKind


def test_collectives_are_matched_and_take_the_least_time(tmp_path: Path) -> None:
    """The first rank's kernel spins for 40 of its 90 us, until the second one comes."""
    found = kineto.read(two_ranks(tmp_path))
    rows = gpu_rows(found, _G.communication)
    assert [(each["rank"], each["stream"], each["duration_ps"]) for each in rows] == [
        (0, 20, 50 * _US),
        (1, 20, 50 * _US),
    ]
    operations = found.tables["operations"].to_pylist()
    own = [each for each in operations if each["kind"] == "allreduce"]
    assert [(each["bytes"], each["communicator_id"]) for each in own] == [(4000, 1), (4000, 1)]
    assert found.tables["communicators"].to_pylist()[1]["members"] == [0, 1]
    assert found.tables["groups"].to_pylist() == [{"communicator_id": 1, "group_name": "default_pg"}]
    assert found.tables["traced_gpus"].to_pylist()[1] == {"rank": 1, "device": 0, "gpu_name": "Tesla V100-SXM2-32GB"}
    assert codes(found) == []


def test_what_was_given_before_the_window(tmp_path: Path) -> None:
    made = Recorded()
    made.operator("aten::add", 0, 5)
    made.work(999, 20, 10)
    made.launch(40, 47, 5)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = gpu_rows(found)
    names = found.tables["kernels"].column("kernel_name").to_pylist()
    assert [(names[each["kernel_id"]], each["duration_ps"]) for each in rows] == [
        ("(given before the trace began)", 20 * _US),
        ("sgemm", 10 * _US),
        ("sgemm", 5 * _US),
    ]
    assert gaps(found)[2] == 45
    assert codes(found) == ["given-before-window"]


def test_a_correlation_of_several_calls(tmp_path: Path) -> None:
    """Nested ones are one call; of two one after the other each kernel has the last that began before it."""
    made = Recorded()
    made.launch(10, 20, 5)
    made.add("cuda_driver", "cuLaunchKernel", 11, 3, MAIN, correlation=1)
    assert codes(kineto.read(made.write(tmp_path / "a.json"))) == []
    made.correlation = 0
    made.launch(100, 120, 5)
    made.add("cuda_driver", "cuLaunchKernel", 101, 3, MAIN, correlation=1)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert gaps(found) == {0: 5, 1: 90}
    assert codes(found) == ["calls-ambiguous"]


@pytest.mark.parametrize("took", [-3, None, "NaN"])
def test_events_that_tell_no_time_are_counted(tmp_path: Path, took: object) -> None:
    made = Recorded()
    made.launch(10, 20, 5)
    made.events[-1]["dur"] = took
    path = made.write(tmp_path / "a.json")
    path.write_text(path.read_text().replace('"NaN"', "NaN"))
    found = kineto.read(path)
    assert [(note.code, note.count) for note in found.notes if note.code != ONE_STEP] == [("events-untimed", 1)]


@pytest.mark.parametrize(
    ("event", "changed", "code"),
    [
        (0, {"pid": None}, "events-placeless"),
        (0, {"tid": []}, "events-placeless"),
        (1, {"args": {"correlation": 1, "stream": "default", "device": 0}}, "events-placeless"),
        (1, {"cat": None}, "events-unread"),
        (1, {"cat": "npu_kernel"}, "events-unread"),
        (1, {"cat": "python_function"}, None),
    ],
)
def test_events_that_do_not_tell_what_they_are(
    tmp_path: Path, event: int, changed: dict[str, object], code: str | None
) -> None:
    made = Recorded()
    made.launch(10, 20, 5)
    made.launch(30, 40, 5)
    made.events[event] |= changed
    assert codes(kineto.read(made.write(tmp_path / "a.json")))[:1] == ([code] if code else [])


def test_numbers_of_gpus_and_steps_that_cannot_be(tmp_path: Path) -> None:
    """A GPU's number is not cut to 32 bits, and a step's of 30 digits marks none."""
    made = Recorded()
    made.step(10**30, 0, 50)
    made.launch(10, 20, 5)
    assert [note.code for note in kineto.read(made.write(tmp_path / "a.json")).notes] == [ONE_STEP]
    made.events[-1]["args"]["device"] = 2**32 + 1
    with pytest.raises(UserError, match=r"a\.json: something ran on GPU 4294967297, which no process has"):
        kineto.read(made.write(tmp_path / "a.json"))


def test_a_later_schema_is_told(tmp_path: Path) -> None:
    made = Recorded(schemaVersion=3)
    made.launch(10, 20, 5)
    assert codes(kineto.read(made.write(tmp_path / "a.json"))) == ["schema-unknown"]


def test_what_two_gpus_had_to_do_before_the_window(tmp_path: Path) -> None:
    """Streams of the same number: the first one's kernel begins at 20 us, the second one's at 30."""
    made = Recorded()
    made.operator("aten::add", 0, 5)
    for device, begin in ((0, 20), (1, 30)):
        made.work(990 + device, begin, 10)
        made.events[-1]["args"]["device"] = device
    made.launch(60, 67, 5)
    rows = gpu_rows(kineto.read(made.write(tmp_path / "a.json")), _G.launch)
    assert [(each["device"], each["stream"], each["duration_ps"] // _US) for each in rows] == [
        (0, 7, 20),
        (1, 7, 30),
        (0, 7, 10),
        (1, 7, 10),
        (0, 7, 5),
    ]


@pytest.mark.parametrize(
    ("at", "took"),
    [(1.6e15, 5), (10**15, 5), (10, 10**14), (10, 2e13)],
    ids=["late", "late whole", "long whole", "long"],
)
def test_times_that_do_not_fit(tmp_path: Path, at: float, took: float) -> None:
    """One event far from all others, or of years: as ps they are beyond 64 bits."""
    made = Recorded()
    made.launch(10, 17, 5)
    made.operator("aten::add", at, took)
    with pytest.raises(UserError, match=r"a.json: its events take [0-9.e+]+ days; is it one trace\?"):
        kineto.read(made.write(tmp_path / "a.json"))


@pytest.mark.parametrize("other", [7, 21])
def test_a_graph_is_its_kernels(tmp_path: Path, other: int) -> None:
    """All are given by one call; of several streams nobody tells which kernel waits for which."""
    made = Recorded()
    graph = made.call("cudaGraphLaunch", 10, 8)
    for at, stream in ((20, 7), (30, 7), (25, other)):
        made.work(graph, at, 5, stream)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [each["stream"] for each in gpu_rows(found)] == [7, other, 7]
    assert gaps(found) == {0: 18 - 10}
    assert codes(found) == ["graphs-in-streams", *["graph-branches-apart"] * (other != 7)]


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    """From its first record at 10 us to the end of its thread at 80."""
    made = Recorded()
    made.launch(10, 20, 5)
    made.operator("aten::add", 60, 20)
    found = kineto.read(made.write(tmp_path / "a.json"))
    (step,) = found.tables["steps"].to_pylist()
    assert (step["step"], step["first_operation_id"], step["last_operation_id"]) == (0, 0, 2)
    assert sum(each["duration_ps"] for each in found.tables["phases"].to_pylist()) == 70 * _US
    assert [note.code for note in found.notes] == ["one-step-assumed"]


def test_kernels_have_classes_and_operations(tmp_path: Path) -> None:
    made = Recorded()
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}
    made.operator("aten::mm", 5, 20, **shapes)
    made.launch(10, 17, 5, name="volta_sgemm_128x32_nn")
    made.launch(40, 47, 5, name="void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)")
    found = kineto.read(made.write(tmp_path / "a.json")).tables["kernels"].to_pylist()
    assert (found[0]["kernel_class"], found[0]["precision"]) == (KernelClass.matrix, "fp32")
    assert (found[0]["flops"], found[0]["bytes"]) == (2 * 8 * 16 * 4, 4 * (8 * 16 + 16 * 4 + 8 * 4))
    assert found[1]["kernel_class"] == KernelClass.elementwise
    assert np.isnan(found[1]["flops"])


@pytest.mark.parametrize(
    ("grid", "block", "shape"),
    [
        ([3, 2, 1], [128, 2, 1], (6, 256)),
        ([3, 2, 1], None, (0, 0)),
        ([3, -2, 1], [1, 1, 1], (0, 0)),
        ("3", [1], (0, 0)),
        ([], [32, 1, 1], (0, 0)),
        ([2**31 - 1] * 3, [32, 1, 1], (0, 0)),
        ([1, 1, 1], [2048, 1, 1], (0, 0)),
    ],
)
def test_kernels_are_launched_in_shapes(tmp_path: Path, grid: Any, block: Any, shape: tuple[int, int]) -> None:
    """0 where the trace tells none that a GPU could run."""
    made = Recorded()
    made.launch(10, 17, 5, grid=grid, block=block)
    made.launch(40, 47, 5, grid=grid, block=block)
    made.launch(60, 67, 5, grid=[7, 1, 1], block=[32, 1, 1])
    found = kineto.read(made.write(tmp_path / "a.json")).tables["kernels"].to_pylist()
    assert [(row["blocks"], row["block_threads"]) for row in found] == [shape, (7, 32)]


def test_a_rank_that_begins_later_sleeps_first(tmp_path: Path) -> None:
    for rank, late in enumerate((1_000_000, 1_000_030)):
        made = Recorded(rank, 2)
        made.operator("aten::add", late, 5)
        made.launch(late + 10, late + 20, 5)
        made.write(tmp_path / f"rank{rank}.json")
    phases = kineto.read(tmp_path).tables["phases"].to_pylist()
    own = [(each["rank"], each["operation_id"], each["kind"], each["duration_ps"] // _US) for each in phases]
    assert own == [(0, 1, 0, 15), (1, 0, 1, 30), (1, 1, 0, 15)]  # the first one begins the step


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize("second", [1695835535, 4458676], ids=["since 1970", "since a base"])
def test_nanoseconds_of_large_times(tmp_path: Path, second: int, quote: str) -> None:
    """Us with three decimals, as Kineto writes them: of 1.7e15 us a number of 64 bits holds a quarter."""
    made = Recorded()
    made.launch(0, 0, 1.001)
    made.launch(0, 0, 2.003)
    for at, event in enumerate(made.events):
        event["ts"] = f"@{at}"
    text = json.dumps({**made.head, "traceEvents": made.events})
    for at, time in enumerate(("000000.001", "000007.002", "000010.127", "000019.999")):
        text = text.replace(f'"@{at}"', f"{quote}{second}{time}{quote}")
    (tmp_path / "a.json").write_text(text)
    found = kineto.read(tmp_path / "a.json")
    assert [each["duration_ps"] for each in gpu_rows(found)] == [1_001_000, 2_003_000]
    # calls of 5 us: the first returns at 5.001, the second at 15.127
    assert gaps(found) == {0: pytest.approx(5, abs=1e-9), 1: pytest.approx(10.126, abs=1e-9)}


def test_what_encloses_is_the_innermost() -> None:
    """Against a search of all, on nested spans of two threads at random."""
    random = np.random.default_rng(3)
    spans: list[tuple[int, int, int]] = []

    def nest(thread: int, begin: int, end: int) -> None:
        while end - begin > 4:
            first = begin + int(random.integers(0, 4))
            last = min(end, first + 1 + int(random.integers(0, end - begin)))
            spans.append((thread, first, last))
            nest(thread, first, last)
            begin = last

    for thread in (0, 1):
        nest(thread, 0, 120)
    spans.sort(key=lambda each: (each[1], -each[2]))
    thread, begin, end = np.array(spans).T
    asked = np.array([(thread, time) for thread in (0, 1) for time in range(122)])
    found = innermost(Spans(begin, thread, begin, end, [None] * len(spans)), asked[:, 0], asked[:, 1])
    for (of, time), at in zip(asked.tolist(), found.tolist(), strict=True):
        around = [(e - b, -b, i) for i, (t, b, e) in enumerate(spans) if t == of and b <= time < e]
        shortest = min(around)[:2] if around else None
        assert (None if at < 0 else (int(end[at] - begin[at]), -int(begin[at]))) == shortest


def test_ranks_that_were_not_traced_stay_in_their_groups(tmp_path: Path) -> None:
    """The first of two ranks alone: left out, the group has one member; kept, the second one is there with nothing."""
    (two_ranks(tmp_path) / "rank1.pt.trace.json").unlink()
    left, kept = (kineto.read(tmp_path, ReadOptions(missing_ranks=choice)) for choice in ("drop", "keep"))
    assert (left.num_ranks, kept.num_ranks) == (1, 2)
    assert left.tables["communicators"]["members"].to_pylist()[1:] == [[0]]
    assert kept.tables["communicators"]["members"].to_pylist()[1:] == [[0, 1]]
    assert np.diff(kept.rank_offsets).tolist() == [left.num_operations, 0]
    assert {note.code for note in left.notes} - {note.code for note in kept.notes} == {"ranks-missing"}


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int const*)", KernelClass.movement, ""),
        ("void at::native::unrolled_elementwise_kernel<at::native::addcmul(c10::Scalar)>", KernelClass.elementwise, ""),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(float const*)", KernelClass.movement, "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", KernelClass.matrix, "tf32"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn", KernelClass.matrix, "fp16"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32", KernelClass.matrix, "bf16"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::half_t>>", KernelClass.attention, "fp16"),
        ("void softmax_warp_forward<float, float, float, 10, true>", KernelClass.normalisation, "fp32"),
        (
            "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, Adam<float>>",
            KernelClass.optimiser,
            "fp32",
        ),
        ("distribution_elementwise_grid_stride_kernel<float, 4, uniform(double)>", KernelClass.elementwise, "fp32"),
        ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1", KernelClass.matrix, ""),
    ],
)
def test_classes_and_precisions_of_names(name: str, kind: KernelClass, precision: str) -> None:
    """Names as profilers show them of fbgemm, PyTorch, cuDNN, CUTLASS, cuBLAS, FlashAttention and rocBLAS."""
    assert (class_of(name), precision_of(name)) == (kind, precision)
