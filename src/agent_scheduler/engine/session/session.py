"""One session, from its opening to its closing (`pkg/scheduler/framework/session.go`).

`run` is a generator that pauses between small steps, so that the caller can do other work in between; the decisions do
not depend on the pauses. The session uses the state of the cluster at its opening.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from agent_scheduler.objects.batch import INQUEUE, ResourceQuota

from ..decide.classview import ClassView
from ..decide.trial import Mark
from ..gangs.group import PodGroupInfo
from ..preemption.pdbs import PDBs
from ..queues.asks import turn_of_pod
from ..quotas.accounts import QuotaRefusal
from ..quotas.demand import JobDemand, QueueDemand
from ..quotas.queues import QueueInfo
from ..quotas.turns import TurnKey
from ..quotas.vector import Vector, is_empty, of_requests
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo
from ..verdicts import UNSCHEDULABLE
from .conf import CLUSTER, QUEUE_ADMISSION_GATES, PluginOption, SessionConf
from .demand import demand_of
from .hooks import Hooks
from .model import JobInfo, TaskInfo, TaskStatus
from .nodes import SessionNodes
from .ports import QueueAccount, SessionPorts
from .quota import QUOTA, QueueQuota, hooks_of
from .settled import STRIDE, SettledJob, has_claims
from .tiers import Tiers


class Requests:
    """A cache of request vectors, one for all pods of a class."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Mapping[str, int], Vector, bool]] = {}

    def of(self, pod: PodInfo) -> tuple[Vector, bool]:
        """Return the pod's requests, and whether it is best-effort, that is, requests nothing and no devices."""
        requests = pod.cls.requests
        found = self._kept.get(id(requests))
        if found is None:
            vector = of_requests(requests)
            # The reference to the requests prevents that another object gets the same id.
            found = self._kept[id(requests)] = (requests, vector, is_empty(vector))
        return found[1], found[2] and not pod.claims


class ClusterView(Struct, frozen=True, kw_only=True):
    """The input of a session: the state of the cluster without its nodes."""

    groups: Iterable[PodGroupInfo]
    #: The pods of each group, including ended ones.
    pods: Mapping[GroupKey, Collection[PodInfo]]
    queues: Iterable[QueueInfo]
    #: Queue -> usage in its status; without queues whose status has none.
    held: Mapping[str, Vector] = {}
    #: The usage of queues by pods outside of jobs, such as those of other schedulers.
    others: Sequence[JobDemand] = ()
    #: Namespace -> its quotas; empty if no plugin reads them.
    quotas: Mapping[str, Sequence[ResourceQuota]] = {}
    #: PriorityClass -> its value.
    priorities: Mapping[str, int] = {}
    #: The priority of a group without a PriorityClass, or with one that does not exist.
    default_priority: int = 0
    #: None if no plugin needs them.
    pdbs: PDBs | None = None
    #: Missing or invalid groups that pods name -> the reason, and the pods without a node.
    lost: Mapping[GroupKey, tuple[str, Sequence[PodInfo]]] = {}
    #: The settled jobs of some groups, which are not evaluated again.
    settled: Mapping[GroupKey, SettledJob] = {}
    #: Why no node may be used, for a reason other than capacity; empty if nodes may be used.
    unready: str = ""
    #: Returns a message why pods that do not fit on the usable nodes need no more nodes; empty if they do. It is None
    #: if all nodes may be used.
    shard_full: Callable[[Sequence[PodInfo]], str] | None = None


class GroupEvent(NamedTuple):
    """An event about a group. `type` is Normal or Warning."""

    group: GroupKey
    type: str
    reason: str
    message: str


class Stage(NamedTuple):
    """The stage of a session: opening a plugin or running an action, with its name, or closing, without a name."""

    kind: str
    name: str


#: The kinds of stages.
OPENING: Final = "plugin"
ACTING: Final = "action"
CLOSING: Final = "close"


class Stamp(NamedTuple):
    """The identity of a session in conditions, and the time of its opening, RFC 3339; empty for no time."""

    uid: str
    now: str = ""


class SessionPlugin(Protocol):
    """Builds a plugin's hooks for a session. A plugin keeps no state between sessions."""

    def __call__(self, session: Session, option: PluginOption) -> Hooks: ...


class SessionRegistry(NamedTuple):
    """The available actions and plugins by their names. An action is a generator that pauses between small steps."""

    actions: Mapping[str, Callable[[Session], Iterator[None]]]
    plugins: Mapping[str, SessionPlugin]


