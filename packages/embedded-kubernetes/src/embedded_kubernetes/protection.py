"""Releases deleted claims and volumes when they are no longer used, by removing their protection finalizers.

Replaces pkg/controller/volume/pvcprotection and pvprotection. A claim is in use by pods of its namespace that have
not ended and that name it or own it for an ephemeral volume. (The real controller ignores unscheduled pods and counts
ended ones until they are deleted.) A volume is in use while the claim in its claimRef exists and is bound to it. A
phase `Bound` without claim is ignored, because the volume controller may not be running.

Cost: pods are only examined in namespaces where a claim is being deleted.
"""

from __future__ import annotations

from math import inf

from . import nesting
from .builtin.storage import CLAIM_PROTECTION, VOLUME_PROTECTION
from .controllers import Controller, Index, WorkQueue
from .deletion import release
from .registry import Registry
from .store import Event, Record
from .subresources import PODS
from .volume_binding import CLAIMS, VOLUMES

_FINAL = ("Succeeded", "Failed")


class Protection(Controller):
    """The protected claims and volumes of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pods = registry.stored(PODS)
        self._claims = registry.stored(CLAIMS)
        self._volumes = registry.stored(VOLUMES)
        self._phase = self._pods.table.field_names.index("status.phase")
        #: Pods by the keys of the claims that they use, in namespaces with a protected claim that is being deleted.
        #: Exact when `_noted_pods` is empty.
        self._users: Index[str, str] = Index()
        #: Protected claims that are being deleted, by namespace, and such volumes.
        self._leaving: dict[str, set[str]] = {}
        self._leaving_volumes: set[str] = set()
        #: Keys to process, in order of arrival.
        self._noted_claims = WorkQueue[str]()
        self._noted_pods = WorkQueue[str]()
        self._noted_volumes = WorkQueue[str]()
        for table, noted in ((self._claims.table, self._noted_claims), (self._volumes.table, self._noted_volumes)):
            noted.extend(record.key for record in table.scan("") if record.deleting)
        self._pods.table.subscribers.append(self._pod_changed)
        self._claims.table.subscribers.append(self._claim_changed)
        self._volumes.table.subscribers.append(self._volume_changed)

    def _pod_changed(self, event: Event) -> None:
        if event.record.namespace in self._leaving:
            self._noted_pods.add(event.record.key)
            self.wake()

    def _claim_changed(self, event: Event) -> None:
        if event.record.deleting:
            self._noted_claims.add(event.record.key)
            self.wake()
        if self._leaving_volumes:
            self._noted_volumes.extend(self._leaving_volumes)
            self.wake()

    def _volume_changed(self, event: Event) -> None:
        if event.record.deleting:
            self._noted_volumes.add(event.record.key)
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`. Claims are decided once every queued pod has been processed."""
        self._noted_pods.work(most, self._see_pod)
        for _ in range(most):
            if self._noted_pods or not self._noted_claims:
                break
            self._see_claim(self._noted_claims.take())
        self._noted_volumes.work(most, self._see_volume)
        return -inf if self._noted_pods or self._noted_claims or self._noted_volumes else None

    def _see_pod(self, key: str) -> None:
        namespace = key.partition("/")[0]
        if namespace not in self._leaving:
            return
        record = self._pods.table.records.get(key)
        before = self._users.by_key.get(key, ())
        self._users.put(key, self._claims_of(record) if record is not None else ())
        for claim in before:
            if not self._users.keys(claim) and claim.partition("/")[2] in self._leaving[namespace]:
                self._noted_claims.add(claim)

    def _claims_of(self, record: Record) -> tuple[str, ...]:
        """Return the keys of the claims that a pod uses; none for a pod that has ended."""
        if record.fields[self._phase] in _FINAL:
            return ()
        if b'"persistentVolumeClaim":{' not in record.data and b'"ephemeral":{' not in record.data:
            return ()
        found: list[str] = []
        for volume in nesting.loads(record.data)["spec"].get("volumes") or ():
            if volume.get("persistentVolumeClaim"):
                found.append(volume["persistentVolumeClaim"].get("claimName", ""))
            elif volume.get("ephemeral"):
                name = f"{record.name}-{volume.get('name', '')}"
                claim = self._claims.table.get(record.namespace, name)
                # The pod does not use a claim with this name that it does not own.
                if claim is not None and record.uid in claim.owners:
                    found.append(name)
        return tuple(dict.fromkeys(f"{record.namespace}/{name}" for name in found))

    def _see_claim(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        record = self._claims.table.records.get(key)
        if record is None or not record.deleting or not _has(record, CLAIM_PROTECTION):
            self._drop(namespace, name)
            return
        known = namespace in self._leaving
        self._leaving.setdefault(namespace, set()).add(name)
        if not known:
            self._noted_pods.extend(pod.key for pod in self._pods.table.scan(namespace))
            self._noted_claims.add(key)
        elif not self._users.keys(key):
            release(self._registry, self._claims, record, CLAIM_PROTECTION)
            self._drop(namespace, name)

    def _drop(self, namespace: str, name: str) -> None:
        """Stop tracking a claim, and the pods of its namespace with the last one."""
        leaving = self._leaving.get(namespace)
        if leaving is None:
            return
        leaving.discard(name)
        if not leaving:
            del self._leaving[namespace]
            for pod in [pod for pod in self._users.by_key if pod.startswith(f"{namespace}/")]:
                self._users.put(pod, ())

    def _see_volume(self, key: str) -> None:
        record = self._volumes.table.records.get(key)
        if record is None or not record.deleting or not _has(record, VOLUME_PROTECTION):
            self._leaving_volumes.discard(key)
            return
        self._leaving_volumes.add(key)
        if not self._is_bound(record):
            release(self._registry, self._volumes, record, VOLUME_PROTECTION)
            self._leaving_volumes.discard(key)

    def _is_bound(self, record: Record) -> bool:
        volume = self._volumes.stored.decode(record.data)
        reference = volume["spec"].get("claimRef") or {}
        key = f"{reference.get('namespace', '')}/{reference.get('name', '')}"
        claim = self._claims.table.records.get(key)
        if claim is None or reference.get("uid") not in (None, "", claim.uid):
            return False
        bound = (volume.get("status") or {}).get("phase") == "Bound"
        spec = self._claims.stored.decode(claim.data)["spec"]
        return bound or spec.get("volumeName") == record.name


def _has(record: Record, finalizer: str) -> bool:
    return finalizer in nesting.loads(record.data)["metadata"].get("finalizers", ())
