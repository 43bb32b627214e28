"""The code blocks of the documentation, and their commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.places import ROOT

_FOLDERS = ("bench", "config", "docs", "packages", "requirements", "src", "tests")
#: Every page of the project.
ALL = tuple(sorted({*ROOT.glob("*.md"), *(page for each in _FOLDERS for page in (ROOT / each).rglob("*.md"))}))
#: The pages for users; the others are about the past (decisions, reports, changes) or about files beside them.
PAGES = tuple(
    page
    for page in ALL
    if page.stem != "CHANGELOG" and not {*page.parts} & {"decisions", "results", "regressions", "data"}
)
_MARKDOWN = MarkdownIt("commonmark")
_HEREDOC = re.compile(r"<<(\w+)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
_NESTED = re.compile(r"\$\(([^()]+)\)")
#: The shell's keywords before a command.
_KEYWORDS = ("until", "while", "do", "done")
#: The languages of blocks whose lines a reader types: commands, and commands after `$ ` with their outputs.
SHELL, SESSION = "sh", "console"


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}\n{self.text}"


@dataclass(frozen=True, slots=True)
class Typed:
    """A command as a reader types it, perhaps on several lines; `shown` is the output on the page."""

    page: Path
    line: int
    text: str
    shown: str = ""
    #: Whether `shown` is an example, of which only the first line is the same everywhere.
    is_example: bool = False
    #: Whether another command of the same block follows.
    has_next: bool = False

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command, without pipes and lists; `stdin` is from its here-document, if it has one."""

    words: tuple[str, ...]
    stdin: str = ""
    #: Whether it is from running text, which may mention a flag without its value.
    spoken: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)


@cache
def _tokens(page: Path) -> list[Token]:
    return _MARKDOWN.parse(page.read_text())


@cache
def blocks(page: Path) -> tuple[tuple[Block, str], ...]:
    """Return the code blocks with their outputs: for a shell block, the block of language `text` that follows it.

    The language of an indented block is "".
    """
    found: list[tuple[Block, str]] = []
    followed = None
    for token in _tokens(page):
        if token.type not in ("fence", "code_block"):
            followed = None
            continue
        assert token.map is not None
        block = Block(page, token.map[0] + 1 + (token.type == "fence"), token.info, token.content)
        if block.language == "text" and followed == SHELL:
            found[-1] = (found[-1][0], block.text)
        found.append((block, ""))
        followed = block.language
    return tuple(found)


def commands(page: Path) -> Iterator[tuple[str, Command]]:
    """Yield all commands that a reader may type, with their places.

    Sources are shell blocks, the lines of sessions (`$ ...`), and command lines of the program in running text.
    """
    for each in typed(page):
        for command in split(each.text):
            yield each.place, command
    for token in _tokens(page):
        for child in token.children or ():
            words = child.content.split()
            if child.type == "code_inline" and words[0] in ("agent-scheduler", "embedded-kubernetes") and words[1:]:
                for command in split(" ".join(words)):
                    yield str(page.relative_to(ROOT)), replace(command, spoken=True)


def typed(page: Path) -> Iterator[Typed]:
    """Yield the commands of shell blocks and sessions, in the order of the page."""
    for block, shown in blocks(page):
        if block.language == SHELL:
            found = [Typed(page, block.line + at, text) for at, text in whole_commands(block.text)]
            found = [replace(each, has_next=True) for each in found[:-1]] + found[-1:]
            yield from found[:-1]
            yield from (replace(each, shown=shown) for each in found[-1:])
        elif block.language == SESSION:
            yield from _session(block)


def whole_commands(script: str) -> Iterator[tuple[int, str]]:
    """Yield each command of a script with the number of lines before it. Raises ValueError if the last has no end."""
    lines: list[str] = []
    for at, line in enumerate(script.splitlines()):
        # Lines of comments are no commands.
        if lines or (line.strip() and not line.startswith("#")):
            lines.append(line)
        if lines and _is_whole("\n".join(lines)):
            yield at + 1 - len(lines), "\n".join(lines)
            lines = []
    if lines:
        raise ValueError(f"no shell command ends here: {lines}")


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    if document := re.search(r"<<(\w+)", text):
        return text.endswith(f"\n{document[1]}")
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def _session(block: Block) -> Iterator[Typed]:
    found: list[Typed] = []
    for at, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            found.append(Typed(block.page, block.line + at, line[2:], is_example=True))
        else:
            found[-1] = replace(found[-1], shown=f"{found[-1].shown}{line}\n")
    return iter(found)


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
