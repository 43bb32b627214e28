"""Explains one pod as plain data: its place, the plugins that reject nodes, and the events that would wake it.

Computed per request from the workers' snapshot with a separate view, so that no state of decisions changes. It takes
some milliseconds, in which nothing is scheduled.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from agent_scheduler.binding.bound_pods import BoundPodExplainer
from agent_scheduler.binding.history import History
from agent_scheduler.binding.queue_admission import explain as explain_gate
from agent_scheduler.binding.queue_gate import NAME as QUEUE_CAPACITY
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.explain import explain, plain
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING
from agent_scheduler.engine.gangs.native import native_key
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.views import PodView, find
from agent_scheduler.engine.shards.claims import ShardingMode
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import WORDS, WaitReason, of_own_gates
from kube_client.retry import Timing

from .gang_waits import of_gang
from .rules import Rules

#: Places of pods outside the queue, in addition to those of `queueing.places.Place`.
BOUND = "bound"
DELETING = "deleting"
NOT_OURS = "not_ours"
UNKNOWN = "unknown"


class LabelledMessage(NamedTuple):
    """A label of `verdicts.LABELS`, or empty, and the message."""

    label: str
    message: str


_NOTHING: Final = LabelledMessage("", "")
_BY_NODES: Final = (WORDS[WaitReason.NODES].label, WORDS[WaitReason.DEVICES].label)


class Explainer:
    """Explains one pod at a time, without changing shared state."""

    def __init__(
        self, state: SharedState, rules: Rules, history: History, bound_pods: BoundPodExplainer, timing: Timing
    ) -> None:
        """Create the explainer; the clock of `timing` is the queue's."""
        self._cluster = state.cluster
        self._snapshot = state.snapshot
        self._nominations = state.nominations
        self._rules = rules
        self._history = history
        self._clock = timing.clock
        self._text = timing.text
        self._bound_pods = bound_pods

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the page as in docs/operations.md.

        `place` is UNKNOWN for a pod that does not exist or has finished.
        """
        found: dict[str, Any] = {"pod": f"{namespace}/{name}", "time": self._text(self._clock())}
        pods = self._cluster.pods.values()
        pod = next((each for each in pods if each.name == name and each.namespace == namespace), None)
        if pod is None:
            return {**found, "place": UNKNOWN, "why": "it does not exist, or it has finished"}
        found |= {"uid": pod.uid, "scheduler_name": pod.scheduler_name, "priority": pod.priority}
        place, node, why = self._where(pod)
        found |= {"place": place, "node": node or None, "why": why}
        if place == NOT_OURS and not node:
            found["waits_for"] = WORDS[WaitReason.PROFILE].label
        waiting = find(self._cluster.queue, pod.uid)
        if waiting is not None:
            found["nominated_node"] = self._cluster.queue.nominator.nominated.get(pod.uid, "") or None
            verdict = self._waits_for(pod, place, waiting.pod)
            found["waits_for"] = verdict.label
            if verdict.label not in _BY_NODES:
                # The decision has the messages about nodes.
                found["why"] = why or verdict.message
            found["queue"] = self._queue(place, waiting.pod)
            found["wakes"] = {plugin: list(events) for plugin, events in waiting.wakes.items()}
        if node:
            found["placement"] = self._placement(pod, node)
        found |= explain_gate(self._cluster, pod)
        key = native_key(pod)
        if key is not None:
            found["group"] = self._group(key)
        if waiting is not None and not node and not pod.cls.error:
            found["decision"] = self._decision(pod)
        found["attempts"] = self._attempts(pod)
        return found

    # ---- where

    def _where(self, pod: PodInfo) -> tuple[str, str, str]:
        """Return its place, its current or future node, and a short explanation."""
        cluster = self._cluster
        if pod.node_name:
            return BOUND, pod.node_name, ""
        placement = cluster.ledger.placements.get(pod.uid)
        at = "" if placement is None else placement.node_name
        if placement is not None and not placement.assumed:
            return BOUND, at, "the watch has not shown it yet"
        if pod.deleting:
            return DELETING, at, "it is being deleted and needs no node"
        if pod.scheduler_name not in self._rules.profiles:
            names = ", ".join(sorted(cluster.profiles))
            return NOT_OURS, at, f"its schedulerName is {pod.scheduler_name!r}; the profiles here are {names}"
        if at:
            return Place.IN_FLIGHT.value, at, f"it is being bound to {at}"
        place = cluster.queue.where(pod.uid)
        if place is None:
            return Place.IN_FLIGHT.value, "", "its bind has ended, and the watch has not shown the result yet"
        return place.value, "", pod.cls.error and f"its spec cannot be used: {pod.cls.error}"

    def _waits_for(self, pod: PodInfo, place: str, view: PodView) -> LabelledMessage:
        """Return the reason as in its current or future condition."""
        if place == Place.GATED:
            if pod.gates:
                return LabelledMessage(of_own_gates(stands_by=not pod.closed_gates).label, "")
            key = native_key(pod)
            verdict = of_gang(self._cluster.groups, key) if key is not None else None
            if verdict is not None and view.gating_plugin == GANG_SCHEDULING:
                return LabelledMessage(verdict.label, verdict.message)
            if view.gating_plugin == QUEUE_CAPACITY:
                return LabelledMessage(WORDS[WaitReason.QUEUE].label, view.gating_message)
        tried = self._history.of(pod.uid)
        said = place in (Place.UNSCHEDULABLE, Place.BACKOFF) and tried
        return (
            LabelledMessage(tried[-1].waits_for, tried[-1].message if tried[-1].waits_for else "") if said else _NOTHING
        )

    def _queue(self, place: str, pod: PodView) -> dict[str, Any]:
        refused = place == Place.UNSCHEDULABLE
        return {
            "since": self._text(pod.timestamp),
            "attempts": pod.attempts,
            "backoff_until": self._text(pod.backoff_expiration) if place == Place.BACKOFF else None,
            "retried_by": self._text(pod.timestamp + self._rules.settings.max_in_unschedulable) if refused else None,
            "gated_by": pod.gating_plugin or None,
            "gate": pod.gating_message or None,
            "diagnose": [*pod.pending_plugins, *pod.unschedulable_plugins],
            "urgent": bool(pod.urgent),
        }

    def _group(self, key: GroupKey) -> dict[str, Any]:
        """Return the state of a native group, whose members wait for each other."""
        cluster = self._cluster
        group, members = cluster.groups.get(key), cluster.groups.members(key).values()
        condition = None if group is None else group.condition
        return {
            "name": key.name,
            "needed": None if group is None else group.minimum,
            "members": len(members),
            "scheduled": sum(bool(each.node_name) or each.uid in cluster.ledger.placements for each in members),
            "gated": sum(cluster.queue.where(each.uid) is Place.GATED for each in members),
            "message": "" if condition is None else condition.message,
        }

    # ---- why

    def _placement(self, pod: PodInfo, node_name: str) -> dict[str, Any]:
        rules = self._rules
        outside = rules.settings.sharding is not ShardingMode.NONE and node_name not in rules.membership.nodes
        beside = f"; {node_name} is not in the shard of this scheduler" if outside else ""
        return self._bound_pods.placement(pod, node_name, rules.profiles.get(pod.scheduler_name), beside=beside)

    def _decision(self, pod: PodInfo) -> dict[str, Any]:
        """Return what a cycle would decide now. If a plugin raises, only `problem` is set."""
        snapshot = self._snapshot
        try:
            snapshot.refresh()
            cls = snapshot.handle.class_of(pod)
            view = ClassView(self._rules.profiles[pod.scheduler_name], cls, snapshot)
            view.refresh(snapshot)
            explanation = plain(explain(view, snapshot.columns))
            against = self._nominations.against(pod)
            rows = self._nominations.taken(pod, view, snapshot.columns, against)
        except Exception as error:
            return {"problem": f"{type(error).__name__}: {error}"}
        nodes = [snapshot.columns.nodes[row] for row in rows]
        return {**explanation, "held": sorted(node.name for node in nodes if node is not None)}

    # ---- when

    def _attempts(self, pod: PodInfo) -> list[dict[str, Any]]:
        """Return the attempts, the newest first."""
        return [
            {
                "time": self._text(attempt.began),
                "seconds": round(attempt.seconds, 6),
                "result": attempt.result,
                "message": attempt.message,
            }
            for attempt in reversed(self._history.of(pod.uid))
        ]
