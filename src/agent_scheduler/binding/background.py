"""The tasks that run beside decisions and binds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from agent_scheduler.telemetry.logs import get_logger
from kube_client.errors import StoreWentBack

_log = get_logger(__name__)


class _Work(NamedTuple):
    """Work for a task, and the function to call if it cannot run."""

    run: Callable[[], Awaitable[None]]
    drop: Callable[[], None]


class Background:
    """Owner of the tasks that run beside decisions and binds."""

    def __init__(self) -> None:
        self._work: asyncio.Queue[_Work] = asyncio.Queue()

    def start(self, run: Callable[[], Awaitable[None]], drop: Callable[[], None]) -> None:
        """Execute `run` in a task, or call `drop` if this object's `run` is cancelled before the task begins."""
        self._work.put_nowait(_Work(run, drop))

    async def run(self) -> None:
        """Run the tasks until cancelled; running tasks are cancelled too."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(_run(await self._work.get()))
        finally:
            while not self._work.empty():
                self._work.get_nowait().drop()


async def _run(work: _Work) -> None:
    try:
        await work.run()
    except StoreWentBack:
        raise
    except Exception as error:
        # It concerns only the pod of that work.
        _log.error("work failed", problem=f"{type(error).__name__}: {error}", exc_info=error)
