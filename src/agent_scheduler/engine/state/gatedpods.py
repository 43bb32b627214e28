"""Pods behind the gate of their queue's capacity, and those that were let past it and have no node yet.

An autoscaler adds nodes for pods that say `Unschedulable`, which a gated pod never does. So a pod keeps the gate
(`scheduling.volcano.sh/queue-allocation-gate`) until its queue has room for it, by what the queue and those above it
declare; whether any node has is not asked, or the autoscaler of a full cluster would never hear of it. A gang is let
past with its whole minimum, its other members as they fit. From then on each counts in the queue as reserved until it
has a node: a gate cannot be put back.

Upstream design: `docs/design/scheduling-gates-queue-admission.md` of Volcano.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE

from ..quotas.vector import EMPTY, Total, Vector, add_to, at_least, is_empty, rest
from ..quotas.waiting import take_all
from .asks import Ask, turn_of_pod
from .batchinfo import GroupKey
from .podinfo import PodInfo

if TYPE_CHECKING:
    from .queueusage import QueueUsage

_OURS_ALONE: Final = (QUEUE_ALLOCATION_GATE,)
_NOBODY: Final[Mapping[str, PodInfo]] = MappingProxyType({})


class _Chosen(NamedTuple):
    """Held pods of one gang that are let past together. `others_follow`: whether more of the gang come after these."""

    gang: GroupKey
    uids: tuple[str, ...]
    others_follow: bool


class Choice(NamedTuple):
    """Of a gang: with which of its gated members, and of those without a gate that hold no room, it has its minimum;
    which of the gated are above it; and what its queue is to have room for at least."""

    needed: Sequence[PodInfo]
    others: Sequence[PodInfo] = ()
    at_least: Vector = EMPTY


class Held(NamedTuple):
    """Of a pod behind the gate: its queue; why it is not let past, empty if it is about to be; which pods would be let
    past with it; and whose turn comes before: gangs and gated pods by `namespace/name`, others by UID."""

    queue: str
    why: str
    together: tuple[str, ...]
    before: tuple[str, ...]


#: Is given a gang, its gated members and the UIDs of those that hold room; None: it has not its minimum of members.
Choose = Callable[[GroupKey, Collection[PodInfo], Collection[str]], Choice | None]


def _alone(_key: GroupKey, members: Collection[PodInfo], _has: Collection[str]) -> Choice:
    """Where nobody knows of gangs each pod is let past by itself."""
    return Choice((), sorted(members, key=turn_of_pod))


class GatedPods:
    """Owner of who is held and who is reserved. Told by the cluster of each pod that asks for this and has no node.

    Invariants: a UID is in `held`, in `reserved`, or in neither. While queues are counted, each of `keeping` without a
    placement that can be placed stands in the book as reserved. What waits in `usage.waiting` under the name of a gang
    is a choice of members that are all held.
    """

    def __init__(self, usage: QueueUsage) -> None:
        self._usage = usage
        #: Who is to be let past together.
        self.choose: Choose = _alone
        #: Called when `admit` has something to do.
        self.on_due: Callable[[], object] = lambda: None
        #: Called with pods that lose their gate from now on.
        self.on_admitted: Callable[[Sequence[PodInfo]], object] = lambda pods: None
        #: Called, where pods are let past, with those that have come to wait for room in their queue, and why they do.
        self.on_held: Callable[[Sequence[PodInfo], str], object] = lambda pods, why: None
        #: Called with each pod that is reserved no more, whatever has become of it.
        self.on_reservation_ended: Callable[[PodInfo], object] = lambda pod: None
        #: Whether any are let past: no more than one process of a cluster does.
        self.admits = False
        #: Whether queues are asked. If not, every pod loses this gate at once, and none is reserved.
        self.asks_queues = True
        #: By UID: whom the gate alone holds.
        self.held: dict[str, PodInfo] = {}
        #: By UID: who was let past and is on no node, as far as it is known; an assumed pod is among them.
        self.reserved: dict[str, PodInfo] = {}
        #: By UID: who has given its reserved room back and has no node, and what to say of that. It competes for the
        #: queue as a pod that never had the gate, and is no reason to add nodes.
        self.given_back: dict[str, str] = {}
        #: Gang -> those of `held` that are in it. A pod in no gang is in one of its own.
        self._gangs: dict[GroupKey, dict[str, PodInfo]] = {}
        #: Of which it is to be decided anew who is let past next.
        self._due: set[GroupKey] = set()
        #: Those whose group was let in, and whose queue has not what the group was promised.
        self._beyond: set[GroupKey] = set()
        #: By the name under which they wait for their queue.
        self._chosen: dict[str, _Chosen] = {}
        #: Gang -> names under which members of it wait, in the order in which they came.
        self._waits_as: dict[GroupKey, dict[str, None]] = {}
        #: By UID, those of `held` that `on_held` was called with, and for which queue they waited.
        self._told: dict[str, str] = {}

    # ---- pods

    def set(self, pod: PodInfo) -> None:
        """The pod asks for this and has no node; it was added or changed."""
        if pod.uid in self.given_back:
            return
        gates = pod.closed_gates if pod.gates else ()
        if not gates or (pod.uid in self.reserved and gates == _OURS_ALONE):
            self._unhold(pod.uid)
            self.reserved[pod.uid] = pod
            self._usage.reserve(pod)
        elif gates == _OURS_ALONE or (not self.asks_queues and QUEUE_ALLOCATION_GATE in gates):
            key = _gang_of(pod)
            before = self.held.get(pod.uid)
            if before is not None and (_gang_of(before) != key or before.cls is not pod.cls):
                told = self._told.get(pod.uid, "")
                self._unhold(pod.uid)
                self._told[pod.uid] = told
            self.held[pod.uid] = pod
            self._gangs.setdefault(key, {})[pod.uid] = pod
            self._decide_anew(key)
        else:
            # Another gate says that it is not to be looked at yet. Of one that was let past such a gate can come only
            # with the store going back, and nobody is to wait for what it would hold.
            self.drop(pod.uid)

    def drop(self, uid: str) -> None:
        """The pod has a node for good, is gone, or waits no more. Unknown is fine."""
        self._unhold(uid)
        self.given_back.pop(uid, None)
        if uid in self.reserved:
            self._end_reservation(uid)

    def give_back(self, uid: str, why: str) -> None:
        """A reserved pod without a gate holds its room no longer."""
        # Before others have the room, who may ask about it.
        self.given_back[uid] = why
        self._end_reservation(uid)

    def _end_reservation(self, uid: str) -> None:
        pod = self.reserved.pop(uid)
        # Before others have the room, or members of its gang would as if it still counted for the minimum.
        self.group_changed(_gang_of(pod))
        self._usage.unreserve(uid)
        self.on_reservation_ended(pod)

    def _unhold(self, uid: str) -> None:
        pod = self.held.pop(uid, None)
        if pod is None:
            return
        self._told.pop(uid, None)
        key = _gang_of(pod)
        members = self._gangs[key]
        del members[uid]
        if not members:
            del self._gangs[key]
        self._forget_choices(key)
        self._decide_anew(key)

    # ---- who lets past

    def start(self) -> None:
        """From now on pods are let past, by `admit`."""
        self.admits = True
        self.decide_all_anew()

    def stop(self) -> None:
        """Nobody is let past from now on. Whose gate is still there is held again: nobody removes it any more."""
        self.admits = False
        # Before room comes free, or whoever stands in line would have it.
        self.decide_all_anew()
        for pod in [pod for pod in self.reserved.values() if pod.closed_gates]:
            self.drop(pod.uid)
            self.set(pod)

    # ---- gangs

    def group_changed(self, key: GroupKey) -> None:
        """The gang's object or its members have changed."""
        if key in self._gangs:
            self._decide_anew(key)

    def decide_all_anew(self) -> None:
        """What pods wait for has changed, or whether any are let past."""
        for key in [*self._waits_as]:
            self._forget_choices(key)
        for key in self._gangs:
            self._decide_anew(key)

    def _decide_anew(self, key: GroupKey) -> None:
        if not self._due:
            self.on_due()
        self._due.add(key)

    def _forget_choices(self, key: GroupKey) -> None:
        for name in self._waits_as.pop(key, ()):
            del self._chosen[name]
            self._usage.waiting.remove(name)

    # ---- admission

    def room_came(self) -> None:
        """Queues hold less than before, or may hold more."""
        beyond, self._beyond = self._beyond, set()
        for key in beyond:
            self.group_changed(key)

    def admit(self) -> None:
        """Let past who fits now of the gangs that have changed. Costs nothing where none has."""
        while self._due and self.admits:
            due, self._due = sorted(self._due), set()
            for key in due:
                self._forget_choices(key)
                members = self._gangs.get(key)
                if members is not None:
                    self._put(key, members)
                else:
                    self._usage.promises.end_turn(key)
            self._usage.call()
            for key in due:
                self._tell(key)

    def _tell(self, key: GroupKey) -> None:
        """Each is told of once, or a queue that is full for long would have all that wait for it told of again and
        again; and once more if it comes to wait for another queue."""
        usage = self._usage
        if key in self._gangs and (short := usage.promises.shortfall(key)) is not None:
            pods = list(self._gangs[key].values())
            if new := self._not_told(pods, short.queue):
                self._tell_of(new, short.queue, str(short), len(pods))
        for name in self._waits_as.get(key, ()):
            queue = usage.waiting.queue_of(name)
            pods = [self.held[uid] for uid in self._chosen[name].uids]
            if new := self._not_told(pods, queue):
                short = take_all(usage.book.headroom(), usage.waiting.wanted(name))
                why = f"others come first in queue {queue}" if short is None else str(short)
                self._tell_of(new, queue, why, len(pods))

    def _not_told(self, pods: Iterable[PodInfo], queue: str) -> list[PodInfo]:
        return [pod for pod in pods if self._told.get(pod.uid) != queue]

    def _tell_of(self, new: Sequence[PodInfo], queue: str, why: str, together: int) -> None:
        """`together`: how many pods wait for the queue as one, those that were told of before among them."""
        self._told.update((pod.uid, queue) for pod in new)
        self.on_held(new, f"{why}, for {together} pods together" if together > 1 else why)

    def _put(self, key: GroupKey, members: Mapping[str, PodInfo]) -> None:
        """Have members wait for their queue, or let them past where there is none to wait for."""
        if self.asks_queues:
            choice = self.choose(key, members.values(), self.reserved.keys())
        else:
            choice = _alone(key, members.values(), ())
        usage = self._usage
        if choice is None:
            if self.asks_queues and key.name not in members and usage.promises.is_unseen(key):
                # The podgroup controller makes a group first, but another watch tells of it.
                self._keep_turn(key, Choice([*members.values()]), complete=False)
            return
        if self.asks_queues and usage.promises.keeps_out(key):
            self._keep_turn(key, choice)
            return
        if self.asks_queues and usage.promises.shortfall(key) is not None:
            # A gate that has gone cannot be put back, so members have theirs until the room is there.
            self._beyond.add(key)
            return
        turns: list[tuple[str, Sequence[PodInfo]]]
        if choice.needed:
            # Those above the minimum come after those that are needed.
            turns = [(key.text, choice.needed)]
        else:
            turns = [(pod.uid, (pod,)) for pod in choice.others]
        promised, left = usage.promises.queue_of(key), usage.promises.left(key)
        for name, pods in turns:
            uids = tuple(pod.uid for pod in pods if pod.uid in self.held)
            first = min(pods, key=turn_of_pod)
            self._chosen[name] = _Chosen(key, uids, bool(choice.needed))
            self._waits_as.setdefault(key, {})[name] = None
            wanted: dict[str, Total] = {}
            for pod in pods:
                # A group that is let in keeps nothing for a member that has given its room back.
                gave_back = bool(promised) and pod.uid in self.given_back
                if not gave_back and (queue := usage.queue_of(pod)):
                    add_to(wanted.setdefault(queue, {}), usage.vector(pod))
            # Where a group says this, all its members are in the queue that it names. It is in what it was promised.
            for total in wanted.values() if not promised else ():
                for resource, amount in choice.at_least.items():
                    total[resource] = max(total.get(resource, 0), amount)
            if promised in wanted:
                # What a group was promised when it was let in is nobody else's, and each part of it one member's.
                asked = wanted[promised]
                wanted[promised], left = rest(asked, left), rest(left, asked)
                if is_empty(wanted[promised]):
                    del wanted[promised]
            if usage.active and wanted and self.asks_queues:
                usage.wait_for(name, wanted, first)
            else:
                self.let_past((name,))

    def _keep_turn(self, key: GroupKey, choice: Choice, *, complete: bool = True) -> None:
        """Of a group that is not let into its queue."""
        first = choice.needed or choice.others[:1]
        if first and (queue := self._usage.queue_of(first[0])):
            wanted: Total = {}
            for pod in first:
                add_to(wanted, self._usage.vector(pod))
            own = min(map(turn_of_pod, first))
            ask = Ask(key, queue, at_least(wanted, choice.at_least), (), own, complete)
            self._usage.promises.keep_turn(ask)

    def waits_as(self, name: str) -> bool:
        """Whether gated pods wait for their queue under this name."""
        return name in self._chosen

    def let_past(self, names: Iterable[str]) -> None:
        """Their queue has room for what waits under these names, which do so no more. Of a gang that has changed it is
        decided anew who that is to be, and the room is kept until then."""
        admitted: list[PodInfo] = []
        for name in names:
            key, uids, others_follow = self._chosen.pop(name)
            members, waits_as = self._gangs[key], self._waits_as[key]
            if key in self._due:
                self._usage.book.fallen.update(self._usage.queue_of(self.held[uid]) for uid in uids)
                uids = ()
            for uid in uids:
                pod = self.reserved[uid] = self.held.pop(uid)
                self._told.pop(uid, None)
                del members[uid]
                self._usage.reserve(pod)
                admitted.append(pod)
            if not members:
                del self._gangs[key]
            waits_as.pop(name, None)
            if not waits_as:
                del self._waits_as[key]
            if others_follow:
                self._decide_anew(key)
        self.on_admitted(admitted)

    # ---- questions

    @property
    def keeping(self) -> Mapping[str, PodInfo]:
        """Those of `reserved` that have their room, if they can be placed: all if queues are asked, and else none."""
        return self.reserved if self.asks_queues else _NOBODY

    @property
    def is_due(self) -> bool:
        """Whether `admit` has something to do."""
        return self.admits and bool(self._due)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.held or self.reserved or self.given_back)

    def __contains__(self, uid: str) -> bool:
        return uid in self.held or uid in self.reserved or uid in self.given_back

    def explain(self, pod: PodInfo) -> Held | None:
        """What keeps a held pod's gate shut; None for any other."""
        if pod.uid not in self.held:
            return None
        usage, key = self._usage, _gang_of(pod)
        queue = usage.queue_of(pod)
        names = [name for name in self._waits_as.get(key, ()) if pod.uid in self._chosen[name].uids]
        if not names and self.admits and usage.promises.asks_for(key):
            short = usage.promises.shortfall(key)
            others = usage.promises.before(key, queue if short is None else short.queue)
            beside = sorted(each.key for each in self._gangs[key].values() if each.uid != pod.uid)
            return Held(
                queue,
                "" if short is None else str(short),
                tuple(beside),
                tuple(map(self._called, others)),
            )
        if not names:
            return Held(queue, self._why_not_in_line(key), (), ())
        name = names[0]
        short = take_all(usage.book.headroom(), usage.waiting.wanted(name))
        before = usage.waiting.before(name, usage.book, queue if short is None else short.queue)
        together = sorted(self.held[uid].key for uid in self._chosen[name].uids if uid != pod.uid)
        return Held(
            queue, "" if short is None else str(short), tuple(together), tuple(map(self._called, before))
        )

    def _why_not_in_line(self, key: GroupKey) -> str:
        if not self.admits:
            return "this process does not remove gates"
        if self._waits_as.get(key):
            return "its gang's minimum comes first"
        if self.choose(key, self._gangs[key].values(), self.reserved.keys()) is None:
            if key.name in self._gangs[key]:
                return "its workload's group is about to be made"
            return f"group {key.text} does not exist, or has not its minimum of members"
        if self._usage.promises.keeps_out(key):
            return f"group {key.text} is not let into its queue"
        short = self._usage.promises.shortfall(key)
        return "" if short is None else str(short)

    def _called(self, name: str) -> str:
        """What people call what waits under this name."""
        pod = self.held.get(name)
        return self._usage.promises.called(name) if pod is None else pod.key


def _gang_of(pod: PodInfo) -> GroupKey:
    """A pod's UID is no name of a group."""
    named = pod.batch.group if pod.batch is not None else None
    return GroupKey(pod.namespace, pod.uid) if named is None else named
