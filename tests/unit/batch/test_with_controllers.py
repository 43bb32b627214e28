"""The batch scheduler beside the queue and podgroup controllers: nobody plays a part of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, WAITING_ROLES
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from agent_scheduler.process.runtime import Runtime
from tests.support.batched import member, owner
from tests.support.embedded import PODS, until
from tests.support.places import CONFIG
from tests.unit.controllers.batch_world import BatchWorld, batch_world
from tests.unit.controllers.jobs_world import GROUPS

from .test_end_to_end import CONFIGURATION, MERGE

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


@asynccontextmanager
async def whole(*enabled: str) -> AsyncIterator[BatchWorld]:
    async with batch_world(kubelets=True) as it:
        # They may be installed already.
        definition = yaml.safe_load((CONFIG / "crd" / "batch.volcano.sh_jobs.yaml").read_text())
        await it.cluster.call("POST", _DEFINITIONS, definition)
        it.start(*enabled)
        runtime = Runtime(load_text(CONFIGURATION), **it.cluster.way())
        ending = asyncio.create_task(runtime.run(signals=False))
        try:
            await it.until_states(root="Open", default="Open")
            yield it
        finally:
            runtime.stop()
            await asyncio.wait_for(ending, 20)


async def workload(it: BatchWorld, *, minimum: int) -> str:
    """A ReplicaSet whose pods are scheduled so many at once; its UID."""
    path, body = owner("ReplicaSet", annotations={"scheduling.volcano.sh/group-min-member": str(minimum)})
    return str((await it.cluster.ask("POST", path, body))["metadata"]["uid"])


async def status(it: BatchWorld, queue: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = (await it.queue(queue)).get("status") or {}
    return found


async def placed(it: BatchWorld, *names: str) -> bool:
    return set(await it.cluster.placed()) == set(names)


async def test_pods_of_a_workload_are_bound_when_its_minimum_fits_and_its_queue_tells_of_them() -> None:
    async with whole() as it:
        await it.cluster.add_node("n1", cpu="4")
        uid = await workload(it, minimum=2)
        await it.cluster.ask("POST", PODS, member("a", "ReplicaSet", uid))
        await until(it.groups)
        await asyncio.sleep(0.4)
        assert await placed(it)
        await it.cluster.ask("POST", PODS, member("b", "ReplicaSet", uid))
        await until(lambda: placed(it, "a", "b"))

        async def told() -> bool:
            found = await status(it)
            return (found.get("running"), found.get("allocated", {}).get("cpu")) == (1, "2")

        await until(told)
        (group,) = (await it.groups()).values()
        assert (group["status"]["phase"], group["status"]["running"]) == ("Running", 2)


async def test_nothing_is_bound_from_a_closed_queue_until_it_is_opened() -> None:
    async with whole() as it:
        await it.cluster.add_node("n1", cpu="4")
        await it.command("CloseQueue", "default")
        await it.until_states(default="Closed")
        uid = await workload(it, minimum=1)
        await it.cluster.ask("POST", PODS, member("a", "ReplicaSet", uid))
        await until(it.groups)
        await asyncio.sleep(0.5)
        assert await placed(it)
        await it.command("OpenQueue", "default")
        await until(lambda: placed(it, "a"))


def _task(name: str, replicas: int, minimum: int, *, gated: bool = False, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    template: dict[str, Any] = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    if gated:
        template["metadata"] = {"annotations": {QUEUE_ALLOCATION_GATE: "true"}}
        template["spec"]["schedulingGates"] = [{"name": QUEUE_ALLOCATION_GATE}]
    return {"name": name, "replicas": replicas, "minAvailable": minimum, "template": template, **more}


async def _make(it: BatchWorld, name: str, tasks: list[dict[str, Any]], *, minimum: int, **more: Any) -> None:
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}}
    spec = {"queue": "default", "schedulerName": "volcano", "minAvailable": minimum, "tasks": tasks, **more}
    await it.cluster.ask("POST", _JOBS, {**body, "spec": spec})


async def _status(it: BatchWorld, name: str) -> dict[str, Any]:
    return (await it.cluster.ask("GET", f"{_JOBS}/{name}")).get("status") or {}


async def _runs(it: BatchWorld, name: str, running: int, **counts: int) -> bool:
    """Whether the Job runs, with so many pods; other counts of its status by name."""
    found = await _status(it, name)
    counts = {"running": running, **counts}
    return found.get("state", {}).get("phase") == "Running" and all(
        found.get(each, 0) == count for each, count in counts.items()
    )


async def _open(it: BatchWorld, node: str) -> None:
    await it.cluster.ask(
        "PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}}, content_type=MERGE
    )


async def _of_groups(it: BatchWorld) -> list[dict[str, Any]]:
    """Events of PodGroups."""
    items = (await it.cluster.ask("GET", "/api/v1/namespaces/default/events"))["items"]
    return [each for each in items if each["involvedObject"]["kind"] == "PodGroup"]


async def test_tasks_of_a_job_run_one_after_another_as_gangs() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu="3")
        tasks = [_task("data", 2, 2), _task("train", 3, 1, dependsOn={"name": ["data"]})]
        await _make(it, "j", tasks, minimum=2)
        first = {"j-data-0", "j-data-1"}

        async def both_run() -> bool:
            return first <= (await it.cluster.placed()).keys()

        await until(both_run)

        async def the_rest_follows() -> bool:
            return {f"j-train-{index}" for index in range(3)} <= (await it.cluster.pods()).keys()

        await until(the_rest_follows)

        await until(lambda: _runs(it, "j", 3))

        async def group_is_told() -> bool:
            return "Scheduled" in [each["reason"] for each in await _of_groups(it)]

        await until(group_is_told)
        # Nobody waited for anything but to be made, or bound.
        assert [each["message"] for each in await _of_groups(it) if each["message"].startswith("0/")] == []
        await it.cluster.ask("DELETE", f"{_JOBS}/j")
        await until(lambda: placed(it))


@pytest.mark.parametrize("prefers_masters", [False, True])
async def test_the_minimum_of_each_task_comes_before_more_of_the_first(prefers_masters: bool) -> None:
    """volcano#1755, and the first case of #2944: all of the first task are tried, and the job never runs."""
    async with whole(JOB, PODGROUP, QUEUE) as it:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await it.cluster.ask("POST", classes, {"metadata": {"name": "first"}, "value": 1000})
        await it.cluster.add_node("n1", cpu="5")
        tasks = [_task("m", 5, 3), _task("w", 3, 2)]
        if prefers_masters:
            tasks[0]["template"]["spec"]["priorityClassName"] = "first"
        await _make(it, "j", tasks, minimum=5)
        await until(lambda: placed(it, "j-m-0", "j-m-1", "j-m-2", "j-w-0", "j-w-1"))
        await until(lambda: _runs(it, "j", 5, pending=3))
        # What is above the minimums follows, the first task's before the other's where it is preferred.
        await it.cluster.add_node("n2", cpu="2")
        more = {"j-m-3", "j-m-4"} if prefers_masters else None

        async def two_more() -> bool:
            there = (await it.cluster.placed()).keys()
            return more <= there if more is not None else len(there) == 7

        await until(two_more)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("room", [3, 1])
