"""Small clusters for tests of sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.gangs.group import PodGroupInfo, of_pod_group
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.quotas.vector import of_requests
from agent_scheduler.engine.session.close import SessionResult, close
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import JobInfo, TaskInfo
from agent_scheduler.engine.session.nodes import SessionNodes
from agent_scheduler.engine.session.ports import QueueAccount, SessionPorts
from agent_scheduler.engine.session.profile import profile_of
from agent_scheduler.engine.session.registry import REGISTRY
from agent_scheduler.engine.session.session import ClusterView, Session, Stamp
from agent_scheduler.engine.shards.claims import Membership, ShardingMode, Shared
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.shard import within
from agent_scheduler.objects import batch
from tests.support import objects
from tests.support.engine import World, node, pod_json, queue_of, read_pod
from tests.support.handles import handle_of

T = TypeVar("T")

SCHEDULER = "volcano"
#: Of a pod: a gate that is not ours.
GATED = {"schedulingGates": [{"name": "example.com/wait"}]}


def conf(*plugins: str | PluginOption, actions: str = "enqueue allocate backfill", **more: Any) -> SessionConf:
    """All plugins in one tier; by default those that place gangs."""
    named = plugins or ("priority", "gang", "predicates", "nodeorder")
    options = tuple(PluginOption(each) if isinstance(each, str) else each for each in named)
    return SessionConf(actions=tuple(actions.split()), tiers=(options,), **more)


class Everything:
    """Takes every bind and eviction but those of the pods that are named, and writes down what was asked. What it takes
    counts in `book`, if there is one."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.commits: list[tuple[str, list[str], int]] = []
        self.evictions: list[tuple[str, str]] = []
        self.book: QuotaBook | None = None

    def commit(self, job: JobInfo, tasks: Sequence[TaskInfo], minimum: int) -> Collection[str]:
        self.commits.append((job.name, [task.pod.name for task in tasks], minimum))
        for task in tasks:
            if self.book is not None and task.pod.name not in self.refused:
                self.book.set(task.uid, job.queue, task.request, Standing.ASSUMED)
        return {task.uid for task in tasks if task.pod.name in self.refused}

    def evict(self, task: TaskInfo, reason: str) -> bool:
        self.evictions.append((task.pod.name, reason))
        return task.pod.name not in self.refused


class Shard(Shared):
    """The part of nodes that the session's scheduler may use alone, or before others."""

    unready = ""

    def __init__(self, mode: str, *nodes: str) -> None:
        self.mode = ShardingMode(mode)
        self.membership = Membership()
        self.membership.set(frozenset(nodes))


