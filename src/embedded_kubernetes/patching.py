"""PATCH of an object or of one of its subresources: JSON patch, merge, strategic merge and server-side apply.

What a patch comes to is judged and stored as an update is (`writing`).
"""

from __future__ import annotations

from typing import Any

import orjson

from . import apply, patch
from .auth.writes import check_change, creation
from .bodies import check_fields, check_names, media_type, parse
from .errors import ApiError, bad_request, conflict, not_found, stale
from .errors import unsupported_media_type as unsupported
from .registry import Registry, Served
from .requests import Request, Response
from .resource import Object
from .writing import commit, create_object, match_name, match_namespace

_PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


def patched(
    registry: Registry, served: Served, namespace: str, name: str, *, subresource: str, request: Request
) -> Response:
    """PATCH of an object or of its status: JSON patch, merge, strategic merge or server-side apply."""
    resource = served.resource
    form = _patch_form(request, served)
    dry = request.dry_run("PatchOptions", applies=form == "apply")
    manager = request.parameters.get("fieldManager", "")
    old = served.table.get(namespace, name)
    if form == "apply":
        return _apply(registry, served, namespace, name, subresource=subresource, request=request, dry=dry)
    if old is None:
        raise not_found(resource.plural, served.name[0], name)
    try:
        body = orjson.loads(request.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    before = served.stored.decode(old.data)
    # What a merge leaves alone stays the stored object's own, and is not judged again. Custom kinds may have got
    # another schema since, and the two forms of a shaped kind have no parts in common.
    known = before if form != "json" and not resource.custom and resource.shape is None else None
    doc = served.view.decode(old.data) if known is None else known
    if form == "json":
        new = patch.json_patch(doc, body)
    else:
        if not isinstance(body, dict):
            raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map")
        if form == "merge":
            new = patch.merge_patch(doc, body, nulls=b"null" in request.body)
        else:
            new = patch.strategic_merge_patch(doc, body, resource)
    if form == "strategic":
        # It is merged into the type itself, where the names of the type say nothing.
        new["kind"], new["apiVersion"] = resource.kind, resource.api_version
    try:
        new = check_names(new, resource)
        warnings = check_fields(request, new, resource, known)
    except ApiError as refused:
        raise _patch_gone_wrong(refused, request) from None
    if known is not None:
        _unshare(new, before)
    match_namespace(new, namespace)
    match_name(new["metadata"], name)
    if resource.shape is not None:
        new = resource.shape.to_stored(new)
    resource.default(new)
    denied = check_change(registry, served, old, new, request, subresource=subresource)
    return commit(
        registry,
        served,
        old,
        new,
        before=before,
        subresource=subresource,
        manager=manager,
        dry=dry,
        warnings=warnings,
        denied=denied,
    )


def _unshare(new: Object, before: Object) -> None:
    """Let rules complete `new`, which shares with `before` what a patch left alone, without a change of `before`.

    A part that is as it was stored is complete: rules may exchange what stands in it, and nothing further down. What a
    patch says of one field may complete another, so a part that it named gets all of its own; but for metadata and
    status, of which no rule completes what lies deeper.
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
    """What a patch answers whose outcome cannot be decoded: not a bad request, but an invalid patch."""
    if refused.code != 400:
        return refused
    shown = orjson.dumps(request.body.decode("utf-8", "replace")).decode()
    said = f"Invalid value: {shown}: {refused.message}"
    cause = {"reason": "FieldValueInvalid", "message": said, "field": "patch"}
    return ApiError(422, "Invalid", f' "" is invalid: patch: {said}', {"causes": [cause]})


def _patch_form(request: Request, served: Served) -> str:
    form = _PATCH_TYPES.get(media_type(request), "")
    if served.resource.custom and form in ("", "strategic"):
        raise ApiError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )
    if not form:
        raise unsupported()
    return form


def _apply(
    registry: Registry,
    served: Served,
    namespace: str,
    name: str,
    *,
    subresource: str,
    request: Request,
    dry: bool,
) -> Response:
    resource = served.resource
    manager = request.parameters.get("fieldManager", "")
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
    old = served.table.get(namespace, name)
    if old is not None and not metadata.get("name"):
        metadata["name"] = name
    match_name(metadata, name)
    match_namespace(config, namespace)
    live = served.view.decode(old.data) if old is not None else None
    if old is not None and metadata.get("resourceVersion") not in (None, "", str(old.rv)):
        raise stale(resource.plural, served.name[0], name)
    if old is None and (subresource or metadata.get("resourceVersion")):
        raise not_found(resource.plural, served.name[0], name)
    new = apply.apply(
        live,
        config,
        manager=manager,
        force=request.flag("force"),
        resource=resource,
        now=registry.now(),
        subresource=subresource,
    )
    # `apply` has judged the configuration. To decode that here would fill in what nobody applied, so what is
    # decoded is the outcome.
    warnings = check_fields(request, new, resource)
    if old is None:
        if metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise conflict(resource.plural, served.name[0], name, why)
        guard = creation(request)
        return create_object(
            registry, served, new, request, dry=dry, manager="", warnings=warnings, guard=guard
        )
    if resource.shape is not None:
        new = resource.shape.to_stored(new)
    resource.default(new)
    denied = check_change(registry, served, old, new, request, subresource=subresource)
    return commit(
        registry,
        served,
        old,
        new,
        subresource=subresource,
        manager=None,
        dry=dry,
        warnings=warnings,
        denied=denied,
    )
