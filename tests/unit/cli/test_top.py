"""`agent-scheduler top` as a shell sees it, of a scheduler on an embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from agent_scheduler.cli.main import main
from agent_scheduler.cli.reach import FIGURES, Ways, ask_page
from agent_scheduler.cli.top import percentile, screen
from tests.features.fastpath.test_runtime import running
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until

from .test_check import served, waiting

Capture = pytest.CaptureFixture[str]


@asynccontextmanager
async def at_work() -> AsyncIterator[tuple[EmbeddedCluster, str]]:
    async with embedded_cluster() as cluster, running(cluster) as process:
        await waiting(cluster, process.runtime)
        async with served(process.runtime) as url:
            yield cluster, url


async def top(*words: str) -> int:
    return await asyncio.to_thread(main, ["top", *words])


@asynccontextmanager
async def looking(monkeypatch: pytest.MonkeyPatch, *words: str) -> AsyncIterator[None]:
    """The block is what happens between the two looks of a `top`, which takes as long as it needs."""
    looked, over = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Waits:
        run = staticmethod(asyncio.run)

        @staticmethod
        async def sleep(_seconds: float) -> None:
            loop.call_soon_threadsafe(looked.set)
            over.wait(60)

    monkeypatch.setattr("agent_scheduler.cli.top.asyncio", Waits)
    running = asyncio.create_task(top(*words))
    try:
        async with asyncio.timeout(60):
            await looked.wait()
        yield
    finally:
        over.set()
    assert await running == 0


async def test_what_is_no_terminal_gets_one_look(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work() as (cluster, url), looking(monkeypatch, "--server", url):
        for number in range(3):
            await cluster.add_pod(f"small-{number}")
        await until(lambda: cluster.all_placed(3))
    # Before it stand lines of the scheduler's log.
    lines = capsys.readouterr().out.partition("agent-scheduler 0.")[2].splitlines()
    assert " leads" in lines[0]
    assert "unschedulable 1   gated 0" in lines[3]
    assert lines[5].startswith("Nodes 1   cpu 0.3/1 (30%)")
    assert "\x1b" not in "".join(lines)
    at = lines.index(next(line for line in lines if line.startswith("UNSCHEDULABLE POD")))
    assert lines[at + 1].split() == ["default/large", "1", "NodeResourcesFit"]


async def test_programs_get_numbers_and_rates(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work() as (cluster, url), looking(monkeypatch, "--server", url, "-o", "json"):
        await cluster.add_pod("small")
        await until(lambda: cluster.all_placed(1))
    # Before and behind it stand lines of the scheduler's log.
    out = capsys.readouterr().out
    found, _ = json.JSONDecoder().raw_decode(out[out.index("{\n") :])
    assert found["attempts"]["scheduled"] == 1
    assert found["rates"]["scheduled"] > 0
    assert 0 < found["rates"]["p50"] <= found["rates"]["p99"]
    assert found["nodes"]["resources"]["cpu"] == {"offered": 1000, "taken": 100}
    assert [each["key"] for each in found["waiting"]] == ["default/large"]


@pytest.mark.wide
async def test_a_terminal_is_left_as_it_was() -> None:
    async with at_work() as (_, url):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "agent_scheduler", "top", "--interval", "0.1", "--server", url]
        process = await asyncio.create_subprocess_exec(*command, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.set_blocking(ours, False)
        shown = b""

        def more() -> bytes:
            nonlocal shown
            # The other end may be closed.
            with suppress(OSError):
                shown += os.read(ours, 65536)
            return shown

        # Looked at again and again, each time from the top of the screen.
        await until(lambda: more().count(b"\x1b[H\x1b[2J") >= 2)
        process.send_signal(signal.SIGINT)
        # A terminal that nobody reads would hold it up.
        await until(lambda: (more(), process.returncode is not None)[1])
        more()
        os.close(ours)
        assert process.returncode == 130
        assert shown.startswith(b"\x1b[?1049h")
        assert shown.rstrip().endswith(b"\x1b[?1049l")
        assert b"Traceback" not in shown


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (20, 4), (200, 60)])
async def test_a_screen_fits_the_terminal_with_the_beginning_of_every_table(width: int, height: int) -> None:
    amounts = {"cpu": 64_000, "memory": 1 << 38, "nvidia.com/gpu": 8000}
    keys = ("capability", "deserved", "allocated", "reserved")
    queue = {"name": "research-and-development", "state": "Open", **dict.fromkeys(keys, amounts)}
    gang = {"name": "ns/train-with-a-long-name", "owner": "Job", "queue": queue["name"], "phase": "Pending", "has": 0}
    gang |= {"members": 8, "needs": 8, "why": "its queue has no room for cpu, memory and nvidia.com/gpu"}
    pod = {"key": "ns/pod", "attempts": 1, "pending_plugins": [], "unschedulable_plugins": ["NodeResourcesFit"] * 3}
    async with at_work() as (_, url):
        figures = await ask_page(FIGURES, Ways(server=url))
    figures |= {"queues": [queue] * 20, "gangs": {"shown": [gang] * 9, "phases": {"Pending": 30}}}
    figures["about"]["identity"] = "agent-scheduler-7d9f-abcde_371a38ab-3f91-40f6-bb0f-df709d0fe8e7" * 2
    lines = [line.text for line in screen(figures, figures, [pod] * 10, width=width, height=height)]
    assert len(lines) <= height and max(map(len, lines)) <= width
    whole = [line.text for line in screen(figures, figures, [pod] * 10)]
    assert max(map(len, whole)) > 100 and len(whole) > 50
    if width >= 80:
        heads = ["agent-scheduler", "QUEUE", "GANG", "UNSCHEDULABLE POD"]
        assert all(any(line.startswith(head) for line in lines) for head in heads)
        assert any(line.endswith(" more") for line in lines) == (height == 24)


@pytest.mark.parametrize("interval", ["0", "-1", "x", "nan"])
def test_an_interval_is_some_seconds(interval: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", "--interval", interval])
    assert ended.value.code == 2
    assert f"found {interval!r}; allowed: seconds from 0.1 to 3600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 10, 10, 10], 0.5, 0.5),
        ([0, 10, 10, 10], 0.9, 1.9),
        ([0, 5, 10, 10], 0.5, 2.0),
        # Above the last bound all that is known is that.
        ([0, 0, 0, 10], 0.99, 4.0),
    ],
)
def test_percentiles_are_those_of_prometheus(counts: list[int], share: float, expected: float | None) -> None:
    assert percentile([1.0, 2.0, 4.0], counts, share) == expected
