"""Steps of transformers against the papers that they are made by: Narayanan et al. (SC 2021), Korthikanti et al.
(2022), Rajbhandari et al. (ZeRO, SC 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.transformer import kernels
from manyscale.models.transformer.memory import memory
from manyscale.models.transformer.schedule import passes
from manyscale.models.transformer.shape import Transformer
from manyscale.models.transformer.step import workload
from manyscale.models.transformer.times import FITTED, TILES, Framework, kernel_ps, peak_flops
from manyscale.models.workload import KIND_NAMES, OperationKind, Workload
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.predict.gpu.streams.given import given_of
from manyscale.runner.predict.gpu.traced.meetings import stream_collectives
from manyscale.runner.study.targets import build_machine, machine_file

pytestmark = pytest.mark.theory
K, G = OperationKind, GpuOperationKind


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    place, content = machine_file("a100", None)
    found = Gpu.of(build_machine(content, place).node)
    assert found is not None
    return found


def shaped(**keys: Any) -> Transformer:
    return Transformer(**{"layers": 4, "hidden": 256, "heads": 8, "sequence": 128, "global_batch": 16, **keys})


def made(gpu: Gpu, **keys: Any) -> Workload:
    return workload(shaped(**keys), gpu, "A100")


def chosen(found: Workload, kind: OperationKind, group: str) -> np.ndarray:
    """Rows of operations of a kind in groups of a name."""
    names = dict(zip(*(found.tables["groups"].column(each).to_pylist() for each in ("communicator_id", "group_name")),
                     strict=True))  # fmt: skip
    of_group = [number for number, name in names.items() if name == group]
    is_in = np.isin(found.column("operations", "communicator_id"), of_group)
    return np.flatnonzero(is_in & (found.column("operations", "kind") == kind))


class TestShape:
    @pytest.mark.parametrize(  # Narayanan et al., table 1: layers, hidden, heads, billions of parameters
        ("layers", "hidden", "heads", "billions"),
        [(24, 2304, 24, 1.7), (30, 3072, 32, 3.6), (36, 4096, 32, 7.5), (40, 6144, 48, 18.4), (48, 8192, 64, 39.1),
         (60, 10240, 80, 76.1), (80, 12288, 96, 145.6), (96, 16384, 128, 310.1), (105, 20480, 128, 529.6),
         (128, 25600, 160, 1008.0)],
    )  # fmt: skip
    def test_parameters_are_those_of_the_published_models(self, layers, hidden, heads, billions):
        found = shaped(layers=layers, hidden=hidden, heads=heads, sequence=2048, vocabulary=51200)
        assert round(found.parameters / 1e9, 1) == billions

    def test_gpt_3(self):
        found = shaped(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
        assert round(found.parameters / 1e9, 1) == 174.6

    @pytest.mark.parametrize("tp", [2, 4])
    def test_shares_of_stages_are_the_whole_model(self, tp):
        """Tensor parallelism keeps a copy of 6 h parameters of a layer in each of its GPUs (shifts behind the second
        products, normalisations), of places, and of nothing else; of two stages each has the words' vectors. The last
        normalisation belongs to no stage."""
        step = shaped(hidden=64, layers=6, tp=tp, pp=2, vocabulary=1024)
        held = tp * (step.parameters_of_stage(0) + step.parameters_of_stage(1))
        copies = (tp - 1) * (6 * 6 * 64 + 64 * 128)
        assert held - copies == step.parameters + 64 * 1024 - 2 * 64

    def test_operations_of_products_are_those_of_equation_3(self):
        """With the layers' forward pass twice, the logits' once: 96 B s l h^2 (1 + s/6h + V/16lh)."""
        step = shaped(layers=24, hidden=2048, heads=16, sequence=1024, vocabulary=51200, recompute="full")
        layer = kernels.layer(step)
        passes_of_layer = [*layer.forward, *layer.again("full"), *layer.backward]
        of_layers = step.layers * sum(each["flops"].sum() for each in passes_of_layer)
        of_head = sum(each["flops"].sum() for each in kernels.head(step))
        b, s, l, h, v = 1, 1024, 24, 2048, 51200  # noqa: E741
        assert of_layers + of_head == pytest.approx(96 * b * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h)))

    @pytest.mark.parametrize("keys", [{}, {"flash_attention": True}, {"tp": 4}, {"tp": 2, "sequence_parallel": True}])
    def test_model_operations_leave_out_what_is_recomputed(self, keys):
        """72 B s l h^2 (1 + s/6h + V/12lh). Fused attention computes the half of its 12 B s^2 h operations of a layer
        that the mask leaves, and that of 2 more, since it makes its scores again."""
        step = shaped(vocabulary=1024, micro_batch=2, **keys)
        layer = kernels.layer(step)
        of_layers = step.layers * sum(each["flops"].sum() for each in (*layer.forward, *layer.backward))
        products = of_layers + sum(each["flops"].sum() for each in kernels.head(step))
        masked = (12 - (12 + 2) / 2) * step.layers * step.sequence**2 * step.hidden if step.flash_attention else 0
        of_step = (products + masked * step.micro_batch) * step.tp * step.micro_batches
        b, s, l, h, v = 16, 128, 4, 256, 1024  # noqa: E741
        assert step.model_flops == pytest.approx(72 * b * s * l * h**2 * (1 + s / (6 * h) + v / (12 * l * h)))
        assert of_step == pytest.approx(step.model_flops)

    @pytest.mark.parametrize(
        ("keys", "told"),
        [
            ({"heads": 7}, "hidden: 256 is no multiple of heads, 7"),
            ({"tp": 16}, "heads: 8 is no multiple of tp, 16"),
            ({"pp": 3}, "layers: 4 is no multiple of pp x interleaved, 3"),
            ({"dp": 3}, "global_batch: 16 is no multiple of micro_batch x dp, 3"),
            ({"interleaved": 2}, "interleaved: a pipeline of one stage"),
            ({"interleaved": 2, "pp": 2, "micro_batch": 16}, "interleaved: 1 micro batches are no multiple of pp, 2"),
            ({"zero": 3, "pp": 2}, "zero: stage 3 shards gradients"),
            ({"sequence_parallel": True, "tp": 8, "sequence": 100}, "sequence, 100, is no multiple of tp, 8"),
        ],
    )
    def test_what_does_not_divide_is_refused(self, keys, told):
        with pytest.raises(ValidationError, match=told):
            shaped(**keys)


def idle_share(stages: int, micro_batches: int, interleaved: int) -> float:
    """The pipeline bubble over the ideal time, of forward passes of 1 and backward ones of 2, a piece 1/v of them."""
    step = shaped(layers=stages * interleaved, pp=stages, interleaved=interleaved, global_batch=micro_batches)
    left = [passes(step, stage)[::-1] for stage in range(stages)]
    free, end = [0.0] * stages, {}
    while any(left):
        before = sum(map(len, left))
        for stage, queue in enumerate(left):
            while queue:
                each = queue[-1]
                place = each.chunk * stages + stage
                needs = [(each.micro_batch, place + (-1 if each.is_forward else 1), each.is_forward)]
                if not each.is_forward and place == stages * interleaved - 1:
                    needs = [(each.micro_batch, place, True)]
                needs = [] if each.is_forward and place == 0 else needs
                if any(need not in end for need in needs):
                    break
                queue.pop()
                begin = max([free[stage], *(end[need] for need in needs)])
                free[stage] = begin + (1 if each.is_forward else 2) / interleaved
                end[each.micro_batch, place, each.is_forward] = free[stage]
        assert sum(map(len, left)) < before, "the order of passes waits for itself"
    return max(free) / (3 * micro_batches) - 1


class TestPrecision:
    def test_gradients_of_bf16_are_summed_in_32_bits(self, gpu):
        """Megatron-LM's --bf16: 18 bytes of a parameter for 16, and twice the bytes of each sum."""
        half, wide = (shaped(precision=precision, dp=2) for precision in ("fp16", "bf16"))
        of_half, of_wide = (memory(each) for each in (half, wide))
        assert of_wide.total - of_half.total == 2 * half.parameters_of_stage(0)
        sums = [made(gpu, precision=each.precision, dp=2).column("operations", "bytes").sum() for each in (half, wide)]
        assert sums[0] == 2 * 2 * half.parameters_of_stage(0)
        assert sums[1] == 2 * sums[0]


