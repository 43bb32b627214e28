"""conformance: what Kubernetes itself depends on is not evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import Task

if TYPE_CHECKING:
    from ..session import Session

#: The value of system-cluster-critical; that of system-node-critical is above it. No other class may reach it.
_CRITICAL: Final = 2_000_000_000


def _evictable(preemptor: Task, tasks: Sequence[Task]) -> Sequence[Task]:
    return [task for task in tasks if task.pod.namespace != "kube-system" and task.pod.priority < _CRITICAL]


def conformance(session: Session, option: PluginOption) -> Hooks:
    return Hooks(preemptable=_evictable, reclaimable=_evictable)
