"""Shared parts of the embedded server's tests: a server whose clock and controllers a test drives, and builders."""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
import yaml

from embedded_kubernetes import nesting
from embedded_kubernetes.admission.calls import Answer, Call, CallFailed
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.controllers import Controller
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door
from embedded_kubernetes.requests import Request, Response, Stream
from embedded_kubernetes.resource_claims import DELETE_PROTECTION, ResourceClaims
from embedded_kubernetes.store import Store

Object = dict[str, Any]
Hook = Callable[[Object], Any]

NAMESPACES, NODES, VOLUMES = (f"/api/v1/{plural}" for plural in ("namespaces", "nodes", "persistentvolumes"))
DEFAULT = f"{NAMESPACES}/default"
PODS, MAPS, ACCOUNTS = (f"{DEFAULT}/{plural}" for plural in ("pods", "configmaps", "serviceaccounts"))
PVCS, SERVICES, EVENTS = (f"{DEFAULT}/{plural}" for plural in ("persistentvolumeclaims", "services", "events"))
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SETS, DEPLOYMENTS = (f"/apis/apps/v1/namespaces/default/{plural}" for plural in ("replicasets", "deployments"))
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS, TEMPLATES = (
    f"{RESOURCE}/namespaces/default/{plural}" for plural in ("resourceclaims", "resourceclaimtemplates")
)
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE, METADATA = (f"application/json;as={form};v=v1;g=meta.k8s.io" for form in ("Table", "PartialObjectMetadata"))
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"

_NAMES = """namespace uid labels annotations finalizers ownerReferences generateName resourceVersion creationTimestamp
deletionTimestamp generation"""
_METADATA = frozenset(_NAMES.split())


def named(name: str, **fields: Any) -> Object:
    """Return an object of this name.

    Fields of metadata are put there, all others (apiVersion, kind, spec...) beside it.
    """
    metadata = {field: fields.pop(field) for field in list(fields) if field in _METADATA}
    return {"metadata": {"name": name, **metadata}, **fields}


def container(
    name: str = "c",
    *,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    ports: Iterable[int | Object] = (),
    **more: Any,
) -> Object:
    """Return a container of an image. `ports` has host ports or whole entries."""
    resources = {"requests": requests and dict(requests), "limits": limits and dict(limits)}
    found: Object = {"name": name, "image": "i", **more}
    if kept := {field: value for field, value in resources.items() if value is not None}:
        found["resources"] = kept
    entries = [{"containerPort": port, "hostPort": port} if isinstance(port, int) else dict(port) for port in ports]
    return {**found, "ports": entries} if entries else found


def asking(name: str = "c", *, limits: Mapping[str, str] | None = None, **requests: str) -> Object:
    """Return a container that requests these amounts."""
    return container(name, requests=requests, limits=limits or None)


def pod(name: str = "", *, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Object:
    """Return a pod of one container, unless `spec` has others."""
    about = {"name": name, **metadata} if name else metadata
    given = {"containers": [container()], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": given}


def config_map(name: str = "c", *, data: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    about = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": dict(data or {"k": "v"})}


def condition(kind: str, status: bool | str = True, **more: Any) -> Object:
    return {"type": kind, "status": str(status), **more}


def owner(obj: Object, **more: Any) -> Object:
    """Return the reference to `obj` from an object that it owns."""
    about = obj["metadata"]
    kind = {"apiVersion": obj.get("apiVersion", "v1"), "kind": obj.get("kind", "ConfigMap")}
    return {**kind, "name": about["name"], "uid": about["uid"], **more}


def volume_claim(name: str = "c", *, size: str = "1Gi", annotations: Any = None, **spec: Any) -> Object:
    about = {"name": name, **({"annotations": annotations} if annotations else {})}
    amounts = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": about, "spec": {**amounts, **spec}}


def volume(name: str = "v", *, size: str = "1Gi", **spec: Any) -> Object:
    source = {"hostPath": {"path": "/tmp"}}
    amounts = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
    return named(name, spec={**amounts, **source, **spec})


def definition(plural: str = "widgets", schema: Object | None = None, **version: Any) -> Object:
    """Return a CustomResourceDefinition of PLURAL.example.com, as it is after defaulting."""
    singular = {"boxes": "box"}.get(plural, plural[:-1])
    kind = singular.capitalize()
    names = {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or {"type": "object"}}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "conversion": {"strategy": "None"}}
    about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return orjson.loads(
        orjson.dumps(named(f"{plural}.example.com", **about, spec={**spec, "versions": [{**one, **version}]}))
    )


def rule(*resources: str, group: str = "", operations: str = "*", **more: Any) -> Object:
    """Return a rule of a webhook or policy, which matches these resources of a group."""
    about = {"operations": operations.split(), "apiGroups": [group], "apiVersions": ["*"]}
    return {**about, "resources": list(resources or ("configmaps",)), **more}


def webhook(name: str, *resources: str, **more: Any) -> Object:
    """Return a webhook at the address `name` that reviews configmaps, or `resources`."""
    client = {"url": f"https://hooks/{name}"}
    about = {"name": f"{name}.example.com", "clientConfig": client, "rules": [rule(*resources, group="*")]}
    return {**about, "sideEffects": "None", "admissionReviewVersions": ["v1"], **more}


def mutation(expression: str, kind: str = "JSONPatch") -> Object:
    """Return a mutation of a policy."""
    field = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}[kind]
    return {"patchType": kind, field: {"expression": expression}}


def patching(*operations: Any) -> Object:
    """Return the answer of a webhook that patches."""
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(operations)).decode()}


