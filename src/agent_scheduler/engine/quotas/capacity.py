"""The accounts of Volcano's plugin capacity: each queue declares its deserved share and its limit.

Without a hierarchy, the queues share the cluster. In a hierarchy (`enableHierarchy`), a queue's limit is also within
that of its parent, and only leaves have jobs. One fault in the hierarchy stops all queues: nothing is admitted,
allocated or reclaimed until the tree is valid (`buildHierarchicalQueueAttrs` in `pkg/scheduler/plugins/capacity`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent_scheduler.objects.batch import ROOT_QUEUE

from .accounts import Account, Gauges, QuotaRefusal, Reservations, total_guarantee, unlimited_where_unset, zero
from .demand import Demand
from .queues import QueueInfo, QueueTree
from .vector import (
    COMMON,
    EMPTY,
    PODS,
    UNLIMITED,
    Total,
    Vector,
    add_to,
    any_above,
    any_within,
    at_least,
    at_most,
    exceeding,
    insufficient,
    is_empty,
    less_equal,
    minus,
    names,
    plus,
    take_from,
)


def _share(account: Account) -> float:
    """Return the queue's share; a queue that deserves nothing comes after all that have less than they deserve."""
    return 1.0 if is_empty(account.deserved) else account.allocated_part()


class CapacityAccounts:
    """The usage and limits of queues in a session. Owner: the session's plugin.

    `fault` is why all queues are stopped; then their usage is unknown. Without a hierarchy, only queues with jobs have
    an account. `ancestor_reclaim_level` is the number of levels above a leaf that reclaiming also checks.
    """

    def __init__(
        self,
        tree: QueueTree,
        jobs: Sequence[Demand],
        total: Vector,
        *,
        others: Sequence[Demand] = (),
        hierarchy: bool = False,
        ancestor_reclaim_level: int = 0,
    ) -> None:
        """Open the accounts; `others` is the usage of pods outside of jobs, in any queues, even missing ones."""
        self.tree = tree
        self.hierarchy = hierarchy
        self.ancestor_reclaim_level = ancestor_reclaim_level if hierarchy else 0
        self.accounts: dict[str, Account] = {}
        self.gauges: dict[str, Gauges] = {}
        self.reservations = Reservations()
        self.fault = ""
        others = [other for other in others if other.queue in tree.queues]
        if hierarchy:
            self._open_tree(jobs, others, total)
        else:
            self._open_flat(jobs, others, total)

    # -- opening

    def _open_flat(self, jobs: Sequence[Demand], others: Sequence[Demand], total: Vector) -> None:
        queues = self.tree.queues
        shared = exceeding(total, total_guarantee(queues.values()))
        for job in jobs:
            account = self.accounts.get(job.queue)
            if account is None:
                account = self.accounts[job.queue] = Account(queues[job.queue])
                account.real_capability = _flat_limit(account.info, shared)
            account.count(job, job.admitted())
        for other in others:
            if other.queue in self.accounts:
                self.accounts[other.queue].count(other, EMPTY)
        for account in self.accounts.values():
            limited = at_most(account.deserved, account.real_capability, missing=UNLIMITED)
            account.deserve(at_least(limited, account.guarantee))
            account.share = _share(account)
        for name, queue in queues.items():
            held = self.accounts.get(name)
            if held is not None:
                self.gauges[name] = _gauges(held, held.allocated)
            else:
                self.gauges[name] = Gauges(
                    allocated=zero(),
                    request=EMPTY,
                    inqueue=EMPTY,
                    deserved=queue.deserved,
                    real_capability=_flat_limit(queue, shared, unset=False),
                )

    def _open_tree(self, jobs: Sequence[Demand], others: Sequence[Demand], total: Vector) -> None:
        tree = self.tree
        accounts = self.accounts
        for name, queue in tree.queues.items():
            accounts[name] = account = Account(queue)
            if account.capability is None:
                account.capability = zero()
        inner = next((job.queue for job in jobs if not tree.is_leaf(job.queue)), None)
        if tree.faults:
            self.fault = "; ".join(fault.message for fault in tree.faults)
        elif inner is not None:
            self.fault = f"queue {inner} has both jobs and queues below it"
        if self.fault:
            self.gauges = {name: Gauges() for name in accounts}
            return
        for job in (*jobs, *others):
            admitted = job.admitted()
            for each in (job.queue, *tree.ancestors[job.queue]):
                accounts[each].count(job, admitted)
        root = accounts[ROOT_QUEUE]
        assert root.capability is not None
        if is_empty(root.capability):
            root.capability = dict.fromkeys((*COMMON, *total), UNLIMITED)
        root.real_capability = root.capability
        self._limit_children(ROOT_QUEUE)
        for name, account in accounts.items():
            account.deserve(account.deserved)
            account.share = _share(account)
            held = account.allocated
            self.gauges[name] = _gauges(account, held if tree.is_leaf(name) else dict(held))

    def _limit_children(self, name: str) -> None:
        account = self.accounts[name]
        children = [self.accounts[child] for child in self.tree.children[name]]
        deserved, guaranteed = zero(), zero()
        for child in children:
            child.deserved = at_least(child.deserved, child.guarantee)
            add_to(deserved, child.deserved)
            add_to(guaranteed, child.guarantee)
            child.capability = _inherited(child.capability or zero(), account.capability or zero())
        if name == ROOT_QUEUE:
            account.guarantee, account.deserved = guaranteed, deserved
        shared = exceeding(account.real_capability, guaranteed)
        for child in children:
            own = plus(shared, child.guarantee)
            child.real_capability = at_most(own, child.capability or EMPTY, missing=UNLIMITED)
        for child in children:
            self._limit_children(child.info.name)

    # -- during a session

    def allocate(self, queue: str, wanted: Vector, uid: str) -> None:
        """Count a task of the queue that got room, or a claim on room that is about to be free."""
        self._change(queue, add_to, wanted)
        self.reservations.remove(uid)

    def deallocate(self, queue: str, wanted: Vector) -> None:
        """Stop counting a task of the queue."""
        self._change(queue, take_from, wanted)

    def _change(self, queue: str, change: Callable[[Total, Vector], None], wanted: Vector) -> None:
        account = self.accounts.get(queue)
        if account is None:
            return
        change(account.allocated, wanted)
        account.share = _share(account)
        gauges = self.gauges[queue]
        gauges.allocated, gauges.share = account.allocated, account.share
        if self.hierarchy:
            for above in self.tree.ancestors[queue]:
                change(self.accounts[above].allocated, wanted)

    def _upwards(self, queue: str) -> Iterable[Account]:
        yield self.accounts[queue]
        if self.hierarchy:
            for above in self.tree.ancestors[queue]:
                yield self.accounts[above]

    def takes_jobs(self, queue: str) -> bool:
        """Return whether the queue may admit or allocate any task: it is open and, in a hierarchy, a leaf."""
        if self.fault or not self.tree.queues[queue].open:
            return False
        return not self.hierarchy or self.tree.is_leaf(queue)

    def cannot_allocate(self, queue: str, wanted: Vector, uid: str) -> QuotaRefusal | None:
        """Return the first queue, from the task's own up to the root, that would exceed its limit; None if it fits.

        Only resources that the task requests count. Reservations of other tasks count in their own queue only.
        """
        for account in self._upwards(queue):
            name = account.info.name
            reserved = self.reservations.of_others(name, uid)
            lacking = account.lacking(wanted, account.real_capability, reserved)
            if lacking:
                return QuotaRefusal(name, lacking)
        return None

    def cannot_admit(self, queue: str, minimum: Vector) -> QuotaRefusal | None:
        """Return the first queue that would exceed its limit with a job's minimum; None if it fits."""
        for account in self._upwards(queue):
            lacking = insufficient(account.after_admitting(minimum), account.real_capability, minimum)
            if lacking:
                return QuotaRefusal(account.info.name, lacking)
        return None

    def admit(self, queue: str, minimum: Vector) -> None:
        if queue in self.accounts:
            for account in self._upwards(queue):
                add_to(account.inqueue, minimum)

    def deserves(self, queue: str, wanted: Vector) -> bool:
        """Return whether the queue stays within its deserved share and its limit with `wanted` in addition."""
        account = self.accounts[queue]
        return not (account.lacking(wanted, account.deserved) or account.lacking(wanted, account.real_capability))

    def may_reclaim(self, queue: str, wanted: Vector) -> bool:
        """Return whether the queue may reclaim room for `wanted`.

        With it, the queue must stay within its limit of all requested resources, and within its deserved share of at
        least one. The deserved share of an ancestor within `ancestor_reclaim_level` levels suffices as well.
        """
        if self.fault or not self.tree.queues[queue].open:
            return False
        account = self.accounts[queue]
        if account.lacking(wanted, account.real_capability):
            return False
        used = plus(account.allocated, wanted)
        if any_within(used, account.deserved, wanted):
            return True
        return any(
            any_within(plus(self.accounts[above].allocated, wanted), self.accounts[above].deserved, wanted)
            for above in self.tree.ancestors[queue][: self.ancestor_reclaim_level]
            if above != ROOT_QUEUE
        )

    # -- order

    def compare(self, left: str, right: str) -> int:
        """Compare queues: negative if `left` comes first. With a fault all queues are equal."""
        if self.fault:
            return 0
        one, other = self.tree.queues[left].priority, self.tree.queues[right].priority
        if one != other:
            return other - one
        if not self.hierarchy:
            return self._compare_shares(left, right)
        leaf, other_leaf = self.tree.is_leaf(left), self.tree.is_leaf(right)
        if leaf != other_leaf:
            return -1 if leaf else 1
        if leaf:
            below = self.tree.common_levels(left, right) + 1
            left, right = self.tree.branch_at(left, below), self.tree.branch_at(right, below)
        return self._compare_shares(left, right)

    def _compare_shares(self, left: str, right: str) -> int:
        one, other = self.accounts[left], self.accounts[right]
        if one.share != other.share:
            return -1 if one.share < other.share else 1
        return is_empty(one.deserved) - is_empty(other.deserved)

    def compare_victims(self, left: str, right: str, preemptor: str) -> int:
        """Compare queues of victims: negative if `left` comes first, that is, is nearer to the preemptor's queue."""
        if self.fault or not self.hierarchy:
            return 0
        return self.tree.common_levels(right, preemptor) - self.tree.common_levels(left, preemptor)

    # -- closing

    def close(self) -> None:
        """Set the gauge of overused queues: those that exceed their deserved share of any resource."""
        for name, account in self.accounts.items():
            self.gauges[name].overused = account.share > 1


