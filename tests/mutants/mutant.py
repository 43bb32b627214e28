"""A mutant: one file under `faults`, read and applied. It looks like this:

    Breaks: A node that goes and comes back never gets a version that it had before.
    Caught-by: tests/unit/engine/decide/test_decide_judge.py tests/sim

    In: Ledger.remove_node
      self._changed(row, spec=True)
    + columns.version[row] = 0

    In: Ledger._changed
    - self._counter += 1
    + self._counter = int(self.columns.version[row]) + 1

`Breaks` is the promise that no longer holds, and `Caught-by` names the tests that have to notice. Below are the lines
that change, marked as in a diff: `-` goes, `+` comes, and a space stays. `In` says where they stand: in a function, or
in what of a class or a module is outside of its functions. Any end of a dotted name will do that no other has, so that
a mutant is found wherever its function moves; a method is best named with its class, a function with its module.

The lines need not be indented as they are in the file. After a blank line come those of another place in the same
function, unless an `In` begins it. Each place has to be the only one: a mutant that fits nowhere in the function, or
anywhere, is an error and never a guess.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

FAULTS = Path(__file__).parent / "faults"
#: The only code that mutants may change: what is shipped.
SHIPPED = ("src/agent_scheduler/", "src/embedded_kubernetes/")
#: Lines that fit more functions than so many say nothing about where they went.
_MOST_HINTS = 3


class MutantError(Exception):
    """A mutant that cannot be read, does not fit the source, or makes no difference. One line."""


@dataclass(frozen=True, slots=True)
class Change:
    """Whole lines in `where`, before and after, with the indentation that they have in common taken off."""

    where: str
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    caught_by: tuple[str, ...]
    changes: tuple[Change, ...]


def all_mutants() -> list[Mutant]:
    """Every mutant, by number. Raises MutantError."""
    return [read(path) for path in sorted(FAULTS.glob("*.mutant"), key=_number)]


def _number(path: Path) -> int:
    try:
        return int(path.stem.split("-")[0])
    except ValueError:
        raise MutantError(f"{path.name}: its name has to begin with a number") from None


def read(path: Path) -> Mutant:
    """Raises MutantError."""
    name = path.stem
    header, *blocks = re.split(r"\n(?:[ \t]*\n)+", path.read_text().rstrip())
    breaks, found, caught_by = header.partition("\nCaught-by:")
    if not breaks.startswith("Breaks: ") or not found or not caught_by.split():
        raise MutantError(f"{name}: it has to begin with a line 'Breaks: ...' and a line 'Caught-by: ...'")
    if len(caught_by.strip().splitlines()) > 1:
        raise MutantError(f"{name}: a blank line has to follow the line 'Caught-by: ...'")
    where, changes = "", []
    for block in blocks:
        first, _, rest = block.partition("\n")
        if first.startswith("In: "):
            where, block = first.removeprefix("In: ").strip(), rest
        changes.append(_change(name, where, block))
    if not changes:
        raise MutantError(f"{name}: it changes nothing")
    sentence = " ".join(breaks.removeprefix("Breaks: ").split())
    return Mutant(name, sentence, tuple(caught_by.split()), tuple(changes))


def _change(name: str, where: str, block: str) -> Change:
    marked = block.split("\n")
    if not where:
        raise MutantError(f"{name}: a line 'In: ...' has to say where {marked[0]!r} stands")
    for line in marked:
        if line[:1] not in ("-", "+", " "):
            raise MutantError(f"{name}: {line!r} begins neither with '-' nor with '+' nor with a space")
    texts = dedent("\n".join(line[1:] for line in marked)).split("\n")
    lines = list(zip(marked, texts, strict=True))
    old = tuple(text for mark, text in lines if mark[0] != "+")
    if not any(old):
        raise MutantError(f"{name}: it has to name a line in {where} that is there")
    return Change(where, old, tuple(text for mark, text in lines if mark[0] != "-"))


@dataclass(frozen=True, slots=True)
class Scope:
    """A function, or what of a class or a module is outside of its functions. `numbers`: its lines, from 0."""

    path: str
    numbers: set[int]


class Tree:
    """What is shipped of the tree at `root`, as it is now. `texts`: by path from `root`; `scopes`: by dotted name."""

    def __init__(self, root: Path) -> None:
        self.texts: dict[str, str] = {}
        self.scopes: dict[str, Scope] = {}
        #: The dotted names that end like this.
        self.ends: defaultdict[str, list[str]] = defaultdict(list)
        for file in sorted(file for folder in SHIPPED for file in (root / folder).rglob("*.py")):
            path = file.relative_to(root)
            text = self.texts[path.as_posix()] = file.read_text()
            module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
            for name, numbers in _scopes(ast.parse(text), module, set(range(len(text.split("\n"))))):
                # A property has as many functions of one name as it has ways to be used.
                self.scopes.setdefault(name, Scope(path.as_posix(), set())).numbers.update(numbers)
        for name in self.scopes:
            parts = name.split(".")
            for start in range(len(parts)):
                self.ends[".".join(parts[start:])].append(name)

    def places(self, change: Change, scope: Scope) -> list[tuple[int, str]]:
        """The lines of `scope` at which `change` fits, from 0, with the indentation that it has there."""
        lines = self.texts[scope.path].split("\n")
        first = next(index for index, text in enumerate(change.old) if text)
        found = []
        for start in sorted(scope.numbers):
            numbers = range(start, start + len(change.old))
            if not scope.numbers.issuperset(numbers):
                continue
            indent = lines[start + first].removesuffix(change.old[first])
            if not indent.strip() and _indented(change.old, indent) == lines[start : numbers.stop]:
                found.append((start, indent))
        return found


def _scopes(node: ast.Module | ast.ClassDef, name: str, numbers: set[int]) -> Iterator[tuple[str, set[int]]]:
    """The scopes in `node`, which has `name` and the lines `numbers`: functions, classes, and the rest of itself."""
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
    """Those that stand in `node` itself, under an `if` or a `try` too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _definitions(child)


