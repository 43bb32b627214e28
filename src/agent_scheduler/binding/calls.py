"""The fast path's requests about single pods and claims; each kind has its own budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kube_client.bind import BindPolicy, Binds
from kube_client.budget import Budget
from kube_client.create import create_once, delete_once
from kube_client.eviction import evict
from kube_client.patch import patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport

from .prebind import PREBIND_CONCURRENCY
from .preemption import EVICTION_CONCURRENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Requests per second (0: unlimited), burst size, and concurrent requests."""

    qps: float
    burst: int | None
    concurrency: int


class Calls:
    """Owner of the budgets. No call raises for errors of the network or the server."""

    def __init__(
        self,
        transport: Transport,
        *,
        rate: RateLimit,
        policy: BindPolicy,
        timing: Timing,
        annotations: Mapping[str, Mapping[str, str]],
        may_bind_to: Callable[[str], bool] | None,
    ) -> None:
        """Create the calls; `rate` limits binds only, and the binder limits their concurrency.

        `annotations` maps a pod's UID to the annotations that its bind sets. `may_bind_to` returns whether a bind to a
        node may be sent now; None allows all.
        """
        budget = Budget(qps=rate.qps or None, burst=rate.burst, timing=timing)
        self.binds = Binds(
            transport, budget=budget, policy=policy, timing=timing, allowed=may_bind_to, annotations=annotations
        )
        claims = Budget(concurrency=PREBIND_CONCURRENCY, timing=timing)
        #: Requests for claims and volumes; see the functions of these names in `kube`.
        self.patch = partial(patch_once, transport, budget=claims, timing=timing)
        self.create = partial(create_once, transport, budget=claims, timing=timing)
        self.delete = partial(delete_once, transport, budget=claims, timing=timing)
        evictions = Budget(concurrency=EVICTION_CONCURRENCY, timing=timing)
        self.evict = partial(evict, transport, budget=evictions, timing=timing)

    def set_rate(self, rate: RateLimit) -> None:
        """Set the rate of binds from now on."""
        self.binds.budget.set_rate(rate.qps, rate.burst)
