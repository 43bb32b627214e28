"""What each of several processes may do of what all may do together: the configuration of one."""

from __future__ import annotations

from math import ceil
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from agent_scheduler.config import Configuration, to_dict
from agent_scheduler.config.schema import ClientConnection, Events, StatusWrites

Limited = TypeVar("Limited", ClientConnection, StatusWrites, Events)


def for_one(configuration: Configuration, processes: int) -> str:
    """The text of a file. Limits of what is sent to the API server are divided, as they are meant for the whole; what
    can only be a whole number is rounded up."""
    one = replace(
        configuration,
        processes=1,
        bind_concurrency=ceil(configuration.bind_concurrency / processes),
        client_connection=_limited(configuration.client_connection, processes),
        status_writes=_limited(
            replace(
                configuration.status_writes,
                concurrency=ceil(configuration.status_writes.concurrency / processes),
            ),
            processes,
        ),
        events=_limited(configuration.events, processes),
    )
    return msgspec.json.encode(to_dict(one)).decode()


def _limited(section: Limited, processes: int) -> Limited:
    burst = section.burst
    changes: dict[str, Any] = {"qps": section.qps / processes}
    changes["burst"] = None if burst is None else ceil(burst / processes)
    return replace(section, **changes)