async def test_stages_of_a_job_that_asks_for_all_minimums_come_one_after_another(
    room: int, gated: bool
) -> None:
    """With room for both, and for the first alone until a node comes; with gates of the queue, and without. Where the
    group counts pods that are not made yet, none of them ever is (the fourth case of volcano#2944)."""
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu=str(room))
        if room < 3:
            # So that the group is let in.
            await it.cluster.add_node("n2", cpu="2", unschedulable=True)
        tasks = [
            _task("master", 1, 1, gated=gated),
            _task("worker", 2, 2, gated=gated, dependsOn={"name": ["master"]}),
        ]
        restart = [{"event": "Unknown", "action": "RestartJob"}]
        await _make(it, "j", tasks, minimum=3, policies=restart)
        workers = {"j-worker-0", "j-worker-1"}

        async def group() -> dict[str, Any]:
            (found,) = (await it.cluster.ask("GET", f"{GROUPS}"))["items"]
            return dict(found)

        async def workers_are_there() -> bool:
            return workers <= (await it.cluster.pods()).keys()

        await until(workers_are_there)
        if room < 3:

            async def workers_say_why() -> bool:
                said = [await it.cluster.condition(name) for name in sorted(workers)]
                return all(each is not None and each["reason"] == "Unschedulable" for each in said)

            await until(workers_say_why)
            assert set(await it.cluster.placed()) == {"j-master-0"}
            found = await group()
            assert found["status"]["phase"] == "Running"
            assert found["metadata"]["annotations"][WAITING_ROLES] == "worker"
            await _open(it, "n2")

        async def all_run() -> bool:
            return await _runs(it, "j", 3) and await placed(it, "j-master-0", *workers)

        await until(all_run)
        assert not (await _status(it, "j")).get("retryCount")

        async def nobody_waits() -> bool:
            return WAITING_ROLES not in ((await group())["metadata"].get("annotations") or {})

        await until(nobody_waits)


