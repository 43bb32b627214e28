"""A kopf operator runs against the cluster: its resource, handlers, objects, events and finalizer.

The operator keeps a ConfigMap for each `Site`. It runs in the test's own event loop and logs in with the token of a
service account that has only the rights that RBAC grants it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf

from embedded_kubernetes import EmbeddedCluster

MANIFESTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: sites, singular: site, kind: Site, listKind: SiteList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [title], properties: {title: {type: string, minLength: 1}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sites}
rules:
- {apiGroups: [example.com], resources: [sites, sites/status], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [configmaps], verbs: [create, patch, delete]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create]}
- {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sites}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sites}
subjects: [{kind: ServiceAccount, namespace: default, name: operator}]
"""
SITE = "apiVersion: example.com/v1\nkind: Site\nmetadata: {name: s}\nspec: {title: Hello}\n"
DEFAULT = "namespaces/default"
SITES, MAPS = f"/apis/example.com/v1/{DEFAULT}/sites", f"/api/v1/{DEFAULT}/configmaps"
EVENTS = f"/api/v1/{DEFAULT}/events"
MERGE = {"Content-Type": "application/merge-patch+json"}


class Client:
    """A client that sends requests with one token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self._session.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def until(self, path: str, holds: Callable[[int, Any], Any]) -> Any:
        """Return the object at `path` once `holds` is true of the answer. Fail after 60 seconds."""
        end = time.monotonic() + 60
        while not holds(*(found := await self.ask("GET", path))):
            assert time.monotonic() < end, found
            await asyncio.sleep(0.02)
        return found[1]


@asynccontextmanager
async def client(cluster: EmbeddedCluster, token: str) -> AsyncIterator[Client]:
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=cluster.authority))
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(cluster.url, connector=trust, headers=headers) as session:
        yield Client(session)


def operator_of(cluster: EmbeddedCluster, token: str, its: Client) -> kopf.OperatorRegistry:
    """Return the operator's handlers; `its` is the client with which they write ConfigMaps."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=cluster.url, ca_data=cluster.authority.encode(), token=token)

    @kopf.on.create("sites.example.com", id="create", registry=registry)
    async def create(spec: kopf.Spec, body: kopf.Body, name: str, **_: Any) -> dict[str, str]:
        page: dict[str, Any] = {"metadata": {"name": name}, "data": {"title": spec["title"]}}
        kopf.adopt(page, owner=body)
        status, made = await its.ask("POST", MAPS, page)
        assert status == 201, made
        kopf.info(body, reason="Published", message=spec["title"])
        return {"page": made["metadata"]["name"]}

    @kopf.on.update("sites.example.com", field="spec.title", id="update", registry=registry)
    async def rename(new: str, name: str, **_: Any) -> None:
        status, _answer = await its.ask("PATCH", f"{MAPS}/{name}", {"data": {"title": new}}, **MERGE)
        assert status == 200

    @kopf.on.delete("sites.example.com", id="delete", registry=registry)
    async def delete(name: str, **_: Any) -> None:
        await its.ask("DELETE", f"{MAPS}/{name}")

    return registry


@asynccontextmanager
async def running(registry: kopf.OperatorRegistry) -> AsyncIterator[None]:
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = kopf.OperatorSettings()
    settings.posting.loggers = False  # only the events that the handlers write themselves
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=["default"],
            standalone=True,
            stop_flag=stop,
            ready_flag=ready,
        )
    )
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        yield
    finally:
        stop.set()
        await operator


async def test_an_operator_follows_a_resource_from_its_creation_to_its_deletion() -> None:
    async with EmbeddedCluster(authorization_mode="RBAC") as cluster:
        cluster.apply(MANIFESTS)
        token = cluster.service_account_token("operator")
        async with (
            client(cluster, cluster.token) as ours,
            client(cluster, token) as its,
            running(operator_of(cluster, token, its)),
        ):
            await play(cluster, ours)
        assert [(asked.by, asked.uri) for asked in cluster.requests if asked.code == 403] == []


async def play(cluster: EmbeddedCluster, ours: Client) -> None:
    """Change a site like an administrator and check the effects; `ours` is the administrator's client."""
    cluster.apply(SITE)
    made = await ours.until(f"{SITES}/s", lambda _, site: site.get("status", {}).get("create"))
    assert made["status"]["create"] == {"page": "s"}
    assert made["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    _, page = await ours.ask("GET", f"{MAPS}/s")
    assert page["data"] == {"title": "Hello"}
    assert page["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    await ours.until(EVENTS, lambda _, events: ("Published", "Hello") in map(said, events["items"]))

    await ours.ask("PATCH", f"{SITES}/s", {"spec": {"title": "Goodbye"}}, **MERGE)
    await ours.until(f"{MAPS}/s", lambda _, page: page["data"]["title"] == "Goodbye")

    await ours.ask("DELETE", f"{SITES}/s")
    await ours.until(f"{SITES}/s", lambda status, _: status == 404)
    assert (await ours.ask("GET", f"{MAPS}/s"))[0] == 404

    site = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "t"}, "spec": {"title": ""}}
    status, answer = await ours.ask("POST", SITES, site)
    assert status == 422
    assert answer["details"]["causes"][0]["field"] == "spec.title"


def said(event: dict[str, Any]) -> tuple[str, str]:
    return event["reason"], event["message"]
