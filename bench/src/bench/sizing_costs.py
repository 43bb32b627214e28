"""Measures what a scheduler's process costs at the size of a cluster: its start, memory and CPU by kind of event.

`measure` starts an embedded cluster over TLS with nodes and running pods of another scheduler, then the scheduler, and
at last one with the batch scheduler. CPU is that of its process, from the kernel. The pods have about 3 kB, and reports
of nodes have the conditions and images of a kubelet's. A scheduler that receives many events at a time needs less for
each, so pods begin at a fixed rate, and a second time all at one moment.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent_scheduler.objects.batch import pod_groups
from bench import watch_decode
from bench.harness.audit import fetch
from bench.harness.embedded import cluster, scheduler
from bench.harness.load import binding
from bench.harness.manifests import BATCH_SCHEDULER, encode, in_group, pod_group, pod_maker
from bench.harness.measure import peak, usage
from bench.harness.model import Gang, Nodes, Template
from bench.harness.processes import Child
from bench.harness.requests import ask, create_all, for_each, retry
from bench.harness.site import open_queues
from kube_client.patch import MERGE
from kube_client.transport import Transport

PODS = "/api/v1/namespaces/default/pods"
#: What the scheduler's watch receives of a pod from its creation to its end: added, bound, two reports of the kubelet,
#: and finished, which it receives as deleted.
EVENTS_A_POD = 5
#: Seconds between the steps of a pod's life, which are those of a fast container.
_STEP = 0.4
#: Seconds until a pod without a node, or a start, ends the measurement.
_PATIENCE = 300.0
#: Pods of a gang.
_GANG = 10
_STARTING = {"phase": "Pending", "startTime": "2026-11-29T06:00:00Z"}
_RUNNING = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
_FINISHED = {"phase": "Succeeded"}


class SizeCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of one process at one size: CPU in seconds, memory in bytes. The cost of a pod is that of its life."""

    nodes: int
    #: Running pods of other schedulers.
    pods: int
    start: float
    start_cpu: float
    memory: float
    #: The same with the batch scheduler.
    memory_batch: float
    #: The most during the start and all phases, without gangs.
    peak: float
    idle: float
    node_report: float
    #: For pods at the given rate, and for pods that all begin at one moment, whose events arrive together.
    own_pod: float
    own_pod_together: float
    foreign_pod: float
    foreign_pod_together: float
    #: For a member of a gang.
    gang_pod: float


async def _spent(process: Child, work: Awaitable[object]) -> float:
    """Return the CPU seconds of the process for the work, including the second after it."""
    before = _cpu(process)
    await work
    await asyncio.sleep(1)
    return _cpu(process) - before


def _cpu(process: Child) -> float:
    found = usage(process.pid)
    if found is None:
        raise RuntimeError(f"the {process.name} has ended")
    return found.cpu_seconds


def _memory(process: Child) -> float:
    found = usage(process.pid)
    if found is None:
        raise RuntimeError(f"the {process.name} has ended")
    return found.rss


def _maker(scheduler_name: str, *, grouped: bool = False, **spec: str) -> Callable[[str], bytes]:
    """Return a function from a pod's name to its body, of the size that an agent's pod has on an API server."""
    whole = msgspec.json.decode(watch_decode.pod(0, 1))
    for container in whole["spec"]["containers"]:
        del container["volumeMounts"]
    template = Template(
        labels=whole["metadata"]["labels"],
        annotations={f"agents.example/setting-{number}": "x" * 40 for number in range(25)},
        spec={**{name: whole["spec"][name] for name in ("containers", "tolerations", "restartPolicy")}, **spec},
    )
    return pod_maker(template, scheduler_name=scheduler_name, in_group=grouped)


def _report(number: int) -> bytes:
    """Return a kubelet's report without a change that matters: times, and the images that are there."""
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure")
    moment = f"2026-11-29T06:{number // 60 % 60:02}:{number % 60:02}Z"
    conditions = [{"type": kind, "status": "False", "lastHeartbeatTime": moment} for kind in kinds]
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": moment})
    images = [
        {
            "names": [f"registry.example/image-{i}@sha256:{i:064x}", f"registry.example/image-{i}:1.0"],
            "sizeBytes": 1 << 26,
        }
        for i in range(50)
    ]
    return encode({"status": {"conditions": conditions, "images": images}})


