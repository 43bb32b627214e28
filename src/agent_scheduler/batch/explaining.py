"""Explains what a pod or a group of the batch scheduler waits for and what it lacks, as plain data.

Each explanation is computed on request from the last session and from its own snapshot, so it changes no state of the
scheduler. It takes some milliseconds, in which nothing is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from agent_scheduler.binding.bound_pods import BoundPodExplainer
from agent_scheduler.binding.queue_admission import explain as explain_gate
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.explain import explain, plain
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.session.explain import explain_gang
from agent_scheduler.engine.session.messages import scheduling_reason
from agent_scheduler.engine.session.model import JobInfo, TaskInfo
from agent_scheduler.engine.session.written import of_task
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, by_queue, of_own_gates, without_group
from agent_scheduler.objects.batch import PodGroup
from apimachinery.times import time_text

from .measuring import EndedSession

BOUND: Final = "bound"
DELETING: Final = "deleting"
GATED: Final = "gated"
IN_FLIGHT: Final = "in_flight"
#: Sessions evaluate the pod or group.
WAITING: Final = "waiting"
#: The group has its minimum.
COMPLETE: Final = "complete"
UNKNOWN: Final = "unknown"

_NO_SESSION: Final = "no session has looked at it yet"

Page = dict[str, Any]


class BatchExplainer:
    """Explains pods and groups on request. Stateless."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Groups,
        *,
        profile: Callable[[], Profile],
        last: Callable[[], EndedSession | None],
        now: Callable[[], Any],
        bound_pods: BoundPodExplainer,
    ) -> None:
        """Explain from the state of `cluster` and `groups`; `last` returns the last ended session, if there is one."""
        self._cluster = cluster
        self._groups = groups
        self._profile = profile
        self._last = last
        self._now = now
        self._bound_pods = bound_pods

    def pod(self, namespace: str, name: str) -> Page | None:
        """Return the explanation of a pod; None for a pod that does not exist or has another scheduler.

        It has the fields of the fast path's explanation, and in `gang` that of its group.
        """
        pods = self._cluster.pods.values()
        pod = next((each for each in pods if each.name == name and each.namespace == namespace), None)
        if pod is None or pod.scheduler_name != self._profile().scheduler_name:
            return None
        place, node, why = self._where(pod)
        key = self._key_of(pod)
        found: Page = {
            "pod": pod.key,
            "time": time_text(self._now()),
            "uid": pod.uid,
            "scheduler_name": pod.scheduler_name,
            "priority": pod.priority,
            "place": place,
            "node": node or None,
            "why": why,
            "nominated_node": self._cluster.queue.nominator.nominated.get(pod.uid) or None,
            "gang": self._gang(key),
            **explain_gate(self._cluster, pod),
        }
        if node:
            found["placement"] = self._bound_pods.placement(pod, node, self._profile())
        verdict = self._of_pod(pod) if place in (WAITING, GATED) else None
        found["waits_for"] = "" if verdict is None else verdict.label
        if place == WAITING and not pod.cls.error:
            if verdict is not None and not why:
                found["why"] = verdict.message
            found["decision"] = self._decision(pod)
        return found

    def group(self, namespace: str, name: str) -> Page:
        """Return the explanation of a PodGroup; `place` is UNKNOWN if it does not exist and no pod names it."""
        found: Page = {"podgroup": f"{namespace}/{name}", "time": time_text(self._now())}
        key = GroupKey(namespace, name)
        known = self._groups.groups.get(key)
        if known is None:
            return {**found, "place": UNKNOWN, "why": "it does not exist, and no pod names it"}
        gang = self._gang(key)
        job = self._job(key)
        complete = not gang["waits_for"]
        found |= {"place": COMPLETE if complete else WAITING, "gang": gang}
        task = None if job is None or complete else _example(job)
        if task is not None and task.uid in self._cluster.pods:
            pod = self._cluster.pods[task.uid]
            found |= {"example": pod.key, "decision": self._decision(pod), **explain_gate(self._cluster, pod)}
        return found

    def reasons(self, keys: Iterable[GroupKey]) -> dict[GroupKey, str]:
        """Return one line per group on why it waits; empty for a group that has its minimum."""
        last = self._last()
        verdicts = {} if last is None else {each.group.key: each.verdict for each in last.result.groups}
        found = {}
        for key in keys:
            verdict = verdicts[key] if key in verdicts else self._without_session(key)
            found[key] = "" if verdict is None else verdict.message
        return found

    # ---- where

    def _where(self, pod: PodInfo) -> tuple[str, str, str]:
        """Return the pod's place, its node or the node that it is being bound to, and a comment on the place."""
        if pod.node_name:
            return BOUND, pod.node_name, ""
        placement = self._cluster.ledger.placements.get(pod.uid)
        if placement is not None:
            return IN_FLIGHT, placement.node_name, f"it is being bound to {placement.node_name}"
        if pod.deleting:
            return DELETING, "", "it is being deleted and needs no node"
        if pod.closed_gates:
            return GATED, "", f"scheduling gates: {', '.join(pod.closed_gates)}"
        return WAITING, "", pod.cls.error and f"its spec cannot be used: {pod.cls.error}"

    # ---- the gang

    def _key_of(self, pod: PodInfo) -> GroupKey:
        """Return the pod's group; a pod that names none is a group of its own, named by its UID."""
        key = pod.group
        return GroupKey(pod.namespace, pod.uid) if key is None else key

    def _job(self, key: GroupKey) -> JobInfo | None:
        last = self._last()
        return None if last is None else last.session.jobs.get(key.text)

    def _gang(self, key: GroupKey) -> Page:
        """Return the explanation of a gang; `group` is empty for a pod that is a group of its own."""
        last, job = self._last(), self._job(key)
        known = self._groups.groups.get(key)
        found: Page = {"group": "" if known is None else key.text}
        if last is None or job is None:
            verdict = self._without_session(key)
            label, why = ("session", _NO_SESSION) if verdict is None else (verdict.label, verdict.message)
            return {**found, "waits_for": label, "why": why}
        book = self._cluster.ledger.usage.book
        explanation = msgspec.to_builtins(explain_gang(last.session, last.result, job, book))
        for each in explanation["minimums"]:
            each["missing"] = max(each["needs"] - each["has"], 0)
        session = {"uid": last.session.uid, "ended": time_text(last.ended)}
        return {**explanation, **found, "queue": job.queue, "session": session}

    def _without_session(self, key: GroupKey) -> Verdict | None:
        """Return what a group outside of the sessions waits for; None if it only waits for its first session."""
        known, pod, last = self._groups.groups.get(key), self._groups.bare.get(key.name), self._last()
        if last is not None and key in last.result.lost:
            return last.result.lost[key]
        usage = self._cluster.ledger.usage
        if known is not None and known.object is None:
            return without_group(key.text)
        queue = usage.queue_of(pod) if pod is not None else usage.members.default_queue
        if known is not None and isinstance(known.object, PodGroup):
            queue = usage.members.queue_of_group(known.object.spec.queue, key.namespace)
        missing = (known or pod) is not None and queue not in self._groups.queues
        return by_queue(Shortfall(queue, {})) if missing else None

    def _of_pod(self, pod: PodInfo) -> Verdict | None:
        """Return what a pod without a node waits for; None if it only waits for its first session."""
        last, key = self._last(), self._key_of(pod)
        job = self._job(key)
        is_known = last is not None and job is not None and pod.uid in job.tasks
        if pod.closed_gates or (pod.gates and not is_known):
            return of_own_gates(stands_by=not pod.closed_gates)
        if last is None or job is None or pod.uid not in job.tasks:
            return self._without_session(key)
        group = next((each.verdict for each in last.result.groups if each.group.key == key), None)
        task = job.tasks[pod.uid]
        message = scheduling_reason(task)[1]
        return of_task(task, group, last.result.held, message)

    # ---- nodes

    def _decision(self, pod: PodInfo) -> Page:
        """Return the current decision on the pod alone; if a plugin raises, only `problem` with the error."""
        cluster = self._cluster
        try:
            snapshot = Snapshot(cluster.ledger, cluster.handle)
            snapshot.refresh()
            profile = self._profile()
            view = ClassView(profile, cluster.handle.class_of(pod), snapshot)
            view.refresh(snapshot)
            return plain(explain(view, snapshot.columns, per_point=profile.per_point))
        except Exception as error:
            return {"problem": f"{type(error).__name__}: {error}"}


def _example(job: JobInfo) -> TaskInfo | None:
    """Return a waiting task that no node could take, or else any task without a node; None if there is none."""
    refused = next((job.tasks[uid] for uid in job.fit_errors if uid in job.tasks), None)
    return refused or next((task for task in job.tasks.values() if not task.node_name), None)
