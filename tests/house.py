"""Contract of import-linter: no module imports itself over others, counting lazy and TYPE_CHECKING imports."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def cycles(graph: ImportGraph, package: str) -> list[list[str]]:
    """Modules of a package that import each other in a circle: the strongly connected components. O(imports)."""
    modules = sorted(name for name in graph.modules if f"{name}.".startswith(f"{package}."))
    number = {name: index for index, name in enumerate(modules)}
    pairs = [
        (number[name], number[imported])
        for name in modules
        for imported in graph.find_modules_directly_imported_by(name)
        if imported in number
    ]
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    matrix = coo_array(([1] * len(pairs), (rows, columns)), shape=(len(modules), len(modules)))
    count, component = connected_components(matrix, directed=True, connection="strong")
    members: list[list[str]] = [[] for _ in range(count)]
    for name, index in number.items():
        members[component[index]].append(name)
    return sorted(each for each in members if len(each) > 1)


class Acyclic(Contract):
    """Broken by each circle, which is printed."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = cycles(graph, self.session_options["root_packages"][0])
        return ContractCheck(kept=not found, metadata={"cycles": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for circle in check.metadata["cycles"]:
            output.print_error(f"these import each other: {', '.join(circle)}")
