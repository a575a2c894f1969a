"""What may watch the loop of cores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from manyscale.models.node.loop_watch import watches


class Counts(NamedTuple):
    turns: np.ndarray


@pytest.mark.contract
def test_points_are_known() -> None:
    def turn_ends(watch: Counts) -> None: ...

    with pytest.raises(ValueError, match="turn_ends: the loop has no such point; there are core_due, piece_due"):
        watches(Counts)(turn_ends)
