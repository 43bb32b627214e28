"""Translates the errors of cel-expr-python to cel-go's wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .initializers import Maps, written
from .macros import OWN
from .names import problem_text

_status = re.compile(r"^[A-Z_]+: ")
_missing = re.compile(r'Key not found in map : (?:"(.*)"|([^"]*))', re.DOTALL).search
_wrong_index = re.compile(r"Index error: expected integer type, got (\w+)").fullmatch
_pattern = re.compile(r"invalid regular expression: (.*?)(?:: (.*))?", re.DOTALL).fullmatch
_index = re.compile(r"Index error: index=(-?[0-9]+) size=").search
_applied = re.compile(r"found no matching overload for .*")
_placed = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)").finditer
_line_and_column = re.compile(r"(?:<input>|):(\d+):(\d+): ").search
_overload = re.compile(
    r"ERROR: <input>:\d+:(\d+): found no matching overload for '([^']*)' applied to '\((.*)\)'"
).match
_undeclared = re.compile(
    r"ERROR: <input>:(\d+):(\d+): undeclared reference to '([\w.]+)' \(in container ''\)\n \| (.*)\n \| \.*\^"
)
_unconverted = re.compile(
    r"(?:cannot convert string to |Type conversion error from 'string' to '|String to (?=\w+ conversion failed))"
    r"(\w+).*"
).fullmatch
_CONVERTED = {"Duration": "google.protobuf.Duration", "Timestamp": "google.protobuf.Timestamp"}
_OTHERS = {
    # The library limits iterations; kube-apiserver limits the cost of the whole evaluation.
    "Iteration budget exceeded [INTERNAL]": "operation cancelled: actual cost limit exceeded",
    "divide by zero": "division by zero",
    "int64 out of uint64 range": "unsigned integer overflow",
    "double out of int64 range": "integer overflow",
    "uint64 out of int64 range": "integer overflow",
}
#: Go's wording for errors in regular expressions.
_PATTERNS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
}


def said(text: str) -> str:
    text = _status.sub("", text).removesuffix(" [INVALID_ARGUMENT]")
    if missing := _missing(text):
        return f"no such key: {missing[2] if missing[1] is None else missing[1]}"
    if index := _index(text):
        return f"index out of bounds: {index[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    if wrong := _wrong_index(text):
        return f"unsupported index type '{wrong[1]}' in list"
    if pattern := _pattern(text):
        problem, part = _PATTERNS.get(pattern[1], pattern[1]), pattern[2] or ""
        if problem == "trailing \\":
            problem = "trailing backslash at end of expression"
        return f"error parsing regexp: {problem}: `{part}`"
    if converted := _unconverted(text):
        return f"type conversion error from 'string' to '{_CONVERTED.get(converted[1], converted[1])}'"
    if text.startswith(("Invalid container type", "Non-CEL value type")):
        return "no such overload"
    text = _OTHERS.get(text, text)
    return _undeclared.sub(_rooted, _applied.sub(lambda match: _shortened(match[0]), _worded(text)))


#: Errors of the library's parser and checker whose wording differs from cel-go's.
_WORDS = (
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"\b(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"\b\w+\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (
        # Opaque types have methods and no fields.
        re.compile(r"expression of type '(kubernetes\..*)' cannot be the operand of a select operation"),
        r"unexpected failed resolution of '\1'",
    ),
    (
        re.compile(r"expression of type '(.*)' cannot be the operand of a select operation"),
        r"type '\1' does not support field selection",
    ),
    (re.compile(r"cannot be the range of a comprehension"), "cannot be range of a comprehension"),
    (re.compile(r"'\\u003F'"), "'?'"),
)
#: A follow-up error about a part that failed to parse or check. cel-go reports only the first error.
_FOLLOWING = re.compile(r"<<nil>> parsetree|\*error\*").search


def _worded(text: str) -> str:
    if not text.startswith("ERROR: "):
        return text
    first, *others = _errors(text)
    errors = [first, *(other for other in others if not _FOLLOWING(other))]
    text = "\n".join(map(_on_method, sorted(errors, key=_place)))
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def merged(*texts: str) -> str:
    """Return the errors of several checks of one expression, ordered by position."""
    return "\n".join(sorted((error for text in texts for error in _errors(text)), key=_place))


def _errors(text: str) -> list[str]:
    return [f"ERROR: {error}" for error in text.removeprefix("ERROR: ").split("\nERROR: ") if error]


def _place(error: str) -> tuple[int, int]:
    """Return the sort key of an error: cel-go reports errors in the order of their positions."""
    match = _line_and_column(error)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _on_method(error: str) -> str:
    """Return the error with the receiver's type before those of the arguments, as cel-go prints a method call."""
    match = _overload(error)
    if match is None:
        return error
    column, name, (first, *others) = int(match[1]), match[2], _split(match[3])
    source = error.split("\n")[1].removeprefix(" | ")
    if re.search(rf"\.\s*{re.escape(name)}\s*$", source[: column - 1]) and "." not in name:
        types = f"{first}.({', '.join(others)})"
        error = f"{error[: match.start(3) - 1]}{types}{error[match.end(3) + 1 :]}"
    return error.replace(f"'{OWN}", "'")


def _split(types: str) -> list[str]:
    found, depth = [""], 0
    for char in types:
        depth += (char in "(<") - (char in ")>")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [each.strip() for each in found]


def _shortened(types: str) -> str:
    """Return the types with the names that cel-go's checker uses in errors, which differ from those of its results."""
    for name, long in _GO_TYPES.items():
        types = types.replace(long, name)
    return types


def _rooted(match: re.Match[str]) -> str:
    """Return an undeclared reference in cel-go's form.

    For `a.b.c` cel-go reports `a` at its own position; for an unknown type that is constructed, it reports
    the position of the opening brace.
    """
    line, column, name, source = match[1], int(match[2]), match[3], match[4]
    root = name.partition(".")[0]
    if made := re.match(r"[\w.\s]*(?=\{)", source[column - 1 :]):
        root, column = name, column + made.end()
    elif root != name:
        column = source.rfind(root, 0, column) + 1 or column
    dots = "." * (column - 1)
    return (
        f"ERROR: <input>:{line}:{column}: undeclared reference to '{root}' (in container '')\n | {source}\n | {dots}^"
    )


_GO_TYPES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def go_type(name: str) -> str:
    found = name.replace("<", "(").replace(">", ")")
    # cel-expr-python's own types have names in capitals.
    return re.sub(r"\b[A-Z]{3,}\b", lambda match: _GO_TYPES.get(found := match[0].lower(), found), found)


def places(error: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield each error's offset in the expression, and its message."""
    lines = text.split("\n")
    for match in _placed(error):
        line, column = int(match[1]), int(match[2])
        yield sum(len(each) + 1 for each in lines[: line - 1]) + column - 1, match[3]


def located(error: str, maps: Sequence[Maps], text: str) -> str:
    """Return the errors with positions in the original text instead of the last rewrite."""
    found = [problem_text(text, written(place, maps), problem) for place, problem in places(error, maps[-1].text)]
    return "\n".join(found) or error
