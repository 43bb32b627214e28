"""The coordinator: follows all NodeShards, and negotiates which nodes its scheduler may use.

    a shard changed ─> read all ─> stop using what leaves ─> publish: what is left, and what joins ─> read all again
                                     │                                                                    │
                                     └─ released when nothing of ours is in flight there                  └─ claimed by
                                                            another: withdraw; else: list its pods, then use it

`engine.shards.claims` has the rules. Only this class writes the status of its shard; a lease ensures that
(`holders`). Writes name the version they are based on, so that no write is carried out late, after a newer one.

Invariants:
- a node is used only while a published claim to it exists that was read back beside those of all other shards;
- a claim is released only when nothing of ours is in flight to the node: no decision that could still be bound there,
  and no bind that is waiting, being sent, or without a response;
- the claims of an earlier scheduler of this shard are kept while one of its requests may still be carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from agent_scheduler.engine.shards.claims import Liveness, Names, Other, claimed, other, share, status, tells_the_same
from agent_scheduler.objects.shard import NODE_SHARDS, NodeShard
from agent_scheduler.telemetry.logs import get_logger
from agent_scheduler.telemetry.observers import ShardReports
from apimachinery.times import time_text
from kube_client.errors import Failure, FailureClass, RequestFailed, StoreWentBack
from kube_client.paging import collect
from kube_client.patch import patch_once
from kube_client.reflector import STALE_LISTS_REFUSED, Collection, Reflector, WatchTimes
from kube_client.retry import Backoff, Timing
from kube_client.transport import Transport
from kube_client.watch_events import DELETED, Change, is_older

from .holders import Holders

_log = get_logger(__name__)

#: Seconds between two checks of what is in flight to leaving nodes, and of the leases of blocking schedulers.
_DRAIN: Final = 0.05
_WAIT: Final = 2.0
#: Seconds after which everything is read again without a change.
_RESYNC: Final = 60.0
_LIST_TIMEOUT: Final = 30.0
#: Seconds for which pods wait for the first state of the shards.
_UNSETTLED: Final = 10.0

_NOBODY: Final[Names] = frozenset()


class Side(Protocol):
    """The scheduler's interface for its coordinator.

    The first three methods are synchronous, so no cycle runs in between.
    """

    def use(self, nodes: Names, unready: str) -> None:
        """Use these nodes from the next cycle on; decisions for others become invalid.

        `unready` is the reason if the shard is not usable, else empty.
        """

    def hold(self, nodes: Names) -> None:
        """Set the nodes with valid claims: nothing may be sent to other nodes, regardless of earlier decisions."""

    def in_flight(self, nodes: Names) -> Names:
        """Return those of `nodes` to which something is in flight."""

    async def catch_up(self, version: str) -> None:
        """Return once all binds from before now are known. `version` is that of a shard that was just written."""


class Coordinator:
    """Coordinates for the scheduler of the shard `shard`. Run it only while the shard's lease is held."""

    def __init__(
        self,
        transport: Transport,
        *,
        shard: str,
        side: Side,
        holders: Holders,
        observer: ShardReports,
        timing: Timing,
        times: WatchTimes,
    ) -> None:
        """Create the coordinator of `side`, whose nodes `holders` tells apart from those of others."""
        self._transport = transport
        self._name = shard
        self._path = f"{NODE_SHARDS}/{quote(shard, safe='')}/status"
        self._side = side
        self._holders = holders
        self._fence = holders.fence
        self._observer = observer
        self._timing = timing
        self._times = times
        self._backoff = Backoff(initial=0.1, cap=10.0)
        self._decode = msgspec.json.Decoder(NodeShard).decode
        self._changed = asyncio.Event()
        #: Set once the usable nodes are known for the first time, or that the shard does not exist.
        self._settled = asyncio.Event()
        # Owned by the task in `run`, as all below.
        self.shards: Mapping[str, NodeShard] = {}
        #: Nodes to which something of ours may be in flight. Invariant: published, and not claimed by others.
        self._held: Names = _NOBODY
        #: The claims of an earlier scheduler of this shard when this one started; None before they are known. They
        #: end at `_inherited_until`.
        self._inherited: Names | None = None
        self._inherited_until = 0.0
        #: The held nodes whose pods are all known, including those bound by other schedulers.
        self._known: Names = _NOBODY
        #: The known nodes that decisions use.
        self._used: Names = _NOBODY
        #: The held nodes that are released as soon as nothing is in flight to them.
        self._leaving: Names = _NOBODY
        #: The version of our shard after our last write.
        self._version = ""
        #: Whether an earlier write to our shard may still be carried out, at first one of the previous scheduler.
        #: This is over once a later write has changed the shard, because each write names the version it is based on.
        self._is_open = True
        #: The newest version of a watch or list.
        self._newest = ""
        #: The number of consecutive outdated lists.
        self._refused = 0
        #: Whether the server serves the kind.
        self._is_known = True
        self._reported = ""

    async def run(self) -> None:
        """Follow the shards until cancelled. Claims stay; see `release`."""
        reflector: Reflector[NodeShard] = Reflector(
            Collection(path=NODE_SHARDS, decode=self._decode, optional=True),
            self._notice,
            transport=self._transport,
            times=self._times,
            timing=self._timing,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            await self._follow()

    async def has_settled(self) -> None:
        """Return when pods may be tried: once the usable nodes are known, or after some seconds without an answer.

        Without permission to read the shards, pods must get that as the reason, too.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNSETTLED):
                await self._settled.wait()

    def _notice(self, changes: list[Change[NodeShard]]) -> None:
        for change in changes:
            version = change.object.metadata.resource_version
            if change.object.name == self._name and not is_older(version, self._version):
                self._lose(self._held - (_NOBODY if change.type is DELETED else change.object.in_use))
            if version != self._version:
                # Our own write is not a change.
                self._changed.set()
            if is_older(self._newest, version) or not self._newest:
                self._newest = version

    async def _follow(self) -> None:
        """Settle again after each change. `Dispatcher` does not fit: after a failure, changes must wait, too."""
        failures = 0
        while True:
            self._changed.clear()
            try:
                pause = await self._settle()
                failures = 0
                self._report("")
            except StoreWentBack:
                raise
            except Exception as error:
                # A shard that cannot be handled is like one that cannot be read: nothing is claimed meanwhile.
                failures += 1
                is_expected = isinstance(error, RequestFailed)
                self._report(str(error) if is_expected else f"{type(error).__name__}: {error}")
                at_least = error.failure.retry_after if isinstance(error, RequestFailed) else None
                pause = self._backoff.delay(failures, self._timing.rng, at_least=at_least)
                # Wait regardless of changes, because the server has to recover.
                await self._timing.sleep(pause)
                continue
            # If a shard has changed meanwhile, nodes that were just claimed are not used before the next check.
            if self._used or not self._changed.is_set():
                self._settled.set()
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        """Wait until a shard changes or a leaving node has nothing in flight; at most `seconds`."""
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
        """Release all claims at the end of the scheduler's work. Raises RequestFailed if the write fails.

        Then the claims end with the lease.
        """
        self._use(_NOBODY, "this scheduler is ending")
        own = (await self._read()).get(self._name)
        if own is not None:
            self._hold(self._side.in_flight(self._held))
            await self._publish(own, self._held | self._inherits(own))

    # ---- reconciliation

    async def _settle(self) -> float:
        """Act on the current state of the shards. Return the seconds until the next check without a change."""
        shards = self.shards = await self._read()
        own = shards.get(self._name)
        if own is None:
            # Other schedulers can no longer see our claims, so they are void.
            self._hold(_NOBODY)
            self._leaving = self._inherited = _NOBODY
            missing = f"node shard {self._name} does not exist"
            self._use(_NOBODY, missing if self._is_known else f"{missing}: the cluster does not serve NodeShards")
            return _RESYNC
        # A claim that another client has erased is void and must be made again.
        self._hold(self._held & own.in_use)
        self._leaving = _NOBODY
        others = await self._others(shards.values(), own.desired | own.in_use)
        taken = claimed(others)
        kept = self._inherited = self._inherits(own) - taken
        # Our existing claims that were about to be released take precedence over new claims of others.
        allowed = share(self._name, own.desired, self._held | (own.in_use - taken), others)
        leaving = self._held - allowed
        # No await from here until it is known what is in flight to the leaving nodes.
        self._known &= self._held
        self._use(
            self._known & allowed,
            f"the nodes of node shard {self._name} are still in use by other schedulers" if own.desired else "",
        )
        self._hold((self._held & allowed) | self._side.in_flight(leaving))
        joining = allowed - self._held
        version = await self._publish(own, self._held | joining | kept)
        lost = joining - await self._claim(joining, allowed, version) if joining else _NOBODY
        if lost:
            self._observer.shard_write("withdrawn")
            # After a random delay, so that two schedulers that withdrew do not retry together.
            return self._timing.rng() * _DRAIN
        self._leaving = self._held - own.desired
        wanted = own.desired - self._held
        # For shards without a lease only a change of the shard is informative, and that wakes this up.
        waits = any(
            each.liveness is Liveness.ALIVE and not wanted.isdisjoint(each.in_use | each.desired) for each in others
        )
        pause = _WAIT if waits else _RESYNC
        return min(pause, self._inherited_until - self._timing.clock()) if kept - own.desired else pause

    def _lose(self, nodes: Names) -> None:
        """Handle erased claims: stop using these nodes immediately, because others may claim them now."""
        if nodes:
            self._hold(self._held - nodes)
            self._use(self._used - nodes, f"the claims of node shard {self._name} were erased")

    def _inherits(self, own: NodeShard) -> Names:
        """Return the claims of an earlier scheduler of this shard while something of it may be in flight."""
        now = self._timing.clock()
        if self._inherited is None:
            # It had stopped writing before this scheduler got its lease.
            self._inherited, self._inherited_until = own.in_use, now + self._fence
        return self._inherited & own.in_use if now < self._inherited_until else _NOBODY

    def _hold(self, nodes: Names) -> None:
        self._held = nodes
        self._side.hold(nodes)

    async def _claim(self, joining: Names, allowed: Names, version: str) -> Names:
        """Return those of `joining` that no other shard claims, now that our claims are published in `version`.

        They are used from now on, beside the other `allowed` nodes.
        """
        shards = await self._read()
        own = shards.get(self._name)
        if own is None:
            return _NOBODY
        gained = (joining & own.in_use) - claimed(await self._others(shards.values(), joining))
        self._hold(self._held | gained)
        if gained:
            # Their last scheduler may have bound pods there that our watch has not shown yet.
            await self._side.catch_up(version)
            self._known |= gained & self._held
            # The catch-up may have taken long. If the shards have changed meanwhile, they are read first.
            if not self._changed.is_set():
                self._use(self._known & self._held & allowed, "")
        return gained

    def _use(self, nodes: Names, unready: str) -> None:
        self._used = nodes
        self._side.use(nodes, "" if nodes else unready)

    # ---- the API server

    async def _read(self) -> dict[str, NodeShard]:
        """Return all current shards by name. Raises RequestFailed.

        That includes states from before our last write, or from before an already seen state.
        """
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
            # The claims of an unreadable shard are unknown.
            problem = Failure(FailureClass.UNKNOWN, message=f"a NodeShard cannot be read: {sorted(unread)[0]}")
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
        """Return the other shards, with the liveness of those that have nodes in common with `wanted`."""
        rest = [each for each in shards if each.name != self._name]
        ours_too = [each.name for each in rest if wanted & (each.desired | each.in_use)]
        known = await self._holders.look(ours_too)
        return [other(each, known.get(each.name, Liveness.UNKNOWN)) for each in rest]

    async def _publish(self, own: NodeShard, in_use: Names) -> str:
        """Publish this in the status. Return the version of the shard. Raises RequestFailed."""
        desired = own.desired
        now = self._timing.now()
        if self._is_open and time_text(now) == own.status.last_update_time:
            # Otherwise the patch could be without effect.
            now += timedelta(seconds=1)
        new = status(desired, in_use, now=time_text(now))
        self._observer.shard(len(desired), len(in_use), len(new.nodes_to_add or ()), len(new.nodes_to_remove or ()))
        if not self._is_open and own.status.last_update_time and tells_the_same(new, own.status):
            return own.metadata.resource_version
        body = {"metadata": {"uid": own.metadata.uid, "resourceVersion": own.metadata.resource_version}, "status": new}
        answer = await patch_once(
            self._transport, self._path, msgspec.json.encode(body), wanted=lambda: True, timing=self._timing
        )
        self._is_open = answer.is_open or (self._is_open and answer.failure is not None)
        if answer.failure is not None:
            self._observer.shard_write("conflict" if answer.failure.kind is FailureClass.CONFLICT else "failed")
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
