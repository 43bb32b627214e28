"""An embedded cluster on a real port, for what talks to one."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from agent_scheduler.apiserver import kubelet
from agent_scheduler.apiserver.builtin import BUILTIN
from agent_scheduler.apiserver.handlers import Api
from agent_scheduler.apiserver.server import Server
from agent_scheduler.apiserver.store import Store
from agent_scheduler.demo.client import Client, Endpoint


@dataclass
class Embedded:
    api: Api
    server: Server
    client: Client

    async def bind(self, pod: str, node: str) -> int:
        body = b'{"metadata":{"name":"%s"},"target":{"kind":"Node","name":"%s"}}' % (
            pod.encode(),
            node.encode(),
        )
        path = f"/api/v1/namespaces/default/pods/{pod}/binding"
        return (await self.client.request("POST", path, body=body)).status


@pytest.fixture
async def embedded() -> AsyncIterator[Embedded]:
    store = Store(clock=time.time, uid=lambda: str(uuid.uuid4()))
    api = Api(store, BUILTIN)
    playing = asyncio.create_task(kubelet.run(kubelet.Kubelets(store), clock=time.time))
    async with Server(api) as server:
        client = Client(Endpoint(server.url), connections=4, patience=10)
        yield Embedded(api, server, client)
        await client.close()
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
