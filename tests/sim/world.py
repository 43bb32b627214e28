"""One world: an API, kubelets, schedulers, a load and a plan of faults, from one seed to one verdict."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog

from agent_scheduler.config.namespace import FALLBACK
from embedded_kubernetes import controllers, kubelet
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.disruption import Budgets
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.pacing import CollectorTurns
from embedded_kubernetes.requests import Request, Response
from embedded_kubernetes.store import Store, random_uids
from embedded_kubernetes.volume_binding import VolumeBinding
from kube_client.testing.loop import START, Deadlock, SimLoop

from .allocations import Allocations
from .api import MERGE, PODS_PATH
from .backups import Backups
from .configuring import File, ask_for_more
from .device_cluster import DeviceCluster, DeviceNemesis
from .evictions import Evictions
from .faults import FAMILIES, FaultMaker, Plan, draw
from .gang_safety import GangSafety
from .gangs import GangCluster, GangNemesis, JobNemesis
from .gate_cluster import GateCluster
from .gate_safety import GateSafety
from .gpus import GpuNemesis, GpuSafety
from .hostile import HostileTenants, drawn_hostility
from .job_judges import JobSafety
from .judge import Judge
from .legality import Legality
from .liveness import come_to_rest, nothing_left
from .nemesis import Nemesis
from .new_nodes import NewNodes
from .processes import Controller, GangController, Process, Scheduler
from .safety import Safety
from .scenarios import DRAWN, SCENARIOS, Shape
from .shard_map import PlanMap, ShardMap
from .shard_nemesis import PlanNemesis, ShardNemesis
from .shard_safety import PlanSafety, ShardSafety
from .states import States, Trace
from .steps import MOST, StepMeter, is_measured
from .wire import Certificates

#: The time of day at which every world begins.
_MORNING = datetime(2026, 1, 1, tzinfo=UTC)
#: Seconds in which faults happen, and the probability of one at each draw.
_FAULTS_FOR = (5.0, 15.0, 30.0)
_RATES = (0.01, 0.03, 0.1, 0.25)
#: The same if nodes are shared: there a dead process is noticed only after a quarter of a minute, when its lease ends.
_SHARED_FAULTS_FOR = (20.0, 40.0, 80.0)
_SHARED_RATES = (0.002, 0.005, 0.02, 0.05)
#: Share of worlds whose processes speak HTTP.
_WIRED = 0.2
#: Maximum life of a world in its own seconds.
_LIFE = 20_000.0
#: Maximum seconds of one turn of the loop.
_TURN, _BUSY_TURN = 0.0002, 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a world; others are drawn from the seed. `pods` and `nodes` limit their numbers."""

    seed: int
    scenario: str = ""
    faults: tuple[str, ...] | None = None
    pods: int | None = None
    nodes: int | None = None
    #: How sessions are configured, one of `SET_UPS`.
    set_up: str = ""
    keep_trace: bool = False

    @property
    def wired(self) -> bool:
        """Whether processes speak HTTP."""
        drawn = random.Random(f"{self.seed} wire").random() < _WIRED
        return drawn or any(name in FAMILIES["wired"][1] for name in self.faults or ())

    def command(self) -> str:
        parts = [f"python -m tests.sim --seed {self.seed}"]
        if self.scenario:
            parts.append(f"--scenario {self.scenario}")
        if self.set_up:
            parts.append(f"--set-up {self.set_up}")
        if self.faults is not None:
            parts += [f"--fault {name}" for name in self.faults] or ["--no-faults"]
        if self.pods is not None:
            parts.append(f"--pods {self.pods}")
        if self.nodes is not None:
            parts.append(f"--nodes {self.nodes}")
        return " ".join([*parts, "--trace"])


@dataclass(slots=True)
class Verdict:
    """The result of a world. `violations` is empty if all was well."""

    options: Options
    scenario: str
    faults: tuple[str, ...]
    digest: str
    violations: list[str]
    fired: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    pods: int = 0
    nodes: int = 0
    seconds: float = 0.0


#: Events of the log about errors that concern one object.
_CAUGHT: Final = ("call failed", "cycle failed", "object not handled", "session failed", "work failed")


