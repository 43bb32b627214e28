"""What the webhook writes is right whatever others do to it: its Secret, and who is to trust what that holds."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agent_scheduler.webhook.authority import Held
from agent_scheduler.webhook.configurations import MUTATING, VALIDATING
from embedded_kubernetes.requests import Request
from tests.support.embedded import until
from tests.support.webhooks import NAME, SECRET, World, ignored, manifest, webhooks

#: What it writes, and the manifest of each.
MADE = {
    SECRET: "secret.yaml",
    f"{MUTATING}/{NAME}": "mutating.yaml",
    f"{VALIDATING}/{NAME}": "validating.yaml",
}


class Watched:
    """A process's certificates without its server, and the writes that reach the API server."""

    def __init__(self) -> None:
        self.presented: list[Held] = []
        self.writes: list[str] = []

    def count(self, request: Request) -> None:
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")

    @asynccontextmanager
    async def kept(self, world: World) -> AsyncIterator[None]:
        process = world.made()
        process._present_own = self.presented.append  # type: ignore[method-assign]
        task = asyncio.create_task(process._certificates(world.cluster.transport, world.picture(process))())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def settled(self, world: World) -> bool:
        """Whether all is there, and all of one authority."""
        if {(await world.cluster.call("GET", path)).status for path in MADE} != {200}:
            return False
        data = await world.secret()
        trusted = base64.b64encode(data.get("ca.crt", b"")).decode()
        is_trusted = trusted and await world.bundles() == [{trusted}, {trusted}]
        return bool(is_trusted) and self.presented[-1].certificate == data["tls.crt"]


async def do(world: World, what: str, path: str, old: Any) -> None:
    if what == "deleted":
        await world.cluster.ask("DELETE", path)
        if path != SECRET:
            # By who has installed it; the Secret is made again by the webhook.
            await world.cluster.ask("POST", path.rpartition("/")[0], ignored(manifest(MADE[path])))
    elif what == "restored":
        await world.merge(path, {key: old[key] for key in ("data", "webhooks") if key in old})
    elif path == SECRET:
        await world.merge(path, {"data": {"tls.crt": base64.b64encode(b"mine").decode()}})
    else:
        await world.merge(path, {"webhooks": ignored(manifest(MADE[path]))["webhooks"]})


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("what", ["deleted", "edited", "restored"])
@pytest.mark.parametrize("path", MADE, ids=["secret", "mutating", "validating"])
async def test_what_others_do_to_what_it_writes_is_put_right_at_once(
    path: str, what: str, running: bool
) -> None:
    watched = Watched()
    async with webhooks(disturb=watched.count) as world:
        async with watched.kept(world):
            await until(lambda: watched.settled(world))
            old = await world.cluster.ask("GET", path)
            # Of another authority from now on: what is restored is an old one.
            await world.merge(SECRET, {"data": None})
            await until(lambda: watched.settled(world))
            if running:
                await do(world, what, path, old)
                await at_rest(world, watched)
        if not running:
            await do(world, what, path, old)
            async with watched.kept(world):
                await at_rest(world, watched)


async def at_rest(world: World, watched: Watched) -> None:
    """Within two seconds all is right again, and from then on nothing is written."""
    began = asyncio.get_running_loop().time()
    await until(lambda: watched.settled(world))
    assert asyncio.get_running_loop().time() - began < 2
    before = len(watched.writes)
    await asyncio.sleep(60)
    assert watched.writes[before:] == []
    assert await watched.settled(world)


async def test_configurations_that_come_later_are_trusted_at_once() -> None:
    watched = Watched()
    async with webhooks(disturb=watched.count) as world:
        configurations = [path for path in MADE if path != SECRET]
        for path in configurations:
            await world.cluster.ask("DELETE", path)
        async with watched.kept(world):
            await until(lambda: watched.presented)
            await asyncio.sleep(7)
            for path in configurations:
                await world.cluster.ask("POST", path.rpartition("/")[0], ignored(manifest(MADE[path])))
            await at_rest(world, watched)


async def test_who_writes_the_same_all_the_time_is_not_answered_all_the_time() -> None:
    watched = Watched()
    async with webhooks(disturb=watched.count) as world, watched.kept(world):
        await until(lambda: watched.settled(world))
        path, before = f"{MUTATING}/{NAME}", len(watched.writes)
        for _ in range(300):
            await world.merge(path, {"webhooks": ignored(manifest("mutating.yaml"))["webhooks"]})
            await asyncio.sleep(0.1)
        # Their own are 300; beside them one every five seconds, after those that may come at once.
        assert 5 < len(watched.writes) - before - 300 < 20
        await until(lambda: watched.settled(world))
