"""PodGroups of Volcano's that are let into their queue, and the room of the queue that is promised to each.

A group is let in when what its queue and those above it declare has room for all that the group needs to run: its
`minResources`, or what its minimum of members asks for if that is more. It waits for that in the same line as gated
pods and pods of the fast path (`engine.quotas.waiting`). From then on the room is nobody else's: it is counted in the
queue as promised until members of the group hold it, past their gate or on a node. So whoever is let in is let past the
gate, and nobody else is.

A group in phase Inqueue that an earlier process, or another one, has let in has its promise from when it is seen. One
that says QueueFull is promised nothing: it was let in because others may be evicted for it, and waits for its room.

A group that was let in and lacks members gives way after a time to others who wait for the room. From then on it comes
last: until it has its members, and for an hour at most, it is let in only where nobody else who waits wants the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent_scheduler.objects.batch import INQUEUE, NOT_LET_IN, RUNNING, UNKNOWN, PodGroup
from apimachinery.quantity import QuantityError

from ..quotas.entries import Standing
from ..quotas.shortfall import QUEUE_FULL, Shortfall
from ..quotas.vector import EMPTY, Total, Vector, add_to, at_least, is_empty, of_resources, rest
from .asks import Ask, Promise, needed, role_of, turn_in_gang, turn_of_group
from .batchinfo import GroupKey
from .podinfo import PodInfo

if TYPE_CHECKING:
    from .queueusage import QueueUsage

#: Phases of groups that keep what they were promised while some of their roles wait for others.
_BEGUN: Final = (RUNNING, UNKNOWN)
#: Seconds for which a group that has given way comes last, unless it has its members before.
_LAST_FOR: Final = 3600.0


def _line_name(key: GroupKey) -> str:
    """Under which a group waits to be let in. Its gated members wait under the group's own."""
    return f"PodGroup {key.text}"


def _says_queue_full(group: PodGroup) -> bool:
    return any(each.status == "True" and each.reason == QUEUE_FULL for each in group.status.conditions or ())


def _has_gated(members: Iterable[PodInfo]) -> bool:
    return any(pod.closed_gates for pod in members)


