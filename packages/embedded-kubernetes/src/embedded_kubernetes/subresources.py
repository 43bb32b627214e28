"""Subresources other than status and binding: evictions, pod connections and a namespace's finalize."""

from __future__ import annotations

from . import kubelet_logs
from .admission.attributes import GroupVersionKind
from .admission.configured import Below, Review, check_current, review_of
from .admission.connecting import CONNECTS, connect_options
from .bodies import decode, of_kind, parse
from .builtin.eviction import decide
from .deletion import check_preconditions, delete_record, store_released
from .errors import ApiError, bad_request, method_not_allowed, not_found, other_name, stale
from .registry import Registry, Served
from .requests import Answer, Request, Response, Stream, check_delete_options, success
from .resource import Object
from .schema import check_kind
from .store import Record

PODS = ("", "pods")
NODES = ("", "nodes")
BUDGETS = ("policy", "poddisruptionbudgets")

#: Subresources that kube-apiserver forwards to the kubelet, with their methods.
STREAMS = {"log": ("GET", "HEAD"), "exec": ("GET", "POST"), "attach": ("GET", "POST"), "portforward": ("GET", "POST")}
EVICTION = Below(subresource="eviction", kind=GroupVersionKind("policy", "v1", "Eviction"))
Warnings = tuple[tuple[str, str], ...]
DONE = success(201)
#: The condition of an evicted pod (KEP-3329).
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def body_of(request: Request, *, kind: str, versions: tuple[str, ...]) -> Object:
    obj = of_kind(parse(request, kind), kind)
    if obj.get("apiVersion", versions[0]) not in versions:
        raise bad_request(
            f"the API version in the data ({obj['apiVersion']}) does not match the expected API version ({versions[0]})"
        )
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request(f"{kind}: metadata must be an object")
    return obj


def review_below(
    registry: Registry, served: Served, obj: Object, namespace: str, request: Request, below: Below
) -> Review | None:
    """Return the review of a POST to a pod's subresource; completes the object in place."""
    kind = below.kind
    assert kind is not None
    obj["metadata"]["namespace"] = namespace
    obj["kind"] = kind.name
    obj["apiVersion"] = f"{kind.group}/{kind.version}" if kind.group else kind.version
    check_kind(kind.group, kind.version, kind.name, obj)
    return review_of(
        registry,
        served,
        request,
        operation="CREATE",
        obj=obj,
        namespace=namespace,
        name=obj["metadata"].get("name", ""),
        options="CreateOptions",
        below=below,
    )


def set_condition(status: Object, given: Object, *, now: str) -> None:
    """Set a condition in place. An unchanged status keeps its transition time."""
    condition: Object = {
        "type": given["type"],
        "status": given["status"],
        "lastProbeTime": None,
        "lastTransitionTime": now,
        **given,
    }
    conditions = status.setdefault("conditions", [])
    for index, known in enumerate(conditions):
        if known["type"] == condition["type"]:
            if known.get("status") == condition["status"]:
                condition["lastTransitionTime"] = known.get("lastTransitionTime")
            conditions[index] = condition
            return
    conditions.append(condition)


