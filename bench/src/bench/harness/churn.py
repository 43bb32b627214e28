"""Changes of a cluster while pods are measured: pods that fit nowhere, and nodes and services that come and go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

from .load import Load
from .manifests import encode, node, service
from .model import Case, Churn, Creating, Deleting, Recreating
from .requests import NOW, retry
from .site import NODES, Site
from .watching import Track


class Churning:
    """Runs a case's churn until canceled. `deleted` counts the pods of each batch whose deletion was requested."""

    def __init__(
        self, site: Site, case: Case, namespace: str, loads: Mapping[str, Load], tracks: Mapping[str, Track]
    ) -> None:
        self._site = site
        self._case = case
        self._loads = loads
        self._tracks = tracks
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._services = f"/api/v1/namespaces/{namespace}/services"
        self.deleted: dict[str, int] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self._case.churn:
                tasks.create_task(self._one(each))

    async def _one(self, churn: Churn) -> None:
        if isinstance(churn, Creating):
            await self._creating(churn)
        elif isinstance(churn, Recreating):
            await self._recreating(churn)
        else:
            await self._deleting(churn)

    async def _creating(self, churn: Creating) -> None:
        load = self._loads[churn.batch.name]
        for number in range(churn.batch.count):
            await load.create(number)
            await asyncio.sleep(churn.every)

    async def _recreating(self, churn: Recreating) -> None:
        transport, batch = self._site.transport, churn.batch
        load, track = self._loads[batch.name], self._tracks[batch.name]
        # A number that no other node has.
        extra = node(self._case.nodes, 10**6 - 1, empty=True)
        name = extra["metadata"]["name"]
        for number in itertools.islice(itertools.count(), batch.count):
            await retry(transport, "POST", NODES, encode(extra), ignore=409)
            await retry(transport, "POST", self._services, encode(service("churn")), ignore=409)
            await load.create(number)
            await asyncio.sleep(churn.every)
            await retry(transport, "DELETE", f"{self._pods}/{track.name(number)}", NOW, ignore=404)
            await retry(transport, "DELETE", f"{self._services}/churn", ignore=404)
            await retry(transport, "DELETE", f"{NODES}/{name}", ignore=404)
            await asyncio.sleep(churn.every)

    async def _deleting(self, churn: Deleting) -> None:
        track = self._tracks[churn.batch]
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(track.batch.count):
            await asyncio.sleep(max(0.0, start + number / churn.rate - loop.time()))
            self.deleted[churn.batch] = self.deleted.get(churn.batch, 0) + 1
            await retry(self._site.transport, "DELETE", f"{self._pods}/{track.name(number)}", NOW, ignore=404)
