"""One session, from its opening to its closing (`pkg/scheduler/framework/session.go`).

`run` is a generator that pauses between small steps, so that whoever drives it may do other things in between; what it
decides does not depend on where. The session sees the cluster as it was when it was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import Struct

from agent_scheduler.objects.batch import INQUEUE, ResourceQuota

from ..decide.classview import ClassView
from ..decide.trial import Mark
from ..gangs.group import Group
from ..preemption.pdbs import PDBs
from ..quotas.book import QuotaBook
from ..quotas.demand import JobDemand, QueueDemand
from ..quotas.queues import QueueInfo
from ..quotas.vector import Vector
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..state.promises import Promises
from .conf import CLUSTER, QUEUE_ADMISSION_GATES, PluginOption, SessionConf
from .demand import demand_of
from .hooks import Hooks
from .model import Job, Task, TaskStatus
from .nodes import SessionNodes
from .quota import QUOTA, QueueQuota, hooks_of
from .registry import ACTIONS, PLUGINS
from .requests import Requests
from .settled import STRIDE, Settled, has_claims
from .statement import Committer, Evictor
from .tiers import Tiers


class View(Struct, frozen=True, kw_only=True):
    """The cluster but for its nodes."""

    groups: Iterable[Group]
    #: The pods of each group, those that have ended, too.
    pods: Mapping[GroupKey, Collection[PodInfo]]
    queues: Iterable[QueueInfo]
    #: Queue -> what its status says that is held; none where it says nothing.
    held: Mapping[str, Vector] = {}
    #: What pods hold in queues that are in no job: those of other schedulers.
    others: Sequence[JobDemand] = ()
    #: Namespace -> its quotas; none where no plugin reads them.
    quotas: Mapping[str, Sequence[ResourceQuota]] = {}
    #: PriorityClass -> its value.
    priorities: Mapping[str, int] = {}
    #: Of a group that names no class, or one that there is not.
    default_priority: int = 0
    #: None: nobody asks.
    pdbs: PDBs | None = None
    #: Groups that pods name and that are not there, or cannot be read: why, and the pods that have no node.
    lost: Mapping[GroupKey, tuple[str, Sequence[PodInfo]]] = {}
    #: Of some of the groups, which are not looked at anew.
    settled: Mapping[GroupKey, Settled] = {}
    #: Why no node may be used, where that has nothing to do with room; else empty.
    unready: str = ""
    #: For people, why pods for which nodes that may be used have no room, all of them together, need no more nodes;
    #: empty if they do. None: all nodes may be used.
    shard_full: Callable[[Sequence[PodInfo]], str] | None = None


class Event(NamedTuple):
    """Of a group. `type` is Normal or Warning."""

    group: GroupKey
    type: str
    reason: str
    message: str


class Stage(NamedTuple):
    """What a session is at: opening the plugin, doing the action of that name, or closing, which has no name."""

    kind: str
    name: str


#: Kinds of stages.
OPENING: Final = "plugin"
ACTING: Final = "action"
CLOSING: Final = "close"


class Session:
    """Owner: the batch scheduler, until `retire`."""

    def __init__(
        self,
        conf: SessionConf,
        view: View,
        nodes: SessionNodes,
        *,
        committer: Committer,
        evictor: Evictor,
        uid: str,
        now: str = "",
        book: QuotaBook | None = None,
        promises: Promises | None = None,
    ) -> None:
        """`uid` names the session in conditions; `now` is the time of what it writes, RFC 3339. `book`: of all
        schedulers; None: the plugins alone say what queues hold. `promises`: by which groups are let in; None: the
        plugins alone say which are."""
        self.conf = conf
        self.nodes = nodes
        self.view = view
        self.uid = uid
        self.now = now
        self._book = book
        self.promises = promises
        self._committer = committer
        self._evictor = evictor
        self.queues: dict[str, QueueInfo] = {queue.name: queue for queue in view.queues}
        self.total: Vector = nodes.total()
        #: By the group's `namespace/name`; those whose queue there is.
        self.jobs: dict[str, Job] = {}
        nodes.jobs = self.jobs
        #: Those that are looked at; the others are settled.
        self.fresh: list[Job] = []
        #: Groups whose queue there is not.
        self.without_queue: list[Group] = []
        #: Queues of settled jobs that wait.
        self.settled_queues: set[str] = set()
        #: Jobs of which tasks were passed over for something else than that no node would do.
        self.held_back: set[str] = set()
        #: Why queues are given no room, whatever they hold; empty if they are.
        self.queue_fault = ""
        #: Whether any job is left with a claim that ends with the session.
        self.claims = False
        #: What each of them held and asked for when the session was opened.
        self.demands: list[JobDemand] = []
        #: The same of the jobs of each queue that has any.
        self.queue_demands: dict[str, QueueDemand] = {}
        #: Each once.
        self.events: list[Event] = []
        self._recorded: set[Event] = set()
        #: Job -> its dominant share of the cluster, when the actions are done; empty without drf.
        self.shares: dict[str, float] = {}
        #: Pods that are to lose the gate of their queue's capacity, in the order in which they were let in.
        self.gates_removed: dict[str, Task] = {}
        self.admits_gated = QUEUE_ADMISSION_GATES in conf.features
        #: Job -> tasks that were sent to be bound, and tasks that were evicted.
        self.bound: dict[str, list[Task]] = {}
        self.evicted: list[tuple[Task, str]] = []
        #: How often members that were sent were refused, and how often pods were chosen to make room for another.
        self.refused = 0
        self.preemptions = 0
        self.stage = Stage(OPENING, "")
        self.tiers = Tiers(())
        self._take_hooks()

    def run(self) -> Iterator[None]:
        """Open, do all actions, and have the plugins close, one step at a time."""
        yield from self._open()
        for name in self.conf.actions:
            self.stage = Stage(ACTING, name)
            yield from ACTIONS[name](self)
        self.stage = Stage(CLOSING, "")
        closings = self.tiers.every("job_closed")
        for job in self.fresh:
            for closed in closings:
                closed(job)
            self.claims = self.claims or has_claims(job)
            yield
        for closed in self.tiers.every("closed"):
            closed()

    def _open(self) -> Iterator[None]:
        requests = Requests()
        for group in self.view.groups:
            if group.queue not in self.queues:
                self.without_queue.append(group)
                continue
            kept = self.view.settled.get(group.key)
            if kept is None:
                job = self._job(group, requests)
                self.fresh.append(job)
                demand = demand_of(job)
            else:
                job, demand = kept.job, kept.demand
                if job.count(TaskStatus.PENDING):
                    self.settled_queues.add(group.queue)
            self._count(group.name, job, demand)
            if kept is None or not len(self.jobs) % STRIDE:
                yield
        self.nodes.asked = {name for each in self.demands for name in (*each.pending, *each.allocated)}
        self.total = self.nodes.total()
        opened: list[list[tuple[PluginOption, Hooks]]] = []
        for tier in self.conf.tiers:
            opened.append([])
            for option in tier:
                self.stage = Stage(OPENING, option.name)
                opened[-1].append((option, PLUGINS[option.name](self, option)))
                yield
        if self._book is not None:
            opened.append([(PluginOption(QUOTA), hooks_of(QueueQuota(self._book, self._leaving())))])
        self.tiers = Tiers(opened)
        self._take_hooks()

    def _count(self, name: str, job: Job, demand: JobDemand) -> None:
        self.jobs[name] = job
        self.demands.append(demand)
        of_queue = self.queue_demands.get(demand.queue)
        if of_queue is None:
            of_queue = self.queue_demands[demand.queue] = QueueDemand(demand.queue)
        of_queue.add(demand)

    @property
    def asks_cluster(self) -> bool:
        """Whether groups are let in only as far as the cluster has room for them, too."""
        return self.promises is None or self.conf.enqueue_by == CLUSTER

    @property
    def moment(self) -> float:
        """When it was opened, in whole seconds of the epoch; its beginning where no time was given."""
        return datetime.fromisoformat(self.now).timestamp() if self.now else 0.0

    @property
    def asks_book(self) -> bool:
        """Whether queues are asked for what they declare, beside Volcano's plugins, and waiting is told accordingly."""
        return self._book is not None

    def is_kept_for(self, task: Task) -> bool:
        """Return whether room in its queue is kept for the task, which has no node."""
        return self._book is not None and self._book.is_kept(task.uid)

    @property
    def let_in_late(self) -> bool:
        """Whether jobs with pods were let into their queues when other actions, which have not looked at them, were
        done already."""
        return "enqueue" in self.conf.actions[1:] and any(
            job.tasks and job.group.is_object and job.phase == INQUEUE != job.group.status.phase
            for job in self.fresh
        )

    def _take_hooks(self) -> None:
        """Those that are told of each placement."""
        self.allocated = self.tiers.every("allocated")
        self.deallocated = self.tiers.every("deallocated")
        self.cleanup_reservations = self.tiers.every("cleanup_reservations")
        self._committed = self.tiers.every("committed")

    def _leaving(self) -> Iterator[Task]:
        for job in self.fresh:
            yield from (task for task in job.by_status[TaskStatus.RELEASING].values() if task.node_name)

    def _job(self, group: Group, requests: Requests) -> Job:
        view, nodes = self.view, self.nodes
        pods = view.pods.get(group.key, ())
        job = Job(
            group,
            priority=view.priorities.get(group.priority_class, view.default_priority),
            roles={pod.batch.role for pod in pods if pod.batch is not None} if group.waiting_roles else (),
        )
        if self.promises is not None and not group.is_object and job.is_pending:
            # Nothing of it lasts that could be let in.
            job.phase = INQUEUE
        for pod in pods:
            request, best_effort = requests.of(pod)
            task = Task(pod, job, request, best_effort=best_effort)
            if task.node_name:
                task.row = nodes.row(task.node_name)
                if task.status is TaskStatus.RELEASING:
                    nodes.leave(task)
            job.add(task)
        return job

    # ---- what statements do, and actions beside them

    def allocate(self, task: Task, row: int, view: ClassView | None = None) -> Mark | None:
        """Place a pending task on a row: as Allocated with the view that it was decided in, as Pipelined without.

        None where a plugin has not what the pod needs there; then the task is as it was.
        """
        task.job.set_status(task, TaskStatus.PIPELINED if view is None else TaskStatus.ALLOCATED)
        task.row, task.node_name = row, self.nodes.name(row)
        task.filters = () if view is None else view.filters
        mark = self.nodes.place(task, view)
        if mark is None:
            task.job.set_status(task, TaskStatus.PENDING)
            task.row, task.node_name = -1, ""
            return None
        for told in self.allocated:
            told(task)
        return mark

    def unplace(self, task: Task, mark: Mark | None = None) -> None:
        """Take back what was placed. `mark`: what `allocate` gave."""
        self.nodes.unplace(task, mark)
        task.job.set_status(task, TaskStatus.PENDING)
        for told in self.deallocated:
            told(task)
        task.row, task.node_name = -1, ""

    def bind(self, tasks: Sequence[Task]) -> None:
        """Have allocated tasks of one job bound; those that cannot be are pending again."""
        job = tasks[0].job
        missing = job.minimum - (job.ready + job.best_effort - len(tasks))
        refused = self._committer.commit(job, tasks, max(missing, 0))
        self.refused += len(refused)
        for task in tasks:
            if task.uid in refused:
                self.unplace(task)
            else:
                job.set_status(task, TaskStatus.BINDING)
                for told in self._committed:
                    told(task)
                self.bound.setdefault(job.uid, []).append(task)

    def evict(self, task: Task, reason: str) -> bool:
        if not self._evictor.evict(task, reason):
            return False
        self.evicted.append((task, reason))
        self.record(task.job, "Normal", "Evict", reason)
        return True

    def admit_gated(self, task: Task) -> None:
        """Have the gate taken off a pod, in time for a later session."""
        if task.only_queue_gate:
            self.gates_removed[task.uid] = task

    def retire(self, later: Session) -> Generator[None, None, None]:
        """Nobody asks about it any more. It goes, and its jobs but for those that `later` has, too: by their counts of
        references, which cycles of job and task, and of session and plugins, would keep up until a full collection."""
        self.tiers = Tiers(())
        self._take_hooks()
        for number, (name, job) in enumerate(self.jobs.items()):
            if later.jobs.get(name) is not job:
                for each in (job, *job.sub_jobs.values()):
                    for tasks in (each.tasks, *each.by_status):
                        tasks.clear()
            if not number % STRIDE:
                yield
        self.jobs.clear()

    def record(self, job: Job, kind: str, reason: str, message: str) -> None:
        event = Event(job.group.key, kind, reason, message)
        if event not in self._recorded:
            self._recorded.add(event)
            self.events.append(event)
