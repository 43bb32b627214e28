"""The writes of Reserve and PreBind plugins, and the tasks that run beside decisions and binds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.cluster.storage import Storage
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.retry import Timing

from .claim_writer import PatchCall
from .device_waits import DeviceWaits, WaitMessenger, WaitObserver
from .extended_claims import CreateCall, DeleteCall
from .pod_claims import PodClaims
from .volume_writer import VolumeWriter


class BindQueries(Protocol):
    async def is_pending(self, pod: PodInfo) -> bool | None:
        """Return whether the API server has the pod without a node; None if it does not respond."""


class ObjectCalls(Protocol):
    """Requests about single objects; see the functions of these names in `kube`."""

    @property
    def patch(self) -> PatchCall: ...
    @property
    def create(self) -> CreateCall: ...
    @property
    def delete(self) -> DeleteCall: ...
    @property
    def binds(self) -> BindQueries: ...


class _Work(NamedTuple):
    """Work for a task, and the function to call if it cannot run."""

    run: Callable[[], Awaitable[None]]
    drop: Callable[[], None]


class Background:
    """Owner of the tasks that run beside decisions and binds."""

    def __init__(self) -> None:
        self._work: asyncio.Queue[_Work] = asyncio.Queue()

    def start(self, run: Callable[[], Awaitable[None]], drop: Callable[[], None]) -> None:
        """Execute `run` in a task, or call `drop` if this object's `run` is cancelled before the task begins."""
        self._work.put_nowait(_Work(run, drop))

    async def run(self) -> None:
        """Run the tasks until cancelled; running tasks are cancelled too."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(_run(await self._work.get()))
        finally:
            while not self._work.empty():
                self._work.get_nowait().drop()


class PluginWrites:
    """Implements `Writes` of `engine.framework.prebind`."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        storage: Storage,
        claims: ResourceClaims,
        calls: ObjectCalls,
        messenger: WaitMessenger,
        observer: WaitObserver,
        background: Background,
        caught_up: Callable[[str], Awaitable[None]],
        timing: Timing,
    ) -> None:
        """Create the writers; `caught_up` is as for `ClaimWriter`."""
        self._patch = calls.patch
        self.volumes = VolumeWriter(cluster=cluster, storage=storage, patch=calls.patch, clock=timing.clock)
        self.claims = PodClaims(
            cluster=cluster,
            claims=claims,
            waits=DeviceWaits(
                claims, messenger=messenger, observer=observer, clock=timing.clock, now=timing.now
            ),
            patch=calls.patch,
            create=calls.create,
            delete=calls.delete,
            is_pending=calls.binds.is_pending,
            caught_up=caught_up,
            beside=background.start,
        )

    async def patch(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False
    ) -> str:
        patched = await self._patch(path, body, wanted=wanted, strategic=strategic)
        return "" if patched.failure is None else str(patched.failure)


async def _run(work: _Work) -> None:
    await work.run()
