"""The webhook's Secret and the authority in its configurations stay correct despite other clients' changes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from agent_scheduler.webhook.authority import CertificateBundle
from agent_scheduler.webhook.configurations import MUTATING, VALIDATING
from agent_scheduler.webhook.picture import Picture
from embedded_kubernetes.requests import Request
from tests.support.embedded import until
from tests.support.webhooks import NAME, SECRET, World, ignored, manifest, webhooks

CONFIGURATIONS = {f"{MUTATING}/{NAME}": "mutating.yaml", f"{VALIDATING}/{NAME}": "validating.yaml"}


class Keeping:
    """A process's certificates without its server, and the writes that reach the API server."""

    def __init__(self) -> None:
        self.presented: list[CertificateBundle] = []
        self.writes: list[str] = []

    def count(self, request: Request) -> None:
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")

    @asynccontextmanager
    async def runs(self, world: World) -> AsyncIterator[None]:
        process, transport = world.made(), world.cluster.transport
        process._present_own = self.presented.append  # type: ignore[method-assign]
        picture = Picture(transport, metrics=process.metrics, timing=process._timing)
        task = asyncio.create_task(process._certificates(transport, picture)())
        yield
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def is_right(self, world: World) -> bool:
        """Return whether all objects exist and have the same authority."""
        if {(await world.cluster.call("GET", path)).status for path in (SECRET, *CONFIGURATIONS)} != {200}:
            return False
        data = await world.secret()
        trusted = base64.b64encode(data.get("ca.crt", b"")).decode()
        is_trusted = trusted and await world.bundles() == [{trusted}, {trusted}]
        return bool(is_trusted) and self.presented[-1].certificate == data["tls.crt"]

    async def is_right_at_once(self, world: World) -> None:
        """Wait for it, and assert that nothing is written from then on."""
        await until(lambda: self.is_right(world), seconds=2)
        before = len(self.writes)
        await asyncio.sleep(60)
        assert (self.writes[before:], await self.is_right(world)) == ([], True)


async def install(world: World, path: str) -> None:
    """Create a configuration like a user; the webhook creates the Secret."""
    await world.cluster.ask("POST", path.rpartition("/")[0], ignored(manifest(CONFIGURATIONS[path])))


async def do(world: World, what: str, path: str, old: Any) -> None:
    if what == "deleted":
        await world.cluster.ask("DELETE", path)
        if path != SECRET:
            await install(world, path)
    elif what == "restored":
        await world.merge(path, {key: old[key] for key in ("data", "webhooks") if key in old})
    elif path == SECRET:
        await world.merge(path, {"data": dict.fromkeys(("tls.crt", "mine"), base64.b64encode(b"mine").decode())})
    else:
        await world.merge(path, {"webhooks": ignored(manifest(CONFIGURATIONS[path]))["webhooks"]})


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("what", ["deleted", "edited", "restored"])
@pytest.mark.parametrize("path", [SECRET, *CONFIGURATIONS], ids=["secret", "mutating", "validating"])
async def test_what_others_do_to_what_it_writes_is_put_right(path: str, what: str, running: bool) -> None:
    keeping = Keeping()
    async with webhooks(disturb=keeping.count) as world:
        async with keeping.runs(world):
            await until(lambda: keeping.is_right(world))
            old = await world.cluster.ask("GET", path)
            # A new authority is used from now on: a restored configuration has the old one.
            await world.merge(SECRET, {"data": None})
            await until(lambda: keeping.is_right(world))
            if running:
                await do(world, what, path, old)
                await keeping.is_right_at_once(world)
        if not running:
            await do(world, what, path, old)
            async with keeping.runs(world):
                await keeping.is_right_at_once(world)
        assert "mine" not in await world.secret()


async def test_configurations_that_come_later_are_trusted_at_once() -> None:
    keeping = Keeping()
    async with webhooks(disturb=keeping.count) as world:
        for path in CONFIGURATIONS:
            await world.cluster.ask("DELETE", path)
        async with keeping.runs(world):
            await until(lambda: keeping.presented)
            await asyncio.sleep(7)
            for path in CONFIGURATIONS:
                await install(world, path)
            await keeping.is_right_at_once(world)


async def test_who_writes_the_same_all_the_time_is_not_answered_all_the_time() -> None:
    keeping = Keeping()
    async with webhooks(disturb=keeping.count) as world, keeping.runs(world):
        await until(lambda: keeping.is_right(world))
        before = len(keeping.writes)
        for _ in range(300):
            await do(world, "edited", f"{MUTATING}/{NAME}", None)
            await asyncio.sleep(0.1)
        # The other client's are 300; beside them one every five seconds, after a burst.
        assert 5 < len(keeping.writes) - before - 300 < 20
        await until(lambda: keeping.is_right(world))
