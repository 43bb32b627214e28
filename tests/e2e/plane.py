"""A test's client of the control plane: the embedded one, or a bare kube-apiserver with etcd.

All objects are created for one test and carry its label, so that they are independent of other nodes and pods of the
cluster: pods ask for nodes of their test by nodeSelector. No kubelets or controllers are needed, and they do not
disturb the tests.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from apimachinery.quantity import resource_value
from kube_client.transport import Transport
from tests.support import objects
from tests.support.client import STRATEGIC, Client
from tests.support.picture import Object, Picture

#: Label of all objects that a test creates; its value is the test's id.
OF = "e2e.agent-scheduler/of"
#: kube-scheduler's messages.
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"

#: # A real control plane may taint nodes without a kubelet.
_NO_KUBELET = [
    {"key": f"node.kubernetes.io/{problem}", "operator": "Exists"} for problem in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the suite against one control plane."""

    #: A file with an administrator's rights.
    kubeconfig: Path
    embedded: bool
    id: str
    #: The file of the schedulers under test, with exactly the rights that the manifests give the scheduler; on a
    #: cluster that is not embedded, the administrator's.
    schedulers: Path

    @property
    def namespace(self) -> str:
        return f"agent-scheduler-e2e-{self.id}"

    @property
    def scheduler_name(self) -> str:
        """Name of the scheduler that all tests share; unique, so that another scheduler of the cluster ignores it."""
        return f"e2e-{self.id}"


def container(
    *,
    cpu: str = "100m",
    memory: str = "16Mi",
    more: Mapping[str, str] | None = None,
    name: str = "c",
    ports: list[Object] | None = None,
) -> Object:
    """Return a container; `more` has extended resources, which cannot be overcommitted: limits equal requests."""
    requests = {"cpu": cpu, "memory": memory, **(more or {})}
    return objects.container(name, requests=requests, limits=more or None, ports=ports or ())


