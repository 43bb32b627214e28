"""The client against a server that cuts, resets, stalls, repeats itself and talks out of turn at every byte.

Whatever the server does: an answer is the whole answer to that very request, or none; a write arrives at most once;
what is said not to have been sent did not arrive; and the client goes on working. (Foreign bytes inside of a body of
the right length cannot be told from it, by nobody; they end with that answer.)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client.http1 import Http1Transport
from kube_client.testing.virtual import virtual_time
from kube_client.testing.wires import Network, Wire
from kube_client.transport import NotSent, OutcomeUnknown

from .raw_server import client

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
            return b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + answer(path, PLAIN)


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


class Server(Network):
    """Meets one request after the other with `faults`, and answers well those that have none."""

    def __init__(self, form: str, faults: list[Fault | None]) -> None:
        super().__init__(self.answer)
        self.form = form
        self.faults = faults
        self.arrived: Counter[tuple[str, str]] = Counter()

    def whole(self, path: bytes) -> bytes:
        return answer(path, self.form)

    def answer(self, wire: Wire, head: bytes) -> None:
        method, path, _ = head.split(b"\r\n")[0].split(b" ")
        self.arrived[method.decode(), path.decode()] += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            wire.deliver(self.whole(path))
        else:
            sent = fault.sends(self.whole(path))
            at = fault.at if fault.kind == "split" else len(sent)
            wire.deliver(sent[:at])
            wire.deliver(sent[at:])
        kind = fault.kind if fault else ""
        if kind == "reset":
            wire.end(ConnectionResetError())
        elif kind != "stall" and (kind == "close" or self.form == UNFRAMED):
            wire.end()


async def ask(transport: Http1Transport, server: Server, method: str, path: str, *, spoiled: bool = False) -> str:
    """What came of one request; all that is promised of it has been checked."""
    try:
        body = b"{}" if method == "POST" else None
        response = await transport.request(method, path, body=body, timeout=20)
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
    server = Server(form, [None, fault])
    async with client(server) as transport:
        assert await ask(transport, server, "GET", "/first") == "answered"
        # A body without a length ends wherever the connection does.
        spoiled = fault.kind in SPOILING or (form == UNFRAMED and fault.kind in ("close", "twice"))
        came = await ask(transport, server, method, "/faulty", spoiled=spoiled)
        cut = fault.at < len(answer(b"/faulty", form))
        if fault.kind in ("split", "twice") and form != UNFRAMED:
            assert came == "answered"
        if fault.kind in ("close", "stall") and cut and form in (PLAIN, CHUNKED):
            # A read on a connection that was used before, and that is closed before an answer, is repeated.
            repeated = (method, fault.kind, fault.at) == ("GET", "close", 0)
            assert came == ("answered" if repeated else "unknown")
        for number in range(3):
            path = f"/after-{number}"
            assert await ask(transport, server, "POST", path) == "answered"
            assert server.arrived["POST", path] == 1
    assert server.open == 0


#: Those that put bytes where others belong.
SPOILING = ("again from here", "garbage")
KINDS = ["close", "reset", "stall", "twice", "again from here", "garbage", "split"]


@pytest.mark.parametrize("form", [PLAIN, CHUNKED, UNFRAMED, INFORMED])
@pytest.mark.parametrize("kind", KINDS)
async def test_at_every_byte_of_an_answer(form: str, kind: str) -> None:
    for method in ("GET", "POST"):
        for at in range(len(answer(b"/faulty", form)) + 1):
            await meet(form, Fault(kind, at), method)


FAULTS = st.lists(
    st.one_of(st.none(), st.builds(Fault, st.sampled_from(["close", "reset", "twice", "split"]), st.integers(0, 90))),
    max_size=12,
)


@given(form=st.sampled_from([PLAIN, CHUNKED, INFORMED]), faults=FAULTS, size=st.integers(1, 3))
def test_requests_side_by_side_never_get_the_answers_of_others(
    form: str, faults: list[Fault | None], size: int
) -> None:
    @virtual_time
    async def run() -> None:
        server = Server(form, faults)
        async with client(server, pool_size=size) as transport:
            both = ("GET", "POST") * 6
            await asyncio.gather(*(ask(transport, server, each, f"/{n}") for n, each in enumerate(both)))
            server.faults.clear()
            assert await ask(transport, server, "POST", "/in-the-end") == "answered"

    run()


LINES = [b'{"a":1}', b'{"bc":22}', b'{"def":333}']


def streamed() -> bytes:
    body = b"\n".join(LINES) + b"\n"
    pieces = (body[:5], body[5:20], body[20:])
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class Watched(Server):
    def whole(self, path: bytes) -> bytes:
        return streamed()


@pytest.mark.parametrize("kind", ["close", "reset", "stall", "split", "garbage"])
async def test_a_watch_that_is_spoiled_at_any_byte_gives_whole_lines_in_their_order_and_then_says_so(kind: str) -> None:
    whole = streamed()
    for at in range(len(whole) + 1):
        got: list[bytes] = []
        ended = False
        async with client(Watched(PLAIN, [Fault(kind, at)])) as transport:
            with suppress(OutcomeUnknown):
                async with transport.stream("/watch", read_timeout=20) as batches:
                    async for batch in batches:
                        got += batch
                    ended = True
        if kind == "garbage" and at < len(whole):
            # What stands inside of a chunk cannot be told from what belongs there; it never passes for the end.
            continue
        assert got == LINES[: len(got)]
        assert ended == (kind == "split" or at == len(whole))
        assert not ended or got == LINES
