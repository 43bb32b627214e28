"""A model of a versioned store with watches: a list of changes that is replayed for every question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: A label that a pod gets from its node.
ZONE = "topology.kubernetes.io/zone"
Json = dict[str, Any]
Line = tuple[int, str, Json]


def stamped(obj: Json, rv: int) -> Json:
    """Return the object with another version."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(rv)}}


class Wanted(NamedTuple):
    """The subject of a list or watch: a namespace (all, if empty), and a selector as query and as predicate."""

    namespace: str
    query: str
    matches: Callable[[Json], bool]

    def lets_through(self, obj: Json | None) -> bool:
        if obj is None or (self.namespace and obj["metadata"]["namespace"] != self.namespace):
            return False
        return self.matches(obj)


class Change(NamedTuple):
    """One write: the object under the key before and after it, if any."""

    rv: int
    key: str
    before: Json | None
    after: Json | None


class Model:
    """All writes of one kind, and the version up to which a server may have compacted them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.compacted = 0
        self.changes: list[Change] = []
        self.now: dict[str, Json] = {}

    def write(self, rv: int, key: str, after: Json | None) -> None:
        self.changes.append(Change(rv, key, self.now.get(key), after))
        if after is None:
            del self.now[key]
        else:
            self.now[key] = after
        kept = [change.rv for change in self.changes if change.rv > self.compacted]
        if len(kept) > self.limit:
            self.compacted = kept[-self.limit - 1]

    def compact(self, rv: int) -> None:
        self.compacted = max(self.compacted, rv)

    def state(self, at: int) -> dict[str, Json]:
        """Return every object at version `at`, in key order."""
        found = {}
        for change in self.changes:
            if change.rv > at:
                break
            found[change.key] = change.after
        return {key: obj for key, obj in sorted(found.items()) if obj is not None}

    def listed(self, at: int, wanted: Wanted) -> list[Json]:
        return [obj for obj in self.state(at).values() if wanted.lets_through(obj)]

    def watched(self, start: int, wanted: Wanted) -> list[Line]:
        """Return the events of a watch from version `start`, in order: (version, type, object)."""
        lines: list[Line] = []
        for change in self.changes:
            if change.rv <= start:
                continue
            was, stays = wanted.lets_through(change.before), wanted.lets_through(change.after)
            if stays:
                assert change.after is not None
                lines.append((change.rv, "MODIFIED" if was else "ADDED", change.after))
            elif was:
                assert change.before is not None
                lines.append((change.rv, "DELETED", stamped(change.before, change.rv)))
        return lines


def _labels(obj: Json) -> Json:
    return obj["metadata"].get("labels", {})


def _node(obj: Json) -> str:
    return obj.get("spec", {}).get("nodeName", "")


#: Selectors as query strings and as predicates, for every kind. The first three are empty.
SELECTORS: list[tuple[str, Callable[[Json], bool]]] = [
    *[("", lambda obj: True)] * 3,
    ("labelSelector=app%3Da", lambda obj: _labels(obj).get("app") == "a"),
    ("labelSelector=app!%3Da", lambda obj: _labels(obj).get("app") != "a"),
    ("labelSelector=app+in+(a,b),!tier", lambda obj: "app" in _labels(obj) and "tier" not in _labels(obj)),
    ("fieldSelector=metadata.name%3Dx", lambda obj: obj["metadata"]["name"] == "x"),
]

#: Selectors for kinds with a node.
NODE_SELECTORS: list[tuple[str, Callable[[Json], bool]]] = [
    *SELECTORS,
    ("fieldSelector=spec.nodeName%3Dn1", lambda obj: _node(obj) == "n1"),
    ("fieldSelector=spec.nodeName%3D", lambda obj: not _node(obj)),
    ("fieldSelector=spec.nodeName!%3Dn1", lambda obj: _node(obj) != "n1"),
    (f"labelSelector={ZONE}", lambda obj: ZONE in _labels(obj)),
    ("fieldSelector=spec.nodeName%3Dn2&labelSelector=app", lambda obj: _node(obj) == "n2" and "app" in _labels(obj)),
]

LABELS: list[Json] = [{}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "t"}]
