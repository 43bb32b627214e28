"""Waiting until a reflector has seen all that is true now, without taking the whole collection anew if that can be."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from agent_scheduler.kube.paging import version_of
from agent_scheduler.kube.reflector import Reflector
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.watch_events import Object, is_older, version

T = TypeVar("T", bound=Object)

#: Seconds that the watch may take to tell of what is true by now. Where little happens, nothing may come for a minute.
_PATIENCE: Final = 1.0


async def catch_up(reflector: Reflector[T], transport: Transport, path: str, *, at_least: str = "") -> None:
    """Returns once all that was true of the collection at `path` when this was called has been handed over.

    The version of the collection is asked for, which costs one object, and the watch waited for to come to it; else the
    collection is listed. `at_least`: a version that is known to be older than now. Both are versions of one store, as
    a cluster's are unless it keeps its kinds apart; then the list does. Never raises for what network or server do.
    """
    now = await version_of(transport, path)
    if is_older(now, at_least):
        now = at_least
    if version(now) is not None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await reflector.reach(now)
                return
        except TimeoutError:
            pass
    await reflector.renew()
