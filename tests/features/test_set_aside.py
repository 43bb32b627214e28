"""Objects whose handling raises, or ended the process, in whole processes: they are left alone, and others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.admission.review import read_review
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.controllers.jobs.controller import JobController
from agent_scheduler.controllers.podgroups.controller import PodGroupController
from agent_scheduler.controllers.queues.controller import QueueController
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.session.session import Session
from agent_scheduler.fastpath.gangs import GangCycle
from agent_scheduler.fastpath.worker import Worker
from agent_scheduler.process import webhook
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from agent_scheduler.telemetry.step_file import StepFile
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from kube_client import informers
from kube_client.testing.virtual import timing, virtual_time
from tests.support import objects, reviews
from tests.support.batched import install, member, owner
from tests.support.controllers import BatchWorld, batch_world
from tests.support.embedded import NODES, PODS, embedded_cluster, until
from tests.support.installation import CONFIGURATION, GROUP, samples, started
from tests.support.jobs import JOBS, REST, jobs_world
from tests.support.objects import task
from tests.support.webhooks import asking, review, webhooks

EVENTS = "/apis/events.k8s.io/v1/events"
BAD = "bad"


#: Whether the receivers of watches raise; see `poison_watches`.
RAISES: dict[str, bool] = {}


class Poison(Exception):
    """The error of the handling of the bad object."""


def name_of(thing: Any) -> str:
    """Return the name of an object, group, pod or result, or a key."""
    if isinstance(thing, str):
        return thing.rpartition("/")[2]
    for attribute in ("pod", "group"):
        thing = getattr(thing, attribute, thing) if not hasattr(thing, "metadata") else thing
    thing = getattr(thing, "metadata", thing)
    return str(getattr(thing, "name", ""))


def poison(patched: pytest.MonkeyPatch, owner_class: type, method: str) -> None:
    """Make a method raise if one of its arguments is the bad object."""
    real = getattr(owner_class, method)

    def raising(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(BAD in name_of(each) for each in args):
            raise Poison(method)
        return real(self, *args, **kwargs)

    patched.setattr(owner_class, method, raising)


def poison_watches(patched: pytest.MonkeyPatch) -> None:
    """Make the handlers of all watched kinds raise for bad objects of them."""
    real = informers.Informers.also

    def also(self: Any, kinds: Any) -> None:
        def raising(kind: informers.Kind) -> informers.Kind:
            def put(item: Any) -> None:
                if RAISES.get("now") and BAD in item.metadata.name:
                    raise Poison(kind.name)
                kind.set(item)

            return replace(kind, set=put)

        real(self, [raising(each) for each in kinds])

    patched.setattr(informers.Informers, "also", also)
    patched.setitem(RAISES, "now", True)


async def told(it: Any, kind: str, reason: str, name: str = BAD) -> bool:
    """Return whether there is one Warning event with this reason about the object."""
    found = [
        each
        for each in await it.items(EVENTS)
        if (each["regarding"]["kind"], each["reason"], each["type"]) == (kind, reason, "Warning")
        and each["regarding"]["name"].startswith(name)
    ]
    return bool(found)


def ended_twice(directory: Path, component: str, step: str, kind: str, metadata: Mapping[str, Any]) -> None:
    """Leave the file that two processes leave which end in a step on the object."""
    for _ in range(2):
        file = StepFile(directory / f"{component}.steps", now=timing().now().timestamp, fresh=pytest.fail)
        file.mark(
            *(step, kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"]),
            metadata["resourceVersion"],
            metadata.get("generation", 0),
        )
        file.close()


# ---- the scheduler


@pytest.mark.parametrize(
    ("owner_class", "method"),
    [(Worker, "_attempt"), (Worker, "_carry_out"), (Ledger, "assume"), (FailureHandler, "unschedulable")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_error_at_any_point_of_a_decision_concerns_its_pod_only(
    monkeypatch: pytest.MonkeyPatch, owner_class: type, method: str
) -> None:
    @virtual_time
    async def run() -> None:
        poison(monkeypatch, owner_class, method)
        async with batch_world() as it, started(it, CONFIGURATION) as (_, ending):
            await it.add_node("n1", cpu="4")
            # For `unschedulable` it fits nowhere.
            cpu = "9" if method == "unschedulable" else "1"
            await it.add(PODS, objects.pod(BAD, cpu=cpu, scheduler="agent-scheduler"))
            for name in ("a", "b"):
                await it.add(PODS, objects.pod(name, cpu="1", scheduler="agent-scheduler"))
                await until(lambda name=name: it.is_bound(name))
            said = await until(lambda: it.condition(BAD))
            assert (said["reason"], "Poison" in said["message"]) == ("SchedulerError", True)
            monkeypatch.undo()
            if method != "unschedulable":
                await until(lambda: it.is_bound(BAD))
            assert not ending.done()

    run()


def test_a_pod_whose_decision_ended_the_process_twice_waits_until_it_changes(tmp_path: Path) -> None:
    configuration = f"{CONFIGURATION}stateDirectory: {tmp_path}\n"

    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            await it.add_node("n1", cpu="4")
            pod = await it.add(PODS, objects.pod(BAD, cpu="1", scheduler="agent-scheduler"))
            ended_twice(tmp_path, "scheduler", "decision", "Pod", pod["metadata"])
            for good in ("a", "b"):
                # The condition that it gets is no change for the next process.
                async with started(it, configuration) as (runtime, _ending):
                    await it.add(PODS, objects.pod(good, cpu="1", scheduler="agent-scheduler"))
                    await until(lambda good=good: it.is_bound(good))
                    said = await until(lambda: it.condition(BAD))
                    assert "ended 2 times" in said["message"]
                    await until(lambda: told(it, "Pod", "FailedScheduling"))
                    await asyncio.sleep(REST)
                    assert not await it.is_bound(BAD)
                    place = 'agent_scheduler_objects_set_aside_total{kind="Pod",step="decision"}'
                    assert samples(runtime)[place] == 1
            async with started(it, configuration):
                await asyncio.sleep(REST)
                await it.patch(f"{PODS}/{BAD}", {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}})
                await until(lambda: it.is_bound(BAD))

    run()


NATIVE = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


@pytest.mark.parametrize("how", ["raises", "ended"])
def test_a_gang_of_kubernetes_is_left_alone_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    configuration = f"{CONFIGURATION}stateDirectory: {tmp_path}\n"

    @virtual_time
    async def run() -> None:
        async with embedded_cluster(components=("default",), kinds=(*BUILTIN, *ALPHA)) as it:
            await install(it)
            await it.add_node("n1", cpu="8")
            for name in (BAD, "good"):
                group = await it.add(NATIVE, objects.native_group(name, 2))
                if name == BAD and how == "ended":
                    ended_twice(tmp_path, "scheduler", "decision", "PodGroup", group["metadata"])
            if how == "raises":
                poison(monkeypatch, GangCycle, "_with_room")
            async with started(it, configuration) as (_, ending):
                for name in (BAD, "good"):
                    for number in range(2):
                        spec = {"schedulingGroup": {"podGroupName": name}}
                        await it.add(PODS, objects.pod(f"{name}-{number}", scheduler="agent-scheduler", **spec))
                await until(lambda: it.is_bound("good-0"))
                await until(lambda: it.is_bound("good-1"))
                for number in range(2):
                    said = await until(lambda number=number: it.condition(f"{BAD}-{number}"))
                    assert said["reason"] == "SchedulerError"
                await asyncio.sleep(REST)
                assert not await it.is_bound(f"{BAD}-0")
                assert not ending.done()

    run()


def pod_group(name: str) -> Any:
    return objects.make("PodGroup", "scheduling.volcano.sh/v1beta1", name, {"minMember": 1, "queue": "default"})


GROUPS = f"{GROUP}/namespaces/default/podgroups"


@pytest.mark.parametrize("how", ["raises", "ended"])
def test_a_group_that_sessions_cannot_handle_is_left_out_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    configuration = f"{CONFIGURATION}stateDirectory: {tmp_path}\n"

    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            it.start(QUEUE)
            await it.until_states(root="Open", default="Open")
            await it.add_node("n1", cpu="8")
            group = await it.add(GROUPS, pod_group(BAD))
            await it.add(GROUPS, pod_group("good"))
            if how == "ended":
                ended_twice(tmp_path, "scheduler", "session", "PodGroup", group["metadata"])
            else:
                poison(monkeypatch, Session, "_job")
            async with started(it, configuration) as (runtime, ending):
                for name in (BAD, "good"):
                    annotations = {"scheduling.k8s.io/group-name": name}
                    await it.add(PODS, objects.pod(f"{name}-0", scheduler="volcano", annotations=annotations))
                await until(lambda: it.is_bound("good-0"))
                await until(lambda: told(it, "PodGroup", "SetAside"))
                assert (await told(it, "PodGroup", "HandlingFailed")) == (how == "raises")
                said = await until(lambda: it.condition(f"{BAD}-0"))
                assert "set aside" in said["message"]
                assert runtime.batch is not None
                await asyncio.sleep(REST)
                assert not await it.is_bound(f"{BAD}-0")
                monkeypatch.undo()
                await it.patch(f"{GROUPS}/{BAD}", {"spec": {"priorityClassName": "other"}})
                await until(lambda: it.is_bound(f"{BAD}-0"))
                assert not ending.done()

    run()


def test_a_change_that_raises_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of object that the scheduler watches, at a list and at a watch."""

    @virtual_time
    async def run() -> None:
        poison_watches(monkeypatch)
        async with batch_world() as it:
            queue = objects.make("Queue", "scheduling.volcano.sh/v1beta1", BAD, {"weight": 1})
            made = {
                "Node": (NODES, {"metadata": {"name": BAD}}),
                "Pod": (PODS, objects.pod(BAD, scheduler="agent-scheduler")),
                "PodGroup": (GROUPS, pod_group(BAD)),
                "Queue": (f"{GROUP}/queues", queue),
                "Namespace": ("/api/v1/namespaces", {"metadata": {"name": BAD}}),
                "PersistentVolumeClaim": (
                    "/api/v1/namespaces/default/persistentvolumeclaims",
                    {
                        "metadata": {"name": BAD},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    },
                ),
                "StorageClass": (
                    "/apis/storage.k8s.io/v1/storageclasses",
                    {"metadata": {"name": BAD}, "provisioner": "p"},
                ),
            }
            listed = dict(list(made.items())[::2])
            for path, body in listed.values():
                await it.add(path, body)
            await it.add_node("n1", cpu="4")
            async with started(it, CONFIGURATION) as (runtime, ending):
                for kind, (path, body) in made.items():
                    if kind not in listed:
                        await it.add(path, body)
                await it.add(PODS, objects.pod("a", scheduler="agent-scheduler"))
                await until(lambda: it.is_bound("a"))
                for kind in made:
                    await until(lambda kind=kind: told(it, kind, "HandlingFailed"))
                    assert samples(runtime)[f'agent_scheduler_object_failures_total{{kind="{kind}",step="watch"}}'] >= 1
                assert not ending.done()

    run()


