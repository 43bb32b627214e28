"""The subresource `scale` of workloads (autoscaling/v1 Scale).

A Scale is a view of the object. A read computes it, and a write sets the object's `spec.replicas` with all rules of
an update. Server-side apply of a Scale is not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import nesting, patch, schema, writing
from .admission.attributes import GroupVersionKind
from .admission.configured import Below, Review, check_current, review_of
from .bodies import media_type, of_kind, parse
from .builtin.causes import check_not_negative
from .errors import (
    ApiError,
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    not_found,
    other_name,
    other_namespace,
    unsupported_media_type,
)
from .printing import label_selector, labels
from .registry import Registry, Served
from .requests import Answer, Request, Response
from .resource import Object, ScalePaths
from .store import Record

_GROUP, _VERSION, _KIND = "autoscaling", "v1", "Scale"
_PATCHES: dict[str, Callable[[Object, Any], Object]] = {
    "application/json-patch+json": patch.json_patch,
    "application/merge-patch+json": patch.merge_patch,
    # A Scale has no lists, so both merges are equivalent.
    "application/strategic-merge-patch+json": patch.merge_patch,
}
_BELOW = Below(subresource="scale", kind=GroupVersionKind(_GROUP, _VERSION, _KIND))
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def respond(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Answer:
    """Handle the GET, PUT or PATCH of an object's scale."""
    old = served.table.get(namespace, name)
    if old is None:
        raise not_found(served.resource.plural, served.name[0], name)
    paths = served.resource.scale
    current = served.stored.decode(old.data)
    if request.method in ("GET", "HEAD"):
        return Response(200, nesting.dumps(scale_of(current, paths)))
    if request.method == "PUT":
        sent: Any = parse(request, _KIND)
        dry = request.dry_run("UpdateOptions")
    elif request.method == "PATCH":
        sent = _patched(scale_of(current, paths), request)
        dry = request.dry_run("PatchOptions", applies=False)
    else:
        raise method_not_allowed()
    wanted = _decoded(sent, served, namespace, name)
    manager = request.parameters.get("fieldManager", "")
    write = writing.Write(registry, served, request, dry, manager=manager)
    if registry.is_reviewed:
        review = review_of(
            registry,
            served,
            request,
            operation="UPDATE",
            obj=wanted,
            old=scale_of(current, paths),
            namespace=namespace,
            name=name,
            options="UpdateOptions",
            below=_BELOW,
        )
        if review is not None:
            return review.run(_scale_reviewed(write, old, review))
    return _scaled(write, old, _checked(wanted, served, old))


async def _scale_reviewed(write: writing.Write, old: Record, review: Review) -> Response:
    wanted = _checked(await review.mutate(), write.served, old)
    await review.validate(wanted)
    check_current(write.served, old)
    return _scaled(write, old, wanted)


def _checked(wanted: Object, served: Served, old: Record) -> Object:
    """Check a Scale. Raises 409 if it is that of another object, 422 for an invalid number."""
    metadata = wanted["metadata"]
    if metadata.get("uid") and metadata["uid"] != old.uid:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old.uid}"
        raise conflict(served.resource.plural, served.name[0], old.name, why)
    causes = check_not_negative("spec.replicas", wanted["spec"].get("replicas", 0))
    if causes:
        raise invalid(_KIND, _GROUP, old.name, causes)
    return wanted


def _scaled(write: writing.Write, old: Record, wanted: Object) -> Response:
    new = write.served.stored.decode(old.data)
    paths = write.served.resource.scale
    *above, last = ("spec", "replicas") if paths is None else paths.replicas
    holder = new
    for step in above:
        holder = holder.setdefault(step, {})
    holder[last] = wanted["spec"].get("replicas", 0)
    # The resourceVersion is a precondition; without one, any version is accepted.
    new["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion") or str(old.rv)
    answer = writing.changed(write, old, new)
    return Response(200, nesting.dumps(scale_of(nesting.loads(answer.body), paths)))


def scale_of(obj: Object, paths: ScalePaths | None = None) -> Object:
    """Return the Scale of a workload, or of a custom resource with these paths.

    Raises 500 if a custom resource lacks the field of its replicas.
    """
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    wanted = spec.get("replicas", 0)
    selector: Any = spec.get("selector")
    if paths is not None:
        wanted, text = _at(obj, paths.replicas), str(_at(obj, paths.selector) or "") if paths.selector else ""
        status = {"replicas": _at(obj, paths.status) or 0}
        if wanted is None:
            field = f".{'.'.join(paths.replicas)}"
            raise ApiError(
                500, "InternalError", f'Internal error occurred: the spec replicas field "{field}" does not exist'
            )
    elif selector:
        # The selector of a ReplicationController is a plain map.
        typed = "matchLabels" in selector or "matchExpressions" in selector
        text = label_selector(selector) if typed else labels(selector)
    else:
        text = ""
    return {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "metadata": {field: metadata[field] for field in _METADATA if field in metadata},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": status.get("replicas", 0), **({"selector": text} if text else {})},
    }


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _patched(scale: Object, request: Request) -> Object:
    apply = _PATCHES.get(media_type(request))
    if apply is None:
        raise unsupported_media_type()
    try:
        body = nesting.loads(request.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    return apply(scale, body)


def _decoded(sent: Any, served: Served, namespace: str, name: str) -> Object:
    """Return the body as a Scale of this object. Raises 400 for another kind or name."""
    of_kind(sent, _KIND).setdefault("kind", _KIND)
    sent.setdefault("apiVersion", f"{_GROUP}/{_VERSION}")
    schema.check_kind(_GROUP, _VERSION, _KIND, sent)
    metadata = sent["metadata"] if isinstance(sent.get("metadata"), dict) else {}
    sent["metadata"] = metadata
    given = metadata.setdefault("name", name)
    if given != name:
        raise other_name(given, name)
    if metadata.get("namespace") not in (None, "", namespace):
        raise other_namespace()
    return dict(sent)
