"""A self-check as lines of the log, for whoever has asked for one by a signal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent_scheduler.telemetry.logs import FilteringBoundLogger

from .sources import NotReady


async def logged_check(
    check: Callable[[], Awaitable[Mapping[str, Any]]] | None, log: FilteringBoundLogger
) -> None:
    """A self-check as lines of the log: a warning for each difference, and one line that sums up. Never raises."""
    try:
        if check is None:
            raise NotReady("the process is just starting")
        found = dict(await check())
    except NotReady as error:
        log.warning("self-check not done", problem=str(error))
        return
    except Exception as error:
        log.exception("self-check not done", problem=f"{type(error).__name__}: {error}")
        return
    differences = found.pop("differences")
    for each in differences:
        log.warning("self-check difference", **each)
    log.info("self-check", differences=len(differences), **found)
