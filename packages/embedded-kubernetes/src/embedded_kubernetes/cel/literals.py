"""Checks of literals that kube-apiserver makes and cel-expr-python's checker does not.

Follows the validators of cel-go that Kubernetes enables: literals of lists and maps hold values of one type,
and literal durations, timestamps and regular expressions are well-formed. The input is the library's
serialized form of a checked expression, a `cel.expr.CheckedExpr` in protocol buffer encoding.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from .macros import OWN

#: Type names, indexed by the numbers of `Type.PrimitiveType` and of `Type.WellKnownType`.
_PRIMITIVES = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("", "any", "timestamp", "duration")
#: The fields of a JSONPatch with their types.
_PATCH = {"op": "string", "path": "string", "from": "string", "value": "dyn"}
#: Functions of one string whose constant argument is checked.
_CHECKED = frozenset({"duration", "timestamp", "matches"})
#: Functions that cel-go evaluates on constants before it evaluates the expression.
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_SEARCHES = frozenset({"find", "findAll"})

_Fields = dict[int, list[Any]]
Problem = tuple[int, str]


class _ExpressionNode(NamedTuple):
    """A node of an expression. `parent`, and `function` of a call, decide whether its literals are exempt."""

    kind: int
    number: int
    fields: _Fields
    parent: _ExpressionNode | None
    function: str = ""


_CONSTANT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 3, 5, 6, 7, 8, 9


#: Evaluates an expression without variables; returns its error, or an empty string.
Failure = Callable[[str], str]


def literal_problems(serialized: bytes, shapes: Set[str], failure: Failure) -> tuple[list[Problem], str]:
    """Return the problems of literals with their offsets, in order, and why a constant call cannot be evaluated.

    `shapes` are the functions that replace initializers of these types.
    """
    checked = _read(_read(serialized)[2][0])
    literals = _Literals(checked, shapes, failure)
    found = sorted(literals.problems(_read(checked[4][0]), None))
    return found, literals.uninstantiable


class _Literals:
    def __init__(self, checked: _Fields, shapes: Set[str], failure: Failure) -> None:
        self._shapes = shapes
        self._failure = failure
        #: The error of the first constant call that cannot be evaluated.
        self.uninstantiable = ""
        self._types = {_number(entry, 1): entry[2][0] for entry in map(_read, checked.get(3, ()))}
        source = _read(checked[5][0])
        self._places = {_number(entry, 1): _number(entry, 2) for entry in map(_read, source.get(4, ()))}

    def problems(self, expression: _Fields, parent: _ExpressionNode | None) -> Iterator[Problem]:
        kind = next((number for number in range(_CONSTANT, _COMPREHENSION + 1) if number in expression), 0)
        if kind in (0, _CONSTANT):
            return
        held = _read(expression[kind][0])
        function = _text(held, 2) if kind == _CALL else ""
        node = _ExpressionNode(kind, _number(expression, 2), held, parent, function)
        if kind == _CALL:
            yield from self._unread(node)
        elif kind == _LIST:
            yield from self._mixed_list(node)
        elif kind == _STRUCT:
            yield from self._mixed_map(node)
        for part in self._parts(node):
            yield from self.problems(_read(part), node)

    def _parts(self, node: _ExpressionNode) -> Iterator[Any]:
        if node.kind == _STRUCT:
            for entry in map(_read, node.fields.get(2, ())):
                yield from (*entry.get(3, ()), *entry.get(4, ()))
            return
        numbers = {_SELECT: (1,), _CALL: (1, 3), _LIST: (1,), _COMPREHENSION: (2, 4, 5, 6, 7)}
        for number in numbers.get(node.kind, ()):
            yield from node.fields.get(number, ())

    def _unread(self, call: _ExpressionNode) -> Iterator[Problem]:
        arguments = call.fields.get(3, ())
        argument = _read(arguments[0]) if arguments else {}
        constant = _constant(_read(argument[_CONSTANT][0])) if _CONSTANT in argument else ""
        if not constant:
            return
        if call.function == "matches" or call.function in _SEARCHES:
            asked = f"''.matches({constant})"
        elif call.function in _CONVERSIONS and len(arguments) == 1:
            asked = f"{call.function}({constant})"
        else:
            return
        problem = self._failure(asked)
        if problem and call.function in _CHECKED:
            yield self._place(argument), f"invalid {call.function} argument"
        self.uninstantiable = self.uninstantiable or problem

    def _mixed_list(self, node: _ExpressionNode) -> Iterator[Problem]:
        if self._exempt(node):
            return
        optional = {each for packed in node.fields.get(2, ()) for each in _indices(packed)}
        expected = ""
        for index, element in enumerate(map(_read, node.fields.get(1, ()))):
            found = self._type(element, optional=index in optional)
            expected = expected or found
            if found != expected:
                yield self._mismatch(element, expected, found)
                return

    def _mixed_map(self, node: _ExpressionNode) -> Iterator[Problem]:
        parent = node.parent
        if parent is not None and parent.function == "JSONPatch" and parent.function in self._shapes:
            yield from self._misfit(node)
        if self._exempt(node):
            return
        expected: tuple[str, str] | None = None
        for entry in map(_read, node.fields.get(2, ())):
            key, value = _read(entry[3][0]), _read(entry[4][0])
            found = (self._type(key), self._type(value, optional=5 in entry))
            expected = expected or found
            for part, wanted, is_ in zip((key, value), expected, found, strict=True):
                if wanted != is_:
                    yield self._mismatch(part, wanted, is_)

    def _misfit(self, node: _ExpressionNode) -> Iterator[Problem]:
        """Yield the fields of a patch that are unknown or have the wrong type."""
        for entry in map(_read, node.fields.get(2, ())):
            name = _text(_read(_read(entry[3][0])[_CONSTANT][0]), 6)
            found = self._type(_read(entry[4][0]), optional=5 in entry)
            place = self._places.get(_number(entry, 1), 0)
            if name not in _PATCH:
                yield place, f"undefined field '{name}'"
            elif found not in (_PATCH[name], "dyn") and _PATCH[name] != "dyn":
                why = f"expected type of field '{name}' is '{_PATCH[name]}' but provided type is '{found}'"
                yield place, why

    def _exempt(self, node: _ExpressionNode) -> bool:
        """Return whether a literal may mix types: arguments of `format` and of this server's own functions."""
        parent = node.parent
        if parent is not None and (parent.function in self._shapes or parent.function.startswith(OWN)):
            return True
        while parent is not None and parent.kind in (_LIST, _STRUCT):
            parent = parent.parent
        return parent is not None and parent.function == "format"

    def _place(self, expression: _Fields) -> int:
        return self._places.get(_number(expression, 2), 0)

    def _mismatch(self, expression: _Fields, expected: str, found: str) -> Problem:
        return self._place(expression), f"expected type '{expected}' but found '{found}'"

    def _type(self, expression: _Fields, *, optional: bool = False) -> str:
        found = self._types.get(_number(expression, 2))
        fields = _read(found) if found is not None else {}
        if optional and 14 in fields:
            inside = _read(fields[14][0]).get(2)
            fields = _read(inside[0]) if inside else {}
        return _named(fields)


def _named(fields: _Fields) -> str:
    """Return the name of a type in cel-go's wording."""
    number = next(iter(fields), 1)
    value = fields.get(number, [0])[0]
    if number == 3:
        return _PRIMITIVES[value]
    if number == 4:
        return f"wrapper({_PRIMITIVES[value]})"
    if number == 5:
        return _WELL_KNOWN[value]
    if number in (6, 7):
        inside = _read(value)
        parts = [_named(_read(inside[part][0])) if part in inside else "dyn" for part in range(1, number - 4)]
        return f"{'list' if number == 6 else 'map'}({', '.join(parts)})"
    if number in (9, 10):
        return bytes(value).decode()
    if number == 11:
        return f"type({_named(_read(value))})"
    if number == 14:
        abstract = _read(value)
        parts = [_named(_read(each)) for each in abstract.get(2, ())]
        return f"{_text(abstract, 1)}({', '.join(parts)})" if parts else _text(abstract, 1)
    return "null" if number == 2 else "dyn"


def _read(message: Any) -> _Fields:
    """Return the fields of an encoded message by their numbers. An empty message has all of them as unknown ones."""
    found: _Fields = {}
    for field in UnknownFieldSet(Empty.FromString(message)):
        found.setdefault(field.field_number, []).append(field.data)
    return found


def _number(fields: _Fields, number: int) -> int:
    return int(fields.get(number, [0])[0])


def _text(fields: _Fields, number: int) -> str:
    return bytes(fields.get(number, [b""])[0]).decode()


def _constant(fields: _Fields) -> str:
    """Return the constant as CEL source; empty for a type for which no conversion can fail."""
    kind = next(iter(fields), 0)
    if kind == 6:
        return json.dumps(_text(fields, 6), ensure_ascii=False)
    if kind in (3, 4):
        value = _number(fields, kind)
        return f"{value}u" if kind == 4 else str(value - 2**64 if value >= 2**63 else value)
    return repr(struct.unpack("<d", struct.pack("<Q", fields[5][0]))[0]) if kind == 5 else ""


def _indices(packed: Any) -> Sequence[int]:
    """Return the items of a packed list of small numbers, or of a single number."""
    return [packed] if isinstance(packed, int) else list(bytes(packed))
