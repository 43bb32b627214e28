"""Measures what an event costs while pods wait: the called hints and CPU time, with pre-hints and as a full scan.

For every kind of event there is a queue of pods that one plugin rejected, and events that each concern one, few or none
of them, as in a cluster. The plugins and their hints are the product's own. Run it with `python -m
bench.events_waiting`. Times are CPU time, the median of batches; the queues with and without pre-hints receive the same
events alternately. The limits: events of a pod's own claim cost the same with 1,000 and with 100,000 waiting pods
(within a factor of 2), and at 10,000 a hundredth of the full scan.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import msgspec

from agent_scheduler.engine.dra import records as dra
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.volumes import records
from agent_scheduler.objects import wire
from bench.tables import short, table

#: For scans over more pods than the first number, the second number of batches suffices.
_LONG, _LONG_SCANS = 20_000, 3

Json = dict[str, Any]
Queue = SchedulingQueue

PROFILE = "agent-scheduler"
#: Kinds whose cost must not grow.
OWN = ("own claim bound", "own resource claim allocated")


class Counting(NullRecorder):
    """Counts the called hints."""

    def __init__(self) -> None:
        self.hints = 0

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self.hints += 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event: the waiting pods, the plugin that rejected them, and the events.

    `pod` and `event` are by number.
    """

    name: str
    plugin: str
    pod: Callable[[int], Json]
    event: Callable[[int], tuple[ClusterEvent, object, object]]


# ---- objects


_read_pod = PodReader(PodClasses())
_encode = msgspec.json.encode


def _pod(number: int, *, namespace: str = "bench", labels: Json | None = None, **spec: Any) -> Json:
    requests = spec.pop("requests", {"cpu": "100m"})
    container = {"name": "c", "resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    return {
        "metadata": {"namespace": namespace, "name": f"pod-{number}", "uid": f"pod-{number}", "labels": labels or {}},
        "spec": {"schedulerName": PROFILE, "containers": [container], **spec},
    }


def _on_node(number: int, **more: Any) -> PodInfo:
    return _read_pod(_encode(_pod(-1 - number, nodeName="n", **more)))


def _node(name: str, *, cpu: str = "1", labels: Json | None = None, taints: list[Json] | None = None) -> NodeInfo:
    body = {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "10"}},
    }
    return node_info(msgspec.convert(body, wire.Node))


def _claim(number: int, *, bound: bool) -> records.ClaimInfo:
    metadata = {"namespace": "bench", "name": f"claim-{number}", "uid": f"claim-{number}"}
    annotations = {records.BIND_COMPLETED: "yes"} if bound else {}
    spec = {"storageClassName": "fast", "volumeName": "v" if bound else None}
    return records.read_claim(_encode({"metadata": {**metadata, "annotations": annotations}, "spec": spec}))


def _volume(number: int) -> records.VolumeInfo:
    ref = {"namespace": "bench", "name": f"claim-{number}", "uid": f"claim-{number}"}
    body = {"metadata": {"name": f"v-{number}", "uid": f"v-{number}"}, "spec": {"claimRef": ref}}
    return records.read_volume(_encode(body))


def _capacity(room: str) -> records.CapacityInfo:
    metadata = {"namespace": "kube-system", "name": "pool", "uid": "pool"}
    body = {"metadata": metadata, "storageClassName": "fast", "nodeTopology": {}, "capacity": room}
    return records.read_capacity(_encode(body))


# ---- kinds


def _with_claim(number: int) -> Json:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}
    return _pod(number, volumes=[volume])


def _with_devices(number: int) -> Json:
    claim = {"name": "devices", "resourceClaimName": f"claim-{number}"}
    return _pod(number, resourceClaims=[claim])


