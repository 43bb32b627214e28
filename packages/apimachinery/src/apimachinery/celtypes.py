"""Quantities, versions and Kubernetes' functions in CEL, where quantities and versions are represented as bytes.

They correspond to k8s.io/apiserver/pkg/cel/library. An invalid argument raises ValueError, which is an error of the
expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .quantity import UNIT, QuantityError, parse

_INT64: Final = 2**63

_number: Final = r"(?:0|[1-9][0-9]*)"
_semver: Final = re.compile(
    rf"({_number})\.({_number})\.({_number})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
).fullmatch
#: What `normalize` accepts as a version: a leading v, missing parts, leading zeros.
_loose: Final = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?([-+].*)?", re.DOTALL).fullmatch


class Function(NamedTuple):
    """A function. Types are the keys of `types_of`."""

    name: str
    parameters: tuple[str, ...]
    result: str
    does: Callable[..., Any]
    is_method: bool = True


def types_of(kind: Any) -> dict[str, Any]:
    """Return the CEL library's types by their names in a `Function`. `kind` is the library's class.

    It is loaded only if there are expressions. `opaque` is for quantities, versions and others without a library
    type.
    """
    return {
        "any": kind.DYN,
        "bool": kind.BOOL,
        "double": kind.DOUBLE,
        "int": kind.INT,
        "list": kind.List(kind.DYN),
        "map": kind.Map(kind.DYN, kind.DYN),
        "opaque": kind.BYTES,
        "string": kind.STRING,
    }


# ---- quantities


def quantity_value(nano: int) -> bytes:
    return b"q%d" % nano


def _nano(value: bytes) -> int:
    if value[:1] != b"q":
        raise ValueError("no such overload")
    return int(value[1:])


def _quantity(text: str) -> bytes:
    return quantity_value(parse(text).nano)


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _as_integer(value: bytes) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nano(value) // UNIT


def _is_integer(value: bytes) -> bool:
    whole, rest = divmod(_nano(value), UNIT)
    return not rest and -_INT64 <= whole < _INT64


def _sum(one: bytes, other: bytes | int, sign: int) -> bytes:
    more = other * UNIT if isinstance(other, int) else _nano(other)
    return quantity_value(_nano(one) + sign * more)


# ---- versions


def version_value(text: str, *, normalize: bool = False) -> bytes | None:
    """Return a version, or None for invalid text. Build metadata is ignored, also in comparisons."""
    match = _semver(_normal(text) if normalize else text)
    if match is None:
        return None
    major, minor, patch, before = match.groups()
    return b"v" + f"{major}.{minor}.{patch}{'-' + before if before else ''}".encode()


def _normal(text: str) -> str:
    match = _loose(text)
    if match is None:
        return text
    major, minor, patch, rest = match.groups()
    return ".".join(str(int(each or "0")) for each in (major, minor, patch)) + (rest or "")


def _version(text: str, normalize: bool = False) -> bytes:
    found = version_value(text, normalize=normalize)
    if found is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return found


def _numbers(value: bytes) -> tuple[int, int, int]:
    if value[:1] != b"v":
        raise ValueError("no such overload")
    major, minor, patch = value[1:].split(b"-", 1)[0].split(b".")
    return int(major), int(minor), int(patch)


def _rank(value: bytes) -> tuple[Any, ...]:
    """Return a sort key as defined by semver.org: a pre-release comes before its release."""
    before = value.split(b"-", 1)[1].decode() if b"-" in value else ""
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".") if before]
    return (*_numbers(value), not before, parts)


# ---- both


def _compare(one: bytes, other: bytes) -> int:
    read: Callable[[bytes], Any] = _nano if one[:1] == b"q" else _rank
    left, right = read(one), read(other)
    return int(left > right) - int(left < right)


# ---- lists and sets


def _filled(items: list[Any], name: str) -> list[Any]:
    if not items:
        raise ValueError(f"{name} called on empty list")
    return items


def _contains(items: list[Any], others: list[Any]) -> bool:
    return all(other in items for other in others)


FUNCTIONS: Final = (
    Function("quantity", ("string",), "opaque", _quantity, is_method=False),
    Function("isQuantity", ("string",), "bool", _is_quantity, is_method=False),
    Function("isInteger", ("opaque",), "bool", _is_integer),
    Function("asInteger", ("opaque",), "int", _as_integer),
    Function("asApproximateFloat", ("opaque",), "double", lambda value: _nano(value) / UNIT),
    Function("sign", ("opaque",), "int", lambda value: (_nano(value) > 0) - (_nano(value) < 0)),
    Function("add", ("opaque", "opaque"), "opaque", lambda one, other: _sum(one, other, 1)),
    Function("add", ("opaque", "int"), "opaque", lambda one, other: _sum(one, other, 1)),
    Function("sub", ("opaque", "opaque"), "opaque", lambda one, other: _sum(one, other, -1)),
    Function("sub", ("opaque", "int"), "opaque", lambda one, other: _sum(one, other, -1)),
    Function("semver", ("string",), "opaque", _version, is_method=False),
    Function("semver", ("string", "bool"), "opaque", _version, is_method=False),
    Function("isSemver", ("string",), "bool", lambda text: version_value(text) is not None, is_method=False),
    Function(
        "isSemver",
        ("string", "bool"),
        "bool",
        lambda text, normalize: version_value(text, normalize=normalize) is not None,
        is_method=False,
    ),
    Function("major", ("opaque",), "int", lambda value: _numbers(value)[0]),
    Function("minor", ("opaque",), "int", lambda value: _numbers(value)[1]),
    Function("patch", ("opaque",), "int", lambda value: _numbers(value)[2]),
    Function("compareTo", ("opaque", "opaque"), "int", _compare),
    Function("isLessThan", ("opaque", "opaque"), "bool", lambda one, other: _compare(one, other) < 0),
    Function("isGreaterThan", ("opaque", "opaque"), "bool", lambda one, other: _compare(one, other) > 0),
    Function("isSorted", ("list",), "bool", lambda items: items == sorted(items)),
    Function("sum", ("list",), "any", sum),
    Function("min", ("list",), "any", lambda items: min(_filled(items, "min"))),
    Function("max", ("list",), "any", lambda items: max(_filled(items, "max"))),
    Function("sets.contains", ("list", "list"), "bool", _contains, is_method=False),
    Function(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda one, other: _contains(one, other) and _contains(other, one),
        is_method=False,
    ),
    Function(
        "sets.intersects",
        ("list", "list"),
        "bool",
        lambda one, other: any(each in one for each in other),
        is_method=False,
    ),
)


def hashable(does: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `does` for a library that passes unhashable bytearrays as bytes."""

    def call(*given: Any) -> Any:
        return does(*(bytes(each) if isinstance(each, bytearray) else each for each in given))

    return call
