"""Tests in virtual time: one may wait for hours, or for nothing to happen, and neither takes time nor hangs on how busy
the machine is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Coroutine
from typing import Any

from tests.support.loop import SimLoop

_LIMIT = 1_000_000.0


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on a loop whose time jumps to the next timer when nothing is ready.

    What waits for something that cannot come fails at once (`Deadlock`), and what repeats itself in vain after
    `_LIMIT` seconds. There are no sockets, threads and processes.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = SimLoop(0)
        loop.limit = _LIMIT
        try:
            loop.run_until_complete(test(*arguments, **named))
        finally:
            loop.close()
        assert loop.complaints == []

    return run


def all_in_virtual_time(module: dict[str, Any], *, but: Container[str] = ()) -> None:
    """Makes `virtual_time` tests of all async tests of a module: `all_in_virtual_time(globals())` as its last line.

    `but`: names of those that need sockets.
    """
    for name, test in list(module.items()):
        if name.startswith("test_") and inspect.iscoroutinefunction(test) and name not in but:
            module[name] = virtual_time(test)
