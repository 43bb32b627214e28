"""Compiled expressions: what they are told to be wrong, and what they answer, in cel-go's words.

The library is cel-expr-python, the CEL project's own; its parser is made of the same grammar as cel-go's, so that
errors of syntax are word for word those of a real server. It bounds loops by itself. Compiled expressions are kept, as
one is asked for each object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from agent_scheduler.objects.celtypes import FUNCTIONS, hashable

from . import library
from .authorizer import ASK, METHODS, Ask
from .initializers import Maps, as_calls, as_maps, has_initializers
from .names import Names, inlined, missing_field, problems, told

#: What every expression may name; those of a policy also `params`, `variables` and `namespaceObject`.
VARIABLES = ("object", "oldObject", "request", "params", "variables", "namespaceObject")
AUTHORIZER, REQUEST_RESOURCE = "authorizer", "authorizer.requestResource"
#: Compiled expressions that are kept; they come from configurations.
_KEPT = 4096

#: Fields whose types the checker knows, as variables of their own: it goes by the longest name that it finds.
_STRINGS = tuple(
    f"request.{path}"
    for path in (
        *(f"{kind}.{part}" for kind in ("kind", "requestKind") for part in ("group", "version", "kind")),
        *(
            f"{kind}.{part}"
            for kind in ("resource", "requestResource")
            for part in ("group", "version", "resource")
        ),
        *("subResource", "requestSubResource", "name", "namespace", "operation"),
        *("userInfo.username", "userInfo.uid"),
    )
)
_NAMESPACE_STRINGS = tuple(
    f"namespaceObject.{path}"
    for path in (
        *(f"metadata.{name}" for name in ("name", "generateName", "namespace", "UID", "resourceVersion")),
        "status.phase",
    )
)
_TYPED = re.compile(r"\b(?:request|namespaceObject)\s*\.").search
#: The macro would take a declared name for the value that it tests.
_TESTED = re.compile(r"\b(has\(\s*)(request|namespaceObject)\b")

_status = re.compile(r"^[A-Z_]+: ")
_missing = re.compile(r'Key not found in map : "(.*)"', re.DOTALL).search
_index = re.compile(r"Index error: index=(-?[0-9]+) size=").search
_applied = re.compile(r"found no matching overload for .*")
_placed = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)").finditer
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
}


class CelError(ValueError):
    """What is wrong with an expression, or with one evaluation of it."""


class Program:
    """One expression. `result` is its type as cel-go names it: `bool`, `dyn`, `list(map(string, int))`."""

    __slots__ = ("_compiled", "result", "text")

    def __init__(self, text: str, environment: Any = None) -> None:
        """Raises `CelError` with all that is wrong."""
        self.text = text
        try:
            self._compiled = _compiled(text) if environment is None else environment.compile(text)
        except CelError:
            raise
        except (RuntimeError, ValueError, RecursionError) as error:
            raise CelError(_said(str(error))) from None
        self.result = _go_type(self._compiled.return_type().name())

    def evaluate(self, variables: Mapping[str, Any], ask: Ask | None = None) -> Any:
        """The answer as a JSON value, but for bytes, times and durations. Raises `CelError` with what cel-go says of
        it."""
        token = ASK.set(ask)
        try:
            answer = self._compiled.eval(data=variables)
            kind, value = answer.type().name(), answer.value()
            if kind == "ERROR":
                raise CelError(self._why(str(value), variables))
            return _json(value)
        except (RuntimeError, TypeError, OverflowError) as error:
            raise CelError(self._why(str(error), variables)) from None
        finally:
            ASK.reset(token)

    def _why(self, error: str, variables: Mapping[str, Any]) -> str:
        """cel-go finds no key in what is no map either; the library does not say which."""
        if "Applying SELECT to non-message type" in error:
            name = missing_field(self.text, variables)
            return f"no such key: {name}" if name else "no such overload"
        return _said(error)


@lru_cache(maxsize=_KEPT)
def program(text: str) -> Program:
    """Raises `CelError` for what does not compile."""
    return Program(text)


def checked(text: str, names: Names) -> Program:
    """As `program`, for an expression that may name these alone. Its type is what is asked for; to be evaluated, it is
    asked of `program`."""
    found = _typed(text) if _TYPED(text) or has_initializers(text) else program(text)
    if said := problems(text, names):
        raise CelError(said)
    if names.variables and "dyn" in found.result:
        # The library knows no type of a policy's variables. It is that of the expressions.
        with suppress(CelError):
            return program(inlined(text, names.variables))
    return found


@lru_cache(maxsize=_KEPT)
def _typed(text: str) -> Program:
    """An expression with types for initializers and for the fields of `request` and `namespaceObject`. It is not for
    being evaluated."""
    if has_initializers(text):
        # Errors of syntax, in places of the text as it was written.
        program(text)
    calls, shapes = as_calls(text)
    asked = _TESTED.sub(lambda match: f"{match[1]}{'object'.ljust(len(match[2]))}", calls.text)
    try:
        return Program(asked, _environment(typed=True, shapes=shapes))
    except CelError as error:
        raise CelError(_located(str(error), calls, text)) from None


def _compiled(text: str) -> Any:
    environment = _environment()
    if not has_initializers(text):
        return environment.compile(text)
    try:
        # Places in errors of syntax are those of the text as it was written.
        return environment.compile(text)
    except RuntimeError as error:
        if "Syntax error" in str(error):
            raise
    maps = as_maps(text)
    try:
        return environment.compile(maps.text)
    except RuntimeError as error:
        raise CelError(_located(str(error), maps, text)) from None


def _located(error: str, maps: Maps, text: str) -> str:
    """The same errors where they are in the expression that was written."""
    lines = maps.text.split("\n")
    found = []
    for match in _placed(error):
        line, column = int(match[1]), int(match[2])
        offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
        found.append(told(text, maps.written(offset), match[3]))
    return "\n".join(found) or error


def _json(value: Any) -> Any:
    """What the library answers as plain JSON values."""
    if hasattr(value, "value") and hasattr(value, "type"):
        value = value.value()
    if isinstance(value, dict):
        return {str(_json(key)): _json(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | datetime | timedelta):
        return value
    return str(value)


def _said(text: str) -> str:
    text = _status.sub("", text).removesuffix(" [INVALID_ARGUMENT]")
    if missing := _missing(text):
        return f"no such key: {missing[1]}"
    if index := _index(text):
        return f"index out of bounds: {index[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    if converted := _unconverted(text):
        return f"type conversion error from 'string' to '{_CONVERTED.get(converted[1], converted[1])}'"
    if text.startswith("Invalid container type"):
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
        re.compile(r"expression of type '(.*)' cannot be the operand of a select operation"),
        r"type '\1' does not support field selection",
    ),
    (re.compile(r"cannot be the range of a comprehension"), "cannot be range of a comprehension"),
    (re.compile(r"'\\u003F'"), "'?'"),
)
#: Of a part that could not be read or checked, which cel-go tells once, where it is.
_FOLLOWING = re.compile(r"<<nil>> parsetree|'\*error\*'").search


def _worded(text: str) -> str:
    if not text.startswith("ERROR: "):
        return text
    first, *others = text.split("\nERROR: ")
    text = "\nERROR: ".join([first, *(other for other in others if not _FOLLOWING(other))])
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _shortened(types: str) -> str:
    """cel-go's checker has other names for types than its answers."""
    for name, long in _GO_TYPES.items():
        types = types.replace(long, name)
    return types


