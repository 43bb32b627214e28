"""Handles POST of a Binding, which assigns a pod to a node.

Follows `BindingREST` of pkg/registry/core/pod: it checks the pod's UID, deletion, existing node and gates, but
neither capacity nor the existence of the node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from . import nesting
from .admission.attributes import GroupVersionKind
from .admission.configured import Below, Review
from .errors import ApiError, bad_request, conflict, not_found, other_namespace
from .registry import Registry, Served
from .requests import Answer, Request, Response
from .resource import Object
from .store import HEAD, Record
from .subresources import DONE, NODES, PODS, body_of, review_below, set_condition

BINDING = Below(subresource="binding", kind=GroupVersionKind("", "v1", "Binding"))
#: Node labels that a bind copies to the pod (PodTopologyLabelsAdmission, enabled since 1.35).
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def bind(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Answer:
    """Handle the POST of a Binding to a pod's `binding`, or to a namespace's `bindings` if `name` is empty."""
    dry = request.dry_run("CreateOptions") if request.query else False
    obj = body_of(request, kind="Binding", versions=("v1",))
    own = obj["metadata"].get("namespace") or namespace
    if own != namespace:
        raise other_namespace()
    if registry.is_reviewed:
        below = BINDING if name else Below(kind=BINDING.kind, resource="bindings")
        _label(registry, obj)
        review = review_below(registry, served, obj, namespace, request, below)
        if review is not None:
            return review.run(_bind_reviewed(registry, served, name, dry, review))
    name, node = _bound_to(obj, name)
    return _bind(registry, served, obj, f"{namespace}/{name}", node, dry=dry)


def _label(registry: Registry, binding: Object) -> None:
    """Copy the node's topology labels to the Binding, where webhooks see them (PodTopologyLabels)."""
    target = binding.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    node = registry.store.tables[NODES].records.get(name or "")
    if node is not None and (topology := _topology(node.labels)):
        labels = binding["metadata"].setdefault("labels", {})
        if isinstance(labels, dict):
            labels.update(topology)


async def _bind_reviewed(registry: Registry, served: Served, name: str, dry: bool, review: Review) -> Response:
    obj = await review.mutate()
    name, node = _bound_to(obj, name)
    await review.validate(obj)
    return _bind(registry, served, obj, f"{review.admission.namespace}/{name}", node, dry=dry)


def _bound_to(binding: Object, name: str) -> tuple[str, str]:
    """Return the names of the pod and the node in a Binding."""
    given = binding["metadata"].get("name") or ""
    if name and given != name:
        raise bad_request("name in URL does not match name in Binding object")
    node = _target(binding.get("target"))
    if not given:
        raise bad_request("Name parameter required.")
    return given, node


def _bind(registry: Registry, served: Served, binding: Object, key: str, node: str, *, dry: bool) -> Response:
    metadata = binding["metadata"]
    old = served.table.records.get(key)
    if old is None:
        raise not_found("pods", "", key.partition("/")[2])
    _check_preconditions(old, metadata)
    if dry:
        pod: Object = nesting.loads(old.data)
        assign(pod, node=node, now=registry.now())
    else:
        _store_bound(registry, served, old, node, annotations=metadata.get("annotations"))
    return DONE


class _Pieces(msgspec.Struct):
    """The encoded parts of a stored pod."""

    metadata: msgspec.Raw
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"{}")


_pieces = msgspec.json.Decoder(_Pieces).decode
#: The offset of the version's number in stored metadata.
_VERSION_AT = len(HEAD) - len(b'{"metadata":')