def _device_claim(number: int, *, allocated: bool) -> dra.ResourceClaimInfo:
    name = f"claim-{number}"
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    result = {"request": "r", "driver": "d", "pool": "p", "device": f"device-{number}"}
    body = {
        "metadata": {"namespace": "bench", "name": name, "uid": name, "resourceVersion": str(allocated)},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": [result]}}} if allocated else {},
    }
    return dra.read_claim(_encode(body))


def _allocated(number: int) -> tuple[ClusterEvent, object, object]:
    event = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.UPDATE)
    return event, _device_claim(number, allocated=False), _device_claim(number, allocated=True)


def _near(number: int) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": f"app-{number}"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return _pod(number, affinity=affinity)


def _spread(number: int) -> Json:
    labels = {"app": f"app-{number}"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return _pod(number, labels=labels, topologySpreadConstraints=[constraint])


def _no_taints(number: int) -> tuple[ClusterEvent, object, object]:
    taints = [[{"key": key, "effect": "NoSchedule"}] for key in ("a", "b")]
    old, new = (_node("n", taints=each) for each in taints)
    return ev.NODE_UPDATE_TAINT, old, new


KINDS = (
    Kind(
        OWN[0],
        "VolumeBinding",
        _with_claim,
        lambda number: (
            ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, ActionType.UPDATE),
            _claim(number, bound=False),
            _claim(number, bound=True),
        ),
    ),
    Kind(OWN[1], "DynamicResources", _with_devices, _allocated),
    Kind(
        "volume provisioned for a claim",
        "VolumeBinding",
        _with_claim,
        lambda number: (ClusterEvent(Resource.PERSISTENT_VOLUME, ActionType.ADD), None, _volume(number)),
    ),
    Kind(
        "less storage than before",
        "VolumeBinding",
        _with_claim,
        lambda number: (
            ClusterEvent(Resource.CSI_STORAGE_CAPACITY, ActionType.UPDATE),
            _capacity("5Gi"),
            _capacity("4Gi"),
        ),
    ),
    Kind(
        "pod with a host port deleted",
        "NodePorts",
        lambda number: _pod(number, ports=[{"containerPort": 1, "hostPort": number % 60_000 + 1}]),
        lambda number: (
            ev.ASSIGNED_POD_DELETE,
            _on_node(number, ports=[{"containerPort": 1, "hostPort": number % 60_000 + 1}]),
            None,
        ),
    ),
    Kind(
        "pod that another has affinity to",
        "InterPodAffinity",
        _near,
        lambda number: (ev.ASSIGNED_POD_ADD, None, _on_node(number, labels={"app": f"app-{number}"})),
    ),
    Kind(
        "pod deleted of a kind that is spread",
        "PodTopologySpread",
        _spread,
        lambda number: (ev.ASSIGNED_POD_DELETE, _on_node(number, labels={"app": f"app-{number}"}), None),
    ),
    Kind(
        "node too small for all",
        "NodeResourcesFit",
        lambda number: _pod(number, requests={"cpu": f"{2000 + number % 5000}m"}),
        lambda number: (ev.NODE_ADD, None, _node(f"n-{number}")),
    ),
    Kind(
        "node that one pod selects",
        "NodeAffinity",
        lambda number: _pod(number, nodeSelector={"name": f"n-{number}"}),
        lambda number: (ev.NODE_ADD, None, _node(f"n-{number}", labels={"name": f"n-{number}"})),
    ),
    Kind("node that no pod tolerates", "TaintToleration", _pod, _no_taints),
    Kind(
        "victim deleted with the highest priority",
        "DefaultPreemption",
        lambda number: _pod(number, priority=number),
        lambda number: (ev.ASSIGNED_POD_DELETE, _on_node(number, priority=2**30), None),
    ),
)


# ---- measurements


@dataclass(frozen=True, slots=True)
class Figure:
    """Hints that one event called, and CPU microseconds."""

    hints: float
    micros: float


