"""Half a cluster around a real binder: the API server as plain dicts, its watches as lists of news that arrive when
they are told to, binds that wait for an answer, and a clock and a loop that move when they are told to.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from agent_scheduler.binding import calls
from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.config.load import load
from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.scheduler import FastPath, Receivers
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.objects import wire
from kube_client.bind import AlreadySent, BindOutcome, BindResult, Binds, UnknownOutcome
from kube_client.errors import Failure, FailureClass
from kube_client.retry import Timing
from tests.support.engine import read_pod
from tests.support.ledger_model import PODS, TAKES, Json, Picture, Placed, node_json
from tests.support.running import AGENT, Reports


def read_node(body: Json) -> NodeInfo:
    return node_info(msgspec.convert(body, wire.Node))


@dataclass(frozen=True)
class ServerPod:
    """A pod as the API server has it. Its `shape` is one of `ledger_model`."""

    name: str
    uid: str
    shape: int
    version: int = 0
    node: str = ""
    gated: bool = False
    deleting: bool = False

    @property
    def pending(self) -> bool:
        return not (self.node or self.deleting)

    def json(self) -> Json:
        metadata: Json = {"name": self.name, "namespace": "default", "uid": self.uid}
        metadata["resourceVersion"] = str(self.version)
        if self.deleting:
            metadata["deletionTimestamp"] = "2027-01-01T00:00:00Z"
        spec = {**PODS[self.shape]["spec"], "schedulerName": AGENT.scheduler_name}
        if self.node:
            spec["nodeName"] = self.node
        if self.gated:
            spec["schedulingGates"] = [{"name": "hold"}]
        return {"metadata": metadata, "spec": spec}


class Server:
    """What is true. Every change is news for the watch of its kind, which may come late but in order."""

    def __init__(self) -> None:
        self.pods: dict[str, ServerPod] = {}
        self.nodes: dict[str, Json] = {}
        #: None in the place of a body: the object is gone. By UID, and by name.
        self.pod_news: deque[tuple[str, Json | None]] = deque()
        self.node_news: deque[tuple[str, Json | None]] = deque()
        #: UID -> where the pod was ever bound to.
        self.bound: dict[str, str] = {}
        #: Nodes that somebody else put a pod on, or that were changed: these may be over.
        self.disturbed: set[str] = set()
        #: Pods that somebody else bound.
        self.strangers: set[str] = set()
        #: Pods that came to want something else.
        self.grown: set[str] = set()
        #: Binds that got no answer and will be carried out all the same: name, UID, node.
        self.late: list[tuple[str, str, str]] = []
        self._versions = itertools.count(1)

    def set_pod(self, pod: ServerPod) -> None:
        pod = self.pods[pod.name] = replace(pod, version=next(self._versions))
        if pod.node:
            assert self.bound.setdefault(pod.uid, pod.node) == pod.node, "a pod was bound twice"
        self.pod_news.append((pod.uid, pod.json()))

    def remove_pod(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.pod_news.append((pod.uid, None))

    def set_node(self, name: str, shape: int, uid: int) -> None:
        old = self.nodes.get(name)
        self.nodes[name] = node_json(name, shape, uid)
        if old is not None and old != self.nodes[name]:
            self.disturbed.add(name)
        self.node_news.append((name, self.nodes[name]))

    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.disturbed.add(name)
            self.node_news.append((name, None))

    def of(self, uid: str) -> ServerPod | None:
        return next((pod for pod in self.pods.values() if pod.uid == uid), None)

    def state(self, name: str, uid: str, node: str) -> BindOutcome | None:
        """What a GET of the pod tells about a bind to `node`; None: it waits, and may be bound."""
        pod = self.pods.get(name)
        if pod is None:
            return BindOutcome.GONE
        if pod.uid != uid:
            return BindOutcome.RECREATED
        if pod.node:
            return BindOutcome.BOUND if pod.node == node else BindOutcome.BOUND_ELSEWHERE
        if pod.deleting:
            return BindOutcome.DELETING
        return BindOutcome.GATED if pod.gated else None

    def bind(self, name: str, uid: str, node: str) -> BindOutcome:
        known = self.state(name, uid, node)
        if known is not None:
            return known
        # Somebody wrote its status just before: of that the watch tells first, when the bind may be answered already.
        self.set_pod(self.pods[name])
        self.set_pod(replace(self.pods[name], node=node))
        self._check_room(node)
        return BindOutcome.BOUND

    def carry_out_late_binds(self) -> None:
        for name, uid, node in self.late:
            self.bind(name, uid, node)
        self.late.clear()

    def picture(self) -> Picture:
        placed = {pod.uid: Placed(pod.node, pod.shape, False) for pod in self.pods.values() if pod.node}
        return Picture(dict(self.nodes), placed)

    def _check_room(self, node: str) -> None:
        """A node that only we put pods on, and that never changed, has room for all of them."""
        there = [pod for pod in self.pods.values() if pod.node == node]
        if node in self.disturbed or node not in self.nodes or any(pod.uid in self.grown for pod in there):
            return
        row = self.picture().row(node)
        for resource, amount in row.requested.items():
            assert amount <= row.allocatable.get(resource, 0), f"{node} is over its {resource}"
        ports: Counter[int] = Counter()
        for pod in there:
            ports.update(TAKES[pod.shape][2])
        assert not ports or max(ports.values()) == 1, f"{node} gave a port twice"


@dataclass(eq=False)
class Sent:
    """A bind that waits for its answer."""

    pod: PodInfo
    node: str
    unknown: UnknownOutcome | None
    answer: asyncio.Future[BindResult]


class HeldSnapshot(Snapshot):
    """Catches up only while `held` is False: what workers see that decided long ago."""

    held = False

    def refresh(self) -> bool:
        return False if self.held else super().refresh()


class Messages:
    """Checks what the messenger is asked to write: nothing may be said of a pod that is not so."""

    def __init__(self, world: World, messenger: KubeMessenger) -> None:
        self._world = world
        self.scheduled_uids: list[str] = []
        for name in ("refused", "binding", "scheduled"):
            setattr(messenger, name, self._checked(getattr(self, f"_{name}"), getattr(messenger, name)))

    @staticmethod
    def _checked(check: Callable[..., None], call: Callable[..., None]) -> Callable[..., None]:
        def checked(*arguments: Any, **named: Any) -> None:
            check(*arguments, **named)
            call(*arguments, **named)

        return checked

    def _refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        assert self._world.cluster.waits(pod.uid), f"{pod.uid} is called refused and does not wait"

    def _binding(self, pod: PodInfo) -> None:
        assert self._world.cluster.waits(pod.uid)

    def _scheduled(self, pod: PodInfo, node_name: str) -> None:
        assert self._world.server.bound.get(pod.uid) == node_name, f"{pod.uid} is called scheduled and is not"
        assert pod.uid not in self.scheduled_uids, f"{pod.uid} is called scheduled twice"
        self.scheduled_uids.append(pod.uid)


class NoNetwork:
    """The transport: conditions and events that wait to be written are never sent, and nothing else asks for it."""

    async def request(self, method: str, path: str, **_more: Any) -> Any:
        raise AssertionError(f"{method} {path}")


class HeldBinds(Binds):
    """Binds that wait until the world answers them."""

    def __init__(self, world: Any, transport: Any, **more: Any) -> None:
        super().__init__(transport, **more)
        self.send_bind = world.send_bind
        self.bind = world.bind


def fast_path_of(world: Any, network: Any, *, concurrency: int, **settings: Any) -> FastPath:
    """A fast path as it ships, whose binds, so many at a time, are answered by the world."""
    # With a limit, which is not reached, the number at a time stays as it is.
    settings["binds"] = RateLimit(qps=1e9, burst=None, concurrency=concurrency)
    made = replace(settings_of(load(), identity="model"), **settings)
    with patch.object(calls, "Binds", partial(HeldBinds, world)):
        receivers = Receivers(world.reports, world.reports)
        return FastPath(made, transport=network, receivers=receivers, timing=world.timing)


class World:
    """The fast path as it ships, with all that it has around its binder, but the network and the watches."""

    def __init__(self, policy: ConflictPolicy, *, concurrency: int, candidates: int) -> None:
        self.loop: Any = asyncio.SelectorEventLoop()
        self.now = 1000.0
        self.timing = Timing(clock=self.clock, sleep=self.sleep)
        self.server = Server()
        self.sent: list[Sent] = []
        self._begins = itertools.cycle((True, False))
        #: What came of binds that were sent and failed, by the pod's UID.
        self._sent_at_once: dict[str, asyncio.Future[BindResult]] = {}
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.reports = Reports()
        more: dict[str, Any] = {"workers": 2, "candidates": candidates, "policy": policy}
        path = fast_path_of(self, NoNetwork(), concurrency=concurrency, max_urgent_retries=2, **more)
        self.fast_path = path
        self.queue, self.ledger, self.cluster = path.queue, path.ledger, path.cluster
        self.binder, self.history, self.workers = path.binder, path.history, path._workers
        self.messages = Messages(self, path._messages.messenger)
        path.snapshot.__class__ = HeldSnapshot
        self.classes = PodClasses()
        self.running = [self.loop.create_task(each.run()) for each in (path.binder, path.preemption)]
        self.turn()
        #: Tasks that sleep though nothing is under way.
        self.idle_sleepers = len(self.sleepers)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self.sleepers.append((self.now + seconds, waiter))
        await waiter

    def send_bind(self, pod: PodInfo, node_name: str, ended: Callable[[BindResult | AlreadySent], None]) -> bool:
        """Every other bind is sent without a task. If it comes to anything but a bound pod, `bind` says to what."""
        if not next(self._begins):
            return False
        sent = Sent(pod, node_name, None, self.loop.create_future())
        self.sent.append(sent)

        def answered(answer: asyncio.Future[BindResult]) -> None:
            failed = answer.exception() is not None
            if not failed and answer.result().outcome is BindOutcome.BOUND:
                ended(answer.result())
            else:
                self._sent_at_once[pod.uid] = answer
                ended(AlreadySent(self.now, Failure(FailureClass.UNKNOWN)))

        sent.answer.add_done_callback(answered)
        return True

    async def bind(
        self,
        pod: PodInfo,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        if already_sent is not None:
            return self._sent_at_once.pop(pod.uid).result()
        if unknown is not None and unknown.then is not None and self.now < unknown.settles:
            # Told, not raised: the binder lives on after whatever a bind raises.
            self.reports.failures.append(AssertionError("it is asked before it can know"))
        sent = Sent(pod, node_name, unknown, self.loop.create_future())
        self.sent.append(sent)
        return await sent.answer

    # -- what makes things happen ------------------------------------------------------------------------

    def turn(self, rounds: int = 1000) -> None:
        """Settle what was decided, and run what is ready; `rounds` times at most."""
        self.loop.call_soon(self.binder.judge)
        self.loop.call_soon(self.binder.send)
        while rounds and (rounds == 1000 or self.loop._ready):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            if not self.loop._ready:
                break
            rounds -= 1
        assert not any(task.done() for task in self.running), self.running

    def decide(self, worker: int, *, late: bool) -> bool:
        """Whether there was a pod to pop, and room for what comes of it."""
        if not self.binder.has_room():
            return False
        entry = self.queue.pop()
        if entry is None:
            return False
        snapshot: Any = self.fast_path.snapshot
        snapshot.held = late
        under_way, placed = self.binder.in_flight, entry.uid in self.ledger.placements
        self.workers[worker].cycle(entry)
        assert not placed or self.binder.in_flight == under_way, f"{entry.uid} has a room and was given another"
        return True

    def hear_of_pods(self, count: int) -> None:
        for _ in range(count):
            uid, body = self.server.pod_news.popleft()
            if body is None:
                self.cluster.delete_pod(uid)
            else:
                self.cluster.set_pod(read_pod(body, self.classes))

    def hear_of_nodes(self, count: int) -> None:
        for _ in range(count):
            name, body = self.server.node_news.popleft()
            if body is None:
                self.cluster.delete_node(name)
            else:
                self.cluster.set_node(read_node(body))

    def relist(self) -> None:
        """The watches broke, and what happened meanwhile is seen as it ended."""
        server = self.server
        server.pod_news.clear()
        server.node_news.clear()
        uids = {pod.uid for pod in server.pods.values()}
        for uid in [uid for uid in self.cluster.pods if uid not in uids]:
            self.cluster.delete_pod(uid)
        for pod in server.pods.values():
            self.cluster.set_pod(read_pod(pod.json(), self.classes))
        for name in [name for name in self.ledger.rows if name not in server.nodes]:
            self.cluster.delete_node(name)
        for body in server.nodes.values():
            self.cluster.set_node(read_node(body))

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.server.carry_out_late_binds()
        awake = [waiter for deadline, waiter in self.sleepers if deadline <= self.now]
        self.sleepers = [each for each in self.sleepers if each[0] > self.now]
        for waiter in awake:
            if not waiter.done():
                waiter.set_result(None)
        self.queue.flush_backoff()
        self.queue.flush_unschedulable_leftovers()
        self.history.expire()

    def end(self) -> None:
        """Stop the binder; nothing may be left of it."""
        for task in self.running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                self.loop.run_until_complete(task)
        left = asyncio.all_tasks(self.loop)
        self.loop.close()
        assert not left, left
