"""The base of the workload controllers: ownership, work queue and writes.

Objects are written through the API as a service account of kube-system, so that webhooks and policies apply
to the created pods. While a webhook call is pending, the object is not reconciled, so that nothing is created
twice.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import Counter
from typing import Any

from .. import nesting
from ..auth.identity import AUTHENTICATED, User, account_groups, account_name
from ..controllers import Controller, TimedQueue
from ..handlers import Api
from ..recorder import Recorder
from ..requests import Request, Response, Stream
from ..resource import Object
from ..store import Event, Record
from ..subresources import PODS
from .pods import Pod, read

_NAMESPACE = "kube-system"
_MERGE = "application/merge-patch+json"
Name = tuple[str, str]
#: Seconds until a rejected write is retried; doubled at each retry, up to the limit.
_RETRY, _LONGEST_RETRY = 1.0, 60.0


class Workloads(Controller):
    """The controller of one kind.

    Invariant: an object that changed, or that owns something that changed, is in `_changed` until it is
    reconciled. While a response for it is pending, `_open` has it instead, and the response puts it back.
    """

    #: Group and plural; apiVersion and kind.
    name: Name
    kind: tuple[str, str]
    #: Group and plural of the objects that it creates.
    makes: Name = PODS
    #: The service account of its writes, and the component of its events.
    account: str

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        self.table = api.registry.stored(self.name).table
        self.made = api.registry.stored(self.makes).table
        self._user = User(account_name(_NAMESPACE, self.account), groups=(*account_groups(_NAMESPACE), AUTHENTICATED))
        self._recorder = Recorder(self.store, self.account)
        #: The key of each object of the kind, by UID.
        self._keys: dict[str, str] = {}
        self._changed = TimedQueue()
        #: Number of pending responses, by key of the reconciled object.
        self._open: Counter[str] = Counter()
        self._asked: set[asyncio.Future[Any]] = set()
        #: Number of consecutive rejections, by key.
        self._refused: Counter[str] = Counter()
        #: The pods of each object when it was last reconciled: UID of the object -> UID of the pod -> pod.
        self._pods_of: dict[str, dict[str, Pod]] = {}
        #: Whether it is subscribed to what it creates, which it is from its first object on.
        self._follows = False
        for record in self.table.scan(""):
            self._note(record)
        self.table.subscribers.append(self._object_changed)

    def _object_changed(self, event: Event) -> None:
        record = event.record
        if event.type == "DELETED":
            self._keys.pop(record.uid, None)
            self._pods_of.pop(record.uid, None)
            self._refused.pop(record.key, None)
        else:
            self._note(record)
            self.wake()

    def _note(self, record: Record) -> None:
        if not self._follows:
            self._follows = True
            self.made.subscribers.append(self._made_changed)
        self._keys[record.uid] = record.key
        self._changed.add(record.key)

    def recheck(self) -> None:
        """Reconcile every object."""
        self._changed.extend(self._keys.values())
        self.wake()

    def _made_changed(self, event: Event) -> None:
        for owner in event.record.owners:
            key = self._keys.get(owner)
            if key is not None:
                self._changed.add(key)
                self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`."""
        return self._changed.advance(self.store.clock(), most, self._see)

    def _see(self, key: str) -> None:
        record = self.table.records.get(key)
        if record is not None and not self._open[key]:
            self.reconcile(record, nesting.loads(record.data))

    @abstractmethod
    def reconcile(self, record: Record, obj: Object) -> None:
        """Move the object towards its desired state. Called again after each change."""

    def again(self, record: Record, seconds: float) -> None:
        """Reconcile the object again after `seconds`."""
        self._changed.add_at(self.store.clock() + seconds, record.key)

    def own(self, record: Record, kind: Name | None = None) -> list[Record]:
        """Return the objects of a kind, by default the one that it creates, that it controls; by last change."""
        kind = kind or self.makes
        held = (key for table, key in self.store.dependents.get(record.uid, ()) if table == kind)
        found = [self.store.tables[kind].records[key] for key in held]
        return sorted(found, key=lambda each: (each.rv, each.key))

    def pods(self, record: Record) -> list[Pod]:
        """Return the pods that it controls. Those that have not changed since the last call are not decoded again."""
        before, found = self._pods_of.get(record.uid, {}), {}
        for each in self.own(record):
            known = before.get(each.uid)
            found[each.uid] = known if known is not None and known.record is each else read(each)
        self._pods_of[record.uid] = found
        return list(found.values())

    # -- writes

    def create(self, record: Record, body: Object, kind: Name | None = None) -> bool:
        """Create an object, by default of the kind that this controller creates.

        Returns false if that was rejected. True may mean that the response is pending.
        """
        resource = self.api.registry.stored(kind or self.makes).resource
        path = f"{resource.path}/namespaces/{record.namespace}/{resource.plural}"
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return self._write(record, "POST", path, body, "application/json", (kind or self.makes) == PODS)

    def patch(self, record: Record, of: Record, body: Object, kind: Name | None = None) -> bool:
        """Patch `of`, which is a controlled object, one of another `kind`, or the object itself."""
        metadata = {"uid": of.uid, **body.get("metadata", {})}
        return self._write(record, "PATCH", self._path(record, of, kind), {**body, "metadata": metadata}, _MERGE)

    def delete(self, record: Record, of: Record, kind: Name | None = None) -> bool:
        """Delete `of`, which may be the same as for `patch`, with background propagation."""
        options = {"preconditions": {"uid": of.uid}, "propagationPolicy": "Background"}
        return self._write(record, "DELETE", self._path(record, of, kind), options, "application/json")

    def _path(self, record: Record, of: Record, kind: Name | None) -> str:
        resource = self.api.registry.stored(kind or (self.name if of is record else self.makes)).resource
        return f"{resource.path}/namespaces/{of.namespace}/{resource.plural}/{of.name}"

    def is_open(self, record: Record) -> bool:
        """Return whether a response for the object is pending. It is reconciled again after that."""
        return bool(self._open[record.key])

    def created_text(self, record: Record, name: str) -> str:
        """Return the message of the event for a created pod."""
        return f"Created pod: {name}"

    def write_status(self, record: Record, obj: Object, status: Object) -> None:
        """Write the status of `obj`, the object of `record`, unless it is unchanged or the record is outdated."""
        current = self.table.records.get(record.key)
        if current is record and obj.get("status") != status:
            self.store.replace(self.name, record, {**obj, "status": status})

    def tell(self, record: Record, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.tell(record, self.kind, reason, message, warning=warning)

    def _write(
        self, record: Record, method: str, path: str, body: Object, content_type: str, making: bool = False
    ) -> bool:
        request = Request(method, path, body=nesting.dumps(body), content_type=content_type, user=self._user)
        answer = self.api.ask(request)
        assert not isinstance(answer, Stream)
        if isinstance(answer, Response):
            return self._answered(record, answer, making)
        self._open[record.key] += 1
        asked = asyncio.ensure_future(answer)
        self._asked.add(asked)

        def done(future: asyncio.Future[Response]) -> None:
            self._asked.discard(future)
            self._open[record.key] -= 1
            if not self._open[record.key]:
                del self._open[record.key]
            if not future.cancelled():
                self._answered(record, future.result(), making)
            self._changed.add(record.key)
            self.wake()

        asked.add_done_callback(done)
        return True

    def _answered(self, record: Record, answer: Response, making: bool) -> bool:
        found = nesting.loads(answer.body)
        if answer.status < 300:
            self._refused.pop(record.key, None)
            if making:
                self.tell(record, "SuccessfulCreate", self.created_text(record, found["metadata"]["name"]))
            return True
        if making:
            self.tell(record, "FailedCreate", f"Error creating: {found.get('message', '')}", warning=True)
        self._refused[record.key] += 1
        self.again(record, min(_RETRY * 2 ** (self._refused[record.key] - 1), _LONGEST_RETRY))
        return False
