"""The structural schema of a custom resource: pruning, defaulting and list types.

A structural schema is an OpenAPI v3 schema in which every field's type is outside of logical operators, so that
pruning and defaulting follow from it (KEP-1979). Validation is in `crd_validation`. The schema is the definition's
JSON, interpreted directly; `Structural` is immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any

from . import schema, schema_source
from .errors import Cause
from .resource import Object
from .schema_source import ListRule

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


class Structural:
    """The schema of one version of a custom resource. `root` is its openAPIV3Schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def prune(self, obj: Object) -> list[str]:
        """Drop unknown fields in place; return a warning for each.

        Raises a 400 `ApiError` for metadata of the wrong JSON type, which kube-apiserver decodes first.
        """
        unknown: list[str] = []
        kept = _decode_head(obj, unknown)
        rest = {name: value for name, value in obj.items() if name not in _ROOT_FIELDS}
        _prune(rest, {**self.root, "x-kubernetes-embedded-resource": False}, "", unknown)
        obj.clear()
        obj.update(kept)
        obj.update(rest)
        return unknown

    def default(self, obj: Object) -> None:
        """Set defaults in place."""
        _default(obj, self.root)

    def validate(self, obj: Object, old: Object | None) -> list[Cause]:
        """Return the causes of a 422.

        As with CRD ratcheting, values that an update does not change are not validated.
        """
        from .crd_validation import validate

        return validate(self.root, obj, old)

    @cached_property
    def type(self) -> schema_source.Type:
        """The schema as a type, for server-side apply."""
        root = _type(self.root)
        if root.inline is None:
            return schema_source.Type(schema_source.RAW)
        fields = dict(root.inline.fields)
        fields["metadata"] = schema_source.Field("metadata", METADATA)
        for name in ("apiVersion", "kind"):
            fields[name] = schema_source.Field(name, _STRING)
        return schema_source.Type("struct", inline=schema_source.Struct("", fields, root.inline.open))


METADATA = schema_source.Type("struct", struct=schema_source.OBJECT_META)
_STRING = schema_source.Type("string")
_DEDUCED = schema_source.Type(schema_source.RAW)


def _decode_head(obj: Object, unknown: list[str]) -> Object:
    """Decode kind, apiVersion and metadata, as kube-apiserver does before it applies the schema."""
    head = {name: obj[name] for name in _ROOT_FIELDS if name in obj}
    # Any built-in kind decodes these three fields in the same way. PodTemplate has only one other field.
    unknown += schema.check_kind("", "v1", "PodTemplate", head)
    return {name: head[name] for name in _ROOT_FIELDS if name in head}


def _keeps_unknown(node: Mapping[str, Any]) -> bool:
    return bool(node.get("x-kubernetes-preserve-unknown-fields"))


def _prune(value: Any, node: Mapping[str, Any], path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        properties = node.get("properties") or {}
        extra = node.get("additionalProperties")
        embedded = node.get("x-kubernetes-embedded-resource")
        for name in list(value):
            inner = f"{path}.{name}" if path else name
            if name in properties:
                _prune(value[name], properties[name], inner, unknown)
            elif isinstance(extra, dict):
                _prune(value[name], extra, inner, unknown)
            elif extra is True or _keeps_unknown(node) or (embedded and name in _ROOT_FIELDS):
                continue
            else:
                unknown.append(f'unknown field "{inner}"')
                del value[name]
    elif isinstance(value, list) and isinstance(node.get("items"), dict):
        for index, item in enumerate(value):
            _prune(item, node["items"], f"{path}[{index}]", unknown)


def _default(value: Any, node: Mapping[str, Any]) -> None:
    if isinstance(value, dict):
        properties = node.get("properties") or {}
        for name, inner in properties.items():
            if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
                value[name] = deepcopy(inner["default"])
            if name in value:
                _default(value[name], inner)
        extra = node.get("additionalProperties")
        if isinstance(extra, dict):
            for name, inner_value in value.items():
                if name not in properties:
                    _default(inner_value, extra)
    elif isinstance(value, list) and isinstance(node.get("items"), dict):
        for item in value:
            _default(item, node["items"])


def _type(node: Mapping[str, Any]) -> schema_source.Type:
    kind = node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        return schema_source.Type("intorstring")
    if kind == "array" and isinstance(node.get("items"), dict):
        return schema_source.Type("list", item=_type(node["items"]), rule=_rule(node))
    if kind == "object":
        atomic = node.get("x-kubernetes-map-type") == "atomic"
        if "properties" in node:
            fields = {name: schema_source.Field(name, _type(inner)) for name, inner in node["properties"].items()}
            if node.get("x-kubernetes-embedded-resource"):
                fields |= {name: schema_source.Field(name, _STRING) for name in ("apiVersion", "kind")}
                fields["metadata"] = schema_source.Field("metadata", METADATA)
            struct = schema_source.Struct("", fields, _keeps_unknown(node))
            return schema_source.Type("struct", inline=struct, atomic=atomic)
        extra = node.get("additionalProperties")
        if isinstance(extra, dict):
            return schema_source.Type("map", item=_type(extra), atomic=atomic)
        if atomic:
            return schema_source.Type("map", item=_DEDUCED, atomic=True)
    if kind in ("string", "integer", "number", "boolean"):
        return schema_source.Type(str(kind))
    return _DEDUCED


def _rule(node: Mapping[str, Any]) -> ListRule:
    kind = node.get("x-kubernetes-list-type", "atomic")
    keys = tuple(node.get("x-kubernetes-list-map-keys") or ())
    defaults = (node.get("items") or {}).get("properties") or {}
    return ListRule(
        None,
        kind,
        keys,
        defaults=tuple((key, defaults[key]["default"]) for key in keys if "default" in defaults.get(key, {})),
    )