def _store_bound(registry: Registry, served: Served, old: Record, node: str, *, annotations: Any) -> None:
    """Store the pod as bound, without decoding all of it, because binds are frequent."""
    now, store = registry.now(), registry.store
    field = served.table.field_names.index("spec.nodeName")
    pieces = _pieces(old.data)
    metadata, spec = bytes(pieces.metadata), bytes(pieces.spec)
    if old.deleting or old.fields[field] or b'"schedulingGates":[{' in spec:
        # Usually this raises; if the text was in some other field, the bind continues.
        assign(nesting.loads(old.data), node=node, now=now)
    labels = old.labels
    target = store.tables[NODES].records.get(node)
    topology = _topology(target.labels) if target is not None and target.labels else None
    if annotations or topology:
        decoded: Object = nesting.loads(metadata)
        if annotations:
            decoded["annotations"] = {**decoded.get("annotations", {}), **annotations}
        if topology:
            labels = decoded["labels"] = store.shared({**labels, **topology})
        metadata = nesting.dumps(decoded)
    rv = store.rv + 1
    data = b'%b%d%b,"spec":%b%b"nodeName":%b},"status":%b}' % (
        HEAD,
        rv,
        metadata[_VERSION_AT + len(str(old.rv)) :],
        spec[:-1],
        b"," if len(spec) > 2 else b"",
        nesting.dumps(node),
        _scheduled(bytes(pieces.status), now),
    )
    fields = (*old.fields[:field], node, *old.fields[field + 1 :])
    nominated = served.table.field_names.index("status.nominatedNodeName")
    if fields[nominated]:
        fields = (*fields[:nominated], "", *fields[nominated + 1 :])
    store.put(PODS, replace(old, rv=rv, data=data, labels=labels, fields=fields), old)


def status_of(pod: Record) -> Object:
    """Return the status of a stored pod without decoding the rest."""
    status: Object = nesting.loads(bytes(_pieces(pod.data).status))
    return status


def with_status(pod: Record, rv: int, status: Object) -> Record:
    """Return the next version of a pod with another status, which must not change fields that selectors use."""
    pieces = _pieces(pod.data)
    metadata = bytes(pieces.metadata)[_VERSION_AT + len(str(pod.rv)) :]
    data = b'%b%d%b,"spec":%b,"status":%b}' % (HEAD, rv, metadata, bytes(pieces.spec), nesting.dumps(status))
    return replace(pod, rv=rv, data=data)


def _topology(labels: dict[str, str]) -> dict[str, str]:
    return {label: labels[label] for label in _TOPOLOGY if label in labels}


@lru_cache(maxsize=256)
def _scheduled(status: bytes, now: str) -> bytes:
    """Apply `set_scheduled` to an encoded status. Cached, because the pods of a burst have equal statuses."""
    decoded: Object = nesting.loads(status)
    set_scheduled(decoded, now=now)
    return nesting.dumps(decoded)


def _target(target: Any) -> str:
    """Return the node in a Binding. As recorded from kube-apiserver, a validation error is a 500 without reason."""
    if target is None:
        target = {}
    if not isinstance(target, dict):
        raise bad_request("Binding: target must be an object")
    problems = []
    kind = target.get("kind") or "Node"
    if kind != "Node":
        problems.append(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    node = target.get("name") or ""
    if not node:
        problems.append("target.name: Required value")
    elif not isinstance(node, str):
        raise bad_request("Binding: target.name must be a string")
    if problems:
        raise ApiError(500, "", problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]")
    return str(node)


def _check_preconditions(old: Record, metadata: Object) -> None:
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    why = ""
    if uid and uid != old.uid:
        why = f"UID in precondition: {uid}, UID in object meta: {old.uid}"
    elif version and version != str(old.rv):
        why = f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: {old.rv}"
    if why:
        found = f"StorageError: invalid object, Code: 4, Key: /registry/pods/{old.key}, ResourceVersion: 0"
        raise conflict("pods", "", old.name, f"{found}, AdditionalErrorMsg: Precondition failed: {why}")


def assign(pod: Object, *, node: str, now: str) -> None:
    """Assign `pod` to `node` in place. Raises 409 if the pod cannot be bound."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    why = ""
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("pods/binding", "", name, why)
    spec["nodeName"] = node
    set_scheduled(pod.setdefault("status", {}), now=now)


def set_scheduled(status: Object, *, now: str) -> None:
    """Set the condition PodScheduled in place and remove the nomination."""
    status.pop("nominatedNodeName", None)
    set_condition(status, {"type": "PodScheduled", "status": "True"}, now=now)
