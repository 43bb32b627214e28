"""What is tried for a job, to be kept or taken back as a whole: Volcano's `framework.Statement`.

Each step takes effect in the session at once. Nothing is sent before `commit`: binds then go to the session's committer
in one call, evictions to its evictor one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..decide.classview import ClassView
from ..decide.trial import Mark
from .model import Job, Task, TaskStatus

if TYPE_CHECKING:
    from .session import Session


class Kind(Enum):
    ALLOCATE = "allocate"
    PIPELINE = "pipeline"
    EVICT = "evict"


class Operation(NamedTuple):
    kind: Kind
    task: Task
    #: Where the trial stood before.
    mark: Mark
    reason: str = ""
    #: What an evicted task was before.
    status: TaskStatus = TaskStatus.RUNNING


class Committer(Protocol):
    def commit(self, job: Job, tasks: Sequence[Task], minimum: int) -> Collection[str]:
        """Have these tasks bound to their nodes, if at least `minimum` still can be. UIDs of those that are not.

        What plugins reserved for them is the committer's from now on (`Trial.hand_over`).
        """


class Evictor(Protocol):
    def evict(self, task: Task, reason: str) -> bool:
        """Have a task's pod evicted; False where it is not."""


class Statement:
    """Owner: the action that made it. Once discarded or committed it is empty and may be used again."""

    __slots__ = ("operations", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.operations: list[Operation] = []

    def allocate(self, task: Task, row: int, view: ClassView) -> bool:
        """Place a pending task where there is room for it now. `view` is what it was decided in. False, and nothing is
        changed, where a plugin has not what the pod needs there."""
        return self._place(Kind.ALLOCATE, task, row, view)

    def pipeline(self, task: Task, row: int, *, evicting: bool = False) -> None:
        """Give a pending task a claim on room that is about to be free; `evicting` if it is freed for its sake."""
        task.evicting = evicting
        self._place(Kind.PIPELINE, task, row, None)

    def _place(self, kind: Kind, task: Task, row: int, view: ClassView | None) -> bool:
        mark = self.session.allocate(task, row, view)
        if mark is None:
            return False
        self.operations.append(Operation(kind, task, mark))
        return True

    def evict(self, task: Task, reason: str) -> None:
        """The task's room is about to be free."""
        session, status = self.session, task.status
        task.job.set_status(task, TaskStatus.RELEASING)
        mark = session.nodes.release(task)
        for told in session.deallocated:
            told(task)
        self.operations.append(Operation(Kind.EVICT, task, mark, reason, status))

    def discard(self) -> None:
        """Take all back, the last step first. Each task remembers what was tried for it."""
        while self.operations:
            operation = self.operations.pop()
            task = operation.task
            task.last = (task.status, task.node_name, task.evicting)
            if operation.kind is Kind.EVICT:
                self._unevict(operation)
            else:
                self.session.unplace(task, operation.mark)

    def _unevict(self, operation: Operation) -> None:
        session, task = self.session, operation.task
        # Volcano takes it for a running one, and writes that so many of its group run.
        task.job.set_status(task, operation.status)
        session.nodes.take_back_release(task, operation.mark)
        for told in session.allocated:
            told(task)

    def commit(self) -> None:
        """Send it. What the committer refuses is taken back; the rest stands."""
        session, operations = self.session, self.operations
        for told in session.cleanup_reservations:
            told(self)
        self.operations = []
        binding = []
        for operation in operations:
            task = operation.task
            task.last = None
            if operation.kind is Kind.ALLOCATE:
                binding.append(task)
            elif operation.kind is Kind.EVICT and not session.evict(task, operation.reason):
                self._unevict(operation)
        if binding:
            session.bind(binding)

    def merge(self, other: Statement) -> None:
        """Take over the steps of another statement, which is empty afterwards."""
        self.operations += other.operations
        other.operations = []
