"""The state of the cluster and of the waiting pods, which decisions read and binds change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agent_scheduler.binding.history import History
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.queue_gate import QueueGate
from agent_scheduler.cluster.cluster import Cluster, ClusterObserver
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.cluster.storage import Storage
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder, QueueRecorder
from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.shards.claims import ShardingMode
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import by_queue
from agent_scheduler.kube.retry import Timing

from .gang_waits import GangWaits
from .rules import Rules
from .settings import FastPathSettings
from .worker import Feed

#: Receives pods that no longer wait: the UID, and the node, which is empty for a deleted or terminating pod.
Left = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The parts that all others share."""

    rules: Rules
    ledger: Ledger
    cluster: Cluster
    queue: SchedulingQueue[PodInfo]
    feed: Feed
    #: Set when the queue's next deadline has moved forward.
    deadline_moved: asyncio.Event
    history: History
    gang_waits: GangWaits
    storage: Storage
    claims: ResourceClaims
    snapshot: Snapshot
    nominations: Nominations


def build_state(
    settings: FastPathSettings,
    *,
    messenger: KubeMessenger,
    observer: ClusterObserver,
    recorder: QueueRecorder | None,
    timing: Timing,
    left: Left | None = None,
) -> State:
    """Build the state. `messenger` and `left` receive pods that no longer wait."""
    ledger, groups = Ledger(), NativeGroups()
    devices = Devices(ledger.touch)

    def kept_out(pod: PodInfo, short: Shortfall) -> None:
        """Report the full queue, and drop the pod's nomination, which must not last as long as a queue may be full."""
        had_one = pod.uid in queue.nominator.nominated or pod.nominated_node_name
        queue.nominate(pod, "", in_gate=True)
        nominated = "" if had_one else None
        verdict = gang_waits.lacks(pod) or by_queue(short)
        messenger.refused(pod, verdict.reason, verdict.message, nominated=nominated)

    gate = QueueGate(ledger.usage, told=kept_out)
    gang_waits = GangWaits(timing, messenger)
    rules = Rules(settings, ledger, devices, groups, gate, gang_waits)
    feed, deadline_moved, history = Feed(), asyncio.Event(), History(timing.clock)

    def waits(uid: str) -> bool:
        return cluster.waits(uid)

    def settled(pod: PodInfo) -> None:
        messenger.settled(pod)
        history.leaves(pod.uid, gone=pod.uid not in cluster.pods)
        if ledger.usage.active or ledger.usage.gated:
            ledger.usage.left(pod.uid)

    def settled_and_left(pod: PodInfo) -> None:
        settled(pod)
        seen = cluster.pods.get(pod.uid)
        assert left is not None
        left(pod.uid, "" if seen is None else seen.node_name)

    queue: SchedulingQueue[PodInfo] = SchedulingQueue(
        clock=timing.clock,
        hint_maps={name: profile.hint_map() for name, profile in rules.profiles.items()},
        pre_enqueue=rules.pre_enqueue(rules.profiles),
        settings=settings.queue,
        signals=QueueSignals(ready=feed.wake, deadline_moved=deadline_moved.set),
        recorder=recorder or NullRecorder(),
        is_pending=waits,
    )
    feed.attach(queue)
    cluster = Cluster(
        ledger=ledger,
        devices=devices,
        groups=groups,
        group_gone=lambda group: messenger.group_gone(group.key, group.uid),
        queue=queue,
        profiles=rules.profiles,
        observer=observer,
        settled=settled if left is None else settled_and_left,
        seen=messenger.seen,
        counts_others=settings.sharding is not ShardingMode.NONE,
    )
    gang_waits.attach(cluster)
    cluster.on_group_seen.append(messenger.group_seen)
    snapshot = Snapshot(ledger, cluster.handle)
    return State(
        rules=rules,
        ledger=ledger,
        cluster=cluster,
        queue=queue,
        feed=feed,
        deadline_moved=deadline_moved,
        history=history,
        gang_waits=gang_waits,
        storage=Storage(cluster.catalogue, cluster.events),
        claims=ResourceClaims(devices, cluster.events),
        snapshot=snapshot,
        nominations=Nominations(queue.nominator, ledger, snapshot, rules.profile),
    )
