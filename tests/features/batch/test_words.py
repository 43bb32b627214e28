"""The reason for which a pod waits: the same in its condition, events, group, metric and explanation.

Both schedulers report it, and nodes are added only for pods that they would help.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME, STAGE_GATE, pod_group_path, queue_path
from agent_scheduler.serving.explanation import render
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.store import Event
from tests.sim.api import condition_of, content, name_of
from tests.support import objects
from tests.support.batched import add_group
from tests.support.embedded import NODES, PODS, until
from tests.support.installation import OTHER, installed, samples
from tests.support.native import GROUPS, NativeGangs

GATED = {"gates": (OTHER,)}
HELD = {"gates": (QUEUE_ALLOCATION_GATE,), "annotations": {QUEUE_ALLOCATION_GATE: "true"}}
PAIR: tuple[dict[str, Any], ...] = ({}, GATED)
OF_GROUP = {"schedulingGroup": {"podGroupName": "g"}}


class Words(NativeGangs):
    """An installation in which one scheduler's pods are checked.

    `given`: all reasons that p0 has given for waiting.
    """

    scheduler = ""
    given: set[str]

    async def one(self, name: str = "p0", *, queue: str = "", **more: Any) -> None:
        named = {"annotations": {QUEUE_NAME: queue}} if queue else {}
        await self.member(name, "", scheduler=self.scheduler, **named, **more)

    async def native(self, minimum: int, *members: dict[str, Any]) -> None:
        policy = {"gang": {"minCount": minimum}}
        await self.add(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
        for number, more in enumerate(members):
            await self.one(f"p{number}", **OF_GROUP, **more)

    async def group(self, minimum: int, *members: dict[str, Any], queue: str = "q", **spec: Any) -> None:
        await add_group(self, "g", minMember=minimum, queue=queue, **spec)
        for number, more in enumerate(members):
            await self.member(f"p{number}", "g", **more)

    async def ungate(self, name: str = "p0") -> None:
        await self.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})

    async def node(self, cpu: str = "4") -> None:
        await self.add_node("a", cpu=cpu)

    async def namespace(self, queue: str) -> None:
        await self.patch("/api/v1/namespaces/default", {"metadata": {"annotations": {QUEUE_NAME: queue}}})

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Return the conditions of Volcano's PodGroup: type -> status and reason."""
        found = (await self.group_status("g")).get("conditions") or ()
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    async def notes(self) -> set[tuple[str, str]]:
        """Return the warnings, with the pod of each."""
        found = await self.items("/apis/events.k8s.io/v1/namespaces/default/events")
        told = [each for each in found if (each["type"], each["reason"]) == ("Warning", "FailedScheduling")]
        return {(each["regarding"]["name"], each["note"]) for each in told}

    def changed(self, event: Event) -> None:
        pod = content(event.record)
        if event.type != "DELETED" and name_of(pod) == "p0" and condition_of(pod).get("status") == "False":
            self.given.add(condition_of(pod)["reason"])


@asynccontextmanager
async def words(scheduler: str) -> AsyncIterator[Words]:
    cluster = {"kinds": (*BUILTIN, *ALPHA), "autoscaler": ["cpu=4,memory=8Gi,name=new,max=3,delay=2"]}
    async with installed(made=Words, full={"cpu": "500m"}, **cluster) as world:
        await world.queue("default")
        world.scheduler, world.given = scheduler, set()
        world.api.store.tables["", "pods"].subscribers.append(world.changed)
        yield world


Step = Callable[[Words], Awaitable[object]]


def do(name: str, *what: Any, first: tuple[str, ...] = (), **more: Any) -> Step:
    """Return a step that calls a method; `first` is another one before it."""

    async def step(it: Words) -> None:
        if first:
            await getattr(it, first[0])(*first[1:])
        await getattr(it, name)(*what, **more)

    return step


class Row(NamedTuple):
    #: The steps that create the objects, and end the wait.
    made: Step
    mended: Step
    #: The pod p0's reason, a part of its message, and the label.
    reason: str
    message: str
    label: str
    #: The reason of the condition of Volcano's PodGroup; empty if there is none.
    group: str = ""


NOWHERE = ("QueueFull", "queue nowhere does not exist", "queue")
FULL = ("QueueFull", "queue full has too little capability left: 500m of cpu missing", "queue")
FEW, SOME_GATED = (
    ("NotEnoughPods", "valid: 1, min: 2", "members"),
    ("NotEnoughPods", "1 of the gang's 2 pods", "gates"),
)
NO_ROLE = ("NotEnoughPods", "Not enough valid pods of each task", "members", "NotEnoughPodsOfTask")
NO_GROUP = ("PodGroupNotFound", "PodGroup default/g does not exist", "group")
NO_NATIVE = ("PodGroupNotFound", "PodGroup default/g (scheduling.k8s.io) does not exist", "group")
WANT_NODES = ("Unschedulable", "", "nodes")


