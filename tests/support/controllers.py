"""Processes of controllers on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from prometheus_client.parser import text_string_to_metric_families

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.queues.controller import QueueCommandSettings
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.objects.batch import QUEUES, pod_groups, queue_path
from agent_scheduler.process.controller_flags import PODGROUP, QUEUE, ControllersSettings
from agent_scheduler.process.controllers import ControllersProcess
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.resource import Resource
from kube_client.testing.virtual import is_virtual
from kube_client.transport import Response, Transport
from tests.support.batched import COMMANDS, DEFINITIONS, command, definition, install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.places import CONFIG
from tests.support.transports import Through

B = TypeVar("B", bound="BatchWorld")
#: The account of the controllers if roles are installed.
CONTROLLERS = "agent-scheduler-controllers"


def settings(
    *enabled: str,
    schedulers: tuple[str, ...] = ("volcano",),
    elect: bool = False,
    configs: str = DEFAULT_SCHEDULER_CONFIGS,
    period: float = 60.0,
    trigger: bool = True,
    retry: float = 0.1,
    fence: float = 0.1,
    directory: Path | str = "",
) -> ControllersSettings:
    """Return settings; `configs`, `period` and `trigger` are the sharding controller's flags."""
    election = LeaderElection(
        leader_elect=elect,
        lease_duration=2,
        renew_deadline=1.0,
        retry_period=0.1,
        resource_name="controllers",
        resource_namespace="default",
    )
    return ControllersSettings(
        enabled=enabled or (QUEUE, PODGROUP),
        kubeconfig="",
        election=election,
        serving=Serving(port=0),
        logging=Logging(),
        sharding=ControllerSettings(
            flags=ShardingSettings(parse_scheduler_configs(configs).plan, period, trigger, "the flags"),
            lease_namespace="default",
            fence=fence,
            debounce=0.02,
            retry=retry,
        ),
        queue=QueueCommandSettings(command_namespace="default"),
        podgroup=PodGroupSettings(schedulers=schedulers),
        state_directory=str(directory),
    )


class BatchWorld(EmbeddedCluster):
    """Owner of the controllers' processes, which end with it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.api, cluster.transport, cluster._server)
        self.processes: list[ControllersProcess] = []
        self._running: dict[ControllersProcess, asyncio.Task[int]] = {}

    @property
    def cluster(self) -> EmbeddedCluster:
        return self

    def start(
        self, *enabled: str, transport: Any = None, identity: str = "", job: JobSettings | None = None, **more: Any
    ) -> ControllersProcess:
        found = settings(*enabled, **more)
        process = ControllersProcess(
            found if job is None else replace(found, job=job),
            **self.way(transport, CONTROLLERS if self.has_roles else ""),
            identity=identity or f"c{len(self.processes)}",
        )
        self.processes.append(process)
        self._running[process] = asyncio.create_task(process.run(signals=False))
        return process

    async def stop(self, process: ControllersProcess) -> None:
        process.stop()
        assert await asyncio.wait_for(self._running.pop(process), 60) == 0

    async def kill(self, process: ControllersProcess) -> None:
        """Cancel the process immediately, whatever it does."""
        task = self._running.pop(process)
        task.cancel()
        await asyncio.wait({task})

    async def end(self) -> None:
        for process in list(self._running):
            await self.stop(process)

    # ---- what a user does

    async def command(self, action: str, queue: str) -> None:
        await self.add(COMMANDS, command(action, queue))

    # ---- what there is

    def metric(self, name: str, *, of: int = -1, **labels: str) -> float:
        """Return the sum of the samples called `name` that have `labels`, of the process with this number."""
        text = self.processes[of].metrics.exposition()[0].decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def queues(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in await self.items(QUEUES)}

    async def queue(self, name: str) -> Any:
        return await self.get(queue_path(name))

    async def groups(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in await self.items(pod_groups("default"))}

    async def state(self, name: str) -> str:
        answer = await self.call("GET", queue_path(name))
        if answer.status != 200:
            return ""
        return str((yaml.safe_load(answer.body).get("status") or {}).get("state", ""))

    async def until_states(self, **states: str) -> None:
        async def so() -> bool:
            return all([await self.state(name) == state for name, state in states.items()])

        await until(so)

    async def until_no_commands(self) -> None:
        async def so() -> bool:
            return not await self.items(COMMANDS)

        await until(so)


@asynccontextmanager
async def batch_world(
    made: Callable[[EmbeddedCluster], B] = BatchWorld,  # type: ignore[assignment]
    *,
    kinds: bool = True,
    builtin: Iterable[Resource] = BUILTIN,
    **cluster: Any,
) -> AsyncIterator[B]:
    """Start a cluster with the roles of components and, if `kinds`, with the kinds of batch scheduling.

    `builtin` are the kinds of the API server itself.

    At the end, every process is stopped.
    """
    components = ("controllers", "default") if is_virtual() else ()
    async with embedded_cluster(**{"components": components, "kinds": builtin, **cluster}) as found:
        world = made(found)
        if kinds:
            await install_all(world)
        try:
            yield world
            await world.end()
        finally:
            for task in world._running.values():
                task.cancel()


async def install_all(cluster: EmbeddedCluster) -> None:
    await install(cluster)
    commands = CONFIG / "crd" / "bus.volcano.sh_commands.yaml"
    await cluster.add(DEFINITIONS, definition(commands))


class Dying(Through):
    """A transport of a process that dies at its write number `at`; `sent` is whether that write is sent.

    Earlier requests are completed, later ones are not sent, and then `died` is set.
    """

    def __init__(self, transport: Transport, at: int, *, sent: bool) -> None:
        super().__init__(transport)
        self._left = at
        self._sent = sent
        self._is_dead = False
        self._under_way: set[asyncio.Future[Response]] = set()
        self.died = asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if not self._is_dead and method != "GET":
            self._left -= 1
            self._is_dead = self._left < 0
            if self._is_dead:
                if self._sent:
                    await self.inner.request(method, path, **more)
                if self._under_way:
                    await asyncio.wait(self._under_way)
                self.died.set()
        if self._is_dead:
            await asyncio.Event().wait()
        sending = asyncio.ensure_future(self.inner.request(method, path, **more))
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)
        return await sending


async def dies(it: BatchWorld, at: int, *enabled: str, sent: bool) -> bool:
    """Run a process of these controllers that dies at write number `at`. Returns False if it makes fewer writes."""
    dying = Dying(it.transport, at, sent=sent)
    process = it.start(*enabled, transport=dying)
    try:
        await asyncio.wait_for(dying.died.wait(), 1.5)
    except TimeoutError:
        return False
    finally:
        await it.kill(process)
    return True