def test_an_unreadable_object_gets_an_event(tmp_path: Path) -> None:
    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            await it.add(GROUPS, pod_group(BAD))
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("agent_scheduler.controllers.queues.controller.pod_groups", _unreadable_groups)
                it.start(QUEUE)
                await until(lambda: told(it, "PodGroup", "UnreadableObject"))

    run()


def _unreadable_groups(put: Callable[[Any], None], delete: Callable[[Any], None]) -> informers.Kind:
    def read(raw: Any) -> Any:
        raise ValueError("no group at all")

    return informers.Kind("PodGroup", f"{GROUP}/podgroups", read, put, delete, optional=True)


# ---- the controllers


@pytest.mark.parametrize("how", ["raises", "change raises", "ended"])
def test_a_job_that_cannot_be_handled_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    @virtual_time
    async def run() -> None:
        async with jobs_world() as it:
            job = await it.add(JOBS, objects.job(BAD, task("a", 1), minimum=1, queue="default"))
            if how == "raises":
                poison(monkeypatch, JobController, "reconcile")
            elif how == "change raises":
                poison_watches(monkeypatch)
            else:
                ended_twice(tmp_path, "controllers", "reconcile", "Job", job["metadata"])
            process = BatchWorld.start(it, JOB, QUEUE, directory=tmp_path)
            await it.add(JOBS, objects.job("good", task("a", 1), minimum=1, queue="default"))
            await asyncio.sleep(REST)
            await let_in(it)
            assert set(await it.pods()) == {"good-a-0"}
            assert await told(it, "Job", "SetAside" if how == "ended" else "HandlingFailed")
            monkeypatch.undo()
            # A change of its status is none.
            await it.patch(f"{JOBS}/{BAD}/status", {"status": {"version": 0}})
            await asyncio.sleep(REST)
            if how != "raises":
                assert set(await it.pods()) == {"good-a-0"}
            await it.patch(f"{JOBS}/{BAD}", {"spec": {"maxRetry": 5}})
            await asyncio.sleep(40)
            await let_in(it)
            assert set(await it.pods()) == {"good-a-0", f"{BAD}-a-0"}
            assert process is it.processes[-1]

    run()


