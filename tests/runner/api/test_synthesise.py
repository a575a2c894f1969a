"""``manyscale synthesise``: what is written is what was made; wrong shapes are told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import manyscale
from manyscale.runner.cli import main
from manyscale.runner.study import synthesis
from manyscale.runner.study.content import load_study_content
from manyscale.runner.study.targets import shipped_targets
from manyscale.runner.study.workload import Synthesis

SHAPE = {"layers": 4, "hidden": 256, "heads": 8, "sequence": 128, "global_batch": 16}


def words(output: Path, **more: object) -> list[str]:
    keys = {**SHAPE, "target": "a100", **more}
    options = [word for name, value in keys.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["synthesise", "transformer", *options, "-o", str(output)]


def test_what_is_written_is_the_workload_that_was_made(tmp_path):
    found = manyscale.synthesise(output=tmp_path / "step", target="a100", **SHAPE, tp=2, pp=2, dp=2)
    assert manyscale.read_workload(tmp_path / "step").digest == found.workload.digest
    assert found.figures["ranks"] == found.workload.num_ranks == 8
    assert {note.code for note in found.notes} == {"step-synthesised"}


def test_the_command_says_what_it_made(tmp_path, capsys):
    assert main([*words(tmp_path / "step", tp=2), "--json", str(tmp_path / "figures.json")]) == 0
    told = capsys.readouterr().out
    assert "2 GPUs; the fullest (stage 0) needs about" in told
    assert f"workload: {tmp_path / 'step'}" in told
    figures = json.loads((tmp_path / "figures.json").read_text())
    by_name = {each["name"]: (each["value"], each["unit"]) for each in figures["figures"]}
    assert by_name["tokens"] == (16 * 128, "1")
    assert by_name["memory_bytes"][1] == "B"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"dp": 3}, "synthesise: global_batch: 16 is no multiple of micro_batch x dp, 3"),
        ({"layers": 0}, "synthesise: layers: "),
        ({"target": "xeon-e5-2695"}, "has no node.gpu, whose kernels would be timed; name a machine with GPUs"),
        ({"target": "fermi-tbpoint"}, "the GPU has no node.gpu.matrix.rates.fp16: its tensor cores' peak"),
        ({"target": "a1000"}, "did you mean 'a100'"),
        ({"global_batch": 2**40}, "1099511627776 micro batches are more than"),
        ({"layers": 2**40}, "1099511627776 layers are more than"),
        ({"hidden": 2**40, "layers": 1}, "bytes of an operation exceed 64 bits"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, more, told):
    assert main(words(tmp_path / "step", **more)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]
    assert not (tmp_path / "step").exists()


def test_what_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(synthesis, "memory_bytes", lambda: 10_000)
    with pytest.raises(manyscale.UserError, match=r"16 ranks of [0-9]+ operations need"):
        manyscale.synthesise(target="a100", **SHAPE, dp=16)


def test_a_study_makes_its_workload():
    keys = {**SHAPE, "tp": 2, "target": "a100"}
    found = manyscale.read_workload({"synthesise": keys})
    assert found.digest == manyscale.synthesise(**keys).workload.digest
    with pytest.raises(manyscale.UserError, match=r"workload\.synthesise: heads: 8 is no multiple of tp, 16"):
        manyscale.read_workload({"synthesise": {**keys, "tp": 16}})
    with pytest.raises(manyscale.UserError, match="workload: has both a path and synthesise: leave one out"):
        manyscale.read_workload({"path": "lulesh-8", "synthesise": keys})


def test_the_machine_of_a_study_s_workload_stands_beside_it_and_is_read_again(tmp_path):
    """A GPU whose memory is slower takes longer."""
    machine = yaml.safe_load(shipped_targets()["a100"].read_text())
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(machine))
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump({"workload": {"synthesise": {**SHAPE, "target": "own.yaml"}}, "target": "a100"}))
    choice = load_study_content(study)["workload"]
    first = manyscale.read_workload(choice)
    machine["node"]["gpu"]["dram"]["bandwidth"] = "100 GB/s"
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(machine))
    assert first.column("gpu_operations", "duration_ps").sum() < (
        manyscale.read_workload(choice).column("gpu_operations", "duration_ps").sum()
    )


@pytest.mark.theory
def test_the_utilisation_is_a_share_of_the_data_sheet_s_peak(tmp_path):
    """MFU (Chowdhery et al., PaLM, 2022, appendix B): 72 B s l h^2 (1 + s/6h + V/12lh) over what two H100 could do in
    the step at 989.4 Tflop/s of BF16, though their SMs' clock is above the one that is of."""
    made = manyscale.synthesise(output=tmp_path / "step", target="dgx-h100", **SHAPE, dp=2, precision="bf16")
    result = manyscale.run({"workload": {"path": str(made.path)}, "target": "dgx-h100"}, tmp_path / "run", report=False)
    b, s, l, h, v = 16, 128, 4, 256, 50257  # noqa: E741
    flops = 72 * b * s * l * h**2 * (1 + s / (6 * h) + v / (12 * l * h))
    whole, found = (float(result.statistics[f"step.{name}"].value) for name in ("whole", "model_flops_utilisation"))
    assert found == pytest.approx(flops / (2 * 989.4e12 * whole))
    states = 18 * (l * (12 * h**2 + 13 * h) + h * (v + s))
    assert float(result.statistics["step.memory"].value) == pytest.approx(
        states + float(result.statistics["step.memory.activations"].value)
    )
    assert result.statistics["step.memory_share"].value == result.statistics["step.memory"].value / (80 * 2**30)
    assert "memory-exceeded" not in {note.code for note in result.notes}


def test_a_step_that_its_gpus_cannot_hold_says_by_how_much(tmp_path):
    """GPT-3's states: 16 bytes of each of its 174.6 billion parameters are 43.6 GB of each of 64 GPUs, those of 40 GiB
    have 42.9. A run is held to the memory of its own target."""
    gpt_3 = {"layers": 96, "hidden": 12288, "heads": 96, "sequence": 2048, "global_batch": 8, "vocabulary": 51200}
    choice = Synthesis(**gpt_3, tp=8, pp=8, recompute="full", target="dgx-a100")
    (note,) = synthesis.memory_note(choice)
    assert "GB more than its memory of 42.9 GB holds" in note.text
    assert note.count == 64
    assert synthesis.memory_note(choice.model_copy(update={"target": "p4de"})) == ()
    content = yaml.safe_load(shipped_targets()["dgx-a100"].read_text())
    content["node"]["gpu"]["dram"]["size"] = "1 MB"
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(content))
    made = manyscale.synthesise(output=tmp_path / "step", target=tmp_path / "small.yaml", **SHAPE, dp=2)
    assert "memory-exceeded" in {note.code for note in made.notes}
    study = {"workload": {"path": str(made.path)}, "target": "dgx-a100"}
    assert "memory-exceeded" not in {note.code for note in manyscale.run(study, tmp_path / "run", report=False).notes}
    result = manyscale.run({**study, "target": str(tmp_path / "small.yaml")}, tmp_path / "runs", report=False)
    assert [note.count for note in result.notes if note.code == "memory-exceeded"] == [2]
