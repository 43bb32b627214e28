"""Maintains the states of queues and the counts of their groups by phase; creates the queues `root` and `default`.

Commands (bus.volcano.sh/v1alpha1) open and close a queue, as in Volcano, but only those of one namespace: a tenant who
may create Commands for the Jobs of its own namespace has no right to close the queues of others. The children of a
closed queue are closed and opened with it, except for those that were closed separately. The scheduler writes a queue's
allocated resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from agent_scheduler.cluster.groups import pod_groups, queues
from agent_scheduler.controllers.reconciling import PATIENCE, CreationReceiver, Reconciled
from agent_scheduler.engine.events.signals import Signal
from agent_scheduler.engine.quotas.queues import OWN_ANCESTOR
from agent_scheduler.objects.batch import (
    API_VERSION,
    CLOSE_QUEUE,
    CLOSED_BY_PARENT,
    COMMAND_VERSION,
    COMMANDS,
    DEFAULT_QUEUE,
    OPEN_QUEUE,
    QUEUES,
    ROOT_QUEUE,
    Command,
    PodGroup,
    Queue,
    command_path,
    queue_path,
)
from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from kube_client.create import create_once, delete_once
from kube_client.errors import Failure, FailureClass
from kube_client.informers import Kind
from kube_client.logs import OncePer
from kube_client.patch import patch_once
from kube_client.recorder import NORMAL, WARNING, EventRecorder, ObjectReference
from kube_client.retry import Timing
from kube_client.transport import Transport, segment
from kube_client.watch_events import is_older

from .states import COUNTED, OPEN, SHUT, QueueAction, closed, followed, is_marked, is_own_ancestor, parent_of, synced

_encode = msgspec.json.Encoder().encode

#: The reportingController of its events.
_REPORTER: Final = "agent-scheduler-queue"
#: The key of all commands. No queue has this name.
_COMMANDS_KEY: Final = ":commands"
#: Seconds between a change of a group and the write of its count.
_SETTLE: Final = 0.2
#: The minimum seconds between reports of refused Commands of one namespace.
_REFUSAL_SECONDS: Final = 60.0

#: The value for Commands of all namespaces.
ANY_NAMESPACE: Final = "*"

#: The queues that always exist. Other queues are reclaimable unless they are configured otherwise.
_ALWAYS: Final[Mapping[str, dict[str, Any]]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCommandSettings:
    """The settings.

    `command_namespace` is the only namespace whose Commands open and close queues: empty for none, `ANY_NAMESPACE` for
    all namespaces, as in Volcano.
    """

    command_namespace: str = ""


class QueueController:
    """A `Reconciler`. It handles one key at a time, so that writes of queues' states are never concurrent.

    Owner of the last observed or written queues, of the groups in them, and of the commands to execute.
    """

    name = "queue"
    workers = 1
    settle = _SETTLE
    patience = PATIENCE
    needs: tuple[str, ...] = ("Queue", "PodGroup")

    def __init__(
        self, settings: QueueCommandSettings, *, transport: Transport, events: EventRecorder, timing: Timing
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._events = events
        self._timing = timing
        self._log = get_logger("queue-controller")
        self._limited_log = LimitedLog(self._log, clock=timing.clock)
        self._refused = OncePer(_REFUSAL_SECONDS, clock=timing.clock)
        #: A key has to be reconciled.
        self._put: Signal[[str]] = Signal()
        self._queues: dict[str, Queue] = {}
        #: The names of each queue's children.
        self._below: dict[str, set[str]] = {}
        #: Queue and phase of each group by its UID; and the number of groups by queue and phase, without zeros.
        self._groups: dict[str, tuple[str, str]] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._commands: dict[str, Command] = {}

    # ---- watches

    def kinds(self, put: Callable[[str], None], _learn: CreationReceiver, _absent: Set[str]) -> list[Kind]:
        self._put.connect(put)
        return [
            queues(self._set_queue, self._delete_queue),
            pod_groups(self._set_group, self._delete_group),
            Kind(
                "Command",
                COMMANDS,
                msgspec.json.Decoder(Command).decode,
                self._set_command,
                self._delete_command,
                optional=True,
            ),
        ]

    def all_keys(self) -> Iterable[str]:
        return [*dict.fromkeys((*_ALWAYS, *self._queues)), _COMMANDS_KEY]

    @property
    def counts(self) -> dict[str, Mapping[str, int]]:
        """The number of groups by queue and phase."""
        return {name: self._numbers.get(name, {}) for name in self._queues}

    def _set_queue(self, found: Queue) -> None:
        known = self._queues.get(found.name)
        if known is not None:
            # An equal version is applied: what `_patch` derives from a response may lack other clients' changes.
            if known.metadata.uid == found.metadata.uid and is_older(
                found.metadata.resource_version, known.metadata.resource_version
            ):
                return
            self._forget_parent(known)
        self._queues[found.name] = found
        self._below.setdefault(parent_of(found), set()).add(found.name)
        self._put_with_those_below(found.name)

    def _delete_queue(self, gone: Queue) -> None:
        known = self._queues.get(gone.name)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self._queues[gone.name]
            self._forget_parent(known)
            self._put_with_those_below(gone.name)

    def _forget_parent(self, queue: Queue) -> None:
        parent = parent_of(queue)
        below = self._below.get(parent, set())
        below.discard(queue.name)
        if not below:
            self._below.pop(parent, None)

    def _put_with_those_below(self, name: str) -> None:
        for each in (name, *sorted(self._below.get(name, ()))):
            self._put(each)

    def _set_group(self, found: PodGroup) -> None:
        uid = found.metadata.uid
        now = (found.spec.queue or DEFAULT_QUEUE, found.status.phase or "Pending")
        if self._groups.get(uid) != now:
            self._delete_group(found)
            self._groups[uid] = now
            self._count(*now, 1)

    def _delete_group(self, gone: PodGroup) -> None:
        before = self._groups.pop(gone.metadata.uid, None)
        if before is not None:
            self._count(*before, -1)

    def _count(self, queue: str, phase: str, by: int) -> None:
        numbers = self._numbers.setdefault(queue, {})
        numbers[phase] = numbers.get(phase, 0) + by
        if not numbers[phase]:
            del numbers[phase]
        if not numbers:
            del self._numbers[queue]
        self._put(queue)

    def _set_command(self, found: Command) -> None:
        target = found.target
        if target is not None and (target.api_version, target.kind) == (API_VERSION, "Queue"):
            if self._settings.command_namespace not in (ANY_NAMESPACE, found.metadata.namespace):
                self._refuse(found)
                return
            self._commands[found.metadata.uid] = found
            self._put(_COMMANDS_KEY)

    def _refuse(self, command: Command) -> None:
        """Report a Command of another namespace, which is not executed; at most once a minute per namespace."""
        metadata = command.metadata
        held = self._refused.admit(metadata.namespace)
        if held is None:
            return
        allowed = self._settings.command_namespace
        problem = (
            f"Commands for queues are executed only from the namespace {allowed}"
            if allowed
            else "Commands for queues are not executed"
        )
        name = f"{metadata.namespace}/{metadata.name}"
        self._log.warning("command refused", command=name, problem=problem, held_back=held)
        self._events.event(
            _reference_of(command),
            type=WARNING,
            reason="CommandRefused",
            action="Refuse",
            note=f"{problem} (--queue-command-namespace)",
            controller=_REPORTER,
        )

    def _delete_command(self, gone: Command) -> None:
        self._commands.pop(gone.metadata.uid, None)

    def about(self, key: str) -> Reconciled | None:
        queue = self._queues.get(key)
        return None if queue is None else Reconciled(_reference(queue), queue.metadata)

    # ---- what is done

    async def reconcile(self, key: str, wanted: Callable[[], bool]) -> bool:
        if key == _COMMANDS_KEY:
            return await self._carry_out(wanted)
        if key not in self._queues:
            return key not in _ALWAYS or await self._make(key, wanted)
        return await self._sync(key, wanted)

    async def _make(self, name: str, wanted: Callable[[], bool]) -> bool:
        body = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": _ALWAYS[name]}
        made = await create_once(self._transport, QUEUES, name, _encode(body), wanted=wanted, timing=self._timing)
        if made.failure is None:
            self._log.info("queue created", queue=name)
        # If it exists already, the watch delivers it.
        return made.failure is None or bool(made.found) or self._failed(name, made.failure)

    async def _sync(self, name: str, wanted: Callable[[], bool]) -> bool:
        state = synced(self._queues[name].status.state, has_groups=name in self._numbers)
        if not (await self._name_parent(name, wanted) and await self._write_status(name, state, wanted)):
            return False
        queue = self._queues.get(name)
        if queue is None:
            return True
        if is_own_ancestor(queue, self._queues):
            note = f"spec.parent: {OWN_ANCESTOR}; allowed: a queue that is not below it"
            self._say(queue, WARNING, "InvalidParent", note)
        match followed(queue, self._queues.get(parent_of(queue))):
            case QueueAction.CLOSE:
                return await self._mark(name, "true", wanted) and await self._close(name, wanted)
            case QueueAction.OPEN:
                return await self._open(name, wanted)
            case QueueAction.UNMARK:
                return await self._mark(name, "false", wanted)
            case QueueAction.NONE:
                return True

    async def _name_parent(self, name: str, wanted: Callable[[], bool]) -> bool:
        queue = self._queues[name]
        if name == ROOT_QUEUE or queue.spec.parent:
            return True
        spec = msgspec.structs.replace(queue.spec, parent=ROOT_QUEUE)
        return await self._patch(
            queue, {"spec": {"parent": ROOT_QUEUE}}, msgspec.structs.replace(queue, spec=spec), wanted
        )

    async def _carry_out(self, wanted: Callable[[], bool]) -> bool:
        """Execute the commands in the order of their creation, and delete each after it."""
        is_done = True
        for command in sorted(self._commands.values(), key=_given):
            assert command.target is not None, "only those with a target are kept"
            try:
                if not await self._obey(command.target.name, command.action, wanted):
                    return False
            except Exception as error:
                # The others must not wait for it.
                is_done = False
                self._fail(command, error)
                continue
            metadata = command.metadata
            failure = await delete_once(
                self._transport,
                command_path(segment(metadata.namespace), segment(metadata.name)),
                metadata.uid,
                wanted=wanted,
                timing=self._timing,
            )
            if failure is not None:
                return self._failed(f"{metadata.namespace}/{metadata.name}", failure)
            self._commands.pop(metadata.uid, None)
        return is_done

    def _fail(self, command: Command, error: Exception) -> None:
        problem = f"{type(error).__name__}: {error}"
        name = f"{command.metadata.namespace}/{command.metadata.name}"
        self._limited_log.error("command failed", name, command=name, problem=problem, exc_info=error)
        self._events.event(
            _reference_of(command),
            type=WARNING,
            reason="CommandFailed",
            action="Execute",
            note=problem,
            controller=_REPORTER,
        )

    async def _obey(self, name: str, action: str, wanted: Callable[[], bool]) -> bool:
        queue = self._queues.get(name)
        if queue is None or action not in (OPEN_QUEUE, CLOSE_QUEUE):
            self._log.info("command ignored", queue=name, action=action)
            return True
        if action == OPEN_QUEUE:
            if queue.status.state in ("", OPEN):
                return True
            parent = self._queues.get(parent_of(queue))
            if parent is not None and parent.name != ROOT_QUEUE and parent.status.state in SHUT:
                self._log.warning("queue not opened", queue=name, problem=f"open its parent {parent.name} first")
                return True
            return await self._open(name, wanted)
        if name == ROOT_QUEUE:
            self._log.warning("queue not closed", queue=name, problem="the root queue cannot be closed")
            return True
        # A queue that is closed separately must not be opened with its parent.
        return (not is_marked(queue) or await self._mark(name, "false", wanted)) and await self._close(name, wanted)

    async def _open(self, name: str, wanted: Callable[[], bool]) -> bool:
        return await self._write_status(name, OPEN, wanted) and await self._mark(name, "false", wanted)

    async def _close(self, name: str, wanted: Callable[[], bool]) -> bool:
        queue = self._queues.get(name)
        if queue is None:
            return True
        before = queue.status.state
        if not await self._write_status(name, closed(before, has_groups=name in self._numbers), wanted):
            return False
        if before not in SHUT:
            self._say(queue, NORMAL, CLOSE_QUEUE, "Close queue succeed")
        return True

    def _say(self, queue: Queue, kind: str, reason: str, note: str) -> None:
        self._events.event(_reference(queue), type=kind, reason=reason, action=reason, note=note, controller=_REPORTER)

    # ---- writes: each also succeeds if the queue is gone

    async def _mark(self, name: str, mark: str, wanted: Callable[[], bool]) -> bool:
        queue = self._queues.get(name)
        if queue is None or (queue.metadata.annotations or {}).get(CLOSED_BY_PARENT) == mark:
            return True
        annotations = {**(queue.metadata.annotations or {}), CLOSED_BY_PARENT: mark}
        metadata = msgspec.structs.replace(queue.metadata, annotations=annotations)
        return await self._patch(
            queue,
            {"metadata": {"annotations": {CLOSED_BY_PARENT: mark}}},
            msgspec.structs.replace(queue, metadata=metadata),
            wanted,
        )

    async def _write_status(self, name: str, state: str, wanted: Callable[[], bool]) -> bool:
        queue = self._queues.get(name)
        if queue is None:
            return True
        numbers = self._numbers.get(name, {})
        # Some versions of Volcano's CRD require it; an empty one keeps what the scheduler has written.
        allocated = queue.status.allocated or {}
        status = msgspec.structs.replace(
            queue.status,
            state=state,
            allocated=allocated,
            **{field: numbers.get(phase, 0) for phase, field in COUNTED.items()},
        )
        if status == msgspec.structs.replace(queue.status, allocated=allocated):
            return True
        # A missing number means 0.
        said: dict[str, Any] = {"state": state, "allocated": {}, **{to: numbers.get(of) for of, to in COUNTED.items()}}
        return await self._patch(
            queue, {"status": said}, msgspec.structs.replace(queue, status=status), wanted, subresource="/status"
        )

    async def _patch(
        self, queue: Queue, patch: dict[str, Any], after: Queue, wanted: Callable[[], bool], *, subresource: str = ""
    ) -> bool:
        """Write `patch`, which changes the queue to `after`."""
        metadata = {"uid": queue.metadata.uid, **patch.get("metadata", {})}
        body = _encode({**patch, "metadata": metadata})
        path = queue_path(segment(queue.name)) + subresource
        patched = await patch_once(self._transport, path, body, wanted=wanted, timing=self._timing)
        if patched.failure is not None:
            return self._failed(queue.name, patched.failure)
        known = self._queues.get(queue.name)
        if known is not None and is_older(known.metadata.resource_version, patched.resource_version):
            # The next decision needs it before the watch delivers it.
            version = msgspec.structs.replace(after.metadata, resource_version=patched.resource_version)
            self._set_queue(msgspec.structs.replace(after, metadata=version))
        return True

    def _failed(self, name: str, failure: Failure) -> bool:
        """Log the failure. Returns whether no work is left because the queue is gone."""
        if failure.kind in (FailureClass.NOT_FOUND, FailureClass.GONE):
            return failure.kind is FailureClass.NOT_FOUND
        self._limited_log.error(
            "queue not written", f"{failure.kind} {failure.message[:60]}", queue=name, problem=str(failure)
        )
        return False


def _reference(queue: Queue) -> ObjectReference:
    return ObjectReference("Queue", "", queue.name, queue.metadata.uid, API_VERSION)


def _reference_of(command: Command) -> ObjectReference:
    metadata = command.metadata
    return ObjectReference("Command", metadata.namespace, metadata.name, metadata.uid, COMMAND_VERSION)


def _given(command: Command) -> tuple[str, int, str]:
    """Return the sort key for the order of creation; versions of one store increase."""
    metadata = command.metadata
    version = metadata.resource_version
    return metadata.creation_timestamp or "", int(version) if version.isdecimal() else 0, metadata.uid
