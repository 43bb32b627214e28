"""A client of an API server with assertions, the base of the test clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any

from kube_client.testing.virtual import is_virtual
from kube_client.transport import OutcomeUnknown, Response, Transport, TransportError

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
#: The limit in seconds that ends a test that hangs; more than any step takes on a busy machine.
PATIENCE = 180.0
_BUSY = (429, 500, 503)
_AT_ONCE = 16


async def until(what: Callable[[], Any], *, seconds: float = 0.0) -> Any:
    """Return the first true result of `what`, which may be a coroutine function.

    It fails after `seconds`. The default is 20 in virtual time and `PATIENCE` in real time.
    """
    clock = asyncio.get_running_loop().time
    seconds = seconds or (20.0 if is_virtual() else PATIENCE)
    ends = clock() + seconds
    while True:
        answer = what()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        assert clock() < ends, f"still {answer!r} after {seconds} s"
        await asyncio.sleep(0.01)


class Client:
    """A user with the rights of the transport, by default an administrator's."""

    #: Whether a request is retried while the server is overloaded, or if the connection breaks.
    patient = False

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def call(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> Response:
        data = None if body is None else json.dumps(body).encode()
        request = self.transport.request
        if not self.patient:
            return await request(method, path, body=data, content_type=content_type, timeout=PATIENCE)
        unsure = False
        for _ in range(100):
            try:
                async with self._slots:
                    answer = await request(method, path, body=data, content_type=content_type, timeout=PATIENCE)
            except TransportError as error:
                unsure = unsure or isinstance(error, OutcomeUnknown)
                pause = 0.1
            else:
                if unsure and method == "POST" and answer.status == 409:
                    # The attempt whose response was lost has succeeded, because only this test uses the name.
                    return await self.call("GET", _created(path, body))
                if unsure and method == "DELETE" and answer.status == 404:
                    return Response(200, b"{}", {})
                if answer.status not in _BUSY:
                    return answer
                pause = float(answer.headers.get("Retry-After", "0.2"))
            await asyncio.sleep(min(pause, 2.0))
        raise AssertionError(f"{method} {path}: no answer, or too many requests, a hundred times")

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        also: Collection[int] = (),
    ) -> Any:
        """Return the object in the response; a status that is neither 2xx nor in `also` fails the test."""
        answer = await self.call(method, path, body, content_type=content_type)
        assert answer.status < 300 or answer.status in also, (method, path, answer.status, answer.body[:2000])
        return json.loads(answer.body)

    async def seen(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Return the object at `path` once `holds` is true for it; {} represents a missing object."""

        async def looked() -> list[Any]:
            answer = await self.call("GET", path)
            found = json.loads(answer.body) if answer.status < 300 else {}
            return [found] if holds(found) else []

        (found,) = await until(looked)
        return found

    async def get(self, path: str) -> Any:
        return await self.ask("GET", path)

    async def add(self, path: str, body: object) -> Any:
        return await self.ask("POST", path, body)

    async def patch(self, path: str, body: object, content_type: str = MERGE) -> Any:
        return await self.ask("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, **options: Any) -> Any:
        return await self.ask("DELETE", path, options or None)

    async def end_pod(self, name: str) -> None:
        """Delete a pod of the namespace `default` immediately, as the server does with a pod without a node."""
        await self.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")

    async def merge(self, path: str, change: object) -> Any:
        """Send a merge patch; return the resulting object."""
        return await self.ask("PATCH", path, change, content_type=MERGE)

    async def items(self, path: str) -> list[Any]:
        found: list[Any] = (await self.ask("GET", path))["items"]
        return found


def _created(path: str, body: object) -> str:
    """Return the path of the object that a POST creates; for a binding, that of its pod."""
    assert isinstance(body, dict)
    collection, _, subresource = path.rpartition("/")
    return collection if subresource == "binding" else f"{path}/{body['metadata']['name']}"