class ControlPlane(Client):
    """A user with admin rights, for one test. Names are short ones, to which the test's id is added on the server."""

    patient = True

    def __init__(self, transport: Transport, run: Run, test: str) -> None:
        super().__init__(transport)
        self.run = run
        self.test = test
        self.namespace = run.namespace
        #: The scheduler of pods that name no other.
        self.scheduler_name = run.scheduler_name
        self.pods = Picture(transport, f"/api/v1/namespaces/{run.namespace}/pods", {"labelSelector": f"{OF}={test}"})
        self.events = Picture(transport, f"/api/v1/namespaces/{run.namespace}/events")

    # ---- names

    @property
    def selector(self) -> str:
        """The label selector of this test's objects, as a query's value."""
        return quote(f"{OF}={self.test}", safe="")

    def full(self, name: str) -> str:
        return f"{name}-{self.test}"

    def short(self, name: str) -> str:
        return name.removesuffix(f"-{self.test}")

    def pod_path(self, name: str, subresource: str = "") -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.full(name)}"
        return f"{path}/{subresource}" if subresource else path

    # ---- nodes

    async def add_node(
        self,
        name: str,
        *,
        cpu: str = "4",
        memory: str = "8Gi",
        pods: str = "110",
        more: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: list[Object] | None = None,
        unschedulable: bool = False,
    ) -> None:
        """Create a node of this test; `more` has extended resources."""
        wanted = taints or []
        spec: Object = {"taints": wanted} if wanted else {}
        if unschedulable:
            spec["unschedulable"] = True
        marks = {OF: self.test, **(labels or {})}
        amounts = {"cpu": cpu, "memory": memory, "pods": pods}
        body = objects.node(self.full(name), **amounts, extended=more, labels=marks, ready=True, **spec)
        status, amounts = body["status"], body["status"]["allocatable"]
        node = await self.ask("POST", "/api/v1/nodes", body)
        if (node.get("status") or {}).get("allocatable") != amounts:
            await self.change_node_status(name, status)
        # Admission taints cordoned nodes and nodes that no kubelet has reported as ready.
        if (node["spec"].get("taints") or []) != wanted:
            await self.change_node(name, {"spec": {"taints": wanted or None}})

    async def change_node(self, name: str, change: Object) -> None:
        """Apply a merge patch to a node."""
        await self.merge(f"/api/v1/nodes/{self.full(name)}", change)

    async def change_node_status(self, name: str, status: Object) -> None:
        await self.patch(f"/api/v1/nodes/{self.full(name)}/status", {"status": status}, STRATEGIC)

    # ---- pods

    def pod(
        self,
        name: str,
        *,
        cpu: str = "100m",
        memory: str = "16Mi",
        scheduler_name: str | None = None,
        select: Mapping[str, str] | None = None,
        tolerations: Iterable[Object] = (),
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """Return a manifest: one container unless `containers` is given; `select` has further node labels."""
        about = {"namespace": self.namespace, "labels": {OF: self.test, **(labels or {})}}
        usual = {
            "schedulerName": scheduler_name or self.scheduler_name,
            "containers": [container(cpu=cpu, memory=memory)],
            "nodeSelector": {OF: self.test, **(select or {})},
            "tolerations": [*_NO_KUBELET, *tolerations],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }
        return objects.make("Pod", "v1", self.full(name), {**about, **usual, **spec})

    async def add_pod(self, name: str, **pod: Any) -> Object:
        """Create `pod(name, ...)` and return the object as the server answered it."""
        made: Object = await self.ask("POST", f"/api/v1/namespaces/{self.namespace}/pods", self.pod(name, **pod))
        return made

    async def add_pods(self, names: Iterable[str], **pod: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(self.add_pod(name, **pod))

    async def delete_pod(self, name: str) -> None:
        # The deletion of a bound pod otherwise waits for a kubelet.
        await self.ask("DELETE", self.pod_path(name), {"gracePeriodSeconds": 0, **_DELETE_OPTIONS})

    def placed(self) -> dict[str, str]:
        """Return pod -> node of the pods that have one."""
        return {
            self.short(pod["metadata"]["name"]): self.short(pod["spec"]["nodeName"])
            for pod in self.pods.objects.values()
            if pod["spec"].get("nodeName")
        }

    def condition(self, name: str) -> Object | None:
        """Return the PodScheduled condition of a pod."""
        pod = self.pods.named(self.full(name)) or {}
        conditions = (pod.get("status") or {}).get("conditions") or []
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)

    async def bound(self, *names: str) -> dict[str, str]:
        """Return `placed()`, once all of these pods are placed."""
        await self.pods.until(
            lambda: self.placed().keys() >= set(names), f"{len(names)} pods on nodes: {', '.join(names[:10])}"
        )
        return self.placed()

    async def refused(self, name: str, *, message: str | None = None) -> str:
        """Return the message of a pod's refusal, once it is refused (with exactly this `message`, if given).

        The text about preemption is left out.
        """

        def told() -> str:
            condition = self.condition(name) or {}
            if condition.get("status") != "False" or condition.get("reason") != "Unschedulable":
                return ""
            said = without_preemption(str(condition["message"]))
            return said if message in (None, said) else ""

        return await self.pods.until(told, f"the refusal of {name}, {message or 'whatever it says'}")

    def assert_never_moved(self) -> None:
        """Assert that each pod of this test had at most one node in all states that were seen."""
        nodes: dict[str, set[str]] = {}
        for pod in self.pods.history:
            if pod["spec"].get("nodeName"):
                nodes.setdefault(pod["metadata"]["uid"], set()).add(pod["spec"]["nodeName"])
        assert all(len(each) == 1 for each in nodes.values()), nodes

    async def fit_error(self, reasons: Mapping[str, int]) -> str:
        """Return kube-scheduler's message if this test's nodes refuse for `reasons` (node counts).

        Each other node of the cluster refuses for the first reason that applies to it, at last the selector.
        """
        counts = dict(reasons)
        nodes = (await self.ask("GET", "/api/v1/nodes"))["items"]
        for node in nodes:
            if node["metadata"].get("labels", {}).get(OF) == self.test:
                continue
            taints = [taint for taint in node["spec"].get("taints") or () if _refuses(taint)]
            if node["spec"].get("unschedulable"):
                reason = CORDONED
            else:
                reason = TAINTED if taints else AFFINITY
            counts[reason] = counts.get(reason, 0) + 1
        told = sorted(f"{count} {reason}" for reason, count in counts.items())
        return f"0/{len(nodes)} nodes are available: {', '.join(told)}."

    async def assert_no_node_is_over(self) -> None:
        """Assert by the API's own objects that the pods of no node exceed its allocatable."""
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in await self.items("/api/v1/pods"):
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                node = used[pod["spec"]["nodeName"]]
                node["pods"] += 1
                for each in pod["spec"]["containers"]:
                    for resource, amount in (each.get("resources") or {}).get("requests", {}).items():
                        node[resource] += resource_value(resource, amount)
        for node in await self.items("/api/v1/nodes"):
            amounts = node["status"]["allocatable"]
            for resource, amount in used[node["metadata"]["name"]].items():
                assert amount <= resource_value(resource, amounts.get(resource, "0")), (node, resource)

    # ---- events

    def told(self, name: str, reason: str) -> list[Object]:
        """Return the events about a pod with this reason, oldest first. `events` must be followed."""
        found = [
            event
            for event in self.events.objects.values()
            if event["involvedObject"].get("name") == self.full(name) and event["reason"] == reason
        ]
        return sorted(found, key=lambda event: str(event.get("eventTime") or event.get("firstTimestamp")))

    async def event(self, name: str, reason: str) -> Object:
        events = await self.events.until(lambda: self.told(name, reason), f"a {reason} event of {name}")
        return events[-1]

    # ---- end of the test

    async def clean_up(self) -> None:
        """Delete all objects of this test: pods before their nodes."""
        of = f"labelSelector={self.selector}"
        at_once = {"gracePeriodSeconds": 0, **_DELETE_OPTIONS}
        await self.ask("DELETE", f"/api/v1/namespaces/{self.namespace}/pods?{of}", at_once)
        await self.ask("DELETE", f"/api/v1/nodes?{of}", at_once)


_DELETE_OPTIONS: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}


def without_preemption(message: str) -> str:
    """Return a refusal without the text about preemption."""
    return message.partition(" no new claims to deallocate, ")[0]


def _refuses(taint: Mapping[str, str]) -> bool:
    tolerated = any(toleration["key"] == taint["key"] for toleration in _NO_KUBELET)
    return taint["effect"] in ("NoSchedule", "NoExecute") and not tolerated
