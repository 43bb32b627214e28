"""The access to a server without sockets."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from embedded.support import PODS, World, pod
from embedded_kubernetes.inproc import Door, Lost
from embedded_kubernetes.requests import Disturbance

from ..virtual import virtual_time


@virtual_time
async def test_a_watch_begins_when_it_is_opened_and_ends_at_its_timeout(world: World) -> None:
    door = Door(world.api)
    watching = await door.watch(f"{PODS}?watch=1&resourceVersion={world.store.rv}&timeoutSeconds=1")
    world.pod("a")
    lines = [orjson.loads(line) async for line in watching]
    assert [(line["type"], line["object"]["metadata"]["name"]) for line in lines] == [("ADDED", "a")]
    door.close()


async def test_a_waiting_watch_is_woken_by_the_next_event(world: World) -> None:
    door = Door(world.api)
    watching = await door.watch(f"{PODS}?watch=1&resourceVersion={world.store.rv}")
    waiting = asyncio.ensure_future(watching.__anext__())
    await asyncio.sleep(0)
    world.pod("a")
    assert b'"ADDED"' in await asyncio.wait_for(waiting, 60)
    await watching.aclose()
    with pytest.raises(StopAsyncIteration):
        await watching.__anext__()
    assert len(world.api.registry.served["", "v1"]["pods"].hub) == 0
    door.close()


async def test_a_refused_watch_is_its_status_and_its_body() -> None:
    door = Door(World().api)
    watching = await door.watch(f"{PODS}?watch=1&resourceVersion=abc")
    assert watching.status == 500
    assert [orjson.loads(line)["kind"] async for line in watching] == ["Status"]
    door.close()


async def test_the_collector_gets_its_turns(world: World) -> None:
    door = Door(world.api)
    world.namespace("t")
    await door.request("DELETE", "/api/v1/namespaces/t")
    for _ in range(10):
        await asyncio.sleep(0)
    assert (await door.request("GET", "/api/v1/namespaces/t"))[0] == 404
    door.close()


async def test_faults_strike_before_or_after_the_commit(world: World) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    faults = iter([Disturbance(delay=2, drop=True), Disturbance(late=3, lose=True), None])
    door = Door(world.api, disturb=lambda request: next(faults), sleep=sleep)
    json = {"Content-Type": "application/json"}
    for name in ("dropped", "lost"):
        with pytest.raises(Lost):
            await door.request("POST", PODS, body=orjson.dumps(pod(name)), headers=json)
    assert waited == [2, 3]
    _, _, body = await door.request("GET", PODS)
    assert [item["metadata"]["name"] for item in orjson.loads(body)["items"]] == ["lost"]
    door.close()
