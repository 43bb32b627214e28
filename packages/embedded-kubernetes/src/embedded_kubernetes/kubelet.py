"""Simulated kubelets: one controller in the server's process acts as the kubelet of every node.

A bound pod is checked against its node in the order of binds, and becomes Running, or Failed with the kubelet's
reason (`OutOfcpu`, `OutOfpods`...), so that overcommitment is visible. A pod waits for its resource claims
(`kubelet_claims`). Annotations define what its containers do (`kubelet_play`). A deleted pod is removed when its
containers have stopped, at the latest after its grace period. A node becomes Ready and renews a Lease in
kube-node-lease.

It works directly on the store, so that thousands of nodes cost little: O(1) per event, one write per start, one per
end, one heap for all timers. `Kubelets` is synchronous, with the store's clock. Events are queued while the store
commits (a write during a commit would overtake that commit's event to the other subscribers); `advance` does the
work, called by `controllers.run`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import cast

from apimachinery.quantity import QuantityError

from . import kubelet_status, nesting
from .controllers import Controller, WorkQueue, run
from .kubelet_admission import NodeBook
from .kubelet_claims import PodClaims
from .kubelet_play import NOTHING, RUN_SECONDS, BadAnnotation, Play, pause, play_of, runs_of
from .kubelet_resize import Pods, Resizes
from .kubelet_status import LEASES, NodeLeases
from .pod_claims import CLAIMS, uses_claims
from .resource import Object, is_true
from .store import Event, Record, Store
from .subresources import NODES, PODS
from .times import clock_text, parse

__all__ = ["LEASES", "NODES", "PODS", "RUN_SECONDS", "Kubelets", "run"]

RENEW_SECONDS = 10.0

#: The action of a timer; its argument is the UID of a pod or the name of a node.
_Task = Callable[[str], None]
_FINAL = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Pod:
    """A pod that a kubelet manages."""

    key: str
    node: str
    #: The version that was processed last; events up to it are ignored.
    rv: int
    #: Whether its containers have ended or never started; it then uses nothing of its node.
    over: bool = False
    stopping: bool = False
    #: Whether it is admitted but waits for its claims.
    waiting: bool = False
    #: The behavior of its containers, the number of their exits, and the time of their last start.
    play: Play = NOTHING
    runs: int = 0
    began: float = 0.0


class Kubelets(Controller):
    """The kubelets of all nodes. Owned by the server process, on one thread.

    Invariants, when all events are processed: `_pods` has every pod that is bound to an existing node and had not
    ended before, until it is deleted; a node's book has exactly those that are admitted and not over.
    """

    def __init__(
        self, store: Store, *, start_seconds: float = 0.0, stop_seconds: float = 0.2, resize_seconds: float = 0.1
    ) -> None:
        """Create the kubelets for a store with tables of pods, nodes and leases.

        The times are those that containers take to start, to stop and to be resized. Without a table of resource
        claims, no pod waits for claims.
        """
        self._store = store
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._events: deque[tuple[bool, Event]] = deque()
        self._books: dict[str, NodeBook] = {}
        self._pods: dict[str, _Pod] = {}
        self._timers: list[tuple[float, int, _Task, str]] = []
        self._sequence = 0
        self._host_ips: dict[str, str] = {}
        self._pod_ips = 0
        self._second, self._second_text = -1, ""
        self._pod_table, self._node_table = store.tables[PODS], store.tables[NODES]
        self._node_field = self._pod_table.field_names.index("spec.nodeName")
        self._phase_field = self._pod_table.field_names.index("status.phase")
        # Existing objects are processed like new ones, pods in the order of their last change.
        for record in self._node_table.scan(""):
            self._note_node(Event(record.rv, "ADDED", record, None))
        for record in sorted(self._pod_table.scan(""), key=lambda record: record.rv):
            self._note_pod(Event(record.rv, "ADDED", record, None))
        self._node_table.subscribers.append(self._note_node)
        self._pod_table.subscribers.append(self._note_pod)
        self._leases = NodeLeases(store)
        pods = Pods(self._whole, self._write, self._restarted, self._later, self._now)
        self._resizes = Resizes(pods, seconds=resize_seconds)
        self._claims: PodClaims | None = None
        if CLAIMS in store.tables:
            self._claims = PodClaims(store)
            store.tables[CLAIMS].subscribers.append(self._note_claim)

    def _note_pod(self, event: Event) -> None:
        if event.record.fields[self._node_field]:
            self._events.append((False, event))
            self.wake()

    def _note_node(self, event: Event) -> None:
        self._events.append((True, event))
        self.wake()

    def _note_claim(self, event: Event) -> None:
        if self._claims is not None and self._claims.changed(event.record):
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """Process up to `most` events, and as many due timers."""
        for _ in range(min(most, len(self._events))):
            is_node, event = self._events.popleft()
            if is_node:
                self._see_node(event)
            else:
                self._see_pod(event)
        woken = self._claims.woken if self._claims is not None else WorkQueue[str]()
        woken.work(most, self._try_again)
        now = self._store.clock()
        for _ in range(most):
            if not self._timers or self._timers[0][0] > now:
                break
            _, _, task, subject = heappop(self._timers)
            task(subject)
        self._resizes.retry(self._books)
        if self._events or woken:
            return -math.inf
        return self._timers[0][0] if self._timers else None

    def _later(self, seconds: float, task: _Task, subject: str) -> None:
        self._sequence += 1
        heappush(self._timers, (self._store.clock() + seconds, self._sequence, task, subject))

    def _now(self) -> str:
        second = int(self._store.clock())
        if second != self._second:
            self._second = second
            self._second_text = clock_text(second)
        return self._second_text

    # Pods

    def _see_pod(self, event: Event) -> None:
        uid = event.record.uid
        pod = self._pods.get(uid)
        if event.type == "DELETED":
            self._forget(uid)
            return
        if pod is not None and event.rv <= pod.rv:
            return
        # Only the newest state counts; an outdated event is followed by a later one.
        record = self._pod_table.records.get(event.record.key)
        if record is None or record.uid != uid:
            return
        if pod is None:
            self._take_on(record)
            return
        pod.rv = record.rv
        if record.fields[self._phase_field] in _FINAL:
            self._over(uid, pod)
        if pod.stopping or (pod.over and not record.deleting):
            return
        obj = nesting.loads(record.data)
        if record.deleting:
            self._stop(uid, pod, obj)
        else:
            self._resize(uid, obj)
            if pod.waiting:
                self._begin(uid, obj)

    def _resize(self, uid: str, obj: Object) -> None:
        node = self._pods[uid].node
        book = self._books.get(node)
        if book is not None and uid in book.pods:
            self._resizes.see(uid, node, book, obj)

    def _restarted(self, uid: str) -> None:
        """Count a restart of containers by a resize, so that timers of the previous run are ignored."""
        pod = self._pods[uid]
        pod.runs += 1
        self._started(uid, pod)

    def _take_on(self, record: Record) -> None:
        phase, node = record.fields[self._phase_field], record.fields[self._node_field]
        book = self._books.get(node)
        if book is None:
            return  # its node does not exist; `_see_node` processes it when the node is created
        uid, obj = record.uid, nesting.loads(record.data)
        pod = self._pods[uid] = _Pod(record.key, node, record.rv)
        if phase in _FINAL:
            pod.over = True
        else:
            self._admit(uid, book, obj, runs=phase == "Running")
        if obj["metadata"].get("deletionTimestamp"):
            self._stop(uid, pod, obj)

    def _admit(self, uid: str, book: NodeBook, obj: Object, *, runs: bool) -> None:
        pod = self._pods[uid]
        try:
            demand = self._resizes.take(uid, obj)
            pod.play = play_of(obj)
        except (QuantityError, BadAnnotation) as error:
            self._refuse(uid, obj, "InvalidPod", f"Pod was rejected: {error}")
            return
        if runs:
            book.hold(uid, demand)
            current = self._current(uid)
            if self._claims is not None and current is not None and uses_claims(obj):
                self._claims.hold(current)
            pod.runs = runs_of(obj)
            self._started(uid, pod, since=_started_at(obj))
            self._pod_ips = max(self._pod_ips, _number(obj))
            self._resize(uid, obj)
            return
        refusal = book.admit(uid, demand)
        if refusal is not None:
            self._refuse(uid, obj, *refusal)
        elif obj["metadata"].get("deletionTimestamp"):
            pass  # it never starts; `_stop` follows
        else:
            self._begin(uid, obj)

    def _refuse(self, uid: str, obj: Object, reason: str, message: str) -> None:
        self._pods[uid].over = True
        self._write(uid, obj, kubelet_status.refused(obj, reason=reason, message=message, now=self._now()))

    def _try_again(self, uid: str) -> None:
        """Retry a waiting pod after one of its claims changed."""
        pod, current = self._pods.get(uid), self._current(uid)
        if pod is not None and current is not None and pod.waiting and not (pod.over or pod.stopping):
            self._begin(uid, nesting.loads(current.data))

    def _begin(self, uid: str, obj: Object) -> None:
        """Start an admitted pod if its claims are ready."""
        pod, current = self._pods[uid], self._current(uid)
        if self._claims is not None and current is not None and uses_claims(obj):
            pod.waiting = not self._claims.prepare(current, self._node_table.records.get(pod.node))
            if pod.waiting:
                return
        if self._start_seconds > 0:
            self._later(self._start_seconds, self._start, uid)
        else:
            self._run(uid, obj)

    def _start(self, uid: str) -> None:
        current = self._current(uid)
        if current is not None and not self._pods[uid].over and not self._pods[uid].stopping:
            self._run(uid, nesting.loads(current.data))

    def _run(self, uid: str, obj: Object) -> None:
        host_ip = self._host_ips.get(self._pods[uid].node)
        if host_ip is None:
            return  # its node was deleted, so no kubelet can start it
        self._pod_ips += 1
        number = self._pod_ips
        ip = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        ready = self._pods[uid].play.ready_after == 0
        status = kubelet_status.running(obj, ip=ip, host_ip=host_ip, now=self._now(), ready=ready)
        self._write(uid, obj, self._resizes.report(uid, obj, status))
        self._started(uid, self._pods[uid])

    def _started(self, uid: str, pod: _Pod, since: float | None = None) -> None:
        """Set the timers of containers that have started now, or at `since`."""
        play, run, now = pod.play, pod.runs, self._store.clock()
        pod.began = now if since is None else min(since, now)
        passed = now - pod.began
        if play.life is not None:
            self._later(max(0.0, play.life - passed), partial(self._end, run), uid)
        if play.ready_after:
            self._later(max(0.0, play.ready_after - passed), partial(self._ready, run), uid)
        if play.evict_after is not None:
            self._later(max(0.0, play.evict_after - passed), partial(self._evict, run), uid)

    def _living(self, uid: str, run: int) -> Object | None:
        """Return the pod if its containers are in this run."""
        pod = self._pods.get(uid)
        return self._whole(uid) if pod is not None and pod.runs == run else None

    def _whole(self, uid: str) -> Object | None:
        """Return the pod if it is neither over nor stopping."""
        pod, current = self._pods.get(uid), self._current(uid)
        if pod is None or current is None or pod.over or pod.stopping:
            return None
        return cast(Object, nesting.loads(current.data))

    def _ready(self, run: int, uid: str) -> None:
        if (obj := self._living(uid, run)) is not None:
            self._write(uid, obj, kubelet_status.readied(obj, now=self._now()))

    def _evict(self, run: int, uid: str) -> None:
        if (obj := self._living(uid, run)) is not None:
            self._over(uid, self._pods[uid])
            self._write(uid, obj, kubelet_status.evicted(obj, now=self._now()))

    def _end(self, run: int, uid: str) -> None:
        if (obj := self._living(uid, run)) is None:
            return
        pod = self._pods[uid]
        code = pod.play.code(run)
        if not pod.play.is_started_again(obj, code):
            self._over(uid, pod)
            self._write(uid, obj, kubelet_status.ended(obj, now=self._now(), code=code))
            return
        pod.runs += 1
        self._write(uid, obj, kubelet_status.exited(obj, code=code, now=self._now()))
        wait = pause(pod.runs, self._store.clock() - pod.began)
        self._later(wait, partial(self._start_again, pod.runs), uid)

    def _start_again(self, run: int, uid: str) -> None:
        if (obj := self._living(uid, run)) is not None:
            pod = self._pods[uid]
            self._write(uid, obj, kubelet_status.started_again(obj, now=self._now(), ready=pod.play.ready_after == 0))
            self._started(uid, pod)

    def _stop(self, uid: str, pod: _Pod, obj: Object) -> None:
        grace = obj["metadata"].get("deletionGracePeriodSeconds") or 0
        pod.stopping = True
        self._later(0.0 if pod.over else min(grace, self._stop_seconds), self._remove, uid)

    def _remove(self, uid: str) -> None:
        """Remove a pod whose containers have stopped, unless it has finalizers."""
        pod, current = self._pods.get(uid), self._current(uid)
        if pod is None or current is None:
            return
        obj = nesting.loads(current.data)
        if not obj["metadata"].get("finalizers"):
            self._store.remove(PODS, current)
            return
        was_over = pod.over
        self._over(uid, pod)
        obj["metadata"]["deletionGracePeriodSeconds"] = 0
        self._write(uid, obj, obj.get("status", {}) if was_over else kubelet_status.ended(obj, now=self._now()))

    def _current(self, uid: str) -> Record | None:
        pod = self._pods.get(uid)
        record = self._pod_table.records.get(pod.key) if pod is not None else None
        return record if record is not None and record.uid == uid else None

    def _write(self, uid: str, obj: Object, status: Object) -> None:
        current = self._current(uid)
        if current is not None:
            if generation := obj["metadata"].get("generation"):
                status = {**status, "observedGeneration": generation}
            obj["status"] = status
            self._pods[uid].rv = self._store.replace(PODS, current, obj).rv

    def _over(self, uid: str, pod: _Pod) -> None:
        pod.over = True
        if self._claims is not None:
            self._claims.release(uid)
        book = self._books.get(pod.node)
        if book is not None:
            book.release(uid)
        self._resizes.forget(uid, pod.node)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._over(uid, pod)

    # Nodes

    def _see_node(self, event: Event) -> None:
        name = event.record.name
        record = self._node_table.records.get(name)
        if record is None:
            if self._books.pop(name, None) is not None:
                self._host_ips.pop(name)
                self._leases.drop(name)
            return
        obj = nesting.loads(record.data)
        book = self._books.get(name)
        if book is not None:
            book.resize(obj)
            self._resizes.has_room(name, changed=True)
            return
        book = self._books[name] = NodeBook()
        book.resize(obj)
        number = len(self._host_ips) + 1
        self._host_ips[name] = f"172.{16 + (number >> 16 & 15)}.{number >> 8 & 255}.{number & 255}"
        if not is_true(obj.get("status") or {}, "Ready"):
            self._store.replace(
                NODES, record, kubelet_status.ready_node(obj, host_ip=self._host_ips[name], now=self._now())
            )
        # Nodes are created in bulk, so their renewals are spread out.
        self._later(RENEW_SECONDS * (self._sequence * 0.618 % 1.0), self._renew, name)
        for bound in self._bound_to(name):
            known = self._pods.get(bound.uid)
            if known is None:
                self._take_on(bound)
            elif not known.over:
                book.hold(bound.uid, self._resizes.demand(bound.uid, nesting.loads(bound.data)))

    def _bound_to(self, node: str) -> list[Record]:
        indexed = self._pod_table.having(self._node_field, node)
        if indexed is None:
            indexed = [r for r in self._pod_table.scan("") if r.fields[self._node_field] == node]
        return sorted(indexed, key=lambda record: record.rv)

    def _renew(self, node: str) -> None:
        if node in self._books:
            self._leases.renew(self._node_table.records[node], self._now())
            self._later(RENEW_SECONDS, self._renew, node)


def _started_at(pod: Object) -> float | None:
    """Return when the containers of a running pod started; None if no status tells."""
    reports = (pod.get("status") or {}).get("containerStatuses") or ()
    times = [each["state"]["running"].get("startedAt") for each in reports if "running" in (each.get("state") or {})]
    return max((parse(each).timestamp() for each in times if each), default=None)


def _number(pod: Object) -> int:
    """Return the number that a simulated kubelet has made a pod's address of; 0 for another address."""
    parts = str((pod.get("status") or {}).get("podIP", "")).split(".")
    if len(parts) != 4 or parts[0] != "10" or not all(part.isdecimal() for part in parts):
        return 0
    return int(parts[1]) << 16 | int(parts[2]) << 8 | int(parts[3])
