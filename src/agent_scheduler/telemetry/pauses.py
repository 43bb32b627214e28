"""Controls and measures pauses of the event loop: garbage collections and late timers.

After the first sync the process holds every pod and node of the cluster, none of which is garbage. A full collection
would walk all of them and block the loop for as long (100 ms and more in a large cluster). So the objects of that
time are frozen, which excludes them from collection, and the thresholds make full collections very rare: almost
nothing here is cyclic, and reference counting frees the rest immediately. The other collections walk new objects,
whose total cost does not depend on their number, so they are frequent and short. The remaining pauses are measured.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

from agent_scheduler.telemetry.process import ProcessMetrics

#: New objects between two young collections, young collections between two of the middle generation, and those
#: between two full ones. Python's defaults are 700 (2000 from 3.12), 10, 10. A middle collection walks four times as
#: many objects as a young one, and a thousand objects take almost half a millisecond.
THRESHOLDS = (2_000, 2, 6_250)


class GcPolicy:
    """Owns the process's collector settings between `start` and `stop`, which restores the previous ones."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._pauses = [metrics.gc_pause_seconds.labels(str(generation)) for generation in range(3)]
        self._began = 0.0
        self._thresholds_before: tuple[int, int, int] | None = None

    def start(self) -> None:
        """Set the thresholds and start to measure pauses. Repeated calls have no effect."""
        if self._thresholds_before is None:
            self._thresholds_before = gc.get_threshold()
            gc.set_threshold(*THRESHOLDS)
            gc.callbacks.append(self._on_collection)

    def freeze(self) -> int:
        """Collect once, then exclude all live objects from later collections. Return their number.

        Call it right after the first sync. Frozen objects that are released later are freed by reference counting.
        """
        gc.collect()
        gc.freeze()
        return gc.get_freeze_count()

    def stop(self) -> None:
        if self._thresholds_before is not None:
            gc.callbacks.remove(self._on_collection)
            gc.set_threshold(*self._thresholds_before)
            gc.unfreeze()
            self._thresholds_before = None

    def _on_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        # Collections never nest, so one time is sufficient.
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._pauses[info["generation"]].observe(time.perf_counter() - self._began)


class LoopLag:
    """Repeats a timer and reports how late it runs, in seconds.

    Anything that blocks the loop for more than two `interval`s is noticed, and reported at most one interval too
    short. Owns its one timer between `start` and `stop`.
    """

    def __init__(
        self,
        observe: Callable[[float], None],
        *,
        loop: asyncio.AbstractEventLoop,
        interval: float = 0.02,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._loop = loop
        self._interval = interval
        # Not the loop's clock: uvloop reads that once per iteration, in milliseconds.
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due = self._clock() + self._interval
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        # The loop's clock rounds, so a timer may run slightly early.
        self._observe(max(0.0, self._clock() - self._due))
        self._arm()
