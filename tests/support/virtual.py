"""Tests in virtual time: one may wait for hours, or for nothing to happen, and neither takes time nor hangs on how busy
the machine is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.loop import SimLoop


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on a loop whose time jumps to the next timer when nothing is ready.

    What waits for something that cannot come fails at once (`Deadlock`). There are no sockets, threads and processes.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = SimLoop(0)
        try:
            loop.run_until_complete(test(*arguments, **named))
        finally:
            loop.close()
        assert loop.complaints == []

    return run
