"""Pages of the tables that a run directory and a workload hold: columns from the Arrow schemas in the sources, and what
the comments beside them say."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Final

import pyarrow as pa
from markdown_cells import cell, code, table

from manyscale.models.workload import OPTIONAL_LEVELS, SCHEMAS

ROOT: Final = Path(__file__).resolve().parents[2]
# file of a run directory: module and name of its schema, and what a row is
FILES: Final = {
    "plan.parquet": ("sampling.plan", "PLAN_SCHEMA", "an element of the plan"),
    "timeline/ranks.parquet": ("runner.run.results", "RANKS_SCHEMA", "a state of a rank, of some duration"),
    "timeline/messages.parquet": ("runner.run.results", "MESSAGES_SCHEMA", "a point-to-point message"),
    "timeline/critical_path.parquet": ("runner.run.critical_path", "SCHEMA", "a segment of the critical path"),
    "timeline/critical_path_links.parquet": ("runner.run.links", "PATH_SCHEMA", "a link on the critical path"),
    "timeline/links.parquet": ("runner.run.links", "SCHEMA", "a link in an interval of time"),
    "timeline/cores.parquet": ("runner.predict.node.tables", "CORES_SCHEMA", "a piece of a task instance on a core"),
    "timeline/core_calls.parquet": ("runner.predict.node.tables", "CORE_CALLS_SCHEMA", "an MPI operation"),
    "timeline/task_instances.parquet": (
        "runner.predict.node.tables", "TASK_INSTANCES_SCHEMA", "a task instance that was simulated",
    ),
    "timeline/cpi_stacks.parquet": ("runner.predict.node.tables", "CPI_STACKS_SCHEMA", "a part of a CPI stack"),
    "timeline/launches.parquet": ("runner.predict.gpu.tables", "LAUNCHES_SCHEMA", "a kernel launch"),
    "timeline/blocks.parquet": ("runner.predict.gpu.tables", "BLOCKS_SCHEMA", "a thread block of a launch"),
    "timeline/gpu_ipc.parquet": ("runner.predict.gpu.tables", "IPC_SCHEMA", "an interval of a launch"),
    "timeline/gpu_streams.parquet": ("runner.predict.gpu.streams.table", "STREAMS_SCHEMA", "an operation of a stream"),
    "timeline/steps.parquet": ("runner.predict.gpu.traced.tables", "STEPS_SCHEMA", "a step of a rank"),
    "timeline/collectives.parquet": (
        "runner.predict.gpu.traced.tables", "COLLECTIVES_SCHEMA", "a member of a collective that streams take part in",
    ),
    "timeline/step_path.parquet": ("runner.predict.gpu.traced.path", "PATH_SCHEMA", "a part of the critical path"),
    "timeline/gpu_lines.parquet": ("runner.predict.gpu.source_tables", "LINES_SCHEMA", "a line of a kernel's source"),
    "timeline/gpu_branches.parquet": ("runner.predict.gpu.source_tables", "BRANCHES_SCHEMA", "a branch of a kernel"),
    "timeline/gpu_cpi_stacks.parquet": ("runner.predict.gpu.tables", "STACKS_SCHEMA", "a part of a launch's CPI stack"),
    "timeline/gpu_resources.parquet": (
        "runner.predict.gpu.tables", "RESOURCES_SCHEMA", "a resource of the GPU that a launch uses",
    ),
}  # fmt: skip
STATIC: Final = (
    "runner.readers.stores.static_columns",
    "STATIC_SCHEMA",
    "A row for each static instruction of launch N: what stands at one address of its kernel. Older folders have the "
    "columns before `executed` alone; `diverged` is there where the trace tells it, and those from `text` on in "
    "launches that `manyscale trace --level gpu` recorded. `launches/N/instructions.parquet` beside it has a row for "
    "each thread block, with the numbers of the instructions that its warps execute.",
)
_RUN_HEAD: Final = """# Tables of a run

The timelines and the plan of a run are Parquet files, which pandas, Polars, DuckDB and R read. This page lists the
columns of each; what the files are for, [The run directory](run-directory.md) says. The page is made from the schemas
by which the files are written. Times are whole picoseconds from the start of the run.

