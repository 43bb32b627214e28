"""The coordinator: follows all NodeShards, tells its scheduler which nodes it may use, and the others which it does.

    a shard changed ─> read all ─> stop using what leaves ─> publish: what is left, and what joins ─> read all again
                                     │                                                                    │
                                     └─ given back when nothing of ours is under way there                └─ a rival's
                                                                claim: withdraw; none: see its pods, then use it

`engine.shards.claims` has the rules. The status of its shard is written by it alone; a lease sees to that (`holders`).
Writes name the version they were made for, so that none which was thought lost is carried out after another.

Invariants:
- a node is used only while a claim to it stands that was published, and read back beside those of all others;
- a claim is given back only when nothing of ours is under way to the node: no decision that could still bind there, no
  bind that waits, is on the wire, or got no answer;
- what an earlier scheduler of this shard has claimed is kept while a request of its may still be carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from agent_scheduler.engine.shards.claims import (
    Liveness,
    Names,
    Other,
    claimed,
    other,
    share,
    status,
    tells_the_same,
)
from agent_scheduler.kube.errors import Failure, FailureClass, RequestFailed, StoreWentBack
from agent_scheduler.kube.paging import collect
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.reflector import STALE_LISTS_REFUSED, Reflector, WatchTimes
from agent_scheduler.kube.retry import Backoff, Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.watch_events import DELETED, Change, is_older
from agent_scheduler.objects.shard import NODE_SHARDS, NodeShard
from agent_scheduler.telemetry.logs import get_logger
from apimachinery.times import time_text

from .holders import Holders

_log = get_logger(__name__)

#: Seconds between two looks at what is under way to nodes that leave, and at the leases of those who keep us waiting.
_DRAIN: Final = 0.05
_WAIT: Final = 2.0
#: Seconds after which all is read again though no change was seen.
_RESYNC: Final = 60.0
_LIST_TIMEOUT: Final = 30.0
#: Seconds for which pods wait for the first word of the shards.
_UNSETTLED: Final = 10.0

_NOBODY: Final[Names] = frozenset()


class Side(Protocol):
    """What a scheduler does for its coordinator. The first three are synchronous: no cycle comes between them."""

    def use(self, nodes: Names, unready: str) -> None:
        """Decide on these nodes from the next cycle on; what was decided for others is no longer good. `unready`: why
        there is no shard to speak of, else empty."""

    def hold(self, nodes: Names) -> None:
        """Claims to these stand, and to no others: to a node without one nothing may be sent, whatever was decided."""

    def in_flight(self, nodes: Names) -> Names:
        """Those of `nodes` to which something is under way."""

    async def catch_up(self, version: str) -> None:
        """Returns once all is known that was bound before now. `version`: of a shard that was written just now."""


class ShardObserver(Protocol):
    def shard(self, desired: int, in_use: int, to_add: int, to_remove: int) -> None:
        """How many nodes there are of each, as published."""

    def shard_write(self, what: str) -> None:
        """`written`, `conflict`, `failed`: an attempt to publish; `withdrawn`: a claim that others made, too."""


class Coordinator:
    """Of the scheduler whose shard is `shard`. Run it only while the shard's lease is held."""

    def __init__(
        self,
        transport: Transport,
        *,
        shard: str,
        side: Side,
        holders: Holders,
        fence: float,
        observer: ShardObserver,
        timing: Timing,
        times: WatchTimes | None = None,
    ) -> None:
        """`fence`: seconds for which a request may be carried out after its sender has lost its lease."""
        self._transport = transport
        self._name = shard
        self._path = f"{NODE_SHARDS}/{quote(shard, safe='')}/status"
        self._side = side
        self._holders = holders
        self._fence = fence
        self._observer = observer
        self._timing = timing
        self._times = times or WatchTimes()
        self._backoff = Backoff(initial=0.1, cap=10.0)
        self._decode = msgspec.json.Decoder(NodeShard).decode
        self._changed = asyncio.Event()
        #: Set once it is known for the first time which nodes may be used, or that the shard is not there.
        self._settled = asyncio.Event()
        # Owner of all below: the task in `run`.
        #: As last read, by name; never changed, but replaced.
        self.shards: Mapping[str, NodeShard] = {}
        #: Nodes on which something of ours may be under way. Invariant: published, and no other's.
        self._held: Names = _NOBODY
        #: What an earlier scheduler of this shard had claimed when we came; None until that is known. At
        #: `_inherited_until` nothing is left of it.
        self._inherited: Names | None = None
        self._inherited_until = 0.0
        #: Those that are held on which all pods are known that others have bound there.
        self._known: Names = _NOBODY
        #: Those of them that decisions are made on.
        self._used: Names = _NOBODY
        #: Those that are held and leave as soon as nothing is under way there.
        self._leaving: Names = _NOBODY
        #: The version of our shard that our last write made.
        self._version = ""
        #: Whether an earlier write to our shard may still be carried out, at the start one of the scheduler before us.
        #: None is after a later one has changed the shard, as each names the version that it was made for.
        self._is_open = True
        #: The newest version that the watch or a list has shown.
        self._newest = ""
        #: Lists in a row that were older than these.
        self._refused = 0
        #: Whether the server has the kind.
        self._is_known = True
        self._reported = ""

    async def run(self) -> None:
        """Follow the shards until cancelled. What was claimed stays so; see `release`."""
        reflector: Reflector[NodeShard] = Reflector(
            self._transport,
            NODE_SHARDS,
            self._decode,
            self._notice,
            optional=True,
            times=self._times,
            timing=self._timing,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            await self._follow()

    async def has_settled(self) -> None:
        """Returns when pods may be tried: once it is known which nodes may be used, or, as whoever may not read the
        shards has to say so to the pods, too, after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNSETTLED):
                await self._settled.wait()

    def _notice(self, changes: list[Change[NodeShard]]) -> None:
        for change in changes:
            version = change.object.metadata.resource_version
            if change.object.name == self._name and not is_older(version, self._version):
                self._lose(self._held - (_NOBODY if change.type is DELETED else change.object.in_use))
            if version != self._version:
                # What we wrote ourselves is no change.
                self._changed.set()
            if is_older(self._newest, version) or not self._newest:
                self._newest = version

    async def _follow(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            try:
                pause = await self._settle()
                failures = 0
                self._report("")
            except RequestFailed as error:
                failures += 1
                self._report(str(error))
                pause = self._backoff.delay(failures, self._timing.rng, at_least=error.failure.retry_after)
                # Whatever changes meanwhile: it is the server that has to recover.
                await self._timing.sleep(pause)
                continue
            # Where a shard changed meanwhile, what was just claimed is not used before the next look.
            if self._used or not self._changed.is_set():
                self._settled.set()
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """Until a shard changes, or fewer of the nodes that leave have something under way; at most so long."""
        ends = self._timing.clock() + seconds
        while (left := ends - self._timing.clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _DRAIN) if self._leaving else left):
                    await self._changed.wait()
                    return
            if self._leaving and self._side.in_flight(self._leaving) != self._leaving:
                return

    def _report(self, problem: str) -> None:
        if problem and problem != self._reported:
            _log.warning("shard not followed", shard=self._name, problem=problem)
        self._reported = problem

    async def release(self) -> None:
        """Give back all claims, at the end of the scheduler's work. Raises RequestFailed if the write fails; then
        the end of the lease frees them."""
        self._use(_NOBODY, "this scheduler is ending")
        own = (await self._read()).get(self._name)
        if own is not None:
            self._hold(self._side.in_flight(self._held))
            await self._publish(own, self._held | self._inherits(own))

    # ---- one look at the shards, and what follows from it

    async def _settle(self) -> float:
        """Do what the shards as they are ask for. Gives the seconds after which to look again, whatever happens."""
        shards = self.shards = await self._read()
        own = shards.get(self._name)
        if own is None:
            # No other scheduler can see our claims any more, so we have none.
            self._hold(_NOBODY)
            self._leaving = self._inherited = _NOBODY
            missing = f"node shard {self._name} does not exist"
            self._use(
                _NOBODY, missing if self._is_known else f"{missing}: the cluster has no NodeShards at all"
            )
            return _RESYNC
        # A claim that another client has erased does not stand, and has to be made anew.
        self._hold(self._held & own.in_use)
        self._leaving = _NOBODY
        others = await self._others(shards.values(), own.desired | own.in_use)
        taken = claimed(others)
        kept = self._inherited = self._inherits(own) - taken
        # Claims that stand and were about to be given back are ours before they are another's.
        allowed = share(self._name, own.desired, self._held | (own.in_use - taken), others)
        leaving = self._held - allowed
        # No await from here on until it is known what is under way to those that leave.
        self._known &= self._held
        self._use(
            self._known & allowed,
            f"the nodes of node shard {self._name} are still in use by other schedulers"
            if own.desired
            else "",
        )
        self._hold((self._held & allowed) | self._side.in_flight(leaving))
        joining = allowed - self._held
        version = await self._publish(own, self._held | joining | kept)
        lost = joining - await self._claim(joining, allowed, version) if joining else _NOBODY
        if lost:
            self._observer.shard_write("withdrawn")
            # At a time of our own, so that two who withdrew do not come back together.
            return self._timing.rng() * _DRAIN
        self._leaving = self._held - own.desired
        wanted = own.desired - self._held
        # Of those without a lease only a change of their shards can tell anything, and that wakes us.
        waits = any(
            each.liveness is Liveness.ALIVE and not wanted.isdisjoint(each.in_use | each.desired)
            for each in others
        )
        pause = _WAIT if waits else _RESYNC
        return min(pause, self._inherited_until - self._timing.clock()) if kept - own.desired else pause

    def _lose(self, nodes: Names) -> None:
        """Our claims to these were erased: stop at once, whatever is being waited for, as others may claim them now."""
        if nodes:
            self._hold(self._held - nodes)
            self._use(self._used - nodes, f"the claims of node shard {self._name} were erased")

    def _inherits(self, own: NodeShard) -> Names:
        """What an earlier scheduler of this shard has claimed, while something of it may still be under way."""
        now = self._timing.clock()
        if self._inherited is None:
            # It stopped writing before we could have its lease.
            self._inherited, self._inherited_until = own.in_use, now + self._fence
        return self._inherited & own.in_use if now < self._inherited_until else _NOBODY

    def _hold(self, nodes: Names) -> None:
        self._held = nodes
        self._side.hold(nodes)

    async def _claim(self, joining: Names, allowed: Names, version: str) -> Names:
        """Those of `joining` to which no other has a claim, now that ours stand in `version`. They are used, beside
        what else is `allowed`."""
        shards = await self._read()
        own = shards.get(self._name)
        if own is None:
            return _NOBODY
        gained = (joining & own.in_use) - claimed(await self._others(shards.values(), joining))
        self._hold(self._held | gained)
        if gained:
            # Their last scheduler may have bound pods there that our watch has not shown.
            await self._side.catch_up(version)
            self._known |= gained & self._held
            # That may have taken long. Where the shards have changed since, they are looked at before.
            if not self._changed.is_set():
                self._use(self._known & self._held & allowed, "")
        return gained

    def _use(self, nodes: Names, unready: str) -> None:
        self._used = nodes
        self._side.use(nodes, "" if nodes else unready)

    # ---- the API server

    async def _read(self) -> dict[str, NodeShard]:
        """All shards, by name, as they are now. Raises RequestFailed, for a state from before our last write, or from
        before what the watch or a list has shown, too."""
        try:
            listed, shards, unread = await collect(
                self._transport,
                NODE_SHARDS,
                self._decode,
                timeout=_LIST_TIMEOUT,
                malformed=lambda raw, error: f"{error}",
            )
        except RequestFailed as error:
            if error.failure.kind is FailureClass.NOT_SERVED:
                self._is_known = False
                return {}
            raise
        self._is_known = True
        if unread:
            # Whose claims it has is not known.
            problem = Failure(
                FailureClass.UNKNOWN, message=f"a NodeShard cannot be read: {sorted(unread)[0]}"
            )
            raise RequestFailed(f"list {NODE_SHARDS}", problem)
        if is_older(listed, self._version) or is_older(listed, self._newest):
            self._refused += 1
            if self._refused > STALE_LISTS_REFUSED:
                raise StoreWentBack("the list of NodeShards", listed=listed, known=self._newest)
            problem = Failure(FailureClass.TRANSIENT, message="the list is older than what is known")
            raise RequestFailed(f"list {NODE_SHARDS}", problem)
        self._refused, self._newest = 0, listed
        return {each.name: each for each in shards.values()}

    async def _others(self, shards: Iterable[NodeShard], wanted: Names) -> list[Other]:
        """The other shards, with what is known of those that have to do with nodes which we want."""
        rest = [each for each in shards if each.name != self._name]
        ours_too = [each.name for each in rest if wanted & (each.desired | each.in_use)]
        known = await self._holders.look(ours_too)
        return [other(each, known.get(each.name, Liveness.UNKNOWN)) for each in rest]

    async def _publish(self, own: NodeShard, in_use: Names) -> str:
        """Have the status say so; gives the version of the shard that does. Raises RequestFailed."""
        desired = own.desired
        now = self._timing.now()
        if self._is_open and time_text(now) == own.status.last_update_time:
            # Or else nothing might be changed.
            now += timedelta(seconds=1)
        new = status(desired, in_use, now=time_text(now))
        self._observer.shard(
            len(desired), len(in_use), len(new.nodes_to_add or ()), len(new.nodes_to_remove or ())
        )
        if not self._is_open and own.status.last_update_time and tells_the_same(new, own.status):
            return own.metadata.resource_version
        body = {
            "metadata": {"uid": own.metadata.uid, "resourceVersion": own.metadata.resource_version},
            "status": new,
        }
        answer = await patch_once(
            self._transport,
            self._path,
            msgspec.json.encode(body),
            wanted=lambda: True,
            timing=self._timing,
        )
        self._is_open = answer.is_open or (self._is_open and answer.failure is not None)
        if answer.failure is not None:
            self._observer.shard_write(
                "conflict" if answer.failure.kind is FailureClass.CONFLICT else "failed"
            )
            raise RequestFailed(f"publish node shard {self._name}", answer.failure)
        self._observer.shard_write("written")
        self._version = answer.resource_version
        _log.info(
            "shard published",
            shard=self._name,
            in_use=len(in_use),
            to_add=len(desired - in_use),
            to_remove=len(in_use - desired),
        )
        return self._version
