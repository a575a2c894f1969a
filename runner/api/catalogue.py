"""What is shipped: ``examples``, with targets and what can be plugged in; ``accuracy`` of the validation cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.api.answer import Answer
from manyscale.runner.api.folders import Folder
from manyscale.runner.storage.address import located_or_none

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.models.workload.notes import Note
    from manyscale.runner.run.questions.accuracy import Row

_LEVELS: Final = ("rank", "iteration", "task", "launch", "block", "interval")
SEAMS: Final = ("reader", "cpu", "gpu", "network", *(f"{level}-sampler" for level in _LEVELS), "executor")


@dataclass(frozen=True, repr=False, eq=False)
class ExamplesResult(Answer):
    """What comes with the package: ``examples`` and ``targets`` by name with what they are, ``traces`` by name,
    ``memory_traces`` by name with their inputs, ``plug_ins``: names by seam. Tables: ``examples``, ``targets``,
    ``traces``, ``memory_traces``, ``plug_ins``."""

    examples: Mapping[str, str]
    targets: Mapping[str, str]
    traces: Sequence[str]
    memory_traces: Mapping[str, Sequence[int]]
    plug_ins: Mapping[str, Sequence[str]]
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return "what comes with manyscale"

    def facts(self) -> Mapping[str, str]:
        return {
            "examples": f"{len(self.examples)}: {', '.join(self.examples)}",
            "targets": f"{len(self.targets)}: {', '.join(self.targets)}",
            "memory traces": ", ".join(self.memory_traces),
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """All of it."""
        return {
            "examples": dict(self.examples), "targets": dict(self.targets), "traces": list(self.traces),
            "memory_traces": {name: list(sizes) for name, sizes in self.memory_traces.items()},
            "plug_ins": {seam: list(found) for seam, found in self.plug_ins.items()},
        }  # fmt: skip

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        plug_ins = [(seam, name) for seam, names in self.plug_ins.items() for name in names]
        inputs = [(name, size) for name, sizes in self.memory_traces.items() for size in sizes]
        return {
            "examples": lambda: _table(("name", "description"), list(self.examples.items())),
            "targets": lambda: _table(("name", "description"), list(self.targets.items())),
            "traces": lambda: _table(("name",), [(name,) for name in self.traces]),
            "memory_traces": lambda: _table(("name", "input"), inputs),
            "plug_ins": lambda: _table(("seam", "name"), plug_ins),
        }


@dataclass(frozen=True, repr=False, eq=False)
class AccuracyResult(Answer):
    """The validation cases: predicted and reference times in s, and the largest accepted difference. Table:
    ``cases``."""

    cases: Sequence[Row]
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def holds(self) -> bool:
        """Whether all are within their tolerance."""
        return all(row.holds for row in self.cases)

    @property
    def title(self) -> str:
        return f"{len(self.cases)} validation cases"

    def facts(self) -> Mapping[str, str]:
        failed = [row.name for row in self.cases if not row.holds]
        errors = [abs(row.error) for row in self.cases]
        return {
            "out of tolerance": ", ".join(failed) or "none",
            "absolute error": f"mean {sum(errors) / len(errors):.1e} s, max {max(errors):.1e} s",
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """Each case."""
        return {"cases": self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "name": row.name, "predicted_s": row.predicted, "reference_s": row.reference, "error_s": row.error,
                "tolerance_s": row.tolerance, "holds": row.holds,
            }
            for row in self.cases
        ]  # fmt: skip

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        def made() -> pa.Table:
            import pyarrow as pa

            return pa.Table.from_pylist(self._rows())

        return {"cases": made}


def examples() -> ExamplesResult:
    """What is shipped, and what can be plugged in, by name."""
    from manyscale.runner import registry, shipped
    from manyscale.runner.problems import load_yaml

    targets = {name: load_yaml(path).get("description", "") for name, path in shipped.shipped_targets().items()}
    inputs = {name: tuple(found) for name, found in shipped.memory_traces().items()}
    plug_ins = {seam: tuple(registry.names(seam)) for seam in SEAMS}
    return ExamplesResult(shipped.described(), targets, tuple(shipped.traces()), inputs, plug_ins)


def accuracy(cases: Sequence[str] = (), *, cache: str | PathLike[str] | None = None) -> AccuracyResult:
    """Predict the shipped validation cases (all by default) and compare with their references. Raises UserError for an
    unknown name."""
    from manyscale.runner.run.questions.accuracy import evaluate_cases

    given = [cases] if isinstance(cases, str) else list(cases)
    return AccuracyResult(evaluate_cases(given, located_or_none(cache)))


def _table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [() for _ in names]
    return pa.table({name: list(column) for name, column in zip(names, columns, strict=True)})