async def let_in(it: Any) -> None:
    for group in await it.items(GROUPS):
        await it.patch(f"{GROUPS}/{group['metadata']['name']}", {"status": {"phase": "Inqueue"}})
    await asyncio.sleep(REST)


@pytest.mark.parametrize("how", ["raises", "change raises", "ended"])
def test_a_queue_that_cannot_be_handled_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            queues = f"{GROUP}/queues"
            queue = await it.add(queues, objects.make("Queue", "scheduling.volcano.sh/v1beta1", BAD, {"weight": 1}))
            if how == "raises":
                poison(monkeypatch, QueueController, "_sync")
            elif how == "change raises":
                poison_watches(monkeypatch)
            else:
                ended_twice(tmp_path, "controllers", "reconcile", "Queue", queue["metadata"])
            it.start(QUEUE, directory=tmp_path)
            await it.until_states(root="Open", default="Open")
            await asyncio.sleep(REST)
            assert await it.state(BAD) == ""
            assert await told(it, "Queue", "SetAside" if how == "ended" else "HandlingFailed")
            monkeypatch.undo()
            await it.patch(f"{queues}/{BAD}", {"spec": {"weight": 2}})
            await it.until_states(**{BAD: "Open"})

    run()


@pytest.mark.parametrize("how", ["raises", "ended"])
def test_a_pod_for_which_no_group_can_be_made_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            path, body = owner("ReplicaSet")
            uid = (await it.add(path, body))["metadata"]["uid"]
            pod = await it.add(PODS, member(BAD, "ReplicaSet", uid))
            if how == "raises":
                poison(monkeypatch, PodGroupController, "_put_into_group")
            else:
                ended_twice(tmp_path, "controllers", "reconcile", "Pod", pod["metadata"])
            it.start(PODGROUP, directory=tmp_path)
            await it.add(PODS, member("good", "ReplicaSet", uid))

            async def named(name: str) -> bool:
                about = (await it.get(f"{PODS}/{name}"))["metadata"].get("annotations") or {}
                return "scheduling.k8s.io/group-name" in about

            await until(lambda: named("good"))
            await until(lambda: told(it, "Pod", "SetAside" if how == "ended" else "HandlingFailed"))
            assert not await named(BAD)
            monkeypatch.undo()
            await it.patch(f"{PODS}/{BAD}", {"metadata": {"labels": {"changed": "yes"}}})
            await until(lambda: named(BAD))

    run()


