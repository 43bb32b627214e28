"""pdb: allows only evictions that violate no PodDisruptionBudget (`pkg/scheduler/plugins/pdb`).

Volcano never evicts pods without labels, which no budget covers; here they may be evicted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import TaskInfo, TaskStatus
from ..session import Session


def pdb(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin pdb."""
    pdbs = session.view.pdbs
    #: The tasks that this session has evicted so far; they count in each budget before the candidates.
    going: dict[str, TaskInfo] = {}

    def allowed(preemptor: TaskInfo, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo]:
        if pdbs is None:
            return tasks
        those = {each.uid for each in tasks}
        before = [task.pod for uid, task in going.items() if uid not in those]
        violating = pdbs.violating([*before, *(task.pod for task in tasks)])
        return [task for task in tasks if task.uid not in violating]

    def evicted(task: TaskInfo) -> None:
        if task.status is TaskStatus.RELEASING:
            going[task.uid] = task

    def stays(task: TaskInfo) -> None:
        going.pop(task.uid, None)

    return Hooks(preemptable=allowed, reclaimable=allowed, deallocated=evicted, allocated=stays)
