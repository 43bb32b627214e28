"""What is tried for a job, to be kept or taken back as a whole: Volcano's `framework.Statement`.

Each step takes effect in the session at once. Nothing is sent before `commit`: binds then go to the session's committer
in one call, evictions to its evictor one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

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
    row: int
    reason: str = ""
    #: What the task's status was.
    before: TaskStatus = TaskStatus.PENDING


class Committer(Protocol):
    def commit(self, job: Job, tasks: Sequence[Task], minimum: int) -> Collection[str]:
        """Have these tasks bound to their nodes, if at least `minimum` still can be. UIDs of those that are not."""


class Evictor(Protocol):
    def evict(self, task: Task, reason: str) -> bool:
        """Have a task's pod evicted; False where it is not."""


class Statement:
    """Owner: the action that made it. Once discarded or committed it is empty and may be used again."""

    __slots__ = ("operations", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.operations: list[Operation] = []

    def allocate(self, task: Task, row: int) -> None:
        """Place a pending task where there is room for it now."""
        self.session.allocate(task, row)
        self.operations.append(Operation(Kind.ALLOCATE, task, row))

    def pipeline(self, task: Task, row: int, *, evicting: bool = False) -> None:
        """Give a pending task a claim on room that is about to be free; `evicting` if it is freed for its sake."""
        task.evicting = evicting
        self.session.allocate(task, row, TaskStatus.PIPELINED)
        self.operations.append(Operation(Kind.PIPELINE, task, row))

    def evict(self, task: Task, reason: str) -> None:
        """The task's room is about to be free."""
        session, before = self.session, task.status
        task.job.set_status(task, TaskStatus.RELEASING)
        session.nodes.release(task)
        for told in session.deallocated:
            told(task)
        self.operations.append(Operation(Kind.EVICT, task, task.row, reason, before))

    def discard(self) -> None:
        """Take all back, the last step first. Each task remembers what was tried for it."""
        while self.operations:
            operation = self.operations.pop()
            task = operation.task
            task.last = (task.status, task.node_name, task.evicting)
            if operation.kind is Kind.EVICT:
                self._unevict(operation)
            else:
                self.session.unplace(task)

    def _unevict(self, operation: Operation) -> None:
        session, task = self.session, operation.task
        # Volcano takes any task that was evicted for a running one.
        task.job.set_status(task, TaskStatus.RUNNING)
        session.nodes.take_back_release(task)
        for told in session.allocated:
            told(task)

    def commit(self) -> None:
        """Send it. What the committer refuses is taken back; the rest stands."""
        session, operations = self.session, self.operations
        for told in session.before_commit:
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

    def save(self) -> list[Operation]:
        """The steps so far, to be made again by `repeat` when they have been discarded."""
        return list(self.operations)

    def repeat(self, operations: Sequence[Operation]) -> None:
        for kind, task, row, reason, _ in operations:
            if kind is Kind.ALLOCATE:
                self.allocate(task, row)
            elif kind is Kind.PIPELINE:
                self.pipeline(task, row, evicting=task.evicting)
            else:
                self.evict(task, reason)

    def merge(self, other: Statement) -> None:
        """Take over the steps of another statement, which is empty afterwards."""
        self.operations += other.operations
        other.operations = []