class TestSchedule:
    @pytest.mark.parametrize(
        ("stages", "micro_batches", "interleaved"),
        [(1, 3, 1), *((p, m, v) for p, m in ((2, 4), (4, 4), (4, 16), (8, 8), (8, 32)) for v in (1, 2, 3))],
    )
    def test_the_bubble_is_that_of_narayanan(self, stages, micro_batches, interleaved):
        """(p - 1) / m, and (p - 1) / (v m) of v pieces (section 2.2)."""
        assert idle_share(stages, micro_batches, interleaved) == pytest.approx(
            (stages - 1) / (interleaved * micro_batches)
        )

    def test_each_micro_batch_passes_each_piece_once_each_way(self):
        step = shaped(layers=8, pp=4, interleaved=2, global_batch=8)
        for stage in range(4):
            found = passes(step, stage)
            assert len(set(found)) == len(found) == 2 * 8 * 2


class TestKernels:
    def test_products_take_whole_waves(self, gpu):
        """108 tiles of 256 x 128 are one wave on 108 SMs, one more are two: twice the time, on the same tiles."""
        framework, peak = Framework(matrix_start=0), peak_flops(gpu, "fp16")

        def took(batch: float) -> float:
            found = np.zeros(1, kernels.KERNEL)
            found["kind"], found["count"], found["batch"] = int(KernelClass.matrix), 1, batch
            found["m"], found["n"], found["k"] = TILES[0][0], TILES[0][1], 4096
            return float(kernel_ps(found, gpu, peak, framework)[0])

        flops = 2 * 108 * 256 * 128 * 4096
        assert peak == pytest.approx(312e12, rel=1e-3)  # NVIDIA A100 whitepaper
        assert took(108) == pytest.approx(flops / (peak * framework.matrix_efficiency) * 1e12)
        assert took(216) == pytest.approx(2 * took(108))
        assert took(108) < took(109) <= 2 * took(108)

    def test_fused_attention_is_as_fast_as_measured(self, gpu):
        """Dao, "FlashAttention-2" (2023, abstract): 50 to 73 % of the peak of an A100, long sequences; of those with a
        causal mask half the scores are counted."""
        step = shaped(hidden=2048, heads=16, sequence=16384, flash_attention=True)
        found = np.concatenate([*kernels.layer(step).forward, *kernels.layer(step).backward])
        core = found[found["is_core"] == 1]
        took = kernel_ps(core, gpu, peak_flops(gpu, "fp16"), Framework(matrix_efficiency=0.9)).sum()
        counted = 3.5 * 4 * 16384**2 * 2048 / 2
        assert 0.5 < counted / took / 312 < 0.73

    def test_what_moves_takes_its_bytes_of_dram(self, gpu):
        framework = Framework(kernel_least="0 ps", memory_efficiency=1)
        found = np.zeros(1, kernels.KERNEL)
        found["kind"], found["count"], found["bytes"] = int(KernelClass.elementwise), 1, 1e12
        assert kernel_ps(found, gpu, 1e12, framework)[0] == pytest.approx(1e12 / 1555e9 * 1e12, rel=1e-3)


