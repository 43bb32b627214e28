"""Metrics of everything; log lines and events of what needs attention.

Events are about the ConfigMap, or about the NodeShard. Only who leads writes them; what stands when a process comes to
lead is reported then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_scheduler.kube.recorder import NORMAL, WARNING, EventRecorder, ObjectReference
from agent_scheduler.kube.watch_events import Change
from agent_scheduler.objects.shard import API_VERSION, KIND
from agent_scheduler.telemetry.controllers import ControllersMetrics
from agent_scheduler.telemetry.logs import OncePer, get_logger

from .configuration import Effective
from .writes import Result, Written

_LOG_SECONDS = 60.0


class Reports:
    """Owner of what was said before, so that what goes on is not said again and again."""

    def __init__(
        self,
        metrics: ControllersMetrics,
        *,
        events: EventRecorder,
        controller: str,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`controller` reports the events. `clock` counts seconds, `now` is Unix time."""
        self._metrics = metrics
        self._events = events
        self._controller = controller
        self._now = now
        self._log = get_logger("sharding")
        self._once = OncePer(_LOG_SECONDS, clock=clock)
        #: Whether this process writes.
        self.is_leading = False
        #: Configured shards that are not ours; shards that are too large; what each lacks of its minimum.
        self._foreign: frozenset[str] = frozenset()
        self._large: set[str] = set()
        self._short: dict[str, int] = {}

    # ---- watches

    def watched(self, kind: str, what: str) -> None:
        self._metrics.watched(kind, what)

    def received(self, kind: str, changes: Sequence[Change[Any]]) -> None:
        for change in changes:
            self._metrics.watch_events_total.labels(kind, change.type.value).inc()

    # ---- the configuration

    def started(self, effective: Effective) -> None:
        """There is no ConfigMap, so the flags hold."""
        self._metrics.config_loaded(self._now())
        self._log.info("no configuration", in_effect=_in_effect(effective))

    def configured(self, effective: Effective, warnings: tuple[str, ...]) -> None:
        """A version of the ConfigMap was taken, or refused."""
        if effective.problem:
            self._metrics.config_refused()
            self._log.error(
                "configuration refused", problem=effective.problem, in_effect=_in_effect(effective)
            )
            self.still_refused(effective)
            return
        self._metrics.config_applied(self._now())
        for warning in warnings:
            self._log.warning("without effect", setting=warning)
        assert effective.settings is not None
        shards = list(effective.settings.plan.names)
        self._log.info("configuration applied", source=effective.settings.source, shards=shards)
        self._event(effective.about, NORMAL, "ShardingConfigured", f"In effect. Shards: {', '.join(shards)}.")

    def still_refused(self, effective: Effective) -> None:
        """Of a ConfigMap that is not in effect."""
        self._event(
            effective.about,
            WARNING,
            "InvalidShardingConfiguration",
            f"{effective.problem}. In effect: {_in_effect(effective)}.",
        )

    def configuration_gone(self, effective: Effective) -> None:
        self._log.warning("configuration deleted", in_effect=_in_effect(effective))

    # ---- plans

    def planned(self, seconds: float, short: dict[str, int]) -> None:
        self._metrics.sharding_plan_duration_seconds.observe(seconds)
        if short != self._short:
            for shard, lacking in short.items():
                if self._short.get(shard) != lacking:
                    self._log.warning("shard below its minimum", shard=shard, lacking=lacking)
            self._short = short

    def foreign(self, shards: dict[str, ObjectReference]) -> None:
        """Configured shards whose objects are not ours."""
        for name in sorted(shards.keys() - self._foreign):
            self._log.warning("shard belongs to somebody else", shard=name)
            self._event(
                shards[name],
                WARNING,
                "ForeignShard",
                "The sharding configuration has a shard of this name, and this object was not made for it: it is left "
                "alone. To have it written, label it app.kubernetes.io/managed-by=agent-scheduler-sharding.",
            )
        self._foreign = frozenset(shards)

    @property
    def foreign_count(self) -> int:
        return len(self._foreign)

    # ---- writes

    def written(self, about: ObjectReference, written: Written, *, added: int = 0, removed: int = 0) -> None:
        """`about` is the shard as it was before, without a UID if it was not there."""
        name, result = about.name, written.result
        self._metrics.sharding_writes_total.labels(result.value).inc()
        if result.is_done:
            self._metrics.sharding_moves_total.labels(name, "added").inc(added)
            self._metrics.sharding_moves_total.labels(name, "removed").inc(removed)
            self._log.info(f"shard {result.value}", shard=name, added=added, removed=removed)
        elif result is not Result.CONFLICT:
            held = self._once.admit(f"{name} {result.value} {written.problem[:60]}")
            if held is not None:
                self._log.error("shard not written", shard=name, problem=written.problem, held_back=held)
        if result is Result.TOO_LARGE and name not in self._large:
            self._large.add(name)
            self._event(about, WARNING, "ShardTooLarge", f"Not written: {written.problem}.")
        elif result.is_done:
            self._large.discard(name)

    def kind_missing(self) -> None:
        held = self._once.admit("kind missing")
        if held is not None:
            self._log.error(
                "no NodeShards",
                problem=f"the API server has no {KIND} ({API_VERSION}); install it: kubectl apply -k config/crd",
                held_back=held,
            )

    def _event(self, about: ObjectReference, kind: str, reason: str, note: str) -> None:
        if self.is_leading:
            self._events.event(
                about, type=kind, reason=reason, action="Sharding", note=note, controller=self._controller
            )


def _in_effect(effective: Effective) -> str:
    settings = effective.settings
    return "nothing, shards are left as they are" if settings is None else settings.source


def shard_reference(name: str, uid: str) -> ObjectReference:
    """For events about a NodeShard."""
    return ObjectReference(KIND, "", name, uid, API_VERSION)
