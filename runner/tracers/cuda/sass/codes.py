"""Numbers that the decoder and the interpreter share, once: ``header()`` is the interpreter's ``ops.h``."""

from __future__ import annotations

from typing import Final

# Ops: roots of instructions, joined where one piece of code executes them; those that change what runs next first
CONTROL: Final = (
    "BRA", "EXIT", "CALL", "JUMP", "BSSY", "BSYNC", "BREAK", "BMOV_READ", "BMOV_WRITE", "BAR",
    "CLUSTER_ARRIVE", "CLUSTER_WAIT", "NANOSLEEP", "TRAP", "PHASECHK", "WARPGROUP",
    "WARPSYNC",
)  # fmt: skip
OTHERS: Final = (
    "NOP", "MOV", "MOV_PAIR", "IADD3", "IADD_PAIR", "VIADD", "LEA", "IMAD", "LOP3", "SHF", "PRMT", "ISETP", "SEL",
    "IMNMX", "VIADDMNMX", "VIMNMX3", "IABS", "POPC", "FLO", "BREV", "BMSK", "SGXT", "PLOP3", "P2R", "R2P",
    "FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "HADD2", "HMUL2", "HFMA2", "HSET2", "HSETP2", "HMNMX2", "FSET",
    "FSETP", "DSETP", "FSEL", "FMNMX",
    "MUFU", "FCHK", "F2I", "I2F", "I2I", "F2F", "FRND", "F2FP",
    "LOAD", "STORE", "LDC", "ATOMIC", "QSPC", "LDGSTS", "TEX", "TLD", "TLD4", "TXQ", "SULD", "SUST", "SURED",
    "HMMA", "IMMA", "DMMA", "BMMA", "WGMMA", "LDSM", "STSM", "MOVM", "IDP", "VABSDIFF", "PACK_INTEGERS", "VMNMX",
    "ADD_HALVES", "SETMAXREG", "PAIR_FLOAT", "FMNMX3",
    "BARRIER_SET", "BARRIER_ARRIVE", "BARRIER_ARRIVE_BEHIND", "ARRIVE_WORDS", "ARRIVE_WORDS_BEHIND",
    "TENSOR_COPY", "BULK_COPY", "STORE_ASYNC", "SHFL", "VOTE", "MATCH", "REDUX", "S2R", "ELECT", "R2UR", "B2R",
    "UNKNOWN",
)  # fmt: skip
OPS: Final = {name: number for number, name in enumerate((*CONTROL, *OTHERS))}

# Bits of ``modifiers``
COMPARISONS: Final = {
    name: number
    for number, name in enumerate(
        ("F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM", "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T")
    )
}
BOOLEANS: Final = {"AND": 0, "OR": 1 << 4, "XOR": 2 << 4}
ROUNDINGS: Final = {"RN": 0, "RM": 1 << 11, "RP": 2 << 11, "RZ": 3 << 11}
MODIFIERS: Final = {
    "UNSIGNED": 1 << 6, "CARRY": 1 << 7, "HIGH_WORD": 1 << 8, "WIDE": 1 << 9, "FLUSHES": 1 << 10, "SATURATES": 1 << 13,
    "RIGHT": 1 << 14, "BITS_64": 1 << 15, "IS_SIGNED": 1 << 16, "WRAPS": 1 << 17, "SIGN_EXTENDED": 1 << 18,
    "SHIFTED": 1 << 19, "GENERIC": 1 << 23, "KEEPS_NAN": 1 << 24, "BFLOAT": 1 << 25, "RELU": 1 << 26,
    "BMOV_CLEAR": 1 << 27, "BAR_RED": 1 << 28, "BAR_ARV": 1 << 29, "STRONG": 1 << 30,
    "ANY_LANE": 1 << 31,
}  # fmt: skip
SCALE_SHIFT: Final = 20  # three bits: by how much the register of an address is shifted

