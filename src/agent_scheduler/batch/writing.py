"""Writes the statuses of groups and queues, and events about groups.

Each kind of write has its own budget. At most one write per object is in flight; a newer one replaces one that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.quotas.vector import Total, Vector, in_ledger_units, of_resources
from agent_scheduler.engine.session.close import placed_in, queue_results
from agent_scheduler.engine.session.results import GroupResult, QueueResult
from agent_scheduler.engine.session.session import GroupEvent
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import (
    API_VERSION,
    INQUEUE,
    NOT_LET_IN,
    PodGroup,
    PodGroupStatus,
    Queue,
    pod_group_path,
    queue_path,
)
from agent_scheduler.objects.wire import Metadata
from apimachinery.quantity import QuantityError, text_of
from kube_client.budget import Budget
from kube_client.dispatch import Dispatcher
from kube_client.merging import replacement
from kube_client.pace import Pace
from kube_client.patch import patch_once
from kube_client.recorder import EventRecorder, ObjectReference
from kube_client.retry import Timing
from kube_client.transport import Transport
from kube_client.watch_events import is_older

from .settings import WRITES_AT_A_TIME

_encode = msgspec.json.Encoder().encode

#: Seconds within which the watch delivers a status after the API server has confirmed its write.
_SEEN_WITHIN: Final = 30.0
#: Seconds from a change of a queue's usage to the write of its status.
_SETTLE: Final = 0.2

#: Maximum seconds for which the status of a group whose members are being bound is deferred; sessions are at least one
#: period apart, by default one second.
_DEFERRED_FOR: Final = 3.0

#: Records the outcome of a write: "written" or "failed".
Count = Callable[[str], None]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Unseen(Generic[V]):
    """A value that is to be written to this version of an object, or that the API server confirmed as this version."""

    uid: str
    version: str
    value: V
    #: The time by which the watch should have delivered it; None before it is confirmed.
    until: float | None = None

    def is_missing_in(self, shown: Metadata | None) -> bool:
        """Return whether the watch shows the object as it was before this write."""
        if shown is None or shown.uid != self.uid:
            return False
        version = shown.resource_version
        return version == self.version if self.until is None else is_older(version, self.version)


class _UnseenWrites(dict[K, _Unseen[V]]):
    """Owner of what was written to objects, by key, for as long as the watch shows them without it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def confirm(self, key: K, unseen: _Unseen[V], version: str) -> None:
        unseen.version, unseen.until = version, self._clock() + _SEEN_WITHIN
        self[key] = unseen

    def is_late(self, unseen: _Unseen[V]) -> bool:
        """Return whether the watch should have delivered it. Then it is late, or the store was restored without it."""
        return unseen.until is not None and self._clock() >= unseen.until

    def of(self, key: K, shown: Metadata | None) -> _Unseen[V] | None:
        """Return what was written after this version of the object; forget it if it is delivered, or late."""
        unseen = self.get(key)
        if unseen is not None and (self.is_late(unseen) or not unseen.is_missing_in(shown)):
            del self[key]
            return None
        return unseen