"""
_WORKLOAD_HEAD: Final = """# Tables of a workload

A trace that was read is a *workload*: a set of tables that all models read, whatever format the trace had. This page
lists the columns of each table. It is for those who write a reader for another format, or who look into the folder that
`manyscale convert` writes. It is made from the schemas in the source code, whose docstrings say more
(`models/workload/`). A table that not every trace has says so.

"""


def run_page() -> str:
    """Markdown of the tables of a run directory."""
    parts = [_RUN_HEAD]
    for name, (module, constant, row) in FILES.items():
        source = ROOT / f"{module.replace('.', '/')}.py"
        schema = schema_of(name)
        parts.append(f"## `{name}`\n\nA row is {row}. Schema: `{constant}` in `{source.relative_to(ROOT)}`.\n")
        parts.append(_columns(schema, source.read_text(), constant))
    return "\n".join(parts)


def schema_of(name: str) -> pa.Schema:
    """The schema of a file of a run directory."""
    module, constant, _ = FILES[name]
    return getattr(import_module(f"manyscale.{module}"), constant)


def workload_page() -> str:
    """Markdown of the tables of a workload."""
    sources = {path: path.read_text() for path in sorted((ROOT / "models" / "workload").glob("*_tables.py"))}
    parts = [_WORKLOAD_HEAD]
    for level, schema in SCHEMAS.items():
        path, constant = _constant(level, sources)
        told_of = _told_of(level, sources[path])
        some = " Only some traces have it." if level in OPTIONAL_LEVELS else ""
        parts.append(f"## `{level}`\n\n{told_of}{some}\n\nSchema: `{constant}` in `{path.relative_to(ROOT)}`.\n")
        parts.append(_columns(schema, sources[path], constant))
    module, constant, row = STATIC
    source = ROOT / f"{module.replace('.', '/')}.py"
    parts.append(f"## `launches/N/static.parquet`\n\n{row}\n\nSchema: `{constant}` in `{source.relative_to(ROOT)}`.\n")
    parts.append(_columns(getattr(import_module(f"manyscale.{module}"), constant), source.read_text(), constant))
    return "\n".join(parts)


def _told_of(level: str, source: str) -> str:
    """What the module's docstring says of a table. Raises LookupError where it says nothing."""
    entry = re.search(rf"^(?:``\w+``(?:,| and) )*``{level}``.*\n((?: {{4}}.*\n|\n(?= {{4}}))+)", source, re.MULTILINE)
    if entry is None:
        raise LookupError(f"no docstring tells of the table {level}")
    return cell(entry[1].replace("``", "`"))


def _constant(level: str, sources: dict[Path, str]) -> tuple[Path, str]:
    for path, text in sources.items():
        if match := re.search(rf'"{level}": (\w+_SCHEMA)', text):
            return path, match[1]
    raise LookupError(level)


def _columns(schema: pa.Schema, source: str, constant: str) -> str:
    comments = _comments(source, constant)
    rows = [(code(field.name), cell(_type(field)), cell(comments.get(field.name, ""))) for field in schema]
    return table(("column", "type", "meaning"), rows)


def _type(field: pa.Field) -> str:
    kind = field.type
    name = "text" if pa.types.is_dictionary(kind) or pa.types.is_string(kind) else str(kind).replace("item: ", "")
    return f"{name.replace(' not null', '')}{', may be null' if field.nullable else ''}"


def _comments(source: str, constant: str) -> dict[str, str]:
    """Column to the comment at the end of its line, or on the lines above it, in the definition of a schema."""
    begin = re.search(rf"^{constant}\b.*$", source, re.MULTILINE)
    if begin is None:
        raise LookupError(constant)
    found: dict[str, str] = {}
    above: list[str] = []
    for line in source[begin.end() :].splitlines():
        if line and not line[0].isspace() and line[0] not in ")]}":
            break
        if match := re.match(r"\s*#\s*(.*)", line):
            above.append(match[1])
        elif match := re.search(r'pa\.field\("(\w+)".*?(?:#\s*(.*))?$', line):
            found[match[1]] = " ".join([*above, match[2] or ""]).strip().replace("``", "`")
            above = []
    return found
