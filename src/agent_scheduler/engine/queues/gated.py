"""Pods with the gate of their queue, and pods that were admitted past it and have no node so far.

An autoscaler adds nodes for pods that report `Unschedulable`, which a gated pod never does. So a pod keeps the gate
(`scheduling.volcano.sh/queue-allocation-gate`) until its queue has room for it, by the declared limits of the queue and
its ancestors. The capacity of nodes is not considered, otherwise the autoscaler would not learn about the pods of a
full cluster. A gang is admitted with its whole minimum, its other members as they fit. An admitted pod counts in the
queue as reserved until it has a node, because a gate cannot be added again.

Upstream design: `docs/design/scheduling-gates-queue-admission.md` of Volcano.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE

from ..quotas.vector import EMPTY, Total, Vector, add_to, at_least, is_empty, rest
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from .asks import Ask, turn_of_pod
from .entries import Standing
from .kept import KeptRoom
from .promises import Promises
from .room import QueueRoom
from .waiting import take_all
from .wanting import WantingPods

_OURS_ALONE: Final = (QUEUE_ALLOCATION_GATE,)


class _Chosen(NamedTuple):
    """Held pods of one gang that are admitted together; `others_follow` is whether other held members come after."""

    gang: GroupKey
    uids: tuple[str, ...]
    others_follow: bool


class GatedMembers(NamedTuple):
    """The order in which members of a gang are admitted.

    `needed` are the members for the minimum, gated ones and those without a gate that hold no room, `others` the gated
    members beyond it. The queue must have room for `at_least` this vector.
    """

    needed: Sequence[PodInfo]
    others: Sequence[PodInfo] = ()
    at_least: Vector = EMPTY


class GateStatus(NamedTuple):
    """The explanation of a gated pod.

    `why` is the reason why it is not admitted, empty if it is about to be. `together` are the pods that would be
    admitted with it, `before` those that come first: gangs and gated pods by `namespace/name`, others by UID.
    """

    queue: str
    why: str
    together: tuple[str, ...]
    before: tuple[str, ...]


#: Receives a gang, its gated members and the UIDs of pods that are admitted or placed. Returns None if the gang lacks
#: members.
Choose = Callable[[GroupKey, Collection[PodInfo], Container[str]], GatedMembers | None]


class PodsWithRoom:
    """The UIDs of pods that are admitted or placed."""

    def __init__(self, *books: Container[str]) -> None:
        self._books = books

    def __contains__(self, uid: object) -> bool:
        return any(uid in book for book in self._books)


def each_alone(_key: GroupKey, members: Collection[PodInfo], _has: Container[str]) -> GatedMembers:
    """Return a choice by which each pod is admitted by itself, if gangs are unknown."""
    return GatedMembers((), sorted(members, key=turn_of_pod))


class GatedPods:
    """Owner of the held and reserved pods. The cluster calls it for each pod with the annotation and without a node.

    Invariants: a UID is in `held`, in `reserved`, or in neither. While queues are counted, each of `keeping` that has
    no placement and can be placed has a reserved entry in the book. An entry in `QueueRoom.waiting` under the name of a
    gang is a choice of members that are all held.
    """

    def __init__(
        self, room: QueueRoom, wanting: WantingPods, promises: Promises, kept: KeptRoom, choose: Choose
    ) -> None:
        """Admit the members of a gang together that `choose` returns."""
        self._room = room
        self._wanting = wanting
        self._promises = promises
        self._kept = kept
        self.events = room.events
        self.choose = choose
        #: Whether this process admits pods; at most one process of a cluster does.
        self.admits = False
        #: UID -> pod whose only gate is that of its queue.
        self.held: dict[str, PodInfo] = {}
        self.reserved, self.given_back = room.reserved, room.given_back
        self._with_room = PodsWithRoom(room.reserved, room.placements)
        #: Gang -> its pods in `held`. A pod without a gang is in one of its own.
        self._gangs: dict[GroupKey, dict[str, PodInfo]] = {}
        #: The gangs whose next members to admit must be chosen again.
        self._due: set[GroupKey] = set()
        #: The gangs whose group is admitted, but whose queue lacks room for the promise.
        self._beyond: set[GroupKey] = set()
        #: Name under which pods wait for their queue -> these pods.
        self._chosen: dict[str, _Chosen] = {}
        #: Gang -> names under which its members wait, in the order of their addition.
        self._waits_as: dict[GroupKey, dict[str, None]] = {}
        #: UID of a held pod -> the queue for which `events.held` was called last.
        self._reported: dict[str, str] = {}
        room.group_changed.connect(self.group_changed)
        room.groups_read.connect(self.decide_all_anew)
        room.session_begins.connect(self.admit)

    # ---- pods

    def set(self, pod: PodInfo) -> None:
        """Add or change a pod with the annotation and without a node."""
        if pod.uid in self.given_back:
            return
        gates = pod.closed_gates if pod.gates else ()
        if not gates or (pod.uid in self.reserved and gates == _OURS_ALONE):
            self._unhold(pod.uid)
            self.reserved[pod.uid] = pod
            self.reserve(pod)
        elif gates == _OURS_ALONE or (not self._room.asks_queues and QUEUE_ALLOCATION_GATE in gates):
            key = _gang_of(pod)
            before = self.held.get(pod.uid)
            if before is not None and (_gang_of(before) != key or before.cls is not pod.cls):
                queue = self._reported.get(pod.uid, "")
                self._unhold(pod.uid)
                self._reported[pod.uid] = queue
            self.held[pod.uid] = pod
            self._gangs.setdefault(key, {})[pod.uid] = pod
            self._decide_anew(key)
        else:
            # With another gate the pod must not be considered. An admitted pod can get such a gate only if the store
            # was restored to an earlier state, and then its reservation must not block other pods.
            self.drop(pod.uid)

    def drop(self, uid: str) -> None:
        """Remove a pod that is bound, deleted or no longer waits; an unknown one is ignored."""
        self._unhold(uid)
        self.given_back.pop(uid, None)
        if uid in self.reserved:
            self._end_reservation(uid)

    def give_back(self, uid: str, why: str) -> None:
        """Release the reservation of a pod without a gate; `why` is the message to report."""
        # Set this before other pods get the room, since they may ask about it.
        self.given_back[uid] = why
        self._end_reservation(uid)

    def _end_reservation(self, uid: str) -> None:
        pod = self.reserved.pop(uid)
        # Do this before other pods get the room. Otherwise members of its gang would be admitted as if the pod still
        # counted for the minimum.
        self.group_changed(_gang_of(pod))
        self.unreserve(uid)
        self.events.reservation_ended(pod)

    def _unhold(self, uid: str) -> None:
        pod = self.held.pop(uid, None)
        if pod is None:
            return
        self._reported.pop(uid, None)
        key = _gang_of(pod)
        members = self._gangs[key]
        del members[uid]
        if not members:
            del self._gangs[key]
        self._forget_choices(key)
        self._decide_anew(key)

    # ---- reservations

    def reserve(self, pod: PodInfo) -> None:
        """Count a pod that was admitted past the gate of its queue, if it is not placed."""
        room = self._room
        if not (room.active and room.asks_queues) or pod.uid in room.placements:
            return
        queue, vector = room.keeping_queue(pod), room.members.vector(pod)
        before = room.book.entry(pod.uid)
        if queue:
            room.book.set(pod.uid, queue, vector, Standing.RESERVED, turn_of_pod(pod))
            self._promises.spend(pod, vector)
        else:
            self._promises.uncount(pod.uid)
        self._wanting.look_again(pod.uid)
        if queue and (before is None or (before.queue, before.vector) != (queue, vector)):
            self._wanting.holds_more(queue)
        if pod.uid in room.waiting:
            # The pod's own room is counted now, so it would never find room for itself in line.
            room.waiting.remove(pod.uid)
            room.over[pod.uid] = None

    def unreserve(self, uid: str) -> None:
        """Stop counting a pod, unless it is placed or its room is kept for another reason."""
        if uid not in self._room.placements:
            if not self._kept.count(uid):
                self._promises.uncount(uid)
            self._wanting.look_again(uid)
            self._room.freed()
            self.events.unreserved()

    # ---- admitting pods

    def start(self) -> None:
        """Begin to admit pods, by `admit`."""
        self.admits = True
        self.decide_all_anew()

    def stop(self) -> None:
        """Stop admitting pods. Admitted pods that still have the gate are held again, since it is no longer removed."""
        self.admits = False
        # Do this before room becomes free, otherwise waiting pods would be admitted.
        self.decide_all_anew()
        for pod in [pod for pod in self.reserved.values() if pod.closed_gates]:
            self.drop(pod.uid)
            self.set(pod)

    # ---- gangs

    def group_changed(self, key: GroupKey) -> None:
        """Choose again after the gang's object or its members have changed."""
        if key in self._gangs:
            self._decide_anew(key)

    def queue_changed(self, key: GroupKey) -> None:
        """Choose again for a gang whose members are in another queue than before."""
        self._forget_choices(key)
        self.group_changed(key)

    def decide_all_anew(self) -> None:
        """Choose again for all gangs, after a change of queues or of whether pods are admitted."""
        for key in [*self._waits_as]:
            self._forget_choices(key)
        for key in self._gangs:
            self._decide_anew(key)

    def _decide_anew(self, key: GroupKey) -> None:
        if not self._due:
            self.events.gates_due()
        self._due.add(key)

    def _forget_choices(self, key: GroupKey) -> None:
        for name in self._waits_as.pop(key, ()):
            del self._chosen[name]
            self._room.waiting.remove(name)

    # ---- admission

    def room_came(self) -> None:
        """Choose again for gangs that lacked room for their promise, after queues got room."""
        beyond, self._beyond = self._beyond, set()
        for key in beyond:
            self.group_changed(key)

    def admit(self) -> None:
        """Admit the pods that fit, of gangs that have changed; without changed gangs this costs nothing."""
        while self._due and self.admits:
            due, self._due = sorted(self._due), set()
            for key in due:
                self._forget_choices(key)
                members = self._gangs.get(key)
                if members is not None:
                    self._put(key, members)
                else:
                    self._promises.end_turn(key)
            self._room.freed()
            for key in due:
                self._tell(key)

    def _tell(self, key: GroupKey) -> None:
        """Call `events.held` for waiting pods of a gang, once per pod and queue.

        Otherwise a queue that stays full would cause repeated reports for all of its waiting pods.
        """
        room = self._room
        if key in self._gangs and (short := self._promises.shortfall(key)) is not None:
            pods = list(self._gangs[key].values())
            if new := self._not_reported_to_wait_for(pods, short.queue):
                self._tell_of(new, short.queue, str(short), len(pods))
        for name in self._waits_as.get(key, ()):
            queue = room.waiting.queue_of(name)
            pods = [self.held[uid] for uid in self._chosen[name].uids]
            if new := self._not_reported_to_wait_for(pods, queue):
                short = take_all(room.book.headroom(), room.waiting.wanted(name))
                why = f"others come first in queue {queue}" if short is None else str(short)
                self._tell_of(new, queue, why, len(pods))

    def _not_reported_to_wait_for(self, pods: Iterable[PodInfo], queue: str) -> list[PodInfo]:
        return [pod for pod in pods if self._reported.get(pod.uid) != queue]

    def _tell_of(self, new: Sequence[PodInfo], queue: str, why: str, together: int) -> None:
        """Report new waiting pods; `together` is the number of pods that wait together, with those reported before."""
        self._reported.update((pod.uid, queue) for pod in new)
        self.events.held(new, f"{why}, for {together} pods together" if together > 1 else why)

    def _put(self, key: GroupKey, members: Mapping[str, PodInfo]) -> None:
        """Let members of a gang wait for their queue, or admit them if they need not wait."""
        if self._room.asks_queues:
            choice = self.choose(key, members.values(), self._with_room)
        else:
            choice = each_alone(key, members.values(), ())
        room = self._room
        if choice is None:
            if self._room.asks_queues and key.name not in members and self._promises.is_unseen(key):
                # The podgroup controller creates the group before it names it, but the watches are independent.
                self._keep_turn(key, GatedMembers([*members.values()]), complete=False)
            return
        if self._room.asks_queues and self._promises.keeps_out(key):
            self._keep_turn(key, choice)
            return
        if self._room.asks_queues and self._promises.shortfall(key) is not None:
            # A removed gate cannot be added again, so the members keep it until there is room.
            self._beyond.add(key)
            return
        turns: list[tuple[str, Sequence[PodInfo]]]
        if choice.needed:
            # The members beyond the minimum are admitted after the needed ones.
            turns = [(key.text, choice.needed)]
        else:
            turns = [(pod.uid, (pod,)) for pod in choice.others]
        promised, left = self._promises.queue_of(key), self._promises.left(key)
        for name, pods in turns:
            uids = tuple(pod.uid for pod in pods if pod.uid in self.held)
            first = min(pods, key=turn_of_pod)
            self._chosen[name] = _Chosen(key, uids, bool(choice.needed))
            self._waits_as.setdefault(key, {})[name] = None
            wanted: dict[str, Total] = {}
            for pod in pods:
                # An admitted group keeps no room for a member whose reservation was released.
                gave_back = bool(promised) and pod.uid in self.given_back
                if not gave_back and (queue := room.members.queue_of(pod)):
                    add_to(wanted.setdefault(queue, {}), room.members.vector(pod))
            # If the group sets this, all its members are in the group's queue. A promise includes it.
            for total in wanted.values() if not promised else ():
                for resource, amount in choice.at_least.items():
                    total[resource] = max(total.get(resource, 0), amount)
            if promised in wanted:
                # The promise to the group is available to its members only, and each part of it to one member.
                asked = wanted[promised]
                wanted[promised], left = rest(asked, left), rest(left, asked)
                if is_empty(wanted[promised]):
                    del wanted[promised]
            if room.active and wanted and self._room.asks_queues:
                room.wait_for(name, wanted, first)
            else:
                self.let_past((name,))

    def _keep_turn(self, key: GroupKey, choice: GatedMembers, *, complete: bool = True) -> None:
        """Keep the position in line of a group that is not admitted to its queue."""
        first = choice.needed or choice.others[:1]
        if first and (queue := self._room.members.queue_of(first[0])):
            wanted: Total = {}
            for pod in first:
                add_to(wanted, self._room.members.vector(pod))
            own = min(map(turn_of_pod, first))
            ask = Ask(key, queue, at_least(wanted, choice.at_least), (), own, complete)
            self._promises.keep_turn(ask)

    def waits_as(self, name: str) -> bool:
        """Return whether gated pods wait for their queue under this name."""
        return name in self._chosen

    def let_past(self, names: Iterable[str]) -> None:
        """Admit the pods that wait under these names, since their queue has room for them.

        The members of a gang that has changed are chosen again instead, and the room is kept until then.
        """
        admitted: list[PodInfo] = []
        for name in names:
            key, uids, others_follow = self._chosen.pop(name)
            members, waits_as = self._gangs[key], self._waits_as[key]
            if key in self._due:
                self._room.book.fallen.update(self._room.members.queue_of(self.held[uid]) for uid in uids)
                uids = ()
            for uid in uids:
                pod = self.reserved[uid] = self.held.pop(uid)
                self._reported.pop(uid, None)
                del members[uid]
                self.reserve(pod)
                admitted.append(pod)
            if not members:
                del self._gangs[key]
            waits_as.pop(name, None)
            if not waits_as:
                del self._waits_as[key]
            if others_follow:
                self._decide_anew(key)
        self.events.admitted(admitted)

    # ---- questions

    @property
    def is_due(self) -> bool:
        """Whether `admit` has something to do."""
        return self.admits and bool(self._due)

    def __bool__(self) -> bool:
        """Return whether there are any pods."""
        return bool(self.held or self.reserved or self.given_back)

    def __contains__(self, uid: str) -> bool:
        return uid in self.held or uid in self.reserved or uid in self.given_back

    def explain(self, pod: PodInfo) -> GateStatus | None:
        """Explain why a held pod is not admitted; None for any other pod."""
        if pod.uid not in self.held:
            return None
        room, key = self._room, _gang_of(pod)
        queue = room.members.queue_of(pod)
        names = [name for name in self._waits_as.get(key, ()) if pod.uid in self._chosen[name].uids]
        if not names and self.admits and self._promises.asks_for(key):
            short = self._promises.shortfall(key)
            others = self._promises.before(key, queue if short is None else short.queue)
            beside = sorted(each.key for each in self._gangs[key].values() if each.uid != pod.uid)
            return GateStatus(
                queue, "" if short is None else str(short), tuple(beside), tuple(map(self._called, others))
            )
        if not names:
            return GateStatus(queue, self._why_not_in_line(key), (), ())
        name = names[0]
        short = take_all(room.book.headroom(), room.waiting.wanted(name))
        before = room.waiting.before(name, room.book, queue if short is None else short.queue)
        together = sorted(self.held[uid].key for uid in self._chosen[name].uids if uid != pod.uid)
        return GateStatus(queue, "" if short is None else str(short), tuple(together), tuple(map(self._called, before)))

    def _why_not_in_line(self, key: GroupKey) -> str:
        if not self.admits:
            return "this process does not remove gates"
        if self._waits_as.get(key):
            return "its gang's minimum comes first"
        if self.choose(key, self._gangs[key].values(), self._with_room) is None:
            if key.name in self._gangs[key]:
                return "its workload's group is about to be made"
            return f"group {key.text} does not exist, or has not its minimum of members"
        if self._promises.keeps_out(key):
            return f"group {key.text} is not let into its queue"
        short = self._promises.shortfall(key)
        return "" if short is None else str(short)

    def _called(self, name: str) -> str:
        """Return the name in messages of the pod or group that waits under `name`."""
        pod = self.held.get(name)
        return self._promises.called(name) if pod is None else pod.key


def _gang_of(pod: PodInfo) -> GroupKey:
    """Return the gang of a pod; a pod without one is a gang of its own, named by its UID."""
    named = pod.batch.group if pod.batch is not None else None
    return GroupKey(pod.namespace, pod.uid) if named is None else named
