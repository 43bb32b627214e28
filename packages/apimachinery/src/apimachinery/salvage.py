"""Decodes the valid parts of an object with an unexpected form.

A running pod uses its requests even if some of its fields are invalid here. If decoding it as a whole fails, each
valid field is decoded separately, and each invalid one gets its default.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from .nesting import shallow

S = TypeVar("S", bound=msgspec.Struct)


def salvage(raw: bytes | memoryview | Raw, cls: type[S]) -> S:
    """Decode the fields of `cls` that are valid in `raw`. Raises msgspec.DecodeError for anything but a JSON object.

    Levels that cannot be decoded are left out.
    """
    data = _decoded(raw)
    if not isinstance(data, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(data).__name__}`")
    return _struct(data, cls)


def salvage_part(raw: bytes | Raw, kind: Any) -> Any:
    """Decode the valid parts of a field of type `kind`; None if there are none."""
    try:
        return _value(_decoded(raw), kind)
    except msgspec.MsgspecError:
        return None


def _decoded(raw: bytes | memoryview | Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        return msgspec.json.decode(shallow(raw))


def _struct(data: dict[str, Any], cls: type[S]) -> S:
    found = {}
    for field in msgspec.structs.fields(cls):
        # A missing required field is created empty.
        if field.encode_name in data or field.required:
            try:
                found[field.name] = _value(data.get(field.encode_name, {}), field.type)
            except msgspec.ValidationError:
                continue
    return cls(**found)


def _value(value: Any, kind: Any) -> Any:
    if kind is Raw:
        return Raw(msgspec.json.encode(value))
    if typing.get_origin(kind) in (types.UnionType, typing.Union) and value is not None:
        some = [part for part in typing.get_args(kind) if part is not types.NoneType]
        if len(some) == 1:
            return _value(value, some[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value if isinstance(value, dict) else {}, kind)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Annotated:
        # Its length is checked first, since to convert each item takes long. Other constraints apply to what is valid.
        limit = parts[1].max_length
        if limit is not None and isinstance(value, list | dict) and len(value) > limit:
            raise msgspec.ValidationError(f"Expected at most {limit} items")
        return msgspec.convert(_value(value, parts[0]), kind)
    if typing.get_origin(kind) is list and isinstance(value, list):
        return [item for _, item in _readable(enumerate(value), parts[0])]
    if typing.get_origin(kind) is dict and isinstance(value, dict):
        return dict(_readable(value.items(), parts[1]))
    return msgspec.convert(value, kind)


def _readable(pairs: Iterable[tuple[Any, Any]], kind: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the decoded pairs whose value is a valid `kind`."""
    for key, value in pairs:
        try:
            yield key, _value(value, kind)
        except msgspec.ValidationError:
            continue
