"""Measures the steps of the processes in units that do not depend on the machine: calls of their functions.

In virtual time a step takes no time, whatever it does. So in some worlds the calls of our functions are counted between
two callbacks of the event loop. Calls that libraries written in C make within one of ours do not count.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import agent_scheduler
import kube_client
from agent_scheduler.batch.measuring import hold

#: The maximum number of calls in one step: twice that of the longest steps of drawn worlds, which take about 10 ms.
MOST: Final = 50_000
#: The number of worlds of which one is measured; that doubles its time.
_ONE_IN: Final = 20

_OURS: Final = tuple(str(Path(package.__path__[0])) for package in (agent_scheduler, kube_client))
#: What begins a step: a callback of the loop, or the next step of a session, several of which share a slice of time.
_NEXT: Final = frozenset({asyncio.Handle._run.__code__, hold.__code__})


class StepMeter:
    """The number of calls of the longest step, and its last function."""

    def __init__(self) -> None:
        self.longest = 0
        self.last = ""
        self._calls = 0
        self._ours: dict[CodeType, bool] = {}

    def reset(self) -> None:
        """Forget the longest step, and begin another one."""
        self.longest, self.last, self._calls = 0, "", 0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _see(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code in _NEXT:
            self._calls = 0
            return
        is_ours = self._ours.get(code)
        if is_ours is None:
            file = code.co_filename
            is_ours = self._ours[code] = file.startswith(_OURS) and "/testing/" not in file
        if is_ours:
            self._calls += 1
            if self._calls > self.longest:
                self.longest, self.last = self._calls, code.co_name


def is_measured(seed: int, *, hostile: bool) -> bool:
    """Return whether the steps of this world are measured. `hostile`: whether it has hostile objects."""
    return hostile or seed % _ONE_IN == 0
