"""What compilers emit: the opcodes of all programs that ``suites.py`` built, which of them the decoder refuses, and
whether immediates and constants of the records are those of the encodings.

    python tests/validation/cuda/opcodes.py SCRATCH

The records come from the text of ``cuobjdump``; the encodings are read here on their own, by the places of an immediate
(bits 32 to 63) and of a constant (bank at bits 54 to 58, a quarter of its offset at bits 40 to 53) that are known from
published assemblers for Volta and later. ``SCRATCH/opcodes.json`` is for the report.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda import device_code
from manyscale.runner.tracers.cuda.compiler import Toolkit, toolkit
from manyscale.runner.tracers.cuda.sass import decode, operands
from manyscale.runner.tracers.cuda.sass.codes import OPS
from manyscale.runner.tracers.cuda.sass.listing import Listing, functions

ARCHITECTURES = (75, 80, 86, 90)
NAMES = {number: name for name, number in OPS.items()}
OTHER_PLACES = frozenset(("BRA", "CALL", "JUMP", "BSSY", "MOV_PAIR", "SHFL"))  # SHFL has short ones
SPLIT = frozenset(("LDC",))  # constants that are addressed, with an offset of 16 bits at bit 38


@dataclass
class Found:
    """Counts of static instructions: of opcodes with modifiers by architecture, and of texts that are refused;
    ``wrong``: operands whose encoding says something else."""

    opcodes: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    refused: Counter[str] = field(default_factory=Counter)
    immediates: int = 0
    constants: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, listing: Listing, architecture: int) -> None:
        code = decode.decode(listing.texts, listing.pcs, listing.words, architecture)
        for place, text in enumerate(listing.texts):
            opcode = text.split()[1 if text.startswith("@") else 0]
            self.opcodes[architecture][opcode] += 1
            if place in code.unknown:
                self.refused[f"sm_{architecture} {opcode}"] += 1
                continue
            self._check(f"{name} sm_{architecture} {text}", code.code[place], listing.words[place])

    def _check(self, what: str, record: np.void, word: int) -> None:
        op = NAMES[int(record["op"])]
        if op in OTHER_PLACES:
            return
        used = record["operands"][: int(record["num_operands"])]
        immediates = [int(each["value"]) for each in used if each["kind"] == operands.IMMEDIATE]
        constants = [(int(each["number"]), int(each["value"])) for each in used if each["kind"] == operands.CONSTANT]
        form = word >> 9 & 7  # of the operands: 4 has an immediate in the encoding's second place, 3 and 5 a constant
        if len(immediates) == 1 and form == 4:
            self.immediates += 1
            if immediates[0] != word >> 32 & 0xFFFFFFFF:
                self.wrong.append(what)
        if len(constants) == 1 and op not in SPLIT and form in (3, 5):
            self.constants += 1
            if constants[0] != (word >> 54 & 0x1F, 4 * (word >> 40 & 0x3FFF)):
                self.wrong.append(what)


def gathered(programs: list[Path], kit: Toolkit) -> Found:
    found = Found()
    for number, program in enumerate(programs):
        linked = device_code.linked(program)
        for architecture in ARCHITECTURES:
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    cubins = device_code.extract(linked.files, architecture, kit, Path(scratch))
                except UserError:
                    continue  # built for one architecture alone
                for cubin in cubins:
                    if cubin.kernels and cubin.architecture == architecture:
                        for name, listing in functions(device_code.disassembled(cubin, kit)).items():
                            found.add(f"{program.name} {name}", listing, architecture)
        print(f"{number + 1} of {len(programs)}: {program.name}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    options = parser.parse_args()
    programs = sorted(path for path in options.scratch.glob("programs/*/*/*-O?") if path.is_file())
    found = gathered(programs, toolkit())
    different = {opcode for each in found.opcodes.values() for opcode in each}
    stored = {
        "programs": len(programs), "opcodes": len(different), "immediates": found.immediates,
        "roots": len({opcode.split(".")[0] for opcode in different}),
        "constants": found.constants, "wrong": found.wrong, "refused": dict(found.refused.most_common()),
        "instructions": sum(each.total() for each in found.opcodes.values()),
    }  # fmt: skip
    (options.scratch / "opcodes.json").write_text(json.dumps(stored, indent=1))
    print(json.dumps(stored, indent=1))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
