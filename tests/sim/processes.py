"""A process as its supervisor sees it: it is started, killed, terminated, and started again.

The shipped program runs as a whole, on a simulated network and clock: `SchedulerProcess` for a scheduler. A killed
process sends nothing more, not even while its tasks unwind; what it sent before is with the server.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from typing import Any

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.engine.queueing.waking import PORTION
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.process import controller_flags
from agent_scheduler.process.controller_flags import JOB, LEASE, PODGROUP, QUEUE, SHARDING
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.process.scheduler import SchedulerParts, SchedulerProcess
from kube_client.retry import Timing
from kube_client.testing.loop import PROCESS, START
from kube_client.transport import Transport

from .configuring import names_of
from .gang_load import NAME as BATCH_NAME
from .kinds import World
from .nemesis import LIST_TIMEOUT, VITAL
from .network import SimTransport
from .rules import Rules, rules_of
from .shard_load import FENCE, LEASE_NAMESPACE, Plans, flags_of, settings_of
from .shard_safety import is_version_asked
from .states import samples
from .wire import Wire

#: Seconds of grace without a configuration, and what an orderly end may need in addition: releasing the lease may wait
#: for its response until the lease's request times out, and canceled tasks take a moment to end.
GRACE = 10.0
_BEYOND_GRACE = 5.0 + 1.0


class _Scheduler(SchedulerProcess):
    """Checks pods for events in portions that are small enough to be used in small worlds, too."""

    portion: int

    def _assemble(self, stack: AsyncExitStack) -> SchedulerParts:
        parts = super()._assemble(stack)
        parts.fast_path.queue.waker.portion = self.portion
        return parts


class Process(ABC):
    """One replica's pod, whose program is started and ends.

    `identity` is that of the current program, and `leases` are the namespaces and names of those that it must hold to
    write anything. `scheduler` and `names` are empty if it is no scheduler.
    """

    #: The program's SchedulerProcess if it is a scheduler.
    runtime: SchedulerProcess | None = None
    #: Seconds after which the process no longer owns a lease that was not renewed.
    renew_deadline = 0.0
    #: Seconds in which it ends after SIGTERM.
    grace = GRACE
    #: Factor of the rate of faults of processes.
    exposure = 1.0
    #: Whether it plans shards.
    is_planner = False

    def __init__(
        self, world: World, name: str, leases: list[tuple[str, str]], scheduler: str = "", *names: str
    ) -> None:
        self.world = world
        self.name = self.identity = name
        self.scheduler = scheduler
        #: The schedulerNames of its pods.
        self.names = names
        #: The latest time at which its last list of a vital kind is answered, or given up.
        self.vital_list_ends = -math.inf
        self.leases = leases
        self._starts = 0
        self._clock_jump = 0.0
        self.transport: SimTransport | None = None
        self._task: asyncio.Task[int] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        #: Set while the process should be up.
        self._wanted = asyncio.Event()
        #: When the process received SIGTERM; its end is checked against the grace.
        self._asked_at: float | None = None
        self._pause = 0.5

    # -- the program

    @abstractmethod
    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        """Create the program, and return the coroutine that runs it."""

    def _way(self) -> Transport:
        """Return the transport of the program that is being created."""
        transport = self.transport
        assert transport is not None, "it is being started"
        if not self.world.wired:
            return transport
        transport.wire = Wire(self.world, self, transport)
        return transport.wire.transport

    @abstractmethod
    def _stop(self) -> None:
        """Ask the program to end."""

    @abstractmethod
    def leads(self) -> bool:
        """Return whether this process may write now, by its own knowledge."""

    @property
    @abstractmethod
    def metrics(self) -> Any:
        """Return the program's metrics; None before it exists."""

    def reload(self) -> None:  # noqa: B027 - not every program takes it
        """Send SIGHUP."""

    def _look_back(self) -> None:  # noqa: B027 - nor is there always something to see
        """Judge a program that has ended."""

    # -- queries and actions

    @property
    def fast_path(self) -> FastPath | None:
        return self.runtime.fast_path if self.runtime is not None else None

    @property
    def is_up(self) -> bool:
        """Whether it runs, and may send."""
        return self.transport is not None and not self.transport.closed

    @property
    def elects(self) -> bool:
        return bool(self.leases)

    @property
    def is_wanted(self) -> bool:
        """Whether it runs, or will soon."""
        return self._wanted.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether the current program was asked to end."""
        return self._asked_at is not None

    def rules(self) -> Rules:
        """Return the rules by which it decides now."""
        assert self.runtime is not None, "it is a scheduler, and has been started"
        return rules_of(self.runtime._configuration)

    def waits_for_list(self, path: str, seconds: float) -> None:
        """Record that it waits for the response to a list of a vital kind, at most until the timeout."""
        plain, _, query = path.partition("?")
        if plain.rpartition("/")[2] in VITAL and not is_version_asked(query):
            ends = self.world.loop.time() + min(seconds, LIST_TIMEOUT)
            self.vital_list_ends = max(self.vital_list_ends, ends)

    def begin(self) -> None:
        """Start it and keep it running until `end`."""
        self._wanted.set()
        self._supervisor = self.world.loop.create_task(self._supervise(), name=f"supervisor of {self.name}")
        self._supervisor.add_done_callback(self._supervised)

    def _supervised(self, supervisor: asyncio.Task[None]) -> None:
        if not supervisor.cancelled() and (error := supervisor.exception()) is not None:
            self.world.safety.violated("L4", f"{self.name} cannot be started: {error!r}")

    async def _supervise(self) -> None:
        while True:
            await self._wanted.wait()
            self._start()
            assert self._task is not None
            await asyncio.wait({self._task})
            self._ended(self._task)
            await asyncio.sleep(self._pause)

    def _start(self) -> None:
        world = self.world
        self._starts += 1
        self.identity = f"{self.name}-{self._starts}"
        self._asked_at = None
        rng = random.Random(f"{world.seed} dice of {self.identity}")
        self.transport = SimTransport(world, self)
        rate = self._drift(random.Random(f"{world.seed} clock of {self.name}"))
        timing = Timing(
            clock=lambda: START + (world.loop.time() - START) * rate,
            sleep=lambda seconds: asyncio.sleep(seconds / rate),
            rng=rng.random,
            now=lambda: world.time_of_day(self._clock_jump),
        )
        run = lambda: world.loop.create_task(self._make(timing), name=f"run {self.identity}")  # noqa: E731
        self._task = self.context().run(run)
        world.trace(self.name, f"{self.identity} started")
        world.states.process_started(self)

    def context(self) -> Context:
        """Return the context in which its actions count as its own."""
        context = copy_context()
        context.run(PROCESS.set, self.name)
        return context

    def _drift(self, rng: random.Random) -> float:
        """Return the rate of its clock; the first start also sets an offset."""
        if not self.world.plan.enabled("clocks_drift"):
            return 1.0
        if self._starts == 1:
            self.world.plan.fired["clocks_drift"] += 1
            self._clock_jump += rng.uniform(-300.0, 300.0)
        return rng.uniform(0.97, 1.03)

    def _ended(self, task: asyncio.Task[int]) -> None:
        world = self.world
        how = "killed" if task.cancelled() else f"exit {task.result()}"
        world.trace(self.name, f"{self.identity} ended: {how}")
        world.states.harvest(self)
        self._look_back()
        goes_back = not task.cancelled() and world.backups.must_start_over(self)
        if not task.cancelled() and task.result() == 1:
            if goes_back:
                world.states.reached("started over as the store went back")
            elif self.elects:
                world.states.reached("lease lost")
        transport = self.transport
        assert transport is not None
        if self._asked_at is not None and not task.cancelled():
            took = world.loop.time() - self._asked_at
            if took > self.grace + _BEYOND_GRACE + world.stopped_for(self.name):
                world.safety.violated("L6", f"{self.identity} took {took:.1f} s to end after SIGTERM")
            lost = task.result() == 1 and (self._may_start_over() or world.backups.may_start_over(self))
            lost = lost or self._is_refused(task.result())
            if task.result() != 0 and not lost:
                world.safety.violated("L6", f"{self.identity} ended with {task.result()} after SIGTERM")
        elif not task.cancelled() and not (
            (task.result() == 1 and self._may_start_over()) or self._is_refused(task.result())
        ):
            world.safety.violated("L4", f"{self.identity} ended by itself with {task.result()}")
        transport.closed = True
        if transport.watches or (transport.under_way and not task.cancelled()):
            left = f"{transport.watches} streams, {transport.under_way} requests"
            world.safety.violated("L4", f"{self.identity} left {left}")

    def _may_start_over(self) -> bool:
        """Return whether a process may end by itself: without its lease, or when the store seems to have gone back."""
        fired = self.world.plan.fired
        return self.elects or bool(fired["rolled_back"] or fired["stale_list"] or fired["lagging"])

    def _is_refused(self, code: int) -> bool:
        """Return whether it ended because it may not list a kind that it needs, or could not until just now.

        A process that was stopped reads the refusal late.
        """
        since = self.world.loop.time() - 2 - self.world.stopped_for(self.name)
        return code == 2 and any(since < until for until in self.world.unlistable.values())

    # -- faults

    def kill(self, why: str = "killed") -> None:
        """Send SIGKILL: from this moment nothing is sent."""
        if self._task is not None and not self._task.done():
            self.world.trace(self.name, why)
            assert self.transport is not None
            self.transport.closed = True
            self._task.cancel()

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._task is not None and not self._task.done() and self._asked_at is None:
            self.world.trace(self.name, "SIGTERM")
            self._asked_at = self.world.loop.time()
            self._stop()

    def leave(self, why: str, *, kill: bool) -> None:
        """End the process, and do not start it again until `come_back`."""
        self._wanted.clear()
        self.world.trace(self.name, why)
        if kill:
            self.kill()
        else:
            self.terminate()

    def come_back(self) -> None:
        self._wanted.set()

    def jump_clock(self, seconds: float) -> None:
        """Move the wall clock of this process, but not its monotonic one."""
        self._clock_jump += seconds

    async def end(self) -> None:
        """Send SIGTERM and do not start it again; return when it has ended."""
        self._wanted.clear()
        self.terminate()
        if self._task is not None:
            await asyncio.wait({self._task})
        await asyncio.sleep(self._pause + 0.01)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})


class Scheduler(Process):
    """A replica of `scheduler`."""

    def __init__(self, world: World, name: str, scheduler: str) -> None:
        configuration = world.file.source(scheduler).start()
        election, sharding = configuration.leader_election, configuration.sharding
        leases = []
        if election.leader_elect:
            leases.append((election.resource_namespace, election.resource_name))
        if sharding.mode != "none":
            leases.append((sharding.lease_namespace, f"nodeshard-{sharding.name}"))
        batch = () if configuration.batch is None else (BATCH_NAME,)
        super().__init__(world, name, leases, scheduler, *names_of(scheduler), *batch)
        self.renew_deadline = election.renew_deadline
        self.grace = configuration.shutdown_grace_period

    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        world = self.world
        source = world.file.source(self.scheduler)
        runtime = self.runtime = _Scheduler(
            source.start(),
            source=source if world.plan.enabled("reload") else None,
            transport=self._way(),
            timing=timing,
            identity=self.identity,
            abort=lambda _code: self.kill("aborted itself"),
        )
        portions = random.Random(f"{world.seed} portion of {self.identity}")
        runtime.portion = portions.choice((1, 3, 30, PORTION))
        return runtime.run(signals=False)

    def _stop(self) -> None:
        assert self.runtime is not None
        self.runtime.stop()

    def leads(self) -> bool:
        runtime = self.runtime
        return runtime is not None and runtime.leases.held

    @property
    def metrics(self) -> Any:
        return None if self.runtime is None else self.runtime.metrics

    def reload(self) -> None:
        task, runtime = self._task, self.runtime
        if task is None or runtime is None:
            return

        def handler() -> None:
            if not task.done():
                runtime.reload()

        self.world.loop.call_soon(handler, context=self.context())

    def _look_back(self) -> None:
        """Check that the periodic flush was not needed, because events wake every pod that they help.

        A watch that is half open for longer than a pod waits delivers no such event.
        """
        if self.runtime is not None and not self.world.plan.fired["stall"]:
            self.world.safety.look("L5")
            if rescued := samples(self)["scheduler_pod_scheduled_after_flush_total"]:
                what = f"{self.identity} bound {rescued:g} pods that no event had woken"
                self.world.safety.violated("L5", what)


# ---- `agent-scheduler controllers`

#: The settings of a sharding controller, if one were enabled.
_NOTHING = settings_of(DEFAULT_SCHEDULER_CONFIGS, 60.0, False)


class _Replica(Process):
    """A replica of the controllers that are `enabled`.

    `--enable queue,podgroup`, with `job` if there are Jobs, and `--enable sharding` if a controller plans shards,
    together with the former two if there are gangs.
    """

    def __init__(
        self, world: World, name: str, *enabled: str, flags: ShardingSettings = _NOTHING, **election: Any
    ) -> None:
        super().__init__(world, name, [(LEASE_NAMESPACE, LEASE)])
        self.program: ControllersProcess | None = None
        lease = {"resource_name": LEASE, "resource_namespace": LEASE_NAMESPACE}
        elects = LeaderElection(leader_elect=True, **lease, **election)
        self.renew_deadline = elects.renew_deadline
        self._settings = controller_flags.ControllersSettings(
            enabled=enabled,
            kubeconfig="",
            election=elects,
            serving=Serving(port=0),
            logging=Logging(),
            sharding=ControllerSettings(flags=flags, lease_namespace=LEASE_NAMESPACE, fence=FENCE),
            podgroup=PodGroupSettings(schedulers=(BATCH_NAME,)),
        )

    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        program = self.program = ControllersProcess(
            self._settings,
            transport=self._way(),
            timing=timing,
            identity=self.identity,
            abort=lambda _code: self.kill("aborted itself"),
        )
        return program.run(signals=False)

    def _stop(self) -> None:
        assert self.program is not None
        self.program.stop()

    def leads(self) -> bool:
        program = self.program
        return program is not None and bool(program.leases.names) and program.leases.held

    @property
    def metrics(self) -> Any:
        return None if self.program is None else self.program.metrics


class GangController(_Replica):
    """A replica of the controllers of queues, groups and Jobs."""

    def __init__(self, world: World, name: str) -> None:
        jobs = world.shape.jobs is not None
        super().__init__(world, name, PODGROUP, QUEUE, *([JOB] if jobs else []))
        self.exposure = 1.0 if jobs else 0.3


class Controller(_Replica):
    """A replica of the sharding controller."""

    #: A process that dies often plans nothing, and its successor first waits for the lease.
    exposure = 0.1
    is_planner = True

    def __init__(self, world: World, name: str, plans: Plans) -> None:
        duration, deadline, period = plans.lease
        election = {"lease_duration": duration, "renew_deadline": deadline, "retry_period": period}
        enabled = (SHARDING,) if world.gangs is None else (SHARDING, PODGROUP, QUEUE)
        super().__init__(world, name, *enabled, flags=flags_of(plans), **election)
        self.began = world.loop.time()

    @property
    def in_effect(self) -> ShardingSettings | None:
        """Return the settings in effect."""
        sharding = self.program.sharding if self.program is not None else None
        return None if sharding is None else sharding.effective.settings

    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        self.began = self.world.loop.time()
        return super()._make(timing)
