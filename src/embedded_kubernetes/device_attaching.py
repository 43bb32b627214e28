"""The part of the simulated driver that makes devices ready once they are allocated (binding conditions, KEP-5007).

Devices that have to be attached to their node name the condition `agent-scheduler.io/Attached`, and the failure
condition `agent-scheduler.io/AttachFailed`. The attachment of a device takes a given time from its allocation on; then
the driver writes one of the two to the claim's status. Nothing is remembered: what is left to do follows from the
claims, so a driver that starts later goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from .controllers import Controller, WorkQueue
from .handlers import Api
from .pod_claims import CLAIMS
from .resource import Object
from .store import Event

ATTACHED: Final = "agent-scheduler.io/Attached"
ATTACH_FAILED: Final = "agent-scheduler.io/AttachFailed"

_CONDITION = f'"{ATTACHED}"'.encode()


@dataclass(slots=True)
class Attaching:
    """How attachments go."""

    #: Seconds that one takes; None for ever.
    seconds: float | None
    #: Nodes where it fails. May change.
    failing: set[str] = field(default_factory=set)


class DeviceAttacher(Controller):
    """The devices of one driver on one server.

    Invariant: each allocated device that has to be attached has a report, or its claim waits in `_due`.
    """

    def __init__(self, api: Api, driver: str, attaching: Attaching) -> None:
        self._api = api
        self._driver = driver
        self._attaching = attaching
        self._claims = api.registry.stored(CLAIMS)
        #: Claims to look at, and when attachments are done: (time of the store's clock, claim, its UID).
        self._noted = WorkQueue[str]()
        self._due: list[tuple[float, str, str]] = []
        for record in self._claims.table.scan(""):
            self._note(record.key, record.data)
        self._claims.table.subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.type != "DELETED":
            self._note(event.record.key, event.record.data)

    def _note(self, key: str, data: bytes) -> None:
        if _CONDITION in data:
            self._noted.add(key)
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        now = self._api.store.clock()
        self._noted.work(most, self._see)
        while self._due and self._due[0][0] <= now:
            _, key, uid = heappop(self._due)
            self._report(key, uid)
        if self._noted:
            return now
        return self._due[0][0] if self._due else None

    def _see(self, key: str) -> None:
        record = self._claims.table.records.get(key)
        seconds = self._attaching.seconds
        if record is None or seconds is None or not self._unreported(self._claims.stored.decode(record.data)):
            return
        if not any((key, record.uid) == each[1:] for each in self._due):
            heappush(self._due, (self._api.store.clock() + seconds, key, record.uid))

    def _unreported(self, claim: Object) -> list[Any]:
        """Devices of the allocation that have to be attached, and of which nothing was said."""
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        said = {(each["driver"], each["pool"], each["device"]) for each in status.get("devices") or ()}
        return [
            each
            for each in results
            if each["driver"] == self._driver
            and ATTACHED in (each.get("bindingConditions") or ())
            and (each["driver"], each["pool"], each["device"]) not in said
        ]

    def _report(self, key: str, uid: str) -> None:
        record = self._claims.table.records.get(key)
        if record is None or record.uid != uid:
            return
        claim = self._claims.stored.decode(record.data)
        fresh = [self._said_of(each) for each in self._unreported(claim)]
        if not fresh:
            return
        claim["status"]["devices"] = [*(claim["status"].get("devices") or ()), *fresh]
        self._api.store.replace(CLAIMS, record, claim)

    def _said_of(self, result: Any) -> Object:
        fails = result["pool"] in self._attaching.failing
        condition = {
            "type": ATTACH_FAILED if fails else ATTACHED,
            "status": "True",
            "reason": "Simulated",
            "message": "the device could not be attached" if fails else "",
            "lastTransitionTime": self._api.registry.now(),
        }
        named = {name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result}
        return {**named, "conditions": [condition]}
