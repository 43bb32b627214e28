"""A transaction of placements and evictions for a job: Volcano's `framework.Statement`.

Each step takes effect in the session immediately. `commit` passes binds to the session's committer in one call, and
evictions to its evictor one by one; `discard` undoes all steps.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..decide.classview import ClassView
from ..decide.trial import Mark
from .model import TaskInfo, TaskStatus
from .session import Session


class OperationKind(Enum):
    ALLOCATE = "allocate"
    PIPELINE = "pipeline"
    EVICT = "evict"


class Operation(NamedTuple):
    kind: OperationKind
    task: TaskInfo
    #: The position of the trial before the operation.
    mark: Mark
    reason: str = ""
    #: The status of an evicted task before the eviction.
    status: TaskStatus = TaskStatus.RUNNING


class Statement:
    """The steps of one transaction. Owner: the action that created it. After discard or commit it is empty."""

    __slots__ = ("operations", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.operations: list[Operation] = []

    def allocate(self, task: TaskInfo, row: int, view: ClassView) -> bool:
        """Place a pending task on a row with room for it, as decided in `view`.

        Returns False and changes nothing if a plugin cannot reserve what the pod needs there.
        """
        return self._place(OperationKind.ALLOCATE, task, row, view)

    def pipeline(self, task: TaskInfo, row: int, *, evicting: bool = False) -> None:
        """Give a pending task a claim on room that is about to be free; `evicting` if pods are evicted for the task."""
        task.evicting = evicting
        self._place(OperationKind.PIPELINE, task, row, None)

    def _place(self, kind: OperationKind, task: TaskInfo, row: int, view: ClassView | None) -> bool:
        mark = self.session.allocate(task, row, view)
        if mark is None:
            return False
        self.operations.append(Operation(kind, task, mark))
        return True

    def evict(self, task: TaskInfo, reason: str) -> None:
        """Evict a task, so that its room is about to be free."""
        session, status = self.session, task.status
        task.job.set_status(task, TaskStatus.RELEASING)
        mark = session.nodes.release(task)
        for hook in session.deallocated:
            hook(task)
        self.operations.append(Operation(OperationKind.EVICT, task, mark, reason, status))

    def discard(self) -> None:
        """Undo all steps, the last one first. Each task records what was tried in `last`."""
        while self.operations:
            operation = self.operations.pop()
            task = operation.task
            task.last = (task.status, task.node_name, task.evicting)
            if operation.kind is OperationKind.EVICT:
                self._unevict(operation)
            else:
                self.session.unplace(task, operation.mark)

    def _unevict(self, operation: Operation) -> None:
        session, task = self.session, operation.task
        # Volcano sets the task to Running instead, and so writes a wrong number of running members.
        task.job.set_status(task, operation.status)
        session.nodes.take_back_release(task, operation.mark)
        for hook in session.allocated:
            hook(task)

    def commit(self) -> None:
        """Execute the steps. Those that the committer or evictor refuses are undone; the others remain."""
        session, operations = self.session, self.operations
        if session.cleanup_reservations:
            allocated = [each.task for each in operations if each.kind is OperationKind.ALLOCATE]
            for hook in session.cleanup_reservations:
                hook(allocated)
        self.operations = []
        binding = []
        for operation in operations:
            task = operation.task
            task.last = None
            if operation.kind is OperationKind.ALLOCATE:
                binding.append(task)
            elif operation.kind is OperationKind.EVICT and not session.evict(task, operation.reason):
                self._unevict(operation)
        if binding:
            session.bind(binding)

    def merge(self, other: Statement) -> None:
        """Move the steps of another statement to this one."""
        self.operations += other.operations
        other.operations = []
