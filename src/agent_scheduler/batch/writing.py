"""What a session says to the API server: statuses of groups and queues, conditions and events.

Each kind of write has a budget of its own, and of each object one write is under way at a time; a newer one takes the
place of what waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.quotas.vector import Total, Vector, in_ledger_units, of_resources
from agent_scheduler.engine.session.close import GroupResult, QueueResult, placed_in, queue_results
from agent_scheduler.engine.session.session import Event
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.dispatch import Dispatcher
from agent_scheduler.kube.pace import Pace
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.recorder import EventRecorder, ObjectReference
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport
from agent_scheduler.kube.watch_events import is_older
from agent_scheduler.objects.batch import (
    API_VERSION,
    PodGroup,
    PodGroupStatus,
    Queue,
    pod_group_path,
    queue_path,
)
from agent_scheduler.objects.merging import replacement
from apimachinery.quantity import QuantityError, text_of

from .settings import WRITES_AT_A_TIME

_encode = msgspec.json.Encoder().encode

#: Seconds in which the watch shows a status after the API server has said that it is written.
_SEEN_WITHIN: Final = 30.0
#: Seconds from a change of what a queue holds to the write that says so.
_SETTLE: Final = 0.2

#: Reports what became of a write: written, failed.
Count = Callable[[str], None]


class _Decided(NamedTuple):
    """A status, and the object that it was decided on."""

    uid: str
    version: str
    status: PodGroupStatus


class GroupStatuses:
    """Owner of the statuses that were decided and that the watch does not show yet.

    A status is written with the version of the object that it was decided on, so that one which is late, or decided on
    something else than there is by now, is refused.
    """

    def __init__(
        self,
        transport: Transport,
        groups: Groups,
        *,
        budget: Budget,
        timing: Timing,
        count: Count,
        try_again: Callable[[], None],
        pace: Pace,
    ) -> None:
        self._transport = transport
        self._groups = groups
        self._budget = budget
        self._timing = timing
        self._count = count
        self._try_again = try_again
        self._decided: dict[GroupKey, _Decided] = {}
        #: Of those that are written, as the API server says, and since when.
        self._written: dict[GroupKey, tuple[_Decided, float]] = {}
        self.writes: Dispatcher[GroupKey, _Decided] = Dispatcher(
            self._write, concurrency=WRITES_AT_A_TIME, pace=pace
        )

    def of(self, group: PodGroup) -> PodGroupStatus:
        """What is known of a group: as the watch shows it, or else as it was decided."""
        metadata = group.metadata
        key = GroupKey(metadata.namespace, metadata.name)
        decided = self._decided.get(key)
        if decided is None or (decided.uid, decided.version) != (metadata.uid, metadata.resource_version):
            # It was written, or somebody else was faster.
            return group.status
        return decided.status

    def see(self) -> None:
        """Forget what was decided of groups that the watch shows at another version, or no more."""
        for key, decided in list(self._decided.items()):
            known = self._groups.groups.get(key)
            found = None if known is None else known.object
            if found is None or (decided.uid, decided.version) != (
                found.metadata.uid,
                found.metadata.resource_version,
            ):
                del self._decided[key]

    def forget(self) -> None:
        """What was decided counts no more, unless the watch shows it."""
        self._decided.clear()
        self._written.clear()

    def look(self) -> None:
        """To be called every now and then. Statuses that the watch does not show long after they were written are
        decided anew: they were undone as the store went back, or else the watch is late, and they are found to be
        there."""
        before = self._timing.clock() - _SEEN_WITHIN
        self.see()
        for key, (decided, since) in list(self._written.items()):
            if self._decided.get(key) is not decided:
                del self._written[key]
            elif since <= before:
                self._undecided(key)

    def put(self, result: GroupResult) -> None:
        """Have a status written, unless the group has no object of Volcano's, or one that was made anew."""
        key = result.group.key
        known = self._groups.groups.get(key)
        found = None if known is None else known.object
        if not isinstance(found, PodGroup) or found.metadata.uid != result.group.uid:
            return
        decided = _Decided(found.metadata.uid, found.metadata.resource_version, result.status)
        self._decided[key] = decided
        self.writes.put(key, decided)

    async def _write(self, key: GroupKey, decided: _Decided) -> None:
        body = _encode(
            {
                "metadata": {"uid": decided.uid, "resourceVersion": decided.version},
                # As merge patch: what is None is taken away.
                "status": _status(decided.status),
            }
        )
        path = pod_group_path(key.namespace, key.name)
        patched = await patch_once(
            self._transport,
            path,
            body,
            wanted=lambda: not self.writes.waiting(key),
            budget=self._budget,
            timing=self._timing,
        )
        self._count("written" if patched.failure is None else "failed")
        if self._decided.get(key) is not decided:
            return
        if patched.failure is not None:
            self._undecided(key)
        elif patched.resource_version == decided.version:
            # The object had it already, and the watch has nothing to show.
            del self._decided[key]
        else:
            self._written[key] = (decided, self._timing.clock())

    def _undecided(self, key: GroupKey) -> None:
        """The next session decides on what there is."""
        del self._decided[key]
        self._written.pop(key, None)
        self._try_again()


def _status(status: PodGroupStatus) -> dict[str, Any]:
    conditions = [
        {name: value for name, value in msgspec.to_builtins(each).items() if value is not None}
        for each in status.conditions or ()
    ]
    return {
        "phase": status.phase,
        "conditions": conditions or None,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
    }


