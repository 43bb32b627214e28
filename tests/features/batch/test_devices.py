"""Gangs whose members ask for devices or volumes, in a whole process on a cluster with the controllers of those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.binding.groups import GroupJudge, Member
from agent_scheduler.engine.dra.gang_search import GangSearch
from agent_scheduler.process.scheduler import SchedulerProcess
from embedded_kubernetes.device_driver import EXTENDED_RESOURCE
from kube_client.transport import Response, Transport
from tests.support import objects
from tests.support.batched import add_group, install
from tests.support.device_cluster import RESOURCE, TEMPLATES, Devices, devices, nothing_assumed
from tests.support.devices import DRIVER as OF_DIVIDED
from tests.support.devices import divided, first_of
from tests.support.embedded import EmbeddedCluster, until
from tests.support.installation import CONFIGURATION, PREEMPTING, Installation, process
from tests.support.transports import Refusing, Through, failure
from tests.support.volume_cluster import NOBODY, Storage, storage, using

#: Requests of members besides devices. Members without other requests are placed by another action.
ASKS = ("1", "")


class DeviceGangs(Devices, Installation):
    def __init__(self, cluster: EmbeddedCluster, runtime: SchedulerProcess) -> None:
        Installation.__init__(self, cluster, runtime)
        self.cluster = cluster

    async def device_gang(
        self, name: str, members: int, *, template: str = "", claim: str = "", cpu: str = "1"
    ) -> None:
        await add_group(self, name, minMember=members, queue="q")
        for number in range(members):
            await self.device_member(f"{name}-{number}", name, template=template, claim=claim, cpu=cpu)

    async def device_member(
        self, name: str, group: str, *, template: str = "", claim: str = "", cpu: str = "1", **more: Any
    ) -> None:
        entry = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        requests = {"cpu": cpu} if cpu else {}
        await self.member(name, group, requests=requests, resourceClaims=[{"name": "gpu", **entry}], **more)

    async def resource_gang(self, name: str, members: int) -> None:
        """Create a gang whose members each ask for a device as an extended resource."""
        await add_group(self, name, minMember=members, queue="q")
        amounts, limits = {"cpu": "1", EXTENDED_RESOURCE: "1"}, {EXTENDED_RESOURCE: "1"}
        containers = [objects.container(requests=amounts, limits=limits)]
        for number in range(members):
            await self.member(f"{name}-{number}", name, containers=containers)

    async def said(self, pod: str) -> str:
        condition = await self.condition(pod)
        return "" if condition is None else condition["message"]

    async def has_said(self, prefix: str, text: str) -> bool:
        """Return whether any of these pods has reported this text."""
        return any([text in await self.said(name) for name in await self.pods() if name.startswith(prefix)])


@asynccontextmanager
async def device_cluster(*nodes: str, per_node: int = 2) -> AsyncIterator[Devices]:
    async with devices(*nodes, per_node=per_node) as found:
        await install(found.cluster)
        await found.add_template()
        yield found


@asynccontextmanager
async def device_gangs(
    *nodes: str, per_node: int = 2, through: Callable[[Transport], Transport] | None = None
) -> AsyncIterator[DeviceGangs]:
    """Yield gangs on a cluster; `through` makes the transport of the process from that of the cluster."""
    async with device_cluster(*nodes, per_node=per_node) as found:
        way = {} if through is None else {"transport": through(found.cluster.transport)}
        async with process(found.cluster, **way) as runtime:
            world = DeviceGangs(found.cluster, runtime)
            await world.queue("q")
            yield world


@pytest.mark.parametrize("cpu", ASKS)
async def test_a_gang_gets_a_device_for_each_member_and_is_bound_whole(cpu: str) -> None:
    async with device_gangs("a", "b") as world:
        await world.device_gang("g", 3, template="t", cpu=cpu)
        await until(lambda: world.has_placed("g", 3))
        await world.audit()
        assert len(await world.devices_in_use()) == 3
        await world.rest()
        assert nothing_assumed(world)


async def test_the_node_of_a_member_is_judged_by_all_else_once_its_devices_are_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member's claim is being allocated then, which keeps it from every node regardless of the room there."""
    asked: list[set[str]] = []
    filters = GroupJudge._filters

    def noted(judge: GroupJudge, member: Member, *more: Any) -> Any:
        found = filters(judge, member, *more)
        asked.append({each.plugin.name for each in found if not isinstance(each, str)})
        return found

    monkeypatch.setattr(GroupJudge, "_filters", noted)
    async with device_gangs("a", "b") as world:
        made = {"provisioner": "made.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        await world.add("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "made"}, **made})
        size = {"requests": {"storage": "1Gi"}}
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "made", "resources": size}
        await add_group(world, "g", minMember=2, queue="q")
        for name in ("g-0", "g-1"):
            await world.add(
                "/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": {"name": name}, "spec": claim}
            )
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
            await world.device_member(name, "g", template="t", volumes=volumes)
        await until(lambda: asked)
    assert len(asked) == 2 and all({"NodeResourcesFit", "TaintToleration"} <= names for names in asked)


