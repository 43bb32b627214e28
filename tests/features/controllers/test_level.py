"""A whole installation: at rest it writes nothing, and it corrects its objects that others delete, edit or restore.

It does so whether its processes run meanwhile or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.objects.batch import GROUP_NAME, QUEUE_ALLOCATION_GATE, QUEUES
from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE, SHARDING
from embedded_kubernetes.controller_list import start
from embedded_kubernetes.controllers import run
from embedded_kubernetes.kubelet_play import RUN_SECONDS
from kube_client.testing.virtual import time_of_day
from tests.support import objects
from tests.support.batched import add_group, add_queue, definition
from tests.support.controllers import batch_world
from tests.support.embedded import MERGE, PODS
from tests.support.jobs import GROUPS
from tests.support.level import until_as, without
from tests.support.sharded import CRD, CRDS
from tests.support.tap import Tap
from tests.support.whole import Whole, stage

LEASES = "/apis/coordination.k8s.io/v1/namespaces/agent-scheduler/leases"
#: Fields that differ although the content is the same: those of identity, version and time.
SAID_ANEW = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"),
    *("lastTransitionTime", "lastProbeTime", "transitionID", "lastUpdateTime"),
}
SMALL = objects.in_queue("small")


def workload(name: str, *, cpu: str = "1", annotations: Any = None, of_set: Any = None, **more: Any) -> Any:
    spec = {"schedulerName": "volcano", "containers": [objects.container(requests={"cpu": cpu})], **more}
    template = {"metadata": {"labels": {"app": name}, "annotations": annotations or {}}, "spec": spec}
    found = {} if of_set is None else {"replicas": of_set, "selector": {"matchLabels": {"app": name}}}
    return {"metadata": {"name": name}, "spec": {"template": template, **found}}


class Installed(Whole):
    configuration = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaseDuration: 2s, renewDeadline: 1s, retryPeriod: 100ms}
sharding: {mode: soft, leaseNamespace: agent-scheduler, fencePeriod: 1s}
batch: {}
"""

    def start_all(self) -> None:
        shards = "agent-scheduler:agent:0.0:1.0:false:1:9"
        self.start(JOB, PODGROUP, QUEUE, SHARDING, retry=5, configs=shards)
        self.start_scheduler()

    async def stop_all(self) -> None:
        await self.stop_scheduler()
        await self.end()

    async def picture(self) -> dict[str, Any]:
        places = (PODS, GROUPS, QUEUES, NODE_SHARDS)
        return {
            f"{at}/{each['metadata']['name']}": without(SAID_ANEW, each)
            for at in places
            for each in await self.items(at)
        }

    async def all_of(self, place: str, prefix: str) -> list[tuple[str, Any]]:
        """Return the objects of a place without groups whose pods have ended, which are not needed any more."""
        found = {each["metadata"]["name"]: each for each in await self.items(place)}
        return [
            (f"{place}/{name}", each)
            for name, each in found.items()
            if name.startswith(prefix) and (each.get("status") or {}).get("phase") != "Completed"
        ]

    async def users_come(self) -> None:
        """Create pods that run, that wait for nodes, others, their queue or its gate, and that have ended."""
        await add_queue(self, "team")
        await add_queue(self, "small", parent="team", capability={"cpu": "2"})
        await self.until_states(team="Open", small="Open")
        ends = {"annotations": {RUN_SECONDS: "1"}, "restartPolicy": "Never"}
        for place, body in (
            ("apps/v1/namespaces/default/deployments", workload("runs", of_set=2, annotations=SMALL)),
            ("batch/v1/namespaces/default/jobs", workload("waits", cpu="9", restartPolicy="Never")),
            ("batch/v1/namespaces/default/jobs", workload("ends", **ends)),
        ):
            await self.add(f"/apis/{place}", body)
        await self.make_job("j", stage("a", 2, 2), minimum=2)
        await add_group(self, "lacks-one", minMember=2)
        await self.add(PODS, objects.pod("member", scheduler="volcano", group="lacks-one"))
        await asyncio.sleep(10)
        gated: Any = {"gates": [QUEUE_ALLOCATION_GATE], "annotations": {QUEUE_ALLOCATION_GATE: "true", **SMALL}}
        await self.add(PODS, objects.pod("gated", scheduler="volcano", **gated))
        await self.add(PODS, objects.pod("agent", annotations=objects.in_queue("team")))
        await self.add(PODS, objects.pod("held", annotations=SMALL))


