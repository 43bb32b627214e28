"""Create and update, for every kind and the status subresource. `patching` uses the same commit.

The steps have kube-apiserver's order: decode and prune, default, admission, the kind's `prepare_*`, `validate`,
commit. A write that changes nothing keeps its resourceVersion and causes no event. A write that removes the last
finalizer of an object that is being deleted deletes it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from . import apply, crd, nesting
from .admission import limits, quotas
from .admission.configured import Below, Review, check_current, review_of
from .admission.plugins import admit_create, admit_stored, admit_update
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
from .requests import Answer, Request, Response
from .resource import Object
from .store import Record
from .views import nameless

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_BASE = len(_SUFFIX_LETTERS)
_PLACES = [_BASE**place for place in range(5)]

Warnings = tuple[tuple[str, str], ...]


class Write(NamedTuple):
    """A write to one kind.

    Ownership of fields is recorded if `manager` is not empty or ownership was recorded before; None means that the
    caller has done it. `warnings` are headers of the response.
    """

    registry: Registry
    served: Served
    request: Request
    dry: bool
    warnings: Warnings = ()
    subresource: str = ""
    manager: str | None = ""


def create(registry: Registry, served: Served, namespace: str, request: Request) -> Answer:
    """Handle the POST to a collection."""
    resource = served.resource
    dry = request.dry_run("CreateOptions") if request.query else False
    obj, warnings = decode(request, resource)
    match_namespace(obj, namespace)
    manager = request.parameters.get("fieldManager", "")
    write = Write(registry, served, request, dry, warnings, manager=manager)
    return _ask(write, obj) if resource.asks else create_object(write, obj)


def _ask(write: Write, obj: Object) -> Answer:
    """Answer a review object."""
    write.served.resource.default(obj)
    review = _review(write, "CREATE", obj)
    if review is None:
        return _told(write, _checked_question(write, obj))
    return review.run(_ask_reviewed(write, review))


async def _ask_reviewed(write: Write, review: Review) -> Response:
    obj = _checked_question(write, await review.mutate())
    await review.validate(obj)
    return _told(write, obj)


def _checked_question(write: Write, obj: Object) -> Object:
    causes = list(write.served.resource.validate(obj, None))
    if causes:
        # kube-apiserver does not name the kind here.
        raise invalid("", write.served.name[0], "", causes)
    return obj


def _told(write: Write, question: Object) -> Response:
    answer = reviews.answer(write.served.resource.kind, question, write.request.user, Access.of(write.registry))
    return Response(201, nesting.dumps(answer), headers=write.warnings)


def _review(write: Write, operation: str, obj: Object, old: Object | None = None) -> Review | None:
    """Return the review of this write, if any webhook or policy matches."""
    if not write.registry.is_reviewed:
        return None
    metadata = obj["metadata"]
    return review_of(
        write.registry,
        write.served,
        write.request,
        operation=operation,
        obj=obj,
        old=old,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        options=f"{operation.title()}Options",
        below=Below(subresource=write.subresource),
    )


def create_object(write: Write, obj: Object, guard: Attributes | None = None) -> Answer:
    """Admit, validate and store a new object. `guard` is the create permission that a request other than POST needs."""
    resource = write.served.resource
    if resource.shape is not None:
        obj = resource.shape.to_stored(obj)
    resource.default(obj)
    admit_create(write.registry, write.served, obj, obj["metadata"].get("namespace", ""))
    review = _review(write, "CREATE", obj)
    if review is None:
        _complete(write, obj, guard)
        return _insert(write, obj)
    return review.run(_create_reviewed(write, review, guard))


async def _create_reviewed(write: Write, review: Review, guard: Attributes | None) -> Response:
    namespace = review.admission.namespace if write.served.resource.namespaced else ""
    obj = await review.mutate(lambda changed: admit_create(write.registry, write.served, changed, namespace))
    match_namespace(obj, namespace)
    _complete(write, obj, guard)
    await review.validate(obj)
    return _insert(write, obj)


def _complete(write: Write, obj: Object, guard: Attributes | None) -> None:
    """Set the server's fields of a new object, and validate it."""
    registry, served, request = write.registry, write.served, write.request
    resource, store = served.resource, registry.store
    check_creation(registry, served, obj, request, guard)
    metadata = obj["metadata"]
    metadata["uid"] = store.uid()
    metadata["creationTimestamp"] = registry.now()
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = free_name(registry, served, metadata)
    resource.prepare_create(obj)
    causes = list(resource.validate(obj, None))
    if causes:
        raise invalid(resource.kind, served.name[0], metadata.get("name", ""), causes)
    if guard is not None:
        Access.of(registry).require(request.user, guard)
    admit_stored(registry, served, obj)
    if metadata.get("namespace", "") in registry.limits:
        limits.check(registry, served, obj)


