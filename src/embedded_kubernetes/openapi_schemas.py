"""The schemas of one group and version, as OpenAPI v3 components.

Built-in types are described from the installed models (`schema_source`), custom ones by their own definition.
Component names follow Kubernetes': `io.k8s.api.core.v1.Pod`, and shared machinery below
`io.k8s.apimachinery.pkg.apis.meta.v1`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from . import schema_source as source
from .resource import Object, Resource

_REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TIME, _MICRO_TIME = f"{_META}.Time", f"{_META}.MicroTime"

_META_MODELS = frozenset(
    {
        "V1ObjectMeta",
        "V1OwnerReference",
        "V1ManagedFieldsEntry",
        "V1LabelSelector",
        "V1LabelSelectorRequirement",
        "V1Condition",
        "V1DeleteOptions",
        "V1Preconditions",
    }
)

#: Types that are no structs, yet have names of their own.
_NAMED: dict[str, Object] = {
    _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    _INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    _TIME: {"type": "string", "format": "date-time"},
    _MICRO_TIME: {"type": "string", "format": "date-time"},
}
_NAME_OF = {
    "quantity": _QUANTITY,
    "intorstring": _INT_OR_STRING,
    "time": _TIME,
    "microtime": _MICRO_TIME,
}
_PLAIN: dict[str, Object] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    source.RAW: {},
}


def schemas(resources: Iterable[Resource]) -> Object:
    """The components of the kinds of one group and version, everything they refer to included."""
    components = _Components()
    for resource in resources:
        if resource.custom:
            components.add_custom(resource)
        else:
            components.add_builtin(resource)
    return dict(sorted(components.found.items()))


class _Components:
    """Collects schemas by component name; `found` is complete when the last kind was added."""

    def __init__(self) -> None:
        self.found: dict[str, Object] = {}
        self._group = ""

    def add_builtin(self, resource: Resource) -> None:
        model = source.model_name(resource.group, resource.version, resource.kind)
        if model is None:
            return
        self._group = resource.group
        name = self._add_model(model, _package(resource.group, resource.version))
        self.found[name]["x-kubernetes-group-version-kind"] = [_gvk(resource)]

    def add_custom(self, resource: Resource) -> None:
        root = dict(resource.schema.root)
        properties = dict(root.get("properties") or {})
        properties["apiVersion"] = {"type": "string", **_described("V1Pod", "apiVersion")}
        properties["kind"] = {"type": "string", **_described("V1Pod", "kind")}
        properties["metadata"] = {
            "allOf": [{"$ref": _REF + self._add_model("V1ObjectMeta", "")}],
            "description": "Standard object's metadata.",
        }
        root["properties"] = properties
        root["x-kubernetes-group-version-kind"] = [_gvk(resource)]
        group = ".".join(reversed(resource.group.split(".")))
        self.found[f"{group}.{resource.version}.{resource.kind}"] = root

    def _add_model(self, model: str, package: str = "") -> str:
        name = f"{package or _package_of(model, self._group)}.{source.go_name(model)}"
        if name in self.found:
            return name
        described: Object = {"type": "object"}
        self.found[name] = described
        struct = source.struct(model)
        described["properties"] = {
            field.name: {**self._field(field), **_described(model, field.name)}
            for field in struct.fields.values()
        }
        required = [field.name for field in struct.fields.values() if field.required]
        if required:
            described["required"] = required
        return name

    def _field(self, field: source.Field) -> Object:
        written = self._type(field.type)
        if "$ref" in written:
            # A reference has no room for a description of its own.
            written = {"allOf": [written]}
        strategies = [] if field.type.rule.patch_key is None else ["merge"]
        if field.retain or field.type.rule.retain:
            strategies.append("retainKeys")
        if field.replace:
            strategies = ["replace"]
        if strategies:
            written["x-kubernetes-patch-strategy"] = ",".join(strategies)
        if field.type.rule.patch_key:
            written["x-kubernetes-patch-merge-key"] = field.type.rule.patch_key
        return written

    def _type(self, type_: source.Type) -> Object:
        if type_.kind in _PLAIN:
            return dict(_PLAIN[type_.kind])
        if type_.kind == "integer":
            return {"type": "integer", "format": type_.go}
        if type_.kind in _NAME_OF:
            name = _NAME_OF[type_.kind]
            self.found[name] = _NAMED[name]
            return {"$ref": _REF + name}
        if type_.kind == "list" and type_.item is not None:
            return self._list(type_, type_.item)
        if type_.kind == "map" and type_.item is not None:
            written: Object = {"type": "object", "additionalProperties": self._type(type_.item)}
            return {**written, "x-kubernetes-map-type": "atomic"} if type_.atomic else written
        if type_.struct:
            return {"$ref": _REF + self._add_model(type_.struct)}
        return {"type": "object"}

    def _list(self, type_: source.Type, item: source.Type) -> Object:
        written: Object = {
            "type": "array",
            "items": self._type(item),
            "x-kubernetes-list-type": type_.rule.apply,
        }
        if type_.rule.keys:
            written["x-kubernetes-list-map-keys"] = list(type_.rule.keys)
        return written


def _gvk(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _described(model: str, field: str) -> Any:
    text = source.descriptions(model).get(field)
    return {"description": text} if text else {}


def _package(group: str, version: str) -> str:
    if group == "apiextensions.k8s.io":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}"
    return f"io.k8s.api.{group.split('.', 1)[0] or 'core'}.{version}"


def _package_of(model: str, group: str) -> str:
    """The package of a type that a kind of `group` refers to: machinery, core's, or the group's own."""
    if model in _META_MODELS:
        return _META
    return _package("" if model in _core() else group, "v1")


@cache
def _core() -> frozenset[str]:
    """Every type that pods and the other core kinds are made of."""
    seen: set[str] = set()
    waiting = [
        "V1Pod",
        "V1Node",
        "V1PersistentVolume",
        "V1PersistentVolumeClaim",
        "V1Service",
        "V1ObjectReference",
    ]
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        for field in source.struct(model).fields.values():
            type_ = field.type
            while type_.item is not None:
                type_ = type_.item
            if type_.struct:
                waiting.append(type_.struct)
    return frozenset(seen)