# Values of ``extra``
TYPES: Final = {
    name: number
    for number, name in enumerate(("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64", "F16", "F32", "F64", "BF16"))
}
SMALL_TYPES: Final = {"E4M3": 12, "E5M2": 13}  # of packed conversions alone
PAIRS: Final = {"F16x2": 14, "BF16x2": 15}  # of atomics alone
ELEMENTS: Final = {  # of matrices
    name: number
    for number, name in enumerate(("F16", "BF16", "TF32", "S8", "U8", "S4", "U4", "B1", "F64", "E4M3", "E5M2"))
}
MUFU: Final = {
    name: number
    for number, name in enumerate(("RCP", "RSQ", "SQRT", "EX2", "LG2", "SIN", "COS", "TANH", "RCP64H", "RSQ64H"))
}
PRMT: Final = {name: number for number, name in enumerate(("INDEX", "F4E", "B4E", "RC8", "ECL", "ECR", "RC16"))}
SHFL: Final = {name: number for number, name in enumerate(("IDX", "UP", "DOWN", "BFLY"))}
VOTE: Final = {name: number for number, name in enumerate(("ALL", "ANY", "EQ"))}
MATCH: Final = {"ANY": 0, "ALL": 1}
ATOMIC: Final = {
    name: number
    for number, name in enumerate(
        ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS", "POPC_INC", "CAST")
    )
}
BRANCH: Final = {"DIV": 1, "CONV": 2}
BAR: Final = {name: number for number, name in enumerate(("POPC", "AND", "OR"))}
SPECIAL: Final = {
    name: number
    for number, name in enumerate(
        (
            "TID_X", "TID_Y", "TID_Z", "CTAID_X", "CTAID_Y", "CTAID_Z", "NCTAID_X", "NCTAID_Y", "NCTAID_Z", "TID",
            "NTID", "LANEID", "WARPID", "SMID", "NSMID", "EQMASK", "LTMASK", "LEMASK", "GTMASK", "GEMASK", "SWINHI",
            "LWINHI", "CLOCK", "CLOCK_HIGH", "TIMER", "TIMER_HIGH", "ZERO", "RANK",
        )
    )
}  # fmt: skip


NOT_FOLLOWED: Final = frozenset(  # ops that reach memory by ways that workers do not follow: their kernels have one
    ("UNKNOWN", "TENSOR_COPY", "BULK_COPY", "TEX", "TLD", "TLD4", "TXQ", "SULD", "SUST", "SURED")
)


def header() -> str:
    """The text of ``ops.h``."""
    groups = {
        "OP_": OPS, "IS_": COMPARISONS, "BOOLEAN_": BOOLEANS, "": MODIFIERS, "TYPE_": TYPES | SMALL_TYPES | PAIRS,
        "ELEMENT_": ELEMENTS, "MUFU_": MUFU,
        "PRMT_": PRMT, "SHFL_": SHFL, "VOTE_": VOTE, "MATCH_": MATCH, "ATOMIC_": ATOMIC, "BAR_": BAR, "SR_": SPECIAL,
        "BRANCH_": BRANCH,
    }  # fmt: skip
    followed = ", ".join(f"OP_{name}" for name in sorted(NOT_FOLLOWED & OPS.keys()))
    lines = ["// Made by codes.py.", "#ifndef MANYSCALE_OPS_H", "#define MANYSCALE_OPS_H"]
    for prefix, values in groups.items():
        lines.append(f"enum {{ {', '.join(f'{prefix}{name} = {value}' for name, value in values.items())} }};")
    lines += [
        f"enum {{ OP_LAST_CONTROL = {len(CONTROL) - 1}, SCALE_SHIFT = {SCALE_SHIFT} }};",
        f"enum {{ COMPARISON = 15, BOOLEAN = {3 << 4}, ROUNDING = {3 << 11} }};",
        f"enum {{ ROUNDS_DOWN = {1 << 11}, ROUNDS_UP = {2 << 11}, ROUNDS_TO_ZERO = {3 << 11} }};",
        f"static const unsigned short OPS_NOT_FOLLOWED[] __attribute__((unused)) = {{ {followed} }};",
        "#endif",
        "",
    ]
    return "\n".join(lines)