@asynccontextmanager
async def installed() -> AsyncIterator[tuple[Installed, Tap]]:
    tap = Tap()
    names = frozenset({"deployment-controller", "replicaset-controller", "job-controller"})
    async with batch_world(Installed, kubelets=True, disturb=tap) as it, asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(run(each, clock=time_of_day)) for each in start(it.api, names, kubelets=True)]
        await it.add(CRDS, definition(CRD))
        for name in ("n0", "n1"):
            await it.add_node(name, cpu="8")
        it.start_all()
        await it.until_states(root="Open", default="Open")
        await it.users_come()
        await asyncio.sleep(60)
        yield it, tap
        await it.stop_all()
        for each in others:
            each.cancel()


@pytest.mark.promise("L3")
async def test_at_rest_nothing_is_written() -> None:
    async with installed() as (_it, tap):
        before = len(tap.requests)
        await asyncio.sleep(60)
        asked = {f"{each.method} {each.path}" for each in tap.requests[before:]}
        assert [each for each in asked if not each.startswith("GET ") and "/leases" not in each] == []


Harm = Callable[[Installed, dict[str, Any]], Awaitable[Any]]
OWN = "podgroup-"


def edited(place: str, body: object, *, prefix: str = "", below: str = "") -> Harm:
    async def harm(it: Installed, _first: Any) -> None:
        for path, _ in await it.all_of(place, prefix):
            await it.patch(f"{path}{below}", body)

    return harm


def deleted(place: str, prefix: str = "", *, restored: bool = False) -> Harm:
    """Return a change that deletes objects; with `restored` they are created again without their owners."""

    async def harm(it: Installed, first: dict[str, Any]) -> None:
        for path, _ in await it.all_of(place, prefix):
            await it.delete(path)
            if restored:
                await it.call("POST", place, first[path])
                said = {"status": first[path].get("status")}
                await it.call("PATCH", f"{path}/status", said, content_type=MERGE)

    return harm


def named(group: str | None, prefix: str) -> Harm:
    return edited(PODS, {"metadata": {"annotations": {GROUP_NAME: group}}}, prefix=prefix)


def status(place: str, said: object, *, prefix: str = "") -> Harm:
    return edited(place, {"status": said}, prefix=prefix, below="" if place == GROUPS else "/status")


WRONG = {"cpu": "77", "example.com/gpu": "3"}
USED = {"nodesInUse": ["n0"], "nodesToAdd": ["x"], "nodesToRemove": None}
HARMS: dict[str, Harm] = {
    "groups deleted": deleted(GROUPS, OWN),
    "groups edited": edited(GROUPS, {"spec": {"minMember": 7, "minResources": WRONG}}, prefix=OWN),
    "statuses of groups edited": status(GROUPS, {"phase": "Unknown", "running": 5, "conditions": None}),
    "statuses of groups emptied": status(GROUPS, None),
    "groups restored": deleted(GROUPS, OWN, restored=True),
    "groups disowned": edited(GROUPS, {"metadata": {"ownerReferences": None}}, prefix=OWN),
    "pods that name no group": named(None, "runs"),
    "pods that name a group of before a restore": named(f"{OWN}11111111-1111-4111-8111-111111111111", "waits"),
    "conditions deleted": status(PODS, {"conditions": None}, prefix="held"),
    "queues deleted": deleted(QUEUES, "default"),
    "root deleted": deleted(QUEUES, "root"),
    "queues restored": deleted(QUEUES, "default", restored=True),
    "queues edited": status(QUEUES, {"running": 9, "pending": 9, "allocated": WRONG}),
    "statuses of queues emptied": status(QUEUES, None),
    "shards deleted": deleted(NODE_SHARDS),
    "shards edited": edited(NODE_SHARDS, {"spec": {"nodesDesired": ["n1", "nobody"]}}),
    "statuses of shards edited": status(NODE_SHARDS, USED),
    "shards restored": deleted(NODE_SHARDS, restored=True),
    "leases deleted": deleted(LEASES),
}


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_others_do_to_what_is_written_comes_to_nothing(stopped: bool) -> None:
    async with installed() as (it, _tap):
        wanted, wrong = await it.picture(), []
        for name, harm in HARMS.items():
            if stopped:
                await it.stop_all()
            await harm(it, wanted)
            if stopped:
                it.start_all()
            wanted, left = await until_as(wanted, it.picture, 100)
            wrong += [f"{name}: {each}" for each in left]
        assert wrong == []
