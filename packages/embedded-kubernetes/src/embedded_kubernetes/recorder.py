"""Records events of in-process controllers, as client-go's recorder does.

A repeated event increments `count` and sets `lastTimestamp` of the existing one, so that retries create one object.
Events are best effort: none is recorded in a missing or terminating namespace.
"""

from __future__ import annotations

from . import nesting
from .registry import NAMESPACES
from .resource import Object
from .store import Record, Store
from .times import clock_text

EVENTS = ("", "events")
#: The number of recent events whose count can be incremented.
_REMEMBERED = 4096


class Recorder:
    """Records events as one component. The store must have tables of events and namespaces."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        #: The key of the event by (UID, reason, message), oldest first.
        self._told: dict[tuple[str, str, str], str] = {}

    def warn(self, pod: Record, reason: str, message: str) -> None:
        """Record a Warning about a pod."""
        self.tell(pod, ("v1", "Pod"), reason, message, warning=True)

    def tell(self, about: Record, kind: tuple[str, str], reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about an object. `kind` is its apiVersion and kind."""
        subject = (about.uid, reason, message)
        known = self._store.tables[EVENTS].records.get(self._told.get(subject, ""))
        now = clock_text(self._store.clock())
        if known is not None:
            event: Object = nesting.loads(known.data)
            event["count"] = event.get("count", 1) + 1
            event["lastTimestamp"] = now
            self._store.replace(EVENTS, known, event)
            return
        namespace = self._store.tables[NAMESPACES].records.get(about.namespace)
        if namespace is None or namespace.deleting:
            return
        uid = self._store.uid()
        event = {
            "metadata": {
                # client-go's form of names, with another unique suffix.
                "name": f"{about.name[:216]}.{uid}",
                "namespace": about.namespace,
                "uid": uid,
                "creationTimestamp": now,
            },
            "involvedObject": {
                "kind": kind[1],
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
                "apiVersion": kind[0],
                "resourceVersion": str(about.rv),
            },
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning" if warning else "Normal",
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        self._told[subject] = self._store.insert(EVENTS, event).key
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