class _Written(NamedTuple):
    """What a queue of this UID was written to hold, at which version of it and when."""

    uid: str
    version: str
    held: Vector
    at: float


class QueueStatuses:
    """Owner of what was written of queues that the watch does not show yet, and of the names of all resources that were
    written: a queue may still have them.

    It follows the book of queues, so that pods of the fast path show as soon as those of gangs do, and what somebody
    else has written is written over.
    """

    def __init__(
        self,
        transport: Transport,
        groups: Groups,
        usage: QueueUsage,
        *,
        budget: Budget,
        timing: Timing,
        count: Count,
        pace: Pace,
    ) -> None:
        self._transport = transport
        self._groups = groups
        self._usage = usage
        self._budget = budget
        self._timing = timing
        self._count = count
        self._written: dict[str, _Written] = {}
        #: What the statuses of queues say, kept while they are the same objects.
        self._read: dict[str, tuple[Queue, Vector]] = {}
        self._named: dict[str, dict[str, None]] = {}
        #: Set while what queues hold, or say that they hold, may be another than when it was looked at.
        self.due = asyncio.Event()
        self._writes: Dispatcher[str, QueueResult] = Dispatcher(
            self._write, concurrency=WRITES_AT_A_TIME, pace=pace
        )

    async def run(self) -> None:
        """Until cancelled."""
        # What was written in an earlier term may have been written over since.
        self._written.clear()
        self.due.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writes.run())
            while True:
                await self.due.wait()
                # What comes together is one write.
                await self._timing.sleep(_SETTLE)
                self.due.clear()
                self._look()

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109 - as of all writers
        return await self._writes.drain(timeout)

    def _look(self) -> None:
        queues, book = self._groups.queues, self._usage.book
        infos = {name: info for name in queues if (info := book.info(name)) is not None}
        self.put(queue_results(infos, placed_in(book), self.said()))
        known: tuple[dict[str, Any], ...] = (self._written, self._read, self._named)
        for each in known:
            for name in each.keys() - queues.keys():
                del each[name]

    def said(self) -> dict[str, Vector]:
        """What the statuses say that queues hold; not of those of which that cannot be read."""
        found = {}
        for name, queue in self._groups.queues.items():
            written = self._unseen(queue)
            kept = self._read.get(name)
            if written is not None:
                found[name] = written.held
            elif kept is not None and kept[0] is queue:
                found[name] = kept[1]
            elif (held := _readable(queue)) is not None:
                self._read[name] = queue, held
                found[name] = held
        return found

    def _unseen(self, queue: Queue) -> _Written | None:
        """What was written of a queue, if the watch does not show it yet."""
        written, metadata = self._written.get(queue.name), queue.metadata
        if written is not None and (
            written.uid != metadata.uid
            or not is_older(metadata.resource_version, written.version)
            or self._timing.clock() >= written.at + _SEEN_WITHIN
        ):
            # The watch shows it, or shows long afterwards that it was undone as the store went back.
            del self._written[queue.name]
            return None
        return written

    def put(self, results: Iterable[QueueResult]) -> None:
        """Have those written that say otherwise."""
        for each in results:
            if each.write:
                self._writes.put(each.queue.name, each)

    async def _write(self, name: str, result: QueueResult) -> None:
        uid, resources = result.queue.uid, _resources(result.allocated)
        queue = self._groups.queues.get(name)
        named = self._named.setdefault(name, {})
        named |= dict.fromkeys((*resources, *((queue and queue.status.allocated) or ())))
        body = {"metadata": {"uid": uid}, "status": {"allocated": replacement(named, resources)}}
        patched = await patch_once(
            self._transport,
            f"{queue_path(name)}/status",
            _encode(body),
            wanted=lambda: not self._writes.waiting(name),
            budget=self._budget,
            timing=self._timing,
        )
        self._count("written" if patched.failure is None else "failed")
        if patched.failure is None:
            now = self._timing.clock()
            self._written[name] = _Written(uid, patched.resource_version, result.allocated, now)


def _readable(queue: Queue) -> Vector | None:
    """What its status says that it holds; None for what cannot be read, or names what nobody can hold."""
    allocated = queue.status.allocated
    try:
        held = of_resources(allocated)
    except QuantityError:
        return None
    return None if allocated is None or held.keys() != allocated.keys() else held


def _resources(total: Total) -> dict[str, str]:
    """Exactly: what is read back has to be what was written."""
    amounts = {resource: in_ledger_units(resource, amount) for resource, amount in total.items()}
    return {
        resource: text_of(resource, amount) if resource == "cpu" else str(amount)
        for resource, amount in amounts.items()
    }


#: What events about groups say that was done.
_ACTION: Final = "Scheduling"


def tell(recorder: EventRecorder, groups: Groups, event: Event, *, controller: str) -> None:
    """About a group that has an object."""
    known = groups.groups.get(event.group)
    found = None if known is None else known.object
    if not isinstance(found, PodGroup):
        return
    metadata = found.metadata
    about = ObjectReference("PodGroup", metadata.namespace, metadata.name, metadata.uid, API_VERSION)
    recorder.event(
        about,
        type=event.type,
        reason=event.reason,
        action=_ACTION,
        note=event.message,
        controller=controller,
    )
