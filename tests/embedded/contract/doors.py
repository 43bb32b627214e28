"""Two ways to the same server: in process, and over HTTP. Both speak as a client that has the token."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door, Headers
from embedded_kubernetes.server import Server
from embedded_kubernetes.store import Store

TOKEN = "the-token-of-this-test"


class Client(Protocol):
    """What a replay needs of a door."""

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers
    ) -> tuple[int, dict[str, str], bytes]: ...

    def watch(self, path: str, *, headers: Headers) -> Any: ...


def api(auth: Options, clock: Callable[[], float] = time.time) -> Api:
    store = Store(clock=clock, uid=lambda: str(uuid.uuid4()))
    # The recorded cluster had no controller manager.
    return Api(store, BUILTIN, auth=auth, controllers=False)


class InProcess:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers
    ) -> tuple[int, dict[str, str], bytes]:
        return await self._door.request(method, path, body=body, headers=headers)

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Headers) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
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
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers
    ) -> tuple[int, dict[str, str], bytes]:
        url = URL(self._url + path, encoded=True)
        async with self._session.request(method, url, data=body, headers=_sent(headers)) as response:
            return response.status, _joined(response.headers), await response.read()

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Headers) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        url = URL(self._url + path, encoded=True)
        async with self._session.get(url, headers=_sent(headers)) as response:
            yield response.status, _lines(response)


def _sent(headers: Headers) -> CIMultiDict[str]:
    """A list of values is a header that is sent several times."""
    sent: CIMultiDict[str] = CIMultiDict()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            sent.add(name, value)
    return sent


def _joined(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """What was sent several times is one list."""
    return {name.lower(): ", ".join(headers.getall(name)) for name in headers}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for line in response.content:
        yield line


@asynccontextmanager
async def open_door(kind: str, server_api: Api | None = None) -> AsyncIterator[Client]:
    """A server behind a door of `kind`: "in-process" or "http". Unless one is given, a fresh one asks for the token."""
    served = server_api or api(Options.one_token(TOKEN))
    if kind == "in-process":
        door = Door(served)
        try:
            yield InProcess(door)
        finally:
            door.close()
        return
    server = Server(served)
    await server.start()
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield OverHttp(session, server.url)
    finally:
        await server.stop()
