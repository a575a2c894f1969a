"""Studies: what is predicted, with which models, on which machines. A YAML file, or options of the command line."""

from manyscale.runner.study.content import (
    Sweep,
    apply_what_if,
    assign,
    load_study_content,
    num_points,
    parse_assignment,
    point_place,
    sweep_points,
)
from manyscale.runner.study.mapping import IpcCorrection, Mapping_, PlacementFile
from manyscale.runner.study.schema import ModelChoice, SamplingChoice, Study, parse_study
from manyscale.runner.study.workload import Repeat, WorkloadChoice

__all__ = [
    "IpcCorrection", "Mapping_", "ModelChoice", "PlacementFile", "Repeat", "SamplingChoice", "Study", "Sweep",
    "WorkloadChoice", "apply_what_if", "assign", "load_study_content", "num_points", "parse_assignment", "parse_study",
    "point_place", "sweep_points",
]  # fmt: skip
