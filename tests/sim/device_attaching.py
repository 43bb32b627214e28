"""The part of the worlds' drivers that makes devices ready once they are allocated (binding conditions, KEP-5007).

Each allocation of a device that has to be attached is looked at once: the driver says after a while that it is
attached, and while faults last also that this failed, or nothing at all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import orjson

from embedded_kubernetes.device_driver import ATTACH_FAILED, ATTACHED
from embedded_kubernetes.store import Event

from .device_load import CLAIMS as PATH
from .device_reading import CLAIMS, allocation_of, device_of

if TYPE_CHECKING:
    from .world import World

Json = dict[str, Any]

#: Seconds that an attachment takes at most, and those after which nobody waits for one any more.
_SECONDS, TIMEOUT = 2.0, 8.0
_MERGE = "application/merge-patch+json"


def awaited(allocation: Json) -> list[Json]:
    """The results that have to be made ready."""
    return [each for each in allocation["devices"]["results"] if each.get("bindingConditions")]


def unready(claim: Json, *, only_failed: bool = False) -> list[str]:
    """Devices of the claim's allocation that are not ready, or of which the driver has said that they will not be."""
    said = {
        device_of(each): {one["type"] for one in each.get("conditions") or () if one["status"] == "True"}
        for each in claim.get("status", {}).get("devices") or ()
    }
    found = []
    for result in awaited(allocation_of(claim) or {"devices": {"results": []}}):
        true = said.get(device_of(result), set())
        failed = bool(true & set(result.get("bindingFailureConditions") or ()))
        if failed or (not only_failed and not true.issuperset(result["bindingConditions"])):
            found.append("/".join(device_of(result)))
    return found


class Attacher:
    """Subscribes to the claims of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} attaching")
        world.store.tables[CLAIMS].subscribers.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.type == "DELETED":
            return
        now = orjson.loads(event.record.data)
        # Who starts over with a store that went back looks at all that there is.
        first = event.previous is None or self._world.backups.restoring
        before = None if first or event.previous is None else allocation_of(orjson.loads(event.previous.data))
        allocation = allocation_of(now)
        if not allocation or before == allocation:
            return
        for result in awaited(allocation):
            self._begin(event.record.uid, now["metadata"]["name"], allocation, result)

    def _begin(self, uid: str, name: str, allocation: Json, result: Json) -> None:
        world = self._world
        fails = False
        if world.plan.strikes("not_attached", now=world.loop.time(), share=4.0):
            world.plan.lasts(world.loop.time() + 3 * TIMEOUT)
            fails = self._rng.random() < 0.5
            if not fails:
                return
        seconds = self._rng.choice((0.001, self._rng.uniform(0, _SECONDS)))
        world.loop.call_later(seconds, self._say, uid, name, allocation, result, fails, context=world.context)

    def _say(self, uid: str, name: str, allocation: Json, result: Json, fails: bool) -> None:
        world = self._world
        record = world.store.tables[CLAIMS].get("default", name)
        if record is None or record.uid != uid:
            return
        claim = orjson.loads(record.data)
        said = [device_of(each) for each in claim["status"].get("devices") or ()]
        # It may have been taken away and given again, in the same second.
        if allocation_of(claim) != allocation or device_of(result) in said:
            return
        condition = {
            "type": ATTACH_FAILED if fails else ATTACHED,
            "status": "True",
            "reason": "Simulated",
            "message": "",
            "lastTransitionTime": world.time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        named = {key: result[key] for key in ("driver", "pool", "device", "shareID") if key in result}
        told = [*(claim["status"].get("devices") or ()), {**named, "conditions": [condition]}]
        answer = world.call("PATCH", f"{PATH}/{name}/status", {"status": {"devices": told}}, _MERGE)
        assert answer.status == 200, answer.body
        world.states.reached("device could not be attached" if fails else "device attached late")
