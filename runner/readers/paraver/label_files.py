"""Names from the files beside a Paraver trace: event types and values from the ``.pcf``. The file may be missing.

Format: blocks of ``EVENT_TYPE`` (lines ``colour type label``) followed by ``VALUES`` (lines ``value label``) that hold
for all types of the block; separators are blanks or tabs; other blocks say how things look.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from manyscale.runner.errors import UserError

_HEADINGS = (
    "DEFAULT_OPTIONS", "DEFAULT_SEMANTIC", "STATES", "STATES_COLOR", "EVENT_TYPE", "VALUES", "GRADIENT_COLOR",
    "GRADIENT_NAMES",
)  # fmt: skip


@dataclass(frozen=True)
class Labels:
    """``types``: label per event type. ``values``: label per value, per event type."""

    types: dict[int, str] = field(default_factory=dict)
    values: dict[int, dict[int, str]] = field(default_factory=dict)

    def counter(self, event_type: int) -> str:
        """A counter's name: the first word of its label, which Extrae follows up with a description."""
        label = self.types.get(event_type, "").split("[")[0].strip()
        return label or _PRESETS.get(event_type, f"counter {event_type}")

    def value(self, event_type: int, value: int) -> str | None:
        return self.values.get(event_type, {}).get(value)


# what PAPI's presets are called if there is no .pcf: 42000000 + PAPI's number
_PRESETS = {42000050: "PAPI_TOT_INS", 42000059: "PAPI_TOT_CYC"}


def labels_beside(trace: Path) -> Labels:
    """The labels of the ``.pcf`` that stands beside a trace, empty if there is none."""
    name = trace.name.removesuffix(".gz").removesuffix(".prv") + ".pcf"
    path = trace.with_name(name)
    if not path.is_file():
        return Labels()
    try:
        return parse_labels(path.read_text(errors="replace"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def parse_labels(text: str) -> Labels:
    """Labels of a ``.pcf``. What cannot be understood has no label; it names things, no more."""
    labels = Labels()
    heading = ""
    block: list[int] = []  # types that share the values to come
    for line in text.splitlines():
        words = line.split(None, 2)
        if not words:
            heading = "" if heading == "VALUES" else heading
        elif words[0] in _HEADINGS:
            if words[0] == "EVENT_TYPE":
                block = []
            heading = words[0]
        elif heading == "EVENT_TYPE" and len(words) == 3 and words[1].isdigit():
            block.append(int(words[1]))
            labels.types[int(words[1])] = words[2].strip()
        elif heading == "VALUES":
            value = line.split(None, 1)
            if len(value) == 2 and value[0].isdigit():
                for event_type in block:
                    labels.values.setdefault(event_type, {})[int(value[0])] = value[1].strip()
    return labels
