"""Three pods, a queue that holds one of them at a time, and an autoscaler: the story of gates of queues' capacity.

All components are installed from `config`, each with its own ServiceAccount, on a cluster that authorizes by RBAC: the
webhook, which the API server calls, the controllers of queues and groups, and a scheduler process with both schedulers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_scheduler.objects.batch import QUEUES
from tests.support import objects
from tests.support.batched import queue
from tests.support.embedded import until
from tests.support.picture import Object, Picture

from .installed import Installation
from .test_installed import NAMESPACE, PODS, SESSIONS, embedded_alone, own_cluster
from .test_webhook import ACCOUNT, HERE, reached

CONTROLLERS = "agent-scheduler-controllers"
GATE = "scheduling.volcano.sh/queue-allocation-gate"
#: What brings pod-2's node.
RULE = "cpu=2,memory=4Gi,label:pool=new,name=new,max=3,delay=2,idle=600"


class Line(NamedTuple):
    """Of a table: phase, condition (its reason, or the phase's where the pod has a node) and gate of a pod."""

    phase: str
    condition: str = ""
    gated: bool = False


RUNNING = Line("Running")
HELD = Line("Pending", "SchedulingGated", gated=True)
WANTS_A_NODE = Line("Pending", "Unschedulable")


def line(pod: Object) -> Line:
    conditions = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    assert gates in ([], [GATE])
    reason = scheduled.get("reason", "") if scheduled.get("status") == "False" else ""
    return Line(pod["status"]["phase"], reason, bool(gates))


class Story:
    """The cluster, and what kubectl would show of it. A gate that is gone does not come back: what is gated was."""

    def __init__(self, installed: Installation, scheduler: str, pods: Picture) -> None:
        self.installed = installed
        self._scheduler = scheduler
        self._pods = pods

    async def create(self, name: str, **spec: Any) -> None:
        """A pod as its user writes it."""
        annotations = {GATE: "true", "scheduling.volcano.sh/queue-name": "story"}
        spec |= {"scheduler": self._scheduler, "terminationGracePeriodSeconds": 0}
        body = objects.pod(name, cpu="1", memory="1Gi", annotations=annotations, **spec)
        await self.installed.ask("POST", PODS, body)
        # Those that were made in one second have no order.
        await asyncio.sleep(1.1)

    async def shows(self, **lines: Line) -> None:
        wanted = {name.replace("_", "-"): line for name, line in lines.items()}

        def same() -> bool:
            return {pod["metadata"]["name"]: line(pod) for pod in self._pods.objects.values()} == wanted

        await self._pods.until(same, str(wanted))

    async def was(self, name: str, wanted: Line) -> None:
        """Once the pod has been so, whatever it is now."""
        await self._pods.until(
            lambda: any(
                pod["metadata"]["name"] == name and line(pod) == wanted for pod in self._pods.history
            ),
            f"{name} as {wanted}",
        )

    async def delete(self, name: str) -> None:
        await self.installed.ask("DELETE", f"{PODS}/{name}")

    async def nodes(self) -> list[str]:
        return [each["metadata"]["name"] for each in await self.installed.items("/api/v1/nodes")]

    async def node_of(self, name: str) -> str:
        return str((await self.installed.ask("GET", f"{PODS}/{name}"))["spec"]["nodeName"])

    async def told(self, name: str) -> list[str]:
        """What events say of the queue that holds the pod, each once."""
        events = await self.installed.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return [
            each["note"]
            for each in events
            if each.get("reason") == "QueueFull" and each["regarding"]["name"] == name
        ]

    async def triggered(self) -> list[str]:
        """Pods for which nodes came."""
        events = await self.installed.items("/api/v1/namespaces/default/events")
        return [each["involvedObject"]["name"] for each in events if each.get("reason") == "TriggeredScaleUp"]


@embedded_alone
@pytest.mark.parametrize("scheduler", ["volcano", pytest.param("agent-scheduler", marks=pytest.mark.wide)])
@pytest.mark.promise("S28", "S32", "S33")
async def test_one_pod_at_a_time_is_let_past_and_a_node_comes_for_none_but_that(
    tmp_path: Path, scheduler: str
) -> None:
    cluster = ("--nodes", "1", "--node-cpu", "4", "--node-memory", "8Gi", "--autoscaler", RULE)
    # The answer to the first removal of a gate is lost.
    lost = {"match": {"resource": "pods", "verbs": ["patch"]}, "count": 1, "fault": {"lose": {}}}
    async with own_cluster(tmp_path, *cluster, faults=[lost], components=["crd"]) as installed:
        for component in ("webhook", "controllers", "default"):
            await installed.apply(component)
        webhook = await installed.start(ACCOUNT, "webhook", *HERE)
        await webhook.ready()
        await reached(installed, webhook)
        capability = {"cpu": "1", "memory": "1Gi"}
        await installed.ask("POST", QUEUES, queue("story", capability=capability))
        controllers = await installed.start(CONTROLLERS, "controllers")
        await controllers.ready()

        await installed.seen(f"{QUEUES}/story", lambda it: (it.get("status") or {}).get("state") == "Open")
        async with Picture(installed.transport, PODS) as pods:
            await _told(Story(installed, scheduler, pods))
        for account in ("agent-scheduler", ACCOUNT, CONTROLLERS):
            assert installed.refusals(account, NAMESPACE) == []


async def _told(story: Story) -> None:
    installed = story.installed
    # Initially each pod has the gate.
    await story.create("pod-1")
    await story.create("pod-2", nodeSelector={"pool": "new"})
    await story.create("pod-3")
    await story.shows(pod_1=HELD, pod_2=HELD, pod_3=HELD)
    # The queue has room for one, which has a node to go to.
    sessions = installed.folder / "volcano-scheduler.conf"
    sessions.write_text(SESSIONS)
    scheduler = await installed.start("agent-scheduler", "scheduler", "--scheduler-conf", str(sessions))
    await scheduler.ready()
    await story.shows(pod_1=RUNNING, pod_2=HELD, pod_3=HELD)
    await until(lambda: story.told("pod-3"))
    await story.shows(pod_1=RUNNING, pod_2=HELD, pod_3=HELD)
    assert await story.nodes() == ["node-00000"]
    # The next one fits on no node. The queue's room is its own until one comes, whoever would fit on those there are.
    await story.delete("pod-1")
    await story.was("pod-2", WANTS_A_NODE)
    await story.create("pod-4")
    await story.shows(pod_2=RUNNING, pod_3=HELD, pod_4=HELD)
    assert await story.node_of("pod-2") == "new-1"
    # When it has gone the others follow, on the nodes that there are.
    await story.delete("pod-2")
    await story.shows(pod_3=RUNNING, pod_4=HELD)
    await story.delete("pod-3")
    await story.shows(pod_4=RUNNING)
    assert await story.nodes() == ["new-1", "node-00000"]
    assert await story.triggered() == ["pod-2"]
    missing = "queue story has too little capability left: 1 of cpu, 1Gi of memory missing"
    for name in ("pod-2", "pod-3", "pod-4"):
        told = await until(lambda name=name: story.told(name))
        assert told == [f"held by the gate of its queue: {missing}"]
    assert await story.told("pod-1") == []
    assert await scheduler.terminate() == 0
