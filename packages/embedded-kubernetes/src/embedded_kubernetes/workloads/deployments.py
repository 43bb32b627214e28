"""The Deployment controller (pkg/controller/deployment): one ReplicaSet per template, and rollouts between them.

Not implemented: proportional scaling during a rollout (the rollout itself reaches the number), and the
adoption of orphaned ReplicaSets.
"""

from __future__ import annotations

from ..conditions import Condition, find, with_condition
from ..controllers import reference_to
from ..resource import Object
from ..store import Record
from ..subresources import PODS
from ..times import clock_text, parse
from . import rollouts
from .controller import Workloads
from .pods import FINAL
from .rollouts import HASH, REVISION, Set

_MOST = 2**31 - 1


class Deployments(Workloads):
    name = ("apps", "deployments")
    kind = ("apps/v1", "Deployment")
    makes = ("apps", "replicasets")
    account = "deployment-controller"

    def reconcile(self, record: Record, obj: Object) -> None:
        sets = [rollouts.read(each) for each in self.own(record)]
        new = rollouts.current(obj, sets)
        if not record.deleting:
            if obj["spec"].get("paused"):
                self._scale_active(record, obj, sets, new)
            else:
                new = self._roll(record, obj, sets, new)
        current = self.table.records.get(record.key)
        if current is record:
            sets = [rollouts.read(each) for each in self.own(record)]
            self.write_status(record, obj, self._status(record, obj, sets, rollouts.current(obj, sets)))

    def _roll(self, record: Record, obj: Object, sets: list[Set], new: Set | None) -> Set | None:
        old = [each for each in sets if new is None or each.record.key != new.record.key]
        revision = max((each.revision for each in old), default=0) + 1
        recreates = (obj["spec"].get("strategy") or {}).get("type") == "Recreate"
        if recreates and self._stops(record, old):
            return new
        if new is None:
            self._make(record, obj, sets, revision)
            return None
        revision = max(revision, new.revision)
        self._annotate(record, obj, new, revision)
        self._scale(record, new, rollouts.grown(obj, new, sets))
        if not recreates:
            by_name = {each.record.name: each for each in old}
            for name, wanted in rollouts.shrunk(obj, new, old).items():
                self._scale(record, by_name[name], wanted)
        self._clean(record, obj, old)
        return new

    def _stops(self, record: Record, old: list[Set]) -> bool:
        """Scale old ReplicaSets to zero; return whether they still have running pods."""
        for each in old:
            self._scale(record, each, 0)
        pods, dependents = self.store.tables[PODS], self.store.dependents
        phase = pods.field_names.index("status.phase")
        left = any(
            table == PODS and pods.records[key].fields[phase] not in FINAL
            for each in old
            for table, key in dependents.get(each.record.uid, ())
        )
        if left:
            # Deployments get no events of their ReplicaSets' pods, so poll.
            self.again(record, 0.5)
        return left

    def _make(self, record: Record, obj: Object, sets: list[Set], revision: int) -> None:
        template = obj["spec"]["template"]
        mark = rollouts.hash_of(template, (obj.get("status") or {}).get("collisionCount", 0))
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), HASH: mark}
        selector = dict(obj["spec"]["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: mark}
        replicas = obj["spec"].get("replicas", 1)
        room = replicas + rollouts.bounds(obj)[0] - sum(each.wanted for each in sets)
        wanted = max(0, min(replicas, room))
        body = {
            "metadata": {
                "name": f"{record.name}-{mark}",
                "labels": labels,
                "annotations": rollouts.annotations_for(obj, revision),
                "ownerReferences": [reference_to(record, *self.kind)],
            },
            "spec": {
                "replicas": wanted,
                "selector": selector,
                "minReadySeconds": obj["spec"].get("minReadySeconds", 0),
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        if self.create(record, body):
            name = body["metadata"]["name"]
            self.tell(record, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {wanted}")

    def _annotate(self, record: Record, obj: Object, new: Set, revision: int) -> None:
        wanted = rollouts.annotations_for(obj, revision)
        known = new.obj["metadata"].get("annotations") or {}
        if any(known.get(key) != text for key, text in wanted.items()):
            self.patch(record, new.record, {"metadata": {"uid": new.record.uid, "annotations": wanted}})
        mine = obj["metadata"].get("annotations") or {}
        if mine.get(REVISION) != str(revision):
            self.patch(record, record, {"metadata": {"uid": record.uid, "annotations": {REVISION: str(revision)}}})

    def _scale_active(self, record: Record, obj: Object, sets: list[Set], new: Set | None) -> None:
        """Scale a paused Deployment's only active ReplicaSet, or else the newest, to the desired number."""
        active = [each for each in sets if each.wanted] or ([new] if new is not None else [])
        if len(active) == 1:
            self._scale(record, active[0], obj["spec"].get("replicas", 1))

    def _scale(self, record: Record, each: Set, wanted: int) -> None:
        if each.wanted == wanted:
            return
        if self.patch(record, each.record, {"spec": {"replicas": wanted}}):
            way = "up" if wanted > each.wanted else "down"
            text = f"Scaled {way} replica set {each.record.name} from {each.wanted} to {wanted}"
            self.tell(record, "ScalingReplicaSet", text)

    def _clean(self, record: Record, obj: Object, old: list[Set]) -> None:
        """Delete the oldest empty ReplicaSets beyond `revisionHistoryLimit`."""
        empty = [each for each in old if not (each.wanted or each.reports("replicas") or each.record.deleting)]
        empty.sort(key=lambda each: (each.revision, each.created))
        for each in empty[: max(0, len(empty) - obj["spec"].get("revisionHistoryLimit", 10))]:
            self.delete(record, each.record)

    # -- status

    def _status(self, record: Record, obj: Object, sets: list[Set], new: Set | None) -> Object:
        total = sum(each.reports("replicas") for each in sets)
        available = sum(each.reports("availableReplicas") for each in sets)
        counts = {
            "replicas": total,
            "updatedReplicas": new.reports("replicas") if new is not None else 0,
            "readyReplicas": sum(each.reports("readyReplicas") for each in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, sum(each.wanted for each in sets) - available),
        }
        before = obj.get("status") or {}
        status: Object = {
            "observedGeneration": obj["metadata"].get("generation", 0),
            **{name: count for name, count in counts.items() if count},
        }
        conditions = self._progress(record, obj, status, new, self._availability(obj, available, before))
        return {**status, "conditions": conditions}

    def _availability(self, obj: Object, available: int, before: Object) -> list[Condition]:
        least = obj["spec"].get("replicas", 1) - rollouts.bounds(obj)[1]
        enough = available >= least
        found = find(before.get("conditions") or (), "Available")
        now, has = self.store.clock(), "has" if enough else "does not have"
        said = with_condition(
            before.get("conditions") or (),
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {has} minimum availability.",
            now,
            lastUpdateTime=clock_text(now),
        )
        # An unchanged status keeps its times.
        return said if found is None or found["status"] != ("True" if enough else "False") else before["conditions"]

    def _progress(
        self, record: Record, obj: Object, status: Object, new: Set | None, conditions: list[Condition]
    ) -> list[Condition]:
        before, now = obj.get("status") or {}, self.store.clock()
        found, limit = find(conditions, "Progressing"), obj["spec"].get("progressDeadlineSeconds", 600)
        what = f'ReplicaSet "{new.record.name}"' if new is not None else f'Deployment "{record.name}"'
        fields = ("updatedReplicas", "readyReplicas", "availableReplicas")
        moved = any(status.get(field, 0) > before.get(field, 0) for field in fields)
        moved = moved or status.get("replicas", 0) - status.get("updatedReplicas", 0) < before.get(
            "replicas", 0
        ) - before.get("updatedReplicas", 0)
        anew = status["observedGeneration"] != before.get("observedGeneration", 0)
        if rollouts.is_complete(obj, status) and new is not None:
            reason, text, state = "NewReplicaSetAvailable", f"{what} has successfully progressed.", "True"
            anew = False
        elif found is None or (anew and found.get("reason") == "NewReplicaSetAvailable"):
            reason, text, state, anew = (
                "NewReplicaSetCreated",
                f"Created new replica set for {record.name}",
                "True",
                True,
            )
        elif moved:
            reason, text, state = "ReplicaSetUpdated", f"{what} is progressing.", "True"
        else:
            since = parse(found.get("lastUpdateTime") or found["lastTransitionTime"]).timestamp()
            if found["status"] != "True" or limit >= _MOST or since + limit > now or obj["spec"].get("paused"):
                if found["status"] == "True" and limit < _MOST:
                    self.again(record, since + limit - now + 0.001)
                return conditions
            reason, text, state = "ProgressDeadlineExceeded", f"{what} has timed out progressing.", "False"
        if found is not None and not (moved or anew) and found.get("reason") == reason:
            return conditions
        return with_condition(conditions, "Progressing", state, reason, text, now, lastUpdateTime=clock_text(now))
