"""Replicas of `agent-scheduler controllers`: `--enable queue,podgroup`, with `job` where there are Jobs, and `--enable
sharding` where a controller plans shards, with the former two where there are gangs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from agent_scheduler.config.schema import LeaderElection, Logging, Serving
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.sharding.configuration import ShardingSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.kube.retry import Timing
from agent_scheduler.process import controller_flags
from agent_scheduler.process.controller_flags import JOB, LEASE, PODGROUP, QUEUE, SHARDING
from agent_scheduler.process.controllers import ControllersProcess

from .gang_load import NAME
from .processes import Process
from .shard_load import FENCE, LEASE_NAMESPACE, Plans, flags_of, settings_of

if TYPE_CHECKING:
    from .world import World

#: What a controller of shards would go by, if one were enabled.
_NOTHING = settings_of(DEFAULT_SCHEDULER_CONFIGS, 60.0, False)


class _Replica(Process):
    """One replica, with these controllers."""

    def __init__(
        self, world: World, name: str, enabled: tuple[str, ...], flags: ShardingSettings, **election: Any
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


class GangController(_Replica):
    """One of the controllers of queues, groups and Jobs."""

    def __init__(self, world: World, name: str) -> None:
        jobs = world.shape.jobs is not None
        super().__init__(world, name, (PODGROUP, QUEUE, JOB) if jobs else (PODGROUP, QUEUE), _NOTHING)
        self.exposure = 1.0 if jobs else 0.3


class Controller(_Replica):
    """One of the sharding controller."""

    #: Whoever dies all the time plans nothing, and whoever follows waits for the lease first.
    exposure = 0.1
    is_planner = True

    def __init__(self, world: World, name: str, plans: Plans) -> None:
        duration, deadline, period = plans.lease
        election = {"lease_duration": duration, "renew_deadline": deadline, "retry_period": period}
        enabled = (SHARDING,) if world.gangs is None else (SHARDING, PODGROUP, QUEUE)
        super().__init__(world, name, enabled, flags_of(plans), **election)
        self.began = world.loop.time()

    @property
    def in_effect(self) -> ShardingSettings | None:
        """What it goes by now."""
        sharding = self.program.sharding if self.program is not None else None
        return None if sharding is None else sharding.effective.settings

    def _make(self, timing: Timing) -> Coroutine[Any, Any, int]:
        self.began = self.world.loop.time()
        return super()._make(timing)
