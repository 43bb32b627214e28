"""Writes of one NodeShard each: made, changed in what it desires, or deleted.

Only the spec is written; the status is the scheduler's. Each write names the object by UID and resourceVersion, so one
that was overtaken by another is refused, and is decided anew on what is there then. What the
answers show goes into the store at once: the watch may deliver it later.

Shards are written in an order in which at no moment two of them desire one node (`next_step`). A shard gets a node only
after the shard that had it was written without it. Where shards swap nodes, one of them is written twice: first with
what is free for it, which sets its own nodes free, and at last with all. A write that fails leaves its shard as it was,
and others do without its nodes until it succeeds; so they do without those of a write that may have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.create import create_once, deletion
from agent_scheduler.kube.driver import Send, send_once
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport, segment
from agent_scheduler.objects.shard import API_VERSION, KIND, NODE_SHARDS, NodeShard

from .store import OWNER, OWNER_LABEL, Shard, ShardStore, shard_of

#: Bytes that the names of one shard may take. etcd refuses objects beyond 1.5 MiB by default, and the status names the
#: same nodes a second time.
MAX_BYTES = 700_000
#: Seconds that one write is tried again for. After that the rest has its turn, and what is wanted may be another.
PATIENCE = 30.0

#: Of a refused change: the shard is another by now, or is not there.
_CHANGED = (FailureClass.CONFLICT, FailureClass.NOT_FOUND, FailureClass.NOT_SERVED)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NodeShard).decode


class Result(Enum):
    """What became of a write. The values are labels of a metric."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    #: Another client wrote it, or it went, or came, since it was looked at.
    CONFLICT = "conflict"
    FAILED = "failed"
    #: Nothing was sent.
    TOO_LARGE = "too_large"

    @property
    def is_done(self) -> bool:
        return self in (Result.CREATED, Result.UPDATED, Result.DELETED)


class Written(NamedTuple):
    result: Result
    #: Why not, where it was not.
    problem: str = ""
    #: Whether the API server has no such kind.
    is_absent: bool = False


