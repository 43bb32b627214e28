"""Members of a PodGroup of Kubernetes' own are bound together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import pytest

from agent_scheduler.engine.dra.gang_search import GangSearch
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.gpus import RESOURCE as GPUS
from embedded_kubernetes import controllers
from embedded_kubernetes.volume_binding import VolumeBinding
from kube_client.testing.virtual import virtual_time
from tests.decisions.kube_gangs.replay import Living, living
from tests.support import objects
from tests.support.device_cluster import CLAIMS as DEVICE_CLAIMS
from tests.support.device_cluster import RESOURCE
from tests.support.devices import divided, first_of
from tests.support.embedded import PODS
from tests.support.terms import HOSTNAME, term
from tests.support.volume_cluster import CLAIMS, NOBODY, STORAGE, VOLUMES, using

KUBE = build_profile(ProfileSpec(scheduler_name="default-scheduler", base="default-scheduler"))
OTHER = build_profile(ProfileSpec(scheduler_name="other", base="default-scheduler"))


def group(minimum: int, name: str = "g") -> dict[str, Any]:
    return objects.native_group(name, minimum)


def node(name: str, cpu: str = "2") -> dict[str, Any]:
    return objects.node(name, cpu=cpu)


def pod(name: str, group_name: str | None = "g", **more: Any) -> dict[str, Any]:
    if group_name is not None:
        more["schedulingGroup"] = {"podGroupName": group_name}
    return objects.pod(name, **{"cpu": "1", "scheduler": "default-scheduler", **more})


def pods(number: int, **more: Any) -> list[dict[str, Any]]:
    """Return members `p0`, `p1`..."""
    return [pod(f"p{each}", **more) for each in range(number)]


async def create(there: Living, *objects: dict[str, Any]) -> dict[str, Any]:
    """Return the state when no event is pending any more."""
    await there.do({"do": "create", "objects": objects})
    return await rest(there)


async def rest(there: Living) -> dict[str, Any]:
    async for _ in there.quiet():
        pass
    return there.after()


def bound(after: dict[str, Any]) -> list[str]:
    return sorted(name for name, found in after["pods"].items() if "node" in found)


@pytest.mark.promise("S27")
@virtual_time
async def test_a_gang_waits_until_all_of_its_minimum_fit_and_is_bound_at_once_then() -> None:
    async with living() as there:
        after = await create(there, node("n1"), group(3), *pods(3))
        assert bound(after) == []
        assert after["podGroups"]["g"]["message"] == "pod group is unschedulable"
        assert not there.fast_path.ledger.placements, "a gang that waits holds nothing"
        after = await create(there, node("n2"))
        assert bound(after) == ["p0", "p1", "p2"]
        assert after["podGroups"]["g"] == {"status": "True", "reason": "Scheduled"}


@virtual_time
async def test_an_explanation_says_what_the_group_of_a_pod_has_come_to() -> None:
    async with living() as there:
        explained = there.fast_path.explainer.pod
        await create(there, node("n1"), pod("p0"), pod("alone", None))
        assert "group" not in explained("default", "alone")
        assert explained("default", "p0")["group"] == {
            "name": "g",
            "needed": None,
            "members": 1,
            "scheduled": 0,
            "gated": 1,
            "message": "",
        }
        await create(there, group(3), pod("p1"), pod("p2"))
        told = explained("default", "p0")["group"]
        assert (told["needed"], told["members"], told["gated"]) == (3, 3, 0)
        assert told["message"] == "pod group is unschedulable"


@virtual_time
async def test_a_gang_that_waits_is_not_tried_again_while_nothing_changes() -> None:
    async with living() as there:
        await create(there, node("n1"), group(3), *pods(3))
        await asyncio.sleep(30)
        before = there.reports.attempts.total()
        await asyncio.sleep(200)
        assert there.reports.attempts.total() == before
        queue = there.fast_path.queue
        uids = [each["metadata"]["uid"] for each in there.listed("Pod")]
        assert sum(queue.where(uid) is Place.BACKOFF for uid in uids) <= 1, "one of them is enough to look"


@pytest.mark.promise("L16")
@virtual_time
async def test_a_gang_that_needs_fewer_members_while_those_with_a_place_back_off_is_bound_after_that() -> None:
    """No event wakes those: the one that a node refused waits for nodes, and the others for the end of a backoff."""
    async with living() as there:
        await there.do({"do": "create", "objects": [node("n1"), group(3), *pods(3)]})
        await asyncio.sleep(0.5)
        where = [there.fast_path.queue.where(each["metadata"]["uid"]) for each in there.listed("Pod")]
        assert sorted(map(str, where)) == ["backoff", "backoff", "unschedulable"]
        fewer = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g"
        there.call("PATCH", path, fewer, "application/merge-patch+json")
        await asyncio.sleep(5)
        assert len(bound(there.after())) == 2


@pytest.mark.promise("S27")
@pytest.mark.parametrize(("change", "expected"), [("deleted", True), ("gone", False), ("ended", False)])
@virtual_time
async def test_a_bound_member_counts_until_it_has_ended_or_is_gone(change: str, expected: bool) -> None:
    async with living() as there:
        assert bound(await create(there, node("n1", "4"), group(2), *pods(2))) == ["p0", "p1"]
        for each in ("p0", "p1"):
            if change == "ended":
                await there.do({"do": "patch", "kind": "Pod", "name": each, "body": {"status": {"phase": "Failed"}}})
            else:
                there.call("DELETE", f"{PODS}/{each}", {"gracePeriodSeconds": 30 if change == "deleted" else 0})
        assert ("p2" in bound(await create(there, pod("p2")))) is expected


@pytest.mark.promise("S27")
@virtual_time
async def test_two_gangs_that_each_fit_alone_never_hold_half_of_what_they_need() -> None:
    async with living(pause=0.0) as there:
        mixed = [pod(f"{name}{number}", name) for number in range(3) for name in ("a", "b")]
        after = await create(there, node("n1", "4"), group(3, "a"), group(3, "b"), *mixed)
        assert sorted({name[0] for name in bound(after)}) in (["a"], ["b"])
        assert len(bound(after)) == 3


@virtual_time
async def test_pods_of_one_group_that_ask_for_different_schedulers_are_told_so() -> None:
    async with living(profiles=(KUBE, OTHER)) as there:
        after = await create(there, node("n1"), group(2), pod("p0"), pod("p1", schedulerName="other"))
        assert bound(after) == []
        for found in after["pods"].values():
            assert found["condition"]["reason"] == "SchedulerError"
            assert "should have the same .spec.schedulerName set" in found["condition"]["message"]
        assert after["podGroups"]["g"]["reason"] == "SchedulerError"


@virtual_time
async def test_what_a_plugin_raises_fails_the_whole_group_and_nothing_of_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with living() as there:
        trial = there.fast_path._gangs._trial._trial
        place, calls = trial.try_place, []

        def raising(*arguments: Any) -> bool:
            calls.append(arguments)
            if len(calls) == 2:
                raise RuntimeError("broken")
            return place(*arguments)

        monkeypatch.setattr(trial, "try_place", raising)
        await there.do({"do": "create", "objects": [node("n1"), group(2), pod("p0"), pod("p1")]})
        await asyncio.sleep(0.3)
        after = there.after()
        assert bound(after) == [] and trial.is_empty
        messages = sorted(found["condition"]["message"] for found in after["pods"].values())
        assert messages == [
            "RuntimeError: broken",
            "failed to schedule other pod from a pod group: RuntimeError: broken",
        ]
        assert after["podGroups"]["g"]["reason"] == "SchedulerError"
        await asyncio.sleep(3)
        assert len(bound(there.after())) == 2, "they are tried again after a backoff"


@pytest.mark.promise("L8")
@virtual_time
async def test_a_gang_that_evicts_in_vain_keeps_no_room_from_others() -> None:
    async with living() as there:
        low = pod("low", None, priorityClassName="p100")
        await create(there, node("n1", "1"), low)
        after = await create(there, group(2), *pods(2, priorityClassName="p1000"))
        assert after["pods"]["low"]["deleting"], "as in kube-scheduler"
        assert not there.fast_path.queue.nominator.nominated
        await there.do({"do": "kubelet"})
        await create(there, pod("small", None, priorityClassName="p100"))
        assert bound(there.after()) == ["small"]


@virtual_time
async def test_a_gang_that_waits_for_victims_is_bound_when_they_are_gone() -> None:
    async with living() as there:
        low = [pod(f"low{number}", None, priorityClassName="p100") for number in range(2)]
        await create(there, node("n1"), *low)
        after = await create(there, group(2), *pods(2, priorityClassName="p1000"))
        assert [found.get("nominatedNode") for name, found in after["pods"].items() if name[0] == "p"] == ["n1", "n1"]
        await asyncio.sleep(20)
        refused = there.reports.attempts["unschedulable"]
        await there.do({"do": "kubelet"})
        await asyncio.sleep(0.1)
        assert bound(there.after()) == ["p0", "p1"], "the gang waits for no backoff"
        assert there.reports.attempts["unschedulable"] == refused, "a member blocks another one"


LOCAL = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}


def add_volume(there: Living, name: str) -> None:
    """Create a volume that is on one node."""
    where = {"required": {"nodeSelectorTerms": [term(HOSTNAME, "n1")]}}
    about = {"capacity": {"storage": "1Gi"}, "local": {"path": "/mnt"}, "nodeAffinity": where}
    there.call("POST", VOLUMES, {"metadata": {"name": name}, "spec": {**LOCAL, **about}})


@virtual_time
async def test_members_with_volumes_reserve_them_in_the_trial_and_are_bound_when_these_are() -> None:
    async with living() as there:
        storage = {"provisioner": NOBODY, "volumeBindingMode": "WaitForFirstConsumer"}
        there.call("POST", f"{STORAGE}/storageclasses", {"metadata": {"name": "local"}, **storage})
        add_volume(there, "pv-a")
        members = []
        for name in ("a", "b"):
            spec = {**LOCAL, "resources": {"requests": {"storage": "1Gi"}}}
            body = {"metadata": {"name": name}, "spec": spec}
            there.call("POST", CLAIMS, body)
            members.append(pod(f"p-{name}", volumes=using(name)))
        controller = VolumeBinding(there.api)
        running = asyncio.create_task(controllers.run(controller, clock=there.api.store.clock))
        # There is one volume for two: the reservations for the first member are released.
        assert bound(await create(there, node("n1", "8"), group(2), *members)) == []
        assert there.call("GET", f"{VOLUMES}/pv-a")["spec"].get("claimRef") is None
        add_volume(there, "pv-b")
        await asyncio.sleep(5)
        assert bound(there.after()) == ["p-a", "p-b"]
        running.cancel()


OURS = {"cel": {"expression": 'device.driver == "d.example.com"'}}


def post(there: Living, path: str, name: str, spec: dict[str, Any]) -> None:
    there.call("POST", path, {"metadata": {"name": name}, "spec": spec})


def divided_devices(there: Living, **numbers: int) -> None:
    """Add this number of devices to each node, which can be allocated as halves."""
    for name, number in numbers.items():
        for each in divided(name, number):
            post(there, f"{RESOURCE}/resourceslices", each["metadata"]["name"], each["spec"])


def sized(there: Living, *sizes: Sequence[str]) -> list[dict[str, Any]]:
    """Return members `p0`, `p1`..., each with a claim for a device of the first available of its sizes."""
    members = []
    post(there, f"{RESOURCE}/deviceclasses", "any", {"selectors": [OURS]})
    for number, some in enumerate(sizes):
        post(there, DEVICE_CLAIMS, f"c{number}", {"devices": {"requests": [first_of(*some)]}})
        claims = [{"name": "r", "resourceClaimName": f"c{number}"}]
        members.append(pod(f"p{number}", resourceClaims=claims))
    return members


def given(there: Living) -> list[str]:
    """Return the allocated requests of the claims."""
    claims = [each.get("status") or {} for each in there.call("GET", DEVICE_CLAIMS)["items"]]
    return sorted(each["allocation"]["devices"]["results"][0]["request"] for each in claims if each)


def in_small_steps(monkeypatch: pytest.MonkeyPatch, first: Callable[[], object] = list) -> None:
    """Make searches take many turns; `first` is called in the first of them."""
    run, calls = GangSearch.run, []

    def step(search: GangSearch) -> bool:
        calls.append(search)
        if len(calls) == 1:
            first()
        return run(search, 20)

    monkeypatch.setattr(GangSearch, "run", step)


@virtual_time
async def test_members_with_devices_get_one_each_or_none_at_all() -> None:
    async with living() as there:
        divided_devices(there, n1=1)
        after = await create(there, node("n1", "8"), group(2), *sized(there, ("full",), ("full",)))
        assert bound(after) == [] and given(there) == []
        divided_devices(there, n2=1)
        await create(there, node("n2"))
        assert bound(there.after()) == ["p0", "p1"] and given(there) == ["r/full", "r/full"]


@pytest.mark.promise("L16")
@virtual_time
async def test_members_fall_back_to_alternatives_only_as_far_as_the_gang_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two divided devices are on a node, and on another one is a device that fits one member alone."""
    in_small_steps(monkeypatch)
    async with living() as there:
        divided_devices(there, n1=2, n2=1)
        members = sized(there, *[("full", "half")] * 3, ("full",))
        after = await create(there, node("n1", "8"), node("n2", "1"), group(4), *members)
        assert bound(after) == ["p0", "p1", "p2", "p3"]
        assert given(there) == ["r/full", "r/full", "r/half", "r/half"]
        assert not there.reports.attempts["unschedulable"], "in one attempt"


