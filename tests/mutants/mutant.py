"""A mutant: one patch file under `patches`, read and applied.

The file is a unified diff below a header that says what the mutant breaks and which tests have to notice:

    Breaks: one sentence, the promise that no longer holds.
    Caught-by: tests/unit/engine/state/test_ledger.py tests/sim

A hunk goes where its text stands, not where its line number points, so that patches outlive changes elsewhere in the
file. It has to fit at exactly one place: a patch that fits nowhere, or anywhere, is an error and never a guess.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).parent / "patches"
#: The only code that mutants may change: what is shipped.
SHIPPED = ("src/agent_scheduler/", "src/embedded_kubernetes/")

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


class PatchError(Exception):
    """A patch that cannot be read, does not fit the source, or makes no difference. One line."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Whole lines of `path`, before and after."""

    path: str
    line: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str
    caught_by: tuple[str, ...]
    hunks: tuple[Hunk, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it changes."""
        return tuple(dict.fromkeys(hunk.path for hunk in self.hunks))


def all_mutants() -> list[Mutant]:
    """Every mutant, by number. Raises PatchError."""
    return [read(path) for path in sorted(PATCHES.glob("*.patch"), key=_number)]


def _number(path: Path) -> int:
    try:
        return int(path.stem.split("-")[0])
    except ValueError:
        raise PatchError(f"{path.name}: its name has to begin with a number") from None


def read(path: Path) -> Mutant:
    """Raises PatchError."""
    name = path.stem
    header, hunks = [], []
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if line.startswith("--- "):
            break
        header.append(line)
    breaks, found, caught_by = "\n".join(header).partition("\nCaught-by:")
    if not breaks.startswith("Breaks: ") or not found or not caught_by.split():
        raise PatchError(f"{name}: it has to begin with a line 'Breaks: ...' and a line 'Caught-by: ...'")
    if len(caught_by.strip().splitlines()) > 1:
        raise PatchError(f"{name}: nothing but the diff may follow the line 'Caught-by: ...'")
    target, at = "", 0
    old: list[str] = []
    new: list[str] = []

    def end_hunk() -> None:
        if at:
            hunks.append(Hunk(target, at, "".join(old), "".join(new)))
            old.clear()
            new.clear()

    for line in lines:
        if line.startswith("--- "):
            end_hunk()
            at = 0
        elif line.startswith("+++ "):
            target = line[4:].split("\t")[0].removeprefix("b/")
        elif begin := _HUNK.match(line):
            end_hunk()
            at = int(begin[1])
        elif at and line[:1] in ("", " ", "-", "+"):
            text = line[1:] + "\n"
            if line[:1] != "+":
                old.append(text)
            if line[:1] != "-":
                new.append(text)
        else:
            raise PatchError(f"{name}: {line!r} is no line of a unified diff")
    end_hunk()
    if not hunks:
        raise PatchError(f"{name}: it holds no diff")
    sentence = " ".join(breaks.removeprefix("Breaks: ").split())
    return Mutant(name, sentence, tuple(caught_by.split()), tuple(hunks))


def mutated(mutant: Mutant, root: Path) -> dict[str, str]:
    """What the changed files under `root` become, by path. Raises PatchError unless it fits and is valid Python."""
    texts: dict[str, str] = {}
    for path in mutant.paths:
        if not path.startswith(SHIPPED) or not (root / path).is_file():
            raise PatchError(f"{mutant.name}: {path} is no file of {' or '.join(SHIPPED)}")
        before = (root / path).read_text()
        texts[path] = after = _patched(mutant, path, before)
        try:
            ast.parse(after, path)
        except SyntaxError as error:
            raise PatchError(f"{mutant.name}: {path} no longer compiles: {error}") from None
        if after == before:
            raise PatchError(f"{mutant.name}: it changes nothing in {path}")
    return texts


def check_difference(mutant: Mutant, root: Path, texts: dict[str, str]) -> None:
    """Raises PatchError where a file of `texts` differs from that under `root` in comments and layout alone."""
    for path, after in texts.items():
        if ast.dump(ast.parse(after)) == ast.dump(ast.parse((root / path).read_text())):
            raise PatchError(f"{mutant.name}: it changes nothing in {path}")


def _patched(mutant: Mutant, path: str, text: str) -> str:
    # Behind a newline that is not the file's own, a block of whole lines can be found as plain text.
    done, rest = "", "\n" + text
    for hunk in mutant.hunks:
        if hunk.path != path:
            continue
        places = rest.count("\n" + hunk.old)
        if places != 1:
            why = f"fits {places} places" if places else "does not fit"
            raise PatchError(f"{mutant.name}: the hunk for line {hunk.line} of {path} {why}")
        before, _, rest = rest.partition("\n" + hunk.old)
        done += before + "\n" + hunk.new
        # The newline that ends this hunk may begin the next one's place.
        done, rest = done[:-1], "\n" + rest
    return (done + rest)[1:]
