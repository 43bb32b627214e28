"""`agent-scheduler check`, the page that it reads, and the signal that has the same logged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_scheduler.cli.check import rendered
from agent_scheduler.cli.main import main
from agent_scheduler.config.load import load_text
from agent_scheduler.fastpath import checking
from agent_scheduler.process.scheduler import SchedulerProcess
from agent_scheduler.serving.sources import logged_check
from agent_scheduler.telemetry.logs import get_logger
from tests.features.fastpath.test_runtime import ALONE, ELECT, HEAD, running
from tests.support.embedded import NODES, EmbeddedCluster, embedded_cluster, forbids, until
from tests.support.http_servers import http_server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SETTLES", 0.05)


@asynccontextmanager
async def served(runtime: SchedulerProcess) -> AsyncIterator[str]:
    server = http_server(runtime.sources(), address="127.0.0.1", port=0)
    port = await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop()


async def check(*words: str) -> int:
    return await asyncio.to_thread(main, ["check", *words])


async def waiting(cluster: EmbeddedCluster, runtime: SchedulerProcess) -> Any:
    """A pod that fits nowhere, once the scheduler has said so."""
    await cluster.add_node("n1", cpu="1")
    await cluster.add_pod("large", cpu="2")
    await until(lambda: cluster.condition("large"))
    assert runtime.fast_path is not None
    return runtime.fast_path


async def test_it_says_that_nothing_differs_or_every_difference(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        fast_path = await waiting(cluster, process.runtime)
        async with served(process.runtime) as url:
            assert await check("--server", url) == 0
            *_, said = capsys.readouterr().out.splitlines()
            assert said.startswith("0 differences among ") and said.endswith("this scheduler leads")
            assert "the cached answers for 1 pod class;" in said
            (uid,) = fast_path.cluster.pods
            fast_path.queue.delete(uid)
            assert await check("--server", url) == 1
            *_, first, last = capsys.readouterr().out.splitlines()
            assert first == "queue: Pod default/large: does not have it, and it waits"
            assert last.startswith("1 difference among ")
            assert await check("--server", url, "-o", "json") == 1
            found = json.loads(capsys.readouterr().out)
            problem = "does not have it, and it waits"
            difference = {"where": "queue", "kind": "Pod", "name": "default/large", "problem": problem}
            assert found["differences"] == [difference]
            assert (found["leading"], found["unsettled"], found["not_listed"]) == (True, [], {})


async def test_what_cannot_be_listed_is_no_all_clear(capsys: pytest.CaptureFixture[str]) -> None:
    refusing = False
    disturb = forbids("/api/v1/persistentvolumes", lambda: refusing)
    async with embedded_cluster(disturb=disturb) as cluster, running(cluster) as process:
        await waiting(cluster, process.runtime)
        refusing = True
        async with served(process.runtime) as url:
            assert await check("--server", url) == 2
            assert "not listed: PersistentVolume: " in capsys.readouterr().out


async def test_one_that_has_not_listed_all_yet_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded_cluster(disturb=forbids(NODES)) as cluster, running(cluster) as process:
        await until(lambda: process.runtime.fast_path)
        async with served(process.runtime) as url:
            assert await check("--server", url) == 2
        assert "503 pods and nodes have not been listed yet" in capsys.readouterr().err


async def test_a_standby_can_be_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded_cluster() as cluster, running(cluster, ELECT) as first:
        await until(lambda: first.runtime.leases.names and first.runtime.leases.held)
        await waiting(cluster, first.runtime)
        async with running(cluster, ELECT) as second:
            await until(lambda: second.runtime.fast_path and second.runtime.fast_path.is_synced)
            async with served(second.runtime) as url:
                assert await check("--server", url) == 0
            assert "this scheduler stands by" in capsys.readouterr().out


async def test_a_signal_has_every_difference_logged() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        async with embedded_cluster() as cluster:
            runtime = SchedulerProcess(load_text(HEAD + ALONE), source=None, **cluster.way())
            ending = asyncio.create_task(runtime.run())
            await until(lambda: runtime.fast_path and runtime.fast_path.is_synced)
            fast_path = await waiting(cluster, runtime)
            fast_path.queue.delete(next(iter(fast_path.cluster.pods)))
            with capture_logs() as lines:
                os.kill(os.getpid(), signal.SIGUSR2)
                await until(lambda: [line for line in lines if line["event"] == "self-check"])
            (difference,) = [line for line in lines if line["event"] == "self-check difference"]
            told = difference["log_level"], difference["where"], difference["name"]
            assert told == ("warning", "queue", "default/large")
            (summary,) = [line for line in lines if line["event"] == "self-check"]
            assert (summary["differences"], summary["leading"]) == (1, True)
            runtime.stop()
            assert await asyncio.wait_for(ending, 10) == 0
    finally:
        signal.signal(signal.SIGUSR2, before)


async def test_a_signal_that_comes_too_soon_does_no_harm() -> None:
    with capture_logs() as lines:
        await logged_check(None, get_logger("test"))
    assert [line["event"] for line in lines] == ["self-check not done"]


def test_kept_answers_are_counted_beside_objects() -> None:
    checked = {"Node": 1, "Pod": 2, "ClassView": 3}
    found = {"differences": [], "unsettled": [], "not_listed": {}, "checked": checked, "leading": True}
    assert list(rendered(found)) == [
        "0 differences among 3 objects and the cached answers for 3 pod classes; this scheduler leads"
    ]