@pytest.mark.parametrize("cpu", ASKS)
async def test_a_gang_with_too_few_devices_holds_none_and_says_so_until_one_appears(cpu: str) -> None:
    async with device_gangs("a", "b") as world:
        await world.device_gang("g", 5, template="t", cpu=cpu)

        await until(lambda: world.has_said("g-", "2 cannot allocate all claims"))
        await world.rest()
        assert await world.count_placed("g") == 0
        assert nothing_assumed(world)
        assert not any(
            (each.get("status") or {}).get("reservedFor") or (each.get("status") or {}).get("allocation")
            for each in (await world.claims()).values()
        )
        await world.add_node("c")
        await until(lambda: world.has_placed("g", 5))
        await world.audit()


async def test_members_share_a_claim_that_is_allocated_with_the_first_of_them() -> None:
    async with device_gangs("a", "b") as world:
        await world.add_claim("shared")
        await world.device_gang("g", 3, claim="shared")
        await until(lambda: world.has_placed("g", 3))
        await world.audit()
        assert len(set((await world.placed()).values())) == 1
        assert await world.reserved("shared") == ["g-0", "g-1", "g-2"]
        await world.rest()
        assert nothing_assumed(world)


async def test_a_member_that_counts_on_a_write_for_another_is_tried_again_when_that_fails() -> None:
    def refusing(inner: Transport) -> Transport:
        return Refusing(inner, "PATCH", "resourceclaims/shared/status", 1, 403)

    async with device_gangs("a", "b", through=refusing) as world:
        await world.add_claim("shared")
        await world.device_gang("g", 3, claim="shared")
        await until(lambda: world.has_placed("g", 3))
        await world.audit()
        await until(lambda: nothing_assumed(world))


async def test_a_gang_whose_nodes_stay_undecided_is_tried_again_without_an_event() -> None:
    async with device_gangs("a", per_node=40) as world:
        await world.add_hard_claim()
        await world.device_gang("g", 1, claim="hard")

        await until(lambda: world.has_said("g-0", "1 timed out trying to allocate devices"))
        sessions = world.sessions
        await until(lambda: world.sessions > sessions + 2)
        # Other pods are placed meanwhile.
        await world.gang("plain", 2)
        await until(lambda: world.has_placed("plain", 2))


async def test_members_get_devices_for_extended_resources_that_no_node_offers() -> None:
    async with device_gangs("a", "b") as world:
        await world.resource_gang("g", 3)
        await until(lambda: world.has_placed("g", 3))
        assert len(await world.devices_in_use()) == 3
        await world.rest()
        assert nothing_assumed(world)
        await world.resource_gang("h", 2)
        await until(lambda: world.said("h-1"))
        await world.rest()
        assert await world.count_placed("h") == 0 and nothing_assumed(world)
        await world.add_node("c")
        await until(lambda: world.has_placed("h", 2))


