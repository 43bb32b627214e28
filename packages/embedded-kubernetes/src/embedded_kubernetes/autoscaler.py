"""A simulated autoscaler: adds nodes for unschedulable pods and removes nodes that stay empty.

    PodScheduled False, reason Unschedulable ──> `scale_up.scale_up` ──> an upcoming node ──> POST node
    a node without pods for `idle` seconds ──> taint ToBeDeletedByClusterAutoscaler ──> DELETE, if it is still empty

It is an ordinary client of the API: it watches pods and nodes, writes nodes and events, and has its own user and
role. Like Cluster Autoscaler and Karpenter, it ignores conditions with other reasons (`SchedulingGated`,
`QueueFull`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import orjson

from .auth.identity import AUTHENTICATED, User, account_groups, account_name
from .controllers import Controller
from .handlers import Api
from .kubelet_admission import NodeBook, demand_of
from .node_groups import NODE_GROUP, NodeGroup
from .requests import Answer, Request, Response, Stream
from .resource import Object
from .scale_up import Bin, NewNode, Pending, is_unschedulable, pending, scale_up, template
from .times import clock_text

TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
_COMPONENT: Final = "cluster-autoscaler"
_NAMESPACE: Final = "kube-system"
USER: Final = User(account_name(_NAMESPACE, _COMPONENT), groups=(*account_groups(_NAMESPACE), AUTHENTICATED))

#: The interval of scans of pending pods in seconds, so that a burst of pods is decided together.
SCAN_SECONDS: Final = 1.0
#: Seconds between taint and deletion, in which pods that were being bound to the node arrive.
_DRAIN_SECONDS: Final = 2.0
_FINAL: Final = ("Succeeded", "Failed")
_BITE: Final = 256 * 1024
_RULES: Final = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)


def install_role(api: Api) -> None:
    """Create the service account's role with the permissions that the autoscaler uses."""
    rbac, kind = "rbac.authorization.k8s.io", "ClusterRole"
    named = {"metadata": {"name": _COMPONENT}}
    api.create((rbac, "clusterroles"), {**named, "rules": list(_RULES)})
    subject = {"kind": "ServiceAccount", "name": _COMPONENT, "namespace": _NAMESPACE}
    role = {"apiGroup": rbac, "kind": kind, "name": _COMPONENT}
    api.create((rbac, "clusterrolebindings"), {**named, "roleRef": role, "subjects": [subject]})


@dataclass(slots=True)
class _ExistingNode:
    """An existing node."""

    seen: Object
    #: The group that created it; empty for other nodes.
    group: str
    was_ready: bool = False
    #: The time when the last pod left it, or when it was created.
    empty_since: float = 0.0
    #: The time of its deletion if it stays empty.
    deleted_at: float = inf


@dataclass(slots=True)
class _Picture:
    """The state observed by the watches.

    Invariant: a running or pending pod that is bound or nominated to a node is in that node's book; an unschedulable
    pod is in `waiting`.
    """

    nodes: dict[str, _ExistingNode] = field(default_factory=dict)
    books: dict[str, NodeBook] = field(default_factory=dict)
    #: The node whose book has the pod, by the pod's UID.
    places: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, Pending] = field(default_factory=dict)


