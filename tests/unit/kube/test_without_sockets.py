"""The client in virtual time and without sockets: what it does after seconds, minutes and a long stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from agent_scheduler.kube.address import Address
from agent_scheduler.kube.http1 import MAX_AGE_SECONDS, Http1Transport
from agent_scheduler.kube.transport import Endpoint, FencedTransport, NotSent, OutcomeUnknown
from tests.support.loop import PROCESS, SimLoop
from tests.support.raw_server import OK


class Wire(asyncio.Transport):
    """A connection without a socket: what is written goes to `answers`, and what that gives comes back."""

    def __init__(self, network: Network, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._network = network
        self._protocol = protocol
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def write(self, data: Any) -> None:
        self._network.written.append((self._loop.time(), bytes(data)))
        answer = self._network.answer(bytes(data))
        if answer:
            self._loop.call_later(0.001, self._deliver, answer)

    def _deliver(self, data: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._network.open -= 1
            if self._network.silent:
                return
            self._loop.call_soon(self._protocol.connection_lost, None)

    close = abort


class Network:
    def __init__(self, answer: Callable[[bytes], bytes] = lambda _: OK) -> None:
        self.answer = answer
        self.written: list[tuple[float, bytes]] = []
        self.opened = self.open = 0
        #: Nobody is told of connections that end.
        self.silent = False

    async def dial(self, address: Address, protocol: asyncio.Protocol) -> None:
        assert str(address) == "api.example:80"
        await asyncio.sleep(0.01)
        self.opened += 1
        self.open += 1
        protocol.connection_made(Wire(self, protocol))

    def client(self, **options: Any) -> Http1Transport:
        endpoint = Endpoint("http://api.example", headers=options.pop("headers", nothing))
        return Http1Transport(endpoint, dial=self.dial, rng=random.Random(1), **options)


async def nothing() -> Mapping[str, str]:
    return {}


def simulated(main: Coroutine[Any, Any, None]) -> SimLoop:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()
    return loop


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_request_without_an_answer_ends_at_its_deadline() -> None:
    async def main() -> None:
        network = Network(lambda _: b"")
        client, began = network.client(), now()
        with pytest.raises(OutcomeUnknown):
            await client.request("POST", "/", body=b"{}", timeout=30)
        assert now() - began == pytest.approx(30, abs=0.01)
        assert network.open == 0
        await client.close()

    simulated(main())


def test_a_watch_on_which_nothing_arrives_ends_after_its_silence() -> None:
    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n"
        network = Network(lambda _: head)
        client, began = network.client(), now()
        with pytest.raises(OutcomeUnknown, match="no answer came in time"):
            async with client.stream("/watch", read_timeout=330) as batches:
                async for batch in batches:
                    assert batch == [b"1"]
        assert now() - began == pytest.approx(330, abs=0.1)
        await client.close()

    simulated(main())


def test_connections_in_use_are_replaced_by_and_by_and_idle_ones_are_closed() -> None:
    async def main() -> None:
        network = Network()
        client = network.client()
        for _ in range(3600):
            assert (await client.request("PUT", "/lease", body=b"{}", timeout=5)).body == b"ok"
            await asyncio.sleep(1)
        assert 3600 / MAX_AGE_SECONDS <= network.opened <= 3600 / (0.7 * MAX_AGE_SECONDS) + 1
        await asyncio.sleep(31)
        assert network.open == 0
        await client.close()

    simulated(main())


@pytest.mark.parametrize("amid", ["credentials", "dialing"])
def test_a_process_that_was_stopped_amid_a_write_does_not_send_it_when_it_goes_on(amid: str) -> None:
    """SIGSTOP while credentials are fetched or a connection is opened, for longer than the right to write lasts."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)

        async def headers() -> Mapping[str, str]:
            await asyncio.sleep(1 if amid == "credentials" else 0)
            return {}

        network = Network()
        client = network.client(headers=headers, connect_timeout=60)
        until = now() + 10

        async def write() -> None:
            PROCESS.set("leader")
            fenced = FencedTransport(client, lambda: now() < until)
            with pytest.raises(NotSent, match="may not write any more"):
                await fenced.request("POST", "/bind", body=b"{}", timeout=60)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.005)
        loop.freeze("leader", 20)
        await writing
        assert now() > until
        assert network.written == []
        await client.close()

    simulated(main())


def test_the_end_waits_a_second_for_the_loop_to_tell_of_an_aborted_connection() -> None:
    """It may never tell, and a process that is to end would stay."""

    async def main() -> None:
        network = Network()
        client = network.client()
        assert (await client.request("GET", "/x", timeout=5)).status == 200
        network.silent = True
        began = asyncio.get_running_loop().time()
        await client.close()
        assert 0.5 < asyncio.get_running_loop().time() - began < 5

    simulated(main())