@pytest.mark.promise("L16")
@pytest.mark.parametrize(
    ("members", "asks"), (("mww", {}), ("mmww", {"minTaskMember": {"m": 1, "w": 2}})), ids=("any", "of roles")
)
async def test_members_fall_back_to_alternatives_only_as_far_as_the_gang_needs_it(
    members: str, asks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices are divided, and a gang of three needs one whole device and two halves.

    A search takes more than one step of the session.
    """
    run = GangSearch.run
    monkeypatch.setattr(GangSearch, "run", lambda search: run(search, 50))
    async with device_gangs("a") as world:
        selectors = [{"cel": {"expression": f"device.driver == '{OF_DIVIDED}'"}}]
        await world.add(f"{RESOURCE}/deviceclasses", {"metadata": {"name": "any"}, "spec": {"selectors": selectors}})
        for each in divided("a", 2):
            name = {"name": each["metadata"]["name"]}
            await world.add(f"{RESOURCE}/resourceslices", {"metadata": name, "spec": each["spec"]})
        spec = {"spec": {"devices": {"requests": [first_of("full", "half")]}}}
        await world.add(TEMPLATES, {"metadata": {"name": "first"}, "spec": spec})
        await add_group(world, "g", minMember=3, queue="q", **asks)
        for number, role in enumerate(members):
            labelled = {"annotations": {"volcano.sh/task-spec": role}}
            await world.device_member(f"g-{number}", "g", template="first", **labelled)
        await until(lambda: world.has_placed("g", 3))
        await world.audit()
        given = sorted(device.split("-", 1)[1] for _, device in await world.devices_in_use())
        assert given == ["full-0", "half-0", "half-1"]
        await world.rest()
        assert nothing_assumed(world)


async def test_members_wait_for_claims_that_are_made_after_them() -> None:
    async with device_gangs("a", "b") as world:
        await world.add_claim("first")
        await add_group(world, "g", minMember=2, queue="q")
        await world.device_member("g-0", "g", claim="first")
        await world.device_member("g-1", "g", claim="second")

        await until(lambda: world.has_said("g-1", '"second" not found'))
        await world.rest()
        await world.add_claim("second")
        await until(lambda: world.has_placed("g", 2))
        await world.audit()


class LateToSay(Through):
    """Refuses the first bind, and answers that the pod has no node only while the next one is under way."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.again = asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "POST" and path.endswith("/g-0/binding"):
            if self.left:
                self.left = 0
                return failure(403)
            self.again.set()
            await asyncio.sleep(0.5)
        answer = await super().request(method, path, **more)
        if method == "GET" and path.endswith("/pods/g-0"):
            await self.again.wait()
        return answer


@pytest.mark.promise("S18")
async def test_the_claim_of_the_next_attempt_is_not_taken_back_by_the_one_before() -> None:
    late: list[LateToSay] = []

    def through(inner: Transport) -> Transport:
        late.append(LateToSay(inner))
        return late[0]

    async with device_gangs("a", through=through) as world:
        await world.add_claim("c")
        await world.device_gang("g", 1, claim="c")
        await until(lambda: world.has_placed("g", 1))
        await world.rest()
        assert late[0].again.is_set()
        await world.audit()
        await until(lambda: nothing_assumed(world))


class VolumeGangs(Storage, Installation):
    def __init__(self, cluster: EmbeddedCluster, runtime: SchedulerProcess) -> None:
        Installation.__init__(self, cluster, runtime)
        self.cluster = cluster

    async def volume_gang(self, name: str, members: int) -> None:
        """Create a gang whose members each have a claim that is bound when its pod has a node."""
        await add_group(self, name, minMember=members, queue="q")
        for number in range(members):
            own = f"{name}-{number}"
            await self.add_claim(own)
            await self.member(own, name, volumes=using(own))


@asynccontextmanager
async def volume_gangs(text: str = CONFIGURATION, *, provisioned: bool = True) -> AsyncIterator[VolumeGangs]:
    """Yield gangs with volumes; with `provisioned` the claim of a pod that has a node gets a volume."""
    async with storage() as found:
        await install(found.cluster)
        await found.add_class(provisioner=NOBODY if provisioned else "example.com/disks")
        if not provisioned:
            await found.hold()
        async with process(found.cluster, text) as runtime:
            world = VolumeGangs(found.cluster, runtime)
            await world.queue("q")
            yield world


async def test_a_gang_with_too_few_volumes_holds_none_and_makes_no_session_due_by_what_is_tried_for_it() -> None:
    """Each session reserves volumes for the members that fit, and releases them."""
    async with volume_gangs() as world:
        await world.add_nodes("a")
        for number in range(2):
            await world.add_volume(f"pv-{number}", on="a")
        await world.volume_gang("g", 3)
        await until(lambda: world.condition("g-2"))
        await world.rest()
        assert await world.is_left_alone()
        # A session that has another cause does not cause one, either.
        sessions = world.sessions
        world.batch.waiting.due.set()
        await until(lambda: world.sessions > sessions)
        assert await world.is_left_alone()
        assert await world.count_placed("g") == 0 and await world.claimed() == {}
        await world.add_volume("pv-2", on="a")
        await until(lambda: world.has_placed("g", 3))
        assert len(await world.claimed()) == 3


async def test_pods_are_evicted_for_a_gang_as_soon_as_the_claim_exists_that_it_lacks_besides_capacity() -> None:
    async with volume_gangs(PREEMPTING) as world:
        await world.add_nodes("a")
        await world.add_volume("pv", on="a")
        await add_group(world, "low", minMember=1, queue="q")
        for number in range(4):
            await world.member(f"low-{number}", "low", terminationGracePeriodSeconds=0)
        await until(lambda: world.has_placed("low", 4))
        await world.add_priorities(high=9)
        await add_group(world, "high", minMember=1, queue="q", priorityClassName="high")
        await world.member("high-0", "high", priorityClassName="high", volumes=using("data"))
        await until(lambda: world.condition("high-0"))
        await world.rest()
        await world.add_claim("data")
        await until(lambda: world.has_placed("low", 3))


@pytest.mark.promise("L6")
async def test_a_process_ends_without_waiting_for_volumes_that_others_make() -> None:
    now = asyncio.get_running_loop().time
    async with volume_gangs(provisioned=False) as world:
        await world.add_nodes("a")
        await world.volume_gang("g", 2)
        binder = world.fast_path.binder
        await until(lambda: binder.in_flight == 2)
        await world.rest()
        assert binder.in_flight == 2
        began = now()
    assert now() - began < 1.0
