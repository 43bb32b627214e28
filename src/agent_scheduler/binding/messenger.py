"""Reports a pod's state to users: PodScheduled condition, nominated node and events, with kube-scheduler's texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.gangs.native import POD_GROUP_SCHEDULED, NativeGroup
from agent_scheduler.engine.queues.shortfall import QUEUE_FULL
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import Condition, PodInfo
from agent_scheduler.engine.verdicts import SCHEDULING_GATED, Verdict
from kube_client.recorder import NORMAL, WARNING, EventRecorder, ObjectReference
from kube_client.status import PodCondition, StatusWriter
from kube_client.transport import PodKey, pod_path

from .claim_writer import PatchCall

#: Longer condition messages are cut, as kube-scheduler does in events (`truncateMessage`).
_MESSAGE_LIMIT = 1024


class KubeMessenger:
    """Reports through the status writer and the event recorder, which queue and never block."""

    def __init__(self, *, status: StatusWriter, groups: StatusWriter, recorder: EventRecorder | None) -> None:
        """Create the messenger; `groups` writes conditions of PodGroups. If `recorder` is None, there are no events."""
        self._status = status
        self._groups = groups
        self._recorder = recorder

    def refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        """Report PodScheduled=False with `reason` (if it differs), and a FailedScheduling event.

        `nominated` is the node that the pod waits for from now on; "" removes the nomination, None keeps it.
        """
        message = shortened(message)
        condition = PodCondition("False", reason, message, observed_generation=pod.generation)
        self._status.report(_key(pod), condition, known=_known(pod), nominated=nominated)
        self._event(pod, WARNING, "FailedScheduling", "Scheduling", message, pod.scheduler_name)

    def gated(self, pod: PodInfo, message: str, *, nominated: str | None = None) -> None:
        """Report the pod's gates in its condition, with the API server's text. There is no event."""
        condition = PodCondition("False", SCHEDULING_GATED, message, observed_generation=pod.generation)
        self._status.report(_key(pod), condition, known=_known(pod), nominated=nominated)

    def confirmed(self, pod: PodInfo) -> None:
        """Record that the pod already has the condition that was decided, so that a late write of it is undone."""
        if (known := _known(pod)) is not None:
            self._status.confirm(pod, known)

    def stranger(self, pod: PodInfo, verdict: Verdict) -> None:
        """Report a pod that requests an unknown scheduler."""
        condition = PodCondition("False", verdict.reason, verdict.message, observed_generation=pod.generation)
        self._status.report(_key(pod), condition, known=_known(pod))
        self._event(pod, WARNING, "FailedScheduling", "Scheduling", verdict.message, None)

    def held(self, pods: Sequence[PodInfo], why: str) -> None:
        """Record that the pods wait behind their queue's gate. Their condition is the API server's."""
        for pod in pods:
            note = f"held by the gate of its queue: {why}"
            self._event(pod, NORMAL, QUEUE_FULL, "Scheduling", note, pod.scheduler_name, once=True)

    def _event(
        self,
        pod: PodInfo,
        type: str,
        reason: str,
        action: str,
        note: str,
        controller: str | None,
        *,
        once: bool = False,
    ) -> None:
        if self._recorder is not None:
            record = self._recorder.once if once else self._recorder.event
            about = ObjectReference("Pod", pod.namespace, pod.name, pod.uid)
            record(about, type=type, reason=reason, action=action, note=note, controller=controller)

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Set status.nominatedNodeName to `node_name`, or remove it if that is empty."""
        self._status.nominate(_key(pod), node_name, known=_known(pod))

    def preempted(self, victim: PodInfo, preemptor: PodInfo, node_name: str) -> None:
        """Record a Preempted event on the victim."""
        note = f"Preempted by pod {preemptor.uid} on node {node_name}"
        self._event(victim, NORMAL, "Preempted", "Preempting", note, preemptor.scheduler_name)

    def binding(self, pod: PodInfo) -> None:
        """Drop pending reports of a refusal, because a bind is about to be sent."""
        self._status.forget(pod)

    def scheduled(self, pod: PodInfo, node_name: str) -> None:
        """Record a Scheduled event."""
        # Every pod passes here.
        if self._recorder is not None:
            note = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
            self._event(pod, NORMAL, "Scheduled", "Binding", note, pod.scheduler_name, once=True)

    def group_decided(self, group: NativeGroup, status: str, reason: str, message: str) -> None:
        """Write the group's PodGroupScheduled condition if it differs.

        Once True it stays True, as in kube-scheduler: later members do not affect it.
        """
        known, key = _known_of_group(group), _key_of_group(group)
        generation = group.metadata.generation or 0
        condition = PodCondition(status, reason, shortened(message), POD_GROUP_SCHEDULED, generation)
        if status == "True" or not self._groups.says(key, "True", known=known):
            self._groups.report(key, condition, known=known)

    def group_seen(self, group: NativeGroup) -> None:
        """See `seen`, for a group."""
        self._groups.seen(_key_of_group(group), _known_of_group(group), group.metadata.resource_version)

    def group_gone(self, key: GroupKey, uid: str) -> None:
        self._groups.forget(PodKey(key.namespace, key.name, uid))

    def waits_for_devices(self, pod: PodInfo, node_name: str) -> None:
        """Record a BindingConditionsPending event."""
        note = f"waiting for binding conditions for device on node {node_name}"
        self._event(pod, NORMAL, "BindingConditionsPending", "Scheduling", note, None, once=True)

    def seen(self, pod: PodInfo) -> None:
        """Compare the condition with the watch's state of a waiting pod: the last report may have been overwritten."""
        if self._status.has_report(pod.uid):
            self._status.seen(_key(pod), _known(pod), pod.resource_version)

    def condition_of(self, pod: PodInfo) -> Condition | None:
        """Return the last reported condition while the watch may be behind it, otherwise that of the watch."""
        said = self._status.unseen(pod, pod.resource_version)
        return pod.condition if said is None else (said.status, said.reason, said.message, said.observed_generation)

    def settled(self, pod: PodInfo) -> None:
        """Drop pending reports, because the pod has a node or is gone."""
        self._status.forget(pod)