def shut(state: str) -> tuple[str, str, str]:
    return "QueueFull", f"queue q takes no pods: its state is {state}", "queue"


def closed(state: str, name: str, *what: Any, **more: Any) -> tuple[Step, Step]:
    return do(name, *what, first=("set_state", "q", state), **more), do("set_state", "q", "Open")


#: Rows for both schedulers.
ALIKE = {
    "queue missing": Row(do("one", queue="nowhere"), do("queue", "nowhere"), *NOWHERE),
    "namespace's queue missing": Row(do("one", first=("namespace", "nowhere")), do("namespace", "q"), *NOWHERE),
    "queue closed": Row(*closed("Closed", "one", queue="q"), *shut("Closed")),
    "queue closing": Row(*closed("Closing", "one", queue="q"), *shut("Closing")),
    "queue full": Row(do("one", queue="full"), do("set_capability", "full", cpu="1"), *FULL),
    "own gate": Row(do("one", **GATED), do("ungate"), "SchedulingGated", "scheduling gates", "gates"),
    "native group missing": Row(do("one", **OF_GROUP), do("native", 1), *NO_NATIVE),
    "native members": Row(do("native", 2, {}), do("one", "p1", **OF_GROUP), *FEW),
    "native gates": Row(do("native", 2, *PAIR), do("ungate", "p1"), *SOME_GATED),
    "nodes": Row(do("one"), do("node"), *WANT_NODES),
    "native nodes": Row(do("native", 2, {}, {}), do("node"), *WANT_NODES),
}
#: Rows for the batch scheduler.
GANGS = {
    "group missing": Row(do("member", "p0", "g"), do("group", 1), *NO_GROUP),
    "group's queue missing": Row(do("group", 1, {}, queue="nowhere"), do("queue", "nowhere"), *NOWHERE, "QueueFull"),
    "group's queue closed": Row(*closed("Closed", "group", 2, {}, {}), *shut("Closed"), "QueueFull"),
    "queue closed, and members": Row(
        do("group", 2, {}, first=("set_state", "q", "Closed")),
        do("member", "p1", "g", first=("set_state", "q", "Open")),
        *(*shut("Closed"), "QueueFull"),
    ),
    "members": Row(do("group", 2, {}), do("member", "p1", "g"), *FEW, "NotEnoughTasks"),
    "members of a role": Row(
        do("group", 2, {}, {}, minTaskMember={"w": 1}),
        do("patch", pod_group_path("default", "g"), {"spec": {"minTaskMember": None}}),
        *NO_ROLE,
    ),
    "gates of others": Row(do("group", 2, *PAIR), do("ungate", "p1"), *SOME_GATED, "SchedulingGated"),
    "held members": Row(
        do("group", 2, {}, HELD, queue="full"),
        do("set_capability", "full", cpu="2"),
        *("NotEnoughPods", "1 of them only that of their queue's capacity", "gates", "SchedulingGated"),
    ),
    "members and a full queue": Row(
        do("group", 2, {"cpu": "250m"}, queue="full"), do("member", "p1", "g", cpu="250m"), *(*FEW, "NotEnoughTasks")
    ),
    "not let in": Row(
        do("group", 1, {}, queue="full", minResources={"cpu": "1"}),
        do("set_capability", "full", cpu="1"),
        *(*FULL, "QueueFull"),
    ),
    "not let in, of no minimum": Row(
        do("group", 0, {}, queue="full", minResources={"cpu": "1"}),
        do("set_capability", "full", cpu="1"),
        *("QueueFull", "queue full has too little capability left", "queue", "QueueFull"),
    ),
    "nodes for all": Row(do("group", 2, {}, {}), do("node"), *WANT_NODES, "NotEnoughResources"),
    "nodes for the rest": Row(
        do("group", 2, {}, {"cpu": "3"}, first=("node", "3")),
        do("add_node", "b", cpu="4"),
        *(*WANT_NODES, "NotEnoughResources"),
    ),
    "its stage": Row(do("one", gates=(STAGE_GATE,)), do("ungate"), "SchedulingGated", "scheduling gates", "stage"),
}
ROWS = [
    *(pytest.param("volcano", each, id=f"batch: {name}") for name, each in (ALIKE | GANGS).items()),
    *(pytest.param("agent-scheduler", each, id=f"fast path: {name}") for name, each in ALIKE.items()),
]


