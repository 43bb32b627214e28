"""The ReplicaSet controller (pkg/controller/replicaset): keeps the desired number of pods and reports their state.

Orphaned pods are not adopted.
"""

from __future__ import annotations

from ..conditions import with_condition
from ..controllers import reference_to
from ..resource import Object
from ..store import Record
from .controller import Workloads
from .pods import Pod, from_template, surplus

#: The limit of creations or deletions in one reconciliation (`BurstReplicas`).
_BURST = 500


class ReplicaSets(Workloads):
    name = ("apps", "replicasets")
    kind = ("apps/v1", "ReplicaSet")
    account = "replicaset-controller"

    def reconcile(self, record: Record, obj: Object) -> None:
        active = [pod for pod in self.pods(record) if pod.is_active]
        failed = False
        if not record.deleting:
            failed = not self._scale(record, obj, active)
        current = self.table.records.get(record.key)
        if current is record:
            pods = [pod for pod in self.pods(record) if pod.is_active]
            self.write_status(record, obj, self._status(record, obj, pods, failed=failed))

    def _scale(self, record: Record, obj: Object, active: list[Pod]) -> bool:
        missing = min(obj["spec"].get("replicas", 1) - len(active), _BURST)
        owner = reference_to(record, *self.kind)
        for _ in range(missing):
            if not self.create(record, from_template(obj["spec"]["template"], owner, f"{record.name}-")):
                return False
        for pod in surplus(active, min(-missing, _BURST)) if missing < 0 else ():
            if self.delete(record, pod.record):
                self.tell(record, "SuccessfulDelete", f"Deleted pod: {pod.record.name}")
        return True

    def _status(self, record: Record, obj: Object, pods: list[Pod], *, failed: bool) -> Object:
        now, seconds = self.store.clock(), obj["spec"].get("minReadySeconds") or 0
        wanted = (obj["spec"]["template"].get("metadata") or {}).get("labels") or {}
        ready = [pod for pod in pods if pod.ready_since is not None]
        available = sum(pod.is_available(now, seconds) for pod in ready)
        later = [pod.ready_since + seconds - now for pod in ready if pod.ready_since and seconds]
        if waits := [each for each in later if each > 0]:
            self.again(record, min(waits))
        before = obj.get("status") or {}
        counts = {
            "fullyLabeledReplicas": sum(wanted.items() <= pod.record.labels.items() for pod in pods),
            "readyReplicas": len(ready),
            "availableReplicas": available,
        }
        status: Object = {
            "replicas": len(pods),
            **{name: count for name, count in counts.items() if count},
            "observedGeneration": obj["metadata"].get("generation", 0),
        }
        conditions = [each for each in before.get("conditions") or () if each["type"] != "ReplicaFailure"]
        if failed:
            old = before.get("conditions") or ()
            conditions = with_condition(old, "ReplicaFailure", "True", "FailedCreate", "a pod was refused", now)
        return {**status, **({"conditions": conditions} if conditions else {})}
