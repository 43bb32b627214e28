"""A whole installation: at rest it writes nothing, and what others delete, edit or restore of what it writes comes
to be as it was, whether its processes run meanwhile or not."""

from __future__ import annotations

import asyncio
from collections import Counter
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
from embedded_kubernetes.requests import Request
from tests.support import objects
from tests.support.batched import add_queue, definition
from tests.support.controllers import batch_world
from tests.support.embedded import MERGE, PODS
from tests.support.jobs import GROUPS
from tests.support.sharded import CRD, CRDS
from tests.support.tap import Tap
from tests.support.virtual import time_of_day
from tests.support.whole import Whole, stage

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PLACES = (PODS, GROUPS, QUEUES, NODE_SHARDS)
#: What differs though the same is said: of which object, of which version, and when.
SAID_ANEW = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"),
    *("lastTransitionTime", "lastProbeTime", "transitionID", "lastUpdateTime"),
}


def timeless(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: timeless(each) for key, each in body.items() if key not in SAID_ANEW}
    return [timeless(each) for each in body] if isinstance(body, list) else body


def writes(request: Request) -> bool:
    return request.method != "GET" and "/leases" not in request.path


class Installed(Whole):
    configuration = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaseDuration: 2s, renewDeadline: 1s, retryPeriod: 100ms}
sharding: {mode: soft, leaseNamespace: default, fencePeriod: 1s}
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
        found = {f"{at}/{each['metadata']['name']}": each for at in PLACES for each in await self.items(at)}
        return {path: timeless(each) for path, each in sorted(found.items())}

    async def all_of(self, place: str, prefix: str = "") -> list[dict[str, Any]]:
        """But for groups whose pods have ended, which nobody needs any more."""
        found = await self.items(place)
        named = [each for each in found if each["metadata"]["name"].startswith(prefix)]
        return [each for each in named if (each.get("status") or {}).get("phase") != "Completed"]

    async def users_come(self) -> None:
        """Pods that run, wait for nodes, for members, for their queue and behind its gate, and that have ended."""
        await add_queue(self, "team")
        await add_queue(self, "small", parent="team", capability={"cpu": "2"})
        await self.until_states(team="Open", small="Open")
        small = objects.in_queue("small")
        await self.add(
            f"/apis/apps/v1/{DEFAULT}/deployments", workload("runs", replicas=2, annotations=small)
        )
        await self.add(f"/apis/apps/v1/{DEFAULT}/deployments", workload("waits", cpu="9", replicas=1))
        await self.add(f"/apis/batch/v1/{DEFAULT}/jobs", workload("ends", restartPolicy="Never", life="1"))
        await self.make_job("j", stage("a", 2, 2), minimum=2)
        await asyncio.sleep(10)
        gate = {QUEUE_ALLOCATION_GATE: "true", **small}
        for name, scheduler, gates, said in (
            ("gated", "volcano", (QUEUE_ALLOCATION_GATE,), gate),
            ("agent", "agent-scheduler", (), objects.in_queue("team")),
            ("held", "agent-scheduler", (), small),
        ):
            about: Any = {"gates": gates, "annotations": said}
            await self.add(PODS, objects.pod(name, scheduler=scheduler, **about))


DEFAULT = "namespaces/default"


def workload(
    name: str, *, cpu: str = "1", life: str = "", annotations: Any = None, replicas: int = 0, **more: Any
) -> dict[str, Any]:
    labels, said = {"app": name}, {**(annotations or {}), **({RUN_SECONDS: life} if life else {})}
    template = {"metadata": {"labels": labels, "annotations": said}}
    template["spec"] = {
        "schedulerName": "volcano",
        "containers": [objects.container(requests={"cpu": cpu})],
        **more,
    }
    of_set = {"replicas": replicas, "selector": {"matchLabels": labels}} if replicas else {}
    return {"metadata": {"name": name}, "spec": {"template": template, **of_set}}


