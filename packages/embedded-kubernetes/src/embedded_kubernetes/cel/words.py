"""What the library says of an expression and of an evaluation, in cel-go's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .initializers import Maps, written
from .macros import OWN
from .names import told

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
    # The library counts loops, a real server all that an evaluation does.
    "Iteration budget exceeded [INTERNAL]": "operation cancelled: actual cost limit exceeded",
    "divide by zero": "division by zero",
    "int64 out of uint64 range": "unsigned integer overflow",
    "double out of int64 range": "integer overflow",
    "uint64 out of int64 range": "integer overflow",
}
#: What is wrong with a regular expression, in Go's words.
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


#: What the library's parser and checker say otherwise than cel-go's.
_WORDS = (
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (
        re.compile(r"\b(?:map|filter)\(\) variable name must be a simple identifier"),
        "argument is not an identifier",
    ),
    (re.compile(r"\b\w+\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (
        # These have methods, and no fields that could be looked for.
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
#: Of a part that could not be read or checked, which cel-go tells once, where it is.
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
    """The errors of several checks of one expression, in the order of their places."""
    return "\n".join(sorted((error for text in texts for error in _errors(text)), key=_place))


def _errors(text: str) -> list[str]:
    return [f"ERROR: {error}" for error in text.removeprefix("ERROR: ").split("\nERROR: ") if error]


def _place(error: str) -> tuple[int, int]:
    """cel-go tells errors in the order of their places."""
    match = _line_and_column(error)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _on_method(error: str) -> str:
    """Of a method, cel-go tells the type that it is called on before those of its arguments."""
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
    """cel-go's checker has other names for types than its answers."""
    for name, long in _GO_TYPES.items():
        types = types.replace(long, name)
    return types


def _rooted(match: re.Match[str]) -> str:
    """cel-go names of an unknown `a.b.c` the `a`, and its place; of an unknown type that is made, its bracket's."""
    line, column, name, source = match[1], int(match[2]), match[3], match[4]
    root = name.partition(".")[0]
    if made := re.match(r"[\w.\s]*(?=\{)", source[column - 1 :]):
        root, column = name, column + made.end()
    elif root != name:
        column = source.rfind(root, 0, column) + 1 or column
    dots = "." * (column - 1)
    return (
        f"ERROR: <input>:{line}:{column}: undeclared reference to '{root}' (in container '')\n | {source}\n"
        f" | {dots}^"
    )


_GO_TYPES = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


def go_type(name: str) -> str:
    found = name.replace("<", "(").replace(">", ")")
    # The names of the library's own types are in capitals.
    return re.sub(r"\b[A-Z]{3,}\b", lambda match: _GO_TYPES.get(found := match[0].lower(), found), found)


def places(error: str, text: str) -> Iterator[tuple[int, str]]:
    """The offsets of errors in the expression that they are of, and what they say."""
    lines = text.split("\n")
    for match in _placed(error):
        line, column = int(match[1]), int(match[2])
        yield sum(len(each) + 1 for each in lines[: line - 1]) + column - 1, match[3]


def located(error: str, maps: Sequence[Maps], text: str) -> str:
    """The same errors where they are in the expression that was written, and from there written anew by and by."""
    found = [told(text, written(place, maps), problem) for place, problem in places(error, maps[-1].text)]
    return "\n".join(found) or error
