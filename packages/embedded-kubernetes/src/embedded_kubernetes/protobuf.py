"""Decodes request bodies in Kubernetes' protobuf envelope, which some clients send for built-in kinds.

kubectl's typed commands (create, drain, auth) may send `application/vnd.kubernetes.protobuf` and accept JSON. Field
numbers are those of the `generated.proto` files of k8s.io/api and apimachinery; types come from `schema_source`.
`data/protobuf.json` has the messages of such commands. Unknown messages and fields get 415; they are never dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from . import nesting
from . import schema_source as source
from .errors import ApiError, bad_request
from .resource import Object
from .times import clock_text

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def decode(body: bytes) -> Object:
    """Return the object in an envelope. Raises 400 for malformed bytes, 415 for unknown messages or fields."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not in Kubernetes' protobuf envelope: it does not begin with its magic")
    try:
        envelope = dict(wire_fields(memoryview(body)[len(_MAGIC) :]))
        names = {number: _text(text) for number, text in wire_fields(envelope.get(1, b""))}
        api_version, kind = names.get(1, ""), names.get(2, "")
        group, _, version = api_version.rpartition("/")
        model = source.model_name(group, version, kind) or source.model_name("", "v1", kind)
        obj = _message(model or kind, envelope.get(2, b""))
    except (IndexError, TypeError, ValueError) as error:
        raise bad_request(f"the body is not in Kubernetes' protobuf envelope: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def wire_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield field numbers and raw values: an int, or a slice of `data`."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise IndexError("a field is longer than its message")
            yield number, data[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, data[at : at + size]
            at += size
        else:
            raise IndexError(f"wire type {wire} is not supported")


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("a number is longer than 64 bits")


def _message(model: str, data: Any) -> Object:
    numbers: dict[str, str] | None = source.data("protobuf.json")["messages"].get(model)
    if numbers is None:
        raise _unknown(f"type {source.go_name(model)}")
    fields = source.struct(model).fields
    obj: Object = {}
    for number, raw in wire_fields(data):
        name = numbers.get(str(number))
        if name is None:
            raise _unknown(f"field {number} of {source.go_name(model)}")
        type_ = fields[name].type
        if type_.kind == "list" and type_.item is not None:
            obj.setdefault(name, []).append(_value(type_.item, raw))
        elif type_.kind == "map" and type_.item is not None:
            entry = dict(wire_fields(raw))
            key = _text(entry.get(1, b""))
            obj.setdefault(name, {})[key] = _value(type_.item, entry.get(2, b""))
        else:
            obj[name] = _value(type_, raw)
    return obj


def _value(type_: source.Type, raw: Any) -> Any:
    if type_.kind == "string":
        return _text(raw)
    if type_.kind == "boolean":
        return bool(raw)
    if type_.kind == "integer":
        return raw - (1 << 64) if raw >> 63 else raw
    if type_.kind == "bytes":
        return base64.b64encode(_slice(raw)).decode()
    if type_.kind == "quantity":
        return _text(dict(wire_fields(raw)).get(1, b""))
    if type_.kind == "time":
        parts = dict(wire_fields(raw))
        if not parts:
            return None
        return clock_text(_value(_INTEGER, parts.get(1, 0)))
    if type_.kind == "intorstring":
        parts = dict(wire_fields(raw))
        return _text(parts.get(3, b"")) if parts.get(1) else _value(_INTEGER, parts.get(2, 0))
    if type_.kind == source.RAW:
        # A message around JSON, such as FieldsV1.
        return nesting.loads(_slice(dict(wire_fields(raw)).get(1, b"null")))
    if type_.struct:
        return _message(type_.struct, raw)
    raise _unknown(f"a value of type {type_.go}")


def _slice(raw: Any) -> bytes:
    # bytes(number) would return that number of zeros.
    if isinstance(raw, int):
        raise TypeError("found a number instead of bytes")
    return bytes(raw)


def _text(raw: Any) -> str:
    return _slice(raw).decode()


_INTEGER = source.Type("integer", "int64")


def _unknown(what: str) -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in a protobuf form that this server does not support ({what}) - accepted "
        "media types include: application/json, application/yaml",
    )
