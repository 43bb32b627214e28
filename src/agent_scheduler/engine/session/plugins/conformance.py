"""conformance: protects pods that Kubernetes depends on from eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import TaskInfo
from ..session import Session

#: The value of system-cluster-critical; system-node-critical is higher, and other classes must be lower.
_CRITICAL: Final = 2_000_000_000


def _evictable(preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
    return [task for task in tasks if task.pod.namespace != "kube-system" and task.pod.priority < _CRITICAL]


def conformance(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin conformance."""
    return Hooks(preemptable=_evictable, reclaimable=_evictable)
