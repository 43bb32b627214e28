"""Requests that wait for webhooks, over sockets: order, clients that disconnect, faults."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from embedded.sockets import injector, serving
from embedded.support import MAPS, config_map, hooked, labelling, until


async def test_requests_behind_one_that_waits_keep_their_order_and_others_go_on() -> None:
    released = asyncio.Event()

    async def waits(request: dict[str, Any]) -> dict[str, Any]:
        await released.wait()
        return labelling("x")

    world = hooked("Mutating", waits)
    async with serving(world) as served:
        client, other = await served.client(), await served.client()
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

    world = hooked("Mutating", never)
    async with serving(world) as served:
        client = await served.client()
        client.post(MAPS, config_map("a"))
        await until(lambda: len(world.asked) == 1)
        client.writer.close()
        await asyncio.wait_for(ended.wait(), 60)
    assert world.names(MAPS) == []


async def test_a_fault_meets_a_request_that_waited_for_a_webhook() -> None:
    match = {"resource": "configmaps", "verbs": ["create"]}
    rule = {"match": match, "first": 1, "fault": {"lose": {}}}
    world = hooked("Mutating", lambda request: labelling("x"))
    async with serving(world, disturb=injector(rule)) as served:
        client, other = await served.client(), await served.client()
        client.post(MAPS, config_map("a"))
        assert await client.ended()
        other.get(f"{MAPS}/a")
        status, body = await other.answer()
        assert (status, orjson.loads(body)["metadata"]["labels"]) == (200, {"x": "1"})


async def test_an_error_of_the_server_itself_is_answered() -> None:
    def fails(request: dict[str, Any]) -> None:
        raise KeyError("a fault of the transport")

    world = hooked("Mutating", fails)
    async with serving(world) as served:
        client = await served.client()
        client.post(MAPS, config_map("a"))
        status, body = await client.answer()
        assert (status, orjson.loads(body)["reason"]) == (500, "InternalError")
        client.get(f"{MAPS}/a")
        assert (await client.answer())[0] == 404