class World:
    """Owner of everything in one run. Created and run once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.seed = options.seed
        self.rng = random.Random(f"{options.seed} world")
        rng = random.Random(f"{options.seed} shape")
        self.scenario = options.scenario or rng.choice(sorted(DRAWN))
        self.shape: Shape = SCENARIOS[self.scenario](random.Random(f"{options.seed} {self.scenario}"))
        self.shape.configure(options.seed, options.set_up)
        #: Whether processes speak HTTP, on connections in memory.
        self.wired = options.wired
        shape = self.shape
        families = {
            "wired": self.wired,
            "shards": shape.shards,
            "gangs": shape.gangs,
            "gates": shape.gates,
            # With edited plans a scheduler may have no nodes permanently, and its pods cause none.
            "plans": shape.plans and not shape.gates,
            "jobs": shape.jobs,
            "gpus": shape.gpus,
        }
        present = [name for name, there in families.items() if there]
        faults = random.Random(f"{options.seed} faults")
        names = draw(faults, only=options.faults or (), likely=shape.likely, families=present)
        if options.faults == ():
            names = []
        plan_rng = random.Random(f"{options.seed} plan")
        times, rates = _FAULTS_FOR, _RATES
        if shape.shards is not None:
            times, rates = _SHARED_FAULTS_FOR, _SHARED_RATES
        self.plan = Plan(plan_rng, names, ends=START + plan_rng.choice(times), rates=rates)
        unfair = 0.3 if self.plan.enabled("unfair") else 0.0
        if unfair:
            self.plan.fired["unfair"] += 1
        # If the order is unfair, the machine is busy, too.
        self.loop = SimLoop(options.seed, unfair=unfair, turn=_BUSY_TURN if unfair else _TURN)
        self.context = copy_context()
        self.trace = Trace(self.loop.time, keep=options.keep_trace)
        self.states = States()
        self.file = File(self.shape)
        if self.plan.enabled("reload"):
            ask_for_more(self.shape, random.Random(f"{options.seed} reload"))
        uids = random_uids(random.Random(f"{options.seed} uids").getrandbits)
        self.store = Store(clock=self._clock, uid=uids)
        native = self.shape.gangs is not None and self.shape.gangs.native
        self.api = Api(self.store, (*BUILTIN, *ALPHA) if native else BUILTIN)
        self.kubelets = kubelet.Kubelets(self.store, stop_seconds=self.shape.stop_seconds)
        self.volumes = VolumeBinding(self.api)
        self.budgets = Budgets(self.api.registry)
        self.backups = Backups(self)
        self.certificates = Certificates(self) if self.wired else None
        self.evictions = Evictions(self)
        self.legality = Legality(self)
        self.safety = Safety(self)
        self.nemesis = Nemesis(self)
        # Each of these exists if the shape has its part. Requests depend on whether there are gates.
        self.gates: GateCluster | None = None
        self.devices = DeviceCluster(self, shape.devices) if shape.devices else None
        self.device_nemesis = DeviceNemesis(self, self.devices) if self.devices else None
        self.allocations = Allocations(self, self.devices.reading) if self.devices else None
        self.shards = ShardMap(self, shape.shards) if shape.shards else None
        self.shard_safety = ShardSafety(self, self.shards) if self.shards else None
        self.plans = PlanMap(self, self.shards, shape.plans) if self.shards and shape.plans else None
        self.plan_safety = PlanSafety(self, self.plans) if self.plans else None
        self.shard_nemesis = PlanNemesis(self, self.plans) if self.plans else None
        if self.shards and not self.plans:
            self.shard_nemesis = ShardNemesis(self, self.shards)
        self.gangs = GangCluster(self, shape.gangs) if shape.gangs else None
        self.gang_safety = GangSafety(self, self.gangs) if self.gangs else None
        self.gang_nemesis = GangNemesis(self, self.gangs) if self.gangs else None
        self.gates = GateCluster(self, shape.gates) if self.gangs and shape.gates else None
        self.gate_safety: GateSafety | None = None
        if self.gang_safety and self.gates:
            self.gate_safety = GateSafety(self, self.gang_safety, self.gates)
        hostility = shape.hostility or drawn_hostility(options.seed)
        self.hostile = HostileTenants(self, hostility) if hostility else None
        self._collecting: CollectorTurns | None = None
        self.job_safety = JobSafety(self) if shape.jobs and self.gangs else None
        self.job_nemesis = JobNemesis(self, self.gangs) if shape.jobs and self.gangs else None
        self.gpu_safety = GpuSafety(self) if shape.gpus else None
        self.gpu_nemesis = GpuNemesis(self, self.gpu_safety) if self.gpu_safety else None
        gang_nemeses = self.gang_nemesis, self.job_nemesis, self.gpu_nemesis
        judges = self.evictions, self.legality, self.allocations, self.shard_safety, self.plan_safety
        #: Judges the nodes that an autoscaler adds.
        self.new_nodes = NewNodes(self, self.gates) if self.gates else None
        gang_judges = self.gang_safety, self.gate_safety, self.gpu_safety, self.job_safety, self.new_nodes
        #: The fault makers in addition to `nemesis`, and the judges in addition to `safety`, in this order.
        nemeses = filter(None, (self.device_nemesis, self.shard_nemesis, *gang_nemeses))
        self.nemeses: list[FaultMaker] = list(nemeses)
        self.judges: list[Judge] = list(filter(None, (*judges, *gang_judges)))
        #: When the API server is available again, and until when which kinds cannot be listed.
        self.server_back = 0.0
        self.unlistable: dict[str, float] = {}
        #: Paths of statuses whose last write was rejected. It is repeated when the pod is tried again.
        self.rejected_statuses: set[str] = set()
        #: (Time, version) of commits, from which a lagging replica's state follows.
        self._commits: list[tuple[float, int]] = [(0.0, 1)]
        for table in self.store.tables.values():
            table.subscribers.append(lambda event: self._commits.append((self.loop.time(), event.rv)))
        #: Tasks that act for a while beside everything else, until they are done.
        self._acting: set[asyncio.Task[None]] = set()
        self.processes: list[Process] = []
        #: Requests of all processes so far, including watches, without leases.
        self.requests = 0
        #: Those of them that write: by which process, how and where.
        self.writes: list[str] = []
        self._stops: Counter[str] = Counter()

    def time_of_day(self, off: float = 0.0) -> datetime:
        """Return the time of day, off by this number of seconds, as a process's clock may be."""
        return _MORNING + timedelta(seconds=self.loop.time() - START + off)

    def timestamp(self, off: float = 0.0) -> str:
        return self.time_of_day(off).strftime("%Y-%m-%dT%H:%M:%SZ")

    def drop_streams(self) -> None:
        """End all watches of all processes now, without an error."""
        for process in self.processes:
            if process.transport is not None:
                process.transport.drop_streams()

    def stop(self, process: Process, seconds: float) -> None:
        """Send SIGSTOP for a while."""
        self.trace(process.name, f"stands still for {seconds:g} s")
        self.plan.lasts(self.loop.time() + seconds)
        self._stops[process.name] += int(seconds) + 1
        if seconds > 15 and process.elects:
            self.states.reached("stopped for longer than a lease")
        self.loop.freeze(process.name, seconds)

    def stopped_for(self, name: str) -> float:
        """Return the maximum seconds for which a process has been stopped."""
        return self._stops[name]

    def version_at(self, time: float) -> int:
        """Return the store's version at that time."""
        return self._commits[max(0, bisect_right(self._commits, (time, sys.maxsize)) - 1)][1]

    def went_back(self) -> None:
        """Handle a restore: judges reset what depends on history, and requests in flight are lost."""
        self._commits = [(0.0, self.store.rv)]
        self.safety.went_back()
        for judge in self.judges:
            judge.went_back()
        if self.gates is not None:
            self.gates.went_back()
        for process in self.processes:
            if process.transport is not None:
                process.transport.went_back()

    @property
    def plan_writes(self) -> int:
        """Number of committed writes of shards by their controller."""
        return 0 if self.plan_safety is None else self.plan_safety.writes

    def call(self, method: str, path: str, body: Any = None, *, admitted: bool = False) -> Response:
        """Send a request of a client whose requests never fail. `admitted`: the webhook is not called."""
        if self.gates is not None and not admitted and method == "POST" and path.endswith("/pods"):
            body = self.gates.admitted(body)
        content_type = MERGE if method == "PATCH" else "application/json"
        data = b"" if body is None else json.dumps(body).encode()
        asked = Request(method, path, body=data, content_type=content_type if body is not None else "")
        result = self.api.handle(asked)
        assert isinstance(result, Response)
        return result

    def keep(self, act: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task beside everything else."""
        task = self.loop.create_task(act, name=name)
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    def control(self, controller: Any, name: str) -> asyncio.Task[None]:
        """Run one of the cluster's own controllers."""
        return self.loop.create_task(controllers.run(controller, clock=self._clock), name=name)

    def _begin(self, process: Process) -> None:
        self.processes.append(process)
        process.begin()

    # -- the run

    def _hear_caught(self, _logger: Any, _name: str, event: Any) -> Any:
        """Judge errors that the program catches because they concern one object: here each of them is a fault."""
        if event.get("event") in _CAUGHT:
            self.safety.violated("L4", f"an error is caught: {event['event']}: {event.get('problem') or event}")
        raise structlog.DropEvent

    def run(self) -> Verdict:
        """Run from the first node to the last task. Never raises for what the scheduler does."""
        before = structlog.get_config()
        # Failures are intended here and are in the trace; the logs of hundreds of worlds are not needed.
        quiet = structlog.make_filtering_bound_logger(logging.ERROR)
        structlog.configure(wrapper_class=quiet, processors=[self._hear_caught])
        logging.disable(logging.CRITICAL)
        thresholds = gc.get_threshold()
        # A world creates few cycles and many objects: Python's default thresholds cost a tenth of the time.
        gc.set_threshold(50_000, 20, 20)
        meter = StepMeter()
        try:
            hostile = self.hostile is not None
            with meter.measuring() if is_measured(self.seed, hostile=hostile) else nullcontext():
                self.loop.run_until_complete(self._live())
            if meter.longest:
                self.safety.look("S40")
            if meter.longest > MOST:
                self.safety.violated(
                    "S40", f"a step makes {meter.longest} calls, the last of {meter.last}; allowed: {MOST}"
                )
        except Exception as error:
            self.safety.violated("L4", f"{type(error).__name__}: {error}")
        finally:
            self._clear_away()
            logging.disable(logging.NOTSET)
            structlog.configure(**before)
            gc.set_threshold(*thresholds)
        return self._verdict()

    def _played(self, task: asyncio.Task[Any]) -> None:
        """Handle the end of a task of the cluster: a world in which that fails has no verdict about the processes."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.safety.violated("L4", f"{task.get_name()} failed: {type(error).__name__}: {error}")

    def _clock(self) -> float:
        return self.time_of_day().timestamp()

    async def _live(self) -> None:
        background = self.devices.start() if self.devices is not None else []
        for body in self.shape.nodes[: self.options.nodes]:
            self.call("POST", "/api/v1/nodes", body)
        if self.shape.shipped:
            # The manifests create the namespace of the lease.
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": FALLBACK}})
        background += [
            self.loop.create_task(kubelet.run(self.kubelets, clock=self._clock), name="kubelets"),
            *(self.control(self.volumes, "volumes"), self.control(self.budgets, "budgets")),
            self.loop.create_task(self._load(), name="load"),
            self.loop.create_task(self.nemesis.run(), name="nemesis"),
        ]
        if self.gates is not None:
            background.insert(0, self.control(self.gates.autoscaler, "autoscaler"))
            background.insert(0, self.control(self.gates.collector, "pod collector"))
        if self.shards is not None and self.shape.shards is not None:
            self.plan.lasts(START + self.shape.shards.kind_after)
            self.loop.call_later(self.shape.shards.kind_after, self.shards.install)
        if self.gangs is not None:
            self.gangs.install()
        if self.job_safety is not None:
            # Objects that belong to a Job are deleted with it.
            self._collecting = CollectorTurns(self.api.collector, self.loop)
        for scheduler in self.shape.schedulers:
            for number in range(self.shape.replicas):
                name = f"replica-{number}" if self.shards is None else f"{scheduler}.{number}"
                self._begin(Scheduler(self, name, scheduler))
        if self.plans is not None:
            self.plans.install()
            for number in range(self.plans.plans.replicas):
                self._begin(Controller(self, f"controllers.{number}", self.plans.plans))
        elif self.gangs is not None:
            for number in range(self.gangs.shape.controllers):
                self._begin(GangController(self, f"keepers.{number}"))
        for task in background:
            task.add_done_callback(self._played)
        load, nemesis = background[-2:]
        hostile = [] if self.hostile is None else [self.loop.create_task(self.hostile.run(), name="hostile tenants")]
        ending = self.loop.create_task(self._until_violated(), name="watching for violations")
        rest = self.loop.create_task(self._rest(load, nemesis, *hostile), name="coming to rest")
        await asyncio.wait({ending, rest}, return_when=asyncio.FIRST_COMPLETED)
        if rest.done():
            rest.result()
        for task in (ending, rest):
            task.cancel()
        if not self.safety.violations:
            for process in self.processes:
                await process.end()
            if self.devices is not None:
                self.devices.stop()
            if self._collecting is not None:
                self._collecting.stop()
            for task in background:
                task.cancel()
            await asyncio.wait({*background, ending, rest})
            current = asyncio.current_task()
            assert current is not None
            nothing_left(self, current)

    async def _until_violated(self) -> None:
        while not self.safety.violations and self.loop.time() < START + _LIFE:  # noqa: ASYNC110 - nor by whom
            await asyncio.sleep(0.05 if self.loop.time() < self.plan.ends else 1.0)

    async def _rest(self, *acting: asyncio.Task[None]) -> None:
        """Wait for those who act, and observe the rest."""
        await asyncio.wait(set(acting))
        for task in acting:
            task.result()
        # The end may have been delayed meanwhile.
        while (left := self.plan.calm_at - self.loop.time()) >= 0:  # noqa: ASYNC110 - time itself is awaited
            await asyncio.sleep(left + 0.001)
        self.trace("", "the faults are over")
        self.safety.look_inside()
        await come_to_rest(self)

    async def _load(self) -> None:
        """Create the pods and send the other requests of users, each at its time."""
        pods = sorted(self.shape.pods, key=lambda each: each[0])[: self.options.pods]
        create: Callable[[Any], object] = partial(self.call, "POST", PODS_PATH)
        if self.gates is not None:
            create = self.gates.create
        todo: list[tuple[float, Callable[[], object]]] = [(at, partial(create, body)) for at, body in pods]
        for at, method, path, body in self.shape.acts:
            todo.append((at, partial(self.call, method, path, body or {})))
        if self.devices is not None and self.shape.devices is not None:
            copies = self.shape.devices.copies if self.options.pods is None else []
            todo += [(at, partial(self.devices.copy, name)) for at, name in copies]
        for at, act in sorted(todo, key=lambda each: each[0]):
            await asyncio.sleep(max(0.0, START + at - self.loop.time()))
            act()

    def _clear_away(self) -> None:
        """Cancel tasks that are left after a violation, and drop their errors."""
        self.loop.set_exception_handler(lambda _loop, _context: None)

        async def end() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=300)

        with suppress(Deadlock):
            self.loop.run_until_complete(end())
        self.loop.close()
        if self.certificates is not None:
            self.certificates.close()

    def _verdict(self) -> Verdict:
        return Verdict(
            options=self.options,
            scenario=self.scenario,
            faults=tuple(self.plan.rates),
            digest=self.trace.digest,
            violations=self.safety.violations,
            fired=self.plan.fired,
            states=self.states.seen,
            checked=self.safety.checked,
            trace=self.trace.lines or [],
            pods=len(self.shape.pods[: self.options.pods]),
            nodes=len(self.shape.nodes[: self.options.nodes]),
            seconds=self.loop.time() - START,
        )


def run(options: Options) -> Verdict:
    """Play one world, and return its verdict."""
    return World(options).run()


def shrink(verdict: Verdict, *, attempts: int = 60) -> Verdict:
    """Return a smaller world that fails in the same way: with fewer faults, pods and nodes."""
    best = verdict
    kind = verdict.violations[0].partition(":")[0]

    def fails(options: Options) -> Verdict | None:
        tried = run(options)
        return tried if tried.violations and tried.violations[0].partition(":")[0] == kind else None

    def candidates(found: Verdict) -> list[Options]:
        changes: list[dict[str, Any]] = []
        faults, half = found.faults, len(found.faults) // 2
        if half:
            changes += [{"faults": faults[:half]}, {"faults": faults[half:]}]
        if found.pods > 1:
            changes += [{"pods": max(1, found.pods * part // 4)} for part in (1, 2, 3)]
        if found.nodes > 1:
            changes.append({"nodes": max(1, found.nodes // 2)})
        changes += [{"faults": tuple(other for other in faults if other != name)} for name in faults]
        settled = replace(found.options, scenario=found.scenario, faults=faults, keep_trace=False)
        return [replace(settled, **each) for each in changes]

    left = iter(candidates(best))
    while attempts > 0 and (options := next(left, None)) is not None:
        attempts -= 1
        if (found := fails(options)) is not None:
            best = found
            left = iter(candidates(best))
    return best
