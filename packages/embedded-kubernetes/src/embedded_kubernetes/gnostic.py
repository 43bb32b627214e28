"""The OpenAPI v2 document in protobuf, in the messages of gnostic, which is the only form that kubectl reads.

The messages follow the JSON document, with these differences: a map is a list of names and values, alternatives have a
message each, and extensions are YAML, of which JSON is a part. `data/gnostic.json` has their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from . import protobuf
from .resource import Object

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: The media types with which clients ask for it; the second is malformed, but usual.
MEDIA_TYPES = frozenset({MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})


def encode(document: Object) -> bytes:
    """Return an OpenAPI v2 document as an encoded `Document`."""
    paths, definitions = (_named(document[part].items(), convert) for part, convert in _PARTS.items())
    found = {**document, "paths": {"path": paths}, "definitions": {"additional_properties": definitions}}
    return protobuf.codec_of("openapi.v2.Document").encoded(found)


def _named(items: Iterable[tuple[str, Any]], convert: Callable[[Any], Object]) -> list[Object]:
    return [{"name": name, "value": convert(value)} for name, value in items]


def _extensions(written: Object) -> list[Object]:
    found = ((name, value) for name, value in written.items() if name.startswith("x-"))
    return _named(found, lambda value: {"yaml": orjson.dumps(value).decode()})


def _path(operations: Object) -> Object:
    return {method: _operation(operation) for method, operation in operations.items()}


def _operation(operation: Object) -> Object:
    return {
        "parameters": [
            {"parameter": {"non_body_parameter": {"query_parameter_sub_schema": _parameter(parameter)}}}
            for parameter in operation["parameters"]
        ],
        "responses": {"response_code": _named(operation["responses"].items(), lambda response: {"response": response})},
        "vendor_extension": _extensions(operation),
    }


def _parameter(parameter: Object) -> Object:
    return {"name": parameter["name"], "in": parameter["in"], "type": "string", "unique_items": True}


def _schema(written: Object) -> Object:
    """Return a schema. What OpenAPI v2 and kubectl do not know is left out: alternatives, and types beside them."""
    referred = next(iter(written.get("allOf") or ()), written).get("$ref")
    found: Object = {"description": written.get("description")}
    if referred:
        return {**found, "_ref": referred}
    # A quantity or a number may be written in two ways. kubectl accepts both for a string.
    type_ = "string" if "oneOf" in written and "type" not in written else written.get("type")
    if type_ == "array" and "items" not in written:
        type_ = None
    found |= {"format": written.get("format"), "required": written.get("required")}
    found["vendor_extension"] = _extensions(written)
    if type_:
        found["type"] = {"value": [type_]}
    if "items" in written:
        found["items"] = {"schema": [_schema(written["items"])]}
    if "properties" in written:
        found["properties"] = {"additional_properties": _named(written["properties"].items(), _schema)}
    if isinstance(more := written.get("additionalProperties"), dict):
        found["additional_properties"] = {"schema": _schema(more)}
    return found


_PARTS: dict[str, Callable[[Any], Object]] = {"paths": _path, "definitions": _schema}
