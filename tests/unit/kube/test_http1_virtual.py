"""The client in virtual time and without sockets: what it does after seconds, minutes and a long stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from agent_scheduler.kube.http1 import MAX_AGE_SECONDS
from agent_scheduler.kube.transport import FencedTransport, NotSent, OutcomeUnknown
from tests.support.loop import PROCESS, SimLoop
from tests.support.wires import Network

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_watch_on_which_nothing_arrives_ends_after_its_silence() -> None:
    network = Network(lambda wire, _head: wire.deliver(HEAD + b"2\r\n1\n\r\n"))
    client, began = network.client(), now()
    with pytest.raises(OutcomeUnknown, match="no answer came in time"):
        async with client.stream("/watch", read_timeout=330) as batches:
            async for batch in batches:
                assert batch == [b"1"]
    assert now() - began == pytest.approx(330, abs=0.1)
    await client.close()


async def test_a_watch_that_keeps_talking_outlives_its_silence_and_the_time_for_its_head() -> None:
    network = Network(lambda wire, _head: wire.deliver(HEAD))
    client = network.client(head_timeout=10)
    loop = asyncio.get_running_loop()

    def talk(number: int) -> None:
        for connection in client._pool._open:
            connection.data_received(b"2\r\n1\n\r\n" if number < 12 else b"0\r\n\r\n")

    for number in range(13):
        loop.call_later(50 * (number + 1), talk, number)
    async with client.stream("/watch", read_timeout=60) as batches:
        assert [batch async for batch in batches] == [[b"1"]] * 12
    await client.close()


async def test_connections_in_use_are_replaced_by_and_by_and_idle_ones_are_closed() -> None:
    network = Network()
    client = network.client()
    for _ in range(3600):
        assert (await client.request("PUT", "/lease", body=b"{}", timeout=5)).body == b"ok"
        await asyncio.sleep(1)
    assert 3600 / MAX_AGE_SECONDS <= network.opened <= 3600 / (0.7 * MAX_AGE_SECONDS) + 1
    await asyncio.sleep(31)
    assert network.open == 0
    await client.close()


@pytest.mark.parametrize("amid", ["credentials", "dialing"])
async def test_a_process_that_was_stopped_amid_a_write_does_not_send_it_when_it_goes_on(amid: str) -> None:
    """SIGSTOP while credentials are fetched or a connection is opened, for longer than the right to write lasts."""
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


async def test_credentials_that_never_come_end_a_request_at_its_deadline_and_not_later() -> None:
    async def never() -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}

    network = Network()
    client, began = network.client(headers=never, connect_timeout=7), now()
    with pytest.raises(NotSent, match="no credentials were to be had in time"):
        await client.request("POST", "/", body=b"{}", timeout=5)
    assert now() - began == pytest.approx(5)
    with pytest.raises(NotSent, match="no credentials were to be had in time"):
        async with client.stream("/", read_timeout=60):
            pass
    assert now() - began == pytest.approx(5 + 7) and network.written == []
    await client.close()


async def test_the_end_waits_a_second_for_the_loop_to_tell_of_an_aborted_connection() -> None:
    """It may never tell, and a process that is to end would stay."""
    network = Network()
    client = network.client()
    assert (await client.request("GET", "/x", timeout=5)).status == 200
    network.silent = True
    began = now()
    await client.close()
    assert 0.5 < now() - began < 5
