"""The connection of commands to the API server, and lists of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from agent_scheduler.objects.batch import API_VERSION, COMMAND_VERSION, COMMANDS, POD_GROUPS, QUEUES
from agent_scheduler.objects.job import JOB_VERSION, JOBS
from agent_scheduler.objects.shard import API_VERSION as SHARDS_API_VERSION
from agent_scheduler.objects.shard import NODE_SHARDS
from kube_client.errors import Failure, FailureClass, RequestFailed
from kube_client.http1 import Http1Transport
from kube_client.paging import collect
from kube_client.transport import Endpoint, Transport, collection_at
from kube_client.watch_events import Decode, Object, identify, problem_of

T = TypeVar("T", bound=Object)

#: Seconds per request.
_PATIENCE: Final = 60.0
#: The custom resources that config/crd installs.
_KINDS: Final[Mapping[str, str]] = {
    NODE_SHARDS: f"NodeShard ({SHARDS_API_VERSION})",
    QUEUES: f"Queue ({API_VERSION})",
    POD_GROUPS: f"PodGroup ({API_VERSION})",
    JOBS: f"Job ({JOB_VERSION})",
    COMMANDS: f"Command ({COMMAND_VERSION})",
}


class ReadError(Exception):
    """Something could not be read. The message says what, and what may help."""


def connected(endpoint: Endpoint) -> Http1Transport:
    """Return the transport of a command. The caller closes it (`async with`)."""
    return Http1Transport(endpoint, user_agent="agent-scheduler")


async def list_all(
    transport: Transport,
    path: str,
    decode: Decode[T],
    query: Mapping[str, str] | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> list[T]:
    """List all objects at `path`. An object that cannot be read is left out, with a line to `say`.

    Raises ReadError, without `say` also for an object that cannot be read, because the output must be complete.
    """

    def malformed(raw: bytes, error: Exception) -> str:
        who = identify(raw)
        name = f"{who.namespace}/{who.name}" if who.namespace else who.name
        problem = f"list {path}: an object cannot be read: {name}: {problem_of(error)}"
        if say is None:
            raise ReadError(problem)
        say(problem)
        return who.uid

    try:
        _, found, _ = await collect(transport, path, decode, query=query or {}, timeout=_PATIENCE, malformed=malformed)
    except RequestFailed as error:
        raise ReadError(not_installed(path, error.failure) or str(error)) from None
    return list(found.values())


def not_installed(path: str, failure: Failure) -> str:
    """Return what to do if the API server does not serve the kind at `path`; empty for other failures."""
    kind = _KINDS.get("/".join(collection_at(path)))
    if kind is None or failure.kind is not FailureClass.NOT_SERVED:
        return ""
    return f"the API server has no {kind}; install it: kubectl apply -k config/crd"
