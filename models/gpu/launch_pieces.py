"""A launch that does not fit into memory: pieces of consecutive blocks, of which those are held whose blocks run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.launch_program import LaunchProgram, launch_program, read_only
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.state import Sm
from manyscale.models.workload.launch_trace import LaunchTrace

SHARE: Final = 0.5


@dataclass
class LaunchPieces:
    """``program``: of the pieces that are held. ``end``: the block behind them."""

    pieces: Iterator[LaunchTrace]
    gpu: Gpu
    program: LaunchProgram
    end: int
    controlled: bool = False
    cluster: int = 1
    forgets: bool = True

    @staticmethod
    def begin(
        first: LaunchTrace, pieces: Iterator[LaunchTrace], gpu: Gpu, controlled: bool = False, cluster: int = 1
    ) -> LaunchPieces:
        """``first`` and those that follow it, in clusters of ``cluster`` blocks. If these do not stand one behind the
        other in the grid, all pieces are held."""
        program = launch_program(first, gpu, asynchronous=True, controlled=controlled, cluster=cluster)
        forgets = cluster in (1, first.cluster[0])
        return LaunchPieces(pieces, gpu, program, first.num_blocks, controlled, cluster, forgets)

    def go_on(self, sm: Sm) -> bool:
        """More pieces; those before the first block that runs are forgotten, and what SMs keep of places is set back.
        False: there is none. O(what comes): it is at least SHARE of what stays, so that what stays is not copied for
        each of many small pieces."""
        old = self.program
        running = sm.block["number"]
        first = int(running.min(initial=self.end, where=running >= 0)) if self.forgets else int(old.first_block[0])
        first = max(int(old.first_block[0]), min(first, self.end - self.cluster + 1))  # part of a cluster is kept
        begin = first - int(old.first_block[0])
        warp = int(old.block_warps[begin])
        instruction, request = int(old.warp_instructions[warp]), int(old.warp_requests[warp])
        word = int(old.warp_words[warp])
        more = self._following(SHARE * (len(old.instruction) - instruction))
        if not more:
            return False
        own = {"block_warps": begin, "warp_instructions": warp, "warp_requests": warp, "warp_words": warp}
        begins = {"instruction": instruction, "active": instruction, "requests": instruction}
        begins |= {"request": request, "written": request, "words": word}
        joined = old._replace(
            first_block=np.array([first]),
            **{
                name: joined_offsets([getattr(old, name)[at:], *(getattr(each, name) for each in more)])
                for name, at in own.items()
            },
            **{
                name: np.concatenate([getattr(old, name)[at:], *(getattr(each, name) for each in more)])
                for name, at in begins.items()
            },
        )
        self.program = LaunchProgram(*map(read_only, joined))
        sm.warp["at"] -= instruction
        sm.warp["last"] -= instruction
        sm.warp["next_request"] -= request
        sm.load["first"] -= request
        sm.warp["next_word"] -= word
        sm.copy["run"] -= word
        return True

    def _following(self, least: float) -> list[LaunchProgram]:
        """The next pieces, of at least so many instructions together, as far as there are some."""
        found: list[LaunchProgram] = []
        size = 0
        for piece in self.pieces:
            found.append(
                launch_program(piece, self.gpu, asynchronous=True, controlled=self.controlled, cluster=self.cluster)
            )
            self.end += piece.num_blocks
            size += piece.num_instructions
            if size >= least:
                break
        return found


def joined_offsets(offsets: Sequence[np.ndarray]) -> np.ndarray:
    """Offsets of several stretches, one behind the other, from 0 on."""
    found, end = [offsets[0] - offsets[0][0]], int(offsets[0][-1] - offsets[0][0])
    for each in offsets[1:]:
        found.append(each[1:] - each[0] + end)
        end += int(each[-1] - each[0])
    return np.concatenate(found)