def _key(pod: PodInfo) -> PodKey:
    return PodKey(pod.namespace, pod.name, pod.uid)


def _key_of_group(group: NativeGroup) -> PodKey:
    return PodKey(group.key.namespace, group.key.name, group.uid)


def _known_of_group(group: NativeGroup) -> PodCondition | None:
    said = group.condition
    if said is None:
        return None
    generation = said.observed_generation or 0
    return PodCondition(said.status, said.reason, said.message, POD_GROUP_SCHEDULED, generation)


def _known(pod: PodInfo) -> PodCondition | None:
    if pod.condition is None:
        return None
    status, reason, message, generation = pod.condition
    return PodCondition(status, reason, message, observed_generation=generation)


def shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "..."


_encode = msgspec.json.Encoder().encode


class Expectations:
    """Writes the node to which a pod is about to be bound, if the bind waits for other writes (KEP-5278).

    `status.nominatedNodeName` makes autoscalers keep the node, and the next attempt begins there. It is written once
    per attempt, and a failure has no effect: the bind names the node a little later, and the API server then clears the
    field. If the pod waits for a stage, the write is repeated until the watch shows it, because a new process has no
    other record of the reserved room. The patch includes the observed version, so that a delayed patch cannot change a
    bound pod.
    """

    def __init__(self, cluster: Cluster, patch: PatchCall) -> None:
        self._cluster = cluster
        self._patch = patch

    async def tell(self, pod: PodInfo, node_name: str, wanted: Callable[[], bool]) -> None:
        """Write the nomination; no-op if the pod has it already, or has a node."""
        seen = self._cluster.pods.get(pod.uid)
        if seen is None or seen.node_name or seen.nominated_node_name == node_name:
            return
        metadata = {"uid": seen.uid, "resourceVersion": seen.resource_version}
        body = _encode({"metadata": metadata, "status": {"nominatedNodeName": node_name}})
        await self._patch(f"{pod_path(pod)}/status", body, wanted=wanted, repeats=False)