def _insert(write: Write, obj: Object) -> Response:
    registry, served, _, dry, warnings, _, manager = write
    resource, metadata = served.resource, obj["metadata"]
    version = metadata.pop("resourceVersion", "")
    name = metadata.get("name", "")
    if manager and "managedFields" not in metadata:
        apply.track(None, obj, manager=manager, resource=resource, now=registry.now(), subresource="")
    if version not in ("", "0") and not dry:
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    if served.table.get(metadata.get("namespace", ""), name) is not None:
        raise already_exists(resource.plural, served.name[0], name)
    if metadata.get("namespace", "") in registry.quotas:
        quotas.charge(registry, served, obj, dry=dry)
    if dry:
        return Response(201, served.view.object(nameless(obj)), headers=warnings)
    record = registry.store.insert(served.name, obj)
    return Response(201, served.view.made(obj, record), headers=warnings)


def free_name(registry: Registry, served: Served, metadata: Object) -> str:
    """Return generateName with five random letters. As in kube-apiserver, raises 409 after some collisions."""
    base = str(metadata["generateName"])[:58]
    for attempt in range(8):
        # The digest makes the letters differ even if UIDs are only counted.
        digest = blake2b(f"{registry.store.uid()} {attempt} {registry.store.rv}".encode(), digest_size=8)
        number = int.from_bytes(digest.digest(), "big")
        name = base + "".join([_SUFFIX_LETTERS[number // place % _BASE] for place in _PLACES])
        if served.table.get(metadata.get("namespace", ""), name) is None:
            return name
    raise already_exists(served.resource.plural, served.name[0], name)


def match_name(metadata: Object, name: str) -> None:
    given = metadata.get("name") or ""
    if not given:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
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
) -> Answer:
    """Handle the PUT of an object or its status."""
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
        # As in kube-apiserver, this error has the plural instead of the kind.
        raise invalid(resource.plural, served.name[0], name, [cause])
    return change(write, old, obj)


class _Change(NamedTuple):
    """The next version of an object with the stored one; `before` is the decoded `old`."""

    old: Record
    new: Object
    before: Object


def change(write: Write, old: Record, new: Object, *, before: Object | None = None) -> Answer:
    """Default, validate and store the next version of `old`, which is in the request's version.

    `before` is the decoded `old`, if the caller has it; `new` may share parts of its spec and status.
    """
    served = write.served
    if served.resource.shape is not None:
        new = served.resource.shape.to_stored(new)
    served.resource.default(new)
    if not write.registry.is_reviewed:
        return _replace(write, _judged(write, old, new, before))
    if before is None:
        before = served.stored.decode(old.data)
    admit_update(served, new, before, write.subresource)
    review = _review(write, "UPDATE", new, before)
    if review is None:
        return _replace(write, _judged(write, old, new, before))
    return review.run(_change_reviewed(write, review, old, before))


def changed(write: Write, old: Record, new: Object) -> Response:
    """Validate and store the next version of `old`, which is in the stored version, complete and reviewed."""
    return _replace(write, _judged(write, old, new, None))


async def _change_reviewed(write: Write, review: Review, old: Record, before: Object) -> Response:
    new = await review.mutate()
    check_current(write.served, old)
    match_namespace(new, old.namespace)
    judged = _judged(write, old, new, before)
    await review.validate(judged.new)
    check_current(write.served, old)
    return _replace(write, judged)


def _judged(write: Write, old: Record, new: Object, before: Object | None) -> _Change:
    registry, served, request, _, _, subresource, _ = write
    resource = served.resource
    denied = check_change(registry, served, old, new, request, subresource=subresource)
    if before is None:
        before = served.stored.decode(old.data)
    metadata, was = new["metadata"], before["metadata"]
    if metadata.get("resourceVersion") not in (None, "", was["resourceVersion"]):
        raise stale(resource.plural, served.name[0], old.name)
    metadata["resourceVersion"] = was["resourceVersion"]
    if "managedFields" in was:
        # An explicitly empty list resets ownership; an absent field does not.
        if "managedFields" not in metadata:
            metadata["managedFields"] = was["managedFields"]
        elif not metadata["managedFields"]:
            del metadata["managedFields"]
    resource.prepare_update(new, before, subresource)
    causes = [*denied, *resource.validate_below.get(subresource, resource.validate)(new, before)]
    if causes:
        raise invalid(resource.kind, served.name[0], old.name, causes)
    admit_stored(registry, served, new)
    return _Change(old, new, before)


def _replace(write: Write, judged: _Change) -> Response:
    registry, served, _, dry, warnings, subresource, manager = write
    old, new, before = judged
    metadata = new["metadata"]
    if new == before or ("managedFields" in metadata and apply.only_times_differ(new, before)):
        return Response(200, served.view.object(old.data), headers=warnings)
    if manager is not None and (manager or metadata.get("managedFields")):
        now, by = registry.now(), manager or "unknown"
        apply.track(before, new, manager=by, resource=served.resource, now=now, subresource=subresource)
    finished = may_go(served, new)
    if dry or finished:
        if finished and not dry:
            registry.store.remove(served.name, old)
        return Response(200, served.view.object(nameless(new)), headers=warnings)
    record = registry.store.replace(served.name, old, new)
    return Response(200, served.view.object(record.data), headers=warnings)


def establish(registry: Registry, name: str) -> None:
    """Write the status of a new definition: names accepted, kind established."""
    served = registry.stored(DEFINITIONS)
    old = served.table.records.get(name)
    if old is not None:
        definition = served.stored.decode(old.data)
        definition["status"] = crd.established(definition, registry.now())
        registry.store.replace(DEFINITIONS, old, definition)
