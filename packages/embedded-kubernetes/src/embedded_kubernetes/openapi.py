"""OpenAPI documents to the extent that kubectl uses them: explain, patches by apply, and field validation.

/openapi/v3 has one document per group and version in JSON, generated on first use and again after a definition changed
one of its kinds. /openapi/v2 combines them in one document, in JSON, or for kubectl in protobuf (`gnostic`).

Built-in types come from the published definitions (`schema_source`), custom ones from their own definition. Component
names are Kubernetes': `io.k8s.api.core.v1.Pod`, and shared types below `io.k8s.apimachinery.pkg.apis.meta.v1`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from . import gnostic
from . import schema_source as source
from .errors import ApiError
from .resource import Object, Resource
from .views import alternatives

JSON = "application/json"
_V3, _V2 = "/openapi/v3", "/openapi/v2"

_PARAMETERS = {
    "list": ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"),
    "get": (),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
    "deletecollection": ("labelSelector", "fieldSelector", "dryRun"),
}


def respond(path: str, accept: str, resources: Iterable[Resource]) -> tuple[bytes, str, str] | None:
    """Return body, content type and entity tag of the document at `path`; None for other paths.

    Raises 406 if the client accepts only other media types.
    """
    if path not in (_V2, _V3) and not path.startswith(_V3 + "/"):
        return None
    served = tuple(resources)
    media = _negotiate(accept, path)
    if path == _V3:
        return _answer(_index(served))
    if path == _V2:
        return _answer(_v2(served, media), media)
    kinds = _versions(served).get(path.removeprefix(_V3 + "/"))
    return None if kinds is None else _answer(_document(kinds))


def _negotiate(accept: str, path: str) -> str:
    for media, _ in alternatives(accept):
        if media in (JSON, "application/*", "*/*", ""):
            return JSON
        if media in gnostic.MEDIA_TYPES and path == _V2:
            return gnostic.MEDIA_TYPE
    raise ApiError(406, "NotAcceptable", f"only the following media types are accepted: {JSON}")


def _answer(body: bytes, media: str = JSON) -> tuple[bytes, str, str]:
    return body, media, _digest(body)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32].upper()


def _versions(resources: tuple[Resource, ...]) -> dict[str, tuple[Resource, ...]]:
    """Return the kinds by `api/v1` or `apis/GROUP/VERSION`."""
    found: dict[str, list[Resource]] = {}
    for resource in resources:
        found.setdefault(resource.path[1:], []).append(resource)
    return {path: tuple(kinds) for path, kinds in sorted(found.items())}


def _index(resources: tuple[Resource, ...]) -> bytes:
    return orjson.dumps(
        {
            "paths": {
                path: {"serverRelativeURL": f"{_V3}/{path}?hash={_fingerprint(kinds)}"}
                for path, kinds in _versions(resources).items()
            }
        }
    )


def _fingerprint(kinds: tuple[Resource, ...]) -> str:
    """Return a hash that changes with the document, without generating the document."""
    known = [[kind.plural, kind.schema.root if kind.schema is not None else None] for kind in kinds]
    return _digest(orjson.dumps(known))


# The cache keeps its kinds alive; a definition that changes often evicts its own old documents.
@lru_cache(maxsize=64)
def _document(kinds: tuple[Resource, ...]) -> bytes:
    paths: Object = {}
    for kind in kinds:
        paths |= _paths(kind)
    return orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36.2"},
            "paths": paths,
            "components": {"schemas": schemas(kinds)},
        }
    )


def _paths(resource: Resource) -> Object:
    where = f"{resource.path}/namespaces/{{namespace}}" if resource.namespaced else resource.path
    collection, item = f"{where}/{resource.plural}", f"{where}/{resource.plural}/{{name}}"
    operations = {
        collection: {"get": "list", "post": "post", "delete": "deletecollection"},
        item: {"get": "get", "put": "put", "patch": "patch", "delete": "delete"},
    }
    if resource.status:
        operations[f"{item}/status"] = {"get": "get", "put": "put", "patch": "patch"}
    if resource.namespaced:
        operations[f"{resource.path}/{resource.plural}"] = {"get": "list"}
    needed = {"post": "create", "put": "update"}
    return {
        path: {
            method: _operation(resource, action)
            for method, action in methods.items()
            if needed.get(action, action) in resource.verbs
        }
        for path, methods in operations.items()
    }


def _operation(resource: Resource, action: str) -> Object:
    return {
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in _PARAMETERS[action]
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }


# It is large, and asked for in one form or the other.
@lru_cache(maxsize=2)
def _v2(resources: tuple[Resource, ...], media: str) -> bytes:
    paths: Object = {}
    definitions: Object = {}
    for kinds in _versions(resources).values():
        text = _document(kinds).replace(b'"#/components/schemas/', b'"#/definitions/')
        document = orjson.loads(text)
        paths |= document["paths"]
        definitions |= document["components"]["schemas"]
    found = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": paths,
        "definitions": definitions,
    }
    return orjson.dumps(found) if media == JSON else gnostic.encode(found)


_REF = "#/components/schemas/"
_ROOT = "core.v1.Pod"
#: Types that OpenAPI v3 describes differently from v2.
_NAMED: dict[str, Object] = {
    "api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "util.intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
}


def schemas(resources: Iterable[Resource]) -> Object:
    """Return the components of the kinds of one group and version, with everything that they refer to."""
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
    head: Object = {name: {"type": "string", "description": described[name]} for name in ("apiVersion", "kind")}
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
    """Return the component of a type; add it and the types it refers to to `found`."""
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
    """Return a field's type with its references added.

    With `alone`, a reference is wrapped so that it can have more keys.
    """
    inner: Any = {key: value for key, value in written.items() if key != "$ref"}
    if reference := written.get("$ref"):
        _add(source.short(reference), found)
        referred = {"$ref": _REF + reference}
        return {**inner, "allOf": [referred]} if alone else referred
    for key in ("items", "additionalProperties"):
        if key in inner:
            inner[key] = _type(inner[key], found)
    return dict(inner)
