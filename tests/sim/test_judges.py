"""The judges of worlds detect a product that breaks its promises: each case breaks it in one way.

One case for each promise is in `make test`, the others are wide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from agent_scheduler.batch.committing import Evictions
from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.queue_admission import AlwaysElected
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.gang_choice import GangChoice
from agent_scheduler.controllers.jobs.states import COMPLETED, ENDED, RESTART_JOB, RUNNING
from agent_scheduler.engine.queues.gated import GatedMembers, GatedPods
from agent_scheduler.engine.queues.room import QueueRoom
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.verdicts import WaitReason
from agent_scheduler.objects.batch import INQUEUE, PENDING
from kube_client.bind import Binds

from .api import condition_of, pod
from .gang_load import DEPENDS_ON_GANG, JOB_VERSION, JOBS_PATH, SHIPPED
from .many import found
from .world import Options, Verdict, World, run

#: Returns the broken replacement of a function or attribute.
Make = Callable[[Any], Any]


class Broken(NamedTuple):
    """A case.

    `places`: what is replaced, and by which `Make`; relative to `agent_scheduler` without another package.
    """

    head: re.Match[str]
    places: dict[str, Make]


#: Parts of a case's head: codes of the promises of which one is violated, the scenario, its faults ("any": those that a
#: seed draws; without them none), a seed of such a world, what is broken, and a part of the violation's text.
_HEAD = re.compile(
    r"(?P<promises>[SL\d ]+) (?P<scenario>[a-z-]+)(?: with (?P<faults>[a-z_, ]+?))?(?: from (?P<first>\d+))?"
    r": (?P<what>.+?)(?: => (?P<says>.+))?"
)


def _case(head: str, places: dict[str, Make], *, wide: bool) -> Any:
    """Return the parameters of a case whose head has the form of `_HEAD`."""
    found = _HEAD.fullmatch(head)
    assert found is not None, head
    marks = [pytest.mark.promise(*found["promises"].split()), *([pytest.mark.wide] if wide else [])]
    return pytest.param(Broken(found, places), id=found["what"], marks=marks)


def gives(value: Any) -> Make:
    return lambda _was: lambda *_args, **_more: value


def gives_later(value: Any) -> Make:
    async def given(*_args: Any, **_more: Any) -> Any:
        return value

    return lambda _was: given


def everywhere(_was: Any) -> Any:
    return lambda _self, _state, _nodes, rows: np.ones(rows.shape[0], dtype=np.bool_)


def lets_through(plugin: str) -> dict[str, Make]:
    name = f"engine.plugins.{plugin}"
    return {f"{name}.feasible": everywhere, f"{name}.feasible_row": gives(True)}


def _next_of(binder: Binder, node_name: str) -> str:
    names = sorted(binder._cluster.ledger.rows)
    return names[(names.index(node_name) + 1) % len(names)]


def half_of(native: bool) -> Make:
    def make(choose: Any) -> Any:
        def half(self: GangChoice, key: Any, gated: Any, reserved: Any) -> GatedMembers | None:
            choice = choose(self, key, gated, reserved)
            if choice is None or len(choice.needed) < 2 or key.native is not native:
                return choice
            return GatedMembers(choice.needed[:1], (), choice.at_least)

        return half

    return make


def forgetful(*, native_alone: bool) -> Make:
    def make(set_pod: Any) -> Any:
        def forgets(self: GatedPods, pod: Any) -> None:
            other = native_alone and (pod.group is None or not pod.group.native)
            if pod.gates or pod.uid in self or other:
                set_pod(self, pod)

        return forgets

    return make


def with_after(change: Callable[..., Any]) -> Make:
    """Return a `Make` that calls `change` after the original, with its result and arguments, and returns its result."""
    return lambda was: lambda *about, **more: change(was(*about, **more), *about, **more)


def around(act: Callable[..., Any]) -> Make:
    """Return a `Make` that calls `act` instead of the original, with the original and its arguments."""
    return lambda was: lambda *about, **more: act(was, *about, **more)


def _bind_without_minimum(bind: Any, session: Session, tasks: Any) -> None:
    job = tasks[0].job
    least, job.minimum = job.minimum, 0
    try:
        bind(session, tasks)
    finally:
        job.minimum = least


async def _keep_leaving(one: Any, evictions: Evictions, *about: Any) -> None:
    leaving = set(evictions._leaving)
    await one(evictions, *about)
    evictions._leaving |= leaving


def _let_past_at_once(_put: None, gated: GatedPods, key: Any, _members: Any) -> None:
    gated.let_past([*gated._waits_as.get(key, ())])


def _let_past_unasked(_seen: None, usage: QueueUsage, pod: Any) -> None:
    if pod.gates and not (pod.batch is not None and pod.batch.gate_managed):
        usage.events.admitted([pod])


def _full_asks_for_nodes(
    _was: Any, handler: FailureHandler, entry: Any, pod: Any, short: Any, *, started: float
) -> None:
    handler._failed(entry, pod, "Unschedulable", str(short), plugins={"NodeResourcesFit"}, started=started)


def _wait_for_one(wait_for: Any, room: QueueRoom, name: str, wanted: Any, first: Any) -> None:
    queue = room.members.queue_of(first)
    wait_for(room, name, {queue: wanted[queue]} if queue in wanted else wanted, first)


def _refuse_others(refused: Any, messenger: KubeMessenger, pod: Any, reason: str, *more: Any, **named: Any) -> None:
    if reason != "QueueFull" or pod.group is None or not pod.group.native:
        refused(messenger, pod, reason, *more, **named)


def _tell_others(tell: Any, handler: FailureHandler, entry: Any, pod: Any, refusal: Any, **more: Any) -> Any:
    if pod.group is None or not pod.group.native:
        return tell(handler, entry, pod, refusal, **more)
    return handler._failed(entry, pod, "Waiting", "", plugins=refusal.plugins, started=more["started"])


def _hold_unschedulable(_was: Any, messenger: KubeMessenger, pods: Any, why: str) -> None:
    for each in pods:
        messenger.refused(each, "Unschedulable", why)


def _waits_for_anything(_was: Any, pod: Any) -> bool:
    return condition_of(pod).get("status") == "False" and not pod["spec"].get("schedulingGates")


def _try_again_soon(_put: None, places: Any, entry: Any, **_more: Any) -> None:
    places.unschedulable.put(entry, stale_at=entry.timestamp + 5.0)
    places._tell_deadline(entry.timestamp + 5.0)


def _never_more_gpus(recount: Any, columns: Columns, row: int, placements: Any) -> None:
    before = columns.gpus.get(row, ())
    recount(columns, row, placements)
    if len(before) == len(columns.gpus.get(row, ())):
        columns.set_gpus(row, tuple(map(min, before, columns.gpus.get(row, ()))))


def _bind_without_devices(begin: Any, binds: Binds, *about: Any) -> Any:
    binds._annotations = {}
    return begin(binds, *about)


def _keep_what_ended(kill: Any, _job: Any, action: str) -> Any:
    return replace(kill, retain=ENDED) if kill is not None and action == RESTART_JOB else kill


def _one_pod_more(pods: Any, job: Any) -> Any:
    for name, task, index in pods:
        yield name, task, index
    yield f"{job.metadata.name}-{task.name}-{index + 1}", task, index + 1


def _set_once(set_node: Any, cluster: Cluster, node: Any) -> None:
    if cluster.ledger.node(node.name) is None:
        set_node(cluster, node)


def _counters_of_one_each(pool: Any) -> dict[Any, int]:
    names = sorted((pool.exclusive.keys() | pool.shares.keys()) & pool.devices.keys())
    return {counter: size for name in names for counter, size in pool.devices[name][0].consumes}


#: Makes everything fit into every queue.
_ENDLESS_QUEUES = {
    f"engine.{place}": gives(None)
    for place in (
        *("queues.book.QuotaBook.shortfall", "queues.book.Headroom.shortfall"),
        "quotas.capacity.CapacityAccounts.cannot_allocate",
        "quotas.proportion.ProportionAccounts.cannot_allocate",
    )
}
_TRUE_OF_OTHERS: dict[str, Make] = {
    "cluster.cluster.Cluster._counts_of_others": lambda was: lambda self, pod: bool(pod.gates) and was(self, pod)
}
#: The cases of `make test`.
_QUICK: dict[str, dict[str, Make]] = {
    "S25 tight with any: no node is too full": lets_through("node_resources_fit.NodeResourcesFit"),
    "S1 S6 S7 S25 tight with any: a pod is bound behind its gate": {"engine.decide.decide._passes": gives(True)},
    "S18 devices with not_attached: a pod is bound before its devices are ready": {
        "binding.device_waits.DeviceWaits.wait": gives_later("")
    },
    "L14 replicas with unlistable, crash from 6: a leader waits for a list that it may not have => decides nothing": {
        "kube_client.informers.OTHERS_PATIENCE": lambda _was: 1e9
    },
    # Its consequences appear in other worlds first.
    "S26 constrained with any: a change of a node is not applied": {
        "cluster.cluster.Cluster.set_node": around(_set_once)
    },
    # Gangs and sessions.
    "S27 batch: a gang is bound bit by bit => members": {
        "engine.session.session.Session.bind": around(_bind_without_minimum),
        "engine.session.plugins.gang._ready": gives(True),
        "engine.session.plugins.gang._is_ready": gives(True),
    },
    "S28 batch from 1: a queue is above its capability => has": _ENDLESS_QUEUES,
    "S29 batch: a trial is not taken back": {
        "engine.decide.trial.Trial.rollback": around(
            lambda was, trial, mark: was(trial, max(mark, 1) if len(trial._journal) else mark)
        )
    },
    "S30 batch from 32: pods are evicted for equals => of higher priority": {
        "engine.session.plugins.priority._preemptable": around(
            lambda _was, preemptor, tasks: [task for task in tasks if task.job.priority >= preemptor.job.priority]
        )
    },
    "S31 batch: a group is sent back from its queue": {
        "engine.session.close._phase": with_after(
            lambda now, _session, job, **_: PENDING if now == job.group.status.phase == INQUEUE else now
        )
    },
    "L21 batch: no session is due => fits with": {
        "batch.waiting.BatchWaitingPods.group_changed": gives(None),
        "batch.waiting.BatchWaitingPods.move_all": gives(0),
    },
    # The shipped configuration, at rest.
    "L21 batch from 1: no group is let in => is not let in": {"engine.session.tiers.Tiers.enqueueable": gives(False)},
    "L22 batch with members_deleted: members that lack others ask for nodes => says Unschedulable, and its gang has": {
        "engine.verdicts.WORDS": lambda was: {**was, WaitReason.MEMBERS: was[WaitReason.NODES]}
    },
    "L23 gates from 2: nodes come for pods that wait for members => unused: its gang has": {
        "embedded_kubernetes.autoscaler.is_unschedulable": around(_waits_for_anything)
    },
    "S40 mixed from 20: a decision costs too much => calls, the last of": {
        "fastpath.worker.decide": around(
            lambda was, view, columns, **more: [columns.usage for _ in range(60_000)] and was(view, columns, **more)
        )
    },
    "L24 gates from 4: what was promised is forgotten at a restart => counts as": {
        "engine.queues.gated.GatedPods.set": forgetful(native_alone=False),
        "tests.sim.gate_safety.GateSafety.look_inside": gives(None),
    },
    "L3 gates from 22: pods that wait are tried again all the time => writes in 60 s of rest": {
        "engine.queueing.places.Places._to_unschedulable": with_after(_try_again_soon)
    },
    # Gates of queues.
    "S32 gates: half a gang is let past => whose gang has": {"cluster.gang_choice.GangChoice.__call__": half_of(False)},
    "S34 gates with webhook_down, crash: a reservation is forgotten at a restart => keeps no room": {
        "engine.queues.gated.GatedPods.set": forgetful(native_alone=False)
    },
    "L17 gates: gates are left => behind": {"binding.queue_admission.QueueAdmission._remove": gives_later(None)},
    "L18 gates-shards from 5: a gang of a full shard wants nodes, and others have room => that nodes are missing": {
        "engine.session.written._held_by_shard": gives({})
    },
    "S33 gates: a full queue asks for nodes => says Unschedulable": {
        "binding.failure.FailureHandler.queue_full": around(_full_asks_for_nodes),
        "engine.session.written._held_by_queue": gives({}),
    },
    # GPUs that pods share.
    "S7 gpus with any: devices are not given back": {
        "engine.state.columns.Columns.recount_gpus": around(_never_more_gpus)
    },
    "S39 gpus from 1: every GPU has room => reserves": lets_through("gpu_share.GPUShare"),
    "S38 gpus: all pods have one device => gave more of a device": {"engine.ledger.text_of": gives("0")},
    "L20 gpus with bound_elsewhere, denied: only the scheduler gives a pod its devices => it names ()": {
        "engine.ledger.Ledger._regive": lambda was: lambda self, at, gpus: bool(gpus) and was(self, at, gpus)
    },
    # Jobs.
    "S35 jobs: a stage begins before its turn => before its turn": {
        "controllers.jobs.carrying.waiting_tasks": gives({})
    },
    "S36 jobs: a job has one pod too many => is one of": {
        "controllers.jobs.carrying.desired": with_after(_one_pod_more)
    },
    "S37 jobs: a phase goes where it does not lead => from Completed to Running": {
        "controllers.jobs.carrying.next_phase": with_after(
            lambda now, _job, status, **_: RUNNING if now == COMPLETED == status.state.phase else now
        )
    },
    "L19 jobs: pods are not made again => lacks": {
        "controllers.jobs.carrying.Carrying._make_pods": around(
            lambda was, self, job, missing, *more: was(self, job, [each for each in missing if not each[1]], *more)
        )
    },
}
_WIDE: dict[str, dict[str, Make]] = {
    **{
        f"S25 {scenario} with any: {plugin} lets everything through": lets_through(plugin)
        for scenario, plugins in (
            ("constrained", "node_affinity.NodeAffinity taint_toleration.TaintToleration"),
            ("constrained", "node_unschedulable.NodeUnschedulable node_ports.NodePorts"),
            ("constrained", "pod_topology_spread.PodTopologySpread inter_pod_affinity.InterPodAffinity"),
            ("claims", "node_volume_limits.NodeVolumeLimits volume_zone.VolumeZone"),
            ("claims", "volume_restrictions.VolumeRestrictions"),
        )
        for plugin in plugins.split()
    },
    "S25 burst with any: a bind goes to another node than the reserved one": {
        "binding.binder.Binder._sent_at_once": lambda was: (
            lambda self, done, node: was(self, done, _next_of(self, node))
        ),
        "binding.binder.Binder._carry_out": lambda was: (
            lambda self, done, node, sent: was(self, done, _next_of(self, node), sent)
        ),
    },
    "L1 L10 devices with not_attached from 25: a device that failed is kept": {
        "engine.dra.catalogue.Devices.binding_failed": gives(False),
        "binding.claim_writer.ClaimWriter.take_back": gives_later(None),
    },
    "S L replicas with rolled_back from 6: what was undone with the store counts": {
        "kube_client.reflector.version_of": gives_later(""),
        "kube_client.lease.is_older": gives(False),
    },
    "L1 L13 churn with rotated: files are never read again": {"kube_client.tls.Tls._look": gives(None)},
    "S17 devices with any: counters of devices are not added up": {
        "engine.dra.pools.Pool.counters_used": lambda _was: property(_counters_of_one_each)
    },
    "L16 batch with denied, failed from 164: victims are never forgotten": {
        "batch.committing.Evictions._one": around(_keep_leaving)
    },
    "S32 gates: pods are let past into a full queue => would have": {
        "engine.queues.gated.GatedPods._put": with_after(_let_past_at_once)
    },
    "S32 gates with webhook_lies: a gate goes of a pod that did not ask => asks: False": {
        "engine.queues.usage.QueueUsage.seen": with_after(_let_past_unasked)
    },
    "S32 gates-native from 42: a gang asks one of its queues alone => would have": {
        "engine.queues.room.QueueRoom.wait_for": around(_wait_for_one)
    },
    "L17 gates-native with queue_changed from 33: words of a gang are left that are not true any longer"
    " => has no room": {"binding.messenger.KubeMessenger.refused": around(_refuse_others)},
    "L17 gates-native from 15: no node comes for a gang of kubernetes own => of scheduling.k8s.io/": {
        "binding.failure.FailureHandler.unschedulable": around(_tell_others)
    },
    "S33 gates-shards: a pod behind its gate says unschedulable => says Unschedulable": {
        "binding.messenger.KubeMessenger.held": around(_hold_unschedulable)
    },
    "S39 gpus: no binding names devices => with the devices ()": {
        "kube_client.bind.Binds.send_bind": around(_bind_without_devices)
    },
    # Succeeded pods count when a Job is resumed, and not when it is restarted.
    "S35 jobs with pod_failed from 23: a stage begins with pods of before a restart => begins before its turn": {
        "controllers.jobs.controller.kill_for": with_after(_keep_what_ended)
    },
    "L19 jobs: numbers are not counted => says 0 running": {
        "controllers.jobs.carrying.counted": with_after(lambda status, *_: msgspec.structs.replace(status, running=0))
    },
    "S28 mixed-batch from 26: a queue of both schedulers is too => has": _ENDLESS_QUEUES,
    "S30 batch: a gang loses some of its minimum => leaves": {
        "engine.session.victims._Spare.take": gives(True),
        "engine.session.plugins.gang._protected": lambda _was: lambda _preemptor, tasks: tasks,
    },
    "S32 gates-native: half a gang of Kubernetes' own is let past => whose gang has": {
        "cluster.gang_choice.GangChoice.__call__": half_of(True)
    },
    "L17 gates with webhook_down from 11: pods wait for one another's reservations => nodes to come": {
        "engine.queues.headroom.covers": gives(False)
    },
    "L17 gates: no node comes => to come": {"embedded_kubernetes.autoscaler.Autoscaler._scale_up": gives(None)},
    "S33 gates-native with any from 106: a gang of the fast path is not asked as a whole => and of its gang queue": {
        "engine.queues.usage.QueueUsage.gang_fitting": lambda _: lambda _self, pods, _minimum: pods
    },
    "L17 gates-native: gates are left on a gang of Kubernetes' own => of scheduling.k8s.io/": {
        "cluster.gang_choice.GangChoice._group": lambda was: (
            lambda self, key, gated: None if key.native else was(self, key, gated)
        )
    },
    "S27 gates-native: part of a gang of Kubernetes' own is bound => binds a member of scheduling.k8s.io/": {
        "binding.binder.Binder.commit_group": lambda was: (
            lambda self, members, _least, admission: was(self, members, 0, admission)
        ),
        "fastpath.gangs.is_feasible": lambda _was: (
            lambda tried: any(each.node_name for each in tried) and not any(each.attempt for each in tried)
        ),
    },
    "S34 gates-native with webhook_down, crash: what a gang of Kubernetes' own has is forgotten => keeps no room": {
        "engine.queues.gated.GatedPods.set": forgetful(native_alone=True)
    },
    "S34 gates-native from 4: room that is given back still counts => given its room back": {
        "engine.queues.gated.GatedPods.unreserve": gives(None)
    },
    "S L gates-native: groups of either kind are taken for one another": {
        "engine.state.batchinfo.GroupKey.text": lambda _was: property(lambda self: f"{self.namespace}/{self.name}")
    },
    # Gates, nodes and queues that two processes share.
    "S32 gates-shards from 3: a process without a batch scheduler removes gates => has no batch scheduler": {
        "fastpath.settings._removes_gates": gives(True)
    },
    "S32 gates-shards: gates go by a process that does not hold the lease => removes a gate while": {
        "process.scheduler.gates_turn": lambda _was: lambda *_, **__: AlwaysElected()
    },
    "S34 gates-shards: one process gives away what the other has reserved => agent-fast": _TRUE_OF_OTHERS,
    # The usage of queues in the end reveals it as well.
    "S32 gates-shards from 11: what the other has reserved is given away, and not looked at => takes the gate of": {
        **_TRUE_OF_OTHERS,
        "tests.sim.gate_safety.GateSafety.look_inside": gives(None),
        "tests.sim.gate_safety.GateSafety._refuses": gives(""),
    },
    "S34 gates-shards with pod_deleted, webhook_down: room is kept for another's pod that is gone => no longer waits": {
        "engine.queues.usage.QueueUsage.left": lambda was: (
            lambda self, uid: None if uid in self.gated.reserved else was(self, uid)
        )
    },
    "S28 gates-shards with webhook_down from 18: the fast process fills a queue beyond its limits => room, and queue": {
        "engine.queues.usage.QueueUsage.full": gives(None),
        "engine.queues.usage.QueueUsage.admit": gives(""),
    },
    "S33 gates-shards: nodes outside would not do => would do": {"fastpath.outside.OutsideShard.full": gives("")},
    "S33 gates-shards: nodes outside would do => would do": {"fastpath.outside.OutsideShard.full": gives("is full")},
    "S33 gates-shards: a pod of a full shard wants a node where others have room => outside would do: None": {
        "binding.failure.FailureHandler.shard_full": gives("")
    },
    # The other nodes are gone, and no new one is added.
    "L17 gates-shards from 13: words of full shards are not looked at again => fits on a node to come": {
        "fastpath.outside.OutsideShard._look": gives_later(None)
    },
    "S39 gpus-batch from 11: every GPU has room for a gang => reserves": lets_through("gpu_share.GPUShare"),
    "S39 gpus with crash, pod_deleted: devices are forgotten with a restart => reserves the devices": {
        "engine.state.podinfo.indices_in": gives(())
    },
    "S39 S25 L20 L13 gpus with gpu_taken, crash from 7: devices of others are not counted": {
        "engine.state.podinfo.indices_in": lambda was: lambda text, amount: was(text, amount)[:1]
    },
    # Although the judge takes from the controller what it knew.
    "S35 jobs with lagging, job_changed: a stage begins with pods that are not ready => begins before its turn": {
        "controllers.jobs.depends.is_ready": lambda _was: lambda pod: pod.metadata.deletion_timestamp is None
    },
    "S37 jobs with pod_failed from 4: a Job is tried for ever => is tried again for the": {
        "controllers.jobs.states.max_retry": gives(100)
    },
    "L19 jobs from 9: Jobs stay when their time is over => was to go": {
        "controllers.jobs.controller.JobController._expire": gives_later(True)
    },
    "L19 jobs with job_commanded: no command is carried out => command": {
        "controllers.jobs.controller.JobController._next_command": gives(None)
    },
}
CASES = [_case(head, places, wide=rows is _WIDE) for rows in (_QUICK, _WIDE) for head, places in rows.items()]


#: Packages that places begin with; others are relative to `agent_scheduler`.
_OTHERS = ("embedded_kubernetes.", "kube_client.", "tests.")


def _break(monkeypatch: pytest.MonkeyPatch, places: dict[str, Make]) -> None:
    for place, make in places.items():
        whole = place if place.startswith(_OTHERS) else f"agent_scheduler.{place}"
        owner, _, name = whole.rpartition(".")
        monkeypatch.setattr(whole, make(getattr(resolve_name(owner), name)))


@pytest.mark.parametrize("broken", CASES)
def test_a_judge_sees_that(monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    _break(monkeypatch, broken.places)
    head, drawn = broken.head, broken.head["faults"]
    faults = None if drawn == "any" else tuple((drawn or "").replace(",", " ").split())
    codes = tuple(f"{code}:" if code[1:] else code for code in head["promises"].split())
    violation = found(head["scenario"], codes, faults=faults, first=int(head["first"] or 0))
    assert violation and (head["says"] or "") in violation


#: Worlds without faults, or with those that lead to the most critical moments.
_HARD = ("crash", "queue_changed", "group_changed", "members_deleted", "webhook_down", "lost_after", "denied")
_AND_HARDER = (*_HARD, "recreated", "bound_elsewhere", "node_again", "sigterm")
_HARD_FOR_TWO = ("crash", "sigterm", "owner_gone", "shards_changed", "webhook_down", "lost_after", "stop")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("scenario", "seed", "faults"),
    [
        *((scenario, seed, ()) for scenario in ("batch", "jobs") for seed in (0, 3, 7, 11, 14)),
        *((scenario, seed, ()) for scenario in ("gpus", "gpus-batch") for seed in range(3)),
        *(("gates", seed, _AND_HARDER) for seed in range(100, 104)),
        *(("gates-shards", seed, _HARD_FOR_TWO) for seed in range(100, 103)),
    ],
)
def test_all_is_well_in_what_they_see_otherwise(scenario: str, seed: int, faults: tuple[str, ...]) -> None:
    assert run(Options(seed=seed, scenario=scenario, faults=faults)).violations == []


def _task(name: str, replicas: int, *, cpu: int, **more: Any) -> dict[str, Any]:
    template = pod(name, cpu=cpu, restartPolicy="Never")
    del template["metadata"]["name"], template["spec"]["schedulerName"]
    return {"name": name, "replicas": replicas, "template": template, **more}


def _with_one_job(*tasks: dict[str, Any]) -> Verdict:
    """Play a Job in a world of two nodes with four CPUs each; capacity is reserved for its later stages."""
    world = World(Options(seed=3, scenario="jobs", faults=(), set_up=SHIPPED))
    world.shape.pods.clear()
    job = {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": "j", "annotations": {DEPENDS_ON_GANG: "reserve"}},
        "spec": {"schedulerName": "volcano", "queue": "default", "minAvailable": 1, "tasks": [*tasks]},
    }
    world.shape.acts[:] = [each for each in world.shape.acts if "/jobs" not in each[2]]
    world.shape.acts.append((2.0, "POST", JOBS_PATH, job))
    return world.run()


@pytest.mark.promise("L5", "L19")
def test_pods_may_stand_by_with_room_for_as_long_as_others_run_before_them() -> None:
    verdict = _with_one_job(
        # Some of these run forever, and the others fit nowhere.
        _task("a", 20, cpu=900),
        _task("b", 1, cpu=50, dependsOn={"name": ["a"], "iteration": "all"}),
    )
    assert verdict.violations == []
    assert verdict.states["pod stands by at rest"]


@pytest.mark.promise("L5", "L19")
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_judge_sees_that_pods_stand_by_with_room_that_their_first_stage_lacks(
    monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    places: dict[str, Make] = {
        "engine.session.tiers.Tiers.in_pending_order": lambda _was: lambda self, _job, tasks: self.in_task_order(tasks),
        "engine.session.plugins.gang._somebody_runs": gives(True),
        "cluster.standing_by.StandingBy.left_alone": gives(None),
    }
    if is_broken:
        _break(monkeypatch, places)
    later = _task("b", 20, cpu=900, dependsOn={"name": ["a"], "iteration": "all"})
    # These are the first of the waiting pods.
    later["template"]["spec"]["priorityClassName"] = "greater"
    violations = _with_one_job(_task("a", 1, cpu=4000), later).violations
    assert any("binds are in flight" in each for each in violations) is is_broken