@pytest.mark.promise("S33")
@pytest.mark.parametrize(("scheduler", "row"), ROWS)
async def test_all_that_is_said_of_a_pod_that_waits_is_of_one_verdict(scheduler: str, row: Row) -> None:
    wants_nodes, gated = row.reason == "Unschedulable", row.reason == "SchedulingGated"
    async with words(scheduler) as it:
        if not (wants_nodes or row.label == "stage"):
            await it.node()
        await row.made(it)
        await until(lambda: it.says_text("p0", f"{row.reason}: ", row.message))
        await it.rest()
        debug = it.runtime.sources().debug
        assert debug is not None
        _, page = debug.explain("default", "p0")
        assert page["waits_for"] == row.label and re.search(f"Waits for +{row.label}\n", render(dict(page)))
        if not gated:
            assert any(name == "p0" and row.message in note for name, note in await it.notes())
            assert row.message in page["why"]
        if scheduler == "volcano" and row.label != "stage":
            assert samples(it.runtime)[f'agent_scheduler_batch_groups_waiting{{reason="{row.label}"}}'] == 1
            assert gated or row.message in page["gang"]["why"]
        if row.group:
            assert (await it.conditions())["Unschedulable"] == ("True", row.group)

        nodes = len(await it.items(NODES))
        await asyncio.sleep(15)
        assert (len(await it.items(NODES)) > nodes) == wants_nodes
        assert it.given == {row.reason}, "nothing else was ever said"
        await row.mended(it)
        if row.label == "stage":
            await it.node()
        await until(lambda: it.is_bound("p0"))
        if row.group:
            await it.rest()
            said = await it.conditions()
            assert (said["Scheduled"][0], said["Unschedulable"][0]) == ("True", "False")


@pytest.mark.parametrize(
    ("scheduler", "path", "says"),
    [
        ("volcano", queue_path("q"), "QueueFull: queue q does not exist"),
        ("volcano", pod_group_path("default", "g"), "PodGroupNotFound: PodGroup default/g does not exist"),
        ("volcano", f"{PODS}/p1", "NotEnoughPods: "),
        ("agent-scheduler", f"{GROUPS}/g", "PodGroupNotFound: PodGroup default/g (scheduling.k8s.io)"),
        ("agent-scheduler", f"{PODS}/p1", "NotEnoughPods: "),
    ],
)
async def test_what_a_pod_said_of_nodes_is_said_no_more_when_something_else_is_missing(
    scheduler: str, path: str, says: str
) -> None:
    async with words(scheduler) as it:
        await it.node("1")
        await (it.group if scheduler == "volcano" else it.native)(2, {"cpu": "8"}, {})
        await until(lambda: it.says("p0", "Unschedulable"))
        await it.delete(path, gracePeriodSeconds=0)
        await until(lambda: it.says_text("p0", says))


async def test_a_pod_whose_profile_is_not_there_is_told_unless_another_scheduler_has_it() -> None:
    async with words("agent-scheduler") as it:
        await it.node("1")
        for name, scheduler in (("p0", "unknown"), ("served", "other"), ("own", "default-scheduler")):
            await it.member(name, "", scheduler=scheduler)
        await it.member("bound", "", scheduler="other", node="a")
        message = "its schedulerName is 'unknown', and the profiles here are agent-scheduler, volcano"
        await until(lambda: it.says_text("p0", "ProfileNotFound: ", message))
        await asyncio.sleep(60)
        assert await it.condition("served") is await it.condition("own") is None
        assert [name for name, note in await it.notes() if message in note] == ["p0"]
        await it.member("later", "", scheduler="unknown")
        await until(lambda: it.says("later", "ProfileNotFound"))
        assert len(await it.items(NODES)) == 1 and it.given == {"ProfileNotFound"}


@pytest.mark.promise("S33")
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("minimum", [1, 2])
async def test_members_that_want_nodes_do_so_no_more_when_others_take_what_their_queue_has_left(
    minimum: int, native: bool
) -> None:
    """Pods of the fast path take that room, and no session follows by itself: new nodes would help no member."""
    async with installed(made=Words, queue="default", kinds=(*BUILTIN, *ALPHA)) as it:
        it.scheduler = "volcano"
        await it.set_capability("default", cpu="3")
        await it.add_node("a", cpu="1")
        await it.add_node("b", labels={"of": "others"}, unschedulable=True)
        members: tuple[dict[str, Any], ...] = ({"cpu": "1"}, {"cpu": "1"})
        await (it.native(minimum, *members) if native else it.group(minimum, *members, queue="default"))
        await it.rest()
        waiting = [name for name, pod in (await it.pods()).items() if not pod["spec"].get("nodeName")]
        assert len(waiting) == minimum
        for name in waiting:
            assert await it.says(name, "Unschedulable")
        cpu = "1500m" if minimum == 1 else "2"
        await it.add(PODS, objects.pod("other", cpu=cpu, node="b", annotations={QUEUE_NAME: "default"}))
        for name in waiting:
            await until(lambda name=name: it.says(name, "QueueFull"))
        await it.end_pod("other")
        for name in waiting:
            await until(lambda name=name: it.says(name, "Unschedulable"))
