"""One core that executes a window of a profile's stream, whose branches are known to be predicted or not."""

from __future__ import annotations

from manyscale.models.kernels import inner, inner_inlined
from manyscale.models.node.core.code import RESULT
from manyscale.models.node.core.kernel import do_access, end_block, enters_at, latest_of
from manyscale.models.node.memory.cache_rows import FLAG_BITS, insert, set_begin


@inner
def _begin_block(cores, windows):  # type: ignore[no-untyped-def]
    """As kernel.py's, with what the profile says of the branch."""
    c, limits = cores.core[0], cores.limits[0]
    before = c.block
    c.block = cores.stream.block_ids[c.execution]
    c.mispredicted = 1 if limits.misprediction > 0 and windows.is_mispredicted[c.execution] else 0
    c.execution += 1
    block = cores.code.block[c.block]
    if limits.fetch > 0:
        fetched = block.windows - 1 if block.before == before else block.windows
        c.fetched = max(c.fetched, c.base - limits.ahead) + fetched * limits.fetch
    c.node, c.end_node = block.first_node, block.end_node


@inner_inlined
def do_node(cores, mem):  # type: ignore[no-untyped-def]
    """The next node of core 0's block: a result, or an access. O(its terms)."""
    c = cores.core[0]
    node = cores.code.node[c.node]
    c.node += 1
    if node.kind == RESULT:
        cores.value[0, node.place] = latest_of(cores, 0, node.first_term, node.end_term, c.base + node.entry)
        return
    block = cores.code.block[c.block]
    enters = enters_at(cores, 0, node, block)
    c.base = max(c.base, enters - node.offset * block.slot)
    do_access(cores, mem, 0, node, enters)


@inner
def run_to_execution(cores, mem, windows, end):  # type: ignore[no-untyped-def]
    """Until execution ``end``: when all before it has left. O(accesses and executions)."""
    c = cores.core[0]
    while True:
        while c.node == c.end_node:
            if c.block >= 0 and c.node >= 0:
                end_block(cores, 0, cores.code.block[c.block])
                c.node = c.end_node = -1
            if c.execution == end:
                return max(c.commit + (c.position - 1 - c.commit_position) * cores.limits[0].spacing, c.base)
            _begin_block(cores, windows)
        do_node(cores, mem)


@inner
def fill_from(mem, line, level):  # type: ignore[no-untyped-def]
    """A line lies in ``level`` and, but for exclusive ones, in those beyond; what leaves for it is forgotten."""
    for each in range(level, mem.memory[0].levels):
        one = mem.level[each]
        if one.exclusive and each > level:
            continue
        begin = set_begin(one, mem.first_slot[0, each], line)
        insert(mem.tag, begin, one.ways, line << FLAG_BITS)
        if each == 0:
            insert(mem.ready, begin, one.ways, 0.0)