class Promises:
    """Owner of which groups are let in, and of who waits for that. Told by `Groups` of each PodGroup, by the queues'
    usage of each member that takes room, and by sessions of who asks.

    Invariants: a group is let in, waits in line, or neither; both, and is promised nothing, if others may be evicted
    for it. While queues are counted and groups are asked for, what is left of each promise stands in the book under the
    name of its group, as promised, if its queue takes pods.
    """

    def __init__(self, usage: QueueUsage) -> None:
        self._usage = usage
        #: Called with a group that is let in by others making room.
        self.on_let_in: Callable[[GroupKey], object] = lambda key: None
        #: Whether groups ask to be let in: sessions have the action enqueue.
        self.asks = False
        self._promises: dict[GroupKey, Promise] = {}
        #: By the name under which it waits.
        self._asking: dict[str, Ask] = {}
        #: UID -> the group from whose promise the pod has taken its room.
        self._spender: dict[str, GroupKey] = {}
        #: Groups that are not let in and do not stand in line: something else than their queue keeps them out, by the
        #: last session, or they gave way.
        self._kept_out: set[GroupKey] = set()
        #: By the last session, what groups lack in their queues that do not stand in line, since they are let in or ask
        #: for nothing; without those that come last.
        self.lacking: list[Shortfall] = []
        #: By the last session and by queue, what pods without a node want there and in queues below it, for which no
        #: room is kept.
        self.wanted: Mapping[str, Vector] = {}
        #: Whether groups have given way since the last session began.
        self._gave_way = False
        #: Whether they had given way before it: then it lets in none that comes last, as it is to place those for whom
        #: they did.
        self._places_others = False
        #: Groups that come last, and when they gave way.
        self._gave_way_at: dict[GroupKey, float] = {}
        #: What those of them ask for that the last session has not let in.
        self._last: dict[GroupKey, Ask] = {}
        #: Of each PodGroup: its UID, and its phase as last seen.
        self._seen: dict[GroupKey, tuple[str, str]] = {}

    def ask_for_groups(self, asks: bool, groups: Iterable[tuple[PodGroup, Collection[PodInfo]]]) -> None:
        """Whether sessions let groups in from now on. `groups`: all that there are, with their members."""
        if asks != self.asks:
            self.asks = asks
            self.read_anew(groups)

    def read_anew(self, groups: Iterable[tuple[PodGroup, Collection[PodInfo]]]) -> None:
        """Promise what the phases of these groups, all that there are, say that earlier processes have promised. Of
        those that were seen one by one, members may have come since."""
        self._seen.clear()
        for key in [*self._promises, *(each.key for each in self._asking.values())]:
            self._end(key)
        for group, members in groups:
            self.see(group, members)
        self._usage.gated.decide_all_anew()
        self._usage.call()

    # ---- objects

    def see(self, group: PodGroup, members: Collection[PodInfo]) -> None:
        """The PodGroup was added or changed."""
        if not self.asks:
            return
        metadata, phase = group.metadata, group.status.phase
        key = GroupKey(metadata.namespace, metadata.name)
        before = self._seen.get(key)
        self._seen[key] = (metadata.uid, phase)
        if before is None:
            self._kept_out.discard(key)
            if not self.is_let_in(key):
                # Its turn was kept for those of its members that were there.
                self._end(key)
        queue = group.spec.queue or self._usage.default_queue
        promise = self._promises.get(key)
        if before is not None and before[0] != metadata.uid:
            # Another one of the same name.
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
            # It keeps for its stages what a new process would find.
            self._end(key)
            self._adopt(key, group, queue, members)
            self._usage.call()
        elif phase == INQUEUE:
            if promise is None:
                self._adopt(key, group, queue, members)
        elif before is not None and (before[1] == INQUEUE or phase not in NOT_LET_IN):
            # Somebody says otherwise of it, or it runs: it asks no more.
            self.end(key)

    def gone(self, key: GroupKey) -> None:
        """There is no such PodGroup any more."""
        self._seen.pop(key, None)
        self._gave_way_at.pop(key, None)
        self._last.pop(key, None)
        self._kept_out.discard(key)
        self.end(key)

    def abandoned(self, key: GroupKey) -> None:
        """The group has lost the last of its members: it asks anew, and others who wait have theirs."""
        if key in self._promises:
            self.end(key)

    def _adopt(self, key: GroupKey, group: PodGroup, queue: str, members: Collection[PodInfo]) -> None:
        try:
            wanted = of_resources(group.spec.min_resources)
        except QuantityError:
            # Sessions say so, and let it in no more.
            return
        begun, says = group.status.phase in _BEGUN, group.spec.min_resources is not None
        if not begun and (says or any(pod.batch and pod.batch.gate_managed for pod in members)):
            wanted = at_least(wanted, self._of_minimum(group, members))
        self._stop_asking(key)
        # What its PriorityClass says is for sessions to know.
        priority = max((pod.priority for pod in members), default=0)
        metadata = group.metadata
        created = metadata.creation_timestamp or ""
        own = turn_of_group(members, priority, created, key.name, metadata.uid, group.status.conditions)
        # One that has begun has had its minimum, and asks no more; of another one the next session says what it needs.
        ask = Ask(key, queue, wanted, members, own, complete=begun)
        lacked = rest(wanted, self._held(members))
        if not begun and _says_queue_full(group) and not _has_gated(members) and not is_empty(lacked):
            self._let_in_without_room(ask, lacked)
            return
        self._promise(ask)
        self._promises[key].is_settled = begun

    def _of_minimum(self, group: PodGroup, members: Iterable[PodInfo]) -> Vector:
        """What the minimum of members asks for, of the group and of its roles: those first that hold room already."""
        there = [pod for pod in members if not pod.finished]
        there.sort(key=lambda pod: (not self._of(pod), turn_in_gang(pod)))
        first, _ = needed(
            there,
            role_of=role_of,
            more=group.spec.min_member,
            of_roles=group.spec.min_task_member or {},
        )
        total: Total = {}
        for pod in first:
            add_to(total, self._usage.vector(pod))
        return total

    # ---- sessions

    def is_let_in(self, key: GroupKey) -> bool:
        promise = self._promises.get(key)
        return promise is not None and promise.is_let_in

    def begin(self, asks: Iterable[Ask]) -> None:
        """Groups are about to ask. Those who wait already, or are about to, come before them. What an earlier process
        has let in was promised what it needs, as far as anybody can tell."""
        self._places_others, self._gave_way = self._gave_way, False
        for ask in asks:
            promise = self._promises.get(ask.key)
            if promise is not None and not promise.is_settled:
                promise.is_settled = True
                self._set(ask, promise)
        self._usage.gated.admit()
        self._usage.call()

    def ask(self, ask: Ask, may_go: Vector = EMPTY) -> None:
        """Let the group in if its queue has room for what it needs, or else have it wait for that. After `begin`.

        A group that is let in keeps what it was promised, and is promised what it needs besides, while its queue has
        room for that. Otherwise it gives back all that its members do not hold, and waits for it: two groups that keep
        half of what they need would wait for one another. `may_go`: what pods of its queue hold that may be evicted for
        a group without gated pods: it is let in, and has its room in its turn, or as they leave.

        One that comes last does not stand in line. It is let in if its queue has room for it beside all who wait for
        nodes: those who stand in line find no room at present.
        """
        self._kept_out.discard(ask.key)
        self._last.pop(ask.key, None)
        if ask.complete:
            self._gave_way_at.pop(ask.key, None)
        promise = self._promises.get(ask.key)
        if promise is not None and not promise.is_let_in:
            # Its turn was kept for what was known of it then.
            self._end(ask.key)
        elif promise is not None and not self._adjust(ask, promise):
            return
        # For whoever stands in line there is no room now: to let in one that fits passes over nobody.
        headroom = self._usage.book.headroom()
        wanted = rest(ask.wanted, self._held(ask.members))
        if ask.key in self._gave_way_at and (self._places_others or not self._has_room_beside_all(ask)):
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
        """The group is promised nothing, and waits for its room. Others may be evicted for it meanwhile."""
        self._promise(ask._replace(wanted=EMPTY))
        self._stand(ask, wanted)

    def _has_room_beside_all(self, ask: Ask) -> bool:
        """Whether there is room for what the group needs beside those who want a node and have no room yet, and nobody
        lacks what it would take: by the next session that one may have a node there."""
        wanted = rest(ask.wanted, self._held(ask.members))
        if self._is_lacking(ask.queue, wanted):
            return False
        headroom = self._usage.book.headroom(self.wanted)
        for queue, vector in self._usage.wanting.unreserved():
            headroom.count(queue, vector)
        return is_empty(wanted) or headroom.shortfall(ask.queue, wanted) is None

    def _is_lacking(self, queue: str, room: Vector) -> bool:
        """Whether so much of this queue is all that somebody lacks who does not stand in line."""
        reaches = self._usage.book.reaches
        return any(
            each.missing
            and reaches(queue, (each.queue,))
            and all(amount <= room.get(resource, 0) for resource, amount in each.missing.items())
            for each in self.lacking
        )

    def keep_turn(self, ask: Ask) -> None:
        """A group with gated members is not let in: those whose turn is after its own are not to have the room for
        which a session would let it in."""
        if ask.key in self._promises or ask.key in self._kept_out:
            return
        ask = ask._replace(voted=False)
        name = _line_name(ask.key)
        known = self._asking.get(name)
        wanted = rest(ask.wanted, self._held(ask.members))
        if is_empty(wanted) or (known is not None and known.voted):
            return
        # Others whose turn is before may not stand in line yet: who has the room is decided when all do.
        self._stand(ask, wanted)
        self._usage.book.fallen.add(ask.queue)

    def end_turn(self, key: GroupKey) -> None:
        """The group has no gated members for which its turn is kept. A session may have it wait all the same."""
        promise, asking = self._promises.get(key), self._asking.get(_line_name(key))
        if (promise is not None and not promise.is_let_in) or (asking is not None and not asking.voted):
            self.end(key)

    def _stand(self, ask: Ask, wanted: Vector) -> None:
        name, usage = _line_name(ask.key), self._usage
        known = self._asking.get(name)
        self._asking[name] = ask._replace(lacks=wanted)
        usage.waiting.add(name, {ask.queue: wanted}, ask.turn._replace(uid=name))
        if known is None or known.queue != ask.queue:
            # Its gated members are told what they wait for.
            usage.gated.group_changed(ask.key)

    def _adjust(self, ask: Ask, promise: Promise) -> bool:
        """Whether a group that is let in is to ask anew."""
        promise.complete = ask.complete
        left = rest(ask.wanted, self._held(ask.members))
        headroom = self._usage.book.headroom()
        if not is_empty(left) and headroom.shortfall(ask.queue, left, (), ask.key.text) is not None:
            self.end(ask.key)
            return True
        if (promise.wanted, promise.turn) != (ask.wanted, ask.turn):
            self._stop_asking(ask.key)
            self._set(ask, promise)
            self._usage.gated.group_changed(ask.key)
            self._usage.call()
        return False

    def _set(self, ask: Ask, promise: Promise) -> None:
        promise.wanted, promise.turn = ask.wanted, ask.turn
        self._count(ask.key, promise)

    def withdraw(self, key: GroupKey) -> None:
        """A group that asked, or was let in, is not to be: something else than its queue keeps it out."""
        self._kept_out.add(key)
        self._last.pop(key, None)
        self.end(key)

    def give_way(self, now: float, patience: float) -> bool:
        """Groups that lack members, or whose members are held by gates of others, give back what they were promised,
        once that has been so for `patience`, if somebody else who waits would have room then. Returns whether a session
        is due: a group has given way, or one that comes last may be let in."""
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
            if key not in self._gave_way_at or self._has_room_beside_all(ask)
        ]
        for key in may_ask:
            del self._last[key]
        return gave or bool(may_ask)

    def _give_way(self, keys: Sequence[GroupKey], now: float) -> bool:
        """As many of these groups give way, in their order, as it takes for somebody to have room."""
        usage = self._usage
        headroom = usage.book.headroom()
        for number, key in enumerate(keys, 1):
            promise = self._promises[key]
            headroom.give(promise.queue, promise.left())
            if usage.waiting.would_fit(headroom.copy()) or self._is_lacking(promise.queue, promise.left()):
                for given in keys[:number]:
                    self._gave_way_at[given] = now
                    self._kept_out.add(given)
                    self._end(given)
                self._gave_way = True
                usage.call()
                return True
        return False

    def settle(self, key: GroupKey, phase: str, *, roles_wait: bool) -> None:
        """What a session has decided of a group that was let in."""
        if self.is_let_in(key) and phase != INQUEUE and not (phase in _BEGUN and roles_wait):
            self.end(key)

    @property
    def ceded(self) -> Collection[GroupKey]:
        """Groups that come last: others do not give way for them."""
        return self._gave_way_at.keys()

    def asks_for(self, key: GroupKey) -> bool:
        """Whether the group waits in line to be let in."""
        return _line_name(key) in self._asking

    def has_answered(self, key: GroupKey) -> bool:
        """Whether the group asked, and is not let in."""
        return self.asks_for(key) or key in self._kept_out

    def called(self, name: str) -> str:
        """What people call what waits under this name."""
        ask = self._asking.get(name)
        return name if ask is None else ask.key.text

    def shortfall(self, key: GroupKey) -> Shortfall | None:
        """What a group that waits to be let in lacks, or one that was let in as more is kept in its queue than that
        declares; None for others, and for one before which others come."""
        name, promise, headroom = _line_name(key), self._promises.get(key), self._usage.book.headroom()
        if name in self._asking:
            ((queue, wanted),) = self._usage.waiting.wanted(name).items()
            return headroom.shortfall(queue, wanted)
        if promise is None or not (promise.is_let_in and self._usage.active):
            return None
        return headroom.shortfall(promise.queue, promise.left(), (), key.text)

    def before(self, key: GroupKey, queue: str) -> list[str]:
        """Who comes before a group that waits to be let in, of those that wait for `queue`."""
        return self._usage.waiting.before(_line_name(key), self._usage.book, queue)

    # ---- the line

    def waits_as(self, name: str) -> bool:
        """Whether a group waits under this name."""
        return name in self._asking

    def let_in(self, names: Iterable[str]) -> list[str]:
        """Admit the groups that wait under these names, for which their queues have room.

        A group whose members hold less than when it was put in line needs more room, and keeps waiting. Return the
        queues of such groups, where others may have the room.
        """
        queues = []
        for name in names:
            ask = self._asking[name]
            lacks = rest(ask.wanted, self._held(ask.members))
            if is_empty(rest(lacks, ask.lacks)):
                del self._asking[name]
                self._promise(ask)
                self.on_let_in(ask.key)
            else:
                self._stand(ask, lacks)
                queues.append(ask.queue)
        return queues

    def step_aside(self) -> list[Ask]:
        """All leave the line, and are to `come_again`."""
        asks = list(self._asking.values())
        for ask in asks:
            self._stop_asking(ask.key)
        return asks

    def come_again(self, asks: Iterable[Ask]) -> None:
        for ask in asks:
            self._stand(ask, rest(ask.wanted, self._held(ask.members)))
            self._usage.book.fallen.add(ask.queue)

    # ---- promises

    def end(self, key: GroupKey) -> None:
        """The group is promised nothing any more, and does not wait."""
        was_let_in, left = key in self._promises, self.left(key)
        self._end(key)
        if was_let_in:
            self._usage.call()
        if left:
            # Pods that wait in no line may have it.
            self._usage.on_unreserved()

    def _end(self, key: GroupKey) -> None:
        self._stop_asking(key)
        promise = self._promises.pop(key, None)
        if promise is None:
            return
        for uid in promise.spent:
            del self._spender[uid]
        self._usage.book.remove(key.text)
        self._usage.gated.group_changed(key)

    def _stop_asking(self, key: GroupKey) -> None:
        name = _line_name(key)
        if self._asking.pop(name, None) is not None:
            self._usage.waiting.remove(name)

    def _promise(self, ask: Ask) -> None:
        key = ask.key
        promise = self._promises[key] = Promise(ask)
        for pod in ask.members:
            vector = self._of(pod)
            if vector:
                promise.spend(pod.uid, vector)
                self._spender[pod.uid] = key
        self._count(key, promise)
        self._usage.gated.group_changed(key)

    def _of(self, pod: PodInfo) -> Vector:
        """Return what the pod has used of its group's promise: what it holds in its queue, or held when it ran, or
        before its reservation ended."""
        entry = self._usage.book.entry(pod.uid)
        if entry is not None:
            return entry.vector
        held = (pod.finished and pod.node_name) or pod.uid in self._usage.gated.given_back
        return self._usage.vector(pod) if held else EMPTY

    def _held(self, members: Iterable[PodInfo]) -> Vector:
        """Return the part of a group's needs for which its queue needs no more room. A member whose reservation ended
        needs room again."""
        total: Total = {}
        for pod in members:
            if pod.uid not in self._usage.gated.given_back or self._usage.book.entry(pod.uid) is not None:
                add_to(total, self._of(pod))
        return total

    def _count(self, key: GroupKey, promise: Promise) -> None:
        usage = self._usage
        if not usage.active:
            return
        left = self._left(promise)
        if left:
            usage.book.set(key.text, promise.queue, left, Standing.PROMISED, promise.turn)
        else:
            usage.book.remove(key.text)

    def count_all(self) -> None:
        """The book is counted anew."""
        for key, promise in self._promises.items():
            self._count(key, promise)

    def left(self, key: GroupKey) -> Vector:
        """What is promised to the group, and none of its members holds."""
        promise = self._promises.get(key)
        return EMPTY if promise is None else self._left(promise)

    def _left(self, promise: Promise) -> Vector:
        """What is kept of it: nothing while its queue takes no pods."""
        return promise.left() if self._usage.keeps_room(promise.queue) else EMPTY

    def queue_of(self, key: GroupKey) -> str:
        """The queue that a group was let into; empty if it was into none."""
        return self._promises[key].queue if self.is_let_in(key) else ""

    def is_unseen(self, key: GroupKey) -> bool:
        """Whether there is no such group, as far as it is known, where groups are let in."""
        return self.asks and not key.native and key not in self._seen

    def keeps_out(self, key: GroupKey) -> bool:
        """Whether gated members of the group wait for it to be let in."""
        seen = self._seen.get(key) if self.asks else None
        return seen is not None and not self.is_let_in(key) and seen[1] in (*NOT_LET_IN, INQUEUE)

    # ---- members

    def spend(self, pod: PodInfo, vector: Vector) -> None:
        """The book counts a pod."""
        key = pod.batch.group if pod.batch is not None else None
        before = self._spender.get(pod.uid)
        if before is not None and before != key:
            self.restore(pod.uid)
        promise = self._promises.get(key) if key is not None else None
        if key is not None and promise is not None and promise.spend(pod.uid, vector):
            self._spender[pod.uid] = key
            self._count(key, promise)

    def restore(self, uid: str) -> None:
        """The book counts the pod no more, and it has not run, or is no member any more."""
        key = self._spender.pop(uid, None)
        if key is not None and self._promises[key].restore(uid):
            self._count(key, self._promises[key])

    def promises(self) -> Iterable[tuple[GroupKey, str, Vector]]:
        """Each group for which room is kept, its queue, and how much is left of it."""
        return [(key, promise.queue, self._left(promise)) for key, promise in self._promises.items()]
