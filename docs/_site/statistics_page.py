"""The page of all statistics: read from the calls of ``Statistic`` in the sources, with unit, kind and description.

Names of which a part depends on the run (a level of cache, a part of a CPI stack) show that part in capitals.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_cells import cell, code, table

ROOT: Final = Path(__file__).resolve().parents[2]
_HEAD: Final = """# Statistics

A statistic is one predicted figure of a run, such as its time. Each has a name that scripts can rely on, a unit, a kind
that says how it may be combined with others, and, where something was sampled, the bounds of a confidence interval. All
of a run stand in `stats.json` and `stats.txt`, and are the columns of `sweep.parquet`.

| kind | how several are combined |
| --- | --- |
| `total` | they are added up |
| `mean` | they are averaged; times are means over the ranks unless the description says otherwise |
| `ratio` | they are neither added nor averaged: divide what they are made of |
| `count` | they are added up |

The unit `1` is a plain number. This page is made from the source code that computes the statistics. Parts of names in
capitals stand for what a run has, such as the levels of its caches.

"""
_TITLES: Final = {
    "application": "The application", "network": "The network", "node": "Cores and memory inside nodes",
    "intervals": "Programs from their intervals", "gpu": "GPUs", "sampling": "Sampling", "memory": "Memory profiles",
    "size": "Predictions at other input sizes", "notes": "Notes",
    "step": "Steps of training", "step_path": "The critical path of steps", "group": "Groups of GPUs in a step",
    "job": "Jobs that share a machine",
    "nccl": "Collectives of NCCL, where their times were traced",
    "cores": "Cores, where two runs are compared", "critical_path": "The critical path, where two runs are compared",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A statistic as the sources have it; what depends on the run is in capitals."""

    name: str
    unit: str
    kind: str
    description: str
    place: str


def page() -> str:
    """Markdown of every statistic, by what it is about."""
    found = figures()
    heads = list(dict.fromkeys(figure.name.partition(".")[0] for figure in found))
    parts = [_HEAD]
    for head in sorted(heads, key=lambda each: list(_TITLES).index(each)):
        mine = [figure for figure in found if figure.name.partition(".")[0] == head]
        rows = [(code(each.name), code(each.unit), each.kind, cell(each.description)) for each in mine]
        places = ", ".join(f"`{place}`" for place in dict.fromkeys(each.place for each in mine))
        parts += [f"## {_TITLES[head]}\n", f"Computed in {places}.\n", table(("name", "unit", "kind", "meaning"), rows)]
    return "\n".join(parts)


def figures() -> list[Figure]:
    """All statistics that the sources make; a name twice if models say different things of it."""
    found: dict[tuple[str, str], Figure] = {}
    for part in ("runner/run", "runner/predict", "runner/report"):
        for path in sorted((ROOT / part).rglob("*.py")):
            text = path.read_text()
            if "Statistic(" in text:
                for figure in _of_module(ast.parse(text), str(path.relative_to(ROOT))):
                    found.setdefault((figure.name, figure.description), figure)
    return list(found.values())


def _of_module(tree: ast.Module, place: str) -> Iterator[Figure]:
    makers = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _returned(node)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for key, value, line in _entries(function):
                for known in _loops(function, line):
                    scope = {**_texts(function, line), **known}
                    call = _made(value, makers, scope)
                    name = _text(key, scope)
                    if call is not None and name:
                        yield Figure(name, *call, place)


def _entries(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """(name, value, line) wherever a mapping gets an entry."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    yield key, value, key.lineno
        elif isinstance(node, ast.DictComp):
            yield node.key, node.value, node.lineno
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.targets[0].slice, node.value, node.lineno


def _returned(function: ast.FunctionDef) -> ast.Call | None:
    """The first call of Statistic that a function, not one inside it, returns."""
    inner = {each for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function
             for each in ast.walk(node)}  # fmt: skip
    for node in ast.walk(function):
        if node not in inner and isinstance(node, ast.Return) and _calls(node.value, "Statistic"):
            assert isinstance(node.value, ast.Call)
            return node.value
    return None


def _calls(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _made(
    value: ast.expr, makers: Mapping[str, ast.FunctionDef], scope: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """(unit, kind, description) of a value that is a Statistic, or that a function makes one of."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
        return None
    if value.func.id == "Statistic":
        unit, kind, description = (_text(each, scope) for each in value.args[1:4])
        return unit, kind, description
    maker = makers.get(value.func.id)
    if maker is None or (made := _returned(maker)) is None:
        return None
    names = [each.arg for each in maker.args.args]
    defaults = dict(zip(names[::-1], maker.args.defaults[::-1], strict=False))
    given = {**defaults, **dict(zip(names, value.args, strict=False))}
    given |= {each.arg: each.value for each in value.keywords if each.arg}
    inner = {**_texts(maker, made.lineno), **{name: _text(each, scope) for name, each in given.items()}}
    unit, kind, description = (_text(each, inner) for each in made.args[1:4])
    return unit, kind, description


def _texts(function: ast.FunctionDef, line: int) -> dict[str, str]:
    """Local names that were last assigned a text before ``line``."""
    found: dict[str, str] = {}
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign)]
    for node in sorted(assigned, key=lambda each: each.lineno):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if node.lineno < line and isinstance(target, ast.Name) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            if isinstance(node, ast.Assign):
                found[target.id] = _text(node.value, found)
            else:  # what is said in some runs only
                found[target.id] = found.get(target.id, "") + " (...)"
    return found


def _loops(function: ast.FunctionDef, line: int) -> list[dict[str, str]]:
    """The texts that loop variables around ``line`` take, where loops go over literals; one empty mapping without."""
    for node in ast.walk(function):
        loops = node.generators if isinstance(node, ast.DictComp) else [node] if isinstance(node, ast.For) else []
        end = getattr(node, "end_lineno", 0)
        for loop in loops:
            if getattr(node, "lineno", 0) <= line <= end and isinstance(loop.iter, ast.Tuple | ast.List):
                names = [each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)]
                rows = [each.elts if isinstance(each, ast.Tuple) else [each] for each in loop.iter.elts]
                return [
                    {name: each.value for name, each in zip(names, row, strict=False) if _is_text(each)} for row in rows
                ]
    return [{}]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.expr, scope: Mapping[str, str]) -> str:
    """A text; what is not known before the run in capitals."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part.value if isinstance(part, ast.FormattedValue) else part, scope) for part in node.values
        )
    if isinstance(node, ast.Name):
        return scope.get(node.id, node.id.upper())
    if isinstance(node, ast.Attribute):
        return node.attr.upper()
    if isinstance(node, ast.IfExp):
        return _text(node.orelse, scope)
    if isinstance(node, ast.Subscript):
        return "as the model's name says"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        whole = _text(node.func.value, scope)
        if node.func.attr == "upper":
            return whole.upper()
        if node.func.attr == "format":
            return whole.format(*(_text(each, scope) for each in node.args))
    return "..."
