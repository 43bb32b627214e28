"""The pods of this process that another one is to bind, because they fit on no node of the part here.

While a pod is lent it is in flight in the queue here and nowhere else, and it is assumed on the node that it was lent
for: the next decisions count it in, and do not lend more pods for that node than it has room for. The process of the
node decides: it has all that is under way there. What is said to users of the pod is said here.

Invariant: a lent pod is in flight in the queue, and every loan ends, by the answer or with the other process; what the
answer means is done then. A pod that was bound or deleted meanwhile stays lent until that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from agent_scheduler.engine.decide import Candidate, Placement
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.shards.membership import Membership

from .cluster import Cluster
from .failure import FailureHandler, Messenger
from .feed import Entry, Feed
from .neighbours import Ending, Neighbours

#: Pods that are lent at a time. They go past the queues of those who bind them, which is not to be to the harm of pods
#: of higher priority there; and many are worth the way to another process.
_AT_A_TIME: Final = 256


class LendingObserver(Protocol):
    def lent(self, ending: str) -> None:
        """A loan has ended: `bound`, `refused`, `failed` or `gone`."""


class _Loan(NamedTuple):
    entry: Entry
    pod: PodInfo
    node_name: str
    #: When the attempt began.
    started: float


class Lending:
    """Owner of the pods that are lent."""

    def __init__(
        self,
        neighbours: Neighbours,
        part: Membership,
        *,
        cluster: Cluster,
        feed: Feed,
        failures: FailureHandler,
        messenger: Messenger,
        observer: LendingObserver,
        room: Callable[[], bool],
    ) -> None:
        """`part`: the nodes of this process. `room`: whether the binder takes another result."""
        self._neighbours = neighbours
        self._part = part
        self._cluster = cluster
        self._feed = feed
        self._failures = failures
        self._messenger = messenger
        self._observer = observer
        self._room = room
        self._lent: dict[str, _Loan] = {}

    def __len__(self) -> int:
        return len(self._lent)

    def has_room(self) -> bool:
        """Whether another pod may be decided on, wherever it goes."""
        return len(self._lent) < _AT_A_TIME and self._room()

    def ours(self, placement: Placement) -> Placement | None:
        """The part of a decision that this process may carry out; None where its best node is another's."""
        mine = self._part.nodes
        if placement.candidates[0].node_name not in mine:
            return None
        candidates = tuple(each for each in placement.candidates if each.node_name in mine)
        return Placement(candidates, placement.seen)

    def lend(self, entry: Entry, pod: PodInfo, candidate: Candidate, *, started: float) -> None:
        """Have it bound there by the process which the node belongs to."""
        self._cluster.ledger.assume(pod, candidate.row)
        self._messenger.binding(pod)
        self._lent[pod.uid] = _Loan(entry, pod, candidate.node_name, started)
        self._neighbours.lend(pod.uid, candidate.node_name)

    def ended(self, uid: str, ending: Ending, message: str = "") -> None:
        """The other process has done with it, or has ended. Unknown is fine."""
        loan = self._lent.pop(uid, None)
        if loan is None:
            return
        self._observer.lent(ending.value)
        entry, pod, cluster = loan.entry, loan.pod, self._cluster
        if ending is Ending.BOUND:
            cluster.ledger.confirm(uid)
            cluster.queue.scheduled(entry)
            cluster.queue.done(uid)
            self._failures.history.scheduled(uid, loan.node_name, started=loan.started)
        else:
            cluster.forget(pod)
            if not cluster.waits_here(uid):
                cluster.queue.done(uid)
            elif ending is Ending.FAILED:
                self._failures.error(entry, pod, message, started=loan.started, tell=bool(message))
            else:
                # As one who lost a race: it is decided anew, on what is known by now, and a few times at once at most.
                # One that is said to be gone, too: until the watch here says so, nobody else would try it.
                self._failures.outraced(entry, pod, started=loan.started)
        self._feed.wake()
