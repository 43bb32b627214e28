"""Pods with volumes, from the watch to the bind, with the embedded API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.cluster.storage import Storage as Watched
from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.framework.args import VolumeBindingArgs
from agent_scheduler.engine.volumes.catalogue import Catalogue
from kube_client.transport import NotSent, OutcomeUnknown, Response
from tests.support.embedded import until
from tests.support.queues import scheduling_queue
from tests.support.running import profile, scheduling
from tests.support.terms import HOSTNAME
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
        await until(lambda: world.cluster.says_text(loser, "didn't find available persistent volumes to bind"))
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


# ---- refusals of filters, and events that wake


# ---- failing writes


#: Writes of claims and volumes.
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
@pytest.mark.parametrize("goes", ["the pod", "the scheduler"])
async def test_what_is_reserved_while_a_claim_is_bound_is_given_back_when_somebody_goes(goes: str) -> None:
    async with storage(controller=False) as world, world.settling() as running:
        await world.pod_with_claim("a")
        await until(world.selected)
        if goes == "the pod":
            await world.cluster.end_pod("p")
        else:
            await running.stop(grace=0.1)
            assert running.fast_path.binder.in_flight == 0
        await until(lambda: running.fast_path.binder.in_flight == 0)


async def test_a_claim_that_is_not_bound_in_time_is_an_error_and_the_next_attempt_goes_on_from_it() -> None:
    args = {"VolumeBinding": VolumeBindingArgs(bind_timeout_seconds=1)}
    async with storage(controller=False) as world, world.settling(profiles=(profile(args=args),)) as running:
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


# ---- preemption


HIGH = "system-cluster-critical"
IN_USE = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"


def test_who_waits_for_a_claim_is_told_of_each_change_of_it_and_of_a_volume_for_it() -> None:
    known = Watched(Catalogue(), scheduling_queue({}))
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


async def test_a_pod_whose_claim_does_not_wait_is_refused_until_the_claim_is_bound() -> None:
    async with storage(controller=False) as world, scheduling(world.cluster.transport) as running:
        await world.add_class("now", waits=False)
        await world.add_claim("data", "now")
        await world.add_nodes("a")
        await world.add_pod("p", "data")
        message = await world.refused("p")
        assert message.startswith("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
        world.play()
        assert await until(world.cluster.placed) == {"p": "a"}
        assert not running.reports.counts["after flush"]


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
