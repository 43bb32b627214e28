"""Checks the English of the source and of the pages: docstrings, comments, log events, help and error texts, Markdown.

    python -m tests.project.english          # check the files in the lists, print each finding, exit 1 if there is any
    python -m tests.project.english --paths  # print the list of source, for `ruff check --select D...`
    python -m tests.project.english FILE...  # check these files or folders instead

The lists are `[tool.plain-english]` in pyproject.toml: in `paths` the source and in `pages` the Markdown that is in
plain English already. Ruff checks the form of docstrings (`make lint`); this program checks what ruff cannot: first
lines without a subject or verb, and phrases that are not the field's. Code in backticks, blocks of code and the targets
of links are not checked.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT


class Kind(Enum):
    """The place of a text; some rules apply to some kinds only."""

    FUNCTION = "docstring of a function"
    NOUN = "docstring of a module, class or property"
    COMMENT = "comment"
    EVENT = "log event"
    STRING = "text"
    PAGE = "page"


class Text(NamedTuple):
    """A piece of prose and the line that it begins on."""

    line: int
    kind: Kind
    prose: str


class Rule(NamedTuple):
    """A pattern that must not occur in texts of these kinds, and what to write instead."""

    pattern: re.Pattern[str]
    reason: str
    kinds: frozenset[Kind] = frozenset(Kind)


class Finding(NamedTuple):
    path: Path
    line: int
    kind: Kind
    found: str
    reason: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: {self.kind.value}: "{self.found}": {self.reason}'


_DOCSTRINGS = frozenset({Kind.FUNCTION, Kind.NOUN})
_PROSE = _DOCSTRINGS | {Kind.COMMENT}


def _phrase(words: str, reason: str) -> Rule:
    return Rule(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), reason)


def _first(words: str, reason: str, kinds: frozenset[Kind]) -> Rule:
    """Return a rule on the first word of a text."""
    return Rule(re.compile(rf"\A(?:{words})\b(?!-)"), reason, kinds)


RULES = (
    _first("Of|By|Who|Whom|Whose|That", "begin with the subject or with a verb", _PROSE),
    _first("What|How|Why|Where|Which|It|Its|They|Their|Them|He|And|But|Or", "name the subject", _DOCSTRINGS),
    _first(
        "Whether|None|Nothing|Nobody|True|False|Same|Also|Not|In|To|From|As|With|Without",
        'begin with a verb in the imperative ("Return whether ...")',
        frozenset({Kind.FUNCTION}),
    ),
    _phrase("told|is telling", "name the call: receives, is notified, returns, reports"),
    _phrase("tells? (?:it|them|of|him|us)", "name the call: notifies, reports"),
    _phrase("(?:is|are|was|were|been|be|yet) shown", "observed, displayed, printed or returned"),
    _phrase("(?:is|are|was|were|been|be) said|said (?:of|by|so)|says? (?:so|of)", "reported, stated or set"),
    _phrase(
        "nobody|somebody|anybody|everybody|someone|anyone|everyone|whoever|whomever|whosoever",
        "name the client, caller, user or component",
    ),
    _phrase(
        "anew|lest|heed(?:s|ed)?|there(?:of|in|to|upon)|where(?:of|in|upon)|whence|hitherto|hence"
        "|nought|aught|manieth|betimes",
        "archaic: again, respects, in it, which",
    ),
    _phrase("(?:go|goes|going|gone|went) on with", "continues, resumes"),
    _phrase(r"no more(?=[.,;:)]|\Z| (?:is|and|or|but|in|of|by|if|when|once))", "no longer"),
    _phrase("what is none|that there (?:is|are|was|were) not|that is none", "missing, unknown, does not exist"),
    _phrase(r"so many|so much (?=\w)|so manieth|so long(?! as)", "name the parameter: `limit` entries"),
    _phrase("(?:is|are|was|were|been|be) (?:looked|asked|waited|cared) (?:for|at|into|of)", "name who searches"),
    _phrase("(?:lie|lies|lay|lain|lying) (?:in|with|on|at|beside|by)", "is, is stored in, depends on"),
    _phrase(r"stands? (?:for|by) (?:it|them|him)\w*", "is independent, represents, remains"),
    _phrase("stands? (?:there|in the way|beside)", "exists, blocks"),
    _phrase("sees? to|seen to|saw to", "ensures, handles"),
    _phrase("taken? in|takes in|took in", "applies, accepts, receives"),
    _phrase("brought up to date|put to (?:nobody|him|them)|in thought", "updated, asked, hypothetical"),
    _phrase("to be had|at fault|makes? do|the last word", "available, the cause, uses, final"),
    _phrase("(?:is|are) one (?:that|who|which)|the one (?:that|who) is none", "name the thing"),
    _phrase(
        "behaviours?|honour\\w*|colours?|neighbour\\w*|favour\\w*|labelled|licences?|centre|catalogue\\w*"
        "|(?:normal|recogn|author|initial|serial|organ|summar|minim|maxim|optim)is(?:e|es|ed|ing|ation)",
        "American spelling, as in Kubernetes' API",
    ),
    Rule(
        re.compile(r"\b(?:mend(?:s|ed|ing)?|(?:is|are) not there|(?:comes?|came) to nothing)\b"),
        "repair or fix; is missing, does not exist",
        frozenset({Kind.PAGE}),
    ),
    Rule(re.compile(r"\A[a-z]+(?:_[a-z]+)+\Z"), "words with spaces, no snake_case", frozenset({Kind.EVENT})),
    Rule(re.compile(r"\A[A-Z][a-z]+ |[.!]\Z"), "lower case, without a full stop", frozenset({Kind.EVENT})),
)

_CODE = re.compile(r"`[^`]*`|https?://\S+")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r" *(?:[-*]|[0-9]+\.) ")
_TARGET = re.compile(r"\]\([^)]*\)")
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma|mypy:|ruff:|fmt:|!)")
#: Finds comments many times faster than tokenize. Strings are matched so that a # in them is no comment.
_STRING_OR_COMMENT = re.compile(
    r"""#[^\n]*"""
    r'''|"{3}(?:[^"\\]|\\.|"(?!""))*"{3}|"(?:[^"\\\n]|\\.)*"'''
    r"""|'{3}(?:[^'\\]|\\.|'(?!''))*'{3}|'(?:[^'\\\n]|\\.)*'""",
    re.DOTALL,
)
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