def evict(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Answer:
    """Handle the POST of an Eviction: delete the pod if its disruption budget allows that."""
    dry = request.dry_run("CreateOptions") if request.query else False
    obj = body_of(request, kind="Eviction", versions=("policy/v1", "policy/v1beta1"))
    if registry.is_reviewed:
        review = review_below(registry, served, obj, namespace, request, EVICTION)
        if review is not None:
            return review.run(_evict_reviewed(registry, served, name, dry, review))
    return _evict(registry, served, obj, _evicted(served, obj, namespace, name), dry=dry)


async def _evict_reviewed(registry: Registry, served: Served, name: str, dry: bool, review: Review) -> Response:
    obj = await review.mutate()
    namespace = review.admission.namespace
    _evicted(served, obj, namespace, name)
    await review.validate(obj)
    return _evict(registry, served, obj, _evicted(served, obj, namespace, name), dry=dry)


def _evicted(served: Served, eviction: Object, namespace: str, name: str) -> Record:
    """Return the pod that an Eviction names."""
    if eviction["metadata"].get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    old = served.table.records.get(f"{namespace}/{name}")
    if old is None:
        raise not_found("pods", "", name)
    return old


def _evict(registry: Registry, served: Served, eviction: Object, old: Record, *, dry: bool) -> Response:
    options = dict(eviction.get("deleteOptions") or {})
    if dry:
        options["dryRun"] = ["All"]
    dry = check_delete_options(options)
    pod = served.stored.decode(old.data)
    budgets = registry.stored(BUDGETS)
    records = list(budgets.table.scan(old.namespace))
    changed = decide(pod, [budgets.stored.decode(record.data) for record in records], now=registry.now())
    if changed is not None and not dry:
        record = next(record for record in records if record.name == changed["metadata"]["name"])
        registry.store.replace(BUDGETS, record, changed)
    check_preconditions(served, old, options)
    if not dry:
        set_condition(pod.setdefault("status", {}), _EVICTED, now=registry.now())
        old = registry.store.replace(PODS, old, pod)
    delete_record(registry, served, old, {**options, "preconditions": None})
    return DONE


def stream(
    registry: Registry, served: Served, namespace: str, name: str, subresource: str, request: Request
) -> Answer | Stream:
    """Handle log, exec, attach and portforward, which kube-apiserver forwards to the kubelet.

    Follows LogLocation and streamLocation of pkg/registry. With simulated kubelets, a bound pod has a log, and the
    others are refused. Without, the error is that of a node without address. For an unbound pod, the log is a 204 and
    the others are rejected.
    """
    if request.method not in STREAMS[subresource]:
        raise method_not_allowed()
    if registry.is_reviewed and subresource in CONNECTS:
        review = review_of(
            registry,
            served,
            request,
            operation="CONNECT",
            obj=connect_options(subresource, request.query),
            namespace=namespace,
            name=name,
            below=CONNECTS[subresource],
        )
        if review is not None:
            return review.run(_stream_reviewed(registry, served, subresource, review))
    if subresource == "log" and registry.has_kubelets:
        record = served.table.get(namespace, name)
        if record is not None and served.stored.decode(record.data)["spec"].get("nodeName"):
            return kubelet_logs.respond(served, record, request, now=registry.store.clock())
    return _streamed(registry, served, namespace, name, subresource)


async def _stream_reviewed(registry: Registry, served: Served, subresource: str, review: Review) -> Response:
    await review.admit()
    return _streamed(registry, served, review.admission.namespace, review.admission.name, subresource)


def _streamed(registry: Registry, served: Served, namespace: str, name: str, subresource: str) -> Response:
    record = served.table.get(namespace, name)
    if record is None:
        raise not_found("pods", "", name)
    if served.stored.decode(record.data)["spec"].get("nodeName"):
        if registry.has_kubelets:
            raise kubelet_logs.refuse(subresource)
        raise ApiError(500, "", "no preferred addresses found; known addresses: []")
    if subresource == "log":
        return Response(204, b"", "")
    raise bad_request(f"pod {name} does not have a host assigned")


def finalize(registry: Registry, served: Served, name: str, request: Request) -> Answer:
    """Handle the PUT of a namespace's `finalize`: set `spec.finalizers`, and delete the namespace if none is left."""
    obj, warnings = decode(request, served.resource)
    old = served.table.get("", name)
    if old is None:
        raise not_found("namespaces", "", name)
    if registry.is_reviewed:
        review = review_of(
            registry,
            served,
            request,
            operation="UPDATE",
            obj=obj,
            old=served.stored.decode(old.data),
            namespace="",
            name=name,
            options="UpdateOptions",
            below=Below(subresource="finalize"),
        )
        if review is not None:
            return review.run(_finalize_reviewed(registry, served, old, review, warnings))
    return _finalized(registry, served, old, _with_finalizers(served, old, obj), warnings)


async def _finalize_reviewed(
    registry: Registry, served: Served, old: Record, review: Review, warnings: Warnings
) -> Response:
    namespace = _with_finalizers(served, old, await review.mutate())
    await review.validate(namespace)
    check_current(served, old)
    return _finalized(registry, served, old, namespace, warnings)


def _with_finalizers(served: Served, old: Record, obj: Object) -> Object:
    """Return the stored namespace with the spec of the request."""
    if obj["metadata"].get("name", old.name) != old.name:
        raise other_name(obj["metadata"]["name"], old.name)
    if obj["metadata"].get("resourceVersion") not in (None, "", str(old.rv)):
        raise stale("namespaces", "", old.name)
    namespace = served.stored.decode(old.data)
    namespace["spec"] = obj.get("spec") or {}
    return namespace


def _finalized(registry: Registry, served: Served, old: Record, namespace: Object, warnings: Warnings) -> Response:
    record = store_released(registry, served, old, namespace)
    return Response(200, served.view.object(record.data), headers=warnings)
