"""What the parameters of machines and models are made of: frozen, strict models, and quantities that carry a unit.

Fields that hold a dimension are written with a unit (``"1 us"``) and stored in the unit that the name says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from manyscale.models.workload.quantities import (
    example,
    parse_bytes,
    parse_cycles,
    parse_flop_rate,
    parse_frequency_hz,
    parse_ps_per_byte,
    parse_time_ps,
    pattern,
)


@dataclass(frozen=True)
class Quantity:
    """Says in a JSON schema that a field is written with a unit of ``dimension``, a key such as ``"time in s"``."""

    dimension: str
    may_be_infinite: bool = False

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": pattern(self.dimension, self.may_be_infinite),
            "examples": [example(self.dimension)],
            "x-dimension": self.dimension,
        }


def _parsed(parse: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(parse)


TimePs = Annotated[int, _parsed(parse_time_ps), Quantity("time in s")]
Bytes = Annotated[int, _parsed(parse_bytes), Quantity("size in B")]
PsPerByte = Annotated[float, _parsed(parse_ps_per_byte), Quantity("rate in B/s", may_be_infinite=True)]
Cycles = Annotated[float, _parsed(parse_cycles), Quantity("count in cycles")]
FrequencyHz = Annotated[float, _parsed(parse_frequency_hz), Quantity("frequency in Hz")]
FlopRate = Annotated[float, _parsed(parse_flop_rate), Quantity("rate in flop/s")]
MOST: Final = 2**53  # of what is counted: exact as a float, and far from what 64 bits hold
Count = Annotated[int, Field(ge=1, le=MOST, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST, strict=True)]  # 0: no limit


class Strict(BaseModel):
    """Immutable, and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
