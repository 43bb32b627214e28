"""Tenants whose objects no user means well by: they create, change and delete them among those of others.

The objects are those of `tests.hostile`, small enough for a world, in a namespace of their own, with ordinary pods and
groups that use them. No promise is made to them, so judges leave them out where they ask what becomes of pods; the room
that their pods take counts. All are gone when the world comes to rest. They are drawn by a generator of their own:
without them, a world is the same.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from embedded_kubernetes.requests import Request
from tests.hostile.drawing import encoded
from tests.hostile.kinds import HOSTILE_KINDS
from tests.hostile.objects import some
from tests.hostile.users import users

from .api import HOSTILE, MERGE, is_hostile
from .kinds import World

#: Share of the worlds of other scenarios that have one hostile object.
_SHARE: Final = 0.1
#: Sizes relative to the largest that an API server accepts.
_SCALES: Final = (0.003, 0.01, 0.03, 0.06)
#: Kinds that only administrators create, and that change what is promised to others: nodes, devices, shards, guaranteed
#: shares of queues.
_ADMINISTRATORS: Final = frozenset(
    {
        *("nodes", "persistentvolumes", "resourceslices.resource.k8s.io", "deviceclasses.resource.k8s.io"),
        *("nodeshards.shard.volcano.sh", "csinodes.storage.k8s.io"),
    }
)
_CASES_OF_ADMINISTRATORS: Final = frozenset({"queue-guarantee"})
#: Seconds for which an object exists, at most, and between two rounds of their deletion.
_STAYS, _ROUND = 20.0, 1.0
_ROUNDS: Final = 40


@dataclass
class Hostility:
    """The part of a `Shape` that is about hostile tenants: how many objects they create."""

    objects: int


def drawn_hostility(seed: int) -> Hostility | None:
    """Draw the hostile objects of a world whose scenario has none; None for most worlds."""
    return Hostility(1) if random.Random(f"{seed} hostile object").random() < _SHARE else None


class HostileTenants:
    """Owner of the hostile objects of a world."""

    def __init__(self, world: World, shape: Hostility) -> None:
        self._world = world
        self._shape = shape
        self._rng = random.Random(f"{world.seed} hostile")
        self._scale = self._rng.choice(_SCALES)

    async def run(self) -> None:
        """Create, change and delete objects until faults end, and leave none."""
        left = self._world.plan.ends - self._world.loop.time()
        tasks = [
            self._one(number, self._rng.uniform(0.0, left), self._rng.uniform(0.1, _STAYS))
            for number in range(self._shape.objects)
        ]
        await asyncio.gather(*tasks)
        await self._clear_away()

    async def _one(self, number: int, at: float, stays: float) -> None:
        world, rng = self._world, self._rng
        await asyncio.sleep(at)
        tables = world.store.tables
        kinds = [
            name
            for name, kind in HOSTILE_KINDS.items()
            if name not in _ADMINISTRATORS and (kind.version.rpartition("/")[0], kind.plural) in tables
        ]
        nodes = tuple(record.name for record in tables["", "nodes"].scan("")) or ("n0",)
        made = some(rng, kinds=kinds, scale=self._scale, prefix=f"{HOSTILE}-{number}", nodes=nodes, namespace=HOSTILE)
        if made[0].case in _CASES_OF_ADMINISTRATORS:
            return
        world.trace("", f"hostile: {made[0]}")
        using = [user for each in made[:3] for user in users(each, scheduler=world.shape.schedulers[0])]
        for each in (*made, *using) if rng.random() < 0.5 else (*using, *made):
            for method, path, data in each.requests:
                self._send(method, path, data)
        world.states.reached("hostile object")
        world.plan.lasts(world.loop.time() + stays)
        await asyncio.sleep(stays / 2)
        if rng.random() < 0.5:
            # The annotations of all of our components, with new garbage.
            (other,) = some(rng, kinds=["configmaps"], case="odd-annotations", scale=self._scale, prefix="x")
            self._send(
                "PATCH", made[0].path, encoded({"metadata": {"annotations": other.body["metadata"]["annotations"]}})
            )
        await asyncio.sleep(stays / 2)
        for each in (*using, *made):
            self._delete(each.path)

    async def _clear_away(self) -> None:
        """Delete all objects of theirs, including what controllers have created for them and what a restore returns.

        Only namespaces stay: no controller finalizes them here.
        """
        world = self._world
        for _ in range(_ROUNDS):
            while (wait := world.plan.calm_at - world.loop.time()) > 0:  # noqa: ASYNC110 - it may be extended
                await asyncio.sleep(wait)
            left = [
                (kind, record.namespace, record.name)
                for kind in HOSTILE_KINDS.values()
                if kind.plural != "namespaces"
                and (table := world.store.tables.get((kind.version.rpartition("/")[0], kind.plural))) is not None
                for record in list(table.scan(""))
                if is_hostile(record)
            ]
            if not left:
                return
            for kind, namespace, name in left:
                self._delete(f"{kind.collection(namespace)}/{name}")
            await asyncio.sleep(_ROUND)
        world.safety.violated("L4", f"hostile objects cannot be deleted: {left[:3]}")

    def _delete(self, path: str) -> None:
        self._send("PATCH", path, b'{"metadata":{"finalizers":null}}')
        self._send("DELETE", path, b'{"gracePeriodSeconds":0}')

    def _send(self, method: str, path: str, data: bytes) -> None:
        content_type = MERGE if method == "PATCH" else "application/json"
        self._world.api.handle(Request(method, path, body=data, content_type=content_type))
