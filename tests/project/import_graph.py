"""The import graph of all distributions, with the imports that only annotations need.

`python -m tests.project.import_graph` prints its cycles: each set of modules that import one another, directly or
through others, with the imports between them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.catalogue import SHIPPED
from tests.support.places import ROOT

#: Module -> the modules that it imports.
Graph = Mapping[str, frozenset[str]]

#: The folders that contain the packages.
SOURCES: Final = tuple((ROOT / folder).parent for folder in SHIPPED)


def import_graph(sources: Sequence[Path] = SOURCES) -> Graph:
    """Return the imports between the modules below these folders, at any depth of their code."""
    files = {name: file for source in sources for name, file in _modules(source)}
    return {name: frozenset(_imports(name, file, files)) - {name} for name, file in files.items()}


def _modules(source: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def _imports(name: str, file: Path, files: Mapping[str, Path]) -> Iterator[str]:
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                if whole in files or base in files:
                    yield whole if whole in files else base


def cycles(graph: Graph) -> list[frozenset[str]]:
    """Return the strongly connected components of more than one module, by Tarjan's algorithm."""
    found: list[frozenset[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            start = stack.index(module)
            component = frozenset(stack[start:])
            del stack[start:]
            if len(component) > 1:
                found.append(component)

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def described(cycle: frozenset[str], graph: Graph) -> str:
    """Return the imports within a cycle, one module a line."""
    return "\n".join(f"  {module} -> {', '.join(sorted(graph[module] & cycle))}" for module in sorted(cycle))


def main() -> int:
    graph = import_graph()
    found = cycles(graph)
    for cycle in found:
        print(f"{len(cycle)} modules:\n{described(cycle, graph)}")
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports, {len(found)} cycles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
