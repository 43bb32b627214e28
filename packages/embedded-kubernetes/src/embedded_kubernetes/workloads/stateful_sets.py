"""The StatefulSet controller (pkg/controller/statefulset): pods with ordinals, and claims that outlive them.

Pods are created from the lowest ordinal to the highest, each after its predecessors are available, and deleted in the
opposite order; with `podManagementPolicy: Parallel` all at once. A rolling update replaces one pod after the other,
from the highest ordinal down to the partition. Orphaned pods are not adopted.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ..controllers import reference_to
from ..resource import Object
from ..store import Record
from . import revisions
from .controller import Workloads
from .pods import FINAL, Pod, from_template
from .revisions import REVISION_LABEL, Revision

CLAIMS = ("", "persistentvolumeclaims")
_POD_NAME, _POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class _Versions(NamedTuple):
    """The revision of the pods below the partition, and that of the template."""

    current: Revision
    update: Revision
    every: list[Revision]


class StatefulSets(Workloads):
    name = ("apps", "statefulsets")
    kind = ("apps/v1", "StatefulSet")
    account = "statefulset-controller"

    def reconcile(self, record: Record, obj: Object) -> None:
        if record.deleting:
            return
        found = revisions.current(self, record, obj)
        if found is None:
            return
        update, every = found
        named = (obj.get("status") or {}).get("currentRevision")
        known = next((each for each in every if each.record.name == named), update)
        versions = _Versions(known, update, every)
        self._manage(record, obj, versions)
        current = self.table.records.get(record.key)
        if current is not record:
            return
        pods = self.pods(record)
        status = self._status(obj, pods, versions)
        self.write_status(record, obj, status)
        live = {pod.record.labels.get(REVISION_LABEL, "") for pod in pods}
        live |= {status["currentRevision"], status["updateRevision"]}
        revisions.truncate(self, record, every, obj["spec"].get("revisionHistoryLimit", 10), live)

    # -- steps

    def _manage(self, record: Record, obj: Object, versions: _Versions) -> None:
        spec = obj["spec"]
        pods = {_ordinal(record, pod): pod for pod in self.pods(record)}
        wanted = _ordinals(obj)
        ordered = spec.get("podManagementPolicy") != "Parallel"
        for ordinal in wanted:
            if not self._provide(record, obj, versions, ordinal, pods.get(ordinal)) and ordered:
                return
        condemned = sorted((each for each in pods if each not in wanted), reverse=True)
        sick = [each for each in sorted(pods) if not self._is_available(record, obj, pods[each])]
        for ordinal in condemned:
            pod = pods[ordinal]
            if pod.deleting or (ordered and sick and ordinal != sick[0] and ordinal in sick):
                if ordered:
                    return
                continue
            self._retain(record, obj, pod, ordinal)
            self._drop(record, pod)
            if ordered:
                return
        if spec["updateStrategy"].get("type") == "RollingUpdate":
            self._roll(record, obj, versions, pods)

    def _provide(self, record: Record, obj: Object, versions: _Versions, ordinal: int, pod: Pod | None) -> bool:
        """Create or replace the pod of an ordinal; return whether it is available."""
        if pod is None:
            if self._claim(record, obj, ordinal):
                self.create(record, _pod(record, obj, _version(obj, versions, ordinal), ordinal))
            return False
        if pod.phase in FINAL:
            if not pod.deleting:
                kind = "Failed" if pod.phase == "Failed" else "Terminated"
                text = f"StatefulSet {record.namespace}/{record.name} is recreating {kind.lower()} Pod"
                self.tell(record, f"Recreating{kind}Pod", f"{text} {pod.record.name}", warning=kind == "Failed")
                self.delete(record, pod.record)
            return False
        if pod.phase == "Pending" and not pod.deleting:
            self._claim(record, obj, ordinal)
        return self._is_available(record, obj, pod)

    def _is_available(self, record: Record, obj: Object, pod: Pod) -> bool:
        seconds = obj["spec"].get("minReadySeconds") or 0
        if not pod.is_active or pod.ready_since is None:
            return False
        left = pod.ready_since + seconds - self.store.clock()
        if left > 0:
            self.again(record, left)
        return left <= 0

    def _roll(self, record: Record, obj: Object, versions: _Versions, pods: dict[int, Pod]) -> None:
        """Delete outdated pods from the highest ordinal down to the partition, while enough are available."""
        rolling = obj["spec"]["updateStrategy"].get("rollingUpdate") or {}
        wanted = _ordinals(obj)
        most, missing = _most_unavailable(rolling.get("maxUnavailable"), len(wanted)), 0
        for ordinal in wanted[rolling.get("partition") or 0 :][::-1]:
            pod = pods.get(ordinal)
            if pod is None or not self._is_available(record, obj, pod):
                missing += 1
                if pod is None or pod.deleting or _is_of(pod, versions.update):
                    if missing >= most:
                        return
                    continue
            elif _is_of(pod, versions.update):
                continue
            else:
                missing += 1
            self._drop(record, pod)
            if missing >= most:
                return

    def _drop(self, record: Record, pod: Pod) -> None:
        if self.delete(record, pod.record):
            text = f"delete Pod {pod.record.name} in StatefulSet {record.name} successful"
            self.tell(record, "SuccessfulDelete", text)

    # -- claims

    def _claim(self, record: Record, obj: Object, ordinal: int) -> bool:
        """Create the missing claims of a pod; return whether none was rejected."""
        spec, pod = obj["spec"], f"{record.name}-{ordinal}"
        table = self.store.tables[CLAIMS]
        for template in spec.get("volumeClaimTemplates") or ():
            name = _claim_name(template, record, ordinal)
            if table.get(record.namespace, name) is not None:
                continue
            given = template.get("metadata") or {}
            labels = {**(given.get("labels") or {}), **(spec["selector"].get("matchLabels") or {})}
            metadata: Object = {"name": name, "labels": labels}
            if given.get("annotations"):
                metadata["annotations"] = given["annotations"]
            if (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") == "Delete":
                metadata["ownerReferences"] = [reference_to(record, *self.kind)]
            if not self.create(record, {"metadata": metadata, "spec": template["spec"]}, CLAIMS):
                text = f"create Claim {name} for Pod {pod} in StatefulSet {record.name} failed"
                self.tell(record, "FailedCreate", text, warning=True)
                return False
            text = f"create Claim {name} Pod {pod} in StatefulSet {record.name} success"
            self.tell(record, "SuccessfulCreate", text)
        return True

    def _retain(self, record: Record, obj: Object, pod: Pod, ordinal: int) -> None:
        """Let the claims of a pod that is scaled down go with it, if the retention policy is `Delete`."""
        spec = obj["spec"]
        if (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenScaled") != "Delete":
            return
        for template in spec.get("volumeClaimTemplates") or ():
            claim = self.store.tables[CLAIMS].get(record.namespace, _claim_name(template, record, ordinal))
            if claim is not None and pod.record.uid not in claim.owners:
                owner = reference_to(pod.record, "v1", "Pod")
                self.patch(record, claim, {"metadata": {"ownerReferences": [owner]}}, CLAIMS)

    # -- status

    def created_text(self, record: Record, name: str) -> str:
        return f"create Pod {name} in StatefulSet {record.name} successful"

    def _status(self, obj: Object, pods: list[Pod], versions: _Versions) -> Object:
        now, spec = self.store.clock(), obj["spec"]
        active = [pod for pod in pods if pod.is_active]
        ready = [pod for pod in pods if pod.ready_since is not None and pod.phase == "Running"]
        before = obj.get("status") or {}
        updated = sum(_is_of(pod, versions.update) for pod in active)
        staying = sum(_is_of(pod, versions.current) for pod in active)
        current, wanted = versions.current, spec.get("replicas", 1)
        if spec["updateStrategy"].get("type") == "RollingUpdate" and {updated, len(ready), len(pods)} == {wanted}:
            current, staying = versions.update, updated
        counts = {"readyReplicas": len(ready), "currentReplicas": staying, "updatedReplicas": updated}
        return {
            **({"conditions": before["conditions"]} if before.get("conditions") else {}),
            "observedGeneration": obj["metadata"].get("generation", 0),
            "replicas": len(pods),
            **{name: count for name, count in counts.items() if count},
            "currentRevision": current.record.name,
            "updateRevision": versions.update.record.name,
            "collisionCount": before.get("collisionCount", 0),
            "availableReplicas": sum(pod.is_available(now, spec.get("minReadySeconds") or 0) for pod in ready),
        }


def _ordinals(obj: Object) -> range:
    start = (obj["spec"].get("ordinals") or {}).get("start") or 0
    return range(start, start + obj["spec"].get("replicas", 1))


def _ordinal(record: Record, pod: Pod) -> int:
    text = pod.record.name.removeprefix(f"{record.name}-")
    return int(text) if text.isdecimal() else -1


def _is_of(pod: Pod, revision: Revision) -> bool:
    return pod.record.labels.get(REVISION_LABEL) == revision.record.name


def _version(obj: Object, versions: _Versions, ordinal: int) -> Revision:
    """Return the revision of a new pod: below the partition the current one, otherwise that of the template."""
    strategy = obj["spec"]["updateStrategy"]
    if strategy.get("type") != "RollingUpdate":
        return versions.update
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    return versions.current if ordinal < _ordinals(obj).start + partition else versions.update


def _most_unavailable(given: int | str | None, total: int) -> int:
    if isinstance(given, str):
        given = ceil(int(given.removesuffix("%")) * total / 100)
    return max(1, given or 1)


def _claim_name(template: Object, record: Record, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{record.name}-{ordinal}"


def _pod(record: Record, obj: Object, revision: Revision, ordinal: int) -> Object:
    name, spec = f"{record.name}-{ordinal}", obj["spec"]
    pod = from_template(revision.template, reference_to(record, *StatefulSets.kind), "")
    metadata = pod["metadata"]
    del metadata["generateName"]
    own = {_POD_NAME: name, _POD_INDEX: str(ordinal), REVISION_LABEL: revision.record.name}
    metadata |= {"name": name, "labels": {**metadata.get("labels", {}), **own}}
    pod["spec"]["hostname"] = name
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    if templates := spec.get("volumeClaimTemplates"):
        claims = {
            each["metadata"]["name"]: {
                "name": each["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": _claim_name(each, record, ordinal)},
            }
            for each in templates
        }
        others = [each for each in pod["spec"].get("volumes") or () if each["name"] not in claims]
        pod["spec"]["volumes"] = [*claims.values(), *others]
    return pod
