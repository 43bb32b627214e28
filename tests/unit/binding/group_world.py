"""A binder with the cluster before it; binds wait for their answer, and whoever decided writes down what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from agent_scheduler.binding.groups import Admission, Member
from agent_scheduler.binding.result import AttemptOwner, ScheduleResult
from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes, ClassViews, ConflictPolicy
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.bind import AlreadySent, BindOutcome, BindResult, UnknownOutcome
from kube_client.errors import Failure, FailureClass
from kube_client.retry import Timing
from kube_client.transport import Headers, Response
from tests.support.engine import node, pod_json, read_pod
from tests.support.running import Reports

from .binder_world import NoNetwork, fast_path_of

Ended = Callable[[BindResult | AlreadySent], None]


class Told:
    """Both halves of an owner."""

    def __init__(self) -> None:
        self.scheduled_uids: list[str] = []
        self.done_uids: list[str] = []
        self.problems: dict[str, str] = {}

    def scheduled(self, entry: Entry) -> None:
        self.scheduled_uids.append(entry.uid)

    def done(self, uid: str) -> None:
        self.done_uids.append(uid)

    def unschedulable(self, entry: Entry, pod: PodInfo, refusal: Refusal, *, started: float) -> None:
        self.problems[pod.uid] = refusal.message

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        self.problems[pod.uid] = message

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        self.problems[pod.uid] = "outraced"

    def outdated(self, entry: Entry) -> None:
        self.problems[entry.uid] = "outdated"

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> None: ...


class Answering(NoNetwork):
    """The transport: writes of pods' statuses are taken, and nothing else is asked for."""

    async def request(self, method: str, path: str, **_more: Any) -> Response:
        assert method == "PATCH" and path.endswith("/status"), f"{method} {path}"
        return Response(200, b'{"kind":"Pod","metadata":{"resourceVersion":"2"}}', Headers(()))


class World:
    """A fast path as it ships, but for the network and the watches. Without its workers: `gang` decides."""

    def __init__(self, profile: Profile, *, concurrency: int = 8) -> None:
        self.profile = profile
        self.reports = Reports()
        self.told = Told()
        self.sent: dict[str, Ended] = {}
        self.order: list[str] = []
        #: What comes of a bind whose request has failed, by UID.
        self.later: dict[str, BindResult] = {}
        self.now = 0.0
        self.timing = Timing(clock=lambda: self.now, sleep=self._sleep)
        more = {"profiles": (profile,), "policy": ConflictPolicy.REVALIDATE}
        path = fast_path_of(self, Answering(), concurrency=concurrency, **more)
        self.fast_path, self.binder = path, path.binder
        self.ledger, self.cluster, self.snapshot = path.ledger, path.cluster, path.snapshot
        self.classes = PodClasses()
        views = ClassViews(profile, self.snapshot)
        self.trial = Trial(self.ledger, self.snapshot, {profile.scheduler_name: views}, cast(Any, None))
        self._version = 0

    # -- the cluster

    def nodes(self, *names: str, cpu: str = "1") -> None:
        for name in names:
            self.cluster.set_node(node(name, cpu=cpu))

    def pod(self, name: str, *, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> PodInfo:
        """It comes, or the watch shows that it has changed."""
        self._version += 1
        body = pod_json(name, requests={"cpu": cpu}, **spec)
        body["metadata"] |= {"uid": name, "resourceVersion": str(self._version), "labels": labels or {}}
        pod = read_pod(body, self.classes)
        self.cluster.set_pod(pod)
        return pod

    # -- decisions

    def gang(self, *pods: PodInfo) -> list[Member]:
        """Members as a session has placed them, one after the other, in a trial that is undone."""
        self.trial.reset()
        members = []
        for pod in pods:
            view = self.trial.view_of(pod)
            ((row, _),) = view.best(self.snapshot.columns, 1, 0)
            assert self.trial.try_place(pod, row, view)
            info = self.snapshot.columns.nodes[row]
            assert info is not None
            candidate = CandidateNode(info.name, row, self.snapshot.columns.version[row])
            result = ScheduleResult(
                Entry(uid=pod.uid, pod=pod, timestamp=0.0),
                pod,
                view.pod,
                CandidateNodes((candidate,), view.seen),
                view.filters,
                0.0,
                AttemptOwner(self.told, self.told),
                self.cluster.catalogue.version,
                view.reserves,
                True,
            )
            members.append(Member(result, self.profile, self.trial.hand_over(pod)))
        self.trial.reset()
        return members

    def submit(self, name: str) -> ScheduleResult:
        """A worker has decided on a new pod, and its result waits for `judge`."""
        (member,) = self.gang(self.pod(name))
        result = member.result._replace(in_group=False)
        self.binder.submit(result)
        return result

    def commit(self, members: Sequence[Member], minimum: int, admission: Admission | None = None) -> dict[str, str]:
        return dict(self.binder.commit_group(members, minimum, admission or self.ledger.usage))

    @property
    def placed(self) -> dict[str, str]:
        return {uid: each.node_name for uid, each in self.ledger.placements.items()}

    # -- the API server

    def send_bind(self, pod: PodInfo, node_name: str, ended: Ended) -> bool:
        self.sent[pod.uid] = ended
        self.order.append(pod.uid)
        return True

    async def bind(
        self,
        pod: PodInfo,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        return self.later[pod.uid]

    async def answer(self, uid: str, outcome: BindOutcome = BindOutcome.BOUND) -> None:
        """The bind of a pod is answered, and what that means is done."""
        ended = self.sent.pop(uid)
        if outcome is BindOutcome.BOUND:
            ended(BindResult(outcome))
        else:
            self.later[uid] = BindResult(outcome, unknown=UnknownOutcome(0.0))
            ended(AlreadySent(0.0, Failure(FailureClass.UNKNOWN)))
        await self.settle()

    @staticmethod
    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    @staticmethod
    async def _sleep(seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def binding(world: World) -> AsyncIterator[World]:
    running = asyncio.create_task(world.binder.run())
    await world.settle()
    try:
        yield world
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
