"""Formats the current shards and nodes as text (`text`, `text_of_nodes`), and for JSON and YAML (`plain`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agent_scheduler.controllers.sharding.store import OWNER_LABEL
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.objects.shard import NodeShard

from .shard_reading import Holder
from .tables import age, table

_HEAD = ("SHARD", "DESIRED", "IN USE", "ADD", "REMOVE", "HOLDER", "UPDATED")
_WIDE = (*_HEAD, "RENEWED", "MANAGED BY", "AGE")


def text(shards: Sequence[NodeShard], holders: Mapping[str, Holder], *, now: datetime, wide: bool) -> str:
    """Return a line per shard with counts. Additions and removals are computed, regardless of the status."""
    rows = []
    for shard in shards:
        holder = holders[shard.name]
        desired, used = shard.desired, shard.in_use
        row: list[object] = [
            shard.name,
            len(desired),
            len(used),
            len(desired - used),
            len(used - desired),
            _held(holder, now),
            age(shard.status.last_update_time, now),
        ]
        if wide:
            renewed = holder.lease.spec.renew_time if holder.lease is not None else None
            row += [
                age(renewed, now),
                (shard.metadata.labels or {}).get(OWNER_LABEL, ""),
                age(shard.metadata.creation_timestamp, now),
            ]
        rows.append(row)
    return table(_WIDE if wide else _HEAD, rows)


def text_of_nodes(shards: Sequence[NodeShard], nodes: Iterable[NodeInfo]) -> str:
    """Return a line for each node that exists or is named by a shard."""
    rows = [
        (each["name"], ",".join(each["desiredBy"]), ",".join(each["usedBy"]), each["state"])
        for each in plain_nodes(shards, nodes)
    ]
    return table(("NODE", "DESIRED BY", "USED BY", "STATE"), rows)


def plain(shards: Sequence[NodeShard], holders: Mapping[str, Holder]) -> list[dict[str, Any]]:
    """Return the shards for JSON and YAML; missing values are null."""
    found = []
    for shard in shards:
        lease = holders[shard.name].lease
        desired, used = shard.desired, shard.in_use
        found.append(
            {
                "name": shard.name,
                "desired": sorted(desired),
                "inUse": sorted(used),
                "toAdd": sorted(desired - used),
                "toRemove": sorted(used - desired),
                "lastUpdateTime": shard.status.last_update_time,
                "holder": (lease.spec.holder_identity or None) if lease is not None else None,
                "renewTime": lease.spec.renew_time if lease is not None else None,
                "problem": holders[shard.name].problem or None,
                "managedBy": (shard.metadata.labels or {}).get(OWNER_LABEL),
            }
        )
    return found


def plain_nodes(shards: Sequence[NodeShard], nodes: Iterable[NodeInfo]) -> list[dict[str, Any]]:
    """Return the nodes sorted by name.

    `state` is ready, not ready, cordoned, or gone if only a shard names the node.
    """
    states = {node.name: _state(node) for node in nodes}
    desired: dict[str, list[str]] = {}
    used: dict[str, list[str]] = {}
    for shard in shards:
        for name in shard.desired:
            desired.setdefault(name, []).append(shard.name)
        for name in shard.in_use:
            used.setdefault(name, []).append(shard.name)
    return [
        {
            "name": name,
            "desiredBy": desired.get(name, []),
            "usedBy": used.get(name, []),
            "state": states.get(name, "gone"),
        }
        for name in sorted({*states, *desired, *used})
    ]


def _held(holder: Holder, now: datetime) -> str:
    if holder.problem:
        return "?"
    spec = holder.lease.spec if holder.lease is not None else None
    if spec is None or not spec.holder_identity:
        return ""
    try:
        ends = datetime.fromisoformat(spec.renew_time or "") + timedelta(seconds=spec.lease_duration_seconds or 0)
        is_over = ends < now
    except (ValueError, TypeError, OverflowError):
        is_over = False
    # For display only, by this machine's clock, which schedulers do not use.
    return f"{spec.holder_identity} (expired)" if is_over else spec.holder_identity


def _state(node: NodeInfo) -> str:
    if node.unschedulable:
        return "cordoned"
    return "ready" if node.conditions.get("Ready") == "True" else "not ready"
