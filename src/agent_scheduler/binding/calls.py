"""What the fast path asks of the API server about single pods and claims, each kind within a budget of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agent_scheduler.kube.bind import BindPolicy, Binds
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.create import create_once, delete_once
from agent_scheduler.kube.eviction import evict
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport

from .prebind import PREBIND_CONCURRENCY
from .preemption import EVICTION_CONCURRENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Requests a second, how many may be saved up, and how many at a time; qps 0 is without limit."""

    qps: float
    burst: int | None
    concurrency: int


class Calls:
    """Owner of the budgets. No call raises for what network or server do."""

    def __init__(
        self,
        transport: Transport,
        *,
        rate: RateLimit,
        policy: BindPolicy,
        timing: Timing,
        annotations: Mapping[str, Mapping[str, str]],
        may_bind_to: Callable[[str], bool] | None = None,
    ) -> None:
        """`rate`: of binds, whose number at a time is the binder's. `annotations`: by UID, those that a pod is
        bound with. `may_bind_to`: whether a bind to a node may be sent now; None: to any, at any time."""
        budget = Budget(qps=rate.qps or None, burst=rate.burst, timing=timing)
        self.binds = Binds(
            transport,
            budget=budget,
            policy=policy,
            timing=timing,
            allowed=may_bind_to,
            annotations=annotations,
        )
        claims = Budget(concurrency=PREBIND_CONCURRENCY, timing=timing)
        #: About claims, and about volumes: as their namesakes in `kube`.
        self.patch = partial(patch_once, transport, budget=claims, timing=timing)
        self.create = partial(create_once, transport, budget=claims, timing=timing)
        self.delete = partial(delete_once, transport, budget=claims, timing=timing)
        evictions = Budget(concurrency=EVICTION_CONCURRENCY, timing=timing)
        self.evict = partial(evict, transport, budget=evictions, timing=timing)

    def set_rate(self, rate: RateLimit) -> None:
        """Of binds, from now on."""
        self.binds.budget.set_rate(rate.qps, rate.burst)
