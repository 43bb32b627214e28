"""The batch scheduler with the queue and podgroup controllers, none of which is simulated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, WAITING_ROLES, queue_path
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from tests.support.batched import member, owner
from tests.support.embedded import PODS, until
from tests.support.installation import samples
from tests.support.jobs import GROUPS, JOBS
from tests.support.whole import Whole, stage, whole


async def workload(it: Whole, *, minimum: int) -> str:
    """Create a ReplicaSet whose pods are scheduled at least `minimum` together; return its UID."""
    path, body = owner("ReplicaSet", annotations={"scheduling.volcano.sh/group-min-member": str(minimum)})
    return str((await it.add(path, body))["metadata"]["uid"])


async def test_pods_of_a_workload_are_bound_when_its_minimum_fits_and_its_queue_tells_of_them() -> None:
    async with whole() as it:
        await it.add_node("n1", cpu="4")
        uid = await workload(it, minimum=2)
        await it.add(PODS, member("a", "ReplicaSet", uid))
        await until(it.groups)
        await asyncio.sleep(0.4)
        assert await it.only_placed()
        await it.add(PODS, member("b", "ReplicaSet", uid))
        await until(lambda: it.only_placed("a", "b"))

        async def told() -> bool:
            found = (await it.queue("default")).get("status") or {}
            return (found.get("running"), found.get("allocated", {}).get("cpu")) == (1, "2")

        await until(told)
        (group,) = (await it.groups()).values()
        assert (group["status"]["phase"], group["status"]["running"]) == ("Running", 2)


async def test_a_pod_of_a_workload_waits_for_others_though_its_group_is_made_later() -> None:
    """A session may see the pod before the podgroup controller.

    Without that controller the pod is finally placed alone.
    """
    async with whole(QUEUE) as it:
        await it.add_node("n1", cpu="4")
        uid = await workload(it, minimum=2)
        await it.add(PODS, member("a", "ReplicaSet", uid))
        await asyncio.sleep(3)
        assert await it.only_placed()
        controller = it.start(PODGROUP)
        await asyncio.sleep(10)
        assert await it.only_placed()
        await it.add(PODS, member("b", "ReplicaSet", uid))
        await until(lambda: it.only_placed("a", "b"))
        await it.stop(controller)
        await it.add(PODS, member("c", "ReplicaSet", uid))
        await until(lambda: it.only_placed("a", "b", "c"))
        await it.add(PODS, member("d", "ReplicaSet", uid))
        await asyncio.sleep(1)
        assert await it.only_placed("a", "b", "c", "d"), "without a podgroup controller each pod waited"


async def _gated_member(it: Whole, name: str, workload: str, uid: str) -> None:
    body = member(name, "ReplicaSet", uid)
    body["metadata"]["ownerReferences"][0]["name"] = workload
    body["metadata"]["annotations"] = {QUEUE_ALLOCATION_GATE: "true"}
    body["spec"]["schedulingGates"] = [{"name": QUEUE_ALLOCATION_GATE}]
    await it.add(PODS, body)


async def test_of_two_workloads_behind_the_gate_one_is_let_past_whole_though_groups_are_made_after_pods() -> None:
    """Half admitted, they would wait for each other. If no component creates groups, each pod is placed alone."""
    async with whole(PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="8")
        await it.patch(queue_path("default"), {"spec": {"capability": {"cpu": "2"}}})
        path, body = owner("ReplicaSet", annotations={"scheduling.volcano.sh/group-min-member": "2"})
        made = [await it.add(path, {**body, "metadata": {**body["metadata"], "name": name}}) for name in "ab"]
        uids = [str(each["metadata"]["uid"]) for each in made]
        for number in range(2):
            for name, uid in zip("ab", uids, strict=True):
                await _gated_member(it, f"{name}{number}", name, uid)
        await until(lambda: it.only_placed("a0", "a1"))
        await it.end()
        await it.patch(queue_path("default"), {"spec": {"capability": {"cpu": "3"}}})
        await _gated_member(it, "c", "c", "00000000-0000-0000-0000-00000000000c")
        await asyncio.sleep(3)
        assert not await it.is_bound("c")
        await until(lambda: it.is_bound("c"))


async def _of_groups(it: Whole) -> list[dict[str, Any]]:
    """Return the events of PodGroups."""
    items = await it.items("/api/v1/namespaces/default/events")
    return [each for each in items if each["involvedObject"]["kind"] == "PodGroup"]


@pytest.mark.promise("GATE-3")
async def test_a_job_whose_pods_have_another_gate_becomes_ready_once_that_is_removed() -> None:
    other = [{"name": "example.com/other"}]
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="3")
        task = stage("only", 2, 2)
        task["template"]["spec"]["schedulingGates"] = other
        await it.make_job("j", task, minimum=2)
        await until(lambda: it.there("j-only-0", "j-only-1"))
        await asyncio.sleep(5)
        assert await it.only_placed()
        for name in ("j-only-0", "j-only-1"):
            await it.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})
        await until(lambda: it.only_placed("j-only-0", "j-only-1"))
        for name in ("j-only-0", "j-only-1"):
            await it.starts(name)
        await until(lambda: it.runs("j", 2))


@pytest.mark.promise("S33")
async def test_a_job_whose_pods_are_not_made_says_of_its_group_that_its_queue_is_full() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="3")
        await it.patch(queue_path("default"), {"spec": {"capability": {"cpu": "1"}}})
        await it.make_job("j", stage("only", 2, 2), minimum=2)

        async def says(*expected: tuple[str, str, str]) -> bool:
            status = [each.get("status") or {} for each in (await it.groups()).values()]
            found = [each for group in status for each in group.get("conditions") or ()]
            return [(each["type"], each["status"], each["reason"]) for each in found] == [*expected]

        await until(lambda: says(("Unschedulable", "True", "QueueFull")))
        waiting = "agent_scheduler_batch_groups_waiting"
        assert [name for name, value in samples(it.runtime).items() if waiting in name and value] == [
            f'{waiting}{{reason="queue"}}'
        ]
        full = "queue default has too little capability left: 1 of cpu missing"

        async def is_told() -> bool:
            notes = await it.items("/apis/events.k8s.io/v1/namespaces/default/events")
            return any(each["reason"] == "PodGroupPending" and full in each["note"] for each in notes)

        await until(is_told)
        assert not await it.pods()
        await it.patch(queue_path("default"), {"spec": {"capability": {"cpu": "2"}}})
        await until(lambda: it.is_bound("j-only-0", "j-only-1"))
        now = "tasks in gang are ready to be scheduled"
        await until(lambda: says(("Unschedulable", "False", now), ("Scheduled", "True", now)))


@pytest.mark.promise("S35", "JOB-5")
async def test_tasks_of_a_job_run_one_after_another_as_gangs() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="3")
        tasks = [stage("data", 2, 2), stage("train", 3, 1, dependsOn={"name": ["data"]})]
        await it.make_job("j", *tasks, minimum=2)
        first = {"j-data-0", "j-data-1"}

        await until(lambda: it.is_bound(*first))

        await until(lambda: it.there("j-train-0", "j-train-1", "j-train-2"))

        await until(lambda: it.runs("j", 3))

        async def group_is_told() -> bool:
            return "Scheduled" in [each["reason"] for each in await _of_groups(it)]

        await until(group_is_told)
        # No pod waited for anything but its creation and its bind.
        assert [each["message"] for each in await _of_groups(it) if each["message"].startswith("0/")] == []
        await it.delete(f"{JOBS}/j")
        await until(it.only_placed)


@pytest.mark.promise("JOB-1", "JOB-2")
@pytest.mark.parametrize("prefers_masters", [False, True])
async def test_the_minimum_of_each_task_comes_before_more_of_the_first(prefers_masters: bool) -> None:
    """The fault of volcano#1755 and #2944 (first case): all of the first task are tried, and the Job never runs."""
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_priorities(first=1000)
        await it.add_node("n1", cpu="5")
        tasks = [stage("m", 5, 3), stage("w", 3, 2)]
        if prefers_masters:
            tasks[0]["template"]["spec"]["priorityClassName"] = "first"
        await it.make_job("j", *tasks, minimum=5)
        await until(lambda: it.only_placed("j-m-0", "j-m-1", "j-m-2", "j-w-0", "j-w-1"))
        await until(lambda: it.runs("j", 5, pending=3))
        # Pods above the minimums follow, those of the first task first if it is preferred.
        await it.add_node("n2", cpu="2")
        more = {"j-m-3", "j-m-4"} if prefers_masters else None

        async def two_more() -> bool:
            there = (await it.placed()).keys()
            return more <= there if more is not None else len(there) == 7

        await until(two_more)