@asynccontextmanager
async def installed() -> AsyncIterator[tuple[Installed, Tap]]:
    tap = Tap()
    names = frozenset({"deployment-controller", "replicaset-controller", "job-controller"})
    async with batch_world(Installed, kubelets=True, disturb=tap) as it, asyncio.TaskGroup() as tasks:
        others = [
            tasks.create_task(run(each, clock=time_of_day)) for each in start(it.api, names, kubelets=True)
        ]
        await it.add(CRDS, definition(CRD))
        for number in range(2):
            await it.add_node(f"n{number}", cpu="8")
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
        assert Counter(f"{each.method} {each.path}" for each in tap.requests[before:] if writes(each)) == {}


Harm = Callable[[Installed, dict[str, Any]], Awaitable[Any]]
OWN = "podgroup-"


def everywhere(place: str, body: object, *, prefix: str = "", below: str = "") -> Harm:
    """A merge patch of each object."""

    async def harm(it: Installed, _first: Any) -> None:
        for each in await it.all_of(place, prefix):
            await it.patch(f"{place}/{each['metadata']['name']}{below}", body)

    return harm


def gone(place: str, prefix: str = "") -> Harm:
    async def harm(it: Installed, _first: Any) -> None:
        for each in await it.all_of(place, prefix):
            await it.delete(f"{place}/{each['metadata']['name']}")

    return harm


def as_of_old(place: str, prefix: str = "") -> Harm:
    """Each is deleted and made again as it was first, by who knows nothing of owners."""

    async def harm(it: Installed, first: dict[str, Any]) -> None:
        await gone(place, prefix)(it, first)
        for path, body in first.items():
            if path.startswith(f"{place}/{prefix}"):
                await it.call("POST", place, body)  # 409: one that was left, or is there again by now
                await it.call("PATCH", f"{path}/status", {"status": body.get("status")}, content_type=MERGE)

    return harm


WRONG = {"cpu": "77", "example.com/gpu": "3"}
HARMS: dict[str, Harm] = {
    "groups deleted": gone(GROUPS, OWN),
    "groups edited": everywhere(GROUPS, {"spec": {"minMember": 7, "minResources": WRONG}}, prefix=OWN),
    "statuses of groups edited": everywhere(
        GROUPS, {"status": {"phase": "Unknown", "running": 5, "conditions": None}}
    ),
    "statuses of groups emptied": everywhere(GROUPS, {"status": None}),
    "groups restored": as_of_old(GROUPS, OWN),
    "groups disowned": everywhere(GROUPS, {"metadata": {"ownerReferences": None}}, prefix=OWN),
    "pods that name no group": everywhere(
        PODS, {"metadata": {"annotations": {GROUP_NAME: None}}}, prefix="runs"
    ),
    "pods that name a group of before a restore": everywhere(
        PODS,
        {"metadata": {"annotations": {GROUP_NAME: f"{OWN}11111111-1111-4111-8111-111111111111"}}},
        prefix="waits",
    ),
    "conditions deleted": everywhere(PODS, {"status": {"conditions": None}}, prefix="held", below="/status"),
    "queues deleted": gone(QUEUES, "default"),
    "root deleted": gone(QUEUES, "root"),
    "queues restored": as_of_old(QUEUES, "default"),
    "queues edited": everywhere(
        QUEUES, {"status": {"running": 9, "pending": 9, "allocated": WRONG}}, below="/status"
    ),
    "statuses of queues emptied": everywhere(QUEUES, {"status": None}, below="/status"),
    "shards deleted": gone(NODE_SHARDS),
    "shards edited": everywhere(NODE_SHARDS, {"spec": {"nodesDesired": ["n1", "nobody"]}}),
    "statuses of shards edited": everywhere(
        NODE_SHARDS,
        {"status": {"nodesInUse": ["n0"], "nodesToAdd": ["x"], "nodesToRemove": None}},
        below="/status",
    ),
    "shards restored": as_of_old(NODE_SHARDS),
    "leases deleted": gone(LEASES),
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
            for _ in range(20):
                await asyncio.sleep(5)
                found = await it.picture()
                if found == wanted:
                    break
            else:
                wrong += [f"{name}: {each}" for each in differences(wanted, found)]
                wanted = found
        assert not wrong, "\n".join(wrong)


def differences(wanted: Any, found: Any, at: str = "") -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = sorted(wanted.keys() | found.keys())
        return [each for key in keys for each in differences(wanted.get(key), found.get(key), f"{at}/{key}")]
    return [] if wanted == found else [f"{at[-90:]}: {wanted} is {found}"]
