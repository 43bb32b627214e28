"""Virtual time for a single test: when no callback is ready, the time of the loop jumps to its next timer."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class _JumpingLoop(asyncio.SelectorEventLoop):
    # Attributes of asyncio's base loop, whose types typeshed does not declare.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test that uses no sockets on a loop whose time is virtual."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
            runner.run(test(*arguments, **named))

    return run
