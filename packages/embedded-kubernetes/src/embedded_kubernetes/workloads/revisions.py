"""The history of templates in ControllerRevisions, of StatefulSets and DaemonSets (pkg/controller/history).

`kubectl rollout history` and `undo` read them. The data of a revision is a strategic merge patch that sets the
template.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from .. import nesting
from ..controllers import reference_to
from ..resource import Object
from ..store import Record
from .controller import Workloads
from .rollouts import hash_of

#: Label of pods: the revision of their template.
REVISION_LABEL = "controller-revision-hash"
REVISIONS = ("apps", "controllerrevisions")


class Revision(NamedTuple):
    record: Record
    obj: Object

    @property
    def number(self) -> int:
        return int(self.obj.get("revision", 0))

    @property
    def template(self) -> Object:
        template = dict(self.obj["data"]["spec"]["template"])
        template.pop("$patch", None)
        return template


def _revisions(controller: Workloads, record: Record) -> list[Revision]:
    """Return the revisions of an object, oldest first."""
    found = [Revision(each, nesting.loads(each.data)) for each in controller.own(record, REVISIONS)]
    return sorted(found, key=lambda each: (each.number, each.record.name))


def current(controller: Workloads, record: Record, obj: Object) -> tuple[Revision, list[Revision]] | None:
    """Return the revision of the object's template, created or renumbered if necessary, and all revisions.

    Returns None if the write was rejected or its response is pending; the object is then reconciled again.
    """
    spec = obj["spec"]
    found = _revisions(controller, record)
    same = next((each for each in found if each.template == spec["template"]), None)
    newest = found[-1].number if found else 0
    if same is not None and same.number == newest:
        return same, found
    if same is not None:
        wrote = controller.patch(record, same.record, {"revision": newest + 1}, REVISIONS)
    else:
        mark = hash_of(spec["template"], (obj.get("status") or {}).get("collisionCount") or 0)
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        metadata = {
            "name": f"{record.name}-{mark}",
            "labels": {**labels, REVISION_LABEL: mark},
            "ownerReferences": [reference_to(record, *controller.kind)],
        }
        data = {"spec": {"template": {**spec["template"], "$patch": "replace"}}}
        wrote = controller.create(record, {"metadata": metadata, "data": data, "revision": newest + 1}, REVISIONS)
    if not wrote or controller.is_open(record):
        return None
    found = _revisions(controller, record)
    return next((each for each in found if each.template == spec["template"]), found[-1]), found


def truncate(controller: Workloads, record: Record, found: list[Revision], limit: int, live: Container[str]) -> None:
    """Delete the oldest revisions beyond the limit, except those whose names are `live`."""
    unused = [each for each in found if each.record.name not in live]
    for each in unused[: max(0, len(unused) - limit)]:
        controller.delete(record, each.record, REVISIONS)
