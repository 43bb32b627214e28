"""Metrics, log lines and events of the sharding controller.

Events are about the ConfigMap or the NodeShard. Only the leader writes them; a new leader reports the current state.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.objects.shard import API_VERSION, KIND
from agent_scheduler.telemetry.controllers import ControllersMetrics
from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from kube_client.recorder import NORMAL, WARNING, EventRecorder, ObjectReference

from .configuration import EffectiveSettings
from .writes import WriteOutcome, WriteResult


class ShardingReports:
    """Owner of the earlier reports, so that a continuing problem is not reported repeatedly."""

    def __init__(
        self,
        metrics: ControllersMetrics,
        *,
        events: EventRecorder,
        controller: str,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """Create the reports; `controller` is the reporter of events. `clock` returns seconds, `now` Unix time."""
        self._metrics = metrics
        self._events = events
        self._controller = controller
        self._now = now
        self._log = get_logger("sharding")
        self._limited_log = LimitedLog(self._log, clock=clock)
        #: Whether this process writes.
        self.is_leading = False
        #: Configured shards that are not ours; shards that are too large; and how far each is below its minimum.
        self._foreign: frozenset[str] = frozenset()
        self._large: set[str] = set()
        self._short: dict[str, int] = {}

    # ---- the configuration

    def started(self, effective: EffectiveSettings) -> None:
        """Report that the flags apply because there is no ConfigMap."""
        self._metrics.config_loaded(self._now())
        self._log.info("no configuration", in_effect=_in_effect(effective))

    def configured(self, effective: EffectiveSettings, warnings: tuple[str, ...]) -> None:
        """Report that a version of the ConfigMap was applied or refused."""
        if effective.problem:
            self._metrics.config_refused()
            self._log.error("configuration refused", problem=effective.problem, in_effect=_in_effect(effective))
            self.still_refused(effective)
            return
        self._metrics.config_applied(self._now())
        for warning in warnings:
            self._log.warning("without effect", setting=warning)
        assert effective.settings is not None
        shards = list(effective.settings.plan.names)
        self._log.info("configuration applied", source=effective.settings.source, shards=shards)
        self._event(effective.about, NORMAL, "ShardingConfigured", f"In effect. Shards: {', '.join(shards)}.")

    def still_refused(self, effective: EffectiveSettings) -> None:
        """Record an event for a ConfigMap that is not in effect."""
        self._event(
            effective.about,
            WARNING,
            "InvalidShardingConfiguration",
            f"{effective.problem}. In effect: {_in_effect(effective)}.",
        )

    def configuration_gone(self, effective: EffectiveSettings) -> None:
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
        """Report the configured shards whose objects are not ours."""
        for name in sorted(shards.keys() - self._foreign):
            self._log.warning("shard belongs to another client", shard=name)
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

    def written(self, about: ObjectReference, written: WriteResult, *, added: int = 0, removed: int = 0) -> None:
        """Report a write; `about` is the shard before it, without a UID if it did not exist."""
        name, result = about.name, written.result
        self._metrics.sharding_writes_total.labels(result.value).inc()
        if result.is_done:
            self._metrics.sharding_moves_total.labels(name, "added").inc(added)
            self._metrics.sharding_moves_total.labels(name, "removed").inc(removed)
            self._log.info(f"shard {result.value}", shard=name, added=added, removed=removed)
        elif result is not WriteOutcome.CONFLICT:
            self._limited_log.error(
                "shard not written",
                f"{name} {result.value} {written.problem[:60]}",
                shard=name,
                problem=written.problem,
            )
        if result is WriteOutcome.TOO_LARGE and name not in self._large:
            self._large.add(name)
            self._event(about, WARNING, "ShardTooLarge", f"Not written: {written.problem}.")
        elif result.is_done:
            self._large.discard(name)

    def kind_missing(self) -> None:
        self._limited_log.error(
            "kind NodeShard missing",
            problem=f"the API server has no {KIND} ({API_VERSION}); install it: kubectl apply -k config/crd",
        )

    def _event(self, about: ObjectReference, kind: str, reason: str, note: str) -> None:
        if self.is_leading:
            self._events.event(
                about, type=kind, reason=reason, action="Sharding", note=note, controller=self._controller
            )


def _in_effect(effective: EffectiveSettings) -> str:
    settings = effective.settings
    return "nothing, shards are left as they are" if settings is None else settings.source


def shard_reference(name: str, uid: str) -> ObjectReference:
    """Return the reference for events about a NodeShard."""
    return ObjectReference(KIND, "", name, uid, API_VERSION)
