"""JSONPath as in kubectl and custom resource definitions.

This is the subset that printer columns and selectable fields use: fields (`.spec.a`, `['a.b']`, escaped dots),
subscripts without slices (`[0]`, `[-1]`, `[*]`, `.*`), and filters on equality, order or existence
(`[?(@.type=="Ready")]`). A compiled path is a pure function.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

Step = Callable[[Any], Iterable[Any]]
Path = Callable[[Any], list[Any]]

_TOKEN = re.compile(
    r"""\.?\[\?\((?P<filter>.*?)\)\]
      | \.?\['(?P<quoted>[^']*)'\]
      | \.?\["(?P<double>[^"]*)"\]
      | \.?\[(?P<index>-?\d+|\*)\]
      | \.(?P<field>(?:\\.|[^.\[\]\\])+)""",
    re.VERBOSE,
)
_FILTER = re.compile(r"""@(?P<path>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+))?""")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JSONPathError(ValueError):
    """The text is not a JSONPath, or uses an unsupported part."""


@lru_cache(maxsize=4096)
def compile_path(text: str) -> Path:
    """Return a function from a JSON value to all matches. Raises `JSONPathError`."""
    steps = _steps(text.strip().removeprefix("{").removesuffix("}").removeprefix("$"), text)

    return partial(_found, steps)


def _found(steps: list[Step], value: Any) -> list[Any]:
    found = [value]
    for step in steps:
        found = [match for one in found for match in step(one)]
    return found


def _steps(rest: str, text: str) -> list[Step]:
    steps: list[Step] = []
    if rest and rest[0] not in ".[":
        rest = "." + rest
    while rest and rest != ".":
        match = _TOKEN.match(rest)
        if match is None:
            raise JSONPathError(f"{text!r} is not a supported JSONPath: cannot read {rest!r}")
        steps.append(_step(match, text))
        rest = rest[match.end() :]
    return steps


def _step(match: re.Match[str], text: str) -> Step:
    if match["filter"] is not None:
        return _filter(match["filter"], text)
    if match["index"] == "*" or match["field"] == "*":
        return _every
    if match["index"] is not None:
        return _at(int(match["index"]))
    name = match["quoted"] if match["quoted"] is not None else match["double"]
    if name is None:
        name = re.sub(r"\\(.)", r"\1", match["field"])
    return _child(name)


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _at(index: int) -> Step:
    def step(value: Any) -> Iterable[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            return (value[index],)
        return ()

    return step


def _child(name: str) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _filter(condition: str, text: str) -> Step:
    match = _FILTER.fullmatch(condition.strip())
    if match is None:
        raise JSONPathError(f"{text!r} is not a supported JSONPath: cannot read the filter {condition!r}")
    inner = _steps(match["path"].strip(), text)
    compare = _OPERATORS.get(match["op"] or "")
    wanted = _literal(match["value"].strip(), text) if match["value"] else None

    def holds(value: Any) -> bool:
        found = _found(inner, value)
        if compare is None:
            return bool(found)
        try:
            return any(compare(one, wanted) for one in found)
        except TypeError:
            return False

    def step(value: Any) -> Iterable[Any]:
        return [one for one in _every(value) if holds(one)]

    return step


def _literal(token: str, text: str) -> Any:
    if token[:1] in "'\"" and token[-1:] == token[:1] and len(token) > 1:
        return token[1:-1]
    if token in ("true", "false"):
        return token == "true"  # noqa: S105 - a JSON literal
    try:
        return float(token) if "." in token else int(token)
    except ValueError:
        raise JSONPathError(f"{text!r} is not a supported JSONPath: {token!r} is no literal") from None
