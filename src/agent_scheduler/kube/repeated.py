"""A warning about something that happens to many objects alike: told at once, and then as often as once a minute."""

from __future__ import annotations

from typing import Any, Final

from agent_scheduler.kube.retry import Clock

_INTERVAL: Final = 60.0


class Repeated:
    """The event `event` of `log`. The first is logged as it is; for a minute after a line the next ones are
    only counted, and the line after that has their number, `repeated`, and what the last one was about."""

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
