"""Makes PodGroups for pods that ask for the batch scheduler and name none, and has the pods name them.

First the group is made, then the pod is written: a pod that names no group is taken up again, however it came to that.
A group that is there already is made to say what the pod and its workload say by now. A workload that is scaled to
nothing loses its group; with the next pod it gets another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from agent_scheduler.cluster.groups import POD_GROUP, namespaces, pod_groups
from agent_scheduler.cluster.kinds import Kind
from agent_scheduler.controllers.reconciling import Learn
from agent_scheduler.engine.state.podinfo import FINISHED
from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.create import create_once, delete_once
from agent_scheduler.kube.driver import Send, send_once
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import is_about_another_pod, patch_once
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport, segment
from agent_scheduler.objects.batch import GROUP_NAME, PodGroup, pod_group_path
from agent_scheduler.objects.batch import pod_groups as groups_path
from agent_scheduler.objects.job_pod import JOB_NAME
from agent_scheduler.objects.quantity import QuantityError
from agent_scheduler.objects.wire import Metadata, Namespace, OwnerReference, Wire
from agent_scheduler.objects.workload import MemberPod, Replicated
from agent_scheduler.telemetry.logs import OncePer, get_logger

from .building import PREFIX, controller_of, group_for, group_name, renewal

_encode = msgspec.json.Encoder().encode

#: Where workloads are whose annotations count, by version and kind.
_WORKLOADS: Final = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("batch/v1", "Job"): "jobs",
}
_LOG_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupSettings:
    """`schedulers`: names by which pods ask for the batch scheduler."""

    schedulers: tuple[str, ...] = ("volcano",)


class _Owner(Wire, frozen=True):
    metadata: Metadata


_decode_pod = msgspec.json.Decoder(MemberPod).decode
_decode_owner = msgspec.json.Decoder(_Owner).decode


def _read_pod(raw: bytes | memoryview | Raw) -> MemberPod:
    """Of a pod that names its group, is being deleted or has ended nothing more is kept, not even its scheduler. With a
    group of Volcano's a pod would leave the one of Kubernetes' own that it names."""
    pod = _decode_pod(raw)
    native = pod.spec.scheduling_group
    names_group = (pod.metadata.annotations or {}).get(GROUP_NAME) or (native and native.pod_group_name)
    if names_group or pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED:
        metadata = msgspec.structs.replace(pod.metadata, annotations=None, labels=None, owner_references=None)
        return MemberPod(metadata)
    return pod


class PodGroupController:
    """A `Reconciler`, by the UIDs of pods and of workloads.

    Owner of the pods that are to be put into groups, of the groups that there are for such, and of the workloads that
    may be scaled to nothing; all as last seen.
    """

    name = "podgroup"
    workers = 8
    settle = 0.0
    needs: tuple[str, ...] = ("PodGroup",)

    def __init__(self, settings: PodGroupSettings, *, transport: Transport, timing: Timing) -> None:
        self._schedulers = frozenset(settings.schedulers)
        self._transport = transport
        self._timing = timing
        self._log = get_logger("podgroup-controller")
        self._once = OncePer(_LOG_SECONDS, clock=timing.clock)
        self._put: Callable[[str], None] = lambda _key: None
        self._made: Learn = lambda _kind, _made, /: True
        #: By UID.
        self._pods: dict[str, MemberPod] = {}
        #: By namespace and name; those that we make have `PREFIX`.
        self._groups: dict[tuple[str, str], PodGroup] = {}
        #: ReplicaSets and StatefulSets, by UID.
        self._workloads: dict[str, Replicated] = {}
        self._namespaces: dict[str, dict[str, str]] = {}

    # ---- watches

    def kinds(self, put: Callable[[str], None], learn: Learn) -> list[Kind]:
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
        return [*self._pods, *filter(self._is_scaled_down, self._workloads)]

    def _set_pod(self, pod: MemberPod) -> None:
        if pod.spec.scheduler_name in self._schedulers:
            self._pods[pod.metadata.uid] = pod
            self._put(pod.metadata.uid)
        else:
            # It names its group or has ended (`_read_pod`), or asks for another scheduler.
            self._delete_pod(pod)

    def _delete_pod(self, pod: MemberPod) -> None:
        self._pods.pop(pod.metadata.uid, None)

    def _set_group(self, group: PodGroup) -> None:
        name = group.metadata.name
        if name.startswith(PREFIX):
            self._groups[group.metadata.namespace, name] = group
            if self._is_scaled_down(name.removeprefix(PREFIX)):
                self._put(name.removeprefix(PREFIX))

    def _delete_group(self, gone: PodGroup) -> None:
        key = gone.metadata.namespace, gone.metadata.name
        known = self._groups.get(key)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self._groups[key]

    def _set_workload(self, found: Replicated) -> None:
        uid = found.metadata.uid
        self._workloads[uid] = found
        if self._is_scaled_down(uid):
            self._put(uid)

    def _delete_workload(self, gone: Replicated) -> None:
        # Its group goes with it.
        self._workloads.pop(gone.metadata.uid, None)

    def _is_scaled_down(self, uid: str) -> bool:
        """Whether it is a workload that is to have no pods, though it has a group."""
        found = self._workloads.get(uid)
        return (
            found is not None
            and found.spec.replicas == 0
            and (found.metadata.namespace, PREFIX + uid) in self._groups
        )

    def _set_namespace(self, found: Namespace) -> None:
        self._namespaces[found.metadata.name] = found.metadata.annotations or {}

    def _delete_namespace(self, gone: Namespace) -> None:
        self._namespaces.pop(gone.metadata.name, None)

    # ---- what is done

    async def reconcile(self, key: str, wanted: Callable[[], bool]) -> bool:
        pod = self._pods.get(key)
        if pod is not None:
            return await self._put_into_group(pod, wanted)
        if self._is_scaled_down(key):
            return await self._delete(self._workloads[key].metadata.namespace, PREFIX + key, wanted)
        return True

    async def _put_into_group(self, pod: MemberPod, wanted: Callable[[], bool]) -> bool:
        metadata, name = pod.metadata, group_name(pod)
        known = self._groups.get((metadata.namespace, name))
        is_there = await (self._make(pod, wanted) if known is None else self._renew(known, pod, wanted))
        if not is_there:
            return False
        body = {"metadata": {"uid": metadata.uid, "annotations": {GROUP_NAME: name}}}
        path = f"/api/v1/namespaces/{segment(metadata.namespace)}/pods/{segment(metadata.name)}"
        patched = await patch_once(self._transport, path, _encode(body), wanted=wanted, timing=self._timing)
        if patched.failure is None or is_about_another_pod(patched.failure):
            self._delete_pod(pod)
            return True
        return self._failed(f"Pod {metadata.namespace}/{metadata.name}", patched.failure)

    async def _make(self, pod: MemberPod, wanted: Callable[[], bool]) -> bool:
        """Whether there is a group for it now."""
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

    async def _renew(self, known: PodGroup, pod: MemberPod, wanted: Callable[[], bool]) -> bool:
        """A workload may have changed since its group was made: the group follows with the next pod of it."""
        owner = controller_of(pod)
        workload = self._workloads.get(owner.uid) if owner is not None else None
        body = self._group_for(pod, workload.metadata.annotations or {}) if workload is not None else None
        if body is None:
            return True
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

    async def _delete(self, namespace: str, name: str, wanted: Callable[[], bool]) -> bool:
        group = self._groups.get((namespace, name))
        if group is None:
            return True
        failure = await delete_once(
            self._transport, _path(namespace, name), group.metadata.uid, wanted=wanted, timing=self._timing
        )
        if failure is not None:
            return self._failed(f"PodGroup {namespace}/{name}", failure)
        self._delete_group(group)
        return True

    def _group_for(self, pod: MemberPod, of_owners: dict[str, str]) -> dict[str, Any] | None:
        """None for a pod that no group can be made for."""
        namespace = pod.metadata.namespace
        try:
            return group_for(pod, of_owners=of_owners, of_namespace=self._namespaces.get(namespace, {}))
        except QuantityError as error:
            self._complain(f"Pod {namespace}/{pod.metadata.name}", str(error))
            return None

    async def _annotations(self, pod: MemberPod) -> dict[str, str] | None:
        """Those of the workloads that own it, the first one's first; None where one cannot be read now."""
        found: dict[str, str] = {}
        for reference in pod.metadata.owner_references or ():
            annotations = await self._annotations_of(pod.metadata.namespace, reference)
            if annotations is None:
                return None
            found = {**annotations, **found}
        return found

    async def _annotations_of(self, namespace: str, owner: OwnerReference) -> dict[str, str] | None:
        plural = _WORKLOADS.get((owner.api_version, owner.kind))
        if plural is None:
            return {}
        # Its watch may not have shown it yet, though that of its pods has shown one.
        path = f"/apis/{owner.api_version}/namespaces/{segment(namespace)}/{plural}/{segment(owner.name)}"
        failure, response = await send_once(
            self._transport, Send("GET", path, asked_at(path, Verb.GET, owner.uid))
        )
        if response is not None:
            return _decode_owner(response.body).metadata.annotations or {}
        if failure is not None and failure.kind is FailureClass.NOT_FOUND:
            return {}
        self._failed(f"{owner.kind} {namespace}/{owner.name}", failure)
        return None

    def _learn(self, found: dict[str, Any]) -> None:
        """The watch may take a while to deliver it."""
        try:
            group = msgspec.convert(found, PodGroup)
        except msgspec.ValidationError:
            return
        if self._made(POD_GROUP, group):
            self._groups.setdefault((group.metadata.namespace, group.metadata.name), group)

    def _failed(self, what: str, failure: Failure | None) -> bool:
        """Never done with it: it is taken up again."""
        if failure is not None and failure.kind is not FailureClass.GONE:
            self._complain(what, str(failure))
        return False

    def _complain(self, what: str, problem: str) -> None:
        held = self._once.admit(problem[:60])
        if held is not None:
            self._log.error("pod not put into a group", object=what, problem=problem, held_back=held)


def _path(namespace: str, name: str) -> str:
    return pod_group_path(segment(namespace), segment(name))