def test_a_command_that_raises_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            for name in (BAD, "good"):
                await it.add(f"{GROUP}/queues", objects.make("Queue", "scheduling.volcano.sh/v1beta1", name, {}))
            poison(monkeypatch, QueueController, "_obey")
            it.start(QUEUE)
            await it.until_states(**{BAD: "Open", "good": "Open"})
            for name in (BAD, "good"):
                await it.command("CloseQueue", name)
            await it.until_states(**{BAD: "Open", "good": "Closed"})
            await until(lambda: told(it, "Command", "CommandFailed", name=""))

    run()


# ---- the webhook


@pytest.mark.real_time
@pytest.mark.parametrize("how", ["raises", "ended"])
async def test_an_object_that_cannot_be_reviewed_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    bad = reviews.queue(name=BAD)
    if how == "ended":
        body = review({"uid": "u1", "operation": "CREATE", "namespace": "default", "object": bad})
        subject = webhook._subject("/queues/mutate", read_review(body))
        for _ in range(2):
            file = StepFile(tmp_path / "webhook.steps", now=time.time, fresh=pytest.fail)
            file.mark(*(getattr(subject, name) for name in subject.__struct_fields__))
            file.close()
    else:
        poison_review(monkeypatch)
    async with webhooks() as world:
        process = world.start(state_directory=str(tmp_path))
        async with asking(process, await world.trusted()) as api_server:
            made = {"uid": "u1", "operation": "CREATE", "namespace": "default", "object": bad}
            status, text = await api_server.post("/queues/mutate", review(made))
            assert (status, "set aside" in text) == ((200, True) if how == "ended" else (500, False))
            assert (await api_server.review("/queues/mutate", reviews.queue()))["allowed"]
            if how == "ended":
                # Its content has changed.
                changed = reviews.queue(name=BAD, weight=7)
                assert (await api_server.review("/queues/mutate", changed))["allowed"]


def poison_review(patched: pytest.MonkeyPatch) -> None:
    real = webhook.review

    def raising(reviewer: Any, request: Any) -> Any:
        if BAD.encode() in bytes(request.object):
            raise Poison("review")
        return real(reviewer, request)

    patched.setattr(webhook, "review", raising)


def test_a_change_that_ended_the_process_twice_is_left_out_until_the_next_one(tmp_path: Path) -> None:
    configuration = f"{CONFIGURATION}stateDirectory: {tmp_path}\n"

    @virtual_time
    async def run() -> None:
        async with batch_world() as it:
            await it.add_node("n1", cpu="4")
            await it.add_node(BAD, cpu="9")
            node = await it.get(f"{NODES}/{BAD}")
            ended_twice(tmp_path, "scheduler", "watch", "Node", node["metadata"])
            async with started(it, configuration):
                await it.add(PODS, objects.pod("large", cpu="8", scheduler="agent-scheduler"))
                await it.add(PODS, objects.pod("small", cpu="1", scheduler="agent-scheduler"))
                await until(lambda: it.is_bound("small"))
                await until(lambda: told(it, "Node", "SetAside"))
                assert not await it.is_bound("large")
                await it.patch(f"{NODES}/{BAD}", {"metadata": {"labels": {"changed": "yes"}}})
                await until(lambda: it.is_bound("large"))

    run()
