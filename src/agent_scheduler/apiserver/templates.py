"""Pods that differ only by name: what the rules decide for one holds for all of them.

Agents' pods come in bursts of the same pod under many names. Decoding, defaulting, admission and validation are
pure functions of what was sent, of the time (to the second) and of the priority classes; of the name, only its
syntax and its being free matter. So the outcome for the first pods of a burst is kept as encoded bytes with
three holes (version, name, UID), and the rest of the burst fills the holes.

Guarantee: a pod made from a template is what the full rules would have stored. Anything out of the ordinary (a
query, a warning, a generated name, a name that occurs elsewhere in the pod) goes the long way.
"""

from __future__ import annotations

from sys import intern
from typing import Any

import orjson

from .builtin.names import subdomain
from .registry import Registry, Served
from .requests import Request
from .resource import Object
from .store import HEAD, Record

#: Templates kept for the present second; a workload with more kinds of pods than this gains nothing from them.
_LIMIT = 256
_NAME, _UID = "\ue000name", "\ue000uid"


class Template:
    """One stored pod with holes: `parts` are the bytes before the name, between name and UID, and after it."""

    __slots__ = ("fields", "labels", "owners", "parts")

    def __init__(self, record: Record, parts: tuple[bytes, bytes, bytes]) -> None:
        self.parts = parts
        self.labels = record.labels
        self.fields = record.fields[1:]
        self.owners = record.owners

    def fill(self, rv: int, namespace: str, name: str, *, uid: str) -> Record:
        """The pod of this name as version `rv`."""
        name = intern(name)
        before, between, after = self.parts
        return Record(
            f"{namespace}/{name}",
            namespace,
            name,
            uid,
            rv,
            b"%b%d%b%b%b%b%b" % (HEAD, rv, before, name.encode(), between, uid.encode(), after),
            self.labels,
            (name, *self.fields),
            self.owners,
            False,
        )


class PodTemplates:
    """The templates of one registry's pods. Valid for one second and one state of the priority classes."""

    def __init__(self, registry: Registry, pods: Served) -> None:
        self._registry = registry
        self._pods = pods
        self._usable = pods.table.field_names[0] == "metadata.name"
        self._until = ("", -1)
        #: What was sent, without the name -> its template; None after the first sight.
        self._known: dict[tuple[str, bytes], Template | None] = {}

    def key(self, request: Request, namespace: str) -> tuple[tuple[str, bytes], str] | None:
        """What a create is known by, and its pod's name; None if it must go the long way."""
        if request.query or request.content_type != "application/json" or not self._usable:
            return None
        try:
            sent: Any = orjson.loads(request.body)
            name: Any = sent["metadata"].pop("name")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the long way says what is wrong
        if not isinstance(name, str) or subdomain(name):
            return None
        return (namespace, orjson.dumps(sent)), name

    def make(self, key: tuple[str, bytes], name: str) -> Record | None:
        """Store a pod by its template. None if there is none, or if a refusal is due."""
        registry = self._registry
        state = (registry.now(), registry.classes_version)
        if state != self._until:
            self._until = state
            self._known.clear()
            return None
        template = self._known.get(key)
        namespace = key[0]
        if (
            template is None
            or f"{namespace}/{name}" in self._pods.table.records
            or namespace in registry.terminating
            or registry.namespace(namespace) is None
        ):
            return None
        store = registry.store
        record = template.fill(store.rv + 1, namespace, name, uid=store.uid())
        store.put(self._pods.name, record, None)
        return record

    def learn(self, key: tuple[str, bytes], record: Record) -> None:
        """Remember the outcome of the long way: a template is made at the second sight."""
        if key not in self._known:
            if len(self._known) < _LIMIT:
                self._known[key] = None
        elif self._known[key] is None and (parts := _parts(record)) is not None:
            self._known[key] = Template(record, parts)


def _parts(record: Record) -> tuple[bytes, bytes, bytes] | None:
    """The record's bytes around name and UID, from the version on; None if they occur elsewhere too."""
    obj: Object = orjson.loads(record.data)
    metadata = obj["metadata"]
    metadata["name"], metadata["uid"] = _NAME, _UID
    data = orjson.dumps(obj)
    name, uid = _NAME.encode(), _UID.encode()
    if data.count(name) != 1 or data.count(uid) != 1:
        return None
    if record.name.encode() in data or record.uid.encode() in data:
        return None  # something was derived from them
    before, _, rest = data[len(HEAD) + len(str(record.rv)) :].partition(name)
    between, found, after = rest.partition(uid)
    return (before, between, after) if found else None
