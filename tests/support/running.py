"""A fast path that runs against an embedded cluster, and its reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from agent_scheduler.cluster.groups import Groups
from agent_scheduler.config.load import load, load_text
from agent_scheduler.engine.framework.plugin import Depends, Filter, Profile
from agent_scheduler.engine.framework.points import MULTI_POINT, Enabled, PluginSet
from agent_scheduler.engine.profiles.profiles import REGISTRY, ProfileSpec, build_profile
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.fastpath.scheduler import FastPath, Receivers
from agent_scheduler.fastpath.settings import FastPathSettings, settings_of
from agent_scheduler.plugin import Registration
from agent_scheduler.telemetry.families import Families
from agent_scheduler.telemetry.handling import ObjectHandling
from agent_scheduler.telemetry.steps import LoopSteps
from kube_client.retry import Timing
from kube_client.testing.virtual import timing
from kube_client.transport import Transport
from tests.support.command_line import HEADER

SETTINGS = settings_of(load(), identity="test")


def profile(**spec: Any) -> Profile:
    """Return the scheduler's own profile with the changes of `spec`."""
    return build_profile(ProfileSpec(scheduler_name="agent-scheduler", **spec))


AGENT = profile()


def settings_from(text: str = "") -> FastPathSettings:
    """Return the settings of a configuration file."""
    return settings_of(load_text(HEADER + text), identity="test")


def profile_of(*plugins: Any, points: Sequence[str], origin: str = "another 1.0") -> Profile:
    """Return the profile with these plugins at these extension points, registered as by another distribution."""

    def bring(plugin: Any) -> Registration:
        return Registration(plugin.name, dict.fromkeys(points, lambda _args: plugin), origin=origin)

    chosen = {MULTI_POINT: PluginSet(tuple(Enabled(each.name) for each in plugins))}
    spec = ProfileSpec(scheduler_name="agent-scheduler", plugins=chosen)
    return build_profile(spec, REGISTRY.with_plugins(*map(bring, plugins)))


class _Raising(Filter):
    name = "Raising"

    def __init__(self, depends: Depends, when: Callable[[Any], bool]) -> None:
        self.depends, self._when = depends, when

    def prepare(self, pod: Any, interns: Any) -> Any:
        return self if any(each.key == "boom" for each in pod.tolerations) else None

    def feasible(self, state: Any, nodes: Any, rows: Any) -> Any:
        if self._when(nodes):
            raise ZeroDivisionError("boom")
        return np.ones(len(rows), dtype=np.bool_)

    def reasons(self, state: Any, nodes: Any, rows: Any) -> Any:
        return {}


def raising_for_some(depends: Depends, when: Callable[[Any], bool]) -> Profile:
    """Return a profile with a filter that raises for pods that tolerate `boom`, if `when` is true for the nodes."""
    filters = (_Raising(depends, when), *AGENT.filters)
    return Profile(AGENT.scheduler_name, filters, AGENT.scores, AGENT.pre_enqueue)


class Reports:
    """Counts every report by its name, and keeps those that tests query."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.conflicts = 0
        self.revalidated = 0
        self.outcomes: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self.problems: list[str] = []
        self.urgent: Counter[bool] = Counter()
        families = Families()
        self.handling = ObjectHandling(families, LoopSteps(families))

    def decided(self, worker: int, profile: str, seconds: float) -> None:
        self.counts[f"worker {worker}"] += 1

    def cycle_failed(self, worker: int, pod: Any, error: Exception) -> None:
        self.failures.append(error)

    def attempted(self, pod: Any, result: str, started: float, plugins: Any, message: str) -> None:
        self.attempts[result] += 1

    def outraced(self, pod: Any, started: float) -> None:
        self.attempts["conflict"] += 1

    def pod_scheduled(self, pod: Any, node_name: str, started: float) -> None:
        self.attempts["scheduled"] += 1

    def judged(self, conflicts: int, revalidated: int, outdated: int, accepted: bool) -> None:
        self.conflicts += conflicts
        self.revalidated += revalidated

    def bound(self, outcome: Any, seconds: float, pod: Any, node_name: str) -> None:
        self.outcomes[outcome.value] += 1

    def bind_failed(self, pod: Any, node_name: str, problem: str) -> None:
        self.problems.append(problem)

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        self.counts[f"devices of {driver} {status}"] += 1

    def preemption_attempted(self) -> None:
        self.counts["preemption attempts"] += 1

    def preempted(self, victims: int) -> None:
        self.counts["victims"] += victims

    def eviction_failed(self, victim: str, problem: str) -> None:
        self.problems.append(f"{victim}: {problem}")

    def malformed(self, kind: str, key: str, problem: str) -> None:
        self.problems.append(f"{kind} {key}: {problem}")

    def applies(self, kind: Any, item: Any) -> bool:
        return True

    def change_failed(self, kind: Any, item: Any, error: Exception) -> None:
        self.failures.append(error)

    def unreadable(self, kind: Any, who: Any, problem: str) -> None:
        self.problems.append(problem)

    def watched(self, kind: str, what: str) -> None:
        self.counts[f"{kind} {what}"] += 1

    def received(self, kind: str, changes: Any, began: float) -> None:
        self.counts[f"{kind} changes"] += len(changes)

    def status_write(self, what: str) -> None:
        self.counts[f"status {what}"] += 1

    def event_write(self, what: str) -> None:
        self.counts[f"event {what}"] += 1

    def let_past(self, held: float) -> None:
        self.counts["let past gates"] += 1

    def gate_removed(self) -> None:
        self.counts["gates removed"] += 1

    def gate_not_removed(self, pod: str, problem: str) -> None:
        self.problems.append(f"{pod}: {problem}")

    # The queue's recorder.

    def incoming(self, queue: str, event: str, entry: Any) -> None:
        self.counts[f"{queue} {event}"] += 1

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None: ...

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None: ...

    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None: ...

    def events_forgotten(self, count: int) -> None: ...

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        self.failures.append(error)

    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None:
        self.counts["after flush"] += after_flush

    def urgent_retry(self, granted: bool) -> None:
        self.urgent[granted] += 1


class Running:
    def __init__(self, fast_path: FastPath, reports: Reports, scheduling: asyncio.Task[None]) -> None:
        self.fast_path = fast_path
        self.reports = reports
        self.scheduling = scheduling

    async def stop(self, *, grace: float = 2.0) -> None:
        self.fast_path.stop(grace=grace)
        await asyncio.wait_for(asyncio.shield(self.scheduling), 10)


@asynccontextmanager
async def scheduling(
    transport: Transport,
    settings: FastPathSettings = SETTINGS,
    groups: Groups | None = None,
    by: Timing | None = None,
    **changes: Any,
) -> AsyncIterator[Running]:
    """Run a synced fast path that schedules, with this timing or that of the loop.

    At the end, its invariants are checked and it is stopped.
    """
    reports = Reports()
    # The backoff is short, but long enough to tell a retried pod from one that is tried immediately.
    changes.setdefault("initial_backoff", 0.1)
    fast_path = FastPath(
        replace(settings, **changes),
        transport=transport,
        receivers=Receivers(reports, reports),
        timing=by or timing(),
        groups=groups,
    )
    watching = asyncio.create_task(fast_path.watch())
    scheduling_task: asyncio.Task[None] | None = None
    try:
        await asyncio.wait_for(fast_path.synced(), 10)
        scheduling_task = asyncio.create_task(fast_path.schedule())
        yield Running(fast_path, reports, scheduling_task)
        assert contradictions(fast_path.ledger) == []
        fast_path.queue.check_invariants()
    finally:
        for task in (scheduling_task, watching):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
