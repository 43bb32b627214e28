"""An embedded cluster in the test's own process: over real HTTP or, in virtual time, without sockets."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any
from uuid import UUID

from embedded_kubernetes import kubelet
from embedded_kubernetes.auth.identity import User, account_groups, account_name
from embedded_kubernetes.auth.options import ADMIN, Options
from embedded_kubernetes.autoscaler import Autoscaler
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.controllers import Controller, run
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door
from embedded_kubernetes.node_groups import read_rules
from embedded_kubernetes.requests import Disturbance, Request
from embedded_kubernetes.resource import Resource
from embedded_kubernetes.server import Server
from embedded_kubernetes.store import Store
from kube_client.http1 import Http1Transport
from kube_client.testing.virtual import is_virtual, time_of_day, timing
from kube_client.transport import Endpoint, Transport
from tests.support import objects
from tests.support.client import MERGE as MERGE
from tests.support.client import STRATEGIC as STRATEGIC
from tests.support.client import Client
from tests.support.client import until as until
from tests.support.in_process import InProcessTransport
from tests.support.kustomize import render
from tests.support.places import CONFIG

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
#: The namespace of the installed components.
NAMESPACE = "agent-scheduler"
_RBAC = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
#: Kinds that limit the rights of roles -> their plurals.
_POLICIES = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


class EmbeddedCluster(Client):
    """A client of the API server `api`, with assertions about its objects."""

    def __init__(self, api: Api, transport: Transport, server: Server | None = None) -> None:
        super().__init__(transport)
        self.api = api
        self._server = server

    @property
    def has_roles(self) -> bool:
        """Whether the server enforces authorization."""
        return self.api.access.authenticator is not None

    @property
    def server(self) -> Server:
        assert self._server is not None, "in virtual time there is no server"
        return self._server

    def another_transport(self) -> InProcessTransport:
        """Return a separate transport for a process, in virtual time: its watches can fall silent independently."""
        assert isinstance(self.transport, InProcessTransport)
        return self.transport.another()

    def of_account(self, name: str) -> EmbeddedCluster:
        """Return the cluster as seen by a component with its own roles."""
        assert isinstance(self.transport, InProcessTransport)
        return EmbeddedCluster(self.api, self.transport.another(name))

    def way(self, transport: Transport | None = None, account: str = "") -> dict[str, Any]:
        """Return arguments of `SchedulerProcess` that connect a process to this cluster, or through `transport`.

        `account` is the ServiceAccount of the process if roles are installed.
        """
        if account and transport is None:
            transport = self.of_account(account).transport
        if self._server is None:
            return {"transport": transport or self.transport, "timing": timing()}
        return {"endpoint": Endpoint(self._server.url)} if transport is None else {"transport": transport}

    async def add_node(self, name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **spec: Any) -> Any:
        labels = spec.pop("labels", {})
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        status = {"allocatable": allocatable, "capacity": allocatable}
        about = {"name": name, "labels": labels}
        return await self.add(NODES, {"metadata": about, "spec": spec, "status": status})

    async def add_pod(
        self,
        name: str,
        *,
        cpu: str = "100m",
        scheduler: str = "agent-scheduler",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Any:
        body = objects.pod(name, cpu=cpu, memory="16Mi", scheduler=scheduler, labels=labels or {}, **spec)
        return await self.add(PODS, body)

    async def pods(self) -> dict[str, Any]:
        """Return the pods of the default namespace, by name."""
        return {pod["metadata"]["name"]: pod for pod in await self.items(PODS)}

    async def placed(self) -> dict[str, str]:
        """Return the node of each pod that has one, by the pod's name."""
        return {
            name: pod["spec"]["nodeName"] for name, pod in (await self.pods()).items() if pod["spec"].get("nodeName")
        }

    async def bind(self, pod: str, node: str) -> None:
        target = {"kind": "Node", "name": node}
        await self.add(f"{PODS}/{pod}/binding", {"metadata": {"name": pod}, "target": target})

    async def all_placed(self, number: int) -> dict[str, str] | None:
        """Return `placed` if `number` pods have a node; None otherwise."""
        found = await self.placed()
        return found if len(found) == number else None

    async def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("GET", f"{PODS}/{name}")
        return found

    async def leaving(self) -> set[str]:
        """Return the names of the pods that are being deleted."""
        return {name for name, pod in (await self.pods()).items() if pod["metadata"].get("deletionTimestamp")}

    async def says_text(self, name: str, *texts: str) -> bool:
        """Return whether the reason and message of the pod's PodScheduled condition contain these texts."""
        found = await self.condition(name) or {}
        told = f"{found.get('reason')}: {found.get('message')}"
        return all(text in told for text in texts)

    async def condition(self, name: str) -> dict[str, Any] | None:
        """Return the PodScheduled condition of a pod."""
        pod = await self.get(f"{PODS}/{name}")
        conditions = pod["status"].get("conditions") or []
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)

    async def says(self, name: str, reason: str) -> Any:
        """Return the condition of a pod if it has this reason."""
        found = await self.condition(name)
        return found if found is not None and found["reason"] == reason else None

    async def is_bound(self, *names: str) -> bool:
        return set(names) <= (await self.placed()).keys()

    async def only_placed(self, *names: str) -> bool:
        """Return whether exactly these pods have nodes."""
        return set(names) == (await self.placed()).keys()

    async def has_placed(self, prefix: str, number: int) -> bool:
        return await self.count_placed(prefix) == number

    async def count_placed(self, prefix: str) -> int:
        return sum(each.startswith(prefix) for each in await self.placed())

    async def add_priorities(self, **values: int) -> None:
        """Add a PriorityClass for each value."""
        for name, value in values.items():
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await self.add(path, {"metadata": {"name": name}, "value": value})


