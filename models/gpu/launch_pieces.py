"""A launch that does not fit into memory: pieces of consecutive blocks, of which those are held whose blocks run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyscale.models.gpu.launch_program import LaunchProgram, launch_program, read_only
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.state import Sm
from manyscale.models.workload.launch_trace import LaunchTrace


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
        """One more piece; those before the first block that runs are forgotten, and what SMs keep of places is set
        back. False: there is none. O(what is held)."""
        piece = next(self.pieces, None)
        if piece is None:
            return False
        more = launch_program(piece, self.gpu, asynchronous=True, controlled=self.controlled, cluster=self.cluster)
        old = self.program
        running = sm.block["number"]
        first = int(running.min(initial=self.end, where=running >= 0)) if self.forgets else int(old.first_block[0])
        first = max(int(old.first_block[0]), min(first, self.end - self.cluster + 1))  # part of a cluster is kept
        begin = first - int(old.first_block[0])
        warp = int(old.block_warps[begin])
        instruction, request = int(old.warp_instructions[warp]), int(old.warp_requests[warp])
        word = int(old.warp_words[warp])
        joined = LaunchProgram(
            static=old.static,
            operand=old.operand,
            first_block=np.array([first]),
            block_warps=_joined(old.block_warps[begin:], more.block_warps),
            warp_instructions=_joined(old.warp_instructions[warp:], more.warp_instructions),
            warp_requests=_joined(old.warp_requests[warp:], more.warp_requests),
            instruction=np.concatenate((old.instruction[instruction:], more.instruction)),
            active=np.concatenate((old.active[instruction:], more.active)),
            requests=np.concatenate((old.requests[instruction:], more.requests)),
            request=np.concatenate((old.request[request:], more.request)),
            written=np.concatenate((old.written[request:], more.written)),
            warp_words=_joined(old.warp_words[warp:], more.warp_words),
            words=np.concatenate((old.words[word:], more.words)),
        )
        self.program = LaunchProgram(*map(read_only, joined))
        self.end += piece.num_blocks
        sm.warp["at"] -= instruction
        sm.warp["last"] -= instruction
        sm.warp["next_request"] -= request
        sm.load["first"] -= request
        sm.warp["next_word"] -= word
        sm.copy["run"] -= word
        return True


def _joined(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Offsets of two stretches, one behind the other, from 0 on."""
    return np.concatenate((before - before[0], after[1:] + (before[-1] - before[0])))
