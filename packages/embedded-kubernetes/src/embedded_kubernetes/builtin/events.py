"""Events: stored as core v1, also served as events.k8s.io/v1.

Field pairs are those of the conversions in pkg/apis/events/v1: regarding is involvedObject, note is message,
reportingController is reportingComponent, and the deprecated fields are core v1's counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from ..resource import Object, Shape
from . import names
from .causes import check_format, immutable, invalid, required
from .kind import Logic

#: The limit of an event's message, in characters.
LONGEST_NOTE = 1024
#: Names of one field in core v1 and events.k8s.io/v1.
_PAIRS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_STORED = {new: old for old, new in _PAIRS}
_FROM_STORED = dict(_PAIRS)
#: Fields that each version always has, with the constructors of their defaults.
_ALWAYS: dict[str, Any] = {
    "involvedObject": dict,
    "source": dict,
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": str,
    "reportingInstance": str,
}
_ALWAYS_NEW: dict[str, Any] = {
    "regarding": dict,
    "eventTime": None,
    "deprecatedSource": dict,
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _renamed(event: Object, names: dict[str, str]) -> Object:
    return dict(zip(map(names.get, event, event), event.values(), strict=True))


def _fill(event: Object, always: dict[str, Any]) -> Object:
    if always.keys() <= event.keys():
        return event
    for field, make in always.items():
        if field not in event:
            event[field] = make() if make is not None else None
    return event


def to_stored(event: Object) -> Object:
    stored = _renamed(event, _TO_STORED)
    stored["apiVersion"], stored["kind"] = "v1", "Event"
    return _fill(stored, _ALWAYS)


def from_stored(event: Object) -> Object:
    shown = _renamed(event, _FROM_STORED)
    shown["apiVersion"], shown["kind"] = "events.k8s.io/v1", "Event"
    for field in ("reportingController", "reportingInstance"):
        if not shown.get(field):
            shown.pop(field, None)
    return _fill(shown, _ALWAYS_NEW)


def _default(event: Object) -> None:
    _fill(event, _ALWAYS)


def _check_common(event: Object) -> Iterator[Cause]:
    """Check the rules of both versions. Events about cluster-scoped objects are in the namespace default."""
    namespace = event["metadata"].get("namespace", "")
    about = (event.get("involvedObject") or {}).get("namespace", "")
    detail = "does not match event.namespace"
    if event.get("eventTime"):
        if not about and namespace not in ("default", "kube-system"):
            yield invalid("involvedObject.namespace", about, detail)
    elif about != namespace and (about or namespace not in ("", "default")):
        yield invalid("involvedObject.namespace", about, detail)
    if event.get("eventTime"):
        yield from _check_new_fields(event)


def _check_new_fields(event: Object) -> Iterator[Cause]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required("reportingController")
    yield from check_format("reportingController", controller, names.qualified)
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field, "")
        if not text:
            yield required(field)
        elif len(text) > 128:
            yield invalid(field, "", "can have at most 128 characters")
    if len(event.get("message", "")) > LONGEST_NOTE:
        yield invalid("message", "", f"can have at most {LONGEST_NOTE} characters")


def _check_series(event: Object) -> Iterator[Cause]:
    series = event.get("series")
    if series is not None:
        if series.get("count", 0) < 2:
            yield invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")


def _check_new(event: Object, old: Object | None) -> Iterator[Cause]:
    yield from _check_common(event)
    if old is None or event.get("series") != old.get("series"):
        yield from _check_series(event)
    if old is not None:
        yield from (
            immutable(field, event.get(field))
            for field in (
                "involvedObject",
                "reason",
                "message",
                "source",
                "firstTimestamp",
                "lastTimestamp",
                "count",
                "type",
                "eventTime",
                "action",
                "related",
                "reportingController",
                "reportingInstance",
            )
            if event.get(_TO_STORED.get(field, field)) != old.get(_TO_STORED.get(field, field))
        )
        return
    if not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.get('type', '')}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            yield invalid(field, "", "needs to be unset")


def _fields(event: Object) -> dict[str, str]:
    about = event.get("involvedObject") or {}
    controller = event.get("reportingComponent", "")
    source = (event.get("source") or {}).get("component", "") or controller
    subject = [about.get(field, "") for field in _OBJECT_FIELDS]
    others = (event.get("reason", ""), controller, controller, source, event.get("type", ""))
    return dict(zip(_FIELD_NAMES, (*subject, *subject, *others), strict=True))


_FIELD_NAMES = (
    *(f"{holder}.{field}" for holder in ("involvedObject", "regarding") for field in _OBJECT_FIELDS),
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
)


LOGIC = {
    ("", "Event"): Logic(
        default=_default, check=lambda event, old: _check_common(event), field_names=_FIELD_NAMES, fields=_fields
    ),
    ("events.k8s.io", "Event"): Logic(
        default=_default,
        check=_check_new,
        field_names=_FIELD_NAMES,
        fields=_fields,
        shape=Shape(stored=("", "events"), to_stored=to_stored, from_stored=from_stored),
    ),
}
