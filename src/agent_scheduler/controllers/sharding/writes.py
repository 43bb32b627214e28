"""Writes of one NodeShard: creation, change of its desired nodes, deletion.

Only the spec is written; the scheduler writes the status. Each write names the object by UID and resourceVersion, so an
outdated one is refused, and is decided again from the current state. Responses are put into the store immediately,
because the watch may deliver the object later.

The order of the writes ensures that no node is ever desired by two shards (`next_step`). A shard gets a node only after
the shard that had it was written without it. If shards swap nodes, one of them is written twice: first with the nodes
that are free, which frees its own, and finally with all. A failed write leaves its shard unchanged, and other shards do
not get its nodes until it succeeds; the same applies to a write that may have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from agent_scheduler.objects.shard import API_VERSION, KIND, NODE_SHARDS, NodeShard
from kube_client.answers import Verb, asked_at
from kube_client.create import create_once, deletion
from kube_client.driver import Send, send_once
from kube_client.errors import Failure, FailureClass
from kube_client.patch import patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .store import OWNER, OWNER_LABEL, ShardInfo, ShardStore, shard_of

#: The bytes that the names of one shard's nodes may take. By default, etcd refuses objects beyond 1.5 MiB, and the
#: status lists the same nodes a second time.
MAX_BYTES = 700_000
#: Seconds for which one write is retried. Then the other writes follow, and the plan may have changed.
PATIENCE = 30.0

#: Refusals of a change that mean that the shard has changed or does not exist.
_CHANGED = (FailureClass.CONFLICT, FailureClass.NOT_FOUND, FailureClass.NOT_SERVED)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NodeShard).decode


class WriteOutcome(Enum):
    """The outcome of a write. The values are labels of a metric."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    #: Another client wrote, deleted or created it since it was read.
    CONFLICT = "conflict"
    FAILED = "failed"
    #: Nothing was sent.
    TOO_LARGE = "too_large"

    @property
    def is_done(self) -> bool:
        return self in (WriteOutcome.CREATED, WriteOutcome.UPDATED, WriteOutcome.DELETED)


class WriteResult(NamedTuple):
    result: WriteOutcome
    #: The error message, if it failed.
    problem: str = ""
    #: Whether the API server does not serve the kind.
    is_absent: bool = False


_DELETED = WriteResult(WriteOutcome.CONFLICT, "it was deleted meanwhile")


