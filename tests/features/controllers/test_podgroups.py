"""The podgroup controller: the pods that get a group, the group's fields, and its reports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.objects.batch import GROUP_NAME, VOLCANO_GROUP_NAME, pod_group_path
from agent_scheduler.process.controller_flags import PODGROUP
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.support import objects
from tests.support.batched import OWNERS, reference
from tests.support.batched import owner as owner_of
from tests.support.controllers import BatchWorld, batch_world, dies, install_all
from tests.support.embedded import PODS, EmbeddedCluster, until


async def add_owner(cluster: EmbeddedCluster, kind: str, **annotations: str) -> Any:
    path, body = owner_of(kind, annotations={k.replace("__", "/"): v for k, v in annotations.items()})
    return await cluster.add(path, body)


async def add_pod(
    cluster: EmbeddedCluster,
    name: str,
    owner: dict[str, Any] | None = None,
    *,
    scheduler: str = "volcano",
    cpu: str = "1",
    namespace: str = "default",
    native_group: str = "",
    more_owners: tuple[dict[str, Any], ...] = (),
    **annotations: str,
) -> Any:
    spec = {"schedulingGroup": {"podGroupName": native_group}} if native_group else {}
    owners = None if owner is None else [owner, *more_owners]
    about = {"owners": owners, "annotations": annotations, "scheduler": scheduler}
    body = objects.pod(name, cpu=cpu, memory="512Mi", **about, **spec)
    return await cluster.add(f"/api/v1/namespaces/{namespace}/pods", body)


async def group_of(it: BatchWorld, name: str, namespace: str = "default") -> str:
    """Return the group that the pod names, once it names one."""

    async def named() -> str:
        pod = await it.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return str((pod["metadata"].get("annotations") or {}).get(GROUP_NAME, ""))

    return str(await until(named))


# ---- pods with a group


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if each == "ReplicaSet" else pytest.mark.wide) for each in OWNERS]
)
async def test_the_pods_of_a_workload_get_one_group_together(kind: str) -> None:
    async with batch_world() as it:
        it.start(PODGROUP)
        annotations = {"scheduling.volcano.sh__group-min-member": "3", "volcano.sh__sla-waiting-time": "1h"}
        owner = await add_owner(it, kind, **annotations, other="x")
        uid = owner["metadata"]["uid"]
        for name in ("a", "b"):
            await add_pod(it, name, reference(kind, uid))
        assert {await group_of(it, name) for name in ("a", "b")} == {f"podgroup-{uid}"}
        ((name, group),) = (await it.groups()).items()
        assert name == f"podgroup-{uid}"
        assert group["spec"]["minMember"] == 3
        assert group["spec"]["minResources"]["cpu"] == "3"
        assert group["metadata"]["annotations"] == {"volcano.sh/sla-waiting-time": "1h"}
        assert [each["uid"] for each in group["metadata"]["ownerReferences"]] == [uid]


async def test_pods_of_other_schedulers_with_a_group_or_at_their_end_get_none() -> None:
    async with batch_world() as it:
        await add_pod(it, "other", scheduler="default-scheduler")
        await add_pod(it, "named", **{GROUP_NAME: "mine"})
        await add_pod(it, "named-otherwise", **{VOLCANO_GROUP_NAME: "mine"})
        await add_pod(it, "of-kubernetes-own", native_group="own")
        await add_pod(it, "ended")
        await it.patch(f"{PODS}/ended/status", {"status": {"phase": "Succeeded"}})
        it.start(PODGROUP, schedulers=("volcano", "second"))
        await add_pod(it, "p", scheduler="second")
        await group_of(it, "p")
        assert len(await it.groups()) == 1


async def test_a_pod_whose_workload_is_gone_or_cannot_be_read_for_now_gets_its_group_all_the_same() -> None:
    refusals = [ApiError(503, "ServiceUnavailable", "later")]

    def disturb(request: Request) -> Disturbance | None:
        reads = request.method == "GET" and request.path.endswith("/replicasets/own")
        return Disturbance(error=refusals.pop()) if reads and refusals else None

    async with batch_world(disturb=disturb) as it:
        it.start(PODGROUP)
        await add_pod(it, "p", reference("ReplicaSet", "gone"))
        assert await group_of(it, "p") == "podgroup-gone"
        assert refusals == []


# ---- changes in between


async def test_a_workload_that_is_scaled_to_nothing_loses_its_group_and_gets_another() -> None:
    async with batch_world() as it:
        it.start(PODGROUP)
        uid = (await add_owner(it, "StatefulSet"))["metadata"]["uid"]
        path = "/apis/apps/v1/namespaces/default/statefulsets/own"
        await add_pod(it, "a", reference("StatefulSet", uid))
        await group_of(it, "a")
        await it.patch(path, {"spec": {"replicas": 0}})

        async def are(number: int) -> bool:
            return len(await it.groups()) == number

        await until(lambda: are(0))
        # Its pod waits, and still exists.
        await it.patch(path, {"spec": {"replicas": 1}})
        await until(lambda: are(1))
        assert list(await it.groups()) == [await group_of(it, "a")]


async def test_a_group_follows_its_workload_with_the_next_pod() -> None:
    async with batch_world() as it:
        it.start(PODGROUP)
        uid = (await add_owner(it, "StatefulSet"))["metadata"]["uid"]
        await add_pod(it, "a", reference("StatefulSet", uid))
        name = await group_of(it, "a")
        path = "/apis/apps/v1/namespaces/default/statefulsets/own"
        minimum = {"scheduling.volcano.sh/group-min-member": "2"}
        await it.patch(path, {"metadata": {"annotations": minimum}})
        await it.patch(pod_group_path("default", name), {"status": {"phase": "Running"}})
        await asyncio.sleep(0.3)
        assert (await it.groups())[name]["spec"]["minMember"] == 1
        await add_pod(it, "b", reference("StatefulSet", uid), cpu="3")
        await group_of(it, "b")
        group = (await it.groups())[name]
        assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (2, "6")
        # The scheduler's fields stay.
        assert group["status"] == {"phase": "Running"}


@pytest.mark.parametrize("sent", [pytest.param(False, marks=pytest.mark.wide), True])
async def test_wherever_a_process_dies_the_next_one_ends_what_it_began(sent: bool) -> None:
    """Each process but the last dies at its first write, or at one more."""
    async with batch_world() as it:
        uid = (await add_owner(it, "ReplicaSet"))["metadata"]["uid"]
        for number in range(6):
            owner = reference("ReplicaSet", uid) if number % 2 else None
            await add_pod(it, f"p{number}", owner)
        at = 0
        while await dies(it, at % 3, PODGROUP, sent=sent):
            at += 1
        it.start(PODGROUP)
        names = {await group_of(it, f"p{number}") for number in range(6)}
        assert names == set(await it.groups())
        assert len(names) == 4
        assert at > 2


async def test_a_pod_that_took_the_name_of_another_does_not_get_the_others_group() -> None:
    """The first pod is replaced between the creation of its group and the patch that names it."""
    held = asyncio.Event()

    def disturb(request: Request) -> Disturbance | None:
        if request.method != "PATCH" or held.is_set():
            return None
        held.set()
        return Disturbance(delay=0.5)

    async with batch_world(disturb=disturb) as it:
        first = await add_pod(it, "p")
        it.start(PODGROUP)
        await asyncio.wait_for(held.wait(), 20)
        await it.end_pod("p")
        second = await add_pod(it, "p")
        name = f"podgroup-{second['metadata']['uid']}"
        assert await group_of(it, "p") == name
        # The patch of the first pod has been answered by now.
        await asyncio.sleep(0.8)
        assert await group_of(it, "p") == name
        assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_the_controller_waits_for_the_kind_and_begins_when_it_is_there() -> None:
    async with batch_world(kinds=False) as it:
        it.start(PODGROUP)
        await add_pod(it, "p")
        await asyncio.sleep(0.3)
        await install_all(it)

        async def named() -> bool:
            found = await it.get(f"{PODS}/p")
            return GROUP_NAME in (found["metadata"].get("annotations") or {})

        await until(named, seconds=60)
        assert list(await it.groups()) == [await group_of(it, "p")]
