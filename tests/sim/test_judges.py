"""The judges of worlds see a product that breaks what it promises: each case breaks it in one way.

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
from agent_scheduler.binding.queue_admission import Always
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.gang_choice import GangChoice
from agent_scheduler.controllers.jobs.carrying import Carrying
from agent_scheduler.controllers.jobs.states import COMPLETED, ENDED, RESTART_JOB, RUNNING
from agent_scheduler.engine.gangs.group import INQUEUE, PENDING
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.gatedpods import Choice, GatedPods
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.kube.bind import Binds

from .api import pod
from .gang_load import DEPENDS_ON_GANG, JOB_VERSION, JOBS_PATH
from .many import found
from .world import Options, World, run

#: Makes of what stands at a place what stands there in a broken product.
Make = Callable[[Any], Any]


class Broken(NamedTuple):
    """`places`: what is broken, and by which `Make`; in `agent_scheduler` where nothing else is named."""

    head: re.Match[str]
    places: tuple[tuple[str, Make], ...]


#: Codes of the promises of which one is violated, the scenario in which that shows, with which faults (those
#: that a seed draws for "any", else none but these), a seed with which it has shown, and a part of the violation.
_HEAD = re.compile(
    r"(?P<promises>[SL\d ]+) (?P<scenario>[a-z-]+)(?: with (?P<faults>[a-z_, ]+?))?(?: from (?P<first>\d+))?"
    r"(?:: (?P<says>.+))?"
)


def gives(value: Any) -> Make:
    return lambda _was: lambda *_args, **_more: value


def gives_later(value: Any) -> Make:
    async def given(*_args: Any, **_more: Any) -> Any:
        return value

    return lambda _was: given


def case(head: str, what: str, *places: tuple[str, Make], wide: bool = True) -> Any:
    """`head` as `_HEAD` has it."""
    found = _HEAD.fullmatch(head)
    assert found is not None, head
    marks = [pytest.mark.promise(*found["promises"].split()), *([pytest.mark.wide] if wide else [])]
    return pytest.param(Broken(found, places), id=what, marks=marks)


def quick(head: str, what: str, *places: tuple[str, Make]) -> Any:
    """One that `make test` has."""
    return case(head, what, *places, wide=False)


# -- what stands in the places


def everywhere(_was: Any) -> Any:
    return lambda _self, _state, _nodes, rows: np.ones(rows.shape[0], dtype=np.bool_)


def lets_through(plugin: str) -> tuple[tuple[str, Make], ...]:
    name = f"engine.plugins.{plugin}"
    return (f"{name}.feasible", everywhere), (f"{name}.feasible_row", gives(True))


def last_alone(_was: Any) -> Any:
    def counters_used(pool: Any) -> dict[Any, int]:
        names = pool.exclusive.keys() | pool.shares.keys()
        return {
            counter: size
            for name in sorted(names & pool.devices.keys())
            for counter, size in pool.devices[name][0].consumes
        }

    return property(counters_used)


def the_first_alone(set_node: Any) -> Any:
    def once(cluster: Cluster, node: Any) -> None:
        if cluster.ledger.node(node.name) is None:
            set_node(cluster, node)

    return once


def _next_of(binder: Binder, node_name: str) -> str:
    names = sorted(binder._cluster.ledger.rows)
    return names[(names.index(node_name) + 1) % len(names)]


def with_no_minimum(bind: Any) -> Any:
    def bound(session: Session, tasks: Any) -> None:
        job = tasks[0].job
        least, job.minimum = job.minimum, 0
        try:
            bind(session, tasks)
        finally:
            job.minimum = least

    return bound


def leaves_the_first(rollback: Any) -> Any:
    return lambda trial, mark: rollback(trial, max(mark, 1) if len(trial._journal) else mark)


def no_lesser(_was: Any) -> Any:
    return lambda preemptor, tasks: [task for task in tasks if task.job.priority >= preemptor.job.priority]


def back_to_pending(phase: Any) -> Any:
    def back(session: Any, job: Any) -> str:
        now = phase(session, job)
        return PENDING if now == job.group.status.phase == INQUEUE else now

    return back


def keeps_victims(one: Any) -> Any:
    async def keeps(evictions: Evictions, *about: Any) -> None:
        leaving = set(evictions._leaving)
        await one(evictions, *about)
        evictions._leaving |= leaving

    return keeps


def half_of(native: bool) -> Make:
    def make(choose: Any) -> Any:
        def half(self: GangChoice, key: Any, gated: Any, reserved: Any) -> Choice | None:
            choice = choose(self, key, gated, reserved)
            if choice is None or len(choice.needed) < 2 or key.native is not native:
                return choice
            return Choice(choice.needed[:1], (), choice.at_least)

        return half

    return make


def let_past_at_once(put: Any) -> Any:
    def at_once(self: GatedPods, key: Any, members: Any) -> None:
        put(self, key, members)
        self.let_past([*self._waits_as.get(key, ())])

    return at_once


def lets_anybody_past(seen: Any) -> Any:
    def sees(self: QueueUsage, pod: Any) -> None:
        seen(self, pod)
        if pod.gates and not (pod.batch is not None and pod.batch.gate_managed):
            self.gated.on_admitted([pod])

    return sees


def full_as_unschedulable(_was: Any) -> Any:
    def full(self: FailureHandler, entry: Any, pod: Any, short: Any, *, started: float) -> None:
        self._failed(entry, pod, "Unschedulable", str(short), plugins={"NodeResourcesFit"}, started=started)

    return full


def forgetful(*, native_alone: bool) -> Make:
    def make(set_pod: Any) -> Any:
        def forgets(self: GatedPods, pod: Any) -> None:
            other = native_alone and (pod.group is None or not pod.group.native)
            if pod.gates or pod.uid in self or other:
                set_pod(self, pod)

        return forgets

    return make


def waits_for_one(wait_for: Any) -> Any:
    def for_one(self: QueueUsage, name: str, wanted: Any, first: Any) -> None:
        queue = self.queue_of(first)
        wait_for(self, name, {queue: wanted[queue]} if queue in wanted else wanted, first)

    return for_one


def full_gangs_say_nothing(refused: Any) -> Any:
    def of_others(self: KubeMessenger, pod: Any, reason: str, message: str, **more: Any) -> None:
        if reason != "QueueFull" or pod.group is None or not pod.group.native:
            refused(self, pod, reason, message, **more)

    return of_others


def quiet_of_gangs(tell: Any) -> Any:
    def quiet(self: FailureHandler, entry: Any, pod: Any, refusal: Any, **more: Any) -> Any:
        if pod.group is None or not pod.group.native:
            return tell(self, entry, pod, refusal, **more)
        return self._failed(entry, pod, "Waiting", "", plugins=refusal.plugins, started=more["started"])

    return quiet


def held_as_unschedulable(_was: Any) -> Any:
    def held(self: KubeMessenger, pods: Any, why: str) -> None:
        for each in pods:
            self.refused(each, "Unschedulable", why)

    return held


def no_device_comes_back(recount: Any) -> Any:
    def never_more(columns: Columns, row: int, placements: Any) -> None:
        before = columns.gpus.get(row, ())
        recount(columns, row, placements)
        if len(before) == len(columns.gpus.get(row, ())):
            columns.set_gpus(row, tuple(map(min, before, columns.gpus.get(row, ()))))

    return never_more


def names_no_device(begin: Any) -> Any:
    def without(binds: Binds, *about: Any) -> bool:
        binds._annotations = {}
        return begin(binds, *about)

    return without


def keeps_what_succeeded(kill_for: Any) -> Any:
    def keeps(job: Any, action: str) -> Any:
        kill = kill_for(job, action)
        return replace(kill, retain=ENDED) if kill is not None and action == RESTART_JOB else kill

    return keeps


def one_more(wanted: Any) -> Any:
    def more(job: Any) -> Any:
        pods = wanted(job)
        task, index = next(reversed(pods.values()))
        return pods | {f"{job.metadata.name}-{task.name}-{index + 1}": (task, index + 1)}

    return more


def back_to_running(next_phase: Any) -> Any:
    def back(job: Any, status: Any) -> str:
        now = next_phase(job, status)
        return RUNNING if now == COMPLETED and status.state.phase == COMPLETED else now

    return back


def the_first_of_each(make: Any) -> Any:
    async def few(self: Carrying, job: Any, missing: Any, *more: Any) -> bool:
        return await make(self, job, [each for each in missing if each[1] == 0], *more)

    return few


def none_runs(counted: Any) -> Any:
    return lambda status, pods: msgspec.structs.replace(counted(status, pods), running=0)


# -- the cases

#: Everything fits into every queue.
_ENDLESS_QUEUES = tuple(
    (f"engine.quotas.{place}", gives(None))
    for place in (
        *("book.QuotaBook.shortfall", "book.Headroom.shortfall"),
        *("capacity.CapacityAccounts.cannot_allocate", "proportion.ProportionAccounts.cannot_allocate"),
    )
)
_TRUE_OF_OTHERS = (
    "cluster.cluster.Cluster._counts_of_others",
    lambda was: lambda self, pod: bool(pod.gates) and was(self, pod),
)

CASES = [
    *(
        case(f"S25 {scenario} with any", f"{plugin} lets everything through", *lets_through(plugin))
        for plugin, scenario in (
            *(
                ("node_affinity.NodeAffinity", "constrained"),
                ("taint_toleration.TaintToleration", "constrained"),
            ),
            *(
                ("node_unschedulable.NodeUnschedulable", "constrained"),
                ("node_ports.NodePorts", "constrained"),
            ),
            ("pod_topology_spread.PodTopologySpread", "constrained"),
            ("inter_pod_affinity.InterPodAffinity", "constrained"),
            *(("node_volume_limits.NodeVolumeLimits", "claims"), ("volume_zone.VolumeZone", "claims")),
            ("volume_restrictions.VolumeRestrictions", "claims"),
        )
    ),
    quick("S25 tight with any", "no node is too full", *lets_through("node_resources_fit.NodeResourcesFit")),
    case(
        *("S25 burst with any", "a bind goes to another node than the reserved one"),
        (
            "binding.binder.Binder._sent_at_once",
            lambda was: lambda self, done, node: was(self, done, _next_of(self, node)),
        ),
        (
            "binding.binder.Binder._carry_out",
            lambda was: lambda self, done, node, sent: was(self, done, _next_of(self, node), sent),
        ),
    ),
    # What it leads to shows in other worlds before.
    quick(
        *("S26 constrained with any", "a change of a node is not taken in"),
        ("cluster.cluster.Cluster.set_node", the_first_alone),
    ),
    quick(
        *("S1 S6 S7 S25 tight with any", "a pod is bound behind its gate"),
        ("engine.decide.decide._passes", gives(True)),
    ),
    case(
        *("S17 devices with any", "counters of devices are not added up"),
        ("engine.dra.pools.Pool.counters_used", last_alone),
    ),
    quick(
        *("S18 devices with not_attached", "a pod is bound before its devices are ready"),
        ("binding.device_waits.DeviceWaits.wait", gives_later("")),
    ),
    case(
        *("L1 L10 devices with not_attached from 25", "a device that failed is kept"),
        ("engine.dra.catalogue.Devices.binding_failed", gives(False)),
        ("binding.claim_writer.ClaimWriter.take_back", gives_later(None)),
    ),
    case(
        *("S L replicas with rolled_back from 6", "what was undone with the store counts"),
        ("kube.reflector.version_of", gives_later("")),
        ("kube.lease.is_older", gives(False)),
    ),
    case(
        *("L1 L13 churn with rotated", "files are never read again"),
        ("kube.tls.Tls._look", gives(None)),
    ),
    quick(
        *(
            "L14 replicas with unlistable, crash from 6: decides nothing",
            "a leader waits for a list that it may not have",
        ),
        ("cluster.informers.OTHERS_PATIENCE", lambda _was: 1e9),
    ),
    # Gangs and sessions.
    quick(
        *("S27 batch: members", "a gang is bound bit by bit"),
        ("engine.session.plugins.gang._ready", gives(True)),
        ("engine.session.plugins.gang._is_ready", gives(True)),
        ("engine.session.session.Session.bind", with_no_minimum),
    ),
    quick("S28 batch from 1: has", "a queue is above its capability", *_ENDLESS_QUEUES),
    case("S28 mixed-batch from 26: has", "a queue of both schedulers is too", *_ENDLESS_QUEUES),
    quick(
        *("S29 batch", "a trial is not taken back"),
        ("engine.decide.trial.Trial.rollback", leaves_the_first),
    ),
    quick(
        *("S30 batch from 32: of higher priority", "pods are evicted for equals"),
        ("engine.session.plugins.priority._preemptable", no_lesser),
    ),
    case(
        *("S30 batch: leaves", "a gang loses some of its minimum"),
        ("engine.session.victims._Spare.take", gives(True)),
        ("engine.session.plugins.gang._protected", lambda _was: lambda _preemptor, tasks: tasks),
    ),
    quick(
        *("S31 batch", "a group is sent back from its queue"),
        ("engine.session.close._phase", back_to_pending),
    ),
    quick(
        *("L16 batch", "no session is due"),
        ("batch.waiting.WaitingPods.group_changed", gives(None)),
        ("batch.waiting.WaitingPods.move_all", gives(0)),
    ),
    case(
        *("L16 batch with denied, failed from 15", "victims are never forgotten"),
        ("batch.committing.Evictions._one", keeps_victims),
    ),
    # Gates of queues.
    quick(
        *("S32 gates: whose gang has", "half a gang is let past"),
        ("cluster.gang_choice.GangChoice.__call__", half_of(False)),
    ),
    case(
        *("S32 gates-native: whose gang has", "half a gang of Kubernetes' own is let past"),
        ("cluster.gang_choice.GangChoice.__call__", half_of(True)),
    ),
    case(
        *("S32 gates: would have", "pods are let past into a full queue"),
        ("engine.state.gatedpods.GatedPods._put", let_past_at_once),
    ),
    case(
        *("S32 gates with webhook_lies: asks: False", "a gate goes of a pod that did not ask"),
        ("engine.state.queueusage.QueueUsage.seen", lets_anybody_past),
    ),
    quick(
        *("S33 gates: says Unschedulable", "a full queue asks for nodes"),
        ("binding.failure.FailureHandler.queue_full", full_as_unschedulable),
        ("engine.session.written._held_by_queue", gives({})),
    ),
    case(
        *(
            "L17 gates with any from 5003273: lies in above-1",
            "pods ask for nodes while a queue has lost its parent",
        ),
        ("engine.session.written._asking_queues", gives([])),
    ),
    quick(
        *("S34 gates with webhook_down, crash: keeps no room", "a reservation is forgotten at a restart"),
        ("engine.state.gatedpods.GatedPods.set", forgetful(native_alone=False)),
    ),
    quick(
        *("L17 gates: behind", "gates are left"),
        ("binding.queue_admission.QueueAdmission._remove", gives_later(None)),
    ),
    case(
        *("L17 gates with webhook_down from 11: nodes to come", "pods wait for one another's reservations"),
        ("engine.quotas.book._covers", gives(False)),
    ),
    case(
        *("L17 gates: to come", "no node comes"),
        ("embedded_kubernetes.autoscaler.Autoscaler._scale_up", gives(None)),
    ),
    case(
        *("S32 gates-native from 42: would have", "a gang asks one of its queues alone"),
        ("engine.state.queueusage.QueueUsage.wait_for", waits_for_one),
    ),
    case(
        *(
            "S33 gates-native with any from 115: and of its gang queue",
            "a gang of the fast path is not asked as a whole",
        ),
        ("engine.state.queueusage.QueueUsage.gang_full", gives(None)),
    ),
    case(
        *(
            "L17 gates-native with queue_changed from 76: has no room for its gang",
            "words of a gang are left that are not true any longer",
        ),
        ("binding.messenger.KubeMessenger.refused", full_gangs_say_nothing),
    ),
    case(
        *("L17 gates-native: of scheduling.k8s.io/", "gates are left on a gang of Kubernetes' own"),
        (
            "cluster.gang_choice.GangChoice._group",
            lambda was: lambda self, key, gated: None if key.native else was(self, key, gated),
        ),
    ),
    case(
        *("L17 gates-native from 15: of scheduling.k8s.io/", "no node comes for a gang of Kubernetes' own"),
        ("binding.failure.FailureHandler.unschedulable", quiet_of_gangs),
    ),
    case(
        *(
            "S27 gates-native: binds a member of scheduling.k8s.io/",
            "part of a gang of Kubernetes' own is bound",
        ),
        (
            "binding.binder.Binder.commit_group",
            lambda was: lambda self, members, _least, admission: was(self, members, 0, admission),
        ),
        (
            "fastpath.gangs.is_feasible",
            lambda _was: (
                lambda tried: (
                    any(each.node_name for each in tried) and not any(each.attempt for each in tried)
                )
            ),
        ),
    ),
    case(
        *(
            "S34 gates-native with webhook_down, crash: keeps no room",
            "a reservation of a gang of Kubernetes' own is forgotten",
        ),
        ("engine.state.gatedpods.GatedPods.set", forgetful(native_alone=True)),
    ),
    case(
        *("S34 gates-native from 4: given its room back", "room that is given back still counts"),
        ("engine.state.queueusage.QueueUsage.unreserve", gives(None)),
    ),
    case(
        *("S L gates-native", "groups of either kind are taken for one another"),
        (
            "engine.state.batchinfo.GroupKey.text",
            lambda _was: property(lambda self: f"{self.namespace}/{self.name}"),
        ),
    ),
    # Gates, nodes and queues that two processes share.
    case(
        *(
            "S32 gates-shards from 3: has no batch scheduler",
            "a process without a batch scheduler removes gates",
        ),
        ("fastpath.settings._removes_gates", gives(True)),
    ),
    case(
        *("S32 gates-shards: removes a gate while", "gates go by a process that does not hold the lease"),
        ("process.runtime.gates_turn", lambda _was: lambda *_, **__: Always()),
    ),
    case(
        *("S34 gates-shards: agent-fast", "one process gives away what the other has reserved"),
        _TRUE_OF_OTHERS,
    ),
    # By what the queues hold in the end, it is seen as well.
    case(
        *(
            "S32 gates-shards from 11: takes the gate of",
            "one process gives away what the other has reserved, and nobody looks",
        ),
        _TRUE_OF_OTHERS,
        ("tests.sim.gate_safety.GateSafety.look_inside", gives(None)),
        ("tests.sim.gate_safety.GateSafety._refuses", gives("")),
    ),
    case(
        *(
            "S34 gates-shards with pod_deleted, webhook_down: waits no more",
            "room is kept for another process's pod that is gone",
        ),
        (
            "engine.state.queueusage.QueueUsage.left",
            lambda was: lambda self, uid: None if uid in self.gated.reserved else was(self, uid),
        ),
    ),
    case(
        *(
            "S28 gates-shards with webhook_down from 18: room, and queue",
            "the fast process fills a queue beyond its limits",
        ),
        ("engine.state.queueusage.QueueUsage.full", gives(None)),
        ("engine.state.queueusage.QueueUsage.admit", gives("")),
    ),
    *(
        case(
            *("S33 gates-shards: would do", f"of nodes outside of a shard is said {answer!r}"),
            ("fastpath.outside.OutsideShard.full", gives(answer)),
        )
        for answer in ("", "is full")
    ),
    case(
        *(
            "S33 gates-shards: outside would do: None",
            "a pod of a full shard wants a node where others have room",
        ),
        ("binding.failure.FailureHandler.shard_full", gives("")),
    ),
    quick(
        *(
            "L18 gates-shards from 5: say that nodes are missing",
            "a gang of a full shard wants nodes where others have room",
        ),
        ("engine.session.written._held_by_shard", gives({})),
    ),
    # The other nodes are gone, and no new one comes.
    case(
        *("L17 gates-shards from 13: fits on a node to come", "words of full shards are not looked at again"),
        ("fastpath.outside.OutsideShard._look", gives_later(None)),
    ),
    case(
        *("S33 gates-shards: says Unschedulable", "a pod behind its gate says Unschedulable"),
        ("binding.messenger.KubeMessenger.held", held_as_unschedulable),
    ),
    # GPUs that pods share.
    quick("S39 gpus from 1: reserves", "every GPU has room", *lets_through("gpu_share.GPUShare")),
    case(
        "S39 gpus-batch from 11: reserves",
        "every GPU has room for a gang",
        *lets_through("gpu_share.GPUShare"),
    ),
    quick(
        *("S7 gpus with any", "devices are not given back"),
        ("engine.state.columns.Columns.recount_gpus", no_device_comes_back),
    ),
    case(
        *("S39 gpus: with the devices ()", "no binding names devices"),
        ("kube.bind.Binds.send_bind", names_no_device),
    ),
    quick(
        *("S38 gpus: gave more of a device", "all pods have one device"),
        ("engine.state.ledger.text_of", gives("0")),
    ),
    case(
        *("S39 gpus with crash, pod_deleted: reserves the devices", "devices are forgotten with a restart"),
        ("engine.state.podinfo.indices_in", gives(())),
    ),
    quick(
        *("L20 gpus with bound_elsewhere, denied: it names ()", "only the scheduler gives a pod its devices"),
        (
            "engine.state.ledger.Ledger._regive",
            lambda was: lambda self, at, gpus: bool(gpus) and was(self, at, gpus),
        ),
    ),
    case(
        *("S39 S25 L20 L13 gpus with gpu_taken, crash from 7", "devices of others are not counted"),
        ("engine.state.podinfo.indices_in", lambda was: lambda text: was(text)[:1]),
    ),
    # Jobs.
    quick(
        *("S35 jobs: before its turn", "a stage begins before its turn"),
        ("controllers.jobs.carrying.waiting_tasks", gives({})),
    ),
    # Though the judge asks what the controller knew.
    case(
        *(
            "S35 jobs with lagging, job_changed: begins before its turn",
            "a stage begins with pods that are not ready",
        ),
        (
            "controllers.jobs.depends.is_ready",
            lambda _was: lambda pod: pod.metadata.deletion_timestamp is None,
        ),
    ),
    # What has succeeded counts when a Job is resumed, and when it is restarted it does not.
    case(
        *(
            "S35 jobs with pod_failed from 23: begins before its turn",
            "a stage begins with pods of before a restart",
        ),
        ("controllers.jobs.controller.kill_for", keeps_what_succeeded),
    ),
    quick(
        *("S36 jobs: is one of", "a Job has one pod too many"),
        ("controllers.jobs.carrying.wanted_pods", one_more),
    ),
    quick(
        *("S37 jobs: from Completed to Running", "a phase goes where it does not lead"),
        ("controllers.jobs.carrying.next_phase", back_to_running),
    ),
    case(
        *("S37 jobs with pod_failed from 4: is tried again for the", "a Job is tried for ever"),
        ("controllers.jobs.states.max_retry", gives(100)),
    ),
    quick(
        *("L19 jobs: lacks", "pods are not made again"),
        ("controllers.jobs.carrying.Carrying._make_pods", the_first_of_each),
    ),
    case(
        *("L19 jobs: says 0 running", "numbers are not counted"),
        ("controllers.jobs.carrying.counted", none_runs),
    ),
    case(
        *("L19 jobs from 9: was to go", "Jobs stay when their time is over"),
        ("controllers.jobs.controller.JobController._expire", gives_later(True)),
    ),
    case(
        *("L19 jobs with job_commanded: command", "no command is carried out"),
        ("controllers.jobs.controller.JobController._next_command", gives(None)),
    ),
    case(
        *(
            "L5 jobs with any from 4004692: binds are in flight",
            "pods stand by with room that their first stage lacks",
        ),
        (
            "engine.session.tiers.Tiers.in_pending_order",
            lambda _was: lambda self, _job, tasks: self.in_task_order(tasks),
        ),
        ("engine.session.plugins.gang._somebody_runs", gives(True)),
        ("cluster.standing_by.StandingBy.left_alone", gives(None)),
    ),
]


@pytest.mark.parametrize("broken", CASES)
def test_a_judge_sees_that(monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    for place, make in broken.places:
        whole = place if place.startswith(("embedded_kubernetes.", "tests.")) else f"agent_scheduler.{place}"
        owner, _, name = whole.rpartition(".")
        monkeypatch.setattr(whole, make(getattr(resolve_name(owner), name)))
    head, drawn = broken.head, broken.head["faults"]
    faults = None if drawn == "any" else tuple((drawn or "").replace(",", " ").split())
    codes = tuple(f"{code}:" if code[1:] else code for code in head["promises"].split())
    violation = found(head["scenario"], codes, faults=faults, first=int(head["first"] or 0))
    assert violation and (head["says"] or "") in violation


#: Worlds without faults, or with those that lead to the moments at which most can go wrong.
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


@pytest.mark.promise("L5", "L19")
def test_pods_may_stand_by_with_room_for_as_long_as_others_run_before_them() -> None:
    world = World(Options(seed=3, scenario="jobs", faults=()))
    world.shape.pods.clear()
    tasks = [
        # Some of these run for ever, and the others fit nowhere.
        _task("a", 10 * len(world.shape.nodes), cpu=900),
        _task("b", 1, cpu=50, dependsOn={"name": ["a"], "iteration": "all"}),
    ]
    job = {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": "j", "annotations": {DEPENDS_ON_GANG: "reserve"}},
        "spec": {"schedulerName": "volcano", "queue": "default", "minAvailable": 1, "tasks": tasks},
    }
    world.shape.acts[:] = [each for each in world.shape.acts if "/jobs" not in each[2]]
    world.shape.acts.append((2.0, "POST", JOBS_PATH, job))
    verdict = world.run()
    assert verdict.violations == []
    assert verdict.states["pod stands by at rest"]
