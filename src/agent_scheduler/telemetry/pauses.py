"""What stops the event loop: when Python collects garbage, for how long, and how late the loop is.

After the first sync the process holds every pod and node of the cluster, none of which is garbage. A full
collection would walk them all and stop the loop for as long (100 ms and more in a large cluster), so what is there
then is frozen out of collection, and the thresholds are such that full collections hardly come: almost nothing here
is cyclic, and reference counting frees the rest at once. The others walk what is new, which costs the same however it
is cut, so it is cut small: no pause is to be felt beside a bind. The pauses that remain are measured.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

from agent_scheduler.telemetry.process import ProcessMetrics

#: Young objects between two collections; then young collections between two of the middle, and of those between
#: two full ones. Python's own are 700 (2000 from 3.12), 10, 10. A collection of the middle walks four times as many as
#: are young, and a thousand objects take close to half a millisecond.
THRESHOLDS = (2_000, 2, 6_250)


class GcPolicy:
    """Owner of the process's collector settings between `start` and `stop`; `stop` puts back what was there."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._pauses = [metrics.gc_pause_seconds.labels(str(generation)) for generation in range(3)]
        self._began = 0.0
        self._thresholds_before: tuple[int, int, int] | None = None

    def start(self) -> None:
        """Sets the thresholds and begins to measure pauses. Starting twice changes nothing."""
        if self._thresholds_before is None:
            self._thresholds_before = gc.get_threshold()
            gc.set_threshold(*THRESHOLDS)
            gc.callbacks.append(self._on_collection)

    def freeze(self) -> int:
        """Collects once, then excludes all that lives from later collections. Returns how many objects that is.

        For right after the first sync. What is frozen and dies later is freed all the same, by its count.
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
        # Collections never nest, so one instant is enough.
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._pauses[info["generation"]].observe(time.perf_counter() - self._began)


class LoopLag:
    """Sets a timer again and again and reports how late it ran, in seconds.

    What keeps the loop for longer than two `interval`s is seen whenever it happens, and missed by one of them at most:
    it is reported that much too short.
    Owner of its one timer, between `start` and `stop`.
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
        # Not the loop's own: uvloop reads its clock once an iteration, in milliseconds.
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
        # The loop's clock rounds, so a timer may run a moment early.
        self._observe(max(0.0, self._clock() - self._due))
        self._arm()
