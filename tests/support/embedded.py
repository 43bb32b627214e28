"""An embedded cluster for tests: the real API server, over real HTTP, in the test's own process."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint
from embedded_kubernetes import kubelet
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.resource import Resource
from embedded_kubernetes.server import Server
from embedded_kubernetes.store import Store
from tests.support.client import Client
from tests.support.client import until as until

PODS = "/api/v1/namespaces/default/pods"


class EmbeddedCluster(Client):
    """What a test says to the API server, as a user with admin rights would."""

    def __init__(self, api: Api, server: Server, transport: Http1Transport) -> None:
        super().__init__(transport)
        self.api = api
        self.server = server

    async def add_node(
        self, name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **spec: Any
    ) -> Any:
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        return await self.ask(
            "POST",
            "/api/v1/nodes",
            {
                "metadata": {"name": name, "labels": spec.pop("labels", {})},
                "spec": spec,
                "status": {"allocatable": allocatable, "capacity": allocatable},
            },
        )

    async def add_pod(
        self,
        name: str,
        *,
        cpu: str = "100m",
        scheduler: str = "agent-scheduler",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Any:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
        return await self.ask(
            "POST",
            PODS,
            {
                "metadata": {"name": name, "labels": labels or {}},
                "spec": {"schedulerName": scheduler, "containers": [container], **spec},
            },
        )

    async def pods(self) -> dict[str, Any]:
        """name -> pod, of the default namespace."""
        answer = await self.ask("GET", PODS)
        return {pod["metadata"]["name"]: pod for pod in answer["items"]}

    async def placed(self) -> dict[str, str]:
        """name -> node, of the pods that have one."""
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in (await self.pods()).items()
            if pod["spec"].get("nodeName")
        }

    async def bind(self, pod: str, node: str) -> None:
        await self.ask(
            "POST",
            f"{PODS}/{pod}/binding",
            {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}},
        )

    async def condition(self, name: str) -> dict[str, Any] | None:
        """The PodScheduled condition of a pod."""
        pod = await self.ask("GET", f"{PODS}/{name}")
        conditions = pod["status"].get("conditions") or []
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)


@asynccontextmanager
async def embedded_cluster(
    *, kubelets: bool = False, kinds: Iterable[Resource] = BUILTIN, **server: Any
) -> AsyncIterator[EmbeddedCluster]:
    """With `kubelets`, bound pods run and end as they do in `agent-scheduler cluster`."""
    numbers = itertools.count(1)
    store = Store(clock=time.time, uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}")
    api = Api(store, kinds)
    playing = asyncio.create_task(kubelet.run(kubelet.Kubelets(store), clock=time.time)) if kubelets else None
    try:
        async with Server(api, **server) as listening:
            transport = Http1Transport(Endpoint(listening.url))
            try:
                yield EmbeddedCluster(api, listening, transport)
            finally:
                await transport.close()
    finally:
        if playing is not None:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing
