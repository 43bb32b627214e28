"""What a pod that waits is said to wait for: one verdict in its condition, its events, its group, the metric and the
explanation, by both schedulers, and nodes come for those alone whom they would help."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest

from agent_scheduler.objects.batch import QUEUE_NAME, pod_group_path, queue_path
from agent_scheduler.serving.explanation import render
from embedded_kubernetes import controllers
from embedded_kubernetes.autoscaler import Autoscaler
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.node_groups import read_rules
from embedded_kubernetes.store import Event
from tests.sim.api import condition_of, content, name_of
from tests.support.batched import add_group
from tests.support.embedded import NODES, PODS, until
from tests.support.installation import OTHER, installed, samples
from tests.support.native import GROUPS, NativeGangs
from tests.support.virtual import time_of_day

GATED = {"gates": (OTHER,)}
DEFAULT = "/api/v1/namespaces/default"


class Words(NativeGangs):
    """Of which one scheduler's pods are looked at. `given`: all reasons that pods have ever given for waiting."""

    scheduler = ""
    given: set[str]

    async def one(self, name: str = "p0", *, queue: str = "", **more: Any) -> None:
        named = {"annotations": {QUEUE_NAME: queue}} if queue else {}
        await self.member(name, "", scheduler=self.scheduler, **named, **more)

    async def native(self, minimum: int, *members: dict[str, Any]) -> None:
        policy = {"gang": {"minCount": minimum}}
        await self.add(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
        for number, more in enumerate(members):
            await self.one(f"p{number}", schedulingGroup={"podGroupName": "g"}, **more)

    async def of_group(self, minimum: int, *members: dict[str, Any], **group: Any) -> None:
        await add_group(self, "g", minMember=minimum, **{"queue": "q", **group})
        for number, more in enumerate(members):
            await self.member(f"p{number}", "g", **more)

    async def ungate(self, name: str = "p0") -> None:
        await self.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Of the PodGroup of Volcano's: type -> status and reason."""
        found = (await self.get(pod_group_path("default", "g")))["status"].get("conditions") or ()
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    async def notes(self) -> list[tuple[str, str]]:
        """Of warnings, with the pod that they are about."""
        found = await self.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return [
            (each["regarding"]["name"], each["note"])
            for each in found
            if each["reason"] == "FailedScheduling"
        ]

    def changed(self, event: Event) -> None:
        said = condition_of(content(event.record)) if event.type != "DELETED" else {}
        if said.get("status") == "False" and name_of(content(event.record)) == "p0":
            self.given.add(said["reason"])


@asynccontextmanager
async def words(scheduler: str) -> AsyncIterator[Words]:
    async with installed(made=Words, kinds=(*BUILTIN, *ALPHA), full={"cpu": "500m"}) as world:
        await world.queue("default")
        world.scheduler, world.given = scheduler, set()
        world.api.store.tables["", "pods"].subscribers.append(world.changed)
        scaler = Autoscaler(
            world.api, read_rules(["cpu=4,memory=8Gi,name=new,max=3,delay=2"]), kubelets=False
        )
        scaling = asyncio.create_task(controllers.run(scaler, clock=time_of_day))
        try:
            yield world
        finally:
            scaling.cancel()
            with suppress(asyncio.CancelledError):
                await scaling


Step = Callable[[Words], Awaitable[object]]


class Row(NamedTuple):
    #: What is made, and what ends the wait.
    made: Step
    mended: Step
    #: Of the pod p0: its reason, a part of its message, and the label.
    reason: str
    message: str
    label: str
    #: The reason of the condition of Volcano's PodGroup; empty where there is none.
    group: str = ""


async def add_node(it: Words) -> None:
    await it.add_node("a", cpu="4")


async def close(it: Words, state: str) -> None:
    await it.set_state("q", state)


async def of_namespace(it: Words, queue: str) -> None:
    await it.patch(DEFAULT, {"metadata": {"annotations": {QUEUE_NAME: queue}}})


async def before(it: Words, first: Awaitable[object], then: Step) -> None:
    await first
    await then(it)


MISSING, CLOSED = "queue nowhere does not exist", "queue q takes no pods: its state is "
TOO_LITTLE = "queue full has too little capability left: 500m of cpu missing"
FEW, SOME_GATED = "valid: 1, min: 2", "1 of the gang's 2 pods have scheduling gates"
PAIR = ({}, GATED)
#: Of either scheduler.
ALIKE = {
    "queue missing": Row(
        lambda it: it.one(queue="nowhere"), lambda it: it.queue("nowhere"), "QueueFull", MISSING, "queue"
    ),
    "queue of the namespace missing": Row(
        lambda it: before(it, of_namespace(it, "nowhere"), Words.one),
        lambda it: of_namespace(it, "q"),
        *("QueueFull", MISSING, "queue"),
    ),
    **{
        f"queue {state}": Row(
            lambda it, state=state: before(it, close(it, state), lambda it: it.one(queue="q")),
            lambda it: close(it, "Open"),
            *("QueueFull", CLOSED + state, "queue"),
        )
        for state in ("Closed", "Closing")
    },
    "queue full": Row(
        lambda it: it.one(queue="full"),
        lambda it: it.set_capability("full", cpu="1"),
        *("QueueFull", TOO_LITTLE, "queue"),
    ),
    "own gate": Row(
        lambda it: it.one(**GATED), Words.ungate, "SchedulingGated", "non-empty scheduling gates", "gates"
    ),
    "native group missing": Row(
        lambda it: it.one(schedulingGroup={"podGroupName": "g"}),
        lambda it: it.native(1),
        *("PodGroupNotFound", "PodGroup default/g (scheduling.k8s.io) does not exist", "group"),
    ),
    "native members": Row(
        lambda it: it.native(2, {}),
        lambda it: it.one("p1", schedulingGroup={"podGroupName": "g"}),
        *("NotEnoughPods", FEW, "members"),
    ),
    "native gates": Row(
        lambda it: it.native(2, *PAIR),
        lambda it: it.ungate("p1"),
        *("NotEnoughPods", SOME_GATED, "gates"),
    ),
    "nodes": Row(Words.one, add_node, "Unschedulable", "", "nodes"),
    "native nodes": Row(lambda it: it.native(2, {}, {}), add_node, "Unschedulable", "", "nodes"),
}
#: Of the batch scheduler.
GANGS = {
    "group missing": Row(
        lambda it: it.member("p0", "g"),
        lambda it: it.of_group(1),
        *("PodGroupNotFound", "PodGroup default/g does not exist", "group"),
    ),
    "queue of the group missing": Row(
        lambda it: it.of_group(1, {}, queue="nowhere"),
        lambda it: it.queue("nowhere"),
        *("QueueFull", MISSING, "queue", "QueueFull"),
    ),
    "queue of the group closed": Row(
        lambda it: before(it, close(it, "Closed"), lambda it: it.of_group(2, {}, {})),
        lambda it: close(it, "Open"),
        *("QueueFull", CLOSED + "Closed", "queue", "QueueFull"),
    ),
    "members": Row(
        lambda it: it.of_group(2, {}),
        lambda it: it.member("p1", "g"),
        *("NotEnoughPods", FEW, "members", "NotEnoughTasks"),
    ),
    "members of a role": Row(
        lambda it: it.of_group(2, {}, {}, minTaskMember={"w": 1}),
        lambda it: it.patch(pod_group_path("default", "g"), {"spec": {"minTaskMember": None}}),
        *("NotEnoughPods", "Not enough valid pods of each task", "members", "NotEnoughPodsOfTask"),
    ),
    "gates of others": Row(
        lambda it: it.of_group(2, *PAIR),
        lambda it: it.ungate("p1"),
        *("NotEnoughPods", SOME_GATED, "gates", "SchedulingGated"),
    ),
    "members and a full queue": Row(
        lambda it: it.of_group(2, {"cpu": "250m"}, queue="full"),
        lambda it: it.member("p1", "g", cpu="250m"),
        *("NotEnoughPods", FEW, "members", "NotEnoughTasks"),
    ),
    "not let in by its queue": Row(
        lambda it: it.of_group(1, {}, queue="full", minResources={"cpu": "1"}),
        lambda it: it.set_capability("full", cpu="1"),
        *("QueueFull", TOO_LITTLE, "queue", "QueueFull"),
    ),
    "nodes for the rest": Row(
        lambda it: it.of_group(2, {}, {}), add_node, "Unschedulable", "", "nodes", "NotEnoughResources"
    ),
}
ROWS = [
    *(pytest.param("volcano", each, id=f"batch: {name}") for name, each in (ALIKE | GANGS).items()),
    *(pytest.param("agent-scheduler", each, id=f"fast path: {name}") for name, each in ALIKE.items()),
]


async def test_a_pod_whose_profile_is_not_there_is_told_unless_another_scheduler_has_it() -> None:
    async with words("agent-scheduler") as it:
        await it.add_node("a", cpu="1")
        for name, scheduler in (("p0", "nobody"), ("served", "other"), ("own", "default-scheduler")):
            await it.member(name, "", scheduler=scheduler)
        await it.member("bound", "", scheduler="other", node="a")
        message = "its schedulerName is 'nobody', and the profiles here are agent-scheduler, volcano"
        await until(lambda: it.says_text("p0", "ProfileNotFound: ", message))
        await asyncio.sleep(60)
        assert await it.condition("served") is await it.condition("own") is None
        assert [name for name, note in await it.notes() if message in note] == ["p0"]
        assert len(await it.items(NODES)) == 1 and it.given == {"ProfileNotFound"}


@pytest.mark.parametrize(
    ("scheduler", "what"), [("volcano", "queue"), ("volcano", "group"), ("agent-scheduler", "queue")]
)
async def test_what_a_pod_said_of_nodes_is_said_no_more_when_its_queue_or_its_group_is_deleted(
    scheduler: str, what: str
) -> None:
    async with words(scheduler) as it:
        await it.add_node("a", cpu="1")
        huge = {"cpu": "8"}
        await (it.of_group(1, huge) if scheduler == "volcano" else it.one(queue="q", **huge))
        await until(lambda: it.says("p0", "Unschedulable"))
        await it.delete(queue_path("q") if what == "queue" else pod_group_path("default", "g"))
        missing = {
            "queue": "QueueFull: queue q does not exist",
            "group": "PodGroupNotFound: PodGroup default/g",
        }
        await until(lambda: it.says_text("p0", missing[what]))


@pytest.mark.promise("S33")
@pytest.mark.parametrize(("scheduler", "row"), ROWS)
async def test_all_that_is_said_of_a_pod_that_waits_is_of_one_verdict(scheduler: str, row: Row) -> None:
    wants_nodes = row.reason == "Unschedulable"
    async with words(scheduler) as it:
        if not wants_nodes:
            await add_node(it)
        await row.made(it)
        await until(lambda: it.says_text("p0", f"{row.reason}: ", row.message))
        await it.rest()
        sources = it.runtime.sources()
        assert sources.explain is not None
        _, page = sources.explain("default", "p0")
        assert page["waits_for"] == row.label
        assert re.search(f"Waits for +{row.label}\n", render(dict(page)))
        if row.reason != "SchedulingGated":
            assert any(name == "p0" and row.message in note for name, note in await it.notes())
        if not wants_nodes and row.reason != "SchedulingGated":
            assert row.message in page["why"]
        if scheduler == "volcano":
            metric = f'agent_scheduler_batch_groups_waiting{{reason="{row.label}"}}'
            assert samples(it.runtime)[metric] == 1
            if not wants_nodes and row.label not in ("gates",):
                assert row.message in page["gang"]["why"]
        if row.group:
            assert (await it.conditions())["Unschedulable"] == ("True", row.group)

        nodes = len(await it.items(NODES))
        await asyncio.sleep(15)
        assert (len(await it.items(NODES)) > nodes) == wants_nodes
        assert it.given == {row.reason}, "nothing else was ever said"
        await row.mended(it)
        await until(lambda: it.is_bound("p0"))
        if row.group:
            await it.rest()
            said = await it.conditions()
            assert (said["Scheduled"][0], said["Unschedulable"][0]) == ("True", "False")