def _rooted(match: re.Match[str]) -> str:
    """cel-go names of an unknown `a.b.c` the `a`, and its place."""
    line, column, name, source = match[1], int(match[2]), match[3], match[4]
    root = name.partition(".")[0]
    if root != name:
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


def _go_type(name: str) -> str:
    found = name.replace("<", "(").replace(">", ")")
    # The names of the library's own types are in capitals.
    return re.sub(r"\b[A-Z]{3,}\b", lambda match: _GO_TYPES.get(found := match[0].lower(), found), found)


@lru_cache(maxsize=64)
def _environment(*, typed: bool = False, shapes: frozenset[str] = frozenset()) -> Any:
    """`shapes`: types that are made by functions of their names."""
    # Here, because most servers never see an expression, and the library takes long to load.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    kind = cel.Type
    types = {
        "any": kind.DYN,
        "bool": kind.BOOL,
        "double": kind.DOUBLE,
        "int": kind.INT,
        "list": kind.List(kind.DYN),
        "map": kind.Map(kind.STRING, kind.DYN),
        "opaque": kind.BYTES,
        "string": kind.STRING,
    }
    overloads: dict[str, list[Any]] = {}

    def declare(name: str, parameters: tuple[str, ...], result: str, member: bool, does: Any) -> None:
        overloads.setdefault(name, []).append(
            cel.Overload(
                f"{name}_{'_'.join(parameters)}",
                return_type=types[result],
                parameters=[types[each] for each in parameters],
                is_member=member,
                impl=hashable(does),
            )
        )

    for function in (*FUNCTIONS, *library.FUNCTIONS):
        declare(function.name, function.parameters, function.result, function.is_method, function.does)
    for method in METHODS:
        declare(method.name, ("opaque", *["string"] * method.parameters), method.result, True, method.does)
    for shape in shapes:
        made = cel.Overload(
            f"new_{shape.replace('.', '_')}",
            return_type=kind.AbstractType(shape),
            parameters=[kind.Map(kind.STRING, kind.DYN)],
            is_member=False,
            impl=bytes,
        )
        overloads[shape] = [made]
    declare("jsonpatch.escapeKey", ("string",), "string", False, _escaped)
    return cel.NewEnv(
        variables={
            **dict.fromkeys(VARIABLES, kind.DYN),
            AUTHORIZER: kind.BYTES,
            REQUEST_RESOURCE: kind.BYTES,
            **(_fields(kind) if typed else {}),
        },
        extensions=[
            ext_bindings.ExtBindings(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_math.ExtMath(),
        ],
        functions=[cel.FunctionDecl(name, found) for name, found in overloads.items()],
    )


def _fields(kind: Any) -> dict[str, Any]:
    words, texts = kind.List(kind.STRING), kind.Map(kind.STRING, kind.STRING)
    return {
        **dict.fromkeys((*_STRINGS, *_NAMESPACE_STRINGS), kind.STRING),
        "request.dryRun": kind.BOOL,
        "request.userInfo.groups": words,
        "request.userInfo.extra": kind.Map(kind.STRING, words),
        "namespaceObject.metadata.labels": texts,
        "namespaceObject.metadata.annotations": texts,
        "namespaceObject.metadata.finalizers": words,
        "namespaceObject.spec.finalizers": words,
        **dict.fromkeys(
            ("namespaceObject.metadata.creationTimestamp", "namespaceObject.metadata.deletionTimestamp"),
            kind.TIMESTAMP,
        ),
        "namespaceObject.metadata.generation": kind.INT,
        "namespaceObject.metadata.deletionGracePeriodSeconds": kind.INT,
    }


def _escaped(key: str) -> str:
    """A name as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