def labelling(name: str, value: str = "1") -> Object:
    """Return the answer of a webhook that sets one label."""
    return patching({"op": "add", "path": "/metadata/labels", "value": {name: value}})


@contextmanager
def refuses(code: int) -> Iterator[None]:
    """Check that the body raises an `ApiError` of this code."""
    with pytest.raises(ApiError) as refused:
        yield
    assert refused.value.code == code, refused.value.message


def cases(table: str) -> pytest.MarkDecorator:
    """Parametrize a test by a table: a row of names, then a row for each case, with YAML in cells between bars.

    A line that is indented further continues the row before it.
    """
    names, *rows = (
        [yaml.load(cell, Loader=yaml.CSafeLoader) for cell in re.split(r" \| | \|$", " ".join(row.split("\n    ")))]
        for row in re.split(r"\n(?! )", textwrap.dedent(table).strip())
    )
    return pytest.mark.parametrize(names, rows)


class World:
    """One server without sockets: `call` returns the status and the decoded body.

    `controllers` run only in `settle`, and `now` changes only there or by assignment. `hooks` answer calls of webhooks,
    by the last part of their path; `asked` has these parts with the requests of the reviews. `more` is for the `Api`.
    """

    def __init__(
        self, *, nodes: str = "", hooks: dict[str, Hook] | None = None, history: int = 1000, **more: Any
    ) -> None:
        self.now = 1_800_000_000.0
        numbers = itertools.count(1)
        self.store = Store(
            clock=lambda: self.now, uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}", history=history
        )
        self.hooks = dict(hooks or {})
        self.asked: list[tuple[str, Object]] = []
        self.api = Api(self.store, more.pop("resources", BUILTIN), transport=self, **more)
        self.door = Door(self.api)
        self.controllers: list[Controller] = []
        for name in nodes.split():
            self.post(NODES, named(name))

    # -- requests

    def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **more: Any
    ) -> Response:
        path, _, query = path.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        result = self.api.handle(Request(method, path, query, body=data, content_type=kind, **more))
        assert isinstance(result, Response)
        return result

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        response = self.send(method, path, body, **more)
        return response.status, nesting.loads(response.body)

    async def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> tuple[int, Any]:
        """Send a request like `call`, one that may have to wait for webhooks."""
        data = None if body is None else orjson.dumps(body)
        status, _, raw = await self.door.request(method, path, body=data, headers={"Content-Type": kind})
        return status, orjson.loads(raw) if raw else None

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        status, answer = self.call(method, path, body, **more)
        assert status < 300, answer
        return answer

    def get(self, path: str, **more: Any) -> Any:
        return self.ok("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Any:
        return self.ok("POST", path, body, **more)

    def put(self, path: str, body: Any, **more: Any) -> Any:
        return self.ok("PUT", path, body, **more)

    def patch(self, path: str, body: Any, *, kind: str = MERGE, **more: Any) -> Any:
        return self.ok("PATCH", path, body, kind=kind, **more)

    def delete(self, path: str, **options: Any) -> Any:
        about = {"kind": "DeleteOptions", "apiVersion": "v1"}
        return self.ok("DELETE", path, {**about, **options} if options else None)

    def refused(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """Return the status and the reason of a refusal."""
        status, answer = self.call(method, path, body, **more)
        assert answer["kind"] == "Status" and answer["status"] == "Failure", answer
        assert status == answer["code"]
        return status, answer.get("reason", "")

    def wrong(self, method: str, path: str, body: Any, **more: Any) -> list[str]:
        """Return the fields for which the object is refused as invalid; empty for a write that is carried out."""
        status, answer = self.call(method, path, body, **more)
        if status < 300:
            return []
        assert status == 422, answer
        return [cause["field"] for cause in answer["details"]["causes"]]

    def watch(self, path: str, **more: Any) -> Watch:
        path, _, query = path.partition("?")
        result = self.api.handle(Request("GET", path, query, **more))
        assert isinstance(result, Stream), result.body
        return Watch(result)

    def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.get(path)["items"]]

    def is_there(self, path: str) -> bool:
        return self.call("GET", path)[0] == 200

    def namespace(self, name: str) -> None:
        self.post(NAMESPACES, named(name))

    # -- nodes and pods

    def node(self, name: str = "n1", *, labels: Mapping[str, str] | None = None, **amounts: str) -> None:
        """Create a node with room for 110 pods, 4 CPUs and 8Gi, or with other `amounts`."""
        room = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
        self.post(NODES, named(name, labels=dict(labels or {}), status={"allocatable": room, "capacity": room}))

    def pod(self, name: str, *, namespace: str = "default", **more: Any) -> Any:
        return self.post(f"{NAMESPACES}/{namespace}/pods", pod(name, **more))

    def bind(self, name: str, node: str, *, namespace: str = "default", **metadata: Any) -> tuple[int, Any]:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = named(name, apiVersion="v1", kind="Binding", **metadata, target=target)
        return self.call("POST", f"{NAMESPACES}/{namespace}/pods/{name}/binding", body)

    def status(self, name: str) -> Any:
        return self.get(f"{PODS}/{name}")["status"]

    def phase(self, name: str = "p") -> str:
        return self.status(name)["phase"]

    def ready_pod(self, name: str, *, app: str = "x", node: str = "n1", **spec: Any) -> None:
        self.pod(name, labels={"app": app}, spec={"nodeName": node, **spec})
        self.report(name)

    def report(self, name: str, *, ready: bool = True, phase: str = "Running") -> None:
        """Write a kubelet's report about a pod."""
        self.set_status(name, phase=phase, conditions=[condition("Ready", ready)])

    def set_status(self, name: str, **status: Any) -> None:
        """Merge `status` into that of a pod."""
        self.patch(f"{PODS}/{name}/status", {"status": status}, kind=STRATEGIC)

    # -- time

    def settle(self, seconds: float = 0.0, *, most: int = 64) -> None:
        """Let `seconds` pass and run everything that becomes due."""
        end = self.now + seconds
        for _ in range(10_000):
            before = self.store.rv
            due = [at for each in self.controllers if (at := each.advance(most=most)) is not None]
            self.collect()
            if self.store.rv != before or (due and min(due) <= self.now):
                continue
            if not due or min(due) > end:
                self.now = end
                return
            self.now = min(due)
        raise AssertionError("the controllers never come to rest")

    def collect(self) -> None:
        self.api.collector.drain()

    # -- webhooks and policies

    async def __call__(self, call: Call) -> Answer:
        name = call.url.partition("?")[0].rpartition("/")[2]
        review = nesting.loads(call.body)
        self.asked.append((name, review["request"]))
        if name not in self.hooks:
            raise CallFailed(f'Post "{call.url}": connection refused')
        said = self.hooks[name](review["request"])
        if inspect.isawaitable(said):
            said = await said
        response = {"uid": review["request"]["uid"], "allowed": True, **(said or {})}
        body = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        return Answer(200, "application/json", orjson.dumps(body))

    async def close(self) -> None:
        """Close the transport, which has no connections."""

    def configure(self, kind: str, *webhooks: Object, name: str = "one") -> None:
        self.post(f"{ADMISSION}/{kind.lower()}webhookconfigurations", named(name, webhooks=list(webhooks)))

    def policy(self, kind: str, spec: Object, **binding: Any) -> None:
        """Create a policy `p`, for configmaps unless `spec` names others, and its binding `b`."""
        spec = {"matchConstraints": {"resourceRules": [rule()]}, **spec}
        if kind == "Mutating":
            spec = {"reinvocationPolicy": "Never", **spec}
        else:
            binding = {"validationActions": ["Deny"], **binding}
        place = f"{ADMISSION}/{kind.lower()}admissionpolic"
        self.post(f"{place}ies", named("p", spec=spec))
        self.post(f"{place}ybindings", named("b", spec={"policyName": "p", **binding}))


def hooked(kind: str, says: Hook, *resources: str, **more: Any) -> World:
    """Return a server with one webhook, at `w`, that reviews configmaps, or `resources`."""
    world = World(hooks={"w": says})
    world.configure(kind, webhook("w", *resources, **more))
    return world


DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}