class GroupStatuses:
    """Owner of the statuses that were decided and that the watch has not delivered yet.

    A status is written with the version of the object on which it was decided, so the API server rejects it if the
    object has changed since.

    The status of a group whose members are being bound is deferred, so that one write reports admission and binds. A
    process that ends before leaves a group that reports nothing and has bound members; `restore` finds it.
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
        self._unseen = _UnseenWrites[GroupKey, PodGroupStatus](timing.clock)
        #: Deferred statuses, each with the time by which it is written if no session has decided another one.
        self._deferred: dict[GroupKey, tuple[_Unseen[PodGroupStatus], float]] = {}
        self.writes: Dispatcher[GroupKey, _Unseen[PodGroupStatus]] = Dispatcher(
            self._write, concurrency=WRITES_AT_A_TIME, pace=pace
        )

    def of(self, group: PodGroup) -> PodGroupStatus:
        """Return the decided status of a group, or that of the watch if none was decided on this version."""
        metadata = group.metadata
        unseen = self._unseen.of(GroupKey(metadata.namespace, metadata.name), metadata)
        return group.status if unseen is None else unseen.value

    def see(self) -> None:
        """Forget the statuses of groups that the watch has delivered at another version, or as deleted."""
        for key in list(self._unseen):
            self._unseen.of(key, self._shown(key))

    def _shown(self, key: GroupKey) -> Metadata | None:
        known = self._groups.groups.get(key)
        return None if known is None or known.object is None else known.object.metadata

    def forget(self) -> None:
        """Forget all decided statuses, so that those of the watch are valid."""
        self._unseen.clear()
        self._deferred.clear()

    def restore(self, scheduler_name: str) -> Iterator[tuple[PodGroup, Collection[PodInfo]]]:
        """Return all groups with their members, and with the phases that the last process decided.

        A group that reports nothing, with members of this scheduler on nodes, is Inqueue: that process admitted it and
        ended before it wrote the status.
        """
        for group, members in self._groups.of_volcano():
            if _was_admitted(group, members, scheduler_name):
                status = replace(group.status, phase=INQUEUE)
                self._defer(GroupKey(group.metadata.namespace, group.metadata.name), group, status)
                yield replace(group, status=status), members
            else:
                yield group, members

    def look(self) -> None:
        """Write deferred statuses whose time has come, and make a session due if the watch is late with a status.

        Call this periodically. The session decides the status again, and finds it if it exists.
        """
        now = self._timing.clock()
        self.write_deferred([key for key, (_, until) in self._deferred.items() if now >= until])
        late = (key for key, unseen in self._unseen.items() if self._unseen.is_late(unseen))
        is_due = any(self._unseen[key].is_missing_in(self._shown(key)) for key in late)
        self.see()
        if is_due:
            self._try_again()

    def put(self, result: GroupResult) -> None:
        """Write a status, unless the group has no Volcano PodGroup, or one that was deleted and created again."""
        key = result.group.key
        known = self._groups.groups.get(key)
        found = None if known is None else known.object
        if not isinstance(found, PodGroup) or found.metadata.uid != result.group.uid:
            return
        self._defer(key, found, result.status)
        if not result.is_interim:
            self.write_deferred([key])

    def _defer(self, key: GroupKey, group: PodGroup, status: PodGroupStatus) -> None:
        decided = _Unseen(group.metadata.uid, group.metadata.resource_version, status)
        self._unseen[key] = decided
        self._deferred[key] = decided, self._timing.clock() + _DEFERRED_FOR

    @property
    def deferred(self) -> Collection[GroupKey]:
        """The groups whose statuses are deferred."""
        return self._deferred.keys()

    def write_deferred(self, keys: Iterable[GroupKey]) -> None:
        """Write the statuses of these groups that are deferred, unless the objects have changed since."""
        for key in list(keys):
            decided, _ = self._deferred.pop(key, (None, 0.0))
            if decided is not None and self._unseen.get(key) is decided:
                self.writes.put(key, decided)

    async def _write(self, key: GroupKey, decided: _Unseen[PodGroupStatus]) -> None:
        body = _encode(
            {
                "metadata": {"uid": decided.uid, "resourceVersion": decided.version},
                # In a merge patch, None removes a field.
                "status": _status(decided.value),
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
        if self._unseen.get(key) is not decided:
            return
        if patched.failure is not None:
            # The next session decides on the object as it is.
            del self._unseen[key]
            self._try_again()
        elif patched.resource_version == decided.version:
            # The object had this status already, so the watch delivers no change.
            del self._unseen[key]
        else:
            self._unseen.confirm(key, decided, patched.resource_version)


def _was_admitted(group: PodGroup, members: Iterable[PodInfo], scheduler_name: str) -> bool:
    """Return whether a process has admitted a group and not written this; see `GroupStatuses`."""
    status = group.status
    if status.phase not in NOT_LET_IN or status.conditions or group.waiting_roles:
        return False
    return any(pod.node_name and not pod.finished and pod.scheduler_name == scheduler_name for pod in members)


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


class QueueStatuses:
    """Owner of the statuses of queues that were written and that the watch has not delivered yet.

    It also owns the names of all resources that it wrote, since a queue's status may still contain them. The statuses
    follow the book of queues, so they include pods of the fast path at once, and replace what other clients write.
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
        self._written = _UnseenWrites[str, Vector](timing.clock)
        #: The parsed statuses of queues, valid while the queue is the same object.
        self._read: dict[str, tuple[Queue, Vector]] = {}
        self._named: dict[str, dict[str, None]] = {}
        #: Set when the usage or the status of queues may have changed since the last check.
        self.due = asyncio.Event()
        self._writes: Dispatcher[str, QueueResult] = Dispatcher(self._write, concurrency=WRITES_AT_A_TIME, pace=pace)

    async def run(self) -> None:
        """Write the statuses of queues until cancelled."""
        # Another leader may have written statuses since an earlier term of this process.
        self._written.clear()
        self.due.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writes.run())
            while True:
                await self.due.wait()
                # Changes within this time are one write.
                await self._timing.sleep(_SETTLE)
                self.due.clear()
                self._look()

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109 - the signature of all writers
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
        """Return the amounts in the statuses of queues, without those of queues whose status is missing or invalid."""
        found = {}
        for name, queue in self._groups.queues.items():
            written = self._written.of(name, queue.metadata)
            kept = self._read.get(name)
            if written is not None:
                found[name] = written.value
            elif kept is not None and kept[0] is queue:
                found[name] = kept[1]
            elif (held := _readable(queue)) is not None:
                self._read[name] = queue, held
                found[name] = held
        return found

    def put(self, results: Iterable[QueueResult]) -> None:
        """Write the statuses that differ from those of the objects."""
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
            written = _Unseen[Vector](uid, patched.resource_version, result.allocated)
            self._written.confirm(name, written, patched.resource_version)


def _readable(queue: Queue) -> Vector | None:
    """Return the amounts in a queue's status; None if they are missing or invalid, or name uncounted resources."""
    allocated = queue.status.allocated
    try:
        held = of_resources(allocated)
    except QuantityError:
        return None
    return None if allocated is None or held.keys() != allocated.keys() else held


def _resources(total: Total) -> dict[str, str]:
    """Return the amounts as exact quantities, so that reading them again yields the same amounts."""
    amounts = {resource: in_ledger_units(resource, amount) for resource, amount in total.items()}
    return {
        resource: text_of(resource, amount) if resource == "cpu" else str(amount)
        for resource, amount in amounts.items()
    }


#: The `action` of events about groups.
_ACTION: Final = "Scheduling"


def tell(recorder: EventRecorder, groups: Groups, event: GroupEvent, *, controller: str) -> None:
    """Record an event about a group, if the group has a Volcano PodGroup."""
    known = groups.groups.get(event.group)
    found = None if known is None else known.object
    if not isinstance(found, PodGroup):
        return
    metadata = found.metadata
    about = ObjectReference("PodGroup", metadata.namespace, metadata.name, metadata.uid, API_VERSION)
    recorder.event(
        about, type=event.type, reason=event.reason, action=_ACTION, note=event.message, controller=controller
    )
