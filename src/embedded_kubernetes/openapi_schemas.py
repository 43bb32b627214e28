"""The schemas of one group and version, as OpenAPI v3 components.

Built-in types are described from the published definitions (`schema_source`), custom ones by their own definition.
Component names are Kubernetes': `io.k8s.api.core.v1.Pod`, and shared machinery below
`io.k8s.apimachinery.pkg.apis.meta.v1`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import schema_source as source
from .resource import Object, Resource

_REF = "#/components/schemas/"
_ROOT = "core.v1.Pod"
#: What OpenAPI v3 says of two types that its second version could not describe.
_NAMED: dict[str, Object] = {
    "api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}


def schemas(resources: Iterable[Resource]) -> Object:
    """The components of the kinds of one group and version, everything they refer to included."""
    found: dict[str, Object] = {}
    for resource in resources:
        if resource.custom:
            group = ".".join(reversed(resource.group.split(".")))
            found[f"{group}.{resource.version}.{resource.kind}"] = _custom(resource, found)
        elif model := source.model_name(resource.group, resource.version, resource.kind):
            _add(model, found)["x-kubernetes-group-version-kind"] = [_gvk(resource)]
    return dict(sorted(found.items()))


def _custom(resource: Resource, found: dict[str, Object]) -> Object:
    _add(source.OBJECT_META, found)
    described = source.descriptions(_ROOT)
    head: Object = {
        name: {"type": "string", "description": described[name]} for name in ("apiVersion", "kind")
    }
    head["metadata"] = {
        "allOf": [{"$ref": _REF + source.full_names()[source.OBJECT_META]}],
        "description": "Standard object's metadata.",
    }
    return {
        **resource.schema.root,
        "properties": {**(resource.schema.root.get("properties") or {}), **head},
        "x-kubernetes-group-version-kind": [_gvk(resource)],
    }


def _gvk(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _add(model: str, found: dict[str, Object]) -> Object:
    """The component of a type; it and those that it refers to are in `found` thereafter."""
    name = source.full_names()[model]
    if name not in found:
        described = source.descriptions(model)
        written = dict(_NAMED.get(model) or source.definition(model))
        component = found[name] = _described(written, described.get(""))
        if fields := written.get("properties"):
            component["properties"] = {
                field: _described(_type(inner, found, alone=True), described.get(field))
                for field, inner in fields.items()
            }
    return found[name]


def _described(written: Object, text: str | None) -> Object:
    return {**written, "description": text} if text else written


def _type(written: Object, found: dict[str, Object], *, alone: bool = False) -> Object:
    """A field's type, with its references resolved. One `alone` is wrapped: a reference has no room for more."""
    inner: Any = {key: value for key, value in written.items() if key != "$ref"}
    if reference := written.get("$ref"):
        _add(source.short(reference), found)
        referred = {"$ref": _REF + reference}
        return {**inner, "allOf": [referred]} if alone else referred
    for key in ("items", "additionalProperties"):
        if key in inner:
            inner[key] = _type(inner[key], found)
    return dict(inner)
