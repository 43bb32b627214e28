"""The queue controller: the existing queues, their states, and the number of groups in each phase."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from agent_scheduler.controllers.queues.controller import QueueCommandSettings, QueueController
from agent_scheduler.objects.batch import QUEUES, Command, Queue, pod_group_path, queue_path
from agent_scheduler.process.controller_flags import QUEUE
from kube_client.budget import UNLIMITED
from kube_client.recorder import EventRecorder, EventSettings, Reporter
from kube_client.retry import REAL
from tests.support.batched import COMMANDS, add_group, add_queue, command
from tests.support.controllers import BatchWorld, batch_world, dies, install_all
from tests.support.embedded import until


async def test_root_and_default_are_made_and_open() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        await it.until_states(root="Open", default="Open")
        specs = {name: each["spec"] for name, each in (await it.queues()).items()}
        common = {"weight": 1, "dequeueStrategy": "traverse"}
        assert specs == {
            "root": {**common, "reclaimable": False},
            "default": {**common, "reclaimable": True, "parent": "root"},
        }


async def counted(it: BatchWorld, name: str, **numbers: int) -> None:
    async def so() -> bool:
        status = (await it.queue(name)).get("status", {})
        names = ("pending", "inqueue", "running", "unknown", "completed")
        return {each: status[each] for each in names if each in status} == numbers

    await until(so)


async def test_groups_are_counted_by_phase_in_the_queue_that_they_name() -> None:
    async with batch_world() as it:
        process = it.start(QUEUE)
        await add_queue(it, "q")
        for number, phase in enumerate(("Pending", "Inqueue", "Running", "Running", "Unknown", "Completed")):
            await add_group(it, f"g{number}", queue="q", status={"phase": phase})
        await add_group(it, "new")
        await counted(it, "q", pending=1, inqueue=1, running=2, unknown=1, completed=1)
        await counted(it, "default", pending=1)
        text = process.metrics.exposition()[0].decode()
        assert 'volcano_queue_pod_group_running_count{queue_name="q"} 2' in text
        assert 'volcano_queue_pod_group_running_count{queue_name="default"} 0' in text
        await it.patch(pod_group_path("default", "g0"), {"status": {"phase": "Inqueue"}})
        await it.patch(pod_group_path("default", "g3"), {"spec": {"queue": "default"}})
        await it.ask("DELETE", pod_group_path("default", "g4"))
        await counted(it, "q", inqueue=2, running=1, completed=1)
        await counted(it, "default", pending=1, running=1)


async def test_a_queue_with_groups_closes_when_the_last_is_gone() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        await add_queue(it, "q")
        await add_group(it, "g", queue="q")
        await counted(it, "q", pending=1)
        await it.command("CloseQueue", "q")
        await it.until_states(q="Closing")
        await it.ask("DELETE", pod_group_path("default", "g"))
        await it.until_states(q="Closed")
        events = await it.items("/apis/events.k8s.io/v1/events")
        assert [(each["reason"], each["note"], each["regarding"]["name"]) for each in events] == [
            ("CloseQueue", "Close queue succeed", "q")
        ]


async def test_queues_that_are_their_own_ancestors_are_told_so() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("below", "a")):
            await add_queue(it, name, parent=parent)
        await it.until_states(a="Open", b="Open", c="Open", below="Open")

        async def told() -> set[tuple[str, str, str]]:
            events = await it.items("/apis/events.k8s.io/v1/events")
            return {(each["type"], each["reason"], each["regarding"]["name"]) for each in events}

        async def so() -> bool:
            return await told() == {("Warning", "InvalidParent", name) for name in "abc"}

        await until(so)


async def test_what_was_written_counts_before_the_watch_shows_it() -> None:
    async with batch_world() as it:
        transport = it.transport
        events = EventRecorder(
            Reporter("test", "test"),
            EventSettings(),
            transport=transport,
            budget=UNLIMITED,
            timing=REAL,
            count=lambda _what: None,
            pace=None,
        )
        controller = QueueController(
            QueueCommandSettings(command_namespace="default"), transport=transport, events=events, timing=REAL
        )
        kinds = controller.kinds(lambda _key: None, lambda _kind, _made: True, frozenset())
        seen = {kind.name: kind for kind in kinds}
        made = await add_queue(it, "q", parent="root")
        seen["Queue"].set(msgspec.convert(made, Queue))
        for action in ("CloseQueue", "OpenQueue"):
            await it.command(action, "q")
        for each in await it.items(COMMANDS):
            seen["Command"].set(msgspec.convert(each, Command))
        assert await controller.reconcile(":commands", lambda: True)
        assert await it.state("q") == "Open"
        assert await it.items(COMMANDS) == []


async def test_commands_for_queues_are_executed_only_from_the_namespace_that_is_trusted() -> None:
    """A tenant may create Commands in its own namespace, for its Jobs."""
    async with batch_world() as it:
        it.start(QUEUE)
        await it.until_states(default="Open")
        await it.add("/api/v1/namespaces", {"metadata": {"name": "tenant"}})
        path = COMMANDS.replace("/default/", "/tenant/")
        for _ in range(3):
            await it.add(path, command("CloseQueue", "default"))
        await it.command("CloseQueue", "root")
        await it.until_no_commands()
        assert await it.state("default") == "Open"
        assert len(await it.items(path)) == 3

        async def told() -> bool:
            events = await it.items("/apis/events.k8s.io/v1/namespaces/tenant/events")
            return [(each["reason"], each["type"], each["note"]) for each in events] == [
                (
                    "CommandRefused",
                    "Warning",
                    "Commands for queues are executed only from the namespace default (--queue-command-namespace)",
                )
            ]

        await until(told)


async def test_commands_that_nothing_can_be_done_about_are_deleted_and_those_of_others_kept() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        await it.until_states(root="Open")
        await it.command("CloseQueue", "nobody")
        await it.command("CloseQueue", "root")
        await it.command("Dance", "default")
        await it.until_no_commands()
        await it.until_states(root="Open", default="Open")
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}
        order = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": "j"}}
        path = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
        await it.add(path, {**order, "action": "AbortJob", "target": job})
        await asyncio.sleep(0.5)
        assert len(await it.items(path)) == 1


async def test_queues_below_a_closed_one_close_and_open_with_it_unless_closed_by_themselves() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        for name, parent in (("top", "root"), ("a", "top"), ("b", "top"), ("leaf", "a")):
            await add_queue(it, name, parent=parent)
        await it.until_states(top="Open", a="Open", b="Open", leaf="Open")
        await it.command("CloseQueue", "b")
        await it.until_states(b="Closed")
        await it.command("CloseQueue", "top")
        await it.until_states(top="Closed", a="Closed", leaf="Closed")
        # A child cannot be opened alone, and a new child is closed, too.
        await it.command("OpenQueue", "leaf")
        await add_queue(it, "late", parent="top")
        await it.until_no_commands()
        await it.until_states(late="Closed", leaf="Closed")
        # A queue that is closed once more by itself stays closed.
        await it.command("CloseQueue", "late")
        await it.until_no_commands()
        await it.command("OpenQueue", "top")
        await it.until_states(top="Open", a="Open", leaf="Open", b="Closed", late="Closed")


async def test_a_queue_follows_the_one_that_it_is_moved_below() -> None:
    async with batch_world() as it:
        it.start(QUEUE)
        for name in ("shut", "q"):
            await add_queue(it, name)
        await it.until_states(shut="Open", q="Open")
        await it.command("CloseQueue", "shut")
        await it.until_states(shut="Closed")
        await it.patch(queue_path("q"), {"spec": {"parent": "shut"}})
        await it.until_states(q="Closed")
        await it.patch(queue_path("q"), {"spec": {"parent": "root"}})
        await it.until_states(q="Open")
        # The children of a missing queue stay as they are.
        await it.patch(queue_path("q"), {"spec": {"parent": "none"}})
        await asyncio.sleep(0.4)
        assert await it.state("q") == "Open"


@pytest.mark.parametrize("sent", [pytest.param(False, marks=pytest.mark.wide), True])
async def test_wherever_a_process_dies_the_next_one_ends_what_it_began(sent: bool) -> None:
    """A closed queue is opened, and one with two below it is closed; each process dies at a later write."""
    async with batch_world() as it:
        first = it.start(QUEUE)
        for name, parent in (("top", "root"), ("a", "top"), ("b", "a"), ("other", "root")):
            await add_queue(it, name, parent=parent)
        await add_group(it, "g", queue="a", status={"phase": "Running"})
        await it.command("CloseQueue", "other")
        await it.until_states(top="Open", a="Open", b="Open", other="Closed")
        await it.stop(first)
        for closing in (True, False):
            await it.command("CloseQueue" if closing else "OpenQueue", "top")
            await it.command("OpenQueue" if closing else "CloseQueue", "other")
            at = 0
            while await dies(it, at, QUEUE, sent=sent):
                # Completed writes are not repeated, so that each process gets further than the last.
                at = 1
            last = it.start(QUEUE)
            await it.until_no_commands()
            if closing:
                await it.until_states(top="Closed", a="Closing", b="Closed", other="Open")
            else:
                await it.until_states(top="Open", a="Open", b="Open", other="Closed")
            await it.stop(last)


async def test_the_controller_waits_for_the_kinds_and_begins_when_they_are_there() -> None:
    async with batch_world(kinds=False) as it:
        process = it.start(QUEUE)
        await until(lambda: process.queues is not None)
        await asyncio.sleep(0.3)
        await install_all(it)

        async def are_made() -> bool:
            answer = await it.call("GET", QUEUES)
            return answer.status == 200 and set(await it.queues()) == {"root", "default"}

        await until(are_made, seconds=60)
        await it.until_states(root="Open", default="Open")
