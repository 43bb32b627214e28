"""The story `agent-scheduler demo --story gates`: three pods, a queue with room for one at a time, and an autoscaler.

Each printed line is the state in the API. The story's claims are verified: it fails if a pod is admitted too early or
never, or if a node is added for a pod that its queue rejects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUES
from bench.harness.embedded import cluster, component, scheduler
from bench.harness.install import CONTROLLERS, NAMESPACE, kubeconfig_of
from bench.harness.manifest_files import manifest_file
from bench.harness.model import Nodes
from bench.harness.processes import ProcessError
from bench.harness.requests import NOW, ask, retry
from bench.harness.site import BATCH_KINDS, NODES, until_served
from kube_client.transport import Transport

from .telling import LOOK, Teller

_PODS: Final = "/api/v1/namespaces/default/pods"
_KINDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_QUEUE: Final = "one-at-a-time"
_RULE: Final = "cpu=2,memory=4Gi,label:pool=new,name=new,max=3,delay=4,idle=8"
CONFIGURATION: Final = {
    "apiVersion": "agent-scheduler/v1",
    "kind": "SchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "batch": {},
}


class Line(NamedTuple):
    """A pod as it is printed."""

    phase: str
    condition: str
    gate: str
    node: str


HELD: Final = Line("Pending", "SchedulingGated", QUEUE_ALLOCATION_GATE, "")
WANTS_A_NODE: Final = Line("Pending", "Unschedulable", "", "")


class Stage:
    """The cluster, and its printed state. `say` prints a line."""

    def __init__(self, transport: Transport, say: Callable[[str], object]) -> None:
        self._transport = transport
        self._teller = Teller(say, self._look, _shown)
        self.tell = self._teller.tell

    async def _look(self) -> tuple[dict[str, Line], list[str]]:
        return await self.pods(), await self.nodes()

    async def create(self, name: str, **spec: Any) -> None:
        """Create a pod with the gate that the webhook would add."""
        annotations = {QUEUE_ALLOCATION_GATE: "true", "scheduling.volcano.sh/queue-name": _QUEUE}
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "schedulerName": "volcano",
                "schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}],
                "containers": [{"name": "c", "image": "registry.invalid/none:1", "resources": resources}],
                **spec,
            },
        }
        await retry(self._transport, "POST", _PODS, orjson.dumps(body))
        # Pods of the same second have no order.
        await asyncio.sleep(1.05)

    async def delete(self, name: str) -> None:
        await retry(self._transport, "DELETE", f"{_PODS}/{name}", NOW)

    async def pods(self) -> dict[str, Line]:
        items = orjson.loads(await ask(self._transport, "GET", _PODS))["items"]
        return {each["metadata"]["name"]: line_of(each) for each in items}

    async def nodes(self) -> list[str]:
        items = orjson.loads(await ask(self._transport, "GET", NODES))["items"]
        return [each["metadata"]["name"] for each in items]

    async def until(self, what: str, holds: Callable[[Mapping[str, Line], list[str]], bool]) -> None:
        """Wait as `Teller.until` does."""
        await self._teller.until(what, lambda seen: holds(*seen))

    async def stays(self, seconds: float, **lines: Line) -> None:
        """Check that the pods do not change. Raises `ProcessError` if they do."""
        until = monotonic() + seconds
        while monotonic() < until:
            pods = await self.pods()
            for name, line in lines.items():
                if pods[name.replace("_", "-")] != line:
                    found = pods[name.replace("_", "-")]
                    raise ProcessError(f"the story fails: {name} is to be {line}, and is {found}")
            await asyncio.sleep(LOOK)

    async def triggered(self) -> list[str]:
        events = orjson.loads(await ask(self._transport, "GET", "/api/v1/namespaces/default/events"))["items"]
        return [each["involvedObject"]["name"] for each in events if each.get("reason") == "TriggeredScaleUp"]


def _shown(seen: tuple[Mapping[str, Line], list[str]]) -> str:
    pods, nodes = seen
    text = [f"         nodes: {', '.join(nodes)}"]
    text.append(f"         {'NAME':7} {'PHASE':9} {'CONDITION':16} {'NODE':11} GATES")
    for name, each in pods.items():
        row = f"{name:7} {each.phase:9} {each.condition:16} {each.node:11} {each.gate}"
        text.append(f"         {row}".rstrip())
    return "\n".join(text)


def line_of(pod: Mapping[str, Any]) -> Line:
    conditions = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    return Line(
        pod["status"]["phase"],
        scheduled.get("reason", "") if scheduled.get("status") == "False" else "",
        ", ".join(gate["name"] for gate in pod["spec"].get("schedulingGates") or ()),
        pod["spec"].get("nodeName") or "",
    )


async def tell_gates(stage: Stage, start: Callable[[], Awaitable[object]]) -> None:
    """Tell the story. `start` starts the scheduler. Raises `ProcessError` if the story fails."""
    stage.tell(
        "Three pods of 1 CPU and 1 GiB, in a queue with room for one. Each has the gate, as the webhook adds it."
    )
    await stage.create("pod-1")
    await stage.create("pod-2", nodeSelector={"pool": "new"})
    await stage.create("pod-3")
    await stage.until("not all are gated", lambda pods, _: [*pods.values()] == [HELD] * 3)
    stage.tell("The scheduler starts. The queue has room for one pod: the first is admitted, and fits on the node.")
    await start()
    await stage.until("pod-1 does not run", lambda pods, _: pods["pod-1"].phase == "Running")
    await stage.stays(1.0, pod_2=HELD, pod_3=HELD)
    stage.tell(
        "pod-1 ends. pod-2 is admitted, fits on no node, and reports it. pod-3 would fit, but its queue has no room."
    )
    await stage.delete("pod-1")
    await stage.until("pod-2 does not ask for a node", lambda pods, _: pods["pod-2"] == WANTS_A_NODE)
    await stage.stays(1.0, pod_3=HELD)
    stage.tell("The autoscaler adds a node for pod-2, and for no other pod.")
    await stage.until("pod-2 does not run", lambda pods, _: pods["pod-2"].phase == "Running")
    await stage.stays(1.0, pod_3=HELD)
    stage.tell("pod-2 ends, and pod-3 runs on the first node.")
    await stage.delete("pod-2")
    await stage.until("pod-3 does not run", lambda pods, _: pods["pod-3"].phase == "Running")
    stage.tell("The new node stays empty, and the autoscaler removes it.")
    await stage.until("the node stays", lambda _, nodes: len(nodes) == 1)
    triggered = await stage.triggered()
    if triggered != ["pod-2"]:
        raise ProcessError(f"the story fails: nodes were added for {', '.join(triggered) or 'no pod'}")
    stage.tell("One node was added, for the one pod that its queue had room for.")


async def _install(transport: Transport) -> None:
    """Create the CRDs and the queue."""
    for name in BATCH_KINDS:
        body = yaml.safe_load(manifest_file(name).read_text(encoding="utf-8"))
        await retry(transport, "POST", _KINDS, orjson.dumps(body))
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": _QUEUE},
        "spec": {"capability": {"cpu": "1", "memory": "1Gi"}},
    }
    await until_served(transport, QUEUES)
    await retry(transport, "POST", QUEUES, orjson.dumps(queue))


def _common(kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    return "--kubeconfig", str(kubeconfig), "--log-level", "warning", "--state-directory", str(folder)


def controllers(enabled: str, kubeconfig: Path, folder: Path) -> AbstractAsyncContextManager[object]:
    """Run these controllers in a process."""
    flags = ("--enable", enabled, *_common(kubeconfig, folder))
    # The role allows leases only there.
    where = ("--leader-elect-resource-namespace", NAMESPACE)
    return component("controllers", (*flags, *where), folder=folder, name="controllers")


async def play(say: Callable[[str], object]) -> None:
    """Play the story of gates, with cluster, controllers and scheduler as separate processes.

    Raises `ProcessError`, and `RequestFailed`.
    """
    nodes = Nodes(count=1, cpu="4", memory="8Gi")
    secured = ("--authorization-mode", "RBAC", "--no-tls", "--autoscaler", _RULE)
    with TemporaryDirectory(prefix="agent-scheduler-demo-") as name:
        folder = Path(name)
        async with cluster(nodes, folder=folder, arguments=secured) as (_, transport), AsyncExitStack() as stack:
            await _install(transport)
            admin = folder / "kubeconfig"
            keepers = await kubeconfig_of(transport, admin, CONTROLLERS)
            await stack.enter_async_context(controllers("podgroup,queue", keepers, folder))
            kubeconfig = await kubeconfig_of(transport, admin)
            file = folder / "scheduler.json"
            file.write_bytes(orjson.dumps(CONFIGURATION))
            flags = ("--config", str(file), *_common(kubeconfig, folder))

            async def start() -> None:
                await stack.enter_async_context(scheduler(flags, folder=folder))

            await tell_gates(Stage(transport, say), start)
