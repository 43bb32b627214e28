"""The place of a run: a transport to an API server, a namespace of its own, and nodes.

Everything that is created here has the benchmark's label and is removed again, however a run ends; `clean` also removes
what a killed run left.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import quote

import yaml

from agent_scheduler.objects.batch import DEFAULT_QUEUE, QUEUES, ROOT_QUEUE, pod_groups, queue_path
from apimachinery.quantity import resource_value
from kube_client.errors import RequestFailed
from kube_client.transport import Transport, TransportError

from . import manifests
from .audit import fetch, pod_amounts
from .manifest_files import manifest_file
from .measure import Meter
from .model import Case
from .requests import NOW, ask, create_all, retry

RESOURCE = "/apis/resource.k8s.io/v1"
NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: Cluster-scoped collections whose objects with the benchmark's label are removed, without namespaces.
_CLUSTER_WIDE = (PRIORITY_CLASSES, f"{RESOURCE}/deviceclasses", f"{RESOURCE}/resourceslices", QUEUES, NODES)
#: The CRDs of the batch scheduler.
BATCH_KINDS = ("crd/scheduling.volcano.sh_queues.yaml", "crd/scheduling.volcano.sh_podgroups.yaml")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MARKED = quote(f"{manifests.MARK}=true")
#: Maximum deletions of one collection before it is left to the administrator.
_ROUNDS = 300
_FINAL = ("Succeeded", "Failed")


class Site(Protocol):
    """The place of a run, as `run` needs it."""

    transport: Transport
    scheduler_name: str
    meter: Meter

    @property
    def selector(self) -> dict[str, str] | None:
        """The labels of the nodes for the pods; None if all nodes are the benchmark's."""
        ...

    @property
    def ours(self) -> bool:
        """Whether cluster and scheduler were started for this run.

        Then pods can exist before the scheduler, it can be stopped, and nothing must be removed.
        """
        ...

    @property
    def kubelets(self) -> bool:
        """Whether simulated kubelets end pods whose life is over; otherwise the load deletes them."""
        ...

    @property
    def all_events(self) -> bool:
        """Whether the scheduler writes an event of every bind, without a limit: then the run waits for them."""
        ...

    async def start_scheduler(self) -> None:
        """Start the scheduler if it does not run, and return once it is ready."""
        ...

    async def stop_scheduler(self) -> None: ...

    async def died(self) -> None:
        """Wait until a process of the site ends by itself, and raise ProcessError."""
        ...


@asynccontextmanager
async def prepared(site: Site, case: Case) -> AsyncIterator[str]:
    """Create what the case's pods need besides nodes; yield the namespace's name; remove everything at the end."""
    transport = site.transport
    namespace = f"agent-scheduler-bench-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace"}
    body |= {"metadata": {"name": namespace, "labels": manifests.MARKED}}  # type: ignore[dict-item]
    try:
        await retry(transport, "POST", NAMESPACES, manifests.encode(body))
        account = {"metadata": {"name": "default"}}
        await retry(
            transport, "POST", f"{NAMESPACES}/{namespace}/serviceaccounts", manifests.encode(account), ignore=409
        )
        for priority in manifests.priority_classes():
            await retry(transport, "POST", PRIORITY_CLASSES, manifests.encode(priority), ignore=409)
        if case.tuning.batch is not None:
            await open_queues(transport, case.queues)
        if case.nodes.devices:
            await _offer_devices(site, case, namespace)
        yield namespace
    finally:
        if not site.ours:
            await shielded(_remove(transport, namespace))