class ShardWriter:
    """Sends the requests; never raises for errors of the network or the server."""

    def __init__(
        self,
        transport: Transport,
        store: ShardStore,
        *,
        learn: Callable[[NodeShard], bool],
        fence: float,
        timing: Timing,
    ) -> None:
        """Create the writer; a request without a response may be carried out for `fence` seconds.

        `learn` receives a shard from a response, and returns False if the watch has delivered its deletion.
        """
        self._transport = transport
        self._store = store
        self._learn_first = learn
        self._fence = fence
        self._timing = timing
        #: Shard -> when the last request to create it was given up without a response.
        self._unanswered: dict[str, float] = {}

    async def put(self, name: str, nodes: frozenset[str]) -> WriteResult:
        """Write `nodes`, sorted by name, into shard `name` if it is ours, or create it."""
        ordered = sorted(nodes)
        problem = too_large(ordered)
        if problem:
            return WriteResult(WriteOutcome.TOO_LARGE, problem)
        known = self._store.get(name)
        if known is None:
            return await self._create(name, ordered, nodes)
        if not known.ours:
            return WriteResult(WriteOutcome.CONFLICT, "it now belongs to another client")
        return await self._update(known, ordered, nodes)

    def may_come_again(self, name: str) -> bool:
        """Return whether a request of ours may recreate the shard, with earlier nodes, if it were deleted now."""
        given_up = self._unanswered.get(name)
        if given_up is not None and self._timing.clock() >= given_up + self._fence:
            del self._unanswered[name]
            return False
        return given_up is not None

    async def delete(self, shard: ShardInfo) -> WriteResult:
        """Delete the shard in its known version only: its scheduler may use nodes or its owner may have changed."""
        send = deletion(_path(shard.name), shard.uid, resourceVersion=shard.resource_version)
        failure = (await send_once(self._transport, send)).failure
        if failure is None or failure.kind is FailureClass.NOT_FOUND:
            self._store.delete(shard)
            return WriteResult(WriteOutcome.DELETED)
        if failure.kind is FailureClass.CONFLICT:
            await self.look(shard)
        return self._failed(failure)

    async def _create(self, name: str, ordered: list[str], nodes: frozenset[str]) -> WriteResult:
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "labels": {OWNER_LABEL: OWNER}},
            "spec": {"nodesDesired": ordered},
        }
        made = await create_once(
            self._transport, NODE_SHARDS, segment(name), _encode(body), wanted=self._patience(), timing=self._timing
        )
        if made.is_open:
            self._unanswered[name] = self._timing.clock()
        if made.found:
            self._learn(made.found)
        if made.failure is None and self._store.get(name) is None:
            return _DELETED
        if made.failure is None:
            return WriteResult(WriteOutcome.CREATED)
        if made.is_open and not made.found:
            self._store.note_unconfirmed(name, "", nodes, until=self._timing.clock() + self._fence)
        return self._failed(made.failure)

    async def _update(self, shard: ShardInfo, ordered: list[str], nodes: frozenset[str]) -> WriteResult:
        body = {
            "metadata": {"uid": shard.uid, "resourceVersion": shard.resource_version},
            "spec": {"nodesDesired": ordered},
        }
        patched = await patch_once(
            self._transport, _path(shard.name), _encode(body), wanted=self._patience(), timing=self._timing
        )
        if patched.failure is None and not patched.found:
            self._store.set(msgspec.structs.replace(shard, resource_version=patched.resource_version, desired=nodes))
            return WriteResult(WriteOutcome.UPDATED)
        if patched.failure is None:
            self._learn(patched.found)
            known = self._store.get(shard.name)
            if known is None or not known.ours:
                return WriteResult(WriteOutcome.CONFLICT, "it now belongs to another client")
            return WriteResult(WriteOutcome.UPDATED)
        if patched.is_open:
            ends = self._timing.clock() + self._fence
            self._store.note_unconfirmed(shard.name, shard.resource_version, nodes, until=ends)
        if patched.failure.kind in _CHANGED:
            await self.look(shard)
            if self._store.get(shard.name) is None:
                # A repeated creation reveals whether the kind is missing too.
                return _DELETED
        return self._failed(patched.failure)

    async def look(self, shard: ShardInfo) -> None:
        """Read the shard into the store before the watch delivers it."""
        path = _path(shard.name)
        failure, found = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET)))
        if found is not None:
            self._learn(found.body)
        elif failure is not None and failure.kind is FailureClass.NOT_FOUND:
            self._store.delete(shard)

    def _learn(self, found: bytes) -> None:
        try:
            shard = _decode(found)
        except (msgspec.MsgspecError, RecursionError):
            # The watch also reports an unreadable object.
            return
        if self._learn_first(shard):
            self._store.set(shard_of(shard))
        else:
            self._store.delete(shard_of(shard))

    def _failed(self, failure: Failure) -> WriteResult:
        if failure.kind is FailureClass.CONFLICT:
            return WriteResult(WriteOutcome.CONFLICT, str(failure))
        if failure.kind is FailureClass.GONE:
            return WriteResult(WriteOutcome.FAILED, f"it did not succeed within {PATIENCE:g} s")
        return WriteResult(WriteOutcome.FAILED, str(failure), failure.kind is FailureClass.NOT_SERVED)

    def _patience(self) -> Callable[[], bool]:
        ends = self._timing.clock() + PATIENCE
        return lambda: self._timing.clock() < ends


def too_large(nodes: Iterable[str]) -> str:
    """Return why these nodes do not fit into one shard; empty if they do."""
    names = list(nodes)
    size = len(_encode(names))
    if size <= MAX_BYTES:
        return ""
    return (
        f"the names of its {len(names)} nodes take {size} bytes; allowed: {MAX_BYTES}, since the API server's "
        "store refuses larger objects; set a node-limit, or divide the nodes among more shards"
    )


def _path(name: str) -> str:
    return f"{NODE_SHARDS}/{segment(name)}"


class ShardWrite(NamedTuple):
    """Write `shard` with `nodes`; `is_last` means that these are all its desired nodes."""

    shard: str
    nodes: frozenset[str]
    is_last: bool


def next_step(
    wanted: Mapping[str, Set[str]],
    held: Mapping[str, Set[str]],
    unconfirmed: Mapping[str, Set[str]] = MappingProxyType({}),
) -> ShardWrite | None:
    """Return the next write, or None if none is possible.

    `wanted` has the desired nodes of the shards that are still to be written, in order. `held` has the nodes of all
    shards, including other clients'; a shard without an entry is created, even if it gets no nodes. `unconfirmed` has
    the nodes that each may get by a write without a response.
    """
    partial: ShardWrite | None = None
    for shard, nodes in wanted.items():
        has = held.get(shard)
        gains = nodes - has if has is not None else nodes
        taken: set[str] = set()
        for other, theirs in chain(held.items(), unconfirmed.items()):
            if other != shard:
                taken |= gains & theirs
        if not taken:
            if has is None or gains or len(nodes) != len(has):
                return ShardWrite(shard, frozenset(nodes), True)
            continue
        free = frozenset(nodes - taken)
        if partial is None and free != has:
            partial = ShardWrite(shard, free, False)
    return partial
