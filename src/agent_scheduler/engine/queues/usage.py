"""The usage of queues: counts pods in the book, and wakes pods when there is room.

While no Queue object exists, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent_scheduler.objects.batch import DEFAULT_QUEUE, Queue

from ..quotas.queues import OWN_ANCESTOR, queue_info
from ..quotas.vector import Total, Vector, add_to, take_from
from ..state.batchinfo import GroupKey
from ..state.podinfo import Placement, PodInfo
from .asks import turn_of_pod
from .book import QuotaBook
from .entries import PLACED, Standing
from .gated import Choose, GatedPods, each_alone
from .kept import KeptRoom
from .membership import NO_LABELS, QueueMembership
from .promises import Promises
from .room import QueueRoom
from .shortfall import Shortfall
from .standings import QuotaState
from .wanting import WantingGang, WantingPods


class UsageSettings(NamedTuple):
    """The settings of the account of queues."""

    #: The names of the batch scheduler.
    batch_schedulers: Collection[str] = ()
    #: The queue of its pods that name none.
    default_queue: str = DEFAULT_QUEUE
    #: Whether queues are checked. If not, the gate is removed from every pod at once, and none is reserved.
    asks_queues: bool = True


_DEFAULTS: Final = UsageSettings()


class QueueUsage:
    """Owner of the quota book and of the pods that wait for a queue. The ledger calls it for each placement.

    Invariant, while there are queues: a placed pod of a queue has an entry in the book, assumed or bound like its
    placement. Of the other pods that can be placed, those have an entry that were admitted past the gate of their
    queue, and those for which an earlier process or an eviction keeps room. Promises to groups have entries too.
    """

    def __init__(
        self, placements: Mapping[str, Placement], settings: UsageSettings = _DEFAULTS, choose: Choose = each_alone
    ) -> None:
        """Count the placements in `placements`, a live map by UID.

        `choose` returns the members of a gang to admit together.
        """
        self.members = QueueMembership(settings.batch_schedulers, settings.default_queue)
        self.room = QueueRoom(placements, self.members, asks_queues=settings.asks_queues)
        self.placements = placements
        self.events, self.waiting = self.room.events, self.room.waiting
        self.wanting = WantingPods(self.room)
        self.promises = Promises(self.room, self.wanting)
        self.kept = KeptRoom(self.room, self.promises)
        self.gated = GatedPods(self.room, self.wanting, self.promises, self.kept, choose)
        #: UID -> queue of pods that were woken because their queue had room, and that neither were placed nor failed
        #: since. The room for which a pod was woken is counted for it.
        self._called: dict[str, str] = {}
        #: UID -> (queue, vector) of placed pods of other schedulers than the batch scheduler.
        self._others: dict[str, tuple[str, Vector]] = {}
        #: Queue -> the sum of `_others`.
        self._held_by_others: dict[str, Total] = {}
        self.room.freed.connect(self.call)

    @property
    def book(self) -> QuotaBook:
        return self.room.book

    @property
    def taken(self) -> int:
        """Increases whenever the usage of a queue increases."""
        return self.wanting.taken

    # ---- objects

    def set_queue(self, queue: Queue) -> list[str]:
        """Add or change a queue. Returns the problems of its invalid fields."""
        problems: list[str] = []
        before = self.book.info(queue.name)
        self.book.set_queue(queue_info(queue, problems))
        if self.book.is_in_cycle(queue.name):
            problems.append(f"spec.parent: {OWN_ANCESTOR}")
        after = self.book.info(queue.name)
        if self.members.set_queue(queue.name, after):
            self._recount(self.placements.values())
        self._queues_changed(recount=after != before)
        if after != before:
            self.wanting.refuse()
        if after is None or before is None or after.state != before.state:
            self._say_anew(queue.name)
        return problems

    def delete_queue(self, name: str) -> None:
        was_there = self.book.info(name) is not None
        self.book.remove_queue(name)
        if self.members.set_queue(name, None):
            self._recount(self.placements.values())
        self._queues_changed(recount=was_there)
        self.wanting.refuse()
        self._say_anew(name)

    def _say_anew(self, queue: str) -> None:
        """Wake pods that wait for the queue, which was created, deleted, opened or closed, so that they report it."""
        # Groups, whose names contain a slash, and gated pods stay in line, which admits them.
        uids = [uid for uid in self.waiting.in_line(queue) if "/" not in uid and not self.gated.waits_as(uid)]
        for uid in uids:
            self.waiting.remove(uid)
        if uids:
            self.events.room(uids)

    def _queues_changed(self, *, recount: bool) -> None:
        """Update all state that depends on queues; `recount` if a queue may have begun or stopped to accept pods."""
        was_active, self.room.active = self.room.active, bool(self.book)
        if self.room.active and not was_active:
            self.wanting.look_at_all_again()
            for placement in self.placements.values():
                self._count(placement)
            self._reserve_all()
        elif not self.room.active:
            self.room.book = QuotaBook()
            self._called.clear()
            self.room.over.clear()
            self._others.clear()
            self._held_by_others.clear()
        if self.room.active != was_active:
            self.events.active_changed()
        elif recount:
            self._reserve_all()
            self.gated.decide_all_anew()
            self.promises.come_again(self.promises.step_aside())
        if not self.room.active:
            self._ask_again()
        self.call()

    def set_namespace(self, name: str, queue: str, labels: Mapping[str, str] = NO_LABELS) -> bool:
        """Set the queue that a namespace names, and its labels; both are empty for a deleted namespace.

        Returns whether its pods may be in other queues than before.
        """
        changed = self.members.set_namespace(name, queue, labels)
        if changed:
            self._recount(each for each in self.placements.values() if each.pod.namespace == name)
        return changed

    def set_group(self, key: GroupKey, queue: str | None, members: Collection[str]) -> None:
        """Set the queue that a Volcano PodGroup names, with the UIDs of its members.

        `queue` is empty if the group names none, None if the group is deleted.
        """
        if self.members.set_group(key, queue) and members:
            self._recount_group(key, members)

    def set_native_group(self, key: GroupKey, *, exists: bool) -> None:
        """Handle a Kubernetes PodGroup that was added or changed, or that no longer `exists`."""
        # Do this before members release their room, since gated ones would be admitted to it.
        self.gated.group_changed(key)
        if not self.members.set_native_group(key, exists=exists):
            return
        members = [pod for pod in self.room.keeping.values() if pod.batch and pod.batch.group == key]
        for pod in members:
            self.gated.reserve(pod)
        if members:
            self.call()
            self.events.unreserved()

    def _recount(self, placements: Iterable[Placement]) -> None:
        """Count these placements and all waiting pods again, since their queues may have changed."""
        if self.room.active:
            self.wanting.look_at_all_again()
            for placement in list(placements):
                self._count(placement)
            self._reserve_all()
            self._ask_again()
            self.call()
            self.events.unreserved()
            self.wanting.refuse()

    def _recount_group(self, key: GroupKey, members: Collection[str]) -> None:
        """Count the members of a group again, since their queue has changed.

        The cost depends on the group alone: a tenant may create many groups, while many pods of others wait.
        """
        if not self.room.active:
            return
        for uid in members:
            self.wanting.look_again(uid)
        for uid in members:
            if uid in self.placements:
                self._count(self.placements[uid])
            elif uid in self.room.keeping:
                self.gated.reserve(self.room.keeping[uid])
            else:
                self.kept.count(uid)
        self._wake_over()
        self.gated.queue_changed(key)
        waiting = [uid for uid in members if uid in self.waiting]
        for uid in waiting:
            self.waiting.remove(uid)
        if waiting:
            self.events.room(waiting)
        self.promises.ask_anew(key)
        self.call()
        self.events.unreserved()
        self.wanting.refuse(members)

    def wants_node(self, pod: PodInfo, *, nominated: bool, together: WantingGang | None = None) -> None:
        """Record that no node is feasible for a pod while its queue has room for it.

        `nominated` is whether victims are leaving a node for it, `together` the members that want nodes with it.
        """
        if self.concerns(pod):
            self.wanting.set(pod, nominated=nominated, together=together)

    def _ask_again(self) -> None:
        self._wake_over()
        self.gated.decide_all_anew()
        asks = self.promises.step_aside()
        if self.waiting:
            self.events.room(self.waiting.all())
        self.promises.come_again(asks)

    def _reserve_all(self) -> None:
        for pod in self.room.keeping.values():
            self.gated.reserve(pod)
        self.kept.count_all()
        self.promises.count_all()

    # ---- placements

    def placed(self, placement: Placement) -> None:
        """Count a new or changed placement."""
        if self._count(placement):
            self.call()

    def _count(self, placement: Placement) -> bool:
        """Count a placement. Returns whether more may fit into a queue.

        This is the case if the pod was in another queue, used more before, or was woken for another queue.
        """
        pod, uid = placement.pod, placement.uid
        queue = self.members.queue_of(pod) if isinstance(pod, PodInfo) else ""
        frees = self._no_more_called(uid, queue)
        self.wanting.drop(uid)
        self.kept.drop(uid)
        vector = self.members.vector_of(placement.cls)
        before = self.book.entry(uid)
        is_counted_so = before is not None and (before.queue, before.vector) == (queue, vector)
        if before is not None and is_counted_so and not placement.assumed and before.standing in PLACED:
            # An assumed pod is bound, or a bound one is seen again: only its group may have changed.
            if before.standing is not Standing.BOUND:
                self.book.set(uid, queue, vector, Standing.BOUND)
                self.events.usage_changed()
            if isinstance(pod, PodInfo):
                self.promises.spend(pod, vector)
            return frees
        if queue:
            standing = Standing.ASSUMED if placement.assumed else Standing.BOUND
            self.book.set(uid, queue, vector, standing)
            if isinstance(pod, PodInfo):
                self.promises.spend(pod, vector)
        else:
            self.book.remove(uid)
        other = isinstance(pod, PodInfo) and pod.scheduler_name not in self.members.batch_schedulers
        self._set_other(uid, (queue, vector) if queue and other else None)
        # An admitted member of a session counts before it is assumed. A placed pod counts for all other pods, a
        # reserved one only for those that come after it.
        if queue and (placement.assumed or before is None or before.standing is Standing.RESERVED or not is_counted_so):
            self.wanting.holds_more(queue)
        if not is_counted_so or before is None or before.standing is not Standing.BOUND:
            self.events.usage_changed()
        return frees or (before is not None and not is_counted_so)

    def _no_more_called(self, uid: str, queue: str) -> bool:
        """End the wake-up of a pod that was placed in `queue`.

        Returns whether other pods may have the room, because the pod was woken for another queue than `queue`.
        """
        called = self._called.pop(uid, queue)
        if called != queue:
            self.book.fallen.add(called)
        return called != queue

    def _set_other(self, uid: str, new: tuple[str, Vector] | None) -> None:
        old = self._others.get(uid)
        if old == new:
            return
        if old is not None:
            del self._others[uid]
            take_from(self._held_by_others[old[0]], old[1])
        if new is not None:
            self._others[uid] = new
            add_to(self._held_by_others.setdefault(new[0], {}), new[1])

    def seen(self, pod: PodInfo) -> None:
        """Update a new or changed pod without a node.

        It may name another queue than the one that it waits for or in which it has reserved room.
        """
        fallen = len(self.book.fallen)
        self.members.expect_group(pod, self.gated.reserved.get(pod.uid) or self.kept.pods.get(pod.uid))
        if pod.batch is not None and pod.batch.gate_managed:
            self.gated.set(pod)
        elif pod.uid in self.gated:
            self.gated.drop(pod.uid)
        if pod.uid in self.kept.pods:
            self.stand_by(pod)
        wanted_one_in = self.wanting.queue_of(pod.uid)
        self.wanting.look_again(pod.uid, pod)
        if not self.room.active:
            return
        queue = self.members.queue_of(pod)
        if wanted_one_in and wanted_one_in != queue:
            # The pod reports that its former queue had room, but it is in another queue now.
            self.wanting.wake([pod.uid])
        if self._called.get(pod.uid, queue) != queue:
            self._no_more_called(pod.uid, queue)
        if len(self.book.fallen) > fallen:
            self.call()
        waits_for = self.waiting.queue_of(pod.uid)
        if waits_for and waits_for != queue:
            self.waiting.remove(pod.uid)
            self.events.room([pod.uid])

    def removed(self, uid: str) -> None:
        """Stop counting a placement. A pod that was admitted past its gate stays reserved until `left` is called."""
        pod = self.room.keeping.get(uid)
        if pod is None:
            self.promises.uncount(uid)
        else:
            self.gated.reserve(pod)
        self._set_other(uid, None)
        self.call()
        self.events.usage_changed()

    # ---- stages

    def stand_by(self, pod: PodInfo) -> None:
        """Count a pod of a reserved stage while its status nominates a node, until it is placed."""
        if self.kept.see(pod, is_placed=pod.uid in self.placements):
            self._not_kept([pod.uid])

    def claim(self, pods: Iterable[PodInfo]) -> None:
        """Set the pods of the batch scheduler for which victims are leaving nodes."""
        over = self.kept.claim(pods, self.placements)
        if over:
            self._not_kept(over)

    def _not_kept(self, uids: Iterable[str]) -> None:
        """Stop counting pods whose room is no longer kept, unless they are reserved or placed."""
        for uid in uids:
            if uid not in self.room.keeping and uid not in self.placements:
                self.promises.uncount(uid)
        self.call()
        self.events.unreserved()

    # ---- questions

    def state_of(self, pod: PodInfo) -> QuotaState:
        """Return the state of the pod in the account of queues."""
        uid = pod.uid
        if uid in self.placements or uid in self.kept.pods:
            return QuotaState.STANDS_BY if pod.stands_by else QuotaState.PLACED
        if uid in self.gated.held:
            return QuotaState.GATED
        if uid in self.gated.reserved and self.room.keeping_queue(pod) == self.members.queue_of(pod):
            return QuotaState.LET_IN
        return QuotaState.GIVEN_BACK if uid in self.gated else QuotaState.WAITS

    def state_of_group(self, key: GroupKey) -> QuotaState:
        return QuotaState.PROMISED if self.promises.is_let_in(key) else QuotaState.WAITS

    def others(self) -> dict[str, Vector]:
        """Return the usage of queues by placed pods of other schedulers than the batch scheduler."""
        return {queue: dict(held) for queue, held in self._held_by_others.items() if any(held.values())}

    def queue_of(self, pod: PodInfo) -> str:
        """Return the queue of a pod; empty for a pod in no queue."""
        return self.members.queue_of(pod)

    def vector(self, pod: PodInfo) -> Vector:
        """Return the requests of the pod as a vector."""
        return self.members.vector(pod)

    def concerns(self, pod: PodInfo) -> bool:
        return self.room.active and bool(self.members.queue_of(pod))

    def full(self, pod: PodInfo) -> Shortfall | None:
        """Return why the pod's queue, or an ancestor, has no room for it; None if all have.

        Without room, the pod waits until `events.room` is called with it.
        """
        queue = self.members.queue_of(pod)
        vector = self.members.vector(pod)
        short = self.book.shortfall(queue, vector, pod.uid, _group_of(pod)) if queue else None
        uid = pod.uid
        self.room.over.pop(uid, None)
        if short is None:
            self.waiting.remove(uid)
        else:
            self.wanting.drop(uid)
            if uid in self.room.keeping:
                self.room.over[uid] = None
            else:
                self.waiting.add(uid, {queue: vector}, turn_of_pod(pod))
            # If it was woken, others have taken some of the room. What they left may be enough for a smaller pod.
            self.unplaced(uid)
        return short

    def is_held(self, uid: str) -> bool:
        """Return whether the pod's queue has refused it and it was not woken since."""
        return uid in self.waiting or uid in self.room.over

    def gang_fitting(self, pods: Sequence[PodInfo], minimum: int) -> Sequence[PodInfo] | Shortfall:
        """Return these pods in an order in which queues have room for `minimum` of them together, or why there is none.

        That is the given order if possible, else the smallest pods come first: otherwise, the order of members that
        have the same priority, which a restart changes, would determine whether their group is placed. If there are
        fewer pods, because others have gates, all of them count. The shortfall is that of the smallest ones. Without
        room, each of the pods waits until all of these queues have room for that many.
        """
        if not self.room.active:
            return pods
        minimum = min(minimum, len(pods))
        vector, queue_of = self.members.vector, self.members.queue_of
        smallest = smallest_first(pods, vector)
        for order in (pods, smallest):
            headroom = self.book.headroom()
            queues = ((pod, queue_of(pod)) for pod in order)
            fitting = sum(not queue or headroom.take(queue, vector(pod), (pod.uid,)) is None for pod, queue in queues)
            if fitting >= minimum:
                return order
        wanted: dict[str, Total] = {}
        for pod in smallest[:minimum]:
            add_to(wanted.setdefault(queue_of(pod), {}), vector(pod))
        headroom = self.book.headroom()
        first = [pod.uid for pod in smallest[:minimum]]
        wanted.pop("", None)
        shorts = [headroom.take(queue, total, first) for queue, total in wanted.items()]
        woken: set[str] = set()
        for pod in pods:
            queue = queue_of(pod)
            woken.add(self._called.pop(pod.uid, ""))
            if pod.uid in self.room.keeping:
                self.room.over[pod.uid] = None
            elif queue:
                own = {queue: wanted.get(queue) or vector(pod)}
                self.waiting.add(pod.uid, own | wanted, turn_of_pod(pod))
        woken.discard("")
        if woken:
            # Others have taken some of the room for which these were woken. The rest may be enough for other pods.
            self.book.fallen |= woken
            self.call()
        return next(short for short in shorts if short is not None)

    def admit(self, pod: PodInfo) -> str:
        """Count a pod that is about to be assumed.

        Returns a message if its queue has no room for it; then it is not counted. Returns "" otherwise.
        """
        queue = self.members.queue_of(pod)
        if not self.room.active or not queue:
            return ""
        vector = self.members.vector(pod)
        short = self.book.shortfall(queue, vector, pod.uid, _group_of(pod))
        if short is not None:
            return str(short)
        self.book.set(pod.uid, queue, vector, Standing.ASSUMED)
        self.promises.spend(pod, vector)
        return ""

    def withdraw(self, pod: PodInfo) -> None:
        """Undo `admit` for a pod that is not assumed; it may be reserved as before."""
        self.removed(pod.uid)

    # ---- waking

    def call(self) -> None:
        """Wake the pods and groups that wait for room which is available now.

        Gated pods are admitted, groups are promised their room. The other pods must be placed, or `unplaced` or `left`
        must be called for them.
        """
        fallen = self.book.fallen
        # While members of gangs are chosen again, they are in no line, so others would have their turn. `admit` calls
        # this again.
        if fallen and not self.gated.is_due:
            found = self.waiting.fitting(self.book, fallen) if self.waiting else []
            fallen.clear()
            self.gated.room_came()
            self._wake_over()
            groups = {name for name, _ in found if self.promises.waits_as(name)}
            again = self.promises.let_in([name for name, _ in found if name in groups])
            gated = [name for name, _ in found if self.gated.waits_as(name)]
            if gated:
                self.gated.let_past(gated)
            called = {uid: queue for uid, queue in found if uid not in groups and uid not in gated}
            if called:
                self._called.update(called)
                self.events.room([*called])
            if again:
                fallen.update(again)
                self.call()

    def _wake_over(self) -> None:
        """Wake the pods that are reserved in a queue beyond its limit."""
        over, self.room.over = self.room.over, {}
        if over:
            self.events.room([*over])

    def unplaced(self, uid: str) -> None:
        """End the wake-up of a pod that found no node or no room, so that other pods may have the room."""
        queue = self._called.pop(uid, "")
        if queue:
            self.book.fallen.add(queue)
            self.call()

    def left(self, uid: str) -> None:
        """Remove a pod that no longer waits."""
        self.room.over.pop(uid, None)
        self.wanting.drop(uid)
        self.gated.drop(uid)
        if self.kept.drop(uid) and uid not in self.placements:
            self.promises.uncount(uid)
        self.waiting.remove(uid)
        self.unplaced(uid)


def smallest_first(pods: Sequence[PodInfo], vector_of: Callable[[PodInfo], Vector]) -> Sequence[PodInfo]:
    """Return the pods ordered by size: the largest of their shares of what all of them request of a resource."""
    vectors = [vector_of(pod) for pod in pods]
    total: Total = {}
    for vector in vectors:
        add_to(total, vector)
    shares = [sorted((n / total[name] for name, n in vector.items() if n), reverse=True) for vector in vectors]
    return [pods[index] for index in sorted(range(len(pods)), key=shares.__getitem__)]


def _group_of(pod: PodInfo) -> str:
    """Return the name of the promise to the pod's group in the book; empty for a pod without a group."""
    return pod.batch.group.text if pod.batch is not None and pod.batch.group is not None else ""
