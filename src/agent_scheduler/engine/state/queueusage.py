"""Which queue a pod counts in, and what queues hold of the pods that are placed.

Its group says it (Volcano's PodGroup), or the pod itself (`scheduling.volcano.sh/queue-name`), or its namespace by the
same annotation. A pod of which nobody says anything is in the batch scheduler's default queue if it is that one's, and
else in none and counts nowhere. As long as there is no Queue object nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from agent_scheduler.objects.batch import DEFAULT_QUEUE, Queue

from ..quotas.book import QuotaBook
from ..quotas.entries import Standing
from ..quotas.queues import queue_info
from ..quotas.shortfall import Shortfall
from ..quotas.standings import State
from ..quotas.vector import Total, Vector, add_to, of_requests, take_from
from ..quotas.waiting import WaitingPods, Wanted
from .asks import turn_of_pod
from .batchinfo import GroupKey
from .gatedpods import GatedPods
from .keptroom import KeptRoom
from .podclass import PodClass
from .podinfo import Placement, PodInfo
from .promises import Promises
from .wantingpods import Together, WantingPods

#: Classes of which the vector is kept.
_KEPT = 1024


class QueueUsage:
    """Owner of the quota book and of the pods that wait for a queue. Told by the ledger of each placement.

    Invariant, while there are queues: a placed pod of a queue stands in the book, assumed or bound as its placement is;
    of the others those that can be placed do if they were let past the gate of their queue, or stand by where an
    earlier process kept room for them. Besides, what is promised to groups stands there.
    """

    def __init__(self, placements: Mapping[str, Placement]) -> None:
        """`placements`: all that there are, by UID."""
        self._placements = placements
        #: Called with pods that may try again, since more fits into their queues: as many as fit beside one another.
        self.on_room: Callable[[Sequence[str]], object] = lambda uids: None
        #: The same, of pods of sessions that say that they want nodes, and would not be taken by their queue any more.
        self.on_not_taken: Callable[[Collection[str]], object] = lambda uids: None
        #: Called when queues have room of which no event of a pod tells: one without a node has given back what was
        #: reserved for it, or a group what is left of what it was promised, or pods are in another queue by what is
        #: said of their group or namespace.
        self.on_unreserved: Callable[[], object] = lambda: None
        #: Called when what placed pods hold in queues may be another than before.
        self.on_held: Callable[[], object] = lambda: None
        #: Called when `active` has changed.
        self.on_active: Callable[[], object] = lambda: None
        #: Names by which pods ask for the batch scheduler, and the queue of those of its pods that name none.
        self.batch_schedulers: Collection[str] = ()
        self.default_queue = DEFAULT_QUEUE
        self.book = QuotaBook()
        self.waiting = WaitingPods()
        self.gated = GatedPods(self)
        self.promises = Promises(self)
        self.kept = KeptRoom(self)
        #: Namespace -> the queue of its pods that name none.
        self._namespaces: dict[str, str] = {}
        #: Group of Volcano's -> the queue that it names, of those that are known.
        self._groups: dict[GroupKey, str] = {}
        #: Groups of Volcano that have not been observed yet and that pods with room in their queue name by now. The
        #: podgroup controller creates a group before it names it in a pod, but another watch delivers it.
        self._expected: set[GroupKey] = set()
        #: Groups of Kubernetes' own that are known.
        self._native: set[GroupKey] = set()
        self._vectors: dict[PodClass, Vector] = {}
        #: Pods that were called since more fitted into their queues, and neither were placed nor failed since. Each had
        #: the room counted as its own that it was called for.
        self._called: dict[str, str] = {}
        #: Pods that are counted as reserved in a queue that holds more than it may, and wait for that to end: UIDs in
        #: the order in which they came.
        self._over: dict[str, None] = {}
        self.wanting = WantingPods(self)
        #: Rises whenever a queue holds more than before.
        self.taken = 0
        #: Of placed pods that are not the batch scheduler's: UID -> queue and vector, and queue -> their sum.
        self._others: dict[str, tuple[str, Vector]] = {}
        self._held_by_others: dict[str, Total] = {}
        #: Whether there is any queue: else nobody need be asked or told.
        self.active = False

    # ---- objects

    def set_queue(self, queue: Queue) -> list[str]:
        """A queue was added or changed. Returns what cannot be read of it."""
        problems: list[str] = []
        before = self.book.info(queue.name)
        self.book.set_queue(queue_info(queue, problems))
        after = self.book.info(queue.name)
        self._queues_changed(recount=after != before)
        if after != before:
            self._ask_who_wants_nodes()
        if after is None or before is None or after.state != before.state:
            self._say_anew(queue.name)
        return problems

    def delete_queue(self, name: str) -> None:
        was_there = self.book.info(name) is not None
        self.book.remove_queue(name)
        self._queues_changed(recount=was_there)
        self._ask_who_wants_nodes()
        self._say_anew(name)

    def _say_anew(self, queue: str) -> None:
        """Have those tried again that wait for the queue: it has come, gone, opened or closed, and they say of it what
        is not true any more."""
        # Groups, in whose names there is a slash, and pods behind their gate stay in line: they are let in by it.
        told = [uid for uid in self.waiting.in_line(queue) if "/" not in uid and not self.gated.waits_as(uid)]
        for uid in told:
            self.waiting.remove(uid)
        if told:
            self.on_room(told)

    def _queues_changed(self, *, recount: bool) -> None:
        """`recount`: a queue may take pods that it did not take before, or the other way round."""
        was_active, self.active = self.active, bool(self.book)
        if self.active and not was_active:
            self.wanting.look_at_all_again()
            for placement in self._placements.values():
                self._count(placement)
            self._reserve_all()
        elif not self.active:
            self.book = QuotaBook()
            self._called.clear()
            self._over.clear()
            self._others.clear()
            self._held_by_others.clear()
        if self.active != was_active:
            self.on_active()
        elif recount:
            self._reserve_all()
            self.gated.decide_all_anew()
            self.promises.come_again(self.promises.step_aside())
        if not self.active:
            self._ask_again()
        self.call()

    def set_namespace(self, name: str, queue: str) -> bool:
        """The queue that a namespace names; empty: none, or there is no such namespace. Whether it is another."""
        if self._namespaces.get(name, "") == queue:
            return False
        if queue:
            self._namespaces[name] = queue
        else:
            del self._namespaces[name]
        self._recount(each for each in self._placements.values() if each.pod.namespace == name)
        return True

    def set_group(self, key: GroupKey, queue: str | None, members: Collection[str]) -> None:
        """The queue that a PodGroup of Volcano's names, empty for none, and the UIDs of its members; None: there is no
        such PodGroup any more."""
        if self._groups.get(key) == queue:
            return
        if queue is None:
            del self._groups[key]
        else:
            self._groups[key] = queue
            self._expected.discard(key)
        self._recount(self._placements[uid] for uid in members if uid in self._placements)

    def set_native_group(self, key: GroupKey, *, exists: bool) -> None:
        """Whether there is this group of Kubernetes' own."""
        if exists == (key in self._native):
            return
        if exists:
            self._native.add(key)
        else:
            self._native.remove(key)
        members = [pod for pod in self.gated.keeping.values() if pod.batch and pod.batch.group == key]
        for pod in members:
            self.reserve(pod)
        if members:
            self.call()
            self.on_unreserved()

    def _recount(self, placements: Iterable[Placement]) -> None:
        """These pods may be in another queue than before, and so may any that waits."""
        if self.active:
            self.wanting.look_at_all_again()
            for placement in list(placements):
                self._count(placement)
            self._reserve_all()
            self._ask_again()
            self.call()
            self.on_unreserved()
            self._ask_who_wants_nodes()

    def wants_node(self, pod: PodInfo, *, nominated: bool, together: Together | None = None) -> None:
        """No node would take it, and its queue would. `nominated`: others are leaving one for it. `together`: with whom
        it wants one."""
        if self.concerns(pod):
            self.wanting.set(pod, nominated=nominated, together=together)

    def _ask_who_wants_nodes(self) -> None:
        """Have those tried again of which it is not true any more that their queue would take them."""
        if self.active:
            self._not_taken(self.wanting.refused())

    def _holds_more(self, queue: str) -> None:
        """The same, where the queue holds more than before."""
        self.taken += 1
        self._not_taken(self.wanting.refused_since(queue))

    def _not_taken(self, told: Collection[str]) -> None:
        of_sessions = [uid for uid in told if self.wanting.scheduler_of(uid) in self.batch_schedulers]
        others = [uid for uid in told if uid not in of_sessions] if of_sessions else [*told]
        if others:
            self.on_room(others)
        if of_sessions:
            self.on_not_taken(of_sessions)

    def _ask_again(self) -> None:
        over, self._over = self._over, {}
        if over:
            self.on_room([*over])
        self.gated.decide_all_anew()
        asks = self.promises.step_aside()
        if self.waiting:
            self.on_room(self.waiting.all())
        self.promises.come_again(asks)

    def _reserve_all(self) -> None:
        for pod in self.gated.keeping.values():
            self.reserve(pod)
        self.kept.count_all()
        self.promises.count_all()

    # ---- placements

    def placed(self, placement: Placement) -> None:
        """It is new, or something about it has changed."""
        if self._count(placement):
            self.call()

    def _count(self, placement: Placement) -> bool:
        """Whether more may fit into a queue: the pod was in another one, or took more, or was called for another."""
        pod, uid = placement.pod, placement.uid
        queue = self.queue_of(pod) if isinstance(pod, PodInfo) else ""
        frees = self._no_more_called(uid, queue)
        self.wanting.drop(uid)
        self.kept.drop(uid)
        vector = self._vector(placement.cls)
        before = self.book.entry(uid)
        if queue:
            standing = Standing.ASSUMED if placement.assumed else Standing.BOUND
            self.book.set(uid, queue, vector, standing)
            if isinstance(pod, PodInfo):
                self.promises.spend(pod, vector)
        else:
            self.book.remove(uid)
        other = isinstance(pod, PodInfo) and pod.scheduler_name not in self.batch_schedulers
        self._set_other(uid, (queue, vector) if queue and other else None)
        is_counted_so = before is not None and (before.queue, before.vector) == (queue, vector)
        # One that was admitted counts before it is assumed; and what is placed counts for all, what is reserved only
        # for those that it was reserved after.
        if queue and (
            placement.assumed or before is None or before.standing is Standing.RESERVED or not is_counted_so
        ):
            self._holds_more(queue)
        if not is_counted_so or before is None or before.standing is not Standing.BOUND:
            self.on_held()
        return frees or (before is not None and not is_counted_so)

    def _no_more_called(self, uid: str, queue: str) -> bool:
        """The pod has what it was called for, or waits again. Whether others may have that, as it is in `queue` by
        now, and was called for another."""
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
        """A pod that waits is new, or may have changed: perhaps it names another queue than the one that it waits for,
        or in which it has room reserved."""
        fallen = len(self.book.fallen)
        self._expect_group(pod)
        if pod.batch is not None and pod.batch.gate_managed:
            self.gated.set(pod)
        elif pod.uid in self.gated:
            self.gated.drop(pod.uid)
        if pod.uid in self.kept.pods:
            self.stand_by(pod)
        wanted_one_in = self.wanting.queue_of(pod.uid)
        self.wanting.look_again(pod.uid, pod)
        if not self.active:
            return
        queue = self.queue_of(pod)
        if wanted_one_in and wanted_one_in != queue:
            # It says that its queue would take it, and is in another one by now.
            self._not_taken([pod.uid])
        if self._called.get(pod.uid, queue) != queue:
            self._no_more_called(pod.uid, queue)
        if len(self.book.fallen) > fallen:
            self.call()
        waits_for = self.waiting.queue_of(pod.uid)
        if waits_for and waits_for != queue:
            self.waiting.remove(pod.uid)
            self.on_room([pod.uid])

    def _expect_group(self, pod: PodInfo) -> None:
        """Keep the room of a pod that has come to name a group until the group is observed, or other pods take it."""
        before = self.gated.reserved.get(pod.uid) or self.kept.pods.get(pod.uid)
        group = pod.batch.group if pod.batch is not None else None
        if before is None or group is None or group in self._groups:
            return
        if self._has_group(before) and (before.batch is None or before.batch.group != group):
            self._expected.add(group)

    def removed(self, uid: str) -> None:
        """It is placed no more. One that was let past the gate of its queue keeps its room until it has `left`."""
        pod = self.gated.keeping.get(uid)
        if pod is None:
            self.uncount(uid)
        else:
            self.reserve(pod)
        self._set_other(uid, None)
        self.call()
        self.on_held()

    def uncount(self, uid: str) -> None:
        """The pod counts no more. Where it was bound it has run, and its group is promised nothing for it again; nor is
        it for one that has given its room back."""
        entry = self.book.entry(uid)
        self.book.remove(uid)
        if entry is not None and entry.standing is not Standing.BOUND and uid not in self.gated.given_back:
            self.promises.restore(uid)

    # ---- stages

    def stand_by(self, pod: PodInfo) -> None:
        """Count a pod whose stage has not come as long as its status nominates a node, until it is placed."""
        if self.kept.see(pod, is_placed=pod.uid in self._placements):
            self._not_kept([pod.uid])

    def claim(self, pods: Iterable[PodInfo]) -> None:
        """Others are leaving nodes for these pods of the batch scheduler, and for no others of its."""
        over = self.kept.claim(pods, self._placements)
        if over:
            self._not_kept(over)

    def _not_kept(self, uids: Iterable[str]) -> None:
        """These pods have what is reserved for them behind their gate, and nothing else."""
        for uid in uids:
            if uid not in self.gated.keeping and uid not in self._placements:
                self.uncount(uid)
        self.call()
        self.on_unreserved()

    # ---- gates

    def reserve(self, pod: PodInfo) -> None:
        """Count a pod that was let past the gate of its queue, if it is not placed."""
        queue = self.keeping_queue(pod)
        if not (self.active and self.gated.asks_queues) or pod.uid in self._placements:
            return
        before = self.book.entry(pod.uid)
        if queue:
            self.book.set(pod.uid, queue, self.vector(pod), Standing.RESERVED, turn_of_pod(pod))
            self.promises.spend(pod, self.vector(pod))
        else:
            self.uncount(pod.uid)
        self.wanting.look_again(pod.uid)
        if queue and (before is None or (before.queue, before.vector) != (queue, self.vector(pod))):
            self._holds_more(queue)
        if pod.uid in self.waiting:
            # Its own room is counted now, and would never be free for it.
            self.waiting.remove(pod.uid)
            self._over[pod.uid] = None

    def unreserve(self, uid: str) -> None:
        """The pod counts no more, unless it is placed or its room is kept for another reason."""
        if uid not in self._placements:
            if not self.kept.count(uid):
                self.uncount(uid)
            self.wanting.look_again(uid)
            self.call()
            self.on_unreserved()

    def wait_for(self, name: str, wanted: Wanted, first: PodInfo) -> None:
        """What waits under this name does so for these queues until so much fits, in the turn of `first`."""
        self.waiting.add(name, wanted, turn_of_pod(first)._replace(uid=name))
        self.book.fallen.update(wanted)

    # ---- questions

    def state_of(self, pod: PodInfo) -> State:
        """How far the pod has come with room of its queue."""
        uid = pod.uid
        if uid in self._placements or uid in self.kept.pods:
            return State.STANDS_BY if pod.stands_by else State.PLACED
        if uid in self.gated.held:
            return State.GATED
        if uid in self.gated.reserved and self.keeping_queue(pod) == self.queue_of(pod):
            return State.LET_IN
        return State.GIVEN_BACK if uid in self.gated else State.WAITS

    def state_of_group(self, key: GroupKey) -> State:
        return State.PROMISED if self.promises.is_let_in(key) else State.WAITS

    def others(self) -> dict[str, Vector]:
        """By queue, what placed pods hold in it that are not the batch scheduler's."""
        return {queue: dict(held) for queue, held in self._held_by_others.items() if any(held.values())}

    def queue_of(self, pod: PodInfo) -> str:
        """Empty for a pod in no queue."""
        said, of_batch = pod.batch, pod.scheduler_name in self.batch_schedulers
        if said is not None:
            group = said.group
            of_group = self._groups.get(group) if group is not None else None
            if of_group is not None:
                return of_group or self.default_queue
            if of_batch and group is not None and group.native:
                # Such a group names no queue, and is in one as a whole.
                return self.default_queue
            if said.queue:
                return said.queue
        return self._namespaces.get(pod.namespace) or (self.default_queue if of_batch else "")

    def keeping_queue(self, pod: PodInfo) -> str:
        """The queue that keeps room for the pod while it has no node. Empty for a pod in none, and for one that cannot
        be placed: its queue takes no pods, or less than this pod asks for even where it is empty, or the group is not
        there without which nobody places it."""
        queue = self.queue_of(pod)
        is_placeable = self.keeps_room(queue) and self.book.could_hold(queue, self.vector(pod))
        return queue if is_placeable and self._has_group(pod) else ""

    def keeps_room(self, queue: str) -> bool:
        """Whether room of the queue is kept for pods and groups that are to come: one that is closed, or not there,
        places none of them, and queues beside it would be short of that room for nothing."""
        info = self.book.info(queue)
        return info is not None and info.open

    def _has_group(self, pod: PodInfo) -> bool:
        group = pod.batch.group if pod.batch is not None else None
        if group is None:
            return True
        if group.native:
            return group in self._native
        known = group in self._groups or group in self._expected
        return known or pod.scheduler_name not in self.batch_schedulers

    def concerns(self, pod: PodInfo) -> bool:
        return self.active and bool(self.queue_of(pod))

    def full(self, pod: PodInfo) -> Shortfall | None:
        """Why the pod's queue, or one above it, cannot hold it now. Then it waits until `on_room` names it."""
        queue = self.queue_of(pod)
        vector = self._vector(pod.cls)
        short = self.book.shortfall(queue, vector, pod.uid, _group_of(pod)) if queue else None
        uid = pod.uid
        self._over.pop(uid, None)
        if short is None:
            self.waiting.remove(uid)
        else:
            self.wanting.drop(uid)
            frees = self._no_more_called(uid, queue)
            if uid in self.gated.keeping:
                self._over[uid] = None
            else:
                self.waiting.add(uid, {queue: vector}, turn_of_pod(pod))
            if frees:
                self.call()
        return short

    def is_held(self, uid: str) -> bool:
        """Whether the pod was refused by its queue, and not called since."""
        return uid in self.waiting or uid in self._over

    def gang_full(self, pods: Sequence[PodInfo], minimum: int) -> Shortfall | None:
        """Why queues cannot hold `minimum` of these pods beside one another, all if they are fewer, as others may have
        gates, taken in their order: what they lack for the first ones. Then each of them waits until there is room for
        that many."""
        if not self.active:
            return None
        minimum = min(minimum, len(pods))
        headroom, fitting = self.book.headroom(), 0
        for pod in pods:
            queue = self.queue_of(pod)
            fitting += not queue or headroom.take(queue, self._vector(pod.cls), (pod.uid,)) is None
        if fitting >= minimum:
            return None
        wanted: dict[str, Total] = {}
        for pod in pods[:minimum]:
            add_to(wanted.setdefault(self.queue_of(pod), {}), self._vector(pod.cls))
        headroom = self.book.headroom()
        first = [pod.uid for pod in pods[:minimum]]
        shorts = [headroom.take(queue, total, first) for queue, total in wanted.items() if queue]
        for pod in pods:
            queue = self.queue_of(pod)
            self._called.pop(pod.uid, None)
            if pod.uid in self.gated.keeping:
                self._over[pod.uid] = None
            elif queue:
                vector = wanted.get(queue) or self._vector(pod.cls)
                self.waiting.add(pod.uid, {queue: vector}, turn_of_pod(pod))
        return next(short for short in shorts if short is not None)

    def admit(self, pod: PodInfo) -> str:
        """Counts a pod as assumed that is about to be. Why its queue cannot hold it, for people; empty if it does."""
        queue = self.queue_of(pod)
        if not self.active or not queue:
            return ""
        vector = self._vector(pod.cls)
        short = self.book.shortfall(queue, vector, pod.uid, _group_of(pod))
        if short is not None:
            return str(short)
        self.book.set(pod.uid, queue, vector, Standing.ASSUMED)
        self.promises.spend(pod, vector)
        return ""

    def withdraw(self, pod: PodInfo) -> None:
        """A pod that was admitted is not assumed after all. As it was before, it may be reserved."""
        self.removed(pod.uid)

    def vector(self, pod: PodInfo) -> Vector:
        """What the pod counts as."""
        return self._vector(pod.cls)

    def _vector(self, cls: PodClass) -> Vector:
        vector = self._vectors.get(cls)
        if vector is None:
            if len(self._vectors) >= _KEPT:
                self._vectors.clear()
            vector = self._vectors[cls] = of_requests(cls.requests)
        return vector

    # ---- waking

    def call(self) -> None:
        """Let on those that wait for room which there is now. Pods without a gate that are called are to be placed, or
        `unplaced` or `left` is to be called for them; the others are let past theirs."""
        fallen = self.book.fallen
        # Gated pods of which it is decided anew are in no line, and others would have their turn: `admit` calls again.
        if fallen and not self.gated.is_due:
            found = self.waiting.fitting(self.book, fallen) if self.waiting else []
            fallen.clear()
            self.gated.room_came()
            over, self._over = self._over, {}
            if over:
                self.on_room([*over])
            groups = {name for name, _ in found if self.promises.waits_as(name)}
            again = self.promises.let_in([name for name, _ in found if name in groups])
            gated = [name for name, _ in found if self.gated.waits_as(name)]
            if gated:
                self.gated.let_past(gated)
            called = {uid: queue for uid, queue in found if uid not in groups and uid not in gated}
            if called:
                self._called.update(called)
                self.on_room([*called])
            if again:
                fallen.update(again)
                self.call()

    def unplaced(self, uid: str) -> None:
        """The pod has no node after all: others may have the room that it was called for."""
        queue = self._called.pop(uid, "")
        if queue:
            self.book.fallen.add(queue)
            self.call()

    def left(self, uid: str) -> None:
        """The pod waits for nothing any more."""
        self._over.pop(uid, None)
        self.wanting.drop(uid)
        self.gated.drop(uid)
        if self.kept.drop(uid) and uid not in self._placements:
            self.uncount(uid)
        self.waiting.remove(uid)
        self.unplaced(uid)


def _group_of(pod: PodInfo) -> str:
    """By what the book names what is promised to the pod's group; empty for a pod in none."""
    return pod.batch.group.text if pod.batch is not None and pod.batch.group is not None else ""