def _waiting(kind: Kind, pods: list[PodInfo], *, pre_hints: bool, recorder: Counting) -> Queue:
    """Return a queue with `pods` in the pool, all rejected by the plugin."""
    profile = build_profile(ProfileSpec(scheduler_name=PROFILE, base="default-scheduler"))
    profile = profile.seeing(Ledger(), _devices(len(pods)), NativeGroups())
    queue: Queue = SchedulingQueue(
        clock=time.monotonic,
        hint_maps={PROFILE: profile.hint_map()},
        pre_enqueue={},
        settings=QueueSettings(pre_queueing_hints=pre_hints),
        signals=QueueSignals(ready=lambda: None, deadline_moved=lambda: None),
        recorder=recorder,
        is_pending=lambda uid: True,
    )
    for pod in pods:
        queue.add(pod)
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, unschedulable_plugins=(kind.plugin,))
    assert queue.pending().unschedulable == len(pods)
    return queue


@cache
def _devices(count: int) -> Devices:
    """Return the claims of this number of pods."""
    devices = Devices()
    for number in range(count):
        devices.set_claim(_device_claim(number, allocated=False))
    return devices


def measure(kind: Kind, count: int, *, batches: int) -> dict[bool, Figure]:
    """Measure with and without pre-hints, while `count` pods wait."""
    pods = [_read_pod(_encode(kind.pod(number))) for number in range(count)]
    recorders = {pre_hints: Counting() for pre_hints in (True, False)}
    queues = {
        pre_hints: _waiting(kind, pods, pre_hints=pre_hints, recorder=recorder)
        for pre_hints, recorder in recorders.items()
    }
    numbers = iter(range(count))
    micros: dict[bool, list[float]] = {True: [], False: []}
    events = {True: 0, False: 0}
    gc.collect()
    gc.disable()
    try:
        for batch in range(batches):
            # The full scan gets fewer of the same events, because each scans all pods.
            for pre_hints, size in ((True, 20), (False, max(1, 2000 // count))):
                if not pre_hints and batch >= _LONG_SCANS and count > _LONG:
                    continue
                happening = [kind.event(number) for number in _take(numbers, size)]
                queue = queues[pre_hints]
                started = time.process_time()
                for event, old, new in happening:
                    queue.move_all(event, old, new)
                micros[pre_hints].append((time.process_time() - started) / len(happening) * 1e6)
                events[pre_hints] += len(happening)
    finally:
        gc.enable()
    return {
        pre_hints: Figure(recorders[pre_hints].hints / events[pre_hints], median(micros[pre_hints]))
        for pre_hints in (True, False)
    }


def _take(numbers: Iterator[int], size: int) -> list[int]:
    return [next(numbers) for _ in range(size)]


def report(counts: list[int], batches: int) -> dict[str, dict[int, dict[bool, Figure]]]:
    return {kind.name: {count: measure(kind, count, batches=batches) for count in counts} for kind in KINDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", default="1000,10000,100000", help="how many pods wait, by commas")
    parser.add_argument("--batches", type=int, default=15, help="batches of events a figure is the median of")
    args = parser.parse_args()
    counts = [int(each) for each in args.waiting.split(",")]
    found = report(counts, args.batches)
    header = ("event", "waiting", "hints", "hints, full scan", "us", "us, full scan", "times faster")
    rows = [
        (
            name,
            f"{count:,}",
            short(figures[True].hints),
            short(figures[False].hints),
            short(figures[True].micros),
            short(figures[False].micros),
            short(figures[False].micros / figures[True].micros),
        )
        for name, by_count in found.items()
        for count, figures in by_count.items()
    ]
    print("Hints called and CPU time per event, with pre-hints and without.\n")
    print(table(header, rows))
    least, most = min(counts), max(counts)
    print()
    for name in OWN:
        growth = found[name][most][True].micros / found[name][least][True].micros
        print(f"- {name}: from {least:,} to {most:,} waiting an event costs {short(growth)} times as much.")


if __name__ == "__main__":
    main()
