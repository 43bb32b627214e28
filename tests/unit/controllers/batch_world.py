"""The queue and podgroup controllers' process against an embedded cluster, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import yaml

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.kube.transport import Response, Transport
from agent_scheduler.objects.batch import QUEUES, pod_groups, queue_path
from agent_scheduler.process.controller_flags import PODGROUP, QUEUE, ControllersSettings
from agent_scheduler.process.controllers import ControllersProcess
from tests.support.batched import COMMANDS, command, install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.places import CONFIG

MERGE = "application/merge-patch+json"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def settings(
    *enabled: str, schedulers: tuple[str, ...] = ("volcano",), elect: bool = False
) -> ControllersSettings:
    return ControllersSettings(
        enabled=enabled or (QUEUE, PODGROUP),
        kubeconfig="",
        election=LeaderElection(
            leader_elect=elect,
            lease_duration=2,
            renew_deadline=1.0,
            retry_period=0.1,
            resource_name="controllers",
            resource_namespace="default",
        ),
        serving=Serving(port=0),
        logging=Logging(),
        sharding=ControllerSettings(
            flags=ShardingSettings(
                parse_scheduler_configs(DEFAULT_SCHEDULER_CONFIGS).plan, 60.0, True, "the flags"
            )
        ),
        podgroup=PodGroupSettings(schedulers=schedulers),
    )


class BatchWorld:
    """Owner of the processes, which end with it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._running: dict[ControllersProcess, asyncio.Task[int]] = {}

    def start(self, *enabled: str, transport: Any = None, **more: Any) -> ControllersProcess:
        process = ControllersProcess(
            settings(*enabled, **more),
            **self.cluster.way(transport),
            identity=f"c{len(self._running)}",
        )
        self._running[process] = asyncio.create_task(process.run(signals=False))
        return process

    async def stop(self, process: ControllersProcess) -> None:
        process.stop()
        assert await asyncio.wait_for(self._running.pop(process), 20) == 0

    async def kill(self, process: ControllersProcess) -> None:
        """At once, in the midst of whatever it does."""
        task = self._running.pop(process)
        task.cancel()
        await asyncio.wait({task})

    async def end(self) -> None:
        for process in list(self._running):
            await self.stop(process)

    # ---- what a user does

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        return await self.cluster.ask("PATCH", path, body, content_type=MERGE)

    async def command(self, action: str, queue: str) -> None:
        await self.cluster.ask("POST", COMMANDS, command(action, queue))

    # ---- what there is

    async def queue(self, name: str) -> Any:
        return await self.cluster.ask("GET", queue_path(name))

    async def queues(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in (await self.cluster.ask("GET", QUEUES))["items"]}

    async def groups(self) -> dict[str, Any]:
        return {
            each["metadata"]["name"]: each
            for each in (await self.cluster.ask("GET", pod_groups("default")))["items"]
        }

    async def state(self, name: str) -> str:
        answer = await self.cluster.call("GET", queue_path(name))
        return (
            (yaml.safe_load(answer.body).get("status") or {}).get("state", "") if answer.status == 200 else ""
        )

    async def until_states(self, **states: str) -> None:
        async def so() -> bool:
            return all([await self.state(name) == state for name, state in states.items()])

        await until(so)

    async def until_no_commands(self) -> None:
        async def so() -> bool:
            return not (await self.cluster.ask("GET", COMMANDS))["items"]

        await until(so)


@asynccontextmanager
async def batch_world(*, kinds: bool = True, **server: Any) -> AsyncIterator[BatchWorld]:
    """A cluster with, or without, the kinds of batch scheduling. In the end every process ends in order."""
    async with embedded_cluster(**server) as cluster:
        world = BatchWorld(cluster)
        if kinds:
            await install_all(cluster)
        try:
            yield world
            await world.end()
        finally:
            for task in world._running.values():
                task.cancel()


async def install_all(cluster: EmbeddedCluster) -> None:
    await install(cluster)
    commands = CONFIG / "crd" / "bus.volcano.sh_commands.yaml"
    await cluster.ask("POST", _DEFINITIONS, yaml.safe_load(commands.read_text()))


class Dying:
    """A transport of a process that dies at its write number `at`, which is sent or not.

    What it has sent before is carried out, nothing happens after that, and then `died` is set.
    """

    def __init__(self, transport: Transport, at: int, *, sent: bool) -> None:
        self._transport = transport
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
                    await self._transport.request(method, path, **more)
                if self._under_way:
                    await asyncio.wait(self._under_way)
                self.died.set()
        if self._is_dead:
            await asyncio.Event().wait()
        sending = asyncio.ensure_future(self._transport.request(method, path, **more))
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)
        return await sending

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._transport.stream(path, read_timeout=read_timeout)

    async def close(self) -> None: ...


async def dies(it: BatchWorld, at: int, *enabled: str, sent: bool) -> bool:
    """Run a process of these controllers that dies at a write. False: it had no such write to make."""
    dying = Dying(it.cluster.transport, at, sent=sent)
    process = it.start(*enabled, transport=dying)
    try:
        await asyncio.wait_for(dying.died.wait(), 1.5)
    except TimeoutError:
        return False
    finally:
        await it.kill(process)
    return True
