"""A collection of objects from an API server, updated by list and watch, on which tests wait.

It does not use the product's reflector, which is under test. After a watch is cut, refused or expired, it lists again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode

from kube_client.transport import StreamRefused, Transport, TransportError
from tests.support.client import PATIENCE

T = TypeVar("T")
Object = dict[str, Any]


class Picture:
    """Follows `path` while it is entered. Owner of `objects` and `history`, which contain only the server's states."""

    def __init__(self, transport: Transport, path: str, query: Mapping[str, str] | None = None) -> None:
        self._transport = transport
        self._path = path
        self._query = dict(query or {})
        #: The objects by UID.
        self.objects: dict[str, Object] = {}
        #: Every observed state of every object, in the server's order.
        self.history: list[Object] = []
        self._changed = asyncio.Event()
        self._listed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Picture:
        self._task = asyncio.create_task(self._follow())
        waiting = asyncio.create_task(self._listed.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    def named(self, name: str) -> Object | None:
        return next((obj for obj in self.objects.values() if obj["metadata"]["name"] == name), None)

    async def until(self, sees: Callable[[], T | None], what: str) -> T:
        """Return the first true result of `sees`, which is called after each change."""
        assert self._task is not None
        end = time.monotonic() + PATIENCE
        while True:
            self._changed.clear()
            answer = sees()
            if answer:
                return answer
            left = end - time.monotonic()
            assert left > 0, f"not seen within {PATIENCE:g} s: {what}; {self._told()}"
            waiting = asyncio.create_task(self._changed.wait())
            await asyncio.wait({waiting, self._task}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._task.done():
                self._task.result()

    def _told(self) -> str:
        shown = [
            {
                "name": obj["metadata"]["name"],
                "nodeName": (obj.get("spec") or {}).get("nodeName"),
                "conditions": (obj.get("status") or {}).get("conditions"),
            }
            for obj in list(self.objects.values())[:20]
        ]
        return f"{len(self.objects)} objects: {json.dumps(shown)}"

    # ---- following

    async def _follow(self) -> None:
        while True:
            try:
                version = await self._list()
                await self._watch(version)
            except (StreamRefused, TransportError):
                await asyncio.sleep(0.1)

    async def _list(self) -> str:
        answer = await self._transport.request("GET", f"{self._path}?{urlencode(self._query)}", timeout=30)
        if answer.status in (429, 500, 503, 504):
            raise StreamRefused(answer)
        assert answer.status == 200, (self._path, answer.status, answer.body)
        listed = json.loads(answer.body)
        before, self.objects = self.objects, {obj["metadata"]["uid"]: obj for obj in listed["items"]}
        self.history += [obj for uid, obj in self.objects.items() if obj != before.get(uid)]
        self._listed.set()
        self._changed.set()
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        query = urlencode({**self._query, "watch": "1", "resourceVersion": version})
        async with self._transport.stream(f"{self._path}?{query}", read_timeout=300) as batches:
            async for lines in batches:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    self._take(event["type"], event["object"])
                self._changed.set()

    def _take(self, kind: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self.objects.pop(uid, None)
        elif kind != "BOOKMARK":
            self.objects[uid] = obj
            self.history.append(obj)
