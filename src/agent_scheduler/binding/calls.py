"""What the fast path asks of the API server about single pods and claims, each kind within a budget of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agent_scheduler.engine.state.podcounts import Countable
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube import bind as binds
from agent_scheduler.kube.bind import BindPolicy, BindResult, Doubt
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.create import create_once, delete_once
from agent_scheduler.kube.driver import Begun
from agent_scheduler.kube.errors import Failure
from agent_scheduler.kube.eviction import Evicted, evict
from agent_scheduler.kube.patch import begin as begin_patch
from agent_scheduler.kube.patch import patch_once
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.status import PodKey
from agent_scheduler.kube.transport import Transport, start_of

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
        policy: Callable[[], BindPolicy],
        timing: Timing,
        may_bind_to: Callable[[str], bool] = lambda _node: True,
    ) -> None:
        """`rate`: of binds, whose number at a time is the binder's. `may_bind_to`: whether a bind to a node may be sent
        now; asked before each."""
        self._transport = transport
        self._start = start_of(transport)
        self._policy = policy
        self._timing = timing
        self._may_bind_to = may_bind_to
        self._binds = Budget(qps=rate.qps or None, burst=rate.burst, timing=timing)
        claims = Budget(concurrency=PREBIND_CONCURRENCY, timing=timing)
        #: About claims, and about volumes: as their namesakes in `kube`.
        self.begin_patch = partial(begin_patch, self._start, budget=claims, timing=timing)
        self.patch = partial(patch_once, transport, budget=claims, timing=timing)
        self.create = partial(create_once, transport, budget=claims, timing=timing)
        self.delete = partial(delete_once, transport, budget=claims, timing=timing)
        self._evictions = Budget(concurrency=EVICTION_CONCURRENCY, timing=timing)

    def set_rate(self, rate: RateLimit) -> None:
        """Of binds, from now on."""
        self._binds.set_rate(rate.qps, rate.burst)

    def begin_bind(self, pod: PodInfo, node_name: str, ended: Callable[[BindResult | Begun], None]) -> bool:
        return binds.begin(
            self._start,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=node_name,
            ended=ended,
            allowed=partial(self._may_bind_to, node_name),
            budget=self._binds,
            policy=self._policy(),
            timing=self._timing,
        )

    async def bind(
        self, pod: PodInfo, node_name: str, *, begun: Begun | None = None, doubt: Doubt | None = None
    ) -> BindResult:
        return await binds.bind(
            self._transport,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=node_name,
            begun=begun,
            doubt=doubt,
            allowed=partial(self._may_bind_to, node_name),
            budget=self._binds,
            policy=self._policy(),
            timing=self._timing,
        )

    async def is_pending(self, pod: PodInfo) -> bool | None:
        return await binds.is_pending(
            self._transport,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            policy=self._policy(),
        )

    async def evict(
        self, victim: Countable, *, message: str, wanted: Callable[[], bool]
    ) -> tuple[Evicted, Failure | None]:
        return await evict(
            self._transport,
            PodKey(victim.namespace, victim.name, victim.uid),
            message=message,
            wanted=wanted,
            budget=self._evictions,
            timing=self._timing,
        )
