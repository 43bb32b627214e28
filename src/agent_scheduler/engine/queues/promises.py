"""Admission of Volcano PodGroups to their queues, and the room of the queue that is promised to each.

A group is admitted when its queue and the queue's ancestors have room for all that the group needs to run, by their
declared limits: its `minResources`, or the requests of its minimum of members if these are larger. It waits for this in
the same line as gated pods and pods of the fast path (`engine.queues.waiting`). From then on no other pod may use the
room: it counts in the queue as promised until members of the group hold it, admitted past their gate or on a node. So
the gates of an admitted group's members are removed, and those of other groups are not.

A group in phase Inqueue that an earlier or another process has admitted gets its promise when it is observed. A group
that reports QueueFull gets none: it was admitted because pods may be evicted for it, and it waits for its room.

An admitted group that lacks members yields after some time to others that wait for the room. From then on it comes
last: until it has its members, and for at most an hour, it is admitted only if no other waiting pod or group needs the
room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf
from typing import Final

from agent_scheduler.objects.batch import INQUEUE, NOT_LET_IN, RUNNING, UNKNOWN, PodGroup
from apimachinery.quantity import QuantityError

from ..quotas.vector import EMPTY, Total, Vector, add_to, at_least, is_empty, of_resources, rest
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from .asks import Ask, Promise, needed, role_of, turn_in_gang, turn_of_group
from .entries import Standing
from .outside import OutsideLine
from .room import QueueRoom
from .shortfall import QUEUE_FULL, Shortfall
from .wanting import WantingPods

#: Phases in which groups keep their promise while some of their roles wait for others.
_BEGUN: Final = (RUNNING, UNKNOWN)
#: Maximum seconds for which a group that has yielded comes last; it ends earlier when the group has its members.
_LAST_FOR: Final = 3600.0


def _line_name(key: GroupKey) -> str:
    """Return the name under which a group waits for admission; its gated members wait under `key.text`."""
    return f"PodGroup {key.text}"


def _says_queue_full(group: PodGroup) -> bool:
    return any(each.status == "True" and each.reason == QUEUE_FULL for each in group.status.conditions or ())


def _has_gated(members: Iterable[PodInfo]) -> bool:
    return any(pod.closed_gates for pod in members)


class Promises:
    """Owner of the admitted groups and of the groups that wait for admission.

    `Groups` calls it for each PodGroup, `QueueUsage` for each member that uses room, and sessions for the groups that
    request admission. Invariants: a group is admitted, waits in line, or neither; it does both, without a promise, if
    pods may be evicted for it. While queues are counted and groups are admitted by sessions, the rest of each promise
    has an entry in the book under the name of its group, if its queue accepts pods.
    """

    def __init__(self, room: QueueRoom, wanting: WantingPods) -> None:
        self._room = room
        self._members = room.members
        self._wanting = wanting
        self.outside = OutsideLine(room, wanting)
        self.events = room.events
        #: Whether groups need admission, that is, sessions have the action enqueue.
        self.asks = False
        self._promises: dict[GroupKey, Promise] = {}
        #: Name under which a group waits -> its request.
        self._asking: dict[str, Ask] = {}
        #: UID -> the group whose promise the pod has used.
        self._spender: dict[str, GroupKey] = {}
        #: Groups that are not admitted and not in line: the last session rejected them for another reason than their
        #: queue, or they have yielded.
        self._kept_out: set[GroupKey] = set()
        #: Whether groups have yielded since the last session began.
        self._gave_way = False
        #: Whether groups had yielded before the last session. If so, it admits no group that comes last, since it must
        #: first place the pods for which they yielded.
        self._places_others = False
        #: Group that comes last -> the time at which it yielded.
        self._gave_way_at: dict[GroupKey, float] = {}
        #: The requests of groups that come last and that the last session has not admitted.
        self._last: dict[GroupKey, Ask] = {}
        #: PodGroup -> its UID, and its phase as last seen.
        self._seen: dict[GroupKey, tuple[str, str]] = {}

    def ask_for_groups(self, asks: bool, groups: Iterable[tuple[PodGroup, Collection[PodInfo]]]) -> None:
        """Set whether sessions admit groups from now on. `groups` are all existing ones with their members."""
        if asks != self.asks:
            self.asks = asks
            self.read_anew(groups)

    def read_anew(self, groups: Iterable[tuple[PodGroup, Collection[PodInfo]]]) -> None:
        """Restore the promises of earlier processes from the phases of all groups.

        This replaces promises of groups that were observed one by one, whose members may have been created later.
        """
        self._seen.clear()
        for key in [*self._promises, *(each.key for each in self._asking.values())]:
            self._end(key)
        for group, members in groups:
            self.see(group, members)
        self._room.groups_read()
        self._room.freed()

    # ---- objects

    def see(self, group: PodGroup, members: Collection[PodInfo]) -> None:
        """Handle an added or changed PodGroup."""
        if not self.asks:
            return
        metadata, phase = group.metadata, group.status.phase
        key = GroupKey(metadata.namespace, metadata.name)
        before = self._seen.get(key)
        self._seen[key] = (metadata.uid, phase)
        if before is None:
            self._kept_out.discard(key)
            if not self.is_let_in(key):
                # The position in line was kept for the members that existed before the group was observed.
                self._end(key)
        queue = self._members.queue_of_group(group.spec.queue, metadata.namespace)
        promise = self._promises.get(key)
        if before is not None and before[0] != metadata.uid:
            # The group was deleted and created again.
            self.end(key)
            before = promise = None
        elif promise is not None and promise.queue != queue:
            self.end(key)
            return
        changed = before is None or before[1] != phase
        if not changed:
            return
        begun = phase in _BEGUN and bool(group.waiting_roles)
        if begun:
            # The group keeps for its stages what a new process would find.
            self._end(key)
            self._adopt(key, group, queue, members)
            self._room.freed()
        elif phase == INQUEUE:
            if promise is None:
                self._adopt(key, group, queue, members)
            elif self._credit(key, promise, self._of_others(members)):
                # A session knows only the members of its scheduler.
                self._room.freed()
                self.events.unreserved()
        elif before is not None and (before[1] == INQUEUE or phase not in NOT_LET_IN):
            # Another client has changed its phase, or the group runs, so it no longer requests admission.
            self.end(key)

    def gone(self, key: GroupKey) -> None:
        """Remove a deleted PodGroup."""
        self._seen.pop(key, None)
        self._gave_way_at.pop(key, None)
        self._last.pop(key, None)
        self._kept_out.discard(key)
        self.end(key)

    def abandoned(self, key: GroupKey) -> None:
        """End the promise of a group that has lost its last member, so that it requests admission again."""
        if key in self._promises:
            self.end(key)

    def _adopt(self, key: GroupKey, group: PodGroup, queue: str, members: Collection[PodInfo]) -> None:
        try:
            wanted = of_resources(group.spec.min_resources)
        except QuantityError:
            # Sessions report the invalid group and do not admit it.
            return
        begun, says = group.status.phase in _BEGUN, group.spec.min_resources is not None
        if not begun and (says or any(pod.batch and pod.batch.gate_managed for pod in members)):
            wanted = at_least(wanted, self._of_minimum(group, members))
        self._stop_asking(key)
        # The value of its PriorityClass is known only in sessions.
        priority = max((pod.priority for pod in members), default=0)
        metadata = group.metadata
        created = metadata.creation_timestamp or ""
        own = turn_of_group(members, priority, created, key.name, metadata.uid, group.status.conditions)
        # A group that has begun has had its minimum and requests nothing more. For others, the next session determines
        # what they need.
        ask = Ask(key, queue, wanted, members, own, complete=begun)
        lacked = rest(wanted, self._held(members))
        if not begun and _says_queue_full(group) and not _has_gated(members) and not is_empty(lacked):
            self._let_in_without_room(ask, lacked)
            return
        self._promise(ask)
        self._promises[key].is_settled = begun

    def _of_minimum(self, group: PodGroup, members: Iterable[PodInfo]) -> Vector:
        """Return the requests of the minimum of members, in total and by role; members with room come first."""
        there = [pod for pod in members if not pod.finished]
        there.sort(key=lambda pod: (not self._of(pod), turn_in_gang(pod)))
        first, _ = needed(there, role_of=role_of, more=group.spec.min_member, of_roles=group.spec.min_task_member or {})
        total: Total = {}
        for pod in first:
            add_to(total, self._members.vector(pod))
        return total

    # ---- sessions

    def is_let_in(self, key: GroupKey) -> bool:
        promise = self._promises.get(key)
        return promise is not None and promise.is_let_in

    def begin(self, asks: Iterable[Ask]) -> None:
        """Prepare for the requests of a session's groups.

        Pods and groups that wait already are served first. Promises that were restored with an estimate are set to what
        the group needs.
        """
        self._places_others, self._gave_way = self._gave_way, False
        for ask in asks:
            promise = self._promises.get(ask.key)
            if promise is not None and not promise.is_settled:
                promise.is_settled = True
                self._set(ask, promise)
        self._room.session_begins()
        self._room.freed()

    def ask(self, ask: Ask, may_go: Vector = EMPTY) -> None:
        """Admit the group if its queue has room for what it needs; otherwise it waits for this. Call `begin` before.

        An admitted group keeps its promise, and is promised what it needs in addition while its queue has room for it.
        Otherwise it returns all that its members do not hold, and waits for it: two groups that keep half of what they
        need would wait for each other. `may_go` is the usage of pods of its queue that may be evicted. With this room,
        a group without gated pods is admitted without a promise, and gets its room in its turn or when the pods leave.

        A group that comes last does not wait in line. It is admitted if its queue has room for it beside all pods that
        wait for nodes; the pods and groups in line have no room at present.
        """
        self._kept_out.discard(ask.key)
        self._last.pop(ask.key, None)
        if ask.complete:
            self._gave_way_at.pop(ask.key, None)
        promise = self._promises.get(ask.key)
        if promise is not None and not promise.is_let_in:
            # Its position in line was kept for an earlier estimate of its needs.
            self._end(ask.key)
        elif promise is not None and not self._adjust(ask, promise):
            return
        # The pods and groups in line have no room now, so admitting a group that fits overtakes none of them.
        headroom = self._room.book.headroom()
        wanted = self._lacks(ask)
        if ask.key in self._gave_way_at and (
            self._places_others or not self.outside.leave_room(ask.queue, self._lacks(ask))
        ):
            self._stop_asking(ask.key)
            self._kept_out.add(ask.key)
            self._last[ask.key] = ask
        elif is_empty(wanted) or headroom.shortfall(ask.queue, wanted) is None:
            self._stop_asking(ask.key)
            self._promise(ask)
        else:
            headroom.give(ask.queue, may_go)
            if may_go and not _has_gated(ask.members) and headroom.shortfall(ask.queue, wanted) is None:
                self._let_in_without_room(ask, wanted)
            else:
                self._stand(ask, wanted)

    def _let_in_without_room(self, ask: Ask, wanted: Vector) -> None:
        """Admit a group without a promise; it waits for its room, and pods may be evicted for it meanwhile."""
        self._promise(ask._replace(wanted=EMPTY))
        self._stand(ask, wanted)

    def keep_turn(self, ask: Ask) -> None:
        """Keep the position in line of a group with gated members that is not admitted.

        Otherwise pods and groups after it might use the room for which a session would admit it.
        """
        if ask.key in self._promises or ask.key in self._kept_out:
            return
        ask = ask._replace(voted=False)
        name = _line_name(ask.key)
        known = self._asking.get(name)
        wanted = self._lacks(ask)
        if is_empty(wanted) or (known is not None and known.voted):
            return
        # Others with an earlier turn may not be in line so far, so the room is assigned when all are.
        self._stand(ask, wanted)
        self._room.book.fallen.add(ask.queue)

    def end_turn(self, key: GroupKey) -> None:
        """End the kept position of a group that has no gated members any longer; a session may let it wait again."""
        promise, asking = self._promises.get(key), self._asking.get(_line_name(key))
        if (promise is not None and not promise.is_let_in) or (asking is not None and not asking.voted):
            self.end(key)

    def _stand(self, ask: Ask, wanted: Vector) -> None:
        name, room = _line_name(ask.key), self._room
        known = self._asking.get(name)
        self._asking[name] = ask._replace(lacks=wanted)
        room.waiting.add(name, {ask.queue: wanted}, ask.turn._replace(uid=name))
        if known is None or known.queue != ask.queue:
            # Its gated members report what they wait for.
            room.group_changed(ask.key)

    def _adjust(self, ask: Ask, promise: Promise) -> bool:
        """Update the promise of an admitted group. Returns whether the group must request admission again."""
        promise.complete = ask.complete
        left = self._lacks(ask)
        headroom = self._room.book.headroom()
        if not is_empty(left) and headroom.shortfall(ask.queue, left, (), ask.key.text) is not None:
            self.end(ask.key)
            return True
        if (promise.wanted, promise.turn) != (ask.wanted, ask.turn):
            self._stop_asking(ask.key)
            self._set(ask, promise)
            self._room.group_changed(ask.key)
            self._room.freed()
        return False

    def _set(self, ask: Ask, promise: Promise) -> None:
        promise.wanted, promise.turn = ask.wanted, ask.turn
        self._count(ask.key, promise)

    def withdraw(self, key: GroupKey) -> None:
        """End the request or admission of a group that is rejected for another reason than its queue."""
        self._kept_out.add(key)
        self._last.pop(key, None)
        self.end(key)

    def give_way(self, now: float, patience: float) -> bool:
        """Let groups yield that have lacked members, or ungated members, for `patience` seconds at time `now`.

        They return their promise if another waiting pod or group then has room. Returns whether a session is due: a
        group has yielded, or one that comes last may be admitted.
        """
        ended = []
        for key, promise in self._promises.items():
            if promise.complete or not self._left(promise):
                promise.incomplete_since = None
            elif promise.incomplete_since is None:
                promise.incomplete_since = now
            elif now >= promise.incomplete_since + patience:
                ended.append(key)
        gave = self._give_way(sorted(ended, key=lambda key: self._promises[key].turn, reverse=True), now)
        for key in [key for key, at in self._gave_way_at.items() if now >= at + _LAST_FOR]:
            del self._gave_way_at[key]
        may_ask = [
            key
            for key, ask in self._last.items()
            if key not in self._gave_way_at or self.outside.leave_room(ask.queue, self._lacks(ask))
        ]
        for key in may_ask:
            del self._last[key]
        return gave or bool(may_ask)

    def gives_way_at(self, now: float, patience: float) -> float:
        """Return the next time after `now` at which `give_way` lets a group yield; infinite if there is none.

        `give_way` has to be called soon after each session, because it determines since when groups lack members.
        """
        since = (each.incomplete_since for each in self._promises.values() if each.incomplete_since is not None)
        return min((at for at in (each + patience for each in since) if at > now), default=inf)

    def _give_way(self, keys: Sequence[GroupKey], now: float) -> bool:
        """Let as many of these groups yield, in their order, as are needed for another pod or group to have room."""
        room = self._room
        headroom = room.book.headroom()
        rooms: list[tuple[str, Vector]] = []
        for number, key in enumerate(keys, 1):
            promise = self._promises[key]
            headroom.give(promise.queue, promise.left())
            rooms.append((promise.queue, promise.left()))
            if self.outside.need(rooms, is_free=False) or room.waiting.would_fit(headroom.copy()):
                for given in keys[:number]:
                    self._gave_way_at[given] = now
                    self._kept_out.add(given)
                    self._end(given)
                self._gave_way = True
                room.freed()
                return True
        return False

    def settle(self, key: GroupKey, phase: str, *, roles_wait: bool) -> None:
        """End the promise of an admitted group if the phase that a session decided requires it."""
        if self.is_let_in(key) and phase != INQUEUE and not (phase in _BEGUN and roles_wait):
            self.end(key)

    @property
    def ceded(self) -> Collection[GroupKey]:
        """The groups that come last; other groups do not yield for them."""
        return self._gave_way_at.keys()

    def asks_for(self, key: GroupKey) -> bool:
        """Return whether the group waits in line for admission."""
        return _line_name(key) in self._asking

    def has_answered(self, key: GroupKey) -> bool:
        """Return whether the group has requested admission and was not admitted."""
        return self.asks_for(key) or key in self._kept_out

    def called(self, name: str) -> str:
        """Return the name in messages of the group that waits under `name`."""
        ask = self._asking.get(name)
        return name if ask is None else ask.key.text

    def shortfall(self, key: GroupKey) -> Shortfall | None:
        """Return what a waiting group lacks, or an admitted one whose queue keeps more room than its limit.

        Returns None for other groups, and for a waiting group that only waits for its turn.
        """
        name, promise, book = _line_name(key), self._promises.get(key), self._room.book
        if name in self._asking:
            ((queue, wanted),) = self._room.waiting.wanted(name).items()
            return book.shortfall(queue, wanted)
        if promise is None or not (promise.is_let_in and self._room.active):
            return None
        return book.shortfall(promise.queue, promise.left(), group=key.text)

    def before(self, key: GroupKey, queue: str) -> list[str]:
        """Return the names before a waiting group, of those that wait for `queue`."""
        return self._room.waiting.before(_line_name(key), self._room.book, queue)

    # ---- the line

    def waits_as(self, name: str) -> bool:
        """Return whether a group waits under this name."""
        return name in self._asking

    def let_in(self, names: Iterable[str]) -> list[str]:
        """Admit the groups that wait under these names, for which their queues have room.

        A group whose members hold less than when it was put in line needs more room, and keeps waiting. Return the
        queues of such groups, where others may have the room.
        """
        queues = []
        for name in names:
            ask = self._asking[name]
            lacks = self._lacks(ask)
            if is_empty(rest(lacks, ask.lacks)):
                del self._asking[name]
                self._promise(ask)
                self.events.let_in(ask.key)
            else:
                self._stand(ask, lacks)
                queues.append(ask.queue)
        return queues

    def step_aside(self) -> list[Ask]:
        """Remove all groups from the line. Returns their requests for `come_again`."""
        asks = list(self._asking.values())
        for ask in asks:
            self._stop_asking(ask.key)
        return asks

    def come_again(self, asks: Iterable[Ask]) -> None:
        """Return groups to the line after `step_aside`."""
        for ask in asks:
            self._stand(ask, self._lacks(ask))
            self._room.book.fallen.add(ask.queue)

    def ask_anew(self, key: GroupKey) -> None:
        """Let a group in line ask for what it lacks now."""
        ask = self._asking.get(_line_name(key))
        if ask is not None:
            self._stop_asking(key)
            self.come_again([ask])

    # ---- promises

    def end(self, key: GroupKey) -> None:
        """End the promise and the request of a group."""
        was_let_in, left = key in self._promises, self.left(key)
        self._end(key)
        if was_let_in:
            self._room.freed()
        if left:
            # Pods that are not in line may use the room.
            self.events.unreserved()

    def _end(self, key: GroupKey) -> None:
        self._stop_asking(key)
        promise = self._promises.pop(key, None)
        if promise is None:
            return
        for uid in promise.spent:
            del self._spender[uid]
        self._room.book.remove(key.text)
        self._room.group_changed(key)

    def _stop_asking(self, key: GroupKey) -> None:
        name = _line_name(key)
        if self._asking.pop(name, None) is not None:
            self._room.waiting.remove(name)

    def _promise(self, ask: Ask) -> None:
        key = ask.key
        promise = self._promises[key] = Promise(ask)
        self._credit(key, promise, ask.members)
        self._count(key, promise)
        self._room.group_changed(key)

    def _credit(self, key: GroupKey, promise: Promise, members: Iterable[PodInfo]) -> bool:
        """Record what these members have used of the promise. Returns whether that changes anything."""
        found = [pod.uid for pod in members if (vector := self._of(pod)) and promise.spend(pod.uid, vector)]
        self._spender.update(dict.fromkeys(found, key))
        if found:
            self._count(key, promise)
        return bool(found)

    def _of_others(self, members: Iterable[PodInfo]) -> Iterator[PodInfo]:
        return (pod for pod in members if pod.scheduler_name not in self._members.batch_schedulers)

    def _of(self, pod: PodInfo) -> Vector:
        """Return what the pod has used of its group's promise.

        It is what the pod holds in its queue, or held when it ran or before its reservation ended.
        """
        entry = self._room.book.entry(pod.uid)
        if entry is not None:
            return entry.vector
        held = (pod.finished and pod.node_name) or pod.uid in self._room.given_back
        return self._members.vector(pod) if held else EMPTY

    def _lacks(self, ask: Ask) -> Vector:
        """Return what the group needs in addition to what its members hold."""
        return rest(ask.wanted, self._held(ask.members))

    def _held(self, members: Iterable[PodInfo]) -> Vector:
        """Return the part of a group's needs for which its queue needs no more room.

        A member whose reservation ended needs room again.
        """
        total: Total = {}
        for pod in members:
            if pod.uid not in self._room.given_back or self._room.book.entry(pod.uid) is not None:
                add_to(total, self._of(pod))
        return total

    def _count(self, key: GroupKey, promise: Promise) -> None:
        room = self._room
        if not room.active:
            return
        left = self._left(promise)
        if left:
            before = room.book.entry(key.text)
            room.book.set(key.text, promise.queue, left, Standing.PROMISED, promise.turn)
            if before is None or before.queue != promise.queue or not is_empty(rest(left, before.vector)):
                self._wanting.holds_more(promise.queue)
        else:
            room.book.remove(key.text)

    def count_all(self) -> None:
        """Add all promises to an empty book."""
        for key, promise in self._promises.items():
            self._count(key, promise)

    def left(self, key: GroupKey) -> Vector:
        """Return the part of the group's promise that no member holds."""
        promise = self._promises.get(key)
        return EMPTY if promise is None else self._left(promise)

    def _left(self, promise: Promise) -> Vector:
        """Return the rest of a promise for which room is kept: nothing while its queue accepts no pods."""
        return promise.left() if self._room.keeps_room(promise.queue) else EMPTY

    def queue_of(self, key: GroupKey) -> str:
        """Return the queue to which a group is admitted; empty if it is not."""
        return self._promises[key].queue if self.is_let_in(key) else ""

    def is_unseen(self, key: GroupKey) -> bool:
        """Return whether groups need admission and this Volcano PodGroup has not been observed."""
        return self.asks and not key.native and key not in self._seen

    def keeps_out(self, key: GroupKey) -> bool:
        """Return whether gated members of the group must wait for its admission."""
        seen = self._seen.get(key) if self.asks else None
        return seen is not None and not self.is_let_in(key) and seen[1] in (*NOT_LET_IN, INQUEUE)

    # ---- members

    def spend(self, pod: PodInfo, vector: Vector) -> None:
        """Count a pod's room as used from the promise of its group."""
        key = pod.batch.group if pod.batch is not None else None
        before = self._spender.get(pod.uid)
        if before is not None and before != key:
            self.restore(pod.uid)
        promise = self._promises.get(key) if key is not None else None
        if key is not None and promise is not None and promise.spend(pod.uid, vector):
            self._spender[pod.uid] = key
            self._count(key, promise)

    def uncount(self, uid: str) -> None:
        """Remove the entry of a pod, and return its part to the promise of its group.

        The promise gets nothing back for a bound pod, which has run, and for a pod whose reservation was released.
        """
        entry = self._room.book.entry(uid)
        self._room.book.remove(uid)
        if entry is not None and entry.standing is not Standing.BOUND and uid not in self._room.given_back:
            self.restore(uid)

    def restore(self, uid: str) -> None:
        """Return a pod's room to the promise: it is no longer counted and has not run, or has left the gang."""
        key = self._spender.pop(uid, None)
        if key is not None and self._promises[key].restore(uid):
            self._count(key, self._promises[key])

    def promises(self) -> Iterable[tuple[GroupKey, str, Vector]]:
        """Return each group with a promise, its queue, and the rest for which room is kept."""
        return [(key, promise.queue, self._left(promise)) for key, promise in self._promises.items()]