class Scene(World):
    """Nodes, groups and their pods."""

    def __init__(self, *nodes: NodeInfo) -> None:
        World.__init__(self, *nodes)
        self.groups: list[PodGroupInfo] = []
        self.members: dict[GroupKey, list[PodInfo]] = {}
        self.queues = [queue_of("root"), queue_of("default", "root")]
        self.cluster = Everything()
        self.more: dict[str, Any] = {}
        self.nominator: Nominator = Nominator(is_pending=lambda _uid: True)
        self.shared: Shard | None = None

    def nominate(self, name: str, node: str, *, cpu: str = "1", priority: int = 0, **spec: Any) -> PodInfo:
        """A pod of another scheduler."""
        pod = self.pod(name, requests={"cpu": cpu}, priority=priority, **spec)
        self.nominator.add(pod, node)
        return pod

    def group(self, name: str, *, phase: str = "Pending", **spec: Any) -> PodGroupInfo:
        minutes, seconds = divmod(len(self.groups), 60)
        about = {"minMember": 1, "created": f"2026-01-01T00:{minutes:02}:{seconds:02}Z", **spec}
        body = objects.pod_group(name, namespace="default", phase=phase, **about)
        group = of_pod_group(msgspec.convert(body, batch.PodGroup))
        self.groups.append(group)
        self.members.setdefault(group.key, [])
        return group

    def member(
        self,
        group: str,
        name: str = "",
        *,
        cpu: str = "1",
        node: str = "",
        phase: str = "",
        deleting: bool = False,
        **more: Any,
    ) -> PodInfo:
        """A pod of the group; on a node it runs. Without cpu it asks for nothing."""
        there = self.members[GroupKey("default", group)]
        about: dict[str, Any] = {
            "requests": {"cpu": cpu} if cpu else {},
            "phase": phase or ("Running" if node else "Pending"),
            "created": f"2026-01-01T00:00:{len(there) % 60:02}Z",
            "deleted": "2026-01-01T01:00:00Z" if deleting else "",
            **more,
        }
        number = f"{group}-{len(there)}"
        body = pod_json(name or number, group=group, node=node, scheduler=SCHEDULER, **about)
        pod = read_pod(body, self.classes)
        there.append(pod)
        if node and not pod.finished:
            self.ledger.set_pod(pod, node)
        return pod

    def quota(self, hard: Mapping[str, str], used: Mapping[str, str], **spec: Any) -> None:
        """One of the namespace; it is kept of members that come later what quotas ask about them."""
        self.classes.quotas_for = frozenset((SCHEDULER,))
        body = {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}
        quotas = self.more.setdefault("quotas", {"default": []})
        quotas["default"].append(msgspec.convert(body, batch.ResourceQuota))

    def gang(self, name: str, number: int, *, cpu: str = "1", **spec: Any) -> list[PodInfo]:
        """A group that needs all of so many pods."""
        self.group(name, **{"minMember": number, **spec})
        return [self.member(name, cpu=cpu) for _ in range(number)]

    def running(self, name: str, *nodes: str, cpu: str = "1", **spec: Any) -> list[PodInfo]:
        """A group with a member on each of these nodes, one of which is enough for it."""
        self.group(name, phase="Running", **spec)
        return [self.member(name, cpu=cpu, node=place) for place in nodes]

    def holding(self, *parts: Part) -> Scene:
        for add in parts:
            add(self)
        return self

    def book(self, *, bound: bool = False) -> QuotaBook:
        """That of all schedulers, with the queues of the scene; if `bound`, with the members that have a node."""
        book = QuotaBook()
        for each in self.queues:
            book.set_queue(each)
        for group in self.groups if bound else ():
            for pod in self.members[group.key]:
                if pod.node_name:
                    book.set(pod.uid, group.queue, of_requests(pod.requests), Standing.BOUND)
        return book

    def session(self, how: SessionConf | None = None, *, now: str = "", book: QuotaBook | None = None) -> Session:
        how = how or conf()
        snapshot = Snapshot(self.ledger, handle_of(self.ledger))
        profile = profile_of(how, SCHEDULER)
        if self.shared is not None and self.shared.mode is ShardingMode.HARD:
            profile = within(self.shared.membership, {SCHEDULER: profile})[SCHEDULER]
        views = {SCHEDULER: ClassViews(profile, snapshot)}
        trial = Trial(self.ledger, snapshot, views, NoWrites())
        view = ClusterView(groups=self.groups, pods=self.members, queues=self.queues, **self.more)
        return Session(
            how,
            view,
            SessionNodes(
                snapshot,
                trial,
                self.shared,
                nominations=Nominations(self.nominator, self.ledger, snapshot, lambda _name: profile),
                scheduler_name=SCHEDULER,
            ),
            registry=REGISTRY,
            ports=SessionPorts(self.cluster, self.cluster),
            account=QueueAccount(book),
            stamp=Stamp("this", now),
        )

    def run(
        self, how: SessionConf | None = None, *, now: str = "", book: QuotaBook | None = None
    ) -> tuple[Session, SessionResult]:
        self.cluster.book = book
        session = self.session(how, now=now, book=book)
        for _ in session.run():
            pass
        return session, finished(close(session, book))


#: What a row of a table adds to a scene.
Part = Callable[[Scene], object]


def has(name: str, *members: Mapping[str, Any], **group: Any) -> Part:
    """A group with these members."""

    def add(scene: Scene) -> None:
        scene.group(name, **group)
        for each in members:
            scene.member(name, **each)

    return add


def runs(name: str, *nodes: str, **more: Any) -> Part:
    """As `Scene.running`."""
    return lambda scene: scene.running(name, *nodes, **more)


def waits(name: str, number: int = 1, **more: Any) -> Part:
    """As `Scene.gang`."""
    return lambda scene: scene.gang(name, number, **more)


def sized(*cpus: int | str, **more: Any) -> Scene:
    """Nodes `n0`, `n1`... with these amounts."""
    return Scene(*(node(f"n{index}", cpu=str(cpu), **more) for index, cpu in enumerate(cpus)))


class NoWrites:
    """Nothing is reserved here, so nothing is given back."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: nothing is reserved")


def finished(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def opened(session: Session) -> Session:
    """One that is open, and has done nothing yet."""
    for _ in session._open():
        pass
    return session


def bound(session: Session) -> dict[str, str]:
    """Pod -> its node, of those that were sent to be bound."""
    return {task.pod.name: task.node_name for tasks in session.bound.values() for task in tasks}


def claimed(session: Session) -> dict[str, str]:
    """Pod -> its node, of those that have a claim on room which is about to be free."""
    return {task.pod.name: task.node_name for job in session.jobs.values() for task in job.pipelined_tasks()}


def evicted(session: Session) -> list[str]:
    return [task.pod.name for task, _ in session.evicted]


def tasks_of(session: Session, group: str) -> list[TaskInfo]:
    return list(session.jobs[f"default/{group}"].tasks.values())


def told(result: SessionResult) -> dict[str, tuple[str, str]]:
    """Pod -> reason and message of the condition that is to be written."""
    return {each.pod.name: (each.reason, each.message) for each in result.pods}


def status_of(result: SessionResult, group: str) -> batch.PodGroupStatus:
    return next(each.status for each in result.groups if each.group.key.name == group)