class Writer:
    """Makes the requests. Nothing raises for what network or server do."""

    def __init__(self, transport: Transport, store: ShardStore, *, fence: float, timing: Timing) -> None:
        """`fence`: seconds for which a request may be carried out that got no answer."""
        self._transport = transport
        self._store = store
        self._fence = fence
        self._timing = timing
        #: Shard -> when the last request to make it was given up that had got no answer.
        self._unanswered: dict[str, float] = {}

    async def put(self, name: str, nodes: frozenset[str]) -> Written:
        """See that shard `name`, if it is ours or is not there, desires `nodes`, written in the order of names."""
        ordered = sorted(nodes)
        problem = too_large(ordered)
        if problem:
            return Written(Result.TOO_LARGE, problem)
        known = self._store.get(name)
        if known is None:
            return await self._create(name, ordered, nodes)
        if not known.ours:
            return Written(Result.CONFLICT, "it has come to belong to somebody else")
        return await self._update(known, ordered, nodes)

    def may_come_again(self, name: str) -> bool:
        """Whether a request of ours would make the shard, with the nodes of then, if it went now."""
        given_up = self._unanswered.get(name)
        if given_up is not None and self._timing.clock() >= given_up + self._fence:
            del self._unanswered[name]
            return False
        return given_up is not None

    async def delete(self, shard: Shard) -> Written:
        """Delete it as it is known, or not at all: its scheduler may use nodes by now, or another owner may have it."""
        send = deletion(_path(shard.name), shard.uid, resourceVersion=shard.resource_version)
        failure = (await send_once(self._transport, send)).failure
        if failure is None or failure.kind is FailureClass.NOT_FOUND:
            self._store.delete(shard)
            return Written(Result.DELETED)
        if failure.kind is FailureClass.CONFLICT:
            await self.look(shard)
        return self._failed(failure)

    async def _create(self, name: str, ordered: list[str], nodes: frozenset[str]) -> Written:
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "labels": {OWNER_LABEL: OWNER}},
            "spec": {"nodesDesired": ordered},
        }
        made = await create_once(
            self._transport,
            NODE_SHARDS,
            segment(name),
            _encode(body),
            wanted=self._patience(),
            timing=self._timing,
        )
        if made.is_open:
            self._unanswered[name] = self._timing.clock()
        if made.found:
            self._learn(made.found)
        if made.failure is None:
            return Written(Result.CREATED)
        if made.is_open and not made.found:
            self._store.note_unconfirmed(name, "", nodes, until=self._timing.clock() + self._fence)
        return self._failed(made.failure)

    async def _update(self, shard: Shard, ordered: list[str], nodes: frozenset[str]) -> Written:
        body = {
            "metadata": {"uid": shard.uid, "resourceVersion": shard.resource_version},
            "spec": {"nodesDesired": ordered},
        }
        patched = await patch_once(
            self._transport, _path(shard.name), _encode(body), wanted=self._patience(), timing=self._timing
        )
        if patched.failure is None and not patched.found:
            self._store.observe(
                msgspec.structs.replace(shard, resource_version=patched.resource_version, desired=nodes)
            )
            return Written(Result.UPDATED)
        if patched.failure is None:
            self._learn(patched.found)
            known = self._store.get(shard.name)
            if known is None or not known.ours:
                return Written(Result.CONFLICT, "it has come to belong to somebody else")
            return Written(Result.UPDATED)
        if patched.is_open:
            ends = self._timing.clock() + self._fence
            self._store.note_unconfirmed(shard.name, shard.resource_version, nodes, until=ends)
        if patched.failure.kind in _CHANGED:
            await self.look(shard)
            if self._store.get(shard.name) is None:
                # Whether the kind has gone with it shows when it is made again.
                return Written(Result.CONFLICT, "it was deleted meanwhile")
        return self._failed(patched.failure)

    async def look(self, shard: Shard) -> None:
        """Read the shard into the store: the watch may take a while to deliver it."""
        path = _path(shard.name)
        failure, found = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET)))
        if found is not None:
            self._learn(found.body)
        elif failure is not None and failure.kind is FailureClass.NOT_FOUND:
            self._store.delete(shard)

    def _learn(self, found: bytes | dict[str, Any]) -> None:
        try:
            shard = _decode(found) if isinstance(found, bytes) else msgspec.convert(found, NodeShard)
        except msgspec.MsgspecError:
            # The watch reports what it cannot read, too.
            return
        self._store.observe(shard_of(shard))

    def _failed(self, failure: Failure) -> Written:
        if failure.kind is FailureClass.CONFLICT:
            return Written(Result.CONFLICT, str(failure))
        if failure.kind is FailureClass.GONE:
            return Written(Result.FAILED, f"it did not succeed within {PATIENCE:g} s")
        return Written(Result.FAILED, str(failure), failure.kind is FailureClass.NOT_SERVED)

    def _patience(self) -> Callable[[], bool]:
        ends = self._timing.clock() + PATIENCE
        return lambda: self._timing.clock() < ends


def too_large(nodes: Iterable[str]) -> str:
    """Why these cannot all be in one shard; empty if they can."""
    names = list(nodes)
    size = len(_encode(names))
    if size <= MAX_BYTES:
        return ""
    return (
        f"the names of its {len(names)} nodes take {size} bytes; allowed: {MAX_BYTES}, since the store of the API "
        "server refuses larger objects; give it a node-limit, or divide the nodes among more shards"
    )


def _path(name: str) -> str:
    return f"{NODE_SHARDS}/{segment(name)}"


class Step(NamedTuple):
    """Write `shard` with `nodes`; `is_last`: these are all that it should have."""

    shard: str
    nodes: frozenset[str]
    is_last: bool


def next_step(
    wanted: Mapping[str, Set[str]],
    held: Mapping[str, Set[str]],
    unconfirmed: Mapping[str, Set[str]] = MappingProxyType({}),
) -> Step | None:
    """What to write next, or None where nothing can be.

    `wanted`: what the shards should have that are still to be written, in the order of their turns. `held`: what each
    shard has now, those of others included; a shard without an entry is to be made, even if it gets nothing.
    `unconfirmed`: what each may have besides.
    """
    partial: Step | None = None
    for shard, nodes in wanted.items():
        has = held.get(shard)
        gains = nodes - has if has is not None else nodes
        taken: set[str] = set()
        for other, theirs in chain(held.items(), unconfirmed.items()):
            if other != shard:
                taken |= gains & theirs
        if not taken:
            if has is None or gains or len(nodes) != len(has):
                return Step(shard, frozenset(nodes), True)
            continue
        free = frozenset(nodes - taken)
        if partial is None and free != has:
            partial = Step(shard, free, False)
    return partial