def check(path: Path, source: str, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Return each occurrence of a rule's pattern in the prose of a module or page, in the order of lines."""
    found = []
    read = paragraphs if path.suffix == ".md" else texts
    for text in sorted(read(source), key=lambda text: text.line):
        prose = _CODE.sub("`code`", text.prose)
        for rule in rules:
            if text.kind in rule.kinds and (match := rule.pattern.search(prose)):
                line = text.line + prose.count("\n", 0, match.start())
                found.append(Finding(path, line, text.kind, match.group().strip(), rule.reason))
    return found


def texts(source: str) -> Iterator[Text]:
    """Yield the docstrings, comments, log events and other texts of a module.

    A text is a string, or the constant part of an f-string, that has at least three words.
    """
    skipped: set[ast.AST] = set()
    # Parents come before their children, so docstrings and events are skipped before they come as strings.
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str() as value):
                if node not in skipped and len(value.split()) >= 3:
                    yield Text(node.lineno, Kind.STRING, value)
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if docstring := _docstring(node):
                    skipped.add(docstring)
                    yield Text(docstring.lineno, _kind_of(node), str(docstring.value).strip())
            case ast.Call(func=ast.Attribute(attr=attr, value=logger), args=[ast.Constant() as event, *_]):
                if attr in _LEVELS and _name(logger).endswith("log") and isinstance(event.value, str):
                    skipped.add(event)
                    yield Text(event.lineno, Kind.EVENT, event.value)
    yield from _comments(source)


def paragraphs(page: str) -> Iterator[Text]:
    """Yield the paragraphs, list items, titles and rows of tables of a Markdown page, each as one line.

    Blocks of code and the targets of links are left out.
    """
    lines: list[str] = []
    begin = 1
    blank = True
    for row, line in enumerate(_FENCED.sub(_newlines, page).splitlines(), 1):
        if lines and (not line.strip() or _ITEM.match(line) or line.startswith(("|", "#"))):
            yield Text(begin, Kind.PAGE, " ".join(lines))
            lines = []
        if blank and line.startswith("    "):
            continue
        blank = not line.strip()
        if not blank:
            if not lines:
                begin = row
            lines.append(_TARGET.sub("]", line).strip())
    if lines:
        yield Text(begin, Kind.PAGE, " ".join(lines))


def _newlines(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def _comments(source: str) -> Iterator[Text]:
    """Yield the comments, those on consecutive lines of their own as one."""
    block: list[str] = []
    begin = last = at = 0
    row = 1
    for match in _STRING_OR_COMMENT.finditer(source):
        if not match[0].startswith("#") or _DIRECTIVE.match(match[0]):
            continue
        row, at = row + source.count("\n", at, match.start()), match.start()
        alone = not source[source.rfind("\n", 0, at) + 1 : at].strip()
        comment = match[0].lstrip("#: ")
        if block and alone and row == last + 1:
            block.append(comment)
        else:
            if block:
                yield Text(begin, Kind.COMMENT, "\n".join(block))
            block, begin = [comment], row
        last = row if alone else 0
    if block:
        yield Text(begin, Kind.COMMENT, "\n".join(block))


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Constant | None:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as docstring), *_]:
            return docstring
    return None


def _kind_of(node: ast.AST) -> Kind:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return Kind.NOUN
    decorators = {_name(each).rpartition(".")[2] for each in node.decorator_list}
    return Kind.NOUN if decorators & {"property", "cached_property"} else Kind.FUNCTION


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_name(value)}.{attr}"
    return ""


def rewritten(key: str) -> list[str]:
    """Return the folders and files of a list, `paths` or `pages`, relative to the root of the checkout."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        listed: list[str] = tomllib.load(file)["tool"]["plain-english"][key]
    return listed


def files_of(paths: Sequence[str]) -> list[Path]:
    """Return the Python and Markdown files in these folders, with the files among them.

    Raises FileNotFoundError for a path that does not exist, so that a moved folder does not drop out of the check.
    """
    found: set[Path] = set()
    for each in paths:
        path = ROOT / each
        if not path.exists():
            raise FileNotFoundError(f"[tool.plain-english] names {each}, which does not exist")
        found.update((*path.rglob("*.py"), *path.rglob("*.md")) if path.is_dir() else [path])
    return sorted(found)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if arguments[:1] == ["--paths"]:
        print(*rewritten("paths"), sep="\n")
        return 0
    found = [
        finding
        for path in files_of(arguments or [*rewritten("paths"), *rewritten("pages")])
        for finding in check(path.relative_to(ROOT), path.read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
