"""Volumes as claims look for them: those that name a claim, and those that any claim may have.

Kept in step with the table of volumes, so that a claim costs a look at what it could have, however many there are.
Invariant: each volume of the table stands under the claim that it names, or, unless it is being deleted, is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
from sortedcontainers import SortedDict

from agent_scheduler.objects.quantity import value

from .builtin.eviction import matches
from .resource import Object
from .store import Event, Record, Table


class _Free(NamedTuple):
    record: Record
    mode: str | None
    access_modes: frozenset[str]


class FreeVolumes:
    """Of one table. Has to be told of each event before it is asked."""

    def __init__(self, table: Table) -> None:
        #: Claim -> volumes that name it, with the UID that they name.
        self._for: dict[str, dict[str, str]] = {}
        #: Class -> size and name -> volume.
        self._free: dict[str, SortedDict[tuple[int, str], _Free]] = {}
        #: Volume -> where it stands: the claim, or class, size and name.
        self._place: dict[str, str | tuple[str, tuple[int, str]]] = {}
        for record in table.scan(""):
            self._add(record)

    def changed(self, event: Event) -> None:
        self._remove(event.record.key)
        if event.type != "DELETED":
            self._add(event.record)

    def naming(self, claim_key: str) -> Mapping[str, str]:
        """Volume -> UID of the claims of this key that it is for; an empty one is for any."""
        return self._for.get(claim_key, {})

    def fitting(self, spec: Object, requested: int) -> Iterator[Record]:
        """Free volumes that a claim with this spec could have, smallest first."""
        of_class = self._free.get(spec.get("storageClassName") or "")
        if of_class is None:
            return
        wanted, selector = frozenset(spec["accessModes"]), spec.get("selector")
        for size in of_class.irange(minimum=(requested, "")):
            volume = of_class[size]
            if (
                volume.mode == spec.get("volumeMode")
                and wanted <= volume.access_modes
                and (selector is None or matches(selector, volume.record.labels))
            ):
                yield volume.record

    def _add(self, record: Record) -> None:
        spec: dict[str, Any] = orjson.loads(record.data)["spec"]
        ref = spec.get("claimRef")
        if ref is not None:
            claim = f"{ref.get('namespace')}/{ref.get('name')}"
            self._for.setdefault(claim, {})[record.key] = ref.get("uid") or ""
            self._place[record.key] = claim
        elif not record.deleting:
            class_name = spec.get("storageClassName") or ""
            size = (value(spec["capacity"]["storage"]), record.name)
            volume = _Free(record, spec.get("volumeMode"), frozenset(spec["accessModes"]))
            self._free.setdefault(class_name, SortedDict())[size] = volume
            self._place[record.key] = (class_name, size)

    def _remove(self, key: str) -> None:
        place = self._place.pop(key, None)
        if isinstance(place, str):
            naming = self._for[place]
            del naming[key]
            if not naming:
                del self._for[place]
        elif place is not None:
            class_name, size = place
            of_class = self._free[class_name]
            del of_class[size]
            if not of_class:
                del self._free[class_name]