class CapacityReclaiming:
    """Decides for one reclaimer which tasks of other queues may be evicted, in the order of eviction.

    Each allowed eviction counts in the following decisions. `queue` and `request` are those of the reclaimer.
    """

    def __init__(self, accounts: CapacityAccounts, queue: str, request: Vector) -> None:
        self._accounts = accounts
        self._queue = queue
        self._request = request
        self._wanted = {each for each in names(request) if each != PODS}
        #: Queue -> its usage after the allowed evictions.
        self._allocated: dict[str, Total] = {}

    def may_go(self, queue: str, held: Vector) -> bool:
        """Return whether a task of `queue` with these requests may be evicted."""
        accounts = self._accounts
        account = accounts.accounts.get(queue)
        if account is None or not any(each in self._wanted for each in names(held)):
            return False
        allocated = self._left(queue)
        if not less_equal(account.guarantee, minus(allocated, held)):
            return False
        if _irrelevant(held, account.deserved):
            if self._spares_relatives(queue):
                return False
        elif not any_above(allocated, account.deserved, held):
            return False
        judged = self._judged_ancestors(queue)
        for above in judged:
            deserved = accounts.accounts[above].deserved
            if not _irrelevant(held, deserved) and not any_above(self._left(above), deserved, held):
                return False
        for each in (queue, *judged):
            take_from(self._left(each), held)
        return True

    def _left(self, queue: str) -> Total:
        left = self._allocated.get(queue)
        if left is None:
            left = self._allocated[queue] = dict(self._accounts.accounts[queue].allocated)
        return left

    def _spares_relatives(self, queue: str) -> bool:
        """Return whether the victim's queue must be spared as a relative of the reclaimer's.

        This is the case if both have a common ancestor within the checked levels, and the reclaimer's queue deserves
        none of the requested resources: then neither queue has a better claim to the room.
        """
        level = self._accounts.ancestor_reclaim_level
        ancestors = self._accounts.tree.ancestors
        common = set(ancestors[self._queue][:level]) & set(ancestors[queue][:level])
        deserved = self._accounts.accounts[self._queue].deserved
        return bool(common - {ROOT_QUEUE}) and _irrelevant(self._request, deserved)

    def _judged_ancestors(self, queue: str) -> list[str]:
        """Return the ancestors of the victim's queue that differ from the reclaimer's at the same level."""
        level = self._accounts.ancestor_reclaim_level
        theirs = self._accounts.tree.ancestors[queue][:level]
        ours = self._accounts.tree.ancestors[self._queue]
        return [
            above
            for depth, above in enumerate(theirs)
            if above != ROOT_QUEUE and not (depth < len(ours) and ours[depth] == above)
        ]