async def open_queues(transport: Transport, queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Create the missing CRDs of the batch scheduler, the root queue, the default queue, and queues with these specs.

    The queues are opened here, because no controller need run.
    """
    for name in BATCH_KINDS:
        body = manifests.encode(yaml.safe_load(manifest_file(name).read_text(encoding="utf-8")))
        await retry(transport, "POST", CRDS, body, ignore=409)
    await until_served(transport, QUEUES)
    for name, spec in {ROOT_QUEUE: {}, DEFAULT_QUEUE: {}, **queues}.items():
        await retry(transport, "POST", QUEUES, manifests.encode(manifests.queue(name, spec)), ignore=409)
        await retry(
            transport,
            "PATCH",
            f"{queue_path(name)}/status",
            b'{"status":{"state":"Open"}}',
            content_type="application/merge-patch+json",
        )


async def until_served(transport: Transport, path: str) -> None:
    """Return once the API server serves a new kind. Raises RequestFailed after 30 s."""
    for left in range(300, -1, -1):
        try:
            await ask(transport, "GET", f"{path}?limit=1")
        except RequestFailed:
            if not left:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def _offer_devices(site: Site, case: Case, namespace: str) -> None:
    transport = site.transport
    device_class = manifests.encode(manifests.device_class())
    await retry(transport, "POST", f"{RESOURCE}/deviceclasses", device_class, ignore=409)
    names = [node["metadata"]["name"] for node in await nodes_of(site)]
    slices = (manifests.encode(manifests.resource_slice(name, case.nodes.devices)) for name in names)
    await create_all(transport, f"{RESOURCE}/resourceslices", slices, ignore=409)
    if not case.template_last:
        await add_claim_template(transport, namespace)


async def add_claim_template(transport: Transport, namespace: str) -> None:
    template = manifests.encode(manifests.claim_template())
    await retry(transport, "POST", f"{RESOURCE}/namespaces/{namespace}/resourceclaimtemplates", template)


async def nodes_of(site: Site) -> list[dict[str, Any]]:
    """Return the nodes for the benchmark's pods."""
    wanted = site.selector or {}
    return [
        node
        for node in await fetch(site.transport, NODES)
        if all((node["metadata"].get("labels") or {}).get(key) == value for key, value in wanted.items())
        and not (node.get("spec") or {}).get("unschedulable")
    ]


async def free_of(site: Site) -> dict[str, dict[str, int]]:
    """Return what existing pods leave of each node's allocatable."""
    free = {
        node["metadata"]["name"]: {
            name: resource_value(name, amount)
            for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items()
        }
        for node in await nodes_of(site)
    }
    for pod in await fetch(site.transport, "/api/v1/pods"):
        left = free.get(pod["spec"].get("nodeName") or "")
        if left is not None and (pod.get("status") or {}).get("phase") not in _FINAL:
            for name, amount in pod_amounts(pod).items():
                left[name] = left.get(name, 0) - amount
    return free


async def shielded(work: Coroutine[Any, Any, None]) -> None:
    """Complete the work even if the task is canceled meanwhile, as by Ctrl-C; a second cancellation ends it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _remove(transport: Transport, namespace: str) -> None:
    """Remove the pods first, and everything else when they are gone: claims and priorities belong to them."""
    pods = f"{NAMESPACES}/{namespace}/pods"
    await _release_held(transport, pods)
    await remove_all(transport, pods)
    home = f"{NAMESPACES}/{namespace}"
    for kind in ("resourceclaimtemplates", "resourceclaims"):
        await _quietly(transport, "DELETE", f"{RESOURCE}/namespaces/{namespace}/{kind}")
    await remove_all(transport, pod_groups(namespace))
    for kind in ("events", "services", "configmaps", "serviceaccounts"):
        await _quietly(transport, "DELETE", f"{home}/{kind}")
    await _quietly(transport, "DELETE", home)
    await _finalize(transport, home)
    for path in _CLUSTER_WIDE:
        await remove_all(transport, f"{path}?labelSelector={_MARKED}")


async def _finalize(transport: Transport, home: str) -> None:
    """Finalize an empty namespace: on a control plane without controllers no other client does."""
    try:
        namespace = json.loads(await ask(transport, "GET", home))
    except RequestFailed:
        return
    namespace["spec"] = {"finalizers": []}
    await _quietly(transport, "PUT", f"{home}/finalize", manifests.encode(namespace))


async def remove_all(transport: Transport, path: str) -> None:
    """Delete a collection until it is empty: a server may stop half-way through a large one."""
    for _ in range(_ROUNDS):
        await _quietly(transport, "DELETE", path, NOW)
        if not await _items(transport, f"{path}{'&' if '?' in path else '?'}limit=1"):
            return
        await asyncio.sleep(0.2)


async def _release_held(transport: Transport, pods: str) -> None:
    """Remove the finalizers that a scenario has put on pods."""
    held: Iterable[Mapping[str, Any]] = await _items(transport, f"{pods}?labelSelector={quote('held=true')}")
    for pod in held:
        await _quietly(
            transport,
            "PATCH",
            f"{pods}/{pod['metadata']['name']}",
            b'{"metadata":{"finalizers":null}}',
            content_type="application/merge-patch+json",
        )


async def clean(transport: Transport) -> list[str]:
    """Remove everything that any run has left on the cluster; return the namespaces."""
    found = [item["metadata"]["name"] for item in await _items(transport, f"{NAMESPACES}?labelSelector={_MARKED}")]
    for namespace in found:
        await _remove(transport, namespace)
    for path in _CLUSTER_WIDE:
        await remove_all(transport, f"{path}?labelSelector={_MARKED}")
    return found


async def _items(transport: Transport, path: str) -> list[dict[str, Any]]:
    try:
        body = json.loads(await ask(transport, "GET", path))
    except RequestFailed:
        return []
    items: list[dict[str, Any]] = body.get("items") or []
    return items


async def _quietly(
    transport: Transport, method: str, path: str, body: bytes | None = None, *, content_type: str = "application/json"
) -> None:
    """Send a request and ignore its failure, so that the rest is removed, too."""
    try:
        await transport.request(method, path, body=body, content_type=content_type, timeout=120.0)
    except TransportError:
        # A server that has ended has nothing left.
        return