@pytest.mark.parametrize(("change", "left"), (("pod goes", 2), ("pod changes", 2), ("node goes", 0)))
@virtual_time
async def test_a_member_or_a_node_may_change_while_devices_are_searched_for_a_gang(
    change: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living() as there:

        def changes() -> None:
            cluster = there.fast_path.cluster
            pod = next(each for each in cluster.pods.values() if each.name == "p1")
            if change == "pod goes":
                there.call("DELETE", f"{PODS}/p1")
                cluster.delete_pod(pod.uid)
            elif change == "pod changes":
                cluster.set_pod(copy(pod))
            else:
                there.call("DELETE", "/api/v1/nodes/n1")
                cluster.delete_node("n1")

        in_small_steps(monkeypatch, changes)
        divided_devices(there, n1=1)
        after = await create(there, node("n1", "8"), group(2), *sized(there, *[("full", "half")] * 3))
        assert len(bound(after)) == left and given(there) == ["r/half"] * left
        where = there.fast_path.queue.where
        waiting = [each for each in there.listed("Pod") if not each["spec"].get("nodeName")]
        assert all(where(each["metadata"]["uid"]) is not None for each in waiting), "none is lost"
        assert there.reports.failures == []
        assert not there.fast_path.queue.places.in_flight


@pytest.mark.promise("L16")
@virtual_time
async def test_members_get_shares_of_gpus_that_fit_in_another_order_than_their_own() -> None:
    """The last one is tried first: by best fit the small ones would get one GPU, and one of the large ones none."""
    async with living() as there:
        members = []
        for number, amount in enumerate(("300", "700", "700", "300")):
            amounts = {GPUS: amount}
            asks = objects.container(requests={"cpu": "1", **amounts}, limits=amounts)
            members.append(pod(f"p{number}", containers=[asks]))
        gpus = objects.node("n1", cpu="16", extended={GPUS: "2000"})
        assert bound(await create(there, gpus, group(4), *members)) == ["p0", "p1", "p2", "p3"]
        assert not there.reports.attempts["unschedulable"], "in one attempt"


@virtual_time
async def test_where_the_gate_is_off_each_member_is_a_pod_like_any_other() -> None:
    async with living(profiles=(KUBE.without_gangs(),)) as there:
        after = await create(there, node("n1"), group(3), *pods(3))
        assert len(bound(after)) == 2
        assert after["podGroups"]["g"] is None
