"""Explains as plain data why a pod is on its node: the decision as it was, and the scores as they are now.

Computed per request on the workers' snapshot, from which the pod is removed meanwhile, with a separate view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.explain import explain_without, plain, points
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.state.podinfo import PodInfo

from .past_decisions import PastDecision, PastDecisions

#: How a candidate node has changed since the decision, other than by the pod itself.
UNCHANGED: Final = "unchanged"
CHANGED: Final = "changed"
GONE: Final = "gone"

_HOLDS: Final = "the pod keeps its devices and volumes here, so nodes without these are rejected"


class BoundPodExplainer:
    """Explains pods with a node; stateless."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot, past: PastDecisions, text: Callable[[float], str]) -> None:
        """`text` writes an instant of the clock as a time. Nothing may be hypothetical in `snapshot` between cycles."""
        self._cluster = cluster
        self._snapshot = snapshot
        self._past = past
        self._text = text

    def placement(self, pod: PodInfo, node_name: str, profile: Profile | None, *, beside: str = "") -> dict[str, Any]:
        """Return the key `placement` of the page, as in docs/operations.md.

        `profile` is None for a pod of another scheduler. `beside` is appended if there is no record.
        """
        past = self._past.of(pod.uid)
        of_here = past if past is not None and past.node_name == node_name else None
        if of_here is not None:
            found = self._decided(of_here, 1 if profile is None else profile.per_point)
        else:
            found = self._without_record(pod, node_name, past, has_profile=profile is not None, beside=beside)
        ledger = self._cluster.ledger
        placed = ledger.placements.get(pod.uid)
        if profile is not None and placed is not None and placed.node_name == node_name and node_name in ledger.rows:
            found["now"] = self._now(placed.pod, node_name, profile, of_here)
        return found

    def _without_record(
        self, pod: PodInfo, node_name: str, past: PastDecision | None, *, has_profile: bool, beside: str
    ) -> dict[str, Any]:
        """Return why the decision is unknown; `past` is a record of another node."""
        since = self._text(self._past.since)
        if past is not None:
            began = self._text(past.began)
            why = f"this process chose {past.node_name} at {began}, and another one bound the pod to {node_name}"
        elif has_profile:
            chose = "another process, the pod's creator or an earlier decision chose its node"
            why = f"the records of this process begin at {since} and lack the pod: {chose}"
        else:
            why = f"its schedulerName is {pod.scheduler_name!r}: another scheduler or the pod's creator chose the node"
        return {"unknown": f"{why}{beside}", "since": since}

    def _decided(self, past: PastDecision, per_point: int) -> dict[str, Any]:
        candidates = past.placement.candidates
        chosen = next((each.score for each in candidates if each.node_name == past.node_name), None)
        found = []
        for each in candidates:
            below = None if chosen is None or each.score is None else points(chosen - each.score, per_point)
            version = past.version if each.node_name == past.node_name else each.version
            found.append({"node": each.node_name, "below": below, "since": self._since(each.node_name, version)})
        return {
            "node": past.node_name,
            "time": self._text(past.began),
            "attempt": past.attempts,
            "by": past.by,
            "nominated": past.placement.nominated,
            "candidates": found,
        }

    def _since(self, node_name: str, version: int) -> str:
        ledger = self._cluster.ledger
        row = ledger.rows.get(node_name)
        if row is None:
            return GONE
        return UNCHANGED if ledger.columns.version[row] == version else CHANGED

    def _now(self, pod: PodInfo, node_name: str, profile: Profile, past: PastDecision | None) -> dict[str, Any]:
        """Return what a cycle would decide now without the pod; only `problem` if a plugin raises."""
        cluster = self._cluster
        rows = cluster.ledger.rows
        others = [each.node_name for each in past.placement.candidates] if past is not None else []
        also = [rows[name] for name in (node_name, *others) if name in rows]
        try:
            found = plain(explain_without(pod, rows[node_name], profile, cluster.ledger, self._snapshot, also))
        except Exception as error:
            return {"problem": f"{type(error).__name__}: {error}"}
        return {**found, "note": _HOLDS if pod.claims or pod.cls.volumes is not None else ""}
