"""PATCH of an object or a subresource: JSON patch, merge, strategic merge and server-side apply.

The patched object is admitted, validated and stored like an update (`writing`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import apply, nesting, patch
from .auth.writes import creation
from .bodies import check_fields, check_names, media_type, parse
from .builtin import causes
from .errors import PATCHES, ApiError, bad_request, conflict, invalid, not_found, stale, unknown_format
from .errors import unsupported_media_type as unsupported
from .registry import Registry, Served
from .requests import Answer, Request
from .resource import Object
from .store import Record
from .writing import Warnings, Write, change, create_object, match_name, match_namespace

_PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


class _Patched(NamedTuple):
    """The result of a patch. `before` is the stored object, with which `new` may share parts."""

    new: Object
    warnings: Warnings
    before: Object | None = None


def patched(
    registry: Registry, served: Served, namespace: str, name: str, *, subresource: str, request: Request
) -> Answer:
    """Handle the PATCH of an object or its status."""
    resource = served.resource
    form = _patch_form(request, served)
    applies = form == "apply"
    dry = request.dry_run("PatchOptions", applies=applies)
    old = served.table.get(namespace, name)
    if applies:
        config = _configuration(request, served, namespace, name, exists=old is not None)
        new, warnings, before = _applied(registry, served, old, config, subresource=subresource, request=request)
    elif old is None:
        raise not_found(resource.plural, served.name[0], name)
    else:
        new, warnings, before = _merged(served, old, form, request)
        match_namespace(new, namespace)
        match_name(new["metadata"], name)
    if old is None:
        return create_object(Write(registry, served, request, dry, warnings), new, creation(request))
    manager = None if applies else request.parameters.get("fieldManager", "")
    write = Write(registry, served, request, dry, warnings, subresource, manager)
    return change(write, old, new, before=before)


def _merged(served: Served, old: Record, form: str, request: Request) -> _Patched:
    resource = served.resource
    try:
        body = nesting.loads(request.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    before = served.stored.decode(old.data)
    # Parts that a merge does not change stay shared with the stored object and are not validated again. Excluded are
    # custom kinds, whose schema may have changed, and shaped kinds, whose two forms share no parts.
    known = before if form != "json" and not resource.custom and resource.shape is None else None
    doc = served.view.decode(old.data) if known is None else known
    if form == "json":
        new = patch.json_patch(doc, body)
    elif not isinstance(body, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map")
    elif form == "merge":
        new = patch.merge_patch(doc, body, nulls=b"null" in request.body)
    else:
        new = patch.strategic_merge_patch(doc, body, resource)
        # kube-apiserver decodes the result into the type, which ignores kind and version.
        new["kind"], new["apiVersion"] = resource.kind, resource.api_version
    try:
        new = check_names(new, resource)
        warnings = check_fields(request, new, resource, known)
    except ApiError as refused:
        raise _patch_gone_wrong(refused, request) from None
    if known is not None:
        _unshare(new, before)
    return _Patched(new, warnings, before)


def _unshare(new: Object, before: Object) -> None:
    """Copy parts of `new` that it shares with `before`, so that rules can complete `new` without changing `before`.

    An unchanged part is complete: rules may replace values in it, but nothing below. A patched field may affect the
    completion of others, so a patched part is copied deeply, except for metadata and status, where no rule completes
    nested values.
    """
    for name, value in new.items():
        if type(value) is str:
            continue
        if value is before.get(name):
            if type(value) is dict:
                new[name] = value.copy()
        elif name not in ("metadata", "status"):
            new[name] = patch.copy_json(value)


def _patch_gone_wrong(refused: ApiError, request: Request) -> ApiError:
    """Return the error for a patch whose result cannot be decoded: an invalid patch instead of a bad request."""
    if refused.code != 400:
        return refused
    cause = causes.invalid("patch", request.body.decode("utf-8", "replace"), refused.message)
    return invalid("", "", "", [cause])


def _patch_form(request: Request, served: Served) -> str:
    form = _PATCH_TYPES.get(media_type(request), "")
    if served.resource.custom and form in ("", "strategic"):
        raise unknown_format(PATCHES)
    if not form:
        raise unsupported()
    return form


def _configuration(request: Request, served: Served, namespace: str, name: str, *, exists: bool) -> Object:
    """Return the applied configuration, with name and namespace of the object."""
    resource = served.resource
    config: Any = parse(request, resource.kind, may_be_yaml=True)
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: the applied configuration is not an object")
    if config.get("apiVersion") != resource.api_version:
        given = config.get("apiVersion", "")
        raise bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {given}, expected: "
            f"{resource.api_version}"
        )
    if not isinstance(config.get("metadata"), dict):
        config["metadata"] = {}
    metadata = config["metadata"]
    if "managedFields" in metadata:
        raise bad_request("metadata.managedFields must be nil")
    if config.get("kind") != resource.kind:
        raise ApiError(500, "", f"expected objects of the same type, but got {config.get('kind', '')}")
    if exists and not metadata.get("name"):
        metadata["name"] = name
    match_name(metadata, name)
    match_namespace(config, namespace)
    return config


def _applied(
    registry: Registry, served: Served, old: Record | None, config: Object, *, subresource: str, request: Request
) -> _Patched:
    resource, metadata = served.resource, config["metadata"]
    group, name = served.name[0], metadata["name"]
    if old is not None and metadata.get("resourceVersion") not in (None, "", str(old.rv)):
        raise stale(resource.plural, group, name)
    if old is None and (subresource or metadata.get("resourceVersion")):
        raise not_found(resource.plural, group, name)
    new = apply.apply(
        served.view.decode(old.data) if old is not None else None,
        config,
        manager=request.parameters.get("fieldManager", ""),
        force=request.flag("force"),
        resource=resource,
        now=registry.now(),
        subresource=subresource,
    )
    # `apply` has validated the configuration. Decoding it here would add defaults that are not applied, so the result
    # is decoded instead.
    warnings = check_fields(request, new, resource)
    if old is None and metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise conflict(resource.plural, group, name, why)
    return _Patched(new, warnings)