class ClaimsWorld(World):
    """A server with the node `n1` and pods that use devices; its controller is that of claims."""

    def __init__(self) -> None:
        super().__init__(nodes="n1")
        self.controllers = [ResourceClaims(self.api)]

    def add_template(self, name: str = "t", **metadata: Any) -> None:
        self.post(TEMPLATES, named(name, spec={"metadata": metadata, "spec": DEVICES}))

    def add_claim(self, name: str = "shared", **metadata: Any) -> str:
        """Create a claim and return its UID."""
        return self.post(CLAIMS, named(name, **metadata, spec=DEVICES))["metadata"]["uid"]

    def add_pod(self, name: str = "p", *, node: str = "", **claims: str) -> str:
        """Create a pod and return its UID. `claims`: entry -> `template/NAME` or `claim/NAME`."""
        fields = {"template": "resourceClaimTemplateName", "claim": "resourceClaimName"}
        sources = ((entry, *source.split("/")) for entry, source in claims.items())
        spec: Object = {"resourceClaims": [{"name": entry, fields[kind]: which} for entry, kind, which in sources]}
        return self.pod(name, spec={**spec, "nodeName": node} if node else spec)["metadata"]["uid"]

    def claims(self) -> dict[str, Any]:
        """Return name -> claim."""
        return {each["metadata"]["name"]: each for each in self.get(CLAIMS)["items"]}

    def told(self, pod: str = "p") -> dict[str, str]:
        """Return the generated claims in the status of a pod: entry -> name."""
        status = self.get(f"{PODS}/{pod}")["status"]
        return {each["name"]: each["resourceClaimName"] for each in status.get("resourceClaimStatuses", ())}

    def allocate(self, claim: str, *pods: str, device: str = "gpu-0", node: str = "n1") -> None:
        """Write like a scheduler the finalizer, and then the allocation with reservations for these pods."""
        self.change(claim, {"metadata": {"finalizers": [DELETE_PROTECTION]}})
        result = {"request": "r", "driver": "d.example.com", "pool": node, "device": device}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        self.change(f"{claim}/status", {"status": {"allocation": allocation, "reservedFor": self.consumers(*pods)}})

    def reserve(self, claim: str, *pods: str) -> None:
        """Reserve a claim for exactly these pods."""
        self.change(f"{claim}/status", {"status": {"reservedFor": self.consumers(*pods)}})

    def consumers(self, *pods: str) -> list[dict[str, str]]:
        uids = {pod: self.get(f"{PODS}/{pod}")["metadata"]["uid"] for pod in pods}
        return [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in uids.items()]

    def change(self, claim: str, body: Any) -> None:
        self.patch(f"{CLAIMS}/{claim}", body)

    def reserved(self, claim: str) -> list[str]:
        """Return the names of the pods for which the claim is reserved."""
        status = self.claims()[claim].get("status") or {}
        return [each["name"] for each in status.get("reservedFor", ())]

    def is_allocated(self, claim: str) -> bool:
        found = self.claims()[claim]
        allocated = "allocation" in (found.get("status") or {})
        assert allocated == (DELETE_PROTECTION in found["metadata"].get("finalizers", ())), found
        return allocated

    def warnings(self) -> list[tuple[str, str, int]]:
        """Return reason, message and count of each event."""
        return [(each["reason"], each["message"], each["count"]) for each in self.get(EVENTS)["items"]]


class Watch:
    """An open watch, read step by step."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def events(self) -> list[Object]:
        """Return the events since the last call."""
        found = []
        while lines := self.stream.watcher.take(1 << 20):
            found += [orjson.loads(line) for line in lines]
        return found

    def seen(self) -> list[tuple[str, str]]:
        """Return types and names of the events since the last call."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events()]


async def until(holds: Callable[[], Any]) -> None:
    """Return once `holds()` is true. The limit only ends a hang."""
    for _ in range(12_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not come true within a minute")
