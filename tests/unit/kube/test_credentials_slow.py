"""Credentials that take longer than a lease lasts: who leads goes on leading, and who was deposed does not write."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from agent_scheduler.kube import http1
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.lease import LeaderElector
from agent_scheduler.kube.transport import Endpoint
from tests.support.scripted import FakeTime, Request, eventually, running, serving

from .test_exec_plugin import START, Plugin
from .test_lease import CONFIG, Leases, Work


@pytest.mark.real_time
async def test_a_plugin_that_is_slower_than_the_renew_deadline_does_not_cost_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time is the elector's, and it passes as fast as requests are answered.
    monkeypatch.setattr(http1, "_CREDENTIALS_SECONDS", 0.0)
    time, plugin, leases = FakeTime(), Plugin(tmp_path), Leases()
    plugin.token("one", START + timedelta(seconds=6000))
    source = plugin.source(time)
    await source.headers()
    gate, started = tmp_path / "gate", tmp_path / "started"
    plugin.does(
        "import pathlib, time\n"
        f"pathlib.Path({str(started)!r}).touch()\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
        f"print(pathlib.Path({str(plugin.answer)!r}).read_text())"
    )
    plugin.token("two", START + timedelta(seconds=60_000))
    time.now += 6000 - 119
    tokens: list[str] = []

    def seen(request: Request) -> None:
        tokens.append(request.headers["authorization"])
        # Much later than the renew deadline of 10 s: a renewal is made every 2 s.
        if len(tokens) == 20:
            gate.touch()

    leases.fault = seen
    async with serving(leases) as server:
        transport = Http1Transport(Endpoint(server.url, headers=source.headers))
        elector = LeaderElector(transport, CONFIG, timing=time.timing)
        work = Work(lambda: time.now)
        async with running(elector.run(work)):
            await eventually(lambda: "Bearer two" in tokens)
            assert elector.is_leader and work.stopped_at is None
            assert tokens[:20] == ["Bearer one"] * 20
            assert started.exists()
        await transport.close()


async def test_credentials_that_never_come_end_a_request_at_its_deadline_and_not_later() -> None:
    async def never() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    transport = Http1Transport(Endpoint("http://127.0.0.1:1", headers=never))
    with pytest.raises(http1.NotSent, match="no credentials were to be had in time"):
        await transport.request("POST", "/", body=b"{}", timeout=0.05)
    with pytest.raises(http1.NotSent, match="no credentials were to be had in time"):
        async with Http1Transport(Endpoint("http://127.0.0.1:1", headers=never), connect_timeout=0.05).stream(
            "/", read_timeout=60
        ):
            pass
    await transport.close()
