"""A warning that concerns many objects alike: logged immediately, then at most once a minute."""

from __future__ import annotations

from typing import Any, Final

from agent_scheduler.kube.retry import Clock

_INTERVAL: Final = 60.0


class Repeated:
    """The event `event` of `log`. Calls within a minute of a log line are only counted.

    The next line contains their number as `repeated`, with the fields of the last call.
    """

    def __init__(self, log: Any, event: str, *, clock: Clock) -> None:
        self._log = log
        self._event = event
        self._clock = clock
        self._told_at = float("-inf")
        self._untold = 0

    def warn(self, **fields: object) -> None:
        now = self._clock()
        if now - self._told_at < _INTERVAL:
            self._untold += 1
            return
        if self._untold:
            fields["repeated"] = self._untold
        self._log.warning(self._event, **fields)
        self._told_at, self._untold = now, 0