@pytest.mark.promise("JOB-6")
@pytest.mark.parametrize("gated", [pytest.param(False, marks=pytest.mark.wide), True])
@pytest.mark.parametrize("room", [3, 1])
async def test_stages_of_a_job_that_asks_for_all_minimums_come_one_after_another(room: int, gated: bool) -> None:
    """There is room for both stages, or for the first until a node is added; with gates of the queue, and without.

    If the group counted pods that are not created yet, none would ever be created (the fourth case of volcano#2944).
    """
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu=str(room))
        if room < 3:
            # The cordoned node lets the group be admitted.
            await it.add_node("n2", cpu="2", unschedulable=True)
        tasks = [stage("master", 1, 1, gated=gated), stage("worker", 2, 2, gated=gated, dependsOn={"name": ["master"]})]
        restart = [{"event": "Unknown", "action": "RestartJob"}]
        await it.make_job("j", *tasks, minimum=3, policies=restart)
        workers = {"j-worker-0", "j-worker-1"}

        await until(lambda: it.there(*workers))
        if room < 3:

            async def workers_say_why() -> bool:
                said = [await it.condition(name) for name in sorted(workers)]
                return all(each is not None and each["reason"] == "Unschedulable" for each in said)

            await until(workers_say_why)
            assert set(await it.placed()) == {"j-master-0"}
            found = await it.group()
            assert found["status"]["phase"] == "Running"
            assert found["metadata"]["annotations"][WAITING_ROLES] == "worker"
            await it.open_node("n2")

        await until(lambda: it.runs("j", 3))
        await until(lambda: it.only_placed("j-master-0", *workers))
        assert not (await it.job_status("j")).get("retryCount")

        async def nobody_waits() -> bool:
            return WAITING_ROLES not in ((await it.group())["metadata"].get("annotations") or {})

        await until(nobody_waits)