async def test_three_stages_take_what_they_need_first_and_the_rest_when_there_is_room() -> None:
    """The figures of the design: 3 of 5 masters, then 2 of 3 workers before the masters that are left, then whoever
    asks for nothing; what is above the minimums comes when there is room."""
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu="3")
        # So that the group is let in.
        await it.cluster.add_node("n2", cpu="2", unschedulable=True)
        await it.cluster.add_node("n3", cpu="3", unschedulable=True)
        last = _task("last", 1, 0, dependsOn={"name": ["worker"]})
        del last["template"]["spec"]["containers"][0]["resources"]
        tasks = [_task("master", 5, 3), _task("worker", 3, 2, dependsOn={"name": ["master"]}), last]
        await _make(it, "j", tasks, minimum=5)
        masters = [f"j-master-{index}" for index in range(5)]
        workers = [f"j-worker-{index}" for index in range(3)]

        async def workers_are_made() -> bool:
            return set(workers) <= (await it.cluster.pods()).keys()

        await until(workers_are_made)
        assert await placed(it, *masters[:3])
        assert "j-last-0" not in await it.cluster.pods()
        await _open(it, "n2")
        await until(lambda: placed(it, *masters[:3], *workers[:2], "j-last-0"))
        await until(lambda: _runs(it, "j", 6, pending=3))
        await _open(it, "n3")
        await until(lambda: _runs(it, "j", 9))


async def test_a_pod_of_the_first_stage_that_is_evicted_is_made_again_beside_the_second() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu="4")
        master = _task("master", 2, 2, policies=[{"event": "PodEvicted", "action": "RestartPod"}])
        tasks = [master, _task("worker", 2, 2, dependsOn={"name": ["master"]})]
        await _make(it, "j", tasks, minimum=4, policies=[{"event": "Unknown", "action": "RestartJob"}])
        await until(lambda: _runs(it, "j", 4))
        before = await it.cluster.pods()
        await it.cluster.ask("DELETE", f"{PODS}/j-master-0")

        async def it_is_another() -> bool:
            found = (await it.cluster.pods()).get("j-master-0")
            return found is not None and found["metadata"]["uid"] != before["j-master-0"]["metadata"]["uid"]

        await until(it_is_another)
        await until(lambda: _runs(it, "j", 4))
        after = await it.cluster.pods()
        for name in ("j-master-1", "j-worker-0", "j-worker-1"):
            assert after[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]


async def test_a_job_that_is_restarted_goes_through_its_stages_again() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu="3")
        tasks = [_task("master", 1, 1), _task("worker", 2, 2, dependsOn={"name": ["master"]})]
        await _make(it, "j", tasks, minimum=3, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
        await until(lambda: _runs(it, "j", 3))
        before = {pod["metadata"]["uid"] for pod in (await it.cluster.pods()).values()}
        await it.cluster.ask("DELETE", f"{PODS}/j-worker-1")
        await until(lambda: _runs(it, "j", 3, retryCount=1))
        after = {pod["metadata"]["uid"] for pod in (await it.cluster.pods()).values()}
        assert len(after) == 3
        assert before.isdisjoint(after)


async def test_what_is_above_a_jobs_minimum_leaves_the_room_to_another_gang() -> None:
    async with whole(JOB, PODGROUP, QUEUE) as it:
        await it.cluster.add_node("n1", cpu="4", unschedulable=True)
        await _make(it, "a", [_task("t", 4, 1)], minimum=1)
        await _make(it, "b", [_task("t", 3, 3)], minimum=3)

        async def all_are_made() -> bool:
            return len(await it.cluster.pods()) == 7

        await until(all_are_made)
        await _open(it, "n1")
        await until(lambda: placed(it, "a-t-0", "b-t-0", "b-t-1", "b-t-2"))
