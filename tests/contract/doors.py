"""Two ways to the same server: in process, and over HTTP. Both speak as a client that has the token."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aiohttp
from yarl import URL

from agent_scheduler.apiserver.builtin import BUILTIN
from agent_scheduler.apiserver.handlers import Api
from agent_scheduler.apiserver.inproc import Door
from agent_scheduler.apiserver.server import Server
from agent_scheduler.apiserver.store import Store

TOKEN = "the-token-of-this-test"


class Client(Protocol):
    """What a replay needs of a door."""

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]: ...

    def watch(self, path: str, *, headers: dict[str, str]) -> Any: ...


def api() -> Api:
    store = Store(clock=time.time, uid=lambda: str(uuid.uuid4()))
    # The recorded cluster had no controller manager.
    return Api(store, BUILTIN, token=TOKEN, controllers=False)


class InProcess:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        return await self._door.request(method, path, body=body, headers=headers)

    @asynccontextmanager
    async def watch(
        self, path: str, *, headers: dict[str, str]
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        watching = await self._door.watch(path, headers=headers)
        try:
            yield watching.status, watching
        finally:
            await watching.aclose()


class OverHttp:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        url = URL(self._url + path, encoded=True)
        async with self._session.request(method, url, data=body, headers=headers) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return response.status, found, await response.read()

    @asynccontextmanager
    async def watch(
        self, path: str, *, headers: dict[str, str]
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        url = URL(self._url + path, encoded=True)
        async with self._session.get(url, headers=headers) as response:
            yield response.status, _lines(response)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for line in response.content:
        yield line


@asynccontextmanager
async def open_door(kind: str) -> AsyncIterator[Client]:
    """A fresh server behind a door of `kind`: "in-process" or "http"."""
    if kind == "in-process":
        door = Door(api())
        try:
            yield InProcess(door)
        finally:
            door.close()
        return
    server = Server(api())
    await server.start()
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield OverHttp(session, server.url)
    finally:
        await server.stop()
