"""Creates PodGroups for pods that use the batch scheduler and name no group, and adds the group's name to the pods.

The group is created before the pod is written, and every pod without a group's name is handled, however it came to
that. A group exists as long as it has pods, whether these name it yet or not: a deleted group is recreated, and a
changed one is restored to its workload and the newest of its pods. A changed workload changes its group at the next of
these events, such as the creation of a pod. A workload that is scaled to zero has no group until it is scaled up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from agent_scheduler.cluster.groups import POD_GROUP, namespaces, pod_groups
from agent_scheduler.controllers.reconciling import PATIENCE, CreationReceiver, KeyQueue, Reconciled
from agent_scheduler.engine.state.podinfo import FINISHED
from agent_scheduler.objects.batch import API_VERSION, GROUP_NAME, GROUP_OF_PODS, PodGroup, pod_group_path
from agent_scheduler.objects.batch import pod_groups as groups_path
from agent_scheduler.objects.job_pod import JOB_NAME
from agent_scheduler.objects.wire import Metadata, Namespace, OwnerReference
from agent_scheduler.objects.workload import MemberPod, Replicated
from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from apimachinery.nesting import shallow
from apimachinery.quantity import QuantityError
from apimachinery.wire import Wire
from kube_client.answers import Verb, asked_at
from kube_client.create import create_once, delete_once
from kube_client.driver import Send, send_once
from kube_client.errors import Failure, FailureClass
from kube_client.informers import Kind
from kube_client.patch import is_about_another_pod, patch_once
from kube_client.recorder import ObjectReference
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .building import controller_of, group_for, group_name, may_be_made, named_group, renewal

_encode = msgspec.json.Encoder().encode

#: The paths of the workloads whose annotations apply, by version and kind.
_WORKLOADS: Final = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("batch/v1", "Job"): "jobs",
}
_WATCHED: Final = {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}
#: Seconds after which the watch has delivered the deletion of pods that were deleted with their group.
_PODS_GO: Final = 0.2

#: Namespace and name.
GroupName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupSettings:
    """The settings; `schedulers` are the names by which pods use the batch scheduler."""

    schedulers: tuple[str, ...] = ("volcano",)


class _Owner(Wire, frozen=True):
    metadata: Metadata


_decode_pod = msgspec.json.Decoder(MemberPod).decode
_decode_group = msgspec.json.Decoder(PodGroup).decode
_decode_owner = msgspec.json.Decoder(_Owner).decode


def _read_pod(raw: bytes | memoryview | Raw) -> MemberPod:
    """Decode a pod; of pods that need no group from here, only the metadata's identity is kept.

    These pods name another client's group, are being deleted or have ended. A pod in a PodGroup of Kubernetes would
    leave it if it got one of Volcano.
    """
    try:
        pod = _decode_pod(raw)
    except RecursionError:
        pod = _decode_pod(shallow(raw))
    native = pod.spec.scheduling_group
    of_others = not may_be_made(pod) or (native is not None and native.pod_group_name)
    if of_others or pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED:
        metadata = msgspec.structs.replace(pod.metadata, annotations=None, labels=None, owner_references=None)
        return MemberPod(metadata)
    return pod


class _PodsOfGroup:
    """The pods of a group, by UID.

    `lodgers` name the group although their workload's group is another one; the group is not created for them.
    """

    __slots__ = ("lodgers", "newest", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, MemberPod] = {}
        self.lodgers: dict[str, MemberPod] = {}
        #: The newest of `pods`, all created in the same second; empty if not computed.
        self.newest: list[MemberPod] = []

    def __bool__(self) -> bool:
        return bool(self.pods or self.lodgers)

    def set(self, pod: MemberPod, *, lodges: bool) -> None:
        (self.lodgers if lodges else self.pods)[pod.metadata.uid] = pod
        self.newest = []

    def delete(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.lodgers.pop(uid, None)
        self.newest = []

    def made_for(self) -> list[MemberPod]:
        """Return the newest pods, which may have different specs; empty if the group has only lodgers."""
        if not self.newest and self.pods:
            last = max(map(_created, self.pods.values()))
            self.newest = [pod for pod in self.pods.values() if _created(pod) == last]
        return self.newest


def _created(pod: MemberPod) -> str:
    return pod.metadata.creation_timestamp or ""


class PodGroupController:
    """A `Reconciler`, keyed by UIDs of pods that need a group's name, and by namespaces and names of groups.

    Owner of the last observed pods whose groups are created here, of these groups, and of the workloads that may be
    scaled to zero.
    """

    name = "podgroup"
    workers = 8
    settle = 0.0
    patience = PATIENCE
    needs: tuple[str, ...] = ("PodGroup",)

    def __init__(self, settings: PodGroupSettings, *, transport: Transport, timing: Timing) -> None:
        self._schedulers = frozenset(settings.schedulers)
        self._transport = transport
        self._timing = timing
        self._log = get_logger("podgroup-controller")
        self._limited_log = LimitedLog(self._log, clock=timing.clock)
        self._put: KeyQueue = lambda _key, _seconds=None, /: None
        self._made: CreationReceiver = lambda _kind, _made, /: True
        #: Pods by UID; and by namespace and name of the group that each names, or should name.
        self._pods: dict[str, MemberPod] = {}
        self._members: dict[GroupName, _PodsOfGroup] = {}
        #: Groups whose names begin with `GROUP_OF_PODS`, as those that are created here.
        self._groups: dict[GroupName, PodGroup] = {}
        #: ReplicaSets and StatefulSets, by UID.
        self._workloads: dict[str, Replicated] = {}
        #: The annotations of workloads of unwatched kinds, by UID, when they were last read.
        self._unwatched: dict[str, dict[str, str]] = {}
        self._namespaces: dict[str, dict[str, str]] = {}

    # ---- watches

    def kinds(self, put: KeyQueue, learn: CreationReceiver, _absent: Set[str]) -> list[Kind]:
        self._put, self._made = put, learn
        selector = "status.phase!=Succeeded,status.phase!=Failed"
        if len(self._schedulers) == 1:
            selector = f"spec.schedulerName={next(iter(self._schedulers))},{selector}"
        replicated = msgspec.json.Decoder(Replicated).decode
        return [
            pod_groups(self._set_group, self._delete_group),
            Kind(
                "Pod",
                "/api/v1/pods",
                _read_pod,
                self._set_pod,
                self._delete_pod,
                # Pods of Volcano's Jobs name their groups.
                query={"fieldSelector": selector, "labelSelector": f"!{JOB_NAME}"},
            ),
            *(
                Kind(kind, f"/apis/apps/v1/{plural}", replicated, self._set_workload, self._delete_workload)
                for kind, plural in (("ReplicaSet", "replicasets"), ("StatefulSet", "statefulsets"))
            ),
            namespaces(self._set_namespace, self._delete_namespace),
        ]

    def all_keys(self) -> Iterable[str]:
        return [*self._pods, *map(_key, dict.fromkeys((*self._members, *self._groups)))]

    def _set_pod(self, pod: MemberPod) -> None:
        known = self._pods.get(pod.metadata.uid)
        if known is not None:
            if _said(known) == _said(pod):
                return
            self._delete_pod(known)
        if pod.spec.scheduler_name in self._schedulers:
            # Other pods name another group, have ended (`_read_pod`), or use another scheduler.
            uid = pod.metadata.uid
            self._pods[uid] = pod
            members = self._members.setdefault(_group_of(pod), _PodsOfGroup())
            members.set(pod, lodges=named_group(pod) not in ("", group_name(pod)))
            self._put(uid)

    def _delete_pod(self, pod: MemberPod) -> None:
        known = self._pods.pop(pod.metadata.uid, None)
        if known is not None:
            members = self._members[_group_of(known)]
            members.delete(known.metadata.uid)
            if not members:
                del self._members[_group_of(known)]

    def _set_group(self, group: PodGroup) -> None:
        of = group.metadata.namespace, group.metadata.name
        if of[1].startswith(GROUP_OF_PODS):
            known, self._groups[of] = self._groups.get(of), group
            if known is None or _written(known) != _written(group):
                self._put(_key(of))

    def _delete_group(self, gone: PodGroup) -> None:
        of = gone.metadata.namespace, gone.metadata.name
        known = self._groups.get(of)
        if known is None or known.metadata.uid != gone.metadata.uid:
            return
        del self._groups[of]
        self._unwatched.pop(of[1].removeprefix(GROUP_OF_PODS), None)
        members = self._members.get(of)
        if members is not None:
            # If it was deleted with its last pod, the watch delivers that meanwhile.
            for key in (_key(of), *members.lodgers):
                self._put(key, _PODS_GO)

    def _set_workload(self, found: Replicated) -> None:
        uid = found.metadata.uid
        known, self._workloads[uid] = self._workloads.get(uid), found
        if known is None or bool(known.spec.replicas) != bool(found.spec.replicas):
            of = found.metadata.namespace, GROUP_OF_PODS + uid
            members = self._members.get(of)
            for key in (_key(of), *(() if members is None else members.pods)):
                self._put(key)

    def _delete_workload(self, gone: Replicated) -> None:
        # Its group is deleted with it.
        self._workloads.pop(gone.metadata.uid, None)

    def _set_namespace(self, found: Namespace) -> None:
        self._namespaces[found.metadata.name] = found.metadata.annotations or {}

    def _delete_namespace(self, gone: Namespace) -> None:
        self._namespaces.pop(gone.metadata.name, None)

    # ---- what is done

    def about(self, key: str) -> Reconciled | None:
        namespace, is_group, name = key.partition("/")
        found = self._groups.get((namespace, name)) if is_group else self._pods.get(key)
        if found is None:
            return None
        kind, version = (POD_GROUP, API_VERSION) if is_group else ("Pod", "v1")
        of = found.metadata
        return Reconciled(ObjectReference(kind, of.namespace, of.name, of.uid, version), of)

    async def reconcile(self, key: str, wanted: Callable[[], bool]) -> bool:
        namespace, is_group, name = key.partition("/")
        if is_group:
            return await self._keep((namespace, name), wanted)
        pod = self._pods.get(key)
        return pod is None or await self._put_into_group(pod, wanted)

    async def _keep(self, of: GroupName, wanted: Callable[[], bool], *, comes: MemberPod | None = None) -> bool:
        """Ensure the group if there are pods for which it is created.

        `comes` is a pod that is about to name it, which is then the newest.
        """
        known, members = self._groups.get(of), self._members.get(of)
        if self._is_scaled_down(of):
            return known is None or await self._delete(known, wanted)
        pods = [comes] if comes is not None else [] if members is None else members.made_for()
        if not pods:
            return True
        return await (self._make(pods[-1], wanted) if known is None else self._renew(known, pods, wanted))

    def _is_scaled_down(self, of: GroupName) -> bool:
        """Return whether the group's workload is scaled to zero."""
        workload = self._workloads.get(of[1].removeprefix(GROUP_OF_PODS))
        return workload is not None and workload.spec.replicas == 0

    async def _put_into_group(self, pod: MemberPod, wanted: Callable[[], bool]) -> bool:
        metadata, name, named = pod.metadata, group_name(pod), named_group(pod)
        own = metadata.namespace, name
        if self._is_scaled_down(own) or (named not in ("", name) and (metadata.namespace, named) in self._groups):
            return await self._keep(own, wanted)
        if named == name:
            return await self._keep(own, wanted)
        if not await self._keep(own, wanted, comes=pod):
            return False
        body = {"metadata": {"uid": metadata.uid, "annotations": {GROUP_NAME: name}}}
        path = f"/api/v1/namespaces/{segment(metadata.namespace)}/pods/{segment(metadata.name)}"
        patched = await patch_once(self._transport, path, _encode(body), wanted=wanted, timing=self._timing)
        if patched.failure is None or is_about_another_pod(patched.failure):
            return True
        return self._failed(f"Pod {metadata.namespace}/{metadata.name}", patched.failure)

    async def _make(self, pod: MemberPod, wanted: Callable[[], bool]) -> bool:
        """Create the pod's group. Returns whether it exists."""
        of_owners = await self._annotations(pod)
        body = self._group_for(pod, of_owners) if of_owners is not None else None
        if body is None:
            return False
        namespace, name = pod.metadata.namespace, group_name(pod)
        made = await create_once(
            self._transport,
            groups_path(segment(namespace)),
            segment(name),
            _encode(body),
            wanted=wanted,
            timing=self._timing,
        )
        if not made.found:
            return self._failed(f"PodGroup {namespace}/{name}", made.failure)
        self._learn(made.found)
        return True

    async def _renew(self, known: PodGroup, pods: list[MemberPod], wanted: Callable[[], bool]) -> bool:
        """Update the group to match one of the newest pods.

        Its workload may have changed, newer pods may exist, and other clients may have written the group.
        """
        patch = None
        for pod in pods:
            owner = controller_of(pod)
            if owner is not None and _is_watched(owner) and owner.uid not in self._workloads:
                # The workload is gone, and its group is about to be deleted.
                return True
            of_owners = await self._annotations(pod, known=True)
            body = self._group_for(pod, of_owners) if of_owners is not None else None
            if body is None:
                return False
            patch = renewal(known, body)
            if patch is None:
                return True
        namespace, name = known.metadata.namespace, known.metadata.name
        patched = await patch_once(
            self._transport, _path(namespace, name), _encode(patch), wanted=wanted, timing=self._timing
        )
        if patched.failure is None:
            self._log.info("group renewed", podgroup=f"{namespace}/{name}")
            return True
        return self._failed(f"PodGroup {namespace}/{name}", patched.failure)

    async def _delete(self, group: PodGroup, wanted: Callable[[], bool]) -> bool:
        namespace, name, uid = group.metadata.namespace, group.metadata.name, group.metadata.uid
        path = _path(namespace, name)
        failure = await delete_once(self._transport, path, uid, wanted=wanted, timing=self._timing)
        if failure is not None:
            return self._failed(f"PodGroup {namespace}/{name}", failure)
        self._delete_group(group)
        return True

    def _group_for(self, pod: MemberPod, of_owners: dict[str, str]) -> dict[str, Any] | None:
        """Return the group to create; None if the pod has an invalid request."""
        namespace = pod.metadata.namespace
        try:
            return group_for(pod, of_owners=of_owners, of_namespace=self._namespaces.get(namespace, {}))
        except QuantityError as error:
            self._complain(f"Pod {namespace}/{pod.metadata.name}", str(error))
            return None

    async def _annotations(self, pod: MemberPod, *, known: bool = False) -> dict[str, str] | None:
        """Return the annotations of the pod's owners, the first with precedence; None if one cannot be read now.

        If `known`, the last observed annotations are used.
        """
        found: dict[str, str] = {}
        for reference in pod.metadata.owner_references or ():
            seen = self._seen(reference) if known else None
            if seen is None:
                seen = await self._annotations_of(pod.metadata.namespace, reference)
            if seen is None:
                return None
            if reference.controller and not _is_watched(reference):
                self._unwatched[reference.uid] = seen
            found = {**seen, **found}
        return found

    def _seen(self, owner: OwnerReference) -> dict[str, str] | None:
        workload = self._workloads.get(owner.uid)
        return self._unwatched.get(owner.uid) if workload is None else workload.metadata.annotations or {}

    async def _annotations_of(self, namespace: str, owner: OwnerReference) -> dict[str, str] | None:
        plural = _WORKLOADS.get((owner.api_version, owner.kind))
        if plural is None:
            return {}
        # The watch may not have delivered the workload yet, although it has delivered a pod of it.
        path = f"/apis/{owner.api_version}/namespaces/{segment(namespace)}/{plural}/{segment(owner.name)}"
        failure, response = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET, owner.uid)))
        if response is not None:
            return _decode_owner(response.body).metadata.annotations or {}
        if failure is not None and failure.kind is FailureClass.NOT_FOUND:
            return {}
        self._failed(f"{owner.kind} {namespace}/{owner.name}", failure)
        return None

    def _learn(self, found: bytes) -> None:
        """Apply a created group before the watch delivers it."""
        try:
            group = _decode_group(found)
        except msgspec.ValidationError:
            return
        if self._made(POD_GROUP, group):
            self._groups.setdefault((group.metadata.namespace, group.metadata.name), group)

    def _failed(self, what: str, failure: Failure | None) -> bool:
        """Log the failure. Returns False, so that the key is retried."""
        if failure is not None and failure.kind is not FailureClass.GONE:
            self._complain(what, str(failure))
        return False

    def _complain(self, what: str, problem: str) -> None:
        self._limited_log.error("pod not added to a group", problem[:60], object=what, problem=problem)


def _is_watched(owner: OwnerReference) -> bool:
    return (owner.api_version, owner.kind) in _WATCHED


def _group_of(pod: MemberPod) -> GroupName:
    return pod.metadata.namespace, named_group(pod) or group_name(pod)


def _key(of: GroupName) -> str:
    return "/".join(of)


def _said(pod: MemberPod) -> tuple[object, ...]:
    """Return the fields of a pod that are read here."""
    of = pod.metadata
    return pod.spec, of.annotations, of.labels, of.owner_references


def _written(group: PodGroup) -> tuple[object, ...]:
    """Return the fields of a group that are written here."""
    of = group.metadata
    return of.uid, group.spec, of.annotations, of.labels, of.owner_references


def _path(namespace: str, name: str) -> str:
    return pod_group_path(segment(namespace), segment(name))
