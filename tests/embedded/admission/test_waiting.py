"""Requests that wait for webhooks, over sockets: order, clients that go, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.server import Server
from tests.embedded.api.test_http import Client

from ..support import MAPS, World, config_map, labelling, until, webhook


@asynccontextmanager
async def _serving(world: World, **options: Any) -> AsyncIterator[list[Client]]:
    """Two clients of a server over sockets."""
    async with Server(world.api, **options) as server:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        try:
            yield clients
        finally:
            for client in clients:
                client.writer.close()


async def test_requests_behind_one_that_waits_keep_their_order_and_others_go_on() -> None:
    released = asyncio.Event()

    async def waits(request: dict[str, Any]) -> dict[str, Any]:
        await released.wait()
        return labelling("x")

    world = World(hooks={"m": waits})
    world.configure("Mutating", webhook("m"))
    async with _serving(world) as (client, other):
        client.post(MAPS, config_map("a"))
        client.get(f"{MAPS}/a")
        client.post(MAPS, config_map("b"))
        await until(lambda: len(world.asked) == 1)
        other.get(f"{MAPS}/a")
        assert (await other.answer())[0] == 404
        released.set()
        found = [await client.answer() for _ in range(3)]
        assert [status for status, _ in found] == [201, 200, 201]
        assert orjson.loads(found[1][1])["metadata"]["labels"] == {"x": "1"}


async def test_a_client_that_goes_away_takes_its_request_along() -> None:
    ended = asyncio.Event()

    async def never(request: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    world = World(hooks={"m": never})
    world.configure("Mutating", webhook("m"))
    async with _serving(world) as (client, _):
        client.post(MAPS, config_map("a"))
        await until(lambda: len(world.asked) == 1)
        client.writer.close()
        await asyncio.wait_for(ended.wait(), 5)
    assert world.names(MAPS) == []


async def test_a_fault_meets_a_request_that_waited_for_a_webhook() -> None:
    rules = [{"match": {"resource": "configmaps", "verbs": ["create"]}, "first": 1, "fault": {"lose": {}}}]
    injector = Injector(plan_of(orjson.dumps({"rules": rules}).decode()))
    world = World(hooks={"m": lambda request: labelling("x")})
    world.configure("Mutating", webhook("m"))
    async with _serving(world, disturb=injector) as (client, other):
        client.post(MAPS, config_map("a"))
        assert await client.ended()
        other.get(f"{MAPS}/a")
        status, body = await other.answer()
        assert (status, orjson.loads(body)["metadata"]["labels"]) == (200, {"x": "1"})


async def test_an_error_of_the_server_itself_is_answered() -> None:
    def fails(request: dict[str, Any]) -> None:
        raise KeyError("a fault of the transport")

    world = World(hooks={"m": fails})
    world.configure("Mutating", webhook("m"))
    async with _serving(world) as (client, _):
        client.post(MAPS, config_map("a"))
        status, body = await client.answer()
        assert (status, orjson.loads(body)["reason"]) == (500, "InternalError")
        client.get(f"{MAPS}/a")
        assert (await client.answer())[0] == 404
