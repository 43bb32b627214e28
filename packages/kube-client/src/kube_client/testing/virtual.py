"""Virtual time for tests, which can wait for hours without delay and do not depend on the machine's speed.

A folder of tests gets it by a line in its conftest.py, `from kube_client.testing.virtual import
pytest_asyncio_loop_factories`, or a single test by `virtual_time`. There are no sockets and processes in it: requests
go to a transport of `kube_client.testing.scripted`, and the code under test receives `timing()`.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kube_client.retry import REAL, Timing
from kube_client.testing.loop import SimLoop

if TYPE_CHECKING:
    import pytest

#: Seconds of virtual time after which a test that only repeats itself fails.
_LIMIT = 1_000_000.0
#: The time of day at which every loop begins, in seconds since 1970: 2026-01-01, 00:00 UTC.
EPOCH = 1_767_225_600.0


class CheckedLoop(SimLoop):
    """A loop that raises, when it is closed, the errors of tasks and callbacks that were not awaited."""

    def __init__(self) -> None:
        super().__init__(0)
        self.limit = _LIMIT

    def close(self) -> None:
        super().close()
        complaints, self.complaints = self.complaints, []
        assert complaints == []


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops for pytest-asyncio; tests marked `real_time` have sockets and the machine's time."""
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": CheckedLoop}


def is_virtual() -> bool:
    """Return whether the running loop's time is virtual."""
    return isinstance(asyncio.get_running_loop(), SimLoop)


def time_of_day() -> float:
    """Return the seconds since 1970 on the running loop, whose time is virtual."""
    return EPOCH + asyncio.get_running_loop().time()


def timing() -> Timing:
    """Return the time and random numbers for the code under test on the running loop.

    In virtual time, the random numbers are the same in every run.
    """
    if not is_virtual():
        return REAL
    return Timing(
        clock=asyncio.get_running_loop().time,
        sleep=asyncio.sleep,
        rng=random.Random(0).random,
        now=lambda: datetime.fromtimestamp(time_of_day(), UTC),
    )


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop whose time jumps to the next timer when nothing is ready.

    A wait for an impossible event fails immediately (`Deadlock`), and a fruitless repetition after `_LIMIT` seconds.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = CheckedLoop()
        try:
            loop.run_until_complete(test(*arguments, **named))
        finally:
            loop.close()

    return run