class TestWorkload:
    def test_groups_are_megatrons(self, gpu):
        """Tensor parallelism numbers its ranks first, then data, then pipeline parallelism."""
        found = made(gpu, tp=2, pp=2, dp=2)
        members = found.tables["communicators"].column("members").to_pylist()
        rows = found.tables["groups"].to_pylist()
        of = {name: [members[row["communicator_id"]] for row in rows if row["group_name"] == name] for name in
              ("tp", "dp", "pp", "embedding")}  # fmt: skip
        assert of["tp"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert of["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
        assert of["pp"] == of["embedding"] == [[0, 4], [1, 5], [2, 6], [3, 7]]

    def test_one_gpu_communicates_with_none(self, gpu):
        found = made(gpu)
        assert not found.tables["groups"].num_rows
        assert not (found.column("gpu_operations", "kind") == G.communication).any()

    @pytest.mark.parametrize(("recompute", "count"), [("none", 4), ("selective", 4), ("full", 6)])
    def test_tensor_parallelism_sums_activations(self, gpu, recompute, count):
        """Of each layer and micro batch twice forward and twice back, b s h elements each (Narayanan et al., 3.2), and
        twice more where the layer is computed again; and once at either end of the model, and three floats a token."""
        step = shaped(tp=2, micro_batch=2, recompute=recompute)
        found = made(gpu, tp=2, micro_batch=2, recompute=recompute)
        rows = chosen(found, K.allreduce, "tp")
        size = found.column("operations", "bytes")[rows]
        whole = 2 * 2 * 128 * 256
        assert size.sum() == step.ranks * step.micro_batches * ((count * 4 + 2) * whole + 3 * 4 * 2 * 128)

    def test_sequence_parallelism_moves_as_much(self, gpu):
        """A ring's all-reduce of n bytes moves what a reduce-scatter and an all-gather of n do (Korthikanti, 4.2.2)."""
        found = made(gpu, tp=2, sequence_parallel=True)
        gathered, scattered = (chosen(found, kind, "tp") for kind in (K.allgather, K.reduce_scatter))
        assert len(gathered) == len(scattered) == 2 * 16 * 4 * 4
        assert set(found.column("operations", "bytes")[gathered]) == {2 * 128 * 256 // 2}
        assert set(found.column("operations", "receive_bytes")[scattered]) == {2 * 128 * 256 // 2}

    @pytest.mark.parametrize("interleaved", [1, 2])
    def test_stages_pass_activations_on(self, gpu, interleaved):
        """m (p v - 1) messages of b s h elements each way; what is sent is received, in the same order."""
        found = made(gpu, pp=2, tp=2, interleaved=interleaved)
        kind, rank = (found.column("operations", name) for name in ("kind", "rank"))
        peer, tag = (found.column("operations", name) for name in ("peer", "tag"))
        sends, receives = np.flatnonzero(kind == K.isend), np.flatnonzero(kind == K.irecv)
        assert len(sends) == len(receives) == 2 * 2 * 16 * (2 * interleaved - 1)
        assert set(found.column("operations", "bytes")[sends]) == {2 * 128 * 256}
        there = sorted(zip(rank[sends].tolist(), peer[sends].tolist(), tag[sends].tolist(), strict=True))
        assert there == sorted(
            zip(peer[receives].tolist(), rank[receives].tolist(), tag[receives].tolist(), strict=True)
        )
        assert all(abs(a - b) == 2 for a, b, _ in there)  # the stage beside, the same place in it

    @pytest.mark.parametrize(("zero", "volumes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
    def test_data_parallelism_moves_what_zero_says(self, gpu, zero, volumes):
        """Of each parameter: 2 of its own sizes with stages 0 to 2, 3 with stage 3 (ZeRO, section 7), of one micro
        batch. What belongs to no layer is gathered once for both passes: vectors of words and places."""
        step = shaped(dp=4, micro_batch=4, zero=zero, layers=32)
        found = made(gpu, dp=4, micro_batch=4, zero=zero, layers=32)
        sizes = {kind: found.column("operations", "bytes" if kind != K.reduce_scatter else "receive_bytes")[
            chosen(found, kind, "dp")].sum() / 4 for kind in (K.allreduce, K.reduce_scatter, K.allgather)}  # fmt: skip
        moved = 2 * sizes[K.allreduce] + 4 * (sizes[K.reduce_scatter] + sizes[K.allgather])
        outside = 2 * 256 * (step.padded_vocabulary + step.sequence)
        assert moved + (outside if zero == 3 else 0) == pytest.approx(volumes * 2 * step.parameters, rel=0.01)

    def test_a_step_has_its_ends_and_its_operations(self, gpu):
        found = made(gpu, pp=2, dp=2, vocabulary=1024)
        steps = found.tables["steps"].to_pylist()
        count = np.diff(found.rank_offsets)
        assert [row["rank"] for row in steps] == [0, 1, 2, 3]
        assert [row["last_operation_id"] for row in steps] == (count - 1).tolist()
        model = found.tables["trained_models"].to_pylist()[0]
        assert model["flops"] == shaped(vocabulary=1024).model_flops
        assert model["tokens"] == 16 * 128
        kernel = found.column("gpu_operations", "kernel_id")
        launched = kernel[kernel >= 0]
        assert found.column("kernels", "flops")[launched].sum() == pytest.approx(model["flops"])

    def test_the_host_takes_its_time_for_each_kernel(self, gpu):
        """Of launches and collectives, and of the tensors of the optimiser."""
        step, framework = shaped(tp=2), Framework()
        found = workload(step, gpu, "A100", framework)
        layer = kernels.layer(step)
        launches = step.layers * sum(each["count"].sum() for each in (*layer.forward, *layer.backward)) * 16
        launches += 16 * sum(each["count"].sum() for each in (*kernels.embedding(step), *kernels.head(step))) + 1
        collectives = len(chosen(found, K.allreduce, "tp")) // 2
        wanted = (launches + collectives) * framework.host_launch_ps + collectives * framework.host_collective_ps
        wanted += 12 * step.layers * framework.host_tensor_ps
        phases = found.column("phases", "duration_ps")[found.column("phases", "rank") == 0]
        assert phases.sum() == pytest.approx(wanted, rel=1e-9)

    def test_layers_are_bundled_where_rows_are_many(self, gpu):
        """The same kernels and bytes, fewer rows, and a note that says what the time lacks."""
        step = shaped(tp=2, layers=8, vocabulary=1024)
        each, bundled = (workload(step, gpu, "A100", Framework(), most) for most in (10_000, 1500))
        assert bundled.num_operations < each.num_operations
        assert {note.code for note in bundled.notes} - {note.code for note in each.notes} == {"layers-bundled"}
        for found in (each, bundled):
            kernel = found.column("gpu_operations", "kernel_id")
            assert found.column("kernels", "flops")[kernel[kernel >= 0]].sum() == pytest.approx(step.model_flops)
            assert found.column("operations", "bytes")[chosen(found, K.allreduce, "tp")].sum() == 2 * 16 * (
                34 * 2 * 128 * 256 + 3 * 4 * 128
            )

    def test_a_replay_takes_as_much_of_either_half_of_a_sum(self, gpu):
        """What is gathered of a member is what was scattered to it (ZeRO's two halves of an all-reduce)."""
        found = made(gpu, dp=2, zero=1)
        given = given_of(found)
        of = stream_collectives(found, given, np.full(len(given), -1), by_model=True)
        sizes = {K(kind).name: size for kind, size in zip(of.kind.tolist(), of.bytes.tolist(), strict=True)}
        own = shaped().parameters_of_stage(0)
        assert sizes == {"reduce_scatter": 2 * -(-own // 2), "allgather": 2 * -(-own // 2)}

    @pytest.mark.parametrize("keys", [{}, {"optimiser_bytes": 30}, {"matrix_efficiency": 0.5}])
    def test_what_was_not_calibrated_is_told(self, gpu, keys):
        note = workload(shaped(), gpu, "B200", Framework(**keys)).notes[0]
        assert "calibrated on A100" in note.text
        default = {name: getattr(Framework(), name) for name in FITTED}
        fitted = {name: f"{value} ps" if name.endswith("_ps") else value for name, value in default.items()}
        assert "A100" not in workload(shaped(), gpu, "B200", Framework(**keys | fitted)).notes[0].text

    def test_names_of_kinds(self, gpu):
        assert set(made(gpu, tp=2, dp=2, zero=3).tables["operations"].column("kind").to_pylist()) <= set(
            KIND_NAMES.to_pylist()
        )

    def test_a_gpu_without_tensor_cores_is_refused(self, gpu):
        with pytest.raises(ValueError, match=r"node\.gpu\.matrix\.rates\.bf16"):
            workload(shaped(precision="bf16"), gpu.model_copy(update={"matrix": None}), "A100")
