"""Reports errors in the handling of single objects, and keeps the objects that are set aside.

An error in the handling of an object concerns only that object: it is counted, and reported in the log and in a
Warning event once for each version. For ends of the process that Python cannot catch, each step marks its object in a
`StepFile`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from agent_scheduler.telemetry.families import Families
from agent_scheduler.telemetry.logs import get_logger
from agent_scheduler.telemetry.set_aside import SECONDS, SetAside, StepSubject
from agent_scheduler.telemetry.step_file import StepFile
from agent_scheduler.telemetry.steps import LoopSteps, StepKind
from kube_client.informers import Kind
from kube_client.recorder import WARNING, EventRecorder, ObjectReference
from kube_client.watch_events import Identity, Object, ObjectMeta

#: Reasons of events.
UNREADABLE: Final = "UnreadableObject"
FAILED: Final = "HandlingFailed"
SET_ASIDE: Final = "SetAside"
#: The number of objects whose last report is remembered.
_TOLD: Final = 1024


class HasVersion(ObjectMeta, Protocol):
    """The metadata of an object, with the version of its spec."""

    @property
    def generation(self) -> int | None: ...


def subject_of(step: StepKind, kind: str, metadata: HasVersion) -> StepSubject:
    return StepSubject(
        *(step, kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version),
        metadata.generation or 0,
    )


class ObjectHandling:
    """Owner of the objects of a process that are set aside, and of the file of its steps."""

    def __init__(self, families: Families, steps: LoopSteps) -> None:
        self._log = get_logger("objects")
        self._steps = steps
        self._failures = families.counter(
            "agent_scheduler_object_failures_total",
            "Errors in the handling of an object, which concerned only that object, by kind and step.",
            "kind",
            "step",
        )
        self._set_aside = families.counter(
            "agent_scheduler_objects_set_aside_total",
            "Versions of objects that are not handled because handling them ended the process or failed.",
            "kind",
            "step",
        )
        self._file: StepFile | None = None
        self._events: EventRecorder | None = None
        self._now: Callable[[], float] = lambda: 0.0
        self.aside = SetAside()
        #: Report and UID -> the version of the object in the last report.
        self._told: dict[tuple[str, str], str] = {}

    def begin(self, file: StepFile | None, *, now: Callable[[], float], renew_deadline: float) -> None:
        """Mark steps in this file, if any, and set aside what it says. `now` is in seconds since 1970.

        A step that lasts more than half of `renew_deadline` may cost the lease.
        """
        self._file, self._now = file, now
        if file is None:
            return
        self.aside.read(file.records)
        for each in file.ended_in:
            self._log.warning(
                "ended in a step", step=each.step, kind=each.kind, key=each.key, uid=each.uid, version=each.version
            )

        def late() -> None:
            file.keep_late()
            # If the process is still here then, that step did not end it.
            asyncio.get_running_loop().call_later(2 * renew_deadline, self._survived)

        self._steps.too_long = renew_deadline / 2
        self._steps.was_too_long.connect(late)

    def _survived(self) -> None:
        if self._file is not None:
            self._file.clear_late()

    def end(self, *, regularly: bool) -> None:
        """Release the file. After a regular end no step counts."""
        file, self._file = self._file, None
        if file is not None:
            file.clear_current()
            if regularly:
                file.clear_late()
            file.close()

    def tell_by(self, events: EventRecorder | None) -> None:
        """Write events about objects from now on."""
        self._events = events

    # ---- steps

    def mark(
        self, step: StepKind, kind: str, namespace: str, name: str, uid: str, version: str, generation: int = 0
    ) -> None:
        """Record that a step on an object begins; it ends with the next one, or with `clear`."""
        if self._file is not None:
            self._file.mark(step, kind, namespace, name, uid, version, generation)

    def mark_subject(self, subject: StepSubject) -> None:
        if self._file is not None:
            self._file.mark(
                *(subject.step, subject.kind, subject.namespace, subject.name, subject.uid, subject.version),
                subject.generation,
            )

    @property
    def marks(self) -> bool:
        """Whether there is a file for marks."""
        return self._file is not None

    def clear(self) -> None:
        """Record that no object is being handled."""
        if self._file is not None:
            self._file.clear_current()

    def why_not(self, subject: StepSubject, looks: object = None, *, about: ObjectReference | None = None) -> str:
        """Return why an object must not be handled, and report it; empty if it is to be handled."""
        why = self.aside.why(subject, self._now(), looks)
        # A report on the object itself must not count as a change of it.
        version = str(subject.generation or subject.version)
        if why and self._is_new(f"{SET_ASIDE} {subject.step}", subject.uid, version):
            self._set_aside.labels(subject.kind, subject.step).inc()
            self._log.error("object set aside", kind=subject.kind, key=subject.key, uid=subject.uid, problem=why)
            self._tell(about, SET_ASIDE, why)
        return why

    def set_aside(self, subject: StepSubject, why: str, looks: object = None) -> None:
        """Handle an object no more until it changes."""
        self.aside.add(subject, why, until=self._now() + SECONDS, looks=looks)

    # ---- errors

    def failed(self, subject: StepSubject, error: Exception, *, about: ObjectReference | None = None) -> None:
        """Report that the handling of an object raised an error."""
        self._failures.labels(subject.kind, subject.step).inc()
        if self._is_new(f"{FAILED} {subject.step}", subject.uid, subject.version):
            self._log.error(
                "object not handled",
                step=subject.step,
                kind=subject.kind,
                key=subject.key,
                problem=f"{type(error).__name__}: {error}",
                exc_info=error,
            )
            self._tell(about, FAILED, f"{subject.step}: {type(error).__name__}: {error}")

    def _is_new(self, what: str, uid: str, version: str) -> bool:
        if self._told.get((what, uid)) == version:
            return False
        self._told.pop((what, uid), None)
        while len(self._told) >= _TOLD:
            del self._told[next(iter(self._told))]
        self._told[what, uid] = version
        return True

    def _tell(self, about: ObjectReference | None, reason: str, note: str) -> None:
        if about is not None and self._events is not None:
            self._events.event(about, type=WARNING, reason=reason, action="Handle", note=note)

    # ---- watches: see `kube_client.informers.InformerObserver`

    def applies(self, kind: Kind, item: Object) -> bool:
        # Every change of every object passes here.
        if self._file is not None:
            of = item.metadata
            self._file.mark("watch", kind.name, of.namespace, of.name, of.uid, of.resource_version, 0)
        if not self.aside.any:
            return True
        subject = _of_watch(kind, item)
        return not self.why_not(subject, about=kind.reference(subject.namespace, subject.name, subject.uid))

    def change_failed(self, kind: Kind, item: Object, error: Exception) -> None:
        subject = _of_watch(kind, item)
        self.failed(subject, error, about=kind.reference(subject.namespace, subject.name, subject.uid))

    def unreadable(self, kind: Kind, who: Identity, problem: str) -> None:
        """Record an event about an object that cannot be read. It is counted and logged already."""
        if who.name and self._is_new(UNREADABLE, who.uid, who.resource_version):
            note = f"cannot be read, and is left out: {problem}"
            self._tell(kind.reference(who.namespace, who.name, who.uid), UNREADABLE, note)


def _of_watch(kind: Kind, item: Object) -> StepSubject:
    metadata = item.metadata
    where = metadata.namespace, metadata.name, metadata.uid
    return StepSubject("watch", kind.name, *where, metadata.resource_version)
