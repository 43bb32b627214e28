"""Converts plain data to configuration structs and back.

Errors name the place, the value and what is allowed. The types of the structs are the only schema: errors take bounds,
choices and allowed keys from them, so an error always agrees with what is accepted.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect as schema

from apimachinery.durations import format_duration, parse_duration
from apimachinery.errors import Invalid, Path, found

StructT = TypeVar("StructT", bound=msgspec.Struct)

#: Receives the path of an ineffective value, and the reason.
Warn = Callable[[Path, str], None]


def silent(path: Path, message: str) -> None:
    """Ignore a warning; for repeated reading."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A key of a foreign format that the struct of that place does not have."""

    reason: str
    #: Rejected because ignoring it would change the behavior; otherwise it is read with a warning.
    refused: bool = False
    #: Values that request the existing behavior anyway, without a warning.
    harmless: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The options for reading a file: the known foreign keys, and the receiver of warnings about them."""

    foreign: Mapping[type[msgspec.Struct], Mapping[str, ForeignKey]] = field(default_factory=dict)
    warn: Warn = silent


_PLAIN = Reading()


class Setting(NamedTuple):
    """A setting: its section, its path in the configuration, its type and its default."""

    section: type[msgspec.Struct]
    path: tuple[str, ...]
    kind: schema.Type
    default: object


@cache
def _shape(cls: type[msgspec.Struct]) -> schema.StructType:
    shape = schema.type_info(cls)
    assert isinstance(shape, schema.StructType)
    return shape


def fields(cls: type[msgspec.Struct]) -> Mapping[str, schema.Type]:
    """Return the keys of `cls` in a file with their types."""
    return {field.encode_name: field.type for field in _shape(cls).fields}


def extra(kind: schema.Type) -> Mapping[str, Any]:
    """Return the extra information of a type (`Meta.extra`)."""
    if isinstance(kind, schema.UnionType):
        return next(extra(other) for other in kind.types if not isinstance(other, schema.NoneType))
    return kind.extra or {} if isinstance(kind, schema.Metadata) else {}


def settings(cls: type[msgspec.Struct], at: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Yield every setting of `cls` and of its sections; a list is one setting."""
    for each in _shape(cls).fields:
        path, bare = (*at, each.encode_name), _bare(each.type)
        if isinstance(bare, schema.StructType):
            yield from settings(bare.cls, path)
        else:
            yield Setting(cls, path, each.type, each.default)


def decode(
    value: object, cls: type[StructT], *, path: Path = (), reading: Reading = _PLAIN, onto: StructT | None = None
) -> StructT:
    """Decode plain data. Raises `Invalid` for the first invalid value.

    A null counts as a missing key, as in Kubernetes' own files. Missing values are taken from `onto`, or have their
    default.
    """
    made = _struct(value, _shape(cls), path, reading, onto)
    assert isinstance(made, cls)
    return made


def decode_value(value: object, kind: schema.Type, path: Path) -> Any:
    """Decode one value of a type from `fields`. Raises `Invalid`."""
    return _decode(value, kind, path, _PLAIN)


def parse_scalar(text: str, kind: schema.Type) -> object:
    """Return a flag's text as the plain value of a file; `decode_value` checks it."""
    match _bare(kind):
        case schema.BoolType():
            return {"true": True, "false": False}.get(text.lower(), text)
        case schema.IntType():
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else text
        case schema.FloatType() if not extra(kind).get("duration"):
            try:
                return float(text)
            except ValueError:
                return text
    return text


def encode(value: object, kind: schema.Type | None = None) -> Any:
    """Return plain data as in a file."""
    if isinstance(value, msgspec.Struct):
        shape = _shape(type(value))
        return {field.encode_name: encode(getattr(value, field.name), field.type) for field in shape.fields}
    if kind is not None and extra(kind).get("duration") and isinstance(value, float):
        return format_duration(value)
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def unknown_key(key: object, allowed: Iterable[str]) -> str:
    """Return the message for a key that is not one of `allowed`."""
    return "unknown key; " + suggest(str(key), allowed)


def suggest(word: str, allowed: Iterable[str]) -> str:
    """Return `did you mean X? allowed: X, Y`."""
    names = sorted(allowed)
    if not names:
        return "allowed: none"
    close = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"


def _bare(kind: schema.Type) -> schema.Type:
    """Return the type without annotations and without null."""
    if isinstance(kind, schema.Metadata):
        return _bare(kind.type)
    if isinstance(kind, schema.UnionType):
        return next(_bare(other) for other in kind.types if not isinstance(other, schema.NoneType))
    return kind


