"""The receivers of the decisions of workers and of the pod group cycle."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.preemption import Preemption


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionHandlers:
    """A decision leads to a bind, to another attempt, or to evictions."""

    #: Binds a pod to one of its candidate nodes.
    binder: Binder
    #: Requeues and reports a pod that has none.
    failures: FailureHandler
    #: Evicts pods of lower priority for it.
    preemption: Preemption
