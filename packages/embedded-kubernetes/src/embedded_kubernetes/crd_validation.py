"""Validation of custom resources by their structural schema, in kube-apiserver's wording.

Checks and messages are those of kube-openapi's validator and of its translation into field errors by apiextensions.
CEL rules (x-kubernetes-validations) are not evaluated.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from . import times
from .builtin.causes import duplicate, required, shown, too_many, unsupported
from .errors import Cause
from .resource import Object

Node = Mapping[str, Any]
Steps = tuple[str | int, ...]


class InvalidValue(NamedTuple):
    """A cause, with the steps from the root to the invalid value."""

    at: Steps
    cause: Cause


def validate(root: Node, obj: Object, old: Object | None) -> list[Cause]:
    """Return the causes of a 422, except for values that the update does not change."""
    failures = list(_check(obj, {**root, "type": "object"}, ()))
    if old is not None:
        failures = [failure for failure in failures if not _unchanged(failure.at, obj, old)]
    return [failure.cause for failure in failures]


_ABSENT = object()
#: Logical operators, which most nodes lack.
_LOGIC = frozenset(("allOf", "anyOf", "oneOf", "not"))


def _unchanged(at: Steps, obj: Object, old: Object) -> bool:
    new_value, old_value = _look(obj, at), _look(old, at)
    return new_value is not _ABSENT and new_value == old_value


def _look(value: Any, at: Steps) -> Any:
    for step in at:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value


def _path(at: Steps) -> str:
    text = ""
    for step in at:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _invalid(at: Steps, value: Any, said: str) -> InvalidValue:
    return InvalidValue(at, Cause("FieldValueInvalid", _path(at), f"Invalid value: {shown(value)}: {said}"))


def _in_body(at: Steps, value: Any, said: str) -> InvalidValue:
    return _invalid(at, value, f"{_path(at)} in body {said}")


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is(value: Any, wanted: str) -> bool:
    found = _type_name(value)
    return found == wanted or (wanted == "number" and found == "integer")


def _check(value: Any, node: Node, at: Steps) -> Iterator[InvalidValue]:
    if value is None and node.get("nullable"):
        return
    wanted = node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        if not (_is(value, "integer") or isinstance(value, str)):
            yield _wrong_type(value, "integer,string", at)
            return
    elif wanted and not _is(value, wanted):
        yield _wrong_type(value, wanted, at)
        return
    if "enum" in node and not any(_same(value, one) for one in node["enum"]):
        allowed = [one if isinstance(one, str) else json.dumps(one) for one in node["enum"]]
        yield InvalidValue(at, unsupported(_path(at), value, allowed))
    if isinstance(value, str):
        yield from _check_string(value, node, at)
    elif isinstance(value, dict):
        yield from _check_object(value, node, at)
    elif isinstance(value, list):
        yield from _check_list(value, node, at)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, node, at)
    if not _LOGIC.isdisjoint(node):
        yield from _check_logic(value, node, at)


def _wrong_type(value: Any, wanted: str, at: Steps) -> InvalidValue:
    found = _type_name(value)
    said = f'{_path(at)} in body must be of type {wanted}: "{found}"'
    return InvalidValue(at, Cause("FieldValueTypeInvalid", _path(at), f'Invalid value: "{found}": {said}'))


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _check_string(value: str, node: Node, at: Steps) -> Iterator[InvalidValue]:
    if "maxLength" in node and len(value) > node["maxLength"]:
        said = f"Too long: may not be more than {node['maxLength']} bytes"
        yield InvalidValue(at, Cause("FieldValueTooLong", _path(at), said))
    if "minLength" in node and len(value) < node["minLength"]:
        yield _in_body(at, value, f"should be at least {node['minLength']} chars long")
    if "pattern" in node:
        pattern = _pattern(node["pattern"])
        if pattern is not None and not pattern.search(value):
            yield _in_body(at, value, f"should match '{node['pattern']}'")
    form = _FORMATS.get(node.get("format", ""))
    if form is not None and not form(value):
        yield _in_body(at, value, f"must be of type {node['format']}: {shown(value)}")


def _check_number(value: int | float, node: Node, at: Steps) -> Iterator[InvalidValue]:
    if "minimum" in node:
        low = node["minimum"]
        if node.get("exclusiveMinimum") and value <= low:
            yield _in_body(at, value, f"should be greater than {_number(low)}")
        elif value < low:
            yield _in_body(at, value, f"should be greater than or equal to {_number(low)}")
    if "maximum" in node:
        high = node["maximum"]
        if node.get("exclusiveMaximum") and value >= high:
            yield _in_body(at, value, f"should be less than {_number(high)}")
        elif value > high:
            yield _in_body(at, value, f"should be less than or equal to {_number(high)}")
    factor = node.get("multipleOf")
    if factor and not math.isclose(value / factor, round(value / factor), rel_tol=0, abs_tol=1e-9):
        yield _in_body(at, value, f"should be a multiple of {_number(factor)}")
    bits = {"int32": 31, "int64": 63}.get(node.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        yield _in_body(at, value, f"should be of type {node['format']}")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _check_object(value: Object, node: Node, at: Steps) -> Iterator[InvalidValue]:
    for name in node.get("required") or ():
        if name not in value:
            yield InvalidValue(at, required(_path((*at, name))))
    if "maxProperties" in node and len(value) > node["maxProperties"]:
        yield InvalidValue(at, too_many(_path(at), len(value), node["maxProperties"]))
    if "minProperties" in node and len(value) < node["minProperties"]:
        yield _in_body(at, value, f"should have at least {node['minProperties']} properties")
    properties = node.get("properties") or {}
    extra = node.get("additionalProperties")
    for name, inner in value.items():
        if name in properties:
            yield from _check(inner, properties[name], (*at, name))
        elif isinstance(extra, dict):
            yield from _check(inner, extra, (*at, name))
    if at and node.get("x-kubernetes-embedded-resource"):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield InvalidValue(at, required(_path((*at, name)), "must not be empty"))


def _check_list(value: list[Any], node: Node, at: Steps) -> Iterator[InvalidValue]:
    if "maxItems" in node and len(value) > node["maxItems"]:
        yield InvalidValue(at, too_many(_path(at), len(value), node["maxItems"]))
    if "minItems" in node and len(value) < node["minItems"]:
        yield _in_body(at, value, f"should have at least {node['minItems']} items")
    if isinstance(node.get("items"), dict):
        for index, item in enumerate(value):
            yield from _check(item, node["items"], (*at, index))
    kind = node.get("x-kubernetes-list-type")
    if kind == "set" or node.get("uniqueItems"):
        yield from _duplicates(value, lambda item: item, at)
    elif kind == "map":
        keys = node.get("x-kubernetes-list-map-keys") or ()
        yield from _duplicates(
            value, lambda item: {key: item[key] for key in keys if key in item} if isinstance(item, dict) else item, at
        )


def _duplicates(value: list[Any], identity: Callable[[Any], Any], at: Steps) -> Iterator[InvalidValue]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        name = json.dumps(identity(item), sort_keys=True)
        if name in seen:
            yield InvalidValue((*at, index), duplicate(_path((*at, index)), identity(item)))
        seen.add(name)


def _check_logic(value: Any, node: Node, at: Steps) -> Iterator[InvalidValue]:
    """Check the logical operators of `_LOGIC`."""
    name = _path(at)
    for branch in node.get("allOf") or ():
        failures = list(_check(value, branch, at))
        if failures:
            yield from failures
            yield _invalid(at, "", f'"{name}" must validate all the schemas (allOf)')
    if node.get("anyOf") and not node.get("x-kubernetes-int-or-string"):
        tried = [list(_check(value, branch, at)) for branch in node["anyOf"]]
        if all(tried):
            yield _invalid(at, "", f'"{name}" must validate at least one schema (anyOf)')
            yield from min(tried, key=len)
    if node.get("oneOf"):
        good = sum(not any(True for _ in _check(value, branch, at)) for branch in node["oneOf"])
        if good != 1:
            found = "Found none valid" if not good else f"Found {good} valid alternatives"
            yield _invalid(at, "", f'"{name}" must validate one and only one schema (oneOf). {found}')
    if node.get("not") and not any(True for _ in _check(value, node["not"], at)):
        yield _invalid(at, "", f'"{name}" must not validate the schema (not)')


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str] | None:
    """Return the pattern in Python's dialect; None if it needs RE2, in which case it is not checked."""
    try:
        return re.compile(text.replace(r"\z", r"\Z"), re.ASCII)
    except re.error:
        return None


def _passes(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


_DURATION = re.compile(
    r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h|d|w)(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))*"
)
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")

#: Formats that are cheap to check. As in kube-apiserver, unknown formats are ignored.
_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _passes(times.parse),
    "date": _passes(date.fromisoformat),
    "ipv4": _passes(ipaddress.IPv4Address),
    "ipv6": _passes(ipaddress.IPv6Address),
    "cidr": _passes(lambda text: ipaddress.ip_network(text, strict=False) if "/" in text else int("")),
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
}
