"""Collects the state of a scheduler's process for the console and `agent-scheduler top`.

Counters and buckets are absolute: viewers compute rates and percentiles from their increase. Nodes are identified by
their row in the ledger, and updates contain only changed nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent_scheduler import __version__
from agent_scheduler.batch.scheduler import BatchScheduler
from agent_scheduler.cluster.groups import TrackedGroup
from agent_scheduler.engine.state.columns import CPU, MEMORY
from agent_scheduler.engine.state.gpus import RESOURCE as SHARED_GPU
from agent_scheduler.engine.state.gpus import WHOLE
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.objects.batch import COMPLETED, INQUEUE, PENDING, RUNNING, UNKNOWN, PodGroup
from agent_scheduler.objects.shard import NodeShard
from agent_scheduler.telemetry.metrics import RESULTS, Metrics

if TYPE_CHECKING:
    from agent_scheduler.shards.coordinator import Coordinator

#: The limit of listed gangs, waiting ones first; the counts include all gangs.
_GANGS_SHOWN: Final = 100
_NO_SHARDS: Final[Mapping[str, NodeShard]] = MappingProxyType({})
#: The phases of groups in display order.
_PHASES: Final = (PENDING, INQUEUE, UNKNOWN, RUNNING, COMPLETED)

Json = dict[str, Any]


class ConsolePicture:
    """The `Console` of `serving`."""

    def __init__(
        self,
        fast_path: FastPath,
        batch: BatchScheduler | None,
        coordinator: Coordinator | None,
        metrics: Metrics,
        *,
        about: Mapping[str, Any],
        leading: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        """`now` is in seconds since 1970. `about` has the constant properties of the process."""
        self._fast_path = fast_path
        self._batch = batch
        self._coordinator = coordinator
        self._metrics = metrics
        self._about = {"version": __version__, **about}
        self._leading = leading
        self._now = now
        # The content of the last update. Owned by `news`.
        self._sequence = 0
        self._shards = _NO_SHARDS
        self._told: dict[str, Any] = {}

    def figures(self) -> Json:
        """Return everything, with sums per resource instead of single nodes."""
        columns = self._fast_path.ledger.columns
        offered, taken = columns.allocatable.sum(axis=1), columns.requested.sum(axis=1)
        resources = {
            name: {"offered": int(offered[index]), "taken": int(taken[index])}
            for name, index in columns.interns.resources.items()
            if offered[index]
        }
        nodes = {"count": len(self._fast_path.ledger.rows), "resources": resources}
        return {**self._figures(), "about": self._about, "nodes": nodes, **self._tables()}

    def whole(self) -> Json:
        columns = self._fast_path.ledger.columns
        return {
            **self._figures(),
            "about": self._about,
            "nodes": self._nodes(range(columns.size), spec_after=-1),
            "shardOf": self._shard_of(),
            **self._tables(),
        }

    def news(self) -> Json:
        ledger = self._fast_path.ledger
        rows = ledger.rows_since(self._sequence)
        earlier, self._sequence = self._sequence, ledger.sequence
        found = self._figures()
        found["nodes"] = (
            self._nodes(range(ledger.columns.size), spec_after=-1)
            if rows is None
            else self._nodes(rows, spec_after=earlier)
        )
        shards = self._known_shards()
        if shards is not self._shards:
            self._shards = shards
            found["shardOf"] = self._shard_of()
        for name, table in self._tables().items():
            if table != self._told.get(name):
                self._told[name] = found[name] = table
        return found

    # ---- figures

    def _figures(self) -> Json:
        fast_path, metrics = self._fast_path, self._metrics
        metrics.families.settle()
        ledger, pending = fast_path.ledger, fast_path.queue.pending()
        attempts = dict.fromkeys(RESULTS, 0.0)
        for (result, _profile), series in metrics.schedule_attempts_total.series.items():
            attempts[result] += series.value
        latency = metrics.pod_scheduling_sli_duration_seconds
        counts = [0] * (len(latency.bounds) + 1)
        for each in latency.series.values():
            counts = [one + other for one, other in zip(counts, each.counts, strict=True)]
        return {
            "time": self._now(),
            "leading": self._leading(),
            "synced": fast_path.is_synced,
            "pending": {**pending._asdict(), "batch": self._waiting_of_batch()},
            "placed": len(ledger.placements),
            "binding": fast_path.binder.in_flight,
            "attempts": attempts,
            "conflicts": sum(each.value for each in metrics.conflicts_total.series.values()),
            "latency": {"bounds": latency.bounds, "counts": list(accumulate(counts))},
        }

    def _waiting_of_batch(self) -> int:
        """Return the number of waiting pods of the batch scheduler."""
        if self._batch is None:
            return 0
        placed = self._fast_path.ledger.placements
        groups = self._batch.waiting.groups
        return sum(uid not in placed for group in groups.groups.values() for uid in group.members) + sum(
            uid not in placed for uid in groups.bare
        )

    # ---- nodes

    def _nodes(self, rows: Iterable[int], *, spec_after: int) -> Json:
        """Return the usage of these rows, and the nodes whose spec has changed since `spec_after`."""
        columns = self._fast_path.ledger.columns
        # Shared GPUs are counted in thousandths.
        gpus = [
            (index, WHOLE if name == SHARED_GPU else 1)
            for name, index in columns.interns.resources.items()
            if name.endswith("/gpu") or name == SHARED_GPU
        ]
        pods_on = self._fast_path.ledger.pods_on
        spec, use, gone = [], [], []
        for row in rows:
            node = columns.nodes[row]
            if node is None:
                gone.append(row)
                continue
            offers, taken = columns.offers[row], columns.taken[row]
            if columns.spec_version[row] > spec_after:
                spec.append(
                    (
                        row,
                        node.name,
                        offers[CPU],
                        offers[MEMORY],
                        sum(offers[index] / unit for index, unit in gpus),
                        bool(columns.unschedulable[row]),
                    )
                )
            use.append(
                (
                    row,
                    taken[CPU],
                    taken[MEMORY],
                    sum(taken[index] / unit for index, unit in gpus),
                    len(pods_on(node.name)),
                )
            )
        return {"spec": spec, "use": use, "gone": gone}

    def _known_shards(self) -> Mapping[str, NodeShard]:
        return _NO_SHARDS if self._coordinator is None else self._coordinator.shards

    def _shard_of(self) -> Mapping[str, list[str]]:
        """Return for each shard the names of the nodes that its scheduler uses."""
        return {name: sorted(shard.in_use) for name, shard in sorted(self._known_shards().items())}

    # ---- tables

    def _tables(self) -> Json:
        return {"queues": self._queues(), "gangs": self._gangs(), "shards": self._shard_table()}

    def _queues(self) -> list[Json]:
        """Return the queues. Amounts are in `engine.quotas.vector` units: millicores, bytes, others in thousandths."""
        book = self._fast_path.ledger.usage.book
        found = []
        for name in sorted(book.names()):
            info = book.info(name)
            found.append(
                {
                    "name": name,
                    "parent": "" if info is None else info.lies_in,
                    "state": "" if info is None else info.state,
                    "capability": None if info is None else info.capability,
                    "deserved": {} if info is None else info.deserved,
                    "allocated": dict(book.used(name)),
                    "reserved": dict(book.kept(name)),
                }
            )
        return found

    def _gangs(self) -> Json:
        if self._batch is None:
            return {"phases": {}, "shown": []}
        groups = [group for group in self._batch.waiting.groups.groups.values() if isinstance(group.object, PodGroup)]
        phases = Counter(map(_phase, groups))
        first = nsmallest(_GANGS_SHOWN, groups, key=lambda each: (_rank(each), str(each.key)))
        reasons = self._batch.explainer.reasons(each.key for each in first)
        return {"phases": phases, "shown": [self._gang(each, reasons[each.key]) for each in first]}

    def _gang(self, group: TrackedGroup, why: str) -> Json:
        found = group.object
        assert isinstance(found, PodGroup)
        placed = self._fast_path.ledger.placements
        roles: dict[str, list[int]] = {
            role: [0, 0, least] for role, least in (found.spec.min_task_member or {}).items()
        }
        have = 0
        for uid, pod in group.members.items():
            role = roles.setdefault(pod.batch.role if pod.batch is not None else "", [0, 0, 0])
            role[1] += 1
            if uid in placed:
                role[0] += 1
                have += 1
        owner = next((each for each in found.metadata.owner_references or () if each.controller), None)
        return {
            "name": f"{found.metadata.namespace}/{found.metadata.name}",
            "owner": "" if owner is None else f"{owner.kind} {owner.name}",
            "queue": found.spec.queue,
            "phase": _phase(group),
            "needs": found.spec.min_member,
            "has": have,
            "members": len(group.members),
            # Name, number of pods with a node, of existing pods, of required pods, and whether the role waits for
            # others.
            "roles": [(name, *counts, name in found.waiting_roles) for name, counts in roles.items() if name],
            "why": why,
        }

    def _shard_table(self) -> list[Json]:
        return [
            {
                "name": name,
                "desired": len(shard.desired),
                "inUse": len(shard.in_use),
                "toAdd": len(shard.desired - shard.in_use),
                "toRemove": len(shard.in_use - shard.desired),
                "updated": shard.status.last_update_time or "",
            }
            for name, shard in sorted(self._known_shards().items())
        ]


def _phase(group: TrackedGroup) -> str:
    found = group.object
    return (found.status.phase or PENDING) if isinstance(found, PodGroup) else ""


def _rank(group: TrackedGroup) -> int:
    phase = _phase(group)
    return _PHASES.index(phase) if phase in _PHASES else 0