@pytest.mark.promise("JOB-8")
async def test_three_stages_take_what_they_need_first_and_the_rest_when_there_is_room() -> None:
    """The figures of the design: 3 of 5 masters, 2 of 3 workers before the other masters, then pods without requests.

    Pods above the minimums follow when there is room.
    """
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="3")
        # The cordoned nodes let the group be admitted.
        await it.add_node("n2", cpu="2", unschedulable=True)
        await it.add_node("n3", cpu="3", unschedulable=True)
        last = stage("last", 1, 0, dependsOn={"name": ["worker"]})
        del last["template"]["spec"]["containers"][0]["resources"]
        tasks = [stage("master", 5, 3), stage("worker", 3, 2, dependsOn={"name": ["master"]}), last]
        await it.make_job("j", *tasks, minimum=5)
        masters = [f"j-master-{index}" for index in range(5)]
        workers = [f"j-worker-{index}" for index in range(3)]

        await until(lambda: it.there(*workers))
        assert await it.only_placed(*masters[:3])
        assert "j-last-0" not in await it.pods()
        await it.open_node("n2")
        await until(lambda: it.only_placed(*masters[:3], *workers[:2], "j-last-0"))
        await until(lambda: it.runs("j", 6, pending=3))
        await it.open_node("n3")
        await until(lambda: it.runs("j", 9))


@pytest.mark.promise("JOB-10")
async def test_a_pod_of_the_first_stage_that_is_evicted_is_made_again_beside_the_second() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="4")
        master = stage("master", 2, 2, policies=[{"event": "PodEvicted", "action": "RestartPod"}])
        tasks = [master, stage("worker", 2, 2, dependsOn={"name": ["master"]})]
        await it.make_job("j", *tasks, minimum=4, policies=[{"event": "Unknown", "action": "RestartJob"}])
        await until(lambda: it.runs("j", 4))
        before = await it.pods()
        await it.delete(f"{PODS}/j-master-0")

        await until(lambda: it.is_another("j-master-0", before["j-master-0"]))
        await until(lambda: it.runs("j", 4))
        after = await it.pods()
        for name in ("j-master-1", "j-worker-0", "j-worker-1"):
            assert after[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]