def _irrelevant(wanted: Vector, deserved: Vector) -> bool:
    """Return whether none of the requested resources is deserved."""
    return not set(names(wanted)) & set(names(deserved))


def _flat_limit(queue: QueueInfo, shared: Vector, *, unset: bool = True) -> Total:
    """Return the limit of a queue: the cluster without the guarantees of others, within the queue's capability.

    With `unset`, a capability without cpu or memory does not limit these; otherwise their limit is 0.
    """
    own = plus(shared, queue.guarantee)
    if not queue.capability:
        return own
    capability = {**zero(), **queue.capability}
    return at_most(own, unlimited_where_unset(capability) if unset else capability, missing=UNLIMITED)


def _inherited(capability: Total, parent: Vector) -> Total:
    """Return a queue's capability, with its parent's for unset resources; cpu and memory of 0 count as unset."""
    unset = [each for each in parent if each not in capability or (each in COMMON and capability[each] <= 0)]
    return {**capability, **{each: parent[each] for each in unset}}


def _gauges(account: Account, allocated: Vector) -> Gauges:
    """Return the gauges of an account; if `allocated` is the account's own vector, the gauge follows its changes."""
    return Gauges(
        allocated=allocated,
        request=dict(account.request),
        inqueue=dict(account.inqueue),
        deserved=dict(account.deserved),
        real_capability=account.real_capability,
        share=account.share,
    )
