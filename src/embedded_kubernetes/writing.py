"""Create and update, for every kind and for the status subresource; `patching` comes to the same commit.

One pipeline, in a real server's order: decode and prune, default, admission that needs other objects, the
kind's `prepare_*`, `validate`, then commit. A write that changes nothing keeps its resourceVersion and makes
no event; one that removes the last finalizer of an object being deleted deletes it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import orjson

from . import apply, crd
from .admission import admit_create, admit_stored
from .auth import reviews
from .auth.attributes import Attributes
from .auth.gate import Access
from .auth.writes import check_change, check_creation, creation
from .bodies import decode
from .deletion import may_go
from .errors import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    other_name,
    other_namespace,
    stale,
)
from .registry import DEFINITIONS, Registry, Served
from .requests import Request, Response
from .resource import Object
from .store import Record
from .views import nameless

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_BASE = len(_SUFFIX_LETTERS)
_PLACES = [_BASE**place for place in range(5)]

Warnings = tuple[tuple[str, str], ...]


class Write(NamedTuple):
    """What is written to which kind, and how.

    Ownership of fields is recorded when `manager` names someone or when it was recorded before; None means that the
    caller has done it. `warnings` are headers that the answer has.
    """

    registry: Registry
    served: Served
    request: Request
    dry: bool
    warnings: Warnings = ()
    subresource: str = ""
    manager: str | None = ""


def create(registry: Registry, served: Served, namespace: str, request: Request) -> Response:
    """POST to a collection."""
    resource = served.resource
    dry = request.dry_run("CreateOptions") if request.query else False
    obj, warnings = decode(request, resource)
    match_namespace(obj, namespace)
    if resource.asks:
        resource.default(obj)
        causes = list(resource.validate(obj, None))
        if causes:
            # A real server names no kind here.
            raise invalid("", served.name[0], "", causes)
        answer = reviews.answer(resource.kind, obj, request.user, Access.of(registry))
        return Response(201, orjson.dumps(answer), headers=warnings)
    manager = request.parameters.get("fieldManager", "")
    return create_object(Write(registry, served, request, dry, warnings, manager=manager), obj)


def create_object(write: Write, obj: Object, guard: Attributes | None = None) -> Response:
    """Judge and store a new object. `guard` is what the user must be allowed, too, where the request was no create."""
    registry, served, request, dry, warnings, _, manager = write
    resource, store = served.resource, registry.store
    if resource.shape is not None:
        obj = resource.shape.to_stored(obj)
    resource.default(obj)
    metadata = obj["metadata"]
    admit_create(registry, served, obj)
    check_creation(registry, served, obj, request, guard)
    version = metadata.pop("resourceVersion", "")
    metadata["uid"] = store.uid()
    metadata["creationTimestamp"] = registry.now()
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = free_name(registry, served, metadata)
    resource.prepare_create(obj)
    causes = list(resource.validate(obj, None))
    name = metadata.get("name", "")
    if causes:
        raise invalid(resource.kind, served.name[0], name, causes)
    if guard is not None:
        Access.of(registry).require(request.user, guard)
    admit_stored(registry, served, obj)
    if manager and "managedFields" not in metadata:
        apply.track(None, obj, manager=manager, resource=resource, now=registry.now(), subresource="")
    if version not in ("", "0") and not dry:
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    if served.table.get(metadata.get("namespace", ""), name) is not None:
        raise already_exists(resource.plural, served.name[0], name)
    if dry:
        return Response(201, served.view.object(nameless(obj)), headers=warnings)
    record = store.insert(served.name, obj)
    return Response(201, served.view.made(obj, record), headers=warnings)


def free_name(registry: Registry, served: Served, metadata: Object) -> str:
    """generateName and five letters, as a real server makes them; like it, gives up after some collisions."""
    base = str(metadata["generateName"])[:58]
    for attempt in range(8):
        # Any source of UIDs will do, also one that counts: the digest spreads it.
        digest = blake2b(f"{registry.store.uid()} {attempt} {registry.store.rv}".encode(), digest_size=8)
        number = int.from_bytes(digest.digest(), "big")
        name = base + "".join([_SUFFIX_LETTERS[number // place % _BASE] for place in _PLACES])
        if served.table.get(metadata.get("namespace", ""), name) is None:
            return name
    raise already_exists(served.resource.plural, served.name[0], name)


def match_name(metadata: Object, name: str) -> None:
    given = metadata.get("name") or ""
    if not given:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise other_name(given, name)


def match_namespace(obj: Object, namespace: str) -> None:
    metadata = obj["metadata"]
    own = metadata.get("namespace") or ""
    if own != namespace:
        if own and namespace:
            raise other_namespace()
        if namespace:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)


def update(
    registry: Registry, served: Served, namespace: str, name: str, *, subresource: str, request: Request
) -> Response:
    """PUT of an object or of its status."""
    resource = served.resource
    dry = request.dry_run("UpdateOptions")
    obj, warnings = decode(request, resource)
    metadata = obj["metadata"]
    match_name(metadata, name)
    match_namespace(obj, namespace)
    old = served.table.get(namespace, name)
    manager = request.parameters.get("fieldManager", "")
    write = Write(registry, served, request, dry, warnings, subresource, manager)
    if old is None:
        if resource.create_on_update and not subresource and not metadata.get("resourceVersion"):
            return create_object(write, obj, creation(request))
        raise not_found(resource.plural, served.name[0], name)
    if metadata.get("uid") and metadata["uid"] != old.uid:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old.uid}"
        raise conflict(resource.plural, served.name[0], name, why)
    if not metadata.get("resourceVersion") and resource.conditional_update:
        why = "Invalid value: 0: must be specified for an update"
        cause = Cause("FieldValueInvalid", "metadata.resourceVersion", why)
        # The plural stands where other refusals have the kind: so does a real server's.
        raise invalid(resource.plural, served.name[0], name, [cause])
    return change(write, old, obj)


def change(write: Write, old: Record, new: Object, *, before: Object | None = None) -> Response:
    """Default, judge and store the next version of `old`, which is in the form that the request's kind has.

    `before` is `old` decoded, if the caller has done that; `new` may share with it what stands in its spec and status.
    """
    registry, served, request, dry, warnings, subresource, manager = write
    resource = served.resource
    if resource.shape is not None:
        new = resource.shape.to_stored(new)
    resource.default(new)
    denied = check_change(registry, served, old, new, request, subresource=subresource)
    if before is None:
        before = served.stored.decode(old.data)
    metadata, was = new["metadata"], before["metadata"]
    if metadata.get("resourceVersion") not in (None, "", was["resourceVersion"]):
        raise stale(resource.plural, served.name[0], old.name)
    metadata["resourceVersion"] = was["resourceVersion"]
    if "managedFields" in was:
        # An explicitly empty list resets ownership; leaving the field out does not.
        if "managedFields" not in metadata:
            metadata["managedFields"] = was["managedFields"]
        elif not metadata["managedFields"]:
            del metadata["managedFields"]
    resource.prepare_update(new, before, subresource)
    causes = [*denied, *resource.validate_below.get(subresource, resource.validate)(new, before)]
    if causes:
        raise invalid(resource.kind, served.name[0], old.name, causes)
    admit_stored(registry, served, new)
    if new == before or ("managedFields" in metadata and apply.only_times_differ(new, before)):
        return Response(200, served.view.object(old.data), headers=warnings)
    if manager is not None and (manager or metadata.get("managedFields")):
        now, by = registry.now(), manager or "unknown"
        apply.track(before, new, manager=by, resource=resource, now=now, subresource=subresource)
    finished = may_go(served, new)
    if dry or finished:
        if finished and not dry:
            registry.store.remove(served.name, old)
        return Response(200, served.view.object(nameless(new)), headers=warnings)
    record = registry.store.replace(served.name, old, new)
    return Response(200, served.view.object(record.data), headers=warnings)


def establish(registry: Registry, name: str) -> None:
    """Write a new definition's status: names accepted, kind established."""
    served = registry.stored(DEFINITIONS)
    old = served.table.records.get(name)
    if old is not None:
        definition = served.stored.decode(old.data)
        definition["status"] = crd.established(definition, registry.now())
        registry.store.replace(DEFINITIONS, old, definition)