class Autoscaler(Controller):
    """The autoscaler of one server. It owns the upcoming nodes."""

    def __init__(
        self, api: Api, groups: Sequence[NodeGroup], *, authorization: str | None = None, kubelets: bool = True
    ) -> None:
        """Create the autoscaler, which opens its watches at the first `advance`.

        `authorization` is the header of its requests, if the server authenticates. With `kubelets`, its nodes get
        simulated kubelets.
        """
        self._api = api
        self._groups = groups
        self._by_name = {group.name: group for group in groups}
        self._authorization = authorization
        self._kubelets = kubelets
        self._picture = _Picture()
        self._watches: tuple[Stream, Stream] | None = None
        #: The upcoming nodes: creation time and group, unordered.
        self._upcoming: list[tuple[float, NodeGroup]] = []
        self._numbers: Counter[str] = Counter()
        #: Nodes that pending pods are expected to use, as of the last scan.
        self._awaited: set[str] = set()
        #: The time of the next scan; infinite if nothing has changed.
        self._scan_at = 0.0
        self._scanned_at = -inf
        #: Writes that wait for webhooks.
        self._asked: set[asyncio.Future[Response]] = set()

    # -- the API

    def _ask(self, method: str, path: str, body: Object | None = None, *, kind: str = "json") -> Answer | Stream:
        path, _, query = path.partition("?")
        request = Request(
            method,
            path,
            query,
            body=b"" if body is None else orjson.dumps(body),
            content_type="" if body is None else f"application/{kind}",
            authorization=self._authorization,
        )
        return self._api.handle(request)

    def _write(self, method: str, path: str, body: Object, *, kind: str = "json") -> int:
        """Return the status of the response.

        202 if webhooks have to be called first, whose outcome the watch delivers.
        """
        answer = self._ask(method, path, body, kind=kind)
        assert not isinstance(answer, Stream)
        if isinstance(answer, Response):
            return answer.status
        asked = asyncio.ensure_future(answer)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        return 202

    def _watch(self) -> tuple[Stream, Stream] | None:
        """Open watches that begin with the existing objects; None if any is refused."""
        opened: list[Stream] = []
        for kind in ("nodes", "pods"):
            answer = self._ask("GET", f"/api/v1/{kind}?watch=true")
            if not isinstance(answer, Stream):
                for stream in opened:
                    stream.watcher.close()
                return None
            answer.watcher.wake = self.wake
            opened.append(answer)
        nodes, pods = opened
        return nodes, pods

    def close(self) -> None:
        """Close the watches. The next `advance` opens new ones."""
        for stream in self._watches or ():
            stream.watcher.close()
        self._watches = None

    def _see(self) -> bool:
        """Apply pending watch events. Returns false if there are no watches."""
        if self._watches is not None and any(stream.watcher.drained for stream in self._watches):
            self.close()
        if self._watches is None:
            self._picture = _Picture()
            self._watches = self._watch()
            if self._watches is None:
                return False
        for stream, see in zip(self._watches, (self._see_node, self._see_pod), strict=True):
            stream.watcher.wake = self.wake
            while lines := stream.watcher.take(_BITE):
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] != "ERROR":
                        see(event["type"], event["object"])
        return True

    # -- state

    def _now(self) -> float:
        return self._api.store.clock()

    def _scan_soon(self) -> None:
        self._scan_at = min(self._scan_at, self._scanned_at + SCAN_SECONDS)

    def _see_node(self, change: str, node: Object) -> None:
        picture, name = self._picture, node["metadata"]["name"]
        self._scan_soon()
        known = picture.nodes.get(name)
        if change == "DELETED":
            picture.nodes.pop(name, None)
            book = picture.books.get(name)
            if book is not None and not book.pods:
                del picture.books[name]
            return
        if known is None or known.seen["metadata"]["uid"] != node["metadata"]["uid"]:
            group = (node["metadata"].get("labels") or {}).get(NODE_GROUP, "")
            known = picture.nodes[name] = _ExistingNode(node, group, empty_since=self._now())
        known.seen = node
        known.was_ready = known.was_ready or _is_ready(node)
        picture.books.setdefault(name, NodeBook()).resize(node)

    def _see_pod(self, change: str, pod: Object) -> None:
        picture, uid = self._picture, pod["metadata"]["uid"]
        status = pod.get("status") or {}
        node = pod["spec"].get("nodeName") or status.get("nominatedNodeName") or ""
        if change == "DELETED" or status.get("phase") in _FINAL:
            node = ""
        before = picture.places.pop(uid, "")
        if before:
            picture.books[before].release(uid)
            self._touch(before)
        if node:
            picture.places[uid] = node
            picture.books.setdefault(node, NodeBook()).hold(uid, demand_of(pod))
            self._touch(node)
        waited = picture.waiting.pop(uid, None) is not None
        if change != "DELETED" and is_unschedulable(pod):
            picture.waiting[uid] = pending(pod)
        if node != before or waited or uid in picture.waiting:
            self._scan_soon()

    def _touch(self, name: str) -> None:
        """Note that the node's pods changed."""
        node = self._picture.nodes.get(name)
        if node is not None:
            node.empty_since = self._now()

    # -- decisions

    def advance(self, *, most: int = 64) -> float | None:
        """Do everything that is due. `most` is ignored, because one decision is about all pending pods."""
        if not self._see():
            return self._now() + SCAN_SECONDS
        now = self._now()
        if any(due <= now for due, _ in self._upcoming):
            self._make_nodes(now)
            self._see()
        if self._scan_at <= now:
            self._scan_at, self._scanned_at = inf, now
            self._scale_up(now)
        leaving = self._scale_down(now)
        return min(self._scan_at, leaving, *(due for due, _ in self._upcoming), inf)

    def _make_nodes(self, now: float) -> None:
        due = [group for at, group in self._upcoming if at <= now]
        self._upcoming = [each for each in self._upcoming if each[0] > now]
        for group in due:
            status = 409
            while status == 409:
                self._numbers[group.name] += 1
                made = group.node(self._numbers[group.name], kubelets=self._kubelets)
                status = self._write("POST", "/api/v1/nodes", made)
        self._scan_soon()

    def _bins(self) -> list[Bin]:
        """Return the bins for pods: schedulable nodes, and upcoming ones with the shape of their group."""
        found = []
        for name, node in self._picture.nodes.items():
            spec = node.seen.get("spec") or {}
            book, group = self._picture.books[name], self._by_name.get(node.group)
            if node.deleted_at != inf or spec.get("unschedulable"):
                continue
            if not node.was_ready and group is not None:
                # Its kubelet has not reported yet; assume the shape of its group.
                found.append(Bin(name, group.labels_of(name), group.taints, book))
            else:
                labels = node.seen["metadata"].get("labels") or {}
                found.append(Bin(name, labels, spec.get("taints") or (), book))
        return [*found, *(template(group) for _, group in self._upcoming)]

    def _scale_up(self, now: float) -> None:
        picture = self._picture
        if not picture.waiting:
            self._awaited = set()
            return
        sizes = Counter(node.group for node in picture.nodes.values())
        sizes.update(group.name for _, group in self._upcoming)
        decided = scale_up(picture.waiting.values(), self._bins(), self._groups, sizes)
        self._awaited = decided.used
        for each in decided.new:
            self._upcoming.append((now + each.group.delay, each.group))
            for pod in each.pods:
                self._tell(pod, each)

    def _tell(self, pod: Pending, new: NewNode) -> None:
        group, now = new.group, clock_text(self._now())
        event: dict[str, Any] = {
            "metadata": {"name": f"{pod.name[:216]}.{self._api.store.uid()}", "namespace": pod.namespace},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "reason": "TriggeredScaleUp",
            "message": f"pod triggered scale-up: [{{{group.name} {new.size - 1}->{new.size} (max: {group.most})}}]",
            "type": "Normal",
            "source": {"component": _COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
        }
        # Events are best effort, because the namespace may be terminating.
        self._write("POST", f"/api/v1/namespaces/{pod.namespace}/events", event)

    def _scale_down(self, now: float) -> float:
        """Taint and delete empty nodes; return the time of the next check."""
        again = inf
        for name, node in [*self._picture.nodes.items()]:
            group = self._by_name.get(node.group)
            if group is None:
                continue
            if name in self._awaited:
                node.empty_since = now
            empty, stays = not self._picture.books[name].pods, now - node.empty_since < group.idle
            if node.deleted_at == inf:
                if empty and stays:
                    again = min(again, node.empty_since + group.idle)
                elif empty:
                    node.deleted_at = now + _DRAIN_SECONDS
                    self._taint(node, leaves=True)
                    again = min(again, node.deleted_at)
            elif not empty:
                node.deleted_at = inf
                self._taint(node, leaves=False)
                self._scan_soon()
                again = min(again, self._scan_at)
            elif now >= node.deleted_at:
                options = {"preconditions": {"uid": node.seen["metadata"]["uid"]}}
                if self._write("DELETE", f"/api/v1/nodes/{name}", options) not in (200, 404):
                    node.deleted_at = now + _DRAIN_SECONDS
                    again = min(again, node.deleted_at)
            else:
                again = min(again, node.deleted_at)
        return again

    def _taint(self, node: _ExistingNode, *, leaves: bool) -> None:
        """Add or remove the deletion taint. On a conflict, the next scan retries before anything is deleted."""
        spec = node.seen.get("spec") or {}
        taints = [taint for taint in spec.get("taints") or () if taint["key"] != TO_BE_DELETED]
        if leaves:
            taints.append({"key": TO_BE_DELETED, "value": str(int(self._now())), "effect": "NoSchedule"})
        metadata = node.seen["metadata"]
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": taints},
        }
        self._write("PATCH", f"/api/v1/nodes/{metadata['name']}", body, kind="merge-patch+json")


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
