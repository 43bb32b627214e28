"""The first signal asks for an orderly end, and the second ends the process at once, whatever is still under way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.process.base import end_on_signals
from agent_scheduler.process.controller_flags import SHARDING
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.process.scheduler import SchedulerProcess
from agent_scheduler.telemetry.logs import get_logger
from tests.features.fastpath.test_runtime import ALONE, HEAD
from tests.support.controllers import settings as controllers_settings
from tests.support.embedded import embedded_cluster, until

pytestmark = pytest.mark.real_time
BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
async def test_any_two_signals_end_it_at_once(first: signal.Signals, second: signal.Signals) -> None:
    told: list[str] = []
    end_on_signals(lambda: told.append("stop"), lambda: told.append("at once"), get_logger("test"))
    os.kill(os.getpid(), first)
    await until(lambda: told)
    assert told == ["stop"]
    os.kill(os.getpid(), second)
    await until(lambda: "at once" in told)
    assert told[:2] == ["stop", "at once"]


@pytest.mark.parametrize("what", ["scheduler", "controllers"])
async def test_a_process_that_is_amid_its_orderly_end_exits_with_1_at_the_second_signal(what: str) -> None:
    ended: list[int] = []
    async with embedded_cluster() as cluster:
        process: Any
        if what == "scheduler":
            process = SchedulerProcess(load_text(HEAD + ALONE), source=None, **cluster.way(), abort=ended.append)
        else:
            settings = controllers_settings(SHARDING)
            process = ControllersProcess(settings, **cluster.way(), abort=ended.append)
        running = asyncio.create_task(process.run())
        await until(lambda: signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN))
        # One a turn of the loop, which takes signals that come together for one; an orderly end takes longer.
        while not ended and not running.done():
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        assert ended[:1] == [1]
        await asyncio.wait_for(running, 30)
