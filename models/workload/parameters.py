"""What the parameters of machines and models are made of: frozen, strict models, and quantities that carry a unit.

Fields that hold a dimension are written with a unit (``"1 us"``) and stored in the unit that the name says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from manyscale.models.workload.quantities import (
    parse_bytes,
    parse_cycles,
    parse_frequency_hz,
    parse_ps_per_byte,
    parse_time_ps,
)


def _parsed(parse: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(parse)


TimePs = Annotated[int, _parsed(parse_time_ps)]
Bytes = Annotated[int, _parsed(parse_bytes)]
PsPerByte = Annotated[float, _parsed(parse_ps_per_byte)]
Cycles = Annotated[float, _parsed(parse_cycles)]
FrequencyHz = Annotated[float, _parsed(parse_frequency_hz)]
MOST: Final = 2**53  # of what is counted: exact as a float, and far from what 64 bits hold
Count = Annotated[int, Field(ge=1, le=MOST, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST, strict=True)]  # 0: no limit


class Strict(BaseModel):
    """Immutable, and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
