"""pdb: no PodDisruptionBudget is violated by an eviction (`pkg/scheduler/plugins/pdb`).

Of pods without labels, which no budget covers, Volcano lets none go; here they are as free as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..conf import PluginOption
from ..hooks import Hooks
from ..model import Task

if TYPE_CHECKING:
    from ..session import Session


def pdb(session: Session, option: PluginOption) -> Hooks:
    pdbs = session.view.pdbs

    def allowed(preemptor: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        if pdbs is None:
            return tasks
        violating = pdbs.violating([task.pod for task in tasks])
        return [task for task in tasks if task.uid not in violating]

    return Hooks(preemptable=allowed, reclaimable=allowed)