def _indented(texts: Sequence[str], indent: str) -> list[str]:
    return [indent + text if text else "" for text in texts]


def mutated(mutant: Mutant, tree: Tree) -> dict[str, str]:
    """What the files that it changes become, by path. Raises MutantError unless it fits and is valid Python."""
    edits: defaultdict[str, list[tuple[int, int, list[str]]]] = defaultdict(list)
    for change in mutant.changes:
        try:
            path, start, indent = _place(change, tree)
        except MutantError as error:
            raise MutantError(f"{mutant.name}: {error}") from None
        edits[path].append((start, start + len(change.old), _indented(change.new, indent)))
    texts = {}
    for path, places in edits.items():
        lines = tree.texts[path].split("\n")
        begun = len(lines)
        for start, end, new in sorted(places, reverse=True):
            if end > begun:
                raise MutantError(
                    f"{mutant.name}: two of its places have line {begun + 1} of {path} in common"
                )
            lines[start:end], begun = new, start
        texts[path] = after = "\n".join(lines)
        try:
            ast.parse(after, path)
        except SyntaxError as error:
            raise MutantError(f"{mutant.name}: {path} no longer compiles: {error}") from None
        if after == tree.texts[path]:
            raise MutantError(f"{mutant.name}: it changes nothing in {path}")
    return texts


def _place(change: Change, tree: Tree) -> tuple[str, int, str]:
    """Path, line from 0, and indentation. Raises MutantError unless there is one place; it tells where else one is."""
    names = tree.ends.get(change.where, [])
    if len(names) > 1:
        raise MutantError(f"{change.where} is any of {', '.join(names)}: it takes a longer name")
    places = tree.places(change, tree.scopes[names[0]]) if names else []
    if len(places) == 1:
        return tree.scopes[names[0]].path, *places[0]
    text = next(filter(None, change.old))
    if places:
        raise MutantError(f"{text!r} fits {len(places)} places in {change.where}")
    others = [name for name, scope in tree.scopes.items() if len(tree.places(change, scope)) == 1]
    last = change.where.rpartition(".")[2]
    others = [name for name in others if name.endswith(f".{last}")] or others
    hint = f"; it fits {' and '.join(others)}" if 0 < len(others) <= _MOST_HINTS else ""
    raise MutantError(f"{text!r} does not fit {change.where}{'' if names else ', which is not there'}{hint}")


def check_difference(mutant: Mutant, tree: Tree, texts: dict[str, str]) -> None:
    """Raises MutantError where a file of `texts` differs from that of `tree` in comments and layout alone."""
    for path, after in texts.items():
        if ast.dump(ast.parse(after)) == ast.dump(ast.parse(tree.texts[path])):
            raise MutantError(f"{mutant.name}: it changes nothing in {path}")
