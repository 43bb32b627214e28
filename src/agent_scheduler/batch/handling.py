"""Finds the group that a step of a session handles, so that an error or an end of the process concerns only it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_scheduler.cluster.groups import POD_GROUP, Groups
from agent_scheduler.engine.gangs.group import PodGroupInfo
from agent_scheduler.engine.session.model import JobInfo, TaskInfo
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import API_VERSION, NATIVE_API, NativePodGroup, PodGroup
from agent_scheduler.telemetry.handling import ObjectHandling, subject_of
from agent_scheduler.telemetry.set_aside import StepSubject
from kube_client.recorder import ObjectReference

#: The sessions in a row that a group may fail before it is left out.
_FAILURES: Final = 2


class GroupHandling:
    """Owns the current group of the session, and the failures of groups in a row."""

    def __init__(self, groups: Groups, handling: ObjectHandling) -> None:
        self._groups = groups
        self._handling = handling
        self._current: StepSubject | None = None
        self._failures: dict[GroupKey, int] = {}

    # ---- marks

    def begins(self, group: PodGroupInfo | None) -> None:
        """Mark that the session handles this group from now on; None if it handles none in particular."""
        if self._handling.marks:
            self._current = None if group is None else self._subject(group.key)
            self.go_on()

    def go_on(self) -> None:
        """Mark the group again after other tasks have run."""
        if self._current is None:
            self._handling.clear()
        else:
            self._handling.mark_subject(self._current)

    def pause(self) -> None:
        """Record that other tasks run."""
        self._handling.clear()

    def _subject(self, key: GroupKey) -> StepSubject | None:
        known = self._groups.groups.get(key)
        if known is not None and known.object is not None:
            return subject_of("session", POD_GROUP, known.object.metadata)
        pod = self._groups.bare.get(key.name)
        return None if pod is None else subject_of("session", "Pod", pod)

    # ---- groups that are left out

    def why_not(self, key: GroupKey, found: PodGroup | NativePodGroup | None, pods: Iterable[PodInfo]) -> str:
        """Return why a session leaves a group out; empty if it does not. For a pod without a group `found` is None."""
        if not self._handling.aside.any:
            return ""
        subject = self._subject(key)
        return (
            "" if subject is None else self._handling.why_not(subject, _looks(found, pods), about=_about(subject, key))
        )

    def failed(self, error: Exception) -> None:
        """Report that a session has failed. A group that fails several sessions in a row is left out of the next."""
        key = _group_at(error)
        failures = {} if key is None else {key: self._failures.get(key, 0) + 1}
        self._failures = failures
        subject = None if key is None else self._subject(key)
        if key is None or subject is None:
            return
        self._handling.failed(subject, error, about=_about(subject, key))
        if failures[key] >= _FAILURES:
            known, pod = self._groups.groups.get(key), self._groups.bare.get(key.name)
            found = None if known is None else known.object
            pods = known.members.values() if known is not None else () if pod is None else (pod,)
            problem = f"sessions fail in the handling of this object: {type(error).__name__}: {error}"
            self._handling.set_aside(subject, problem, _looks(found, pods))

    def succeeded(self) -> None:
        self._failures = {}


def _looks(found: PodGroup | NativePodGroup | None, pods: Iterable[PodInfo]) -> object:
    """Return what the handling of a group depends on, without its status."""
    members = frozenset((pod.uid, pod.cls, pod.gates) for pod in pods)
    return members if found is None else (found.spec, found.metadata.annotations, found.metadata.labels, members)


def _about(subject: StepSubject, key: GroupKey) -> ObjectReference:
    version = "v1" if subject.kind == "Pod" else NATIVE_API.removeprefix("/apis/") if key.native else API_VERSION
    return ObjectReference(subject.kind, subject.namespace, subject.name, subject.uid, version)


def _group_at(error: Exception) -> GroupKey | None:
    """Return the group on which the innermost function works that has one, in the error's traceback."""
    at, found = error.__traceback__, None
    while at is not None:
        here: GroupKey | None = None
        for value in at.tb_frame.f_locals.values():
            if isinstance(value, GroupKey):
                here = value
                break
            if isinstance(value, TaskInfo):
                here = value.job.group.key
            elif isinstance(value, JobInfo):
                here = value.group.key
            elif isinstance(value, PodGroupInfo):
                here = value.key
        found, at = here or found, at.tb_next
    return found