def _decode(value: object, kind: schema.Type, path: Path, reading: Reading) -> Any:
    if extra(kind).get("duration"):
        return _duration(value, path)
    if extra(kind).get("quantity"):
        return _quantity(value, path)
    bare = _bare(kind)
    match bare:
        case schema.StructType():
            return _struct(value, bare, path, reading, None)
        case schema.VarTupleType() | schema.ListType():
            if not isinstance(value, list):
                raise Invalid(path, f"found {found(value)}; allowed: a list")
            items = [_decode(item, bare.item_type, (*path, index), reading) for index, item in enumerate(value)]
            return items if isinstance(bare, schema.ListType) else tuple(items)
        case schema.DictType():
            if not isinstance(value, dict):
                raise Invalid(path, f"found {found(value)}; allowed: an object")
            return {
                _key(key, path): _decode(item, bare.value_type, (*path, key), reading) for key, item in value.items()
            }
        case schema.LiteralType():
            if value not in bare.values or isinstance(value, bool):
                raise Invalid(path, f"found {found(value)}; {suggest(str(value), map(str, bare.values))}")
            return value
        case schema.BoolType():
            if not isinstance(value, bool):
                raise Invalid(path, f"found {found(value)}; allowed: true, false")
            return value
        case schema.StrType():
            return _string(value, bare, path, extra(kind))
        case schema.IntType() | schema.FloatType():
            return _number(value, bare, path)
        case schema.AnyType():
            return value
    # Arguments of an external plugin, which defines its own types.
    raise Invalid(path, f"has the type {type(bare).__name__.removesuffix('Type')}, which cannot be configured")


def _key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        raise Invalid(path, f"found the key {found(key)}; allowed: a string (put it in quotes)")
    return key


def _struct(
    value: object, shape: schema.StructType, path: Path, reading: Reading, onto: msgspec.Struct | None
) -> msgspec.Struct:
    keys = {each.encode_name: each for each in shape.fields}
    if not isinstance(value, dict):
        raise Invalid(path, f"found {found(value)}; allowed: {_object(keys)}")
    foreign = reading.foreign.get(shape.cls, {})
    for key, item in value.items():
        if key in foreign:
            _take_foreign(foreign[key], item, (*path, key), reading)
        elif key not in keys:
            raise Invalid((*path, str(key)), unknown_key(key, keys))
    given: dict[str, Any] = {}
    for name, each in keys.items():
        item = value.get(name)
        if item is not None:
            given[each.name] = _decode(item, each.type, (*path, name), reading)
        elif onto is not None:
            given[each.name] = getattr(onto, each.name)
        elif each.required:
            raise Invalid((*path, name), f"is missing; allowed: {_allowed(each.type)}")
    try:
        return shape.cls(**given)
    except ValueError as error:
        # A rule between fields. Its error may contain a path.
        raise Invalid((*path, *getattr(error, "path", ())), str(error)) from None


def _object(keys: Iterable[str]) -> str:
    names = ", ".join(sorted(keys))
    return f"an object with {names}" if names else "an empty object"


def _take_foreign(key: ForeignKey, value: object, path: Path, reading: Reading) -> None:
    if value is None or any(value == each and type(value) is type(each) for each in key.harmless):
        return
    if key.refused:
        raise Invalid(path, key.reason)
    reading.warn(path, key.reason)


def _duration(value: object, path: Path) -> float:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            pass
    hint = f" (did you mean {value}s?)" if isinstance(value, int) and not isinstance(value, bool) else ""
    raise Invalid(path, f"found {found(value)}; allowed: a duration such as 500ms, 15s or 5m{hint}")


def _quantity(value: object, path: Path) -> str | int | float:
    """Return the quantity unchanged; its validity depends on the resource."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise Invalid(path, f"found {found(value)}; allowed: a quantity such as 500m, 2 or 1Gi")


def _string(value: object, kind: schema.StrType, path: Path, noted: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise Invalid(path, f"found {found(value)}; allowed: a string")
    if kind.pattern and not re.search(kind.pattern, value):
        raise Invalid(path, f"found {found(value)}; allowed: {noted.get('allowed', kind.pattern)}")
    if kind.min_length and len(value) < kind.min_length:
        raise Invalid(path, f"found {found(value)}; allowed: {noted.get('allowed', 'a text')}")
    return value


def _number(value: object, kind: schema.IntType | schema.FloatType, path: Path) -> int | float:
    whole = isinstance(kind, schema.IntType)
    fits = isinstance(value, int) or (not whole and isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not fits:
        raise Invalid(path, f"found {found(value)}; allowed: {_allowed(kind)}")
    assert isinstance(value, int | float)
    outside = (
        (kind.ge is not None and value < kind.ge)
        or (kind.gt is not None and value <= kind.gt)
        or (kind.le is not None and value > kind.le)
    )
    if outside:
        raise Invalid(path, f"found {found(value)}; allowed: {_allowed(kind)}")
    return value if whole else float(value)


def _allowed(kind: schema.Type) -> str:
    match _bare(kind):
        case schema.LiteralType() as literal:
            return ", ".join(map(str, literal.values))
        case schema.IntType() | schema.FloatType() as number:
            noun = "a whole number" if isinstance(number, schema.IntType) else "a number"
            if number.ge is not None and number.le is not None:
                return f"{noun} from {number.ge} to {number.le}"
            if number.ge is not None:
                return f"{noun}, {number.ge} or more"
            return f"{noun} above {number.gt}" if number.gt is not None else noun
        case schema.VarTupleType() | schema.ListType():
            return "a list"
        case schema.DictType():
            return "an object"
    return str(extra(kind).get("allowed", "a string"))