def forbids(path: str, when: Callable[[], bool] = lambda: True) -> Callable[[Request], Disturbance | None]:
    """Return a `disturb` hook that forbids reading `path`."""

    def disturb(request: Request) -> Disturbance | None:
        refused = request.path == path and when()
        return Disturbance(error=ApiError(403, "Forbidden", "no")) if refused else None

    return disturb


@functools.cache
def roles(component: str) -> list[Any]:
    """Return the roles and bindings that `kubectl apply -k config/COMPONENT` installs; callers must not modify them."""
    return [each for each in render(CONFIG / component) if each["kind"] in _RBAC]


@functools.cache
def policies(component: str) -> list[Any]:
    """Return the policies of admission that it installs, with their bindings; callers must not modify them."""
    return [each for each in render(CONFIG / component) if each["kind"] in _POLICIES]


def _options(components: Collection[str]) -> Options | None:
    """Return options with authorization by roles, where a component's token is the name of its account.

    The administrator needs no role.
    """
    accounts = {
        subject["name"]: User(account_name(NAMESPACE, subject["name"]), groups=account_groups(NAMESPACE))
        for component in components
        for each in roles(component)
        for subject in each.get("subjects") or ()
    }
    return Options(rbac=True, tokens={ADMIN.name: ADMIN, **accounts}, anonymous=False) if accounts else None


@asynccontextmanager
async def embedded_cluster(
    *,
    kubelets: bool = False,
    controllers: bool = True,
    autoscaler: Sequence[str] = (),
    kinds: Iterable[Resource] = BUILTIN,
    components: Collection[str] = (),
    **server: Any,
) -> AsyncIterator[EmbeddedCluster]:
    """Start a cluster; `server` are options of `Server`, in virtual time only `disturb`.

    With `kubelets`, bound pods run and end as in `agent-scheduler cluster`. `autoscaler` has the rules of its node
    groups. With `components`, the server enforces their installed roles and policies, in virtual time.
    """
    numbers = itertools.count(1)
    clock = time_of_day if is_virtual() else time.time
    # UIDs are not in the order of creation, as on a real API server.
    store = Store(clock=clock, uid=lambda: str(UUID(int=Random(next(numbers)).getrandbits(128), version=4)))
    api = Api(store, kinds, controllers=controllers, auth=_options(components))
    if components:
        api.create(("", "namespaces"), {"metadata": {"name": NAMESPACE}})
    for each in (role for component in components for role in roles(component)):
        api.create(("rbac.authorization.k8s.io", f"{each['kind'].lower()}s"), each)
    for each in (policy for component in components for policy in policies(component)):
        api.create(("admissionregistration.k8s.io", _POLICIES[each["kind"]]), each)
    played: list[Controller] = [kubelet.Kubelets(store)] if kubelets else []
    if autoscaler:
        asks_as = f"Bearer {ADMIN.name}" if components else None
        played.append(Autoscaler(api, read_rules(autoscaler), authorization=asks_as, kubelets=kubelets))
    playing = [asyncio.create_task(run(each, clock=clock)) for each in played]
    try:
        if is_virtual():
            door = Door(api, **server)
            try:
                token = ADMIN.name if components else ""
                yield EmbeddedCluster(api, InProcessTransport(door, latency=0.001, token=token))
            finally:
                door.close()
            return
        async with Server(api, **server) as listening:
            transport = Http1Transport(Endpoint(listening.url))
            try:
                yield EmbeddedCluster(api, transport, listening)
            finally:
                await transport.close()
    finally:
        for each in playing:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each
