"""The code blocks of the documentation, and their commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from tests.support.places import APIMACHINERY, EMBEDDED, KUBE_CLIENT, ROOT

#: The pages for users. Decision records are excluded because they describe the past.
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")),
    *(folder / "README.md" for folder in (APIMACHINERY, KUBE_CLIENT, EMBEDDED)),
    EMBEDDED / "docs" / "faults.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "tools").glob("*.md")),
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)
_HEREDOC = re.compile(r"<<(\w+)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
_NESTED = re.compile(r"\$\(([^()]+)\)")
#: The shell's keywords before a command.
_KEYWORDS = ("until", "while", "do", "done")
#: The programs whose names begin the lines of indented blocks of commands.
PROGRAMS = ("agent-scheduler", "embedded-kubernetes", "kubectl", "make", "python")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}\n{self.text}"

    @property
    def is_shell(self) -> bool:
        return self.language == "sh"


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command, without pipes and lists; `stdin` is from its here-document, if it has one."""

    words: tuple[str, ...]
    stdin: str = ""
    #: Whether it is from running text, which may mention a flag without its value.
    spoken: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)


def blocks(page: Path) -> Iterator[tuple[Block, str]]:
    """Yield the fenced blocks with their outputs: for a shell block, the block of language `text` that follows it."""
    text = page.read_text()
    found = [*_FENCED.finditer(text)]
    for one, following in zip_longest(found, found[1:]):
        shows = following is not None and following[1] == "text" and not text[one.end() : following.start()].strip()
        yield Block(page, text[: one.start()].count("\n") + 1, one[1], one[2]), following[2] if shows else ""


def commands(page: Path) -> Iterator[tuple[str, Command]]:
    """Yield all commands that a reader may type, with their places.

    Sources are shell blocks, the lines of sessions (`$ ...`), indented blocks, and command lines of the program in
    running text.
    """
    text = page.read_text()
    for block, _ in blocks(page):
        typed = block.text if block.is_shell else _session(block.text) if not block.language else ""
        for command in split(typed):
            yield f"{page.relative_to(ROOT)}:{block.line}", command
    prose = _FENCED.sub("", text)
    for indented in _INDENTED.findall(prose):
        if indented.split()[0] in PROGRAMS:
            for command in split(indented):
                yield str(page.relative_to(ROOT)), command
    for span in re.findall(r"`((?:agent-scheduler|embedded-kubernetes) [a-z-][^`]*)`", prose):
        for command in split(" ".join(span.split())):
            yield str(page.relative_to(ROOT)), replace(command, spoken=True)


def _session(text: str) -> str:
    return "".join(f"{line[2:]}\n" for line in text.splitlines() if line.startswith("$ "))


def split(script: str) -> Iterator[Command]:
    """Yield the simple commands of a shell script, those in `$(...)` first. Raises ValueError for an open quote."""
    documents = [match[2] for match in _HEREDOC.finditer(script)]
    script = _HEREDOC.sub("<<HERE", script).replace("\\\n", " ")
    for line in script.splitlines():
        for nested in _NESTED.findall(line):
            yield from split(nested)
        words: list[str] = []
        stdin = ""
        lexer = shlex.shlex(_NESTED.sub("NESTED", line), posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        tokens = iter([*lexer, ";"])
        for token in tokens:
            if token == "<<":
                next(tokens)
                stdin = documents.pop(0)
            elif token in (">", ">>", "<", ">&"):
                next(tokens)
                if token == ">&" and words[-1:] == ["2"]:
                    words.pop()
            elif token and set(token) <= set("|&;"):
                while words and words[0] in _KEYWORDS:
                    words.pop(0)
                if words:
                    yield Command(tuple(words), stdin)
                words, stdin = [], ""
            else:
                words.append(token)


def differs(said: str, shown: str) -> str:
    """Compare an output with the one on the page; return the difference, or "".

    A line `...` matches any lines, `...` in a line matches any text, and blanks match any number of blanks.
    """
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            exact = r"[ \t]+".join(re.escape(word) for word in line.split())
            pattern += r"[ \t]*" + exact.replace(re.escape("..."), ".*") + r"[ \t]*\n"
    return "" if re.fullmatch(pattern, said) else f"shown:\n{shown}\nsaid:\n{said}"
