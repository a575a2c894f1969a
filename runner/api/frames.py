"""Tables as data frames, with units; axes of sweeps as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from manyscale.models.workload.quantities import measured

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from manyscale.runner.predict.statistic import Statistic

_SUFFIXES: Final = {  # of columns, by the base unit of a quantity
    "s": "s",
    "B": "bytes",
    "B/s": "bytes_per_s",
    "Hz": "hz",
    "flop/s": "flop_per_s",
    "cycles": "cycles",
}
_UNITS: Final = {  # of columns whose names end so
    "ps": "ps",
    "s": "s",
    "seconds": "s",
    "bytes": "B",
    "cycles": "cycles",
    "hz": "Hz",
    **{suffix: unit for unit, suffix in _SUFFIXES.items()},
}


def data_frame(table: pa.Table, units: Mapping[str, str] | None = None) -> pd.DataFrame:
    """``table`` in pandas; ``attrs["units"]``: unit by column, ``units`` or what the ends of their names say."""
    frame = table.to_pandas()
    known = {name: unit for name in table.column_names if (unit := _unit_of(name)) is not None}
    frame.attrs["units"] = known | dict(units or {})
    return frame


def _unit_of(column: str) -> str | None:
    return next((unit for end, unit in _UNITS.items() if column == end or column.endswith(f"_{end}")), None)


def with_numbers(table: pa.Table, axes: Sequence[str]) -> pa.Table:
    """``table`` with a column of numbers behind each axis whose texts are all quantities of one kind: ``AXIS_UNIT`` in
    the base unit, such as ``target.network.latency_s``."""
    for axis in axes:
        found = numbers(table.column(axis).to_pylist())
        if found is None:
            continue
        values, unit = found
        place = table.schema.get_field_index(axis) + 1
        import pyarrow as pa

        table = table.add_column(place, f"{axis}_{_SUFFIXES[unit]}", pa.array(values, pa.float64()))
    return table


def numbers(values: Sequence[Any]) -> tuple[list[float], str] | None:
    """Values of quantities in their base unit, and that unit; None unless all are quantities of one kind."""
    found = [measured(value) if isinstance(value, str) else None for value in values]
    units = {None if each is None else each[1] for each in found}
    if len(units) != 1 or None in units:
        return None
    return [each[0] for each in found if each is not None], found[0][1]  # type: ignore[index]


def statistics_table(statistics: Mapping[str, Statistic]) -> pa.Table:
    """A row per figure: name, value, unit, kind, ci_low, ci_high, description; as ``stats.json`` has them."""
    import pyarrow as pa

    rows = [
        (name, float(each.value), each.unit, each.kind, each.ci_low, each.ci_high, each.description)
        for name, each in statistics.items()
    ]
    columns = ("name", "value", "unit", "kind", "ci_low", "ci_high", "description")
    kinds = (pa.string(), pa.float64(), pa.string(), pa.string(), pa.float64(), pa.float64(), pa.string())
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    return pa.table({name: pa.array(each, kind) for name, kind, each in zip(columns, kinds, values, strict=True)})
