"""What users see of a pod's fate: its PodScheduled condition and its events, in kube-scheduler's words."""

from __future__ import annotations

from agent_scheduler.engine.state.podcounts import Countable
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.recorder import NORMAL, WARNING, EventRecorder, ObjectReference
from agent_scheduler.kube.status import PodCondition, StatusWriter
from agent_scheduler.kube.transport import PodKey

#: Longer condition messages are cut, as kube-scheduler cuts those of its events (`truncateMessage`).
_MESSAGE_LIMIT = 1024


class KubeMessenger:
    """Tells the API server through the status writer and the event recorder, which queue and never block."""

    def __init__(self, *, status: StatusWriter, recorder: EventRecorder | None) -> None:
        """`recorder` None: events are switched off."""
        self._status = status
        self._recorder = recorder

    def refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        message = shortened(message)
        condition = PodCondition("False", reason, message, observed_generation=pod.generation)
        self._status.report(_key(pod), condition, known=_known(pod), nominated=nominated)
        if self._recorder is not None:
            self._recorder.event(
                _reference(pod),
                type=WARNING,
                reason="FailedScheduling",
                action="Scheduling",
                note=message,
                controller=pod.scheduler_name,
            )

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        self._status.nominate(_key(pod), node_name, known=_known(pod))

    def preempted(self, victim: Countable, preemptor: PodInfo, node_name: str) -> None:
        if self._recorder is not None:
            self._recorder.event(
                _reference(victim),
                type=NORMAL,
                reason="Preempted",
                action="Preempting",
                note=f"Preempted by pod {preemptor.uid} on node {node_name}",
                controller=preemptor.scheduler_name,
            )

    def binding(self, pod: PodInfo) -> None:
        self._status.forget(pod)

    def scheduled(self, pod: PodInfo, node_name: str) -> None:
        if self._recorder is not None:
            self._recorder.once(
                _reference(pod),
                type=NORMAL,
                reason="Scheduled",
                action="Binding",
                note=f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}",
                controller=pod.scheduler_name,
            )

    def waits_for_devices(self, pod: PodInfo, node_name: str) -> None:
        if self._recorder is not None:
            self._recorder.once(
                _reference(pod),
                type=NORMAL,
                reason="BindingConditionsPending",
                action="Scheduling",
                note=f"waiting for binding conditions for device on node {node_name}",
            )

    def settled(self, pod: PodInfo) -> None:
        """The pod has a node or is gone: what waits to be said about its refusal is no longer true."""
        self._status.forget(pod)


def _key(pod: PodInfo) -> PodKey:
    return PodKey(pod.namespace, pod.name, pod.uid)


def _known(pod: PodInfo) -> PodCondition | None:
    if pod.condition is None:
        return None
    status, reason, message, generation = pod.condition
    return PodCondition(status, reason, message, observed_generation=generation)


def _reference(pod: Countable) -> ObjectReference:
    return ObjectReference("Pod", pod.namespace, pod.name, pod.uid)


def shortened(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "..."
