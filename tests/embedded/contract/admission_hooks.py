"""A webhook over real HTTPS that answers as the recorder's did, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from embedded_kubernetes.certificates import Certificates, make_certificates
from embedded_kubernetes.server import tls_context

_NAMES = ("127.0.0.1", "localhost", "hook.hooks.svc")
#: The port of the recorder's webhook, where a Service in front of it names one.
_RECORDED_PORT = "23201"


class Called(NamedTuple):
    """A call as it came in."""

    path: str
    headers: dict[str, str]
    review: Any


class Hooks:
    """What the webhooks of the line under way are to say, and what they were asked."""

    def __init__(self) -> None:
        self.called: list[Called] = []
        self._answers: list[dict[str, Any]] = []
        #: Where nobody listens.
        self._elsewhere = ""
        self.places: dict[str, str] = {}

    def expect(self, webhooks: list[dict[str, Any]]) -> None:
        self.called = []
        self._answers = list(webhooks)

    def filled(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line with addresses and certificates of this run."""
        text = json.dumps(line)
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        found: dict[str, Any] = json.loads(
            text.replace(_RECORDED_PORT, self.places["hook"].rpartition(":")[2])
        )
        return found

    async def respond(self, request: web.Request) -> web.Response:
        path = request.path_qs
        sent_body = await request.read()
        # A redirected call has no body any more.
        review = json.loads(sent_body) if sent_body else None
        sent = {name: request.headers.get(name, "") for name in ("Content-Type", "Accept")}
        self.called.append(Called(path, sent, review))
        answer = self._answer(path)
        if answer is None:
            return web.Response(status=404)
        await asyncio.sleep(answer.get("delaySeconds") or 0)
        if answer["status"] == 0:
            # The recorder hung up.
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
        if review is not None:
            body = body.replace("<uid>", review["request"]["uid"])
        headers = {"Location": self._leads_to(path)} if 300 <= answer["status"] < 400 else {}
        return web.Response(
            status=answer["status"], text=body, content_type=answer["contentType"], headers=headers
        )

    def _leads_to(self, path: str) -> str:
        """Where a redirect leads: to the next call of the line, or to where nobody listens. The headers of answers were
        not recorded."""
        later = [each["path"] for each in self._answers if each["path"] != path]
        return f"https://{self.places['hook']}{later[0]}" if later else self._elsewhere

    def _answer(self, path: str) -> dict[str, Any] | None:
        """The next that was recorded for this path. A delete may be shown less often, or once more."""
        found = [index for index, each in enumerate(self._answers) if each["path"] == path]
        if not found:
            return None
        chosen: dict[str, Any] = self._answers[found[0]]["answer"]
        if len(found) > 1:
            del self._answers[found[0]]
        return chosen

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Answer for `{hook}` and `{badtls}`."""
        good, other = (make_certificates(_NAMES, now=time.time()) for _ in range(2))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.respond)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            ports = [await _listen(runner, _tls(each)) for each in (good, other)]
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                refused = f"127.0.0.1:{nobody.getsockname()[1]}"
                self._elsewhere = f"https://{refused}/elsewhere"
                self.places = {
                    "hook": f"127.0.0.1:{ports[0]}",
                    "badtls": f"127.0.0.1:{ports[1]}",
                    "refused": refused,
                    "ca": base64.b64encode(good.authority).decode(),
                    "otherca": base64.b64encode(other.authority).decode(),
                }
                yield
        finally:
            await runner.cleanup()


async def _listen(runner: web.AppRunner, tls: ssl.SSLContext) -> int:
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    assert site._server is not None
    return site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]


def _tls(certificates: Certificates) -> ssl.SSLContext:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(certificates.certificate)
        key.write_bytes(certificates.key)
        return tls_context(certificate, key)