@pytest.mark.promise("JOB-14")
async def test_a_job_that_is_restarted_goes_through_its_stages_again() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="3")
        tasks = [stage("master", 1, 1), stage("worker", 2, 2, dependsOn={"name": ["master"]})]
        await it.make_job("j", *tasks, minimum=3, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
        await until(lambda: it.runs("j", 3))
        before = {pod["metadata"]["uid"] for pod in (await it.pods()).values()}
        await it.delete(f"{PODS}/j-worker-1")
        await until(lambda: it.runs("j", 3, retryCount=1))
        after = {pod["metadata"]["uid"] for pod in (await it.pods()).values()}
        assert len(after) == 3
        assert before.isdisjoint(after)


@pytest.mark.promise("JOB-3")
async def test_what_is_above_a_jobs_minimum_leaves_the_room_to_another_gang() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.add_node("n1", cpu="4", unschedulable=True)
        await it.make_job("a", stage("t", 4, 1), minimum=1)
        await it.make_job("b", stage("t", 3, 3), minimum=3)

        await until(lambda: it.there("a-t-3", "b-t-2"))
        await it.open_node("n1")
        await until(lambda: it.only_placed("a-t-0", "b-t-0", "b-t-1", "b-t-2"))


_PARTS = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 2}


def _names(tasks: list[Any]) -> list[str]:
    return [f"j-{task['name']}-{index}" for task in tasks for index in range(task["replicas"])]


def _any_of(*names: str) -> dict[str, Any]:
    return {"dependsOn": {"name": list(names), "iteration": "any"}}


@pytest.mark.promise("JOB-7")
@pytest.mark.parametrize("reserves", [False, pytest.param(True, marks=pytest.mark.wide)])
@pytest.mark.parametrize(
    ("tasks", "minimum", "fail", "evicted"),
    [
        ([stage("a", 1, 1), stage("b", 1, 1), stage("c", 1, 1, **_any_of("a", "b"))], 3, ["j-a-0"], ""),
        ([stage("a", 3, 2), stage("b", 1, 1), stage("c", 2, 1, **_any_of("a", "b"))], 4, ["j-a-0", "j-a-2"], ""),
        # No task waits for another: a pod that is created again finds room although others have failed.
        ([stage("a", 2, 2), stage("b", 2, 2)], 4, ["j-a-0"], "j-b-1"),
        ([stage("a", 2, 1), stage("b", 2, 1)], 4, ["j-a-0"], "j-b-1"),
        ([stage("a", 4, 0, partitionPolicy=_PARTS), stage("b", 1, 1)], 3, ["j-a-0"], "j-b-0"),
        # A Job that was made smaller without a webhook.
        ([stage("a", 1, 2), stage("b", 1, 1)], 3, [], "j-b-0"),
    ],
    ids=["any", "some", "evicted", "in all", "partition", "small"],
)
async def test_pods_that_failed_for_good_keep_nobody_from_running(
    tasks: list[Any], minimum: int, fail: list[str], evicted: str, reserves: bool
) -> None:
    annotations = {DEPENDS_ON_GANG: RESERVE} if reserves else {}
    async with whole(JOB, PODGROUP, QUEUE, kubelets=False) as it:
        await it.add_node("n1", cpu="9")
        await it.make_job("j", *tasks, minimum=minimum, annotations=annotations)
        first = [name for name in _names(tasks) if not name.startswith("j-c")]
        await until(lambda: it.is_bound(*first))
        for name in fail:
            await it.patch(f"{PODS}/{name}/status", {"status": {"phase": "Failed"}})
        await asyncio.sleep(3)
        for name in sorted({*first} - {*fail}):
            await it.starts(name)
        if evicted:
            await it.end_pod(evicted)
        await until(lambda: it.is_bound(*_names(tasks)))


@pytest.mark.promise("JOB-7")
@pytest.mark.parametrize("reserves", [False, True])
async def test_a_job_of_which_nothing_can_run_any_more_has_failed(reserves: bool) -> None:
    annotations = {DEPENDS_ON_GANG: RESERVE} if reserves else {}
    async with whole(JOB, PODGROUP, QUEUE, kubelets=False) as it:
        await it.add_node("n1", cpu="9")
        tasks = [
            stage("a", 1, 1),
            stage("b", 2, 2, dependsOn={"name": ["a"]}),
            stage("c", 1, 1, dependsOn={"name": ["b"]}),
        ]
        await it.make_job("j", *tasks, minimum=4, annotations=annotations)
        await until(lambda: it.is_bound("j-a-0"))
        await it.patch(f"{PODS}/j-a-0/status", {"status": {"phase": "Failed"}})
        await asyncio.sleep(5)
        found = await it.job_status("j")
        assert (found["state"]["phase"], found["failed"]) == ("Failed", 1)
        assert sorted(await it.pods()) == ["j-a-0"]
        assert await it.items(GROUPS) == []
        notes = [each["note"] for each in await it.items("/apis/events.k8s.io/v1/namespaces/default/events")]
        assert "b waits in vain for a (0 of 1 ready); c waits in vain for b (0 of 2 ready)" in notes
