"""What kind of operation a call stack is in: map, reduce, sort or input and output.

Huang (Georgia Tech, 2015), section 5.4.3, calls phases of key-value programs by their dominant operation. He does not
say how it is found; here a stack is in the operation of its innermost method whose name tells one, because operations
call each other (a map task that sorts its output is sorting), and a phase is of the kind that most of its snapshots
are in. Names are those of Java's collections, Hadoop and Spark, and of C's and C++'s libraries; others come as
patterns of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

OTHER: Final = "other"
KNOWN: Final = {  # in the order in which a name that fits several is taken
    "io": (
        r"(File|Object|Data|Zip|GZIP|Socket|Print|DFS)\w*(In|Out)put\w*Stream|(In|De)flater(\w*Stream)?\.|FileChannel"
        r"|(Line|Record|Disk\w*)(Reader|Writer)\b|Serializ\w+|SerializerInstance|java\.nio\.file\.Files"
        r"|^_*(f?(read|write)v?|f?(gets|puts|flush)|getc|putc|pread(64)?|pwrite(64)?|open(64)?|close)(@.*)?$"
        r"|^_IO_\w+|std::\w*[io]stream|num_(get|put)<"
    ),
    "reduce": r"[rR]educ(e|er|ing)\w*|[cC]ombin(e|er)\w*|[aA]ggregat|hashAgg|[gG]roupBy|mergeValue|FastHashMap",
    "sort": r"[sS]ort(?!Based|ShuffleWriter|\.\w)|merge(At|Lo|Hi|Collapse)$",
    "map": (
        r"(^|[.:$])(map|flatMap|mapPartitions\w*|tokenize|processNext|project_\w+)(\$\w*)?$|Mapper\b"
        r"|MapPartitionsRDD\.compute|UTF8String\.split"
    ),
}


def kinds_of(methods: Sequence[str], own: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """The kinds' names, the last of which is OTHER, and int64[methods]: the kind that a name tells, or -1. ``own``:
    regular expressions by kind that are tried before those that are known. O(methods)."""
    patterns = [(kind, re.compile(text)) for kind, text in [*(own or {}).items(), *KNOWN.items()]]
    kinds = list(dict.fromkeys(kind for kind, _ in patterns if kind != OTHER))
    found = np.full(len(methods), -1)
    for at, name in enumerate(methods):
        for kind, pattern in patterns:
            if pattern.search(name.split("(")[0]):
                found[at] = kinds.index(kind) if kind != OTHER else len(kinds)
                break
    return (*kinds, OTHER), found
