"""The list of faults, `catalogue.toml`: at least one for each promise, and the tests that must detect it.

   [[fault]]
   name = 'ledger-gone-pod-keeps-its-room'
   breaks = 'The room of a pod that is gone is free again.'
   promises = ['S1']
   caught_by = ['tests/unit/engine/test_ledger.py']
   in = 'Ledger.remove_pod'
   find = 'self._count(row, placement.cls, -1)'
   put = 'pass'

`breaks` is the promise that no longer holds; `promises` are its codes (docs/promises.md) and numbers of records.
`caught_by` are tests that fail because of it. In the function `in`, or in the class or module outside its functions,
`find` is replaced by `put`.

`in` is any unique end of a dotted name, so that a fault follows its function to another file; a method should be named
with its class, a function with its module. In `find` any space matches any white space, so that it fits however the
code is formatted. It must match one place: a fault that matches none or several is an error.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

CATALOGUE = Path(__file__).parent / "catalogue.toml"
#: The only code that faults may change: the shipped code.
SHIPPED = (
    "src/agent_scheduler/",
    "packages/embedded-kubernetes/src/embedded_kubernetes/",
    "packages/kube-client/src/kube_client/",
    "packages/apimachinery/src/apimachinery/",
    "bench/src/bench/",
)


class MutantError(Exception):
    """A fault that cannot be read, does not fit the source, or makes no difference. The message is one line."""


Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"where": "in"}):
    name: Text
    breaks: Text
    caught_by: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    where: Text
    find: Text
    put: Text
    promises: tuple[str, ...] = ()


class _Catalogue(msgspec.Struct, forbid_unknown_fields=True):
    fault: list[Mutant]


def all_mutants(text: str | None = None) -> list[Mutant]:
    """Return every fault of the list, or of `text`. Raises MutantError."""
    try:
        return msgspec.toml.decode(CATALOGUE.read_text() if text is None else text, type=_Catalogue).fault
    except msgspec.DecodeError as error:
        raise MutantError(f"{CATALOGUE.name}: {error}") from None


@dataclass(frozen=True, slots=True)
class Scope:
    """A function, or the part of a class or module outside its functions. `numbers`: its lines, from 0."""

    path: str
    numbers: set[int]


class Tree:
    """The shipped code of the tree at `root`. `texts`: by path from `root`; `scopes`: by dotted name."""

    def __init__(self, root: Path) -> None:
        self.texts: dict[str, str] = {}
        self.scopes: dict[str, Scope] = {}
        #: End of a dotted name -> the dotted names.
        self.ends: defaultdict[str, list[str]] = defaultdict(list)
        files = [(folder, file) for folder in SHIPPED for file in (root / folder).rglob("*.py")]
        for folder, file in sorted(files):
            path = file.relative_to(root)
            text = self.texts[path.as_posix()] = file.read_text()
            inner = file.with_suffix("").relative_to((root / folder).parent)
            module = ".".join(inner.parts).removesuffix(".__init__")
            for name, numbers in _scopes(ast.parse(text), module, set(range(len(text.split("\n"))))):
                # A property has several functions of one name.
                self.scopes.setdefault(name, Scope(path.as_posix(), set())).numbers.update(numbers)
        for name in self.scopes:
            parts = name.split(".")
            for start in range(len(parts)):
                self.ends[".".join(parts[start:])].append(name)

    def places(self, find: str, scope: Scope) -> list[tuple[int, int]]:
        """Return the places of `find` in `scope`: first and last character in the file's text."""
        text = self.texts[scope.path]
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        found = []
        for match in re.finditer(r"\s+".join(re.escape(word) for word in find.split()), text):
            lines = range(_line(starts, match.start()), _line(starts, match.end() - 1) + 1)
            if scope.numbers.issuperset(lines):
                found.append(match.span())
        return found


def _line(starts: list[int], at: int) -> int:
    return next(number for number, start in enumerate(starts) if start > at) - 1


def _scopes(node: ast.Module | ast.ClassDef, name: str, numbers: set[int]) -> Iterator[tuple[str, set[int]]]:
    """Yield the scopes in `node`, which has `name` and the lines `numbers`: functions, classes, and its own rest."""
    for each in _definitions(node):
        first = min(part.lineno for part in (each, *each.decorator_list))
        inner = set(range(first - 1, each.end_lineno or first))
        numbers = numbers - inner
        if isinstance(each, ast.ClassDef):
            yield from _scopes(each, f"{name}.{each.name}", inner)
        else:
            yield f"{name}.{each.name}", inner
    yield name, numbers


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the definitions directly in `node`, also under an `if` or a `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _definitions(child)


def mutated(mutant: Mutant, tree: Tree) -> dict[str, str]:
    """Return the text of the changed file, by path.

    Raises MutantError unless the fault fits, compiles and makes a difference.
    """
    path, start, end = _place(mutant, tree)
    text = tree.texts[path]
    line = text[:start].rpartition("\n")[2]
    indent = line[: len(line) - len(line.lstrip())]
    after = text[:start] + mutant.put.replace("\n", f"\n{indent}") + text[end:]
    try:
        changed = ast.dump(ast.parse(after, path))
    except SyntaxError as error:
        raise MutantError(f"{mutant.name}: {path} no longer compiles: {error}") from None
    if changed == ast.dump(ast.parse(text)):
        raise MutantError(f"{mutant.name}: it changes nothing in {path}")
    return {path: after}


def _place(mutant: Mutant, tree: Tree) -> tuple[str, int, int]:
    """Return the path, and the span in its text. Raises MutantError unless there is one place."""
    where, find = mutant.where, mutant.find
    names = tree.ends.get(where, [])
    if len(names) > 1:
        raise MutantError(f"{mutant.name}: {where} is any of {', '.join(names)}: it takes a longer name")
    places = tree.places(find, tree.scopes[names[0]]) if names else []
    if len(places) == 1:
        return tree.scopes[names[0]].path, *places[0]
    if places:
        raise MutantError(f"{mutant.name}: {find!r} fits {len(places)} places in {where}")
    raise MutantError(f"{mutant.name}: {find!r} does not fit {where}{'' if names else ', which is not there'}")
