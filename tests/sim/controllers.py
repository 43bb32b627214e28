"""A replica of the controllers of queues, groups and Jobs: `agent-scheduler controllers --enable queue,podgroup,job`,
or without the last where there are no Jobs.

A replica of the sharding controller: `agent-scheduler controllers --enable sharding`, all of it; where there are
gangs, with the controllers of queues and groups.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.kube.retry import Timing
from agent_scheduler.process.controller_flags import (
    JOB,
    LEASE,
    PODGROUP,
    QUEUE,
    SHARDING,
    ControllersSettings,
)
from agent_scheduler.process.controllers import ControllersProcess

from .gang_load import NAME
from .gang_load import NAME as BATCH_NAME
from .processes import Process
from .shard_load import FENCE, LEASE_NAMESPACE, Plans, flags_of

if TYPE_CHECKING:
    from .world import World

#: What a controller of shards would go by, if one were enabled.
_NOTHING = ShardingSettings(
    parse_scheduler_configs(DEFAULT_SCHEDULER_CONFIGS).plan, 60.0, False, "--scheduler-configs"
)


class GangController(Process):
    """One of its replicas."""

    exposure = 0.3

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, scheduler="", names=(), leases=[(LEASE_NAMESPACE, LEASE)])
        self.program: ControllersProcess | None = None
        election = LeaderElection(leader_elect=True, resource_name=LEASE, resource_namespace=LEASE_NAMESPACE)
        self.renew_deadline = election.renew_deadline
        if world.shape.jobs is not None:
            self.exposure = 1.0
        self._settings = ControllersSettings(
            enabled=(PODGROUP, QUEUE) if world.shape.jobs is None else (PODGROUP, QUEUE, JOB),
            kubeconfig="",
            election=election,
            serving=Serving(port=0),
            logging=Logging(),
            sharding=ControllerSettings(
                flags=_NOTHING,
                lease_namespace=LEASE_NAMESPACE,
                fence=FENCE,
            ),
            podgroup=PodGroupSettings(schedulers=(NAME,)),
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


class Controller(Process):
    """One of its replicas."""

    #: Whoever dies all the time plans nothing, and whoever follows waits for the lease first.
    exposure = 0.1
    is_planner = True

    def __init__(self, world: World, name: str, plans: Plans) -> None:
        super().__init__(world, name, scheduler="", names=(), leases=[(LEASE_NAMESPACE, LEASE)])
        self.program: ControllersProcess | None = None
        self.began = world.loop.time()
        self.renew_deadline = plans.lease[1]
        self._settings = ControllersSettings(
            enabled=(SHARDING,) if world.gangs is None else (SHARDING, PODGROUP, QUEUE),
            kubeconfig="",
            election=LeaderElection(
                leader_elect=True,
                lease_duration=plans.lease[0],
                renew_deadline=plans.lease[1],
                retry_period=plans.lease[2],
                resource_name=LEASE,
                resource_namespace=LEASE_NAMESPACE,
            ),
            serving=Serving(port=0),
            logging=Logging(),
            sharding=ControllerSettings(flags=flags_of(plans), lease_namespace=LEASE_NAMESPACE, fence=FENCE),
            podgroup=PodGroupSettings(schedulers=(BATCH_NAME,)),
        )

    @property
    def in_effect(self) -> ShardingSettings | None:
        """What it goes by now."""
        sharding = self.program.sharding if self.program is not None else None
        return None if sharding is None else sharding.effective.settings

    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        self.began = self.world.loop.time()
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
