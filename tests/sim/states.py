"""The rare states that the runs must reach together: a fault without an effect has tested nothing.

Also the trace of a world, line by line, and its digest: two runs of one seed have the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from agent_scheduler.fastpath.scheduler import FastPath

from .judge import hear_before
from .kinds import Nemesis, Process

#: Sample of a process's metrics -> the state that it proves if it is above 0.
_SAMPLES = {
    **{
        f'agent_scheduler_bind_outcomes_total{{outcome="{outcome}"}}': f"bind {outcome}"
        for outcome in (
            *("bound", "bound_elsewhere", "recreated", "deleting", "gated", "gone"),
            *("refused", "unavailable", "unknown"),
        )
    },
    'agent_scheduler_urgent_retries_total{result="granted"}': "urgent retry",
    'agent_scheduler_urgent_retries_total{result="spent"}': "urgent retries spent",
    'agent_scheduler_revalidations_total{result="fits"}': "changed node still fits",
    'agent_scheduler_revalidations_total{result="refused"}': "changed node no longer fits",
    'agent_scheduler_malformed_objects_total{kind="Pod"}': "malformed object",
    "agent_scheduler_evictions_failed_total": "eviction failed",
    'agent_scheduler_config_reloads_total{result="applied"}': "configuration taken over",
    'agent_scheduler_config_reloads_total{result="refused"}': "configuration refused",
    'agent_scheduler_sharding_writes_total{result="conflict"}': "plan refused as it was written",
    'agent_scheduler_sharding_writes_total{result="failed"}': "plan not written",
}
#: Part of a sample's name -> the state that it proves.
_PARTS = {
    '"expired"': "list after 410",
    '"failing"': "list after failed watches",
    '"renewed"': "list of a new leader",
    '"stale_list"': "stale list refused",
    '"duplicate"': "duplicate event",
    '"aggregated"': "event repeated",
}
#: Prefix of the name of an event that woke a pod -> the kind of event in the state's name.
_EVENTS = {"AssignedPodDelete": "an event", "ResourceSlice": "a slice", "DeviceClass": "a class"}
#: A pod has reported `NodeShardFull`.
SHARD_FULL = "shard full, and others not"
_TOLD = ("agent_scheduler_lists", "agent_scheduler_watch_steps", "agent_scheduler_events")
#: States that the runs of all scenarios must have reached together.
WANTED = (
    *("bind bound", "bind bound_elsewhere", "bind recreated", "bind deleting", "bind gated", "bind gone"),
    *("bind refused", "bind unavailable", "bind unknown"),
    *("urgent retry", "urgent retries spent", "urgent retry of a deleted pod"),
    *("changed node still fits", "changed node no longer fits"),
    *("list after 410", "list after failed watches", "stale list refused", "duplicate event"),
    *("list of a new leader", "malformed object", "event repeated"),
    *("crash between bind and answer", "restart", "lease lost", "stopped for longer than a lease"),
    *("all places full", "woken by an event"),
    *("victim evicted", "eviction failed", "crash between choice and eviction"),
    *("preemptor gone while victims leave", "room taken by another"),
    *("configuration taken over", "configuration refused"),
    *("claim written after another", "claim lost to another scheduler", "claim allocated by another"),
    *("reservation taken back", "claim deallocated", "claim shared", "pod names a claim of another"),
    *("gated pod woken by its own status", "pod gone while its claims are written"),
    *("started over as the store went back", "bind undone with the store"),
    *("device attached late", "device could not be attached"),
    *("old token refused", "old certificate refused", "unknown authority"),
    *("crash between claims and bind", "extended resource met by devices"),
    *("woken by a slice", "woken by a class"),
    # States of `sharded`.
    *("hand-over while binds in flight", "dead owner's nodes taken", "overlap settled"),
    *("late status write", "shard deleted", "shard full at rest, and others not"),
    # States of `planned`.
    *("nodes of a shard exchanged at once", "edit by hand put right", "late write of a shard"),
    *("foreign shard of a configured name", "shard retired", "shard written by the next controller"),
    *("plan refused as it was written", "plan not written"),
    # States of `batch` and `mixed-batch`.
    *("gang evicted for another", "gang waits at rest", "members deleted in mid-session"),
    *("queue changed in mid-session", "crash in mid-session", "status of a group refused"),
    "crash between status of a group and answer",
    # States of `gates`, `gates-slow` and `gates-native`.
    *("scale-up triggered", "pod waits behind its gate at rest", "pod came without its gate"),
    "held pod reported",
    *("gate of a pod that asks for none", "crash between decision and removal of a gate"),
    *("crash between removal of a gate and answer", "queue changed as a gate was to go"),
    "queue changed between removal of a gate and bind",
    *("gate that comes late", "pod came without its gate after a timeout"),
    "pod refused as the webhook was late",
    *("gang of Kubernetes' own let past", "gang of Kubernetes' own behind its gate at rest"),
    # States of `gates-shards`.
    *("gate of another process's pod removed", "gates taken over", "node moved while room is reserved"),
    *(SHARD_FULL, "turn to remove gates lost while a gate was to go"),
    # States of `jobs`.
    *(f"job {phase}" for phase in ("Running", "Restarting", "Aborted", "Completed", "Failed", "Terminated")),
    *("pod of a later stage begins", "pod of a later stage stands by"),
    "crash between a write for a job and answer",
    # States of `gpus` and `gpus-batch`.
    *("GPU shared", "GPUs found again after a restart", "GPU lost that is in use"),
    *("annotation of GPUs edited", "pod waits for a GPU of which parts are free"),
)
#: Scenario -> states that its own runs must have reached.
WANTED_THERE = {"jobs": ("gang evicted for another", "eviction failed"), "hostile": ("hostile object",)}
#: States that the few worlds of a commit need not all reach; those of a soak must.
SELDOM = (
    *("urgent retry of a deleted pod", "preemptor gone while victims leave", "bind unavailable"),
    *("bind unknown", "crash between choice and eviction", "dead owner's nodes taken"),
    *("claim lost to another scheduler", "reservation taken back", "woken by a class"),
    *("shard retired", "plan not written", "plan refused as it was written", "overlap settled"),
    *("started over as the store went back", "bind undone with the store"),
    *("status of a group refused", "crash between status of a group and answer"),
)


class States:
    """Counts the reached states."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._watched: set[int] = set()

    def reached(self, state: str, times: int = 1) -> None:
        self.seen[state] += times

    def process_started(self, process: Process) -> None:
        if not process.identity.endswith("-1"):
            self.reached("restart")

    def watch(self, fast_path: FastPath, nemesis: Nemesis) -> None:
        """Record states that no metric has, and make likely what is possible only at one moment. Idempotent."""
        queue: Any = fast_path.queue
        binder: Any = fast_path.binder
        if "requeue_urgent" in vars(queue):
            return
        requeue = queue.requeue_urgent

        def requeue_urgent(entry: Any) -> bool:
            granted: bool = requeue(entry)
            if granted:
                nemesis.lost_a_race(entry.pod)
            return granted

        def deletes(uid: str, **_: Any) -> None:
            entry = queue.places.active.get(uid)
            if entry is not None and entry.urgent:
                self.reached("urgent retry of a deleted pod")

        def settles(result: Any) -> None:
            if not fast_path.cluster.waits(result.pod.uid):
                self.reached("deleted between decision and bind")
                if result.entry.urgent_retries:
                    self.reached("urgent retry of a deleted pod")

        queue.requeue_urgent = requeue_urgent
        hear_before(queue, "delete", deletes)
        hear_before(binder, "_settle", settles)

    def harvest(self, process: Process) -> None:
        """Read from the metrics what a process that ends, or a run, has reached."""
        if process.metrics is None:
            return
        for name, value in samples(process).items():
            if not value:
                continue
            if (state := _SAMPLES.get(name)) is not None:
                self.reached(state)
            for part, state in _PARTS.items():
                if name.startswith(_TOLD) and part in name:
                    self.reached(state)
            for event, by in _EVENTS.items():
                if name.startswith("scheduler_queue_incoming_pods_total") and f'event="{event}' in name:
                    self.reached(f"woken by {by}")


def samples(process: Process) -> dict[str, float]:
    """Return every sample of the process's metrics by its name and labels, as a scraper reads it."""
    assert process.metrics is not None
    body, _ = process.metrics.exposition()
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


class Trace:
    """The lines of a world. With `keep` they are stored for printing; the digest always covers all of them."""

    def __init__(self, clock: Callable[[], float], *, keep: bool = False) -> None:
        self._clock = clock
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines: list[str] | None = [] if keep else None

    def __call__(self, who: str, what: str) -> None:
        line = f"{self._clock():14.6f} {who or 'world':12} {what}"
        self._digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
