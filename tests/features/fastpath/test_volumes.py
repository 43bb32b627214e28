"""Pods with volumes, from the watch to the bind, against the embedded API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.cluster.storage import Storage as Watched
from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.framework.args import UtilizationShapePoint, VolumeBindingArgs
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.kube.transport import NotSent, OutcomeUnknown, Response
from tests.support.embedded import PODS, until
from tests.support.running import profile, scheduling
from tests.support.terms import HOSTNAME, ZONE
from tests.support.transports import Faulty, Send, Way, lost, refused
from tests.support.volume_cluster import CLAIMS, NOBODY, VOLUMES, nothing_reserved, storage

# ---- claims that wait for their consumer


async def test_a_claim_that_waits_gets_the_static_volume_of_the_pods_node_before_the_pod_is_bound() -> None:
    async with storage() as world, world.settling():
        await world.add_class(provisioner=NOBODY)
        await world.add_volume("v-b", on="b")
        await world.add_claim("data")
        await world.add_nodes("a", "b")
        await world.add_pod("p", "data")
        assert await until(world.cluster.placed) == {"p": "b"}
        claim = await world.cluster.get(f"{CLAIMS}/data")
        assert claim["spec"]["volumeName"] == "v-b"
        volume = await world.cluster.get(f"{VOLUMES}/v-b")
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_a_claim_that_waits_is_provisioned_for_the_node_that_was_chosen() -> None:
    async with storage() as world, world.settling():
        await world.pod_with_claim("a")
        assert await until(world.cluster.placed) == {"p": "a"}
        claim = await world.cluster.get(f"{CLAIMS}/data")
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "a"
        assert claim["status"]["phase"] == "Bound"


@pytest.mark.promise("S13")
async def test_a_pod_is_not_bound_while_its_claim_is_not_and_holds_its_room_meanwhile() -> None:
    async with storage(controller=False) as world, scheduling(world.cluster.transport) as running:
        await world.add_class()
        await world.add_claim("data")
        await world.cluster.add_node("a", cpu="1", labels={HOSTNAME: "a"})
        await world.add_pod("p", "data", cpu="1")
        await until(world.selected)
        await world.cluster.add_pod("other", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"])
        assert await world.cluster.placed() == {}
        assert running.fast_path.binder.in_flight == 1
        world.play()
        await until(lambda: world.cluster.is_bound("p"))
        await until(lambda: nothing_reserved(running))
        await until(lambda: running.fast_path.binder.in_flight == 0)


@pytest.mark.promise("S13")
async def test_two_pods_that_race_for_one_volume_do_not_both_get_it() -> None:
    async with storage() as world, world.settling():
        await world.add_class(provisioner=NOBODY)
        await world.add_volume("only", on="a")
        await world.add_claim("one")
        await world.add_claim("two")
        await world.add_pod("p1", "one")
        await world.add_pod("p2", "two")
        await world.add_nodes("a")
        (winner,) = (await until(world.cluster.placed)).keys()
        loser = {"p1": "p2", "p2": "p1"}[winner]
        await until(
            lambda: world.cluster.says_text(loser, "didn't find available persistent volumes to bind")
        )
        assert await world.claimed() == {"only": {"p1": "one", "p2": "two"}[winner]}
        await world.add_volume("another", on="a")
        await until(lambda: world.cluster.is_bound(loser))


async def test_pods_that_share_a_claim_that_waits_have_it_bound_once_and_all_run_where_it_is() -> None:
    async with storage() as world, world.settling() as running:
        await world.add_class()
        await world.add_nodes("a", "b", "c")
        await world.add_claim("data", accessModes=["ReadWriteMany"])
        for index in range(6):
            await world.add_pod(f"p{index}", "data")
        await until(lambda: world.cluster.all_placed(6))
        claim = await world.cluster.get(f"{CLAIMS}/data")
        selected = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
        assert set((await world.cluster.placed()).values()) == {selected}
        assert running.reports.problems == [] and not running.reports.failures


async def test_many_pods_get_a_volume_each() -> None:
    async with storage() as world, scheduling(world.cluster.transport) as running:
        await world.add_class(provisioner=NOBODY)
        await world.add_nodes("a", "b", "c")
        for number in range(12):
            await world.add_volume(f"v{number}", on="abc"[number % 3])
            await world.add_claim(f"c{number}")
        for number in range(12):
            await world.add_pod(f"p{number}", f"c{number}")
        await until(lambda: world.cluster.all_placed(12))
        assert len(await world.claimed()) == 12
        await until(lambda: nothing_reserved(running))


# ---- what the filters refuse, and what wakes


async def test_a_pod_whose_claim_does_not_wait_is_refused_until_the_claim_is_bound() -> None:
    async with storage(controller=False) as world, scheduling(world.cluster.transport) as running:
        await world.add_class("now", waits=False)
        await world.add_claim("data", "now")
        await world.add_nodes("a")
        await world.add_pod("p", "data")
        message = await world.refused("p")
        assert message.startswith(
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        )
        world.play()
        assert await until(world.cluster.placed) == {"p": "a"}
        assert not running.reports.counts["after flush"]


async def test_a_pod_whose_claim_is_missing_is_woken_when_it_is_made() -> None:
    async with storage() as world, scheduling(world.cluster.transport):
        await world.add_class()
        await world.add_nodes("a")
        await world.add_pod("p", "data")
        assert 'persistentvolumeclaim "data" not found' in await world.refused("p")
        await world.add_claim("data")
        assert await until(world.cluster.placed) == {"p": "a"}


async def test_a_claim_of_one_pod_is_free_for_the_next_when_the_pod_is_gone() -> None:
    async with storage() as world, scheduling(world.cluster.transport):
        await world.add_class()
        await world.add_nodes("a", "b")
        await world.add_claim("data", accessModes=["ReadWriteOncePod"])
        await world.add_pod("first", "data")
        await until(lambda: world.cluster.is_bound("first"))
        await world.add_pod("second", "data")
        assert "ReadWriteOncePod access mode" in await world.refused("second")
        await world.cluster.end_pod("first")
        await until(lambda: world.cluster.is_bound("second"))


async def test_a_volume_that_is_labelled_with_a_zone_keeps_its_pod_there() -> None:
    async with storage() as world, scheduling(world.cluster.transport) as running:
        await world.add_volume("west", class_name="", labels={ZONE: "west"})
        await world.add_claim("data", "")
        await world.cluster.add_node("e", labels={ZONE: "east"})
        await world.add_pod("p", "data")
        await until(lambda: world.cluster.says_text("p", "node(s) had no available volume zone"))
        await world.cluster.add_node("w", labels={ZONE: "west"})
        assert await until(world.cluster.placed) == {"p": "w"}
        assert not running.reports.failures


async def test_a_node_takes_no_more_volumes_than_its_driver_can_attach() -> None:
    async with storage() as world, scheduling(world.cluster.transport):
        await world.add_csi_node("a", 1)
        await world.add_class()
        for name in ("one", "two"):
            await world.add_claim(name)
        await world.add_nodes("a")
        await world.add_pod("p1", "one")
        await until(lambda: world.cluster.is_bound("p1"))
        await world.add_pod("p2", "two")
        assert "node(s) exceed max volume count" in await world.refused("p2")
        await world.add_nodes("b")
        await until(lambda: world.cluster.is_bound("p2"))
        assert (await world.cluster.placed())["p2"] == "b"


# ---- writes that go wrong


#: What is written to claims and volumes.
WRITES = "PATCH", "/persistentvolume"


async def lost_before(_: Send) -> Response:
    raise OutcomeUnknown("no answer")


async def not_sent(_: Send) -> Response:
    raise NotSent("no connection")


async def failed_after(send: Send) -> Response:
    await send()
    answer: Response = await refused(500, "InternalError")(send)
    return answer


REFUSALS = {409: "Conflict", 404: "NotFound", 422: "Invalid", 403: "Forbidden"}


@pytest.mark.promise("S13", "L7")
@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("provisioner", ["made.example.com", NOBODY])
async def test_a_write_that_is_refused_leaves_nothing_reserved_and_the_next_attempt_succeeds(
    status: int, provisioner: str
) -> None:
    async with storage() as world:
        faulty = Faulty(world.cluster.transport)
        faulty.ways[WRITES] = [refused(status, REFUSALS[status])]
        async with world.settling(faulty) as running:
            forgotten: list[bool] = []
            fast_path = running.fast_path
            error = fast_path._workers[0]._failures.error

            def failed(*args: Any, **more: Any) -> None:
                forgotten.append(nothing_reserved(running))
                error(*args, **more)

            fast_path._workers[0]._failures.error = failed  # type: ignore[method-assign]
            await world.add_volume("v", on="a", class_name="late" if provisioner == NOBODY else "other")
            await world.pod_with_claim("a", provisioner=provisioner)
            assert await until(world.cluster.placed) == {"p": "a"}
            assert forgotten == [True]
            assert running.reports.attempts["error"] == 1
            (problem,) = running.reports.problems
            assert problem.startswith('running PreBind plugin "VolumeBinding": ')
            assert "told so" in problem


@pytest.mark.parametrize(("way", "patches"), [(lost, 1), (failed_after, 1), (lost_before, 2), (not_sent, 2)])
@pytest.mark.parametrize("provisioner", ["made.example.com", NOBODY])
async def test_a_write_without_an_answer_is_looked_for_and_else_sent_again(
    way: Way, patches: int, provisioner: str
) -> None:
    async with storage() as world:
        faulty = Faulty(world.cluster.transport)
        faulty.ways[WRITES] = [way]
        async with world.settling(faulty) as running:
            await world.add_volume("v", on="a", class_name="late" if provisioner == NOBODY else "other")
            await world.pod_with_claim("a", provisioner=provisioner)
            assert await until(world.cluster.placed) == {"p": "a"}
            sent = [each for each in faulty.sent if each.startswith("PATCH") and WRITES[1] in each]
            assert len(sent) == patches
            assert not running.reports.problems


@pytest.mark.promise("L7")
async def test_a_pod_that_is_deleted_while_its_claim_is_bound_leaves_nothing_reserved() -> None:
    async with storage(controller=False) as world, world.settling() as running:
        await world.pod_with_claim("a")
        await until(world.selected)
        await world.cluster.end_pod("p")
        await until(lambda: running.fast_path.binder.in_flight == 0)


async def test_a_claim_that_is_not_bound_in_time_is_an_error_and_the_next_attempt_goes_on_from_it() -> None:
    args = {"VolumeBinding": VolumeBindingArgs(bind_timeout_seconds=1)}
    async with (
        storage(controller=False) as world,
        world.settling(profiles=(profile(args=args),)) as running,
    ):
        await world.pod_with_claim("a", "b")
        chosen = await until(world.selected)
        await until(lambda: running.reports.attempts["error"])
        assert running.reports.problems[0] == (
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        )
        world.play()
        assert await until(world.cluster.placed) == {"p": chosen}


async def test_a_provisioner_that_gives_up_frees_the_claim_for_another_node() -> None:
    async with storage(controller=False) as world, scheduling(world.cluster.transport) as running:
        await world.pod_with_claim("a")
        await until(world.selected)
        patch = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
        await world.cluster.merge(f"{CLAIMS}/data", patch)
        await until(lambda: running.reports.attempts["error"])
        assert 'provisioning failed for PVC "data"' in running.reports.problems[0]
        world.play()
        assert await until(world.cluster.placed) == {"p": "a"}


@pytest.mark.promise("L7")
async def test_a_scheduler_that_stops_gives_back_what_was_reserved() -> None:
    async with storage(controller=False) as world, world.settling() as running:
        await world.pod_with_claim("a")
        await until(world.selected)
        await running.stop(grace=0.1)
        assert running.fast_path.binder.in_flight == 0
        assert not running.fast_path.ledger.assumed


async def test_what_was_reserved_for_a_pod_whose_judging_fails_is_given_back_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with storage() as world, scheduling(world.cluster.transport) as running:
        failures = running.fast_path._workers[0]._failures
        judged, error, left = running.reports.judged, failures.error, []

        def broken(*_args: Any, **_more: Any) -> None:
            monkeypatch.setattr(running.reports, "judged", judged)
            raise RuntimeError("broken")

        def failed(*args: Any, **more: Any) -> None:
            left.append(nothing_reserved(running))
            error(*args, **more)

        monkeypatch.setattr(running.reports, "judged", broken)
        monkeypatch.setattr(failures, "error", failed)
        await world.add_class(provisioner=NOBODY)
        await world.add_volume("v", on="a")
        await world.add_claim("data")
        await world.add_nodes("a")
        await world.add_pod("p", "data")
        assert await until(world.cluster.placed) == {"p": "a"}
        assert (left, running.reports.problems) == ([True], ["RuntimeError: broken"])


async def test_with_a_shape_a_pod_goes_where_its_claim_leaves_least_room_or_most() -> None:
    for shape, node in ((((0, 0), (100, 10)), "small"), (((0, 10), (100, 0)), "large")):
        points = tuple(UtilizationShapePoint(utilization=at, score=score) for at, score in shape)
        args = {"VolumeBinding": VolumeBindingArgs(shape=points)}
        profiles = (profile(args=args),)
        async with storage() as world, scheduling(world.cluster.transport, profiles=profiles) as running:
            await world.add_class(provisioner=NOBODY)
            await world.add_nodes("small", "large")
            await world.add_volume("v-small", on="small", capacity={"storage": "2Gi"})
            await world.add_volume("v-large", on="large", capacity={"storage": "9Gi"})
            await until(lambda: len(list(running.fast_path.cluster.catalogue.free.of("late"))) == 2)
            await world.add_claim("data")
            await world.add_pod("p", "data")
            assert await until(world.cluster.placed) == {"p": node}


# ---- preemption


HIGH = "system-cluster-critical"
IN_USE = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"


async def test_a_claim_that_one_pod_may_have_is_taken_from_a_lesser_pod_and_from_no_other() -> None:
    async with storage() as world:
        await world.add_class("now", waits=False)
        await world.add_claim("data", "now", accessModes=["ReadWriteOncePod"])
        await world.add_nodes("a", "b")
        async with scheduling(world.cluster.transport, initial_backoff=0.05) as running:
            await world.add_pod("low", "data")
            node = (await until(world.cluster.placed))["low"]
            await world.add_pod("equal", "data")
            assert await world.refused("equal") == (
                f"0/2 nodes are available: 2 node(s) unavailable due to {IN_USE}. "
                "no new claims to deallocate, "
                "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
            )
            await world.add_pod("high", "data", priorityClassName=HIGH)
            assert await until(world.cluster.leaving) == {"low"}
            high = await world.cluster.seen(
                f"{PODS}/high", lambda pod: pod["status"].get("nominatedNodeName")
            )
            assert high["status"]["nominatedNodeName"] == node
            await world.cluster.end_pod("low")
            assert await until(world.cluster.placed) == {"high": node}
            await until(lambda: nothing_reserved(running))
            assert running.reports.counts["victims"] == 1 and not running.reports.failures


async def test_a_node_with_all_volumes_that_it_can_have_is_cleared_of_as_many_pods_as_it_takes() -> None:
    async with storage() as world:
        await world.add_class("now", waits=False)
        await world.add_csi_node("a", 2)
        await world.add_nodes("a")
        for name in ("one", "two", "three"):
            await world.add_claim(name, "now")
        async with scheduling(world.cluster.transport, initial_backoff=0.05) as running:
            for name in ("one", "two"):
                await world.add_pod(name, name)
            await until(lambda: len(running.fast_path.ledger.placements) == 2)
            await world.add_pod("three", "three", priorityClassName=HIGH)
            [victim] = await until(world.cluster.leaving)
            assert await world.refused("three") == (
                "0/1 nodes are available: 1 node(s) exceed max volume count."
            )
            await world.cluster.end_pod(victim)
            [left] = {"one", "two"} - {victim}
            await until(lambda: world.cluster.only_placed(left, "three"))
            assert running.reports.counts["victims"] == 1 and not running.reports.failures


def test_who_waits_for_a_claim_is_told_of_each_change_of_it_and_of_a_volume_for_it() -> None:
    known = Watched(Catalogue(), SchedulingQueue(clock=lambda: 0.0, hint_maps={}))
    kinds = {kind.name: kind for kind in known.kinds()}
    metadata = {"name": "data", "namespace": "default", "uid": "c", "resourceVersion": "1"}
    claim = {"metadata": metadata, "spec": {"storageClassName": "late"}}
    bound = {"metadata": metadata | {"resourceVersion": "2"}, "spec": claim["spec"] | {"volumeName": "v"}}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": "c"}
    volume = {"metadata": {"name": "v", "uid": "v", "resourceVersion": "3"}, "spec": {"claimRef": reference}}

    def is_told(kind: Resource, body: Any) -> bool:
        with known.changes.of((("default", "data"),)) as changed:
            kinds[kind.value].set(kinds[kind.value].read(json.dumps(body).encode()))
            return changed.is_set()

    assert is_told(Resource.PERSISTENT_VOLUME_CLAIM, claim)
    assert is_told(Resource.PERSISTENT_VOLUME_CLAIM, bound)
    assert is_told(Resource.PERSISTENT_VOLUME, volume)
    other = volume | {"metadata": {"name": "w", "uid": "w", "resourceVersion": "4"}, "spec": {}}
    assert not is_told(Resource.PERSISTENT_VOLUME, other)
