"""Measures what a request costs the client, in CPU time of its process: `Http1Transport` and a bare protocol.

`begun` is a request as the binder sends it: by `Http1Transport.start`, without a task. The last in the row is the lower
bound: a bare protocol that writes prepared bytes and reads only the status, without pool, deadlines, headers or error
handling. The difference is what these cost.

   python -m bench.transport_cost [--requests 4000] [--runs 7] [--in-flight 16 64]

A child process answers at once with prepared bytes of the size and with the headers of a kube-apiserver: 201 to a POST
of a binding, a pod of 3 kB to a GET. The connections, plain HTTP and TLS, are keep-alive and open before the
measurement. The runs of the transports alternate, so that a busy moment of the machine affects all; each figure is the
median of the runs, with the range.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import ssl
import statistics
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop

from bench.tables import spread, table
from bench.watch_decode import pod
from embedded_kubernetes.certificates import Certificates, make_certificates, server_context
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Response, TransportError

_BINDING = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "agent-00001", "uid": "00000000-0000-4000-8000-000000000001"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-00001"},
    }
).encode()
_BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
_HEAD = (
    "HTTP/1.1 {}\r\nAudit-Id: 8f8b2f6e-0000-4000-8000-000000000000\r\nCache-Control: no-cache, private\r\n"
    "Content-Type: application/json\r\nX-Kubernetes-Pf-Flowschema-Uid: 8f8b2f6e-0000-4000-8000-000000000001\r\n"
    "X-Kubernetes-Pf-Prioritylevel-Uid: 8f8b2f6e-0000-4000-8000-000000000002\r\n"
    "Date: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n"
)
_PATH = "/api/v1/namespaces/agents/pods/agent-00001"


class _Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self._answer is not None
        self._answer.set_result(Response(self._parser.get_status_code(), b"", {}))

    def send(self, message: bytes) -> asyncio.Future[Response]:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(message)  # type: ignore[attr-defined]
        return self._answer


class BareTransport:
    """The lower bound: as many connections as requests in flight, and only what the benchmark needs."""

    def __init__(self, endpoint: Endpoint, *, pool_size: int) -> None:
        self._endpoint = endpoint
        self._idle: list[_Bare] = []
        self._messages: dict[str, bytes] = {}

    async def _open(self) -> _Bare:
        url = urlsplit(self._endpoint.base_url)
        trust = self._endpoint.ssl_context
        _, connection = await asyncio.get_running_loop().create_connection(
            _Bare, url.hostname or "", url.port or 0, ssl=trust() if callable(trust) else trust
        )
        return connection

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        if path not in self._messages:
            given = "".join(f"{name}: {value}\r\n" for name, value in (await self._endpoint.headers()).items())
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{given}"
            length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
            self._messages[path] = f"{head}{length}\r\n".encode() + (body or b"")
        connection = self._idle.pop() if self._idle else await self._open()
        answer = await connection.send(self._messages[path])
        self._idle.append(connection)
        return answer

    async def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()


_KINDS: dict[str, Callable[..., Any]] = {"begun": Http1Transport, "http1": Http1Transport, "bare": BareTransport}


class _Server(asyncio.Protocol):
    """Answers any request by its method alone."""

    def __init__(self, answers: Mapping[bytes, bytes]) -> None:
        self._answers = answers
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(self._answers[self._parser.get_method()])  # type: ignore[attr-defined]


def serve(certificates: Certificates, pipe: Connection) -> None:
    """Run the server process with one plain port and one with TLS."""
    got = pod(1, 1)
    answers = {
        b"GET": _HEAD.format("200 OK", len(got)).encode() + got,
        b"POST": _HEAD.format("201 Created", len(_BOUND)).encode() + _BOUND,
    }

    async def main() -> None:
        loop = asyncio.get_running_loop()
        contexts = (None, server_context(certificates))
        servers = [await loop.create_server(lambda: _Server(answers), "127.0.0.1", 0, ssl=tls) for tls in contexts]
        pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(main())


async def _send(transport: Any, method: str, count: int) -> None:
    for _ in range(count):
        if method == "POST":
            answer = await transport.request("POST", _PATH + "/binding", body=_BINDING, timeout=30)
        else:
            answer = await transport.request("GET", _PATH, timeout=30)
        assert answer.status == (201 if method == "POST" else 200)


async def _begin(transport: Http1Transport, count: int) -> None:
    """Send the requests one after another, each from the callback of the previous response."""
    over = asyncio.get_running_loop().create_future()
    left = count

    def answered(answer: Response | TransportError) -> None:
        nonlocal left
        assert isinstance(answer, Response) and answer.status == 201, answer
        left -= 1
        if left:
            begin()
        else:
            over.set_result(None)

    def begin() -> None:
        begun = transport.start("POST", _PATH + "/binding", body=_BINDING, timeout=30, answered=answered)
        if not begun:
            # The credentials must be requested again.
            again.append(asyncio.create_task(wait_and_begin()))

    async def wait_and_begin() -> None:
        await _send(transport, "POST", 1)
        begin()

    again: list[asyncio.Task[None]] = []
    begin()
    await over


async def measure(kind: str, endpoint: Endpoint, method: str, requests: int, in_flight: int) -> float:
    """Return the CPU microseconds per request."""
    transport = _KINDS[kind](endpoint, pool_size=in_flight)

    async def all_of(count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                sending = _begin(transport, count // in_flight) if kind == "begun" else None
                group.create_task(sending or _send(transport, method, count // in_flight))

    try:
        if kind == "begun":
            async with asyncio.TaskGroup() as group:
                for _ in range(in_flight):
                    group.create_task(_send(transport, method, 4))
        await all_of(4 * in_flight)
        start = time.process_time()
        await all_of(requests)
        spent = time.process_time() - start
    finally:
        await transport.close()
    return spent / (requests // in_flight * in_flight) * 1e6


def run(requests: int, runs: int, in_flights: list[int]) -> list[dict[str, Any]]:
    certificates = make_certificates(["127.0.0.1"], now=time.time())
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(certificates, theirs), daemon=True)
    process.start()
    try:
        plain, tls = ours.recv()
        trust = ssl.create_default_context(cadata=certificates.authority.decode())

        async def token() -> Mapping[str, str]:
            return credentials

        # The length of a service account's token.
        credentials = {"Authorization": "Bearer " + "t" * 1000}
        endpoints = {
            "plain": Endpoint(f"http://127.0.0.1:{plain}", headers=token),
            "tls": Endpoint(f"https://127.0.0.1:{tls}", ssl_context=trust, headers=token),
        }
        cases = [(s, m, n) for s in endpoints for m in ("POST", "GET") for n in in_flights]
        taken: dict[tuple[str, str, int], dict[str, list[float]]] = {
            case: {kind: [] for kind in _KINDS if kind != "begun" or case[1] == "POST"} for case in cases
        }
        for _ in range(runs):
            for case in cases:
                scheme, method, in_flight = case
                for kind in taken[case]:
                    cost = uvloop.run(measure(kind, endpoints[scheme], method, requests, in_flight))
                    taken[case][kind].append(cost)
    finally:
        process.terminate()
        process.join()
    return [
        {"scheme": scheme, "method": method, "in_flight": in_flight, "us": figures}
        for (scheme, method, in_flight), figures in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=4_000, help="in each run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=7, help="of each transport (default: %(default)s)")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64], help="(default: 16 64)")
    args = parser.parse_args()
    # As the scheduler configures it after its first sync.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    results = run(args.requests, args.runs, args.in_flight)
    print("CPU microseconds of the client per request: median (least to most)\n")
    rows = []
    for result in results:
        figures = result["us"]
        ratio = statistics.median(figures["http1"]) / statistics.median(figures["bare"])
        case = f"{result['scheme']} {result['method']}, {result['in_flight']} in flight"
        shown = (spread(figures[kind]) if kind in figures else "" for kind in _KINDS)
        rows.append((case, *shown, f"{ratio:.1f}"))
    print(table(("request", *_KINDS, "http1 to bare"), rows))


if __name__ == "__main__":
    main()
