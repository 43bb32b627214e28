"""The accounts of Volcano's plugin proportion, which divides the cluster among the queues by their weights.

The deserved shares are computed by water filling: the rest is distributed by weight, no queue gets more than it
requests or may hold, and what these queues leave is distributed again (`pkg/scheduler/plugins/proportion`). Shares by
weight are fractions and therefore floats. They are added in the order of the queues' names, so the result is
reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .accounts import Account, Gauges, QuotaRefusal, total_guarantee, unlimited_where_unset, zero
from .demand import Demand
from .queues import QueueTree
from .vector import (
    EMPTY,
    UNLIMITED,
    Total,
    Vector,
    add_to,
    at_least,
    at_most,
    exceeding,
    insufficient,
    is_empty,
    less_equal,
    plus,
    take_from,
)


class ProportionAccounts:
    """The deserved shares and usage of the queues with jobs in a session. Owner: the session's plugin."""

    def __init__(
        self, tree: QueueTree, jobs: Sequence[Demand], total: Vector, *, others: Sequence[Demand] = ()
    ) -> None:
        """Open the accounts; `others` is the usage of pods outside of jobs, which counts in queues with jobs."""
        self.tree = tree
        self.accounts: dict[str, Account] = {}
        shared = exceeding(total, total_guarantee(tree.queues.values()))
        for job in jobs:
            account = self.accounts.get(job.queue)
            if account is None:
                account = self.accounts[job.queue] = Account(tree.queues[job.queue])
                account.deserved = zero()
                limit = plus(shared, account.guarantee)
                if account.capability:
                    limit = at_most(limit, unlimited_where_unset(account.capability), missing=UNLIMITED)
                account.real_capability = limit
            account.count(job, job.admitted())
        for other in others:
            if other.queue in self.accounts:
                self.accounts[other.queue].count(other, EMPTY)
        _divide(sorted(self.accounts.values(), key=lambda each: each.info.name), total)
        self.gauges: dict[str, Gauges] = {}
        for name in tree.queues:
            held = self.accounts.get(name)
            if held is None:
                self.gauges[name] = Gauges(allocated=zero(), request=EMPTY, inqueue=EMPTY)
                continue
            held.deserve(dict(held.deserved))
            held.share = held.allocated_part()
            self.gauges[name] = Gauges(
                allocated=held.allocated,
                request=dict(held.request),
                inqueue=dict(held.inqueue),
                deserved=held.deserved,
                share=held.share,
            )

    def allocate(self, queue: str, wanted: Vector) -> None:
        """Count a task of the queue that got room, or a claim on room that is about to be free."""
        self._change(queue, add_to, wanted)

    def deallocate(self, queue: str, wanted: Vector) -> None:
        """Stop counting a task of the queue."""
        self._change(queue, take_from, wanted)

    def _change(self, queue: str, change: Callable[[Total, Vector], None], wanted: Vector) -> None:
        account = self.accounts[queue]
        change(account.allocated, wanted)
        self.gauges[queue].share = account.share = account.allocated_part()

    def overused(self, queue: str) -> bool:
        """Return whether the queue holds its deserved share of each resource, and set its gauge."""
        account = self.accounts[queue]
        overused = less_equal(account.deserved, account.allocated)
        self.gauges[queue].overused = overused
        return overused

    def cannot_allocate(self, queue: str, wanted: Vector, *, lends: bool = False) -> QuotaRefusal | None:
        """Return why the queue cannot hold `wanted` in addition; None if it is open and stays within its share.

        If room is lent (`lends`), the limit applies instead of the share.
        """
        account = self.accounts[queue]
        lacking = account.lacking(wanted, account.real_capability if lends else account.deserved)
        return QuotaRefusal(queue, lacking) if lacking or not account.info.open else None

    def cannot_admit(self, queue: str, minimum: Vector) -> QuotaRefusal | None:
        """Return why the queue cannot admit a job's minimum beside what it holds and has admitted; None if it can."""
        account = self.accounts[queue]
        lacking = insufficient(account.after_admitting(minimum), account.real_capability, minimum)
        return QuotaRefusal(queue, lacking) if lacking else None

    def admit(self, queue: str, minimum: Vector) -> None:
        add_to(self.accounts[queue].inqueue, minimum)

    def compare(self, left: str, right: str) -> int:
        """Compare queues: negative if `left` comes first."""
        one, other = self.accounts[left], self.accounts[right]
        if one.info.priority != other.info.priority:
            return other.info.priority - one.info.priority
        return (one.share > other.share) - (one.share < other.share)


class ProportionReclaiming:
    """Decides which tasks may be evicted, in the order of eviction: those of queues beyond a deserved share.

    Each allowed eviction counts in the following decisions.
    """

    def __init__(self, accounts: ProportionAccounts) -> None:
        self._accounts = accounts.accounts
        self._allocated: dict[str, Total] = {}

    def may_go(self, queue: str, held: Vector) -> bool:
        """Return whether a task of `queue` with these requests may be evicted."""
        account = self._accounts.get(queue)
        if account is None:
            return False
        allocated = self._allocated.setdefault(queue, dict(account.allocated))
        if less_equal(allocated, account.deserved):
            return False
        take_from(allocated, held)
        return True


def _divide(accounts: Sequence[Account], total: Vector) -> None:
    """Set the deserved shares: by weight, at most what a queue requests or may hold, at least its guarantee."""
    remaining = dict(total)
    unmet = list(accounts)
    while unmet:
        weights = sum(account.info.weight for account in unmet)
        if weights == 0:
            return
        before, given, returned = remaining, zero(), zero()
        still = []
        for account in unmet:
            old, part = account.deserved, account.info.weight / weights
            more = plus(old, {resource: amount * part for resource, amount in remaining.items()})
            allowed = at_most(more, account.real_capability, missing=UNLIMITED)
            wanted = at_most(allowed, account.request, missing=0)
            account.deserved = at_least(wanted, account.guarantee)
            if not less_equal(account.request, account.deserved) and account.deserved != old:
                still.append(account)
            add_to(given, exceeding(account.deserved, old))
            add_to(returned, exceeding(old, account.deserved))
        unmet = still
        remaining = exceeding(plus(before, returned), given)
        if is_empty(remaining) or remaining == before:
            return
