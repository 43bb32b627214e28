"""Loggers of structlog, and limits for lines that may repeat thousands of times a second.

The program that uses the package configures structlog: processors, level and output. structlog imports rich and
Pygments if they are installed, for tracebacks in a terminal. That takes longer than all its other imports, so they are
hidden from it here; programs import it from this module.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
    from structlog.typing import FilteringBoundLogger
finally:
    if _rich is None:
        del sys.modules["rich"]
    else:
        sys.modules["rich"] = _rich

__all__ = ["FilteringBoundLogger", "LimitedLog", "OncePer", "get_logger", "structlog"]

_INTERVAL: Final = 60.0


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a logger whose lines have `logger=name`. It is cheap at module level, being created by its first line."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


class OncePer:
    """Admits one line per key in `seconds`, and counts the suppressed ones.

    For lines that may repeat thousands of times a second, such as the failed writes of an API server. It remembers at
    most `keys` keys and forgets the least recently seen ones first, so keys from untrusted text cannot fill the
    memory; a forgotten key may be logged again early.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float], keys: int = 1024) -> None:
        if seconds <= 0 or keys < 1:
            raise ValueError(f"OncePer needs seconds above 0 and at least 1 key, not {seconds} and {keys}")
        self._seconds = seconds
        self._clock = clock
        self._keys = keys
        # key -> (when it may be logged again, the number of suppressed lines since the last one).
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, key: str) -> int | None:
        """Return None to suppress the line, or the number of suppressed lines before it."""
        now = self._clock()
        until, held = self._seen.get(key, (now, 0))
        if now < until:
            self._seen[key] = (until, held + 1)
            self._seen.move_to_end(key)
            return None
        self._seen[key] = (now + self._seconds, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > self._keys:
            self._seen.popitem(last=False)
        return held


class LimitedLog:
    """Writes lines that may repeat: one per event and key in `seconds`, as `OncePer`.

    Each contains the number of suppressed lines before it as `held_back`.
    """

    def __init__(self, log: FilteringBoundLogger, *, clock: Callable[[], float], seconds: float = _INTERVAL) -> None:
        self._log = log
        self._once = OncePer(seconds, clock=clock)

    def error(self, event: str, key: str = "", /, **fields: Any) -> None:
        held = self._once.admit(f"{event} {key}")
        if held is not None:
            self._log.error(event, **fields, held_back=held)

    def warning(self, event: str, key: str = "", /, **fields: Any) -> None:
        held = self._once.admit(f"{event} {key}")
        if held is not None:
            self._log.warning(event, **fields, held_back=held)
