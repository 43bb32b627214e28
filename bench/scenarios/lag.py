"""How late the benchmark's own event loop is: no latency that it measures is known better than that."""

from __future__ import annotations

import asyncio
import time


class Lag:
    """Sleeps a little, again and again. `worst` is how much too long one of them took, in seconds."""

    def __init__(self, *, interval: float = 0.01) -> None:
        self._interval = interval
        self.worst = 0.0

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(self._interval)
            self.worst = max(self.worst, time.monotonic() - began - self._interval)
