"""A webhook over real HTTPS that answers like the recorder's, and records its calls."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

from embedded.sockets import answering

_NAMES = ("127.0.0.1", "localhost", "hook.hooks.svc")
#: The port in the recorder's Service in front of its webhook.
_RECORDED_PORT = "23201"


class Called(NamedTuple):
    """A call as it was received."""

    path: str
    headers: dict[str, str]
    review: Any


class Hooks:
    """The answers of the webhooks for the current line, and their calls."""

    def __init__(self) -> None:
        self.called: list[Called] = []
        self._answers: list[dict[str, Any]] = []
        #: An address without a server.
        self._elsewhere = ""
        self.places: dict[str, str] = {}

    def expect(self, webhooks: list[dict[str, Any]]) -> None:
        self.called = []
        self._answers = list(webhooks)

    def filled(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the line with addresses and certificates of this run."""
        text = json.dumps(line)
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        found: dict[str, Any] = json.loads(text.replace(_RECORDED_PORT, self.places["hook"].rpartition(":")[2]))
        return found

    async def respond(self, request: web.Request) -> web.Response:
        path = request.path_qs
        sent_body = await request.read()
        # A redirected call has no body.
        review = json.loads(sent_body) if sent_body else None
        sent = {name: request.headers.get(name, "") for name in ("Content-Type", "Accept")}
        self.called.append(Called(path, sent, review))
        # The next recorded answer for this path. A delete may be reviewed less often, or once more.
        found = [each for each in self._answers if each["path"] == path]
        if not found:
            return web.Response(status=404)
        if len(found) > 1:
            self._answers.remove(found[0])
        answer = found[0]["answer"]
        await asyncio.sleep(answer.get("delaySeconds") or 0)
        if answer["status"] == 0:
            # The recorder closed the connection.
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
        if review is not None:
            body = body.replace("<uid>", review["request"]["uid"])
        headers = {"Location": self._leads_to(path)} if 300 <= answer["status"] < 400 else {}
        return web.Response(status=answer["status"], text=body, content_type=answer["contentType"], headers=headers)

    def _leads_to(self, path: str) -> str:
        """Return the target of a redirect: the next call of the line, or the address without a server.

        The headers of answers were not recorded.
        """
        later = [each["path"] for each in self._answers if each["path"] != path]
        return f"https://{self.places['hook']}{later[0]}" if later else self._elsewhere

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Answer for `{hook}` and `{badtls}`."""
        async with answering(self.respond, *_NAMES) as (hook, ca), answering(self.respond, *_NAMES) as other:
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                refused = f"127.0.0.1:{nobody.getsockname()[1]}"
                self._elsewhere = f"https://{refused}/elsewhere"
                signed = {"ca": ca, "otherca": other[1]}
                self.places = {"hook": hook, "badtls": other[0], "refused": refused} | {
                    name: base64.b64encode(authority).decode() for name, authority in signed.items()
                }
                yield