async def _paced(count: int, rate: float, do: Callable[[int], Awaitable[None]]) -> None:
    """Begin `do` for each number at its time, whatever became of the earlier ones. Raises their first exception."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.create_task(do(number))  # type: ignore[arg-type]


async def _live(transport: Transport, name: str, body: bytes, *, node: str | None) -> None:
    """Carry out the life of a pod; bind it if `node` is set, else wait until it is bound."""
    path = f"{PODS}/{name}"
    await retry(transport, "POST", PODS, body)
    if node is not None:
        await retry(transport, "POST", f"{path}/binding", binding(name, node))
    async with asyncio.timeout(_PATIENCE):
        while node is None:
            await asyncio.sleep(_STEP)
            node = msgspec.json.decode(await ask(transport, "GET", path))["spec"].get("nodeName")
    for status in (_STARTING, _RUNNING, _FINISHED):
        await asyncio.sleep(_STEP)
        await retry(transport, "PATCH", f"{path}/status", encode({"status": status}), content_type=MERGE)


async def _gang(transport: Transport, name: str, make: Callable[[str], bytes]) -> None:
    """Carry out the lives of a gang."""
    await retry(transport, "POST", pod_groups("default"), encode(pod_group(name, Gang(size=_GANG))))
    async with asyncio.TaskGroup() as tasks:
        for number in range(_GANG):
            member = f"{name}-{number}"
            tasks.create_task(_live(transport, member, in_group(make(member), name), node=None))


def _arguments(folder: Path, **settings: object) -> tuple[str, ...]:
    """Write a configuration with these settings; return the arguments of the scheduler's command."""
    file = folder / "scheduler.json"
    file.write_bytes(
        encode(
            {
                "apiVersion": "agent-scheduler/v1",
                "kind": "SchedulerConfiguration",
                "profiles": [{"schedulerName": "own"}],
                "leaderElection": {"leaderElect": False},
                "logging": {"level": "warning"},
                **settings,
            }
        )
    )
    return ("--kubeconfig", str(folder / "kubeconfig"), "--config", str(file))


async def measure(nodes: int, pods: int, *, lives: int, rate: float, reports: int, idle: float) -> SizeCosts:
    """Measure at one size, with `lives` pods of each kind at `rate` per second. Raises ProcessError, RequestFailed."""
    size = Nodes(count=nodes, cpu="64", memory="512Gi", pods=250)
    with TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        async with cluster(size, folder=folder, arguments=("--no-kubelets", "--tls")) as (_, transport):
            names = [node["metadata"]["name"] for node in await fetch(transport, "/api/v1/nodes")]
            makers = [_maker("other", nodeName=name) for name in names[: min(nodes, pods)]]
            await create_all(transport, PODS, (makers[n % len(makers)](f"running-{n:07}") for n in range(pods)))
            del makers
            began = time.monotonic()
            async with scheduler(_arguments(folder), folder=folder, seconds=_PATIENCE) as (process, _):
                start, start_cpu = time.monotonic() - began, _cpu(process)
                await asyncio.sleep(3)
                memory = _memory(process)
                idling = await _spent(process, asyncio.sleep(idle - 1))

                async def tell(number: int) -> None:
                    path = f"/api/v1/nodes/{names[number % min(nodes, 1000)]}/status"
                    await retry(transport, "PATCH", path, _report(number), content_type=MERGE)

                # The first reports add the images.
                await for_each(range(min(nodes, 1000)), tell, parallel=8)
                reporting = await _spent(process, _paced(reports, rate, tell))

                async def life(kind: str, how: str, pace: float) -> float:
                    make = _maker(kind)

                    async def live(number: int) -> None:
                        name = f"{kind}-{how}-{number:06}"
                        node = names[number % nodes] if kind == "foreign" else None
                        await _live(transport, name, make(name), node=node)

                    return await _spent(process, _paced(lives, pace, live)) / lives

                foreign, own = await life("foreign", "paced", rate), await life("own", "paced", rate)
                foreign_together = await life("foreign", "together", math.inf)
                own_together = await life("own", "together", math.inf)
                most = peak(process.pid) or 0
            await open_queues(transport, {})
            async with scheduler(_arguments(folder, batch={}), folder=folder, seconds=_PATIENCE) as (process, _):
                await asyncio.sleep(3)
                memory_batch = _memory(process)
                make, gangs = _maker(BATCH_SCHEDULER, grouped=True), lives // _GANG
                work = _paced(gangs, rate / _GANG, lambda number: _gang(transport, f"gang-{number:06}", make))
                gang_pod = await _spent(process, work) / (gangs * _GANG)
        return SizeCosts(
            nodes=nodes,
            pods=pods,
            start=start,
            start_cpu=start_cpu,
            memory=memory,
            memory_batch=memory_batch,
            peak=most,
            idle=idling / idle,
            node_report=reporting / reports,
            own_pod=own,
            own_pod_together=own_together,
            foreign_pod=foreign,
            foreign_pod_together=foreign_together,
            gang_pod=gang_pod,
        )
