"""Clients of the same server with an administrator's token: in process, also with protobuf, and over HTTP."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from embedded_kubernetes import protobuf
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door, Headers
from embedded_kubernetes.server import Server
from embedded_kubernetes.store import Store

from ..in_go import ACCEPT, PROTOBUF, events, sent

Answer = tuple[int, dict[str, str], bytes]
_JSON = "application/json"


def api(auth: Options, clock: Callable[[], float] = time.time) -> Api:
    store = Store(clock=clock, uid=lambda: str(uuid.uuid4()))
    # The recorded cluster had no controller manager.
    return Api(store, BUILTIN, auth=auth, controllers=False)


class Client(ABC):
    """A client; `own` has the headers of the administrator's requests."""

    def __init__(self, token: str) -> None:
        self.own = {"Authorization": f"Bearer {token}"}

    @abstractmethod
    async def request(self, method: str, path: str, *, body: bytes | None = None, headers: Headers) -> Answer: ...

    @abstractmethod
    def watch(self, path: str, *, headers: Headers) -> Any:
        """Return a context with the status and the lines."""

    def comparable(self, value: Any) -> Any:
        """Return an expected or found object without what this client cannot tell."""
        return value

    async def call(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json"
    ) -> tuple[int, Any]:
        """Send a request of the administrator and return the status and the object of its answer."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {**self.own, "Content-Type": media}
        status, _, answer = await self.request(method, path, body=raw, headers=headers)
        return status, json.loads(answer)


class InProcess(Client):
    def __init__(self, door: Door, token: str) -> None:
        super().__init__(token)
        self._door = door

    async def request(self, method: str, path: str, *, body: bytes | None = None, headers: Headers) -> Answer:
        return await self._door.request(method, path, body=body, headers=headers)

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Headers) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        watching = await self._door.watch(path, headers=headers)
        try:
            yield watching.status, watching
        finally:
            await watching.aclose()


class InProtobuf(InProcess):
    """A client in Go: it sends and receives protobuf, if the object and the client's own headers allow that."""

    async def request(self, method: str, path: str, *, body: bytes | None = None, headers: Headers) -> Answer:
        headers = dict(headers)
        if (
            body is not None
            and headers.get("Content-Type", _JSON) == _JSON
            and (found := _in_protobuf(body)) is not None
        ):
            body, headers["Content-Type"] = found, PROTOBUF
        if headers.get("Accept", _JSON) == _JSON:
            headers["Accept"] = ACCEPT
        status, answered, raw = await super().request(method, path, body=body, headers=headers)
        if answered["content-type"] == PROTOBUF:
            answered = {**answered, "content-type": _JSON}
            raw = json.dumps(_with_lists(protobuf.decode(raw))).encode() if raw else b""
        return status, answered, raw

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Headers) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        headers = {"Accept": ACCEPT, **headers}
        async with super().watch(path, headers=headers) as (status, frames):
            yield status, (_line(frame) async for frame in frames)

    def comparable(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.comparable(item) for item in value]
        if not isinstance(value, dict):
            return value
        kept = {key: self.comparable(item) for key, item in value.items()}
        if value.get("kind", "").startswith("API"):
            # In JSON, some kinds of discovery have no version.
            kept.pop("apiVersion", None)
        return {key: item for key, item in kept.items() if key == "metadata" or item not in (None, {}, [])}


def _with_lists(obj: Any) -> Any:
    """Return a list with its items, which protobuf leaves out if there are none."""
    return {"items": [], **obj} if obj["kind"].endswith("List") else obj


def _in_protobuf(body: bytes) -> bytes | None:
    """Return the body of a client in Go; None if it has no such form, or another meaning."""
    try:
        obj = json.loads(body)
        encoded = protobuf.encode(obj)
        return sent(obj) if encoded is not None and protobuf.decode(encoded) == obj else None
    except (ApiError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _line(frame: bytes) -> bytes:
    """Return the JSON of an event, or of the object that refuses the watch. It may be JSON already."""
    if frame[:1] == b"{":
        return frame
    if frame[:1] == b"k":
        return json.dumps(protobuf.decode(frame)).encode()
    ((type_, obj),) = events([frame])
    return json.dumps({"type": type_, "object": obj}).encode()


class OverHttp(Client):
    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        super().__init__(token)
        self._session = session
        self._url = url

    async def request(self, method: str, path: str, *, body: bytes | None = None, headers: Headers) -> Answer:
        url = URL(self._url + path, encoded=True)
        async with self._session.request(method, url, data=body, headers=_sent(headers)) as response:
            # A header that was sent several times is one list.
            found = {name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers}
            return response.status, found, await response.read()

    @asynccontextmanager
    async def watch(self, path: str, *, headers: Headers) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        url = URL(self._url + path, encoded=True)
        async with self._session.get(url, headers=_sent(headers)) as response:
            yield response.status, aiter(response.content)


def _sent(headers: Headers) -> CIMultiDict[str]:
    """Return the headers with each list of values as a header that is sent several times."""
    sent: CIMultiDict[str] = CIMultiDict()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            sent.add(name, value)
    return sent


@asynccontextmanager
async def open_door(kind: str, served: Api, token: str) -> AsyncIterator[Client]:
    """Yield a client of `kind`, "in-process", "protobuf" or "http", of a server."""
    if kind != "http":
        door = Door(served)
        try:
            yield InProtobuf(door, token) if kind == "protobuf" else InProcess(door, token)
        finally:
            door.close()
        return
    async with Server(served) as server, aiohttp.ClientSession(auto_decompress=False) as session:
        yield OverHttp(session, server.url, token)
