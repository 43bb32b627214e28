"""The client against a server that cuts, resets, stalls, repeats itself and talks out of turn at every byte.

Whatever the server does: an answer is the whole answer to that very request, or none; a write arrives at most once;
what is said not to have been sent did not arrive; and the client goes on working. (Foreign bytes inside of a body of
the right length cannot be told from it, by nobody; they end with that answer.)
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, NotSent, OutcomeUnknown
from tests.support.scripted import eventually

PLAIN, CHUNKED, UNFRAMED, INFORMED = "plain", "chunked", "unframed", "informed"


def answer(path: bytes, form: str) -> bytes:
    """A whole answer that says which request it answers."""
    match form:
        case "plain":
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path)
        case "chunked":
            return (
                b"HTTP/1.1 200 OK\r\nTRANSFER-encoding: chunked\r\nTrailer: a\r\n\r\n"
                b'%x;ext="; a=b"\r\n%s\r\n%x\r\n%s\r\n0\r\na: b\r\n\r\n'
                % (len(path[:2]), path[:2], len(path[2:]), path[2:])
            )
        case "unframed":
            return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + path
        case _:
            return b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + answer(
                path, PLAIN
            )


@dataclass(frozen=True)
class Fault:
    """What befalls an answer at byte `at`."""

    kind: str
    at: int

    def sends(self, whole: bytes) -> bytes:
        head, tail = whole[: self.at], whole[self.at :]
        return {
            "close": head,
            "reset": head,
            "stall": head,
            "twice": whole + whole[: self.at],
            "again from here": head + whole,
            "garbage": head + b"\x00\xffHTTP/1.1 200 OK\r\n\r\n" + tail,
            "split": whole,
        }[self.kind]


class Adversary(asyncio.Protocol):
    """One connection: meets every request with `fault`, or answers it well if that is None."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.open.discard(self.transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            length = next((int(x[15:]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length:")), 0)
            if len(rest) < length:
                return
            self.received = rest[length:]
            method, path, _ = head.split(b"\r\n")[0].split(b" ")
            self.server.arrived[method.decode(), path.decode()] += 1
            self.meet(path)

    def meet(self, path: bytes) -> None:
        fault = self.server.faults.pop(0) if self.server.faults else None
        whole = answer(path, self.server.form)
        if fault is None:
            self.transport.write(whole)
            if self.server.form == UNFRAMED:
                self.transport.close()
            return
        sent = fault.sends(whole)
        if fault.kind == "split":
            for piece in (sent[: fault.at], sent[fault.at :]):
                if piece:
                    self.transport.write(piece)
        elif sent:
            self.transport.write(sent)
        if fault.kind == "reset":
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif fault.kind != "stall" and (fault.kind == "close" or self.server.form == UNFRAMED):
            self.transport.close()


class Server:
    def __init__(self, form: str, faults: list[Fault | None]) -> None:
        self.form = form
        self.faults = faults
        self.arrived: Counter[tuple[str, str]] = Counter()
        self.open: set[asyncio.Transport] = set()
        self.url = ""