class Session:
    """The state of one session: its jobs, queues, plugins and results. Owner: the batch scheduler, until `retire`."""

    def __init__(
        self,
        conf: SessionConf,
        view: ClusterView,
        nodes: SessionNodes,
        *,
        registry: SessionRegistry,
        ports: SessionPorts,
        account: QueueAccount,
        stamp: Stamp,
    ) -> None:
        """Create a session; `run` opens it with the actions and plugins of `registry` that `conf` names."""
        self.conf = conf
        self.nodes = nodes
        self.view = view
        self.uid, self.now = stamp
        self._book, self.promises = account
        self._committer, self._evictor, self.begins = ports
        self._registry = registry
        self.queues: dict[str, QueueInfo] = {queue.name: queue for queue in view.queues}
        self.total: Vector = nodes.total()
        #: `namespace/name` of a group -> its job, for groups whose queue exists.
        self.jobs: dict[str, JobInfo] = {}
        nodes.jobs = self.jobs
        #: The jobs that this session evaluates; the others are settled.
        self.fresh: list[JobInfo] = []
        #: The groups whose queue does not exist.
        self.without_queue: list[PodGroupInfo] = []
        #: The queues of waiting settled jobs.
        self.settled_queues: set[str] = set()
        #: The jobs with a task skipped for a reason other than that no node is feasible.
        self.held_back: set[str] = set()
        #: Why all queues refuse tasks; empty if they do not.
        self.queue_fault = ""
        #: Whether any job has a claim that ends with the session.
        self.claims = False
        #: What each job held and requested at the opening, in the order of `jobs`.
        self.demands: list[JobDemand] = []
        #: Queue -> the sum of its jobs' demands, for queues with jobs.
        self.queue_demands: dict[str, QueueDemand] = {}
        #: The distinct events.
        self.events: list[GroupEvent] = []
        self._recorded: set[GroupEvent] = set()
        #: Job -> its dominant share of the cluster after the actions; empty without drf.
        self.shares: dict[str, float] = {}
        #: The pods from which the gate of their queue is to be removed, in the order of the decisions.
        self.gates_removed: dict[str, TaskInfo] = {}
        self.admits_gated = QUEUE_ADMISSION_GATES in conf.features
        #: Job -> tasks that were passed to the binder.
        self.bound: dict[str, list[TaskInfo]] = {}
        #: The evicted tasks, with the reason.
        self.evicted: list[tuple[TaskInfo, str]] = []
        #: The number of members that the binder refused, and of tasks for which victims were selected.
        self.refused = 0
        self.preemptions = 0
        self.stage = Stage(OPENING, "")
        self.tiers = Tiers(())
        self._take_hooks()

    def run(self) -> Iterator[None]:
        """Open the session, run all actions, and close the plugins, in steps."""
        yield from self._open()
        for name in self.conf.actions:
            self.stage = Stage(ACTING, name)
            self.begins(None)
            yield from self._registry.actions[name](self)
        self.stage = Stage(CLOSING, "")
        closings = self.tiers.every("job_closed")
        for job in self.fresh:
            self.begins(job.group)
            for closed in closings:
                closed(job)
            self.claims = self.claims or has_claims(job)
            yield
        self.begins(None)
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
                self.begins(group)
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
        self.begins(None)
        self.nodes.asked = {name for each in self.queue_demands.values() for name in (*each.pending, *each.allocated)}
        self.total = self.nodes.total()
        opened: list[list[tuple[PluginOption, Hooks]]] = []
        for tier in self.conf.tiers:
            opened.append([])
            for option in tier:
                self.stage = Stage(OPENING, option.name)
                opened[-1].append((option, self._registry.plugins[option.name](self, option)))
                yield
        if self._book is not None:
            opened.append([(PluginOption(QUOTA), hooks_of(QueueQuota(self._book, self._leaving())))])
        self.tiers = Tiers(opened)
        self._take_hooks()

    def _count(self, name: str, job: JobInfo, demand: JobDemand) -> None:
        self.jobs[name] = job
        self.demands.append(demand)
        of_queue = self.queue_demands.get(demand.queue)
        if of_queue is None:
            of_queue = self.queue_demands[demand.queue] = QueueDemand(demand.queue)
        of_queue.add(demand)

    @property
    def asks_cluster(self) -> bool:
        """Whether groups are admitted only if the cluster has room for them."""
        return self.promises is None or self.conf.enqueue_by == CLUSTER

    @property
    def moment(self) -> float:
        """The time of the opening, in whole seconds of the epoch; 0 if no time was given."""
        return datetime.fromisoformat(self.now).timestamp() if self.now else 0.0

    def is_kept_for(self, task: TaskInfo) -> bool:
        """Return whether room in its queue is kept for the task, which has no node."""
        return self._book is not None and self._book.is_kept(task.uid)

    def kept_first(self, task: TaskInfo) -> tuple[bool, *tuple[TurnKey, ...]]:
        """Return the sort key with which tasks with kept room come first, in the order in which the queue keeps it."""
        return (False, turn_of_pod(task.pod)) if self.is_kept_for(task) else (True,)

    @property
    def let_in_late(self) -> bool:
        """Whether jobs with pods were admitted after actions that therefore did not evaluate them."""
        return "enqueue" in self.conf.actions[1:] and any(
            job.tasks and job.group.is_object and job.phase == INQUEUE != job.group.status.phase for job in self.fresh
        )

    def _take_hooks(self) -> None:
        """Read the hooks that are called for each placement."""
        self.allocated = self.tiers.every("allocated")
        self.deallocated = self.tiers.every("deallocated")
        self.cleanup_reservations = self.tiers.every("cleanup_reservations")
        self._committed = self.tiers.every("committed")

    def _leaving(self) -> Iterator[TaskInfo]:
        for job in self.fresh:
            yield from (task for task in job.by_status[TaskStatus.RELEASING].values() if task.node_name)

    def _job(self, group: PodGroupInfo, requests: Requests) -> JobInfo:
        view, nodes = self.view, self.nodes
        pods = view.pods.get(group.key, ())
        job = JobInfo(
            group,
            priority=view.priorities.get(group.priority_class, view.default_priority),
            roles={pod.batch.role for pod in pods if pod.batch is not None} if group.waiting_roles else (),
        )
        if self.promises is not None and not group.is_object and job.is_pending:
            # Without an object there is no persistent phase, so the group is always admitted.
            job.phase = INQUEUE
        for pod in pods:
            request, best_effort = requests.of(pod)
            task = TaskInfo(pod, job, request, best_effort=best_effort)
            if task.node_name:
                task.row = nodes.row(task.node_name)
                if task.status is TaskStatus.RELEASING:
                    nodes.leave(task)
            job.add(task)
        return job

    # ---- what statements do, and actions beside them

    def allocate(self, task: TaskInfo, row: int, view: ClassView | None = None) -> Mark | None:
        """Place a pending task on a row: as Allocated with the view of the decision, as Pipelined without a view.

        Returns None and changes nothing if a plugin cannot reserve what the pod needs there.
        """
        task.job.set_status(task, TaskStatus.PIPELINED if view is None else TaskStatus.ALLOCATED)
        task.row, task.node_name = row, self.nodes.name(row)
        task.filters = () if view is None else view.filters
        mark = self.nodes.place(task, view)
        if mark is None:
            task.job.set_status(task, TaskStatus.PENDING)
            task.row, task.node_name = -1, ""
            return None
        for hook in self.allocated:
            hook(task)
        return mark

    def unplace(self, task: TaskInfo, mark: Mark | None = None) -> None:
        """Undo a placement. `mark` is the result of `allocate`."""
        self.nodes.unplace(task, mark)
        task.job.set_status(task, TaskStatus.PENDING)
        for hook in self.deallocated:
            hook(task)
        task.row, task.node_name = -1, ""

    def bind(self, tasks: Sequence[TaskInfo]) -> None:
        """Pass allocated tasks of one job to the binder; those that it refuses become pending again."""
        job = tasks[0].job
        missing = job.minimum - (job.ready + job.best_effort - len(tasks))
        refused = self._committer.commit(job, tasks, max(missing, 0))
        self.refused += len(refused)
        for task in tasks:
            if task.uid in refused:
                self.unplace(task)
            else:
                job.set_status(task, TaskStatus.BINDING)
                for hook in self._committed:
                    hook(task)
                self.bound.setdefault(job.uid, []).append(task)

    def evict(self, task: TaskInfo, reason: str) -> bool:
        """Start the eviction of a task's pod. Returns whether it was started."""
        if not self._evictor.evict(task, reason):
            return False
        self.evicted.append((task, reason))
        self.record(task.job, "Normal", "Evict", reason)
        return True

    def admit_gated(self, task: TaskInfo) -> None:
        """Let the queue's gate be removed from a pod, so that a later session can place it."""
        if task.only_queue_gate:
            self.gates_removed[task.uid] = task

    def retire(self, later: Session) -> Generator[None, None, None]:
        """Break the reference cycles of an unused session, in steps, except in jobs that `later` reuses.

        Otherwise the cycles of jobs and tasks, and of session and plugins, would stay until a full garbage collection.
        """
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

    def record_refusal(self, job: JobInfo, refusal: QuotaRefusal) -> None:
        """Record an event that a queue refuses the job."""
        lacking = ", ".join(f"insufficient {resource}" for resource in refusal.resources)
        self.record(job, "Normal", UNSCHEDULABLE, f"queue resource quota insufficient: {lacking}")

    def record(self, job: JobInfo, kind: str, reason: str, message: str) -> None:
        event = GroupEvent(job.group.key, kind, reason, message)
        if event not in self._recorded:
            self._recorded.add(event)
            self.events.append(event)
