"""Deletion: grace periods, finalizers, preconditions, propagation and collections.

Follows `rest.BeforeDelete` of apimachinery and the generic registry store. An object of a kind with grace is first
marked (deletionTimestamp, deletionGracePeriodSeconds, generation) and is removed at once only if the grace period is
0. An object with finalizers stays until they are removed. A pending deletion can be shortened but not extended.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .admission.configured import Overtaken, Review, check_current, review_of
from .bodies import delete_options
from .builtin.pods import effective_grace
from .errors import conflict, forbidden, not_found
from .registry import DEFINITIONS, NAMESPACES, Registry, Served
from .requests import Answer, Request, Response, check_delete_options, success
from .resource import Object
from .selectors import compile_selector
from .store import Record
from .times import clock_text, parse
from .views import nameless

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
#: The finalizer of a definition until the objects of its kind are deleted.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
#: Namespaces that the NamespaceLifecycle admission plugin protects.
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


def delete(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Answer:
    """Handle the DELETE of one object."""
    options = delete_options(request)
    resource = served.resource
    old = served.table.get(namespace, name)
    if served.name == NAMESPACES and name in _IMMORTAL:
        raise forbidden(resource.plural, served.name[0], name, "this namespace may not be deleted")
    if old is None:
        raise not_found(resource.plural, served.name[0], name)
    if registry.is_reviewed:
        review = _review(registry, served, old, options, request, name=name)
        if review is not None:
            return review.run(_delete_reviewed(registry, served, old, options, review))
    return _deleted(served, old, options, delete_record(registry, served, old, options))


async def _delete_reviewed(
    registry: Registry, served: Served, old: Record, options: Object, review: Review
) -> Response:
    return _deleted(served, old, options, await _delete_shown(registry, served, old, options, review))


def _deleted(served: Served, old: Record, options: Object, outcome: tuple[bytes, bool]) -> Response:
    data, gone = outcome
    if gone and not served.resource.returns_deleted:
        details: Object = {"name": old.name}
        if served.name[0]:
            details["group"] = served.name[0]
        details["kind"] = served.resource.plural
        details["uid"] = old.uid
        return success(200, details)
    # With the deprecated option, 202 means that dependents are still to be deleted.
    status = 202 if not gone and options.get("orphanDependents") is False else 200
    return Response(status, served.view.object(data))


def _review(
    registry: Registry, served: Served, old: Record, options: Object, request: Request, *, name: str
) -> Review | None:
    """Return the review of this delete. `name` is the one in the request."""
    return review_of(
        registry,
        served,
        request,
        operation="DELETE",
        obj=None,
        old=served.stored.decode(old.data),
        namespace=old.namespace,
        name=name,
        delete_options=options,
    )


async def _delete_shown(
    registry: Registry, served: Served, old: Record, options: Object, review: Review
) -> tuple[bytes, bool]:
    """Delete an object with admission. An object that is marked and then removed at once is admitted twice."""
    check_preconditions(served, old, options)
    await review.admit()
    check_current(served, old)
    marked = mark_deleted(registry, served, old, options)
    if marked.gone is not None or marked.record is old:
        return finish_deletion(registry, served, marked)
    review.admission.old = served.stored.decode(marked.record.data)
    await review.admit()
    return finish_deletion(registry, served, marked)


def delete_collection(registry: Registry, served: Served, namespace: str, request: Request) -> Answer:
    """Handle the DELETE of a collection. The response has the objects as found."""
    options = delete_options(request)
    selector = compile_selector(
        request.parameters.get("labelSelector", ""),
        request.parameters.get("fieldSelector", ""),
        served.table.field_names,
    )
    found = [
        record
        for record in served.table.scan(namespace)
        if (selector is None or selector.matches(record))
        and not (served.name == NAMESPACES and record.name in _IMMORTAL)
    ]
    version = registry.store.rv
    answer = Response(200, served.view.list([record.data for record in found], {"resourceVersion": str(version)}))
    shown = [_review(registry, served, old, options, request, name="") for old in found]
    first = next(filter(None, shown), None)
    if first is not None:
        return first.run(_delete_all_shown(registry, served, list(zip(found, shown, strict=True)), options, answer))
    for record in found:
        if served.table.records.get(record.key) is record:
            delete_record(registry, served, record, dict(options))
    return answer


async def _delete_all_shown(
    registry: Registry, served: Served, found: list[tuple[Record, Review | None]], options: Object, answer: Response
) -> Response:
    """Delete the objects one after another; the first rejection ends it. Objects changed meanwhile are skipped."""
    for old, review in found:
        if served.table.records.get(old.key) is not old:
            continue
        if review is None:
            delete_record(registry, served, old, dict(options))
            continue
        try:
            await _delete_shown(registry, served, old, dict(options), review)
        except Overtaken:
            continue
    return answer


class Marked(NamedTuple):
    """An object that is being deleted: its stored record, and `data` for the response.

    `gone` is whether it has been removed; None if `finish_deletion` is to remove it.
    """

    record: Record
    data: bytes
    gone: bool | None


def delete_record(registry: Registry, served: Served, old: Record, options: Object) -> tuple[bytes, bool]:
    """Delete or mark one object; return its last state and whether it is gone."""
    check_preconditions(served, old, options)
    return finish_deletion(registry, served, mark_deleted(registry, served, old, options))


def finish_deletion(registry: Registry, served: Served, marked: Marked) -> tuple[bytes, bool]:
    """Remove an object that is due; return the same as `delete_record`."""
    if marked.gone is not None:
        return marked.data, marked.gone
    # Otherwise a subscriber has removed it already.
    if served.table.records.get(marked.record.key) is marked.record:
        registry.store.remove(served.name, marked.record)
    return marked.data, True


def mark_deleted(registry: Registry, served: Served, old: Record, options: Object) -> Marked:
    """Mark an object for deletion if something delays its removal."""
    dry = check_delete_options(options)
    obj = served.stored.decode(old.data)
    metadata = obj["metadata"]
    finalizers = _finalizers(metadata, options)
    changed = finalizers != metadata.get("finalizers", [])
    _set_finalizers(metadata, finalizers)

    if served.name == NAMESPACES:
        data, gone = _delete_namespace(registry, served, old, obj, dry=dry)
        return Marked(old, data, gone)

    if served.name == DEFINITIONS and not old.deleting:
        finalizers = _terminate_definition(registry, obj, finalizers)
        changed = True

    grace = served.resource.grace
    marked, waits = False, False
    if grace is not None:
        marked, waits = _mark_with_grace(registry, served, obj, options)
        if waits and not changed:
            return Marked(old, old.data, False)
    if finalizers and not marked and not waits and "deletionTimestamp" not in metadata:
        _mark(registry, metadata, 0)
        marked = True
    stays = bool(finalizers) or waits or bool(marked and metadata["deletionGracePeriodSeconds"])
    if dry:
        return Marked(old, nameless(obj), not stays)
    record = registry.store.replace(served.name, old, obj) if marked or changed else old
    return Marked(record, record.data, False if stays else None)


def check_preconditions(served: Served, old: Record, options: Object) -> None:
    """Check the preconditions in DeleteOptions. Raises 409."""
    wanted: dict[str, Any] = options.get("preconditions") or {}
    resource = served.resource
    for what, asked, found, perhaps in (
        ("UID", wanted.get("uid"), old.uid, "deleted and then recreated"),
        ("ResourceVersion", wanted.get("resourceVersion"), str(old.rv), "modified"),
    ):
        if asked is not None and asked != found:
            why = (
                f"the {what} in the precondition ({asked}) does not match the {what} in record ({found}). The object "
                f"might have been {perhaps}"
            )
            # As in kube-apiserver, this error has the kind instead of the plural.
            raise conflict(resource.kind, served.name[0], old.name, why)


def _finalizers(metadata: Object, options: Object) -> list[str]:
    """Return the finalizers after the propagation policy has added or removed some."""
    finalizers: list[str] = list(metadata.get("finalizers", ()))
    policy = options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if policy is None and orphan is None:
        return finalizers
    finalizers = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan" or orphan is True:
        finalizers.append(ORPHAN)
    elif policy == "Foreground":
        finalizers.append(FOREGROUND)
    return finalizers


def _mark(registry: Registry, metadata: Object, grace: int) -> None:
    metadata["deletionTimestamp"] = clock_text(registry.store.clock() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1


def _mark_with_grace(registry: Registry, served: Served, obj: Object, options: Object) -> tuple[bool, bool]:
    """Mark an object of a kind with grace. Returns (changed, an earlier deletion is pending)."""
    metadata = obj["metadata"]
    asked: int | None = options.get("gracePeriodSeconds")
    if "deletionTimestamp" in metadata:
        left = metadata.get("deletionGracePeriodSeconds")
        if not left:
            return False, False
        if asked is None or asked >= left:
            return False, True
        asked = 1 if asked < 0 else asked
        began = parse(metadata["deletionTimestamp"]).timestamp() - left
        metadata["deletionTimestamp"] = clock_text(began + asked)
        metadata["deletionGracePeriodSeconds"] = asked
        return True, False
    assert served.resource.grace is not None
    # The requested period applies only if there is something to stop.
    _mark(registry, metadata, served.resource.grace(obj) if asked is None else effective_grace(obj, asked))
    return True, False


def _terminate_definition(registry: Registry, definition: Object, finalizers: list[str]) -> list[str]:
    """Add the finalizer and the status condition of a definition that is deleted."""
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": registry.now(),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    status = definition.setdefault("status", {})
    status["conditions"] = [*(status.get("conditions") or ()), condition]
    if CLEANUP not in finalizers:
        finalizers = [*finalizers, CLEANUP]
    # The registry of definitions marks them itself, without grace period and generation.
    definition["metadata"]["finalizers"] = finalizers
    definition["metadata"]["deletionTimestamp"] = registry.now()
    return finalizers


def _delete_namespace(registry: Registry, served: Served, old: Record, obj: Object, *, dry: bool) -> tuple[bytes, bool]:
    """Mark a namespace; remove it on a later call if it is empty and without finalizers."""
    metadata, spec = obj["metadata"], obj.setdefault("spec", {})
    if "deletionTimestamp" in metadata:
        if spec.get("finalizers") or metadata.get("finalizers"):
            return old.data, False
        if not dry:
            registry.store.remove(served.name, old)
        return old.data, True
    metadata["deletionTimestamp"] = registry.now()
    obj.setdefault("status", {})["phase"] = "Terminating"
    if dry:
        return nameless(obj), False
    return registry.store.replace(served.name, old, obj).data, False


def may_go(served: Served, obj: Object) -> bool:
    """Return whether an object is marked for deletion and nothing delays its removal."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if served.name == NAMESPACES and obj.get("spec", {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _set_finalizers(metadata: Object, finalizers: list[str]) -> None:
    """Set the finalizers, or remove the field if there are none."""
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def release(registry: Registry, served: Served, old: Record, finalizer: str) -> Record:
    """Remove a finalizer from a stored object, and the object if nothing else delays its removal."""
    obj = served.stored.decode(old.data)
    metadata = obj["metadata"]
    _set_finalizers(metadata, [name for name in metadata.get("finalizers", ()) if name != finalizer])
    return store_released(registry, served, old, obj)


def store_released(registry: Registry, served: Served, old: Record, obj: Object) -> Record:
    """Store an object that lost a finalizer, or remove it if nothing else delays its removal."""
    if may_go(served, obj):
        return registry.store.remove(served.name, old)
    return registry.store.replace(served.name, old, obj)