@asynccontextmanager
async def serving(form: str, faults: list[Fault | None]) -> AsyncIterator[Server]:
    server = Server(form, faults)
    listening = await asyncio.get_running_loop().create_server(lambda: Adversary(server), "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for _ in range(3):
            # What was accepted and not told of yet.
            await asyncio.sleep(0)
        for transport in list(server.open):
            transport.abort()
        await eventually(lambda: not server.open)


async def ask(
    transport: Http1Transport,
    server: Server,
    method: str,
    path: str,
    *,
    patience: float,
    spoiled: bool = False,
) -> str:
    """What came of one request; all that is promised of it has been checked."""
    try:
        response = await transport.request(
            method, path, body=b"{}" if method == "POST" else None, timeout=patience
        )
    except NotSent:
        assert server.arrived[method, path] == 0
        return "not sent"
    except OutcomeUnknown:
        assert server.arrived[method, path] <= (1 if method == "POST" else 2)
        return "unknown"
    if not spoiled:
        assert response.body == path.encode(), "the answer to another request, or a part of one"
    assert 1 <= server.arrived[method, path] <= (1 if method == "POST" else 2)
    return "answered"


async def meet(form: str, fault: Fault, method: str) -> None:
    """A good request, one that meets the fault, and good ones after it."""
    async with serving(form, [None, fault]) as server:
        transport = Http1Transport(Endpoint(server.url))
        try:
            assert await ask(transport, server, "GET", "/first", patience=20) == "answered"
            patience = 0.5 if fault.kind in ("stall", *SPOILING) else 20
            # A body without a length ends wherever the connection does.
            spoiled = fault.kind in SPOILING or (form == UNFRAMED and fault.kind in ("close", "twice"))
            came = await ask(transport, server, method, "/faulty", patience=patience, spoiled=spoiled)
            cut = fault.at < len(answer(b"/faulty", form))
            if fault.kind in ("split", "twice") and form != UNFRAMED:
                assert came == "answered"
            if fault.kind in ("close", "stall") and cut and form in (PLAIN, CHUNKED):
                # A read on a connection that was used before, and that is closed before an answer, is repeated.
                repeated = (method, fault.kind, fault.at) == ("GET", "close", 0)
                assert came == ("answered" if repeated else "unknown")
            for number in range(3):
                path = f"/after-{number}"
                assert await ask(transport, server, "POST", path, patience=20) == "answered"
                assert server.arrived["POST", path] == 1
        finally:
            await transport.close()


#: Those that put bytes where others belong.
SPOILING = ("again from here", "garbage")
KINDS = ["close", "reset", "stall", "twice", "again from here", "garbage", "split"]


@pytest.mark.parametrize("form", [PLAIN, CHUNKED, UNFRAMED, INFORMED])
@pytest.mark.parametrize("kind", KINDS)
async def test_at_every_byte_of_an_answer(form: str, kind: str) -> None:
    whole = len(answer(b"/faulty", form))
    for method in ("GET", "POST"):
        async with asyncio.TaskGroup() as group:
            for at in range(whole + 1):
                group.create_task(meet(form, Fault(kind, at), method))


FAULTS = st.lists(
    st.one_of(
        st.none(), st.builds(Fault, st.sampled_from(["close", "reset", "twice", "split"]), st.integers(0, 90))
    ),
    max_size=12,
)


@given(form=st.sampled_from([PLAIN, CHUNKED, INFORMED]), faults=FAULTS, size=st.integers(1, 3))
def test_requests_side_by_side_never_get_the_answers_of_others(
    form: str, faults: list[Fault | None], size: int
) -> None:
    async def run() -> None:
        async with serving(form, faults) as server:
            transport = Http1Transport(Endpoint(server.url), pool_size=size)
            try:
                asking = (
                    ask(transport, server, ("GET", "POST")[n % 2], f"/{n}", patience=0.5) for n in range(12)
                )
                await asyncio.gather(*asking)
                server.faults.clear()
                assert await ask(transport, server, "POST", "/in-the-end", patience=20) == "answered"
            finally:
                await transport.close()

    asyncio.run(run())


LINES = [b'{"a":1}', b'{"bc":22}', b'{"def":333}']


def streamed(path: bytes) -> bytes:
    body = b"\n".join(LINES) + b"\n"
    pieces = (body[:5], body[5:20], body[20:])
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("kind", ["close", "reset", "stall", "split", "garbage"])
async def test_a_watch_that_is_spoiled_at_any_byte_gives_whole_lines_in_their_order_and_then_says_so(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.kube.test_adversary.answer", lambda path, _: streamed(path))
    whole = streamed(b"")

    async def watch(at: int) -> None:
        async with serving(PLAIN, [Fault(kind, at)]) as server:
            transport = Http1Transport(Endpoint(server.url))
            got: list[bytes] = []
            ended = False
            try:
                silence = 0.5 if kind in ("stall", "garbage") else 20
                async with transport.stream("/watch", read_timeout=silence) as batches:
                    async for batch in batches:
                        got += batch
                    ended = True
            except OutcomeUnknown:
                pass
            finally:
                await transport.close()
            if kind == "garbage" and at < len(whole):
                # What stands inside of a chunk cannot be told from what belongs there; it never passes for the end.
                return
            assert got == LINES[: len(got)]
            assert ended == (kind == "split" or at == len(whole))
            assert not ended or got == LINES

    async with asyncio.TaskGroup() as group:
        for at in range(len(whole) + 1):
            group.create_task(watch(at))
