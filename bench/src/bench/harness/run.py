"""Plays one case once: nodes, the pods that exist before, the measured ones, and then the verdict.

  site up → pods before → churn begins → READ → load until every pod is bound → events written → READ
    → churn ends → audit → refused, or figures → scheduler ends → binds alone, on the same cluster

A run that does not end within the case's time, or whose processes die, is refused like one that lost pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

from agent_scheduler.telemetry.pauses import LoopLag
from kube_client.errors import RequestFailed

from . import measure
from .arrivals import Backlog
from .churn import Churning
from .judging import Evidence, Tally, Verdict, audit, reasons
from .load import Ends, Load, bare_rate
from .measure import Reading
from .model import Batch, Case, Creating, Fate
from .processes import ProcessError
from .requests import first_of
from .result import Figures, Latency, Run, figures_of
from .site import Site, add_claim_template, free_of, prepared
from .watching import FreeCapacity, Observer, Track

#: Seconds between two checks of the progress.
_TICK = 0.02
#: Seconds without any event after which pods that fit nowhere count as rejected permanently.
_QUIET = 1.5
#: Maximum seconds until events are written once all pods are bound.
_WRITING = 60.0
_BETWEEN_READINGS = 0.5
#: Seconds that pods which fit may stay unbound after the load: longer than the longest backoff.
_LATE = 20.0
#: Maximum number of binds of the bare client: enough for a steady rate.
_BARE_PODS = 5000


async def run_once(
    case: Case,
    site: AbstractAsyncContextManager[Site],
    *,
    scenario: str = "",
    number: int = 1,
    bare: bool = False,
    watch: Callable[[Play], Awaitable[None]] | None = None,
) -> Run:
    """Play one run. Never raises for what the scheduler or the cluster does: the run is refused instead.

    `bare`: whether the rate of binds alone is measured, too. `watch` is called once the scheduler is ready, and
    canceled at the end of the load.
    """
    result = Run(scenario=scenario, case=case.name, number=number, at=case.at, series=case.series)
    began = time.monotonic()
    try:
        async with site as there, prepared(there, case) as namespace:
            play = Play(there, case, namespace, watch=watch)
            result.refused = await play.play()
            result.nodes = len(play.capacity)
            if not result.refused:
                result.figures = play.figures
            if bare and result.figures is not None:
                await _compare(play, result.figures)
    except* (ProcessError, RequestFailed) as errors:
        result.refused = str(first_of(errors)).split("\n")
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # A failure while a run is canceled (Ctrl-C) is no refusal, and would hide the cancellation.
        raise asyncio.CancelledError
    result.seconds = time.monotonic() - began
    return result


async def _compare(play: Play, figures: Figures) -> None:
    """Measure binds alone on the same cluster."""
    await play.site.stop_scheduler()
    load = play.case.load
    figures.bare_per_second = await bare_rate(
        play.site.transport,
        play.namespace,
        list(play.capacity),
        pods=max(1, min(_BARE_PODS, load.count)),
        selector=play.site.selector,
    )
    if figures.pods_per_second is not None and load.schedule is None:
        figures.of_bare = figures.pods_per_second / figures.bare_per_second


class Play:
    """One run on a site that is ready. Its current results can be read meanwhile."""

    def __init__(
        self, site: Site, case: Case, namespace: str, *, watch: Callable[[Play], Awaitable[None]] | None = None
    ) -> None:
        self.site = site
        self.case = case
        self.namespace = namespace
        self._watch = watch
        #: The tracks of all batches, by name.
        self.tracks = {batch.name: Track(batch) for batch in case.batches}
        self._loads = {
            name: Load(
                site.transport,
                namespace=namespace,
                track=track,
                scheduler_name=site.scheduler_name,
                selector=site.selector,
            )
            for name, track in self.tracks.items()
        }
        #: The track of the measured batch.
        self.track = self.tracks[case.load.name]
        self.load = self._loads[case.load.name]
        #: Node -> its free capacity before the run.
        self.capacity: dict[str, dict[str, int]] = {}
        self.free = FreeCapacity({})
        self.observer = Observer(site.transport, namespace, list(self.tracks.values()), self.free)
        self.began = self._made = time.monotonic()
        self.figures: Figures | None = None
        self.verdict = Verdict()
        kubelets = (lambda: self.track.ended) if site.kubelets else None
        self._ends = Ends(site.transport, namespace, self.track, kubelets=kubelets)
        self._churning = Churning(site, case, namespace, self._loads, self.tracks)
        #: Delays of this process's own event loop, seconds, which limit the precision of its latencies.
        self._lags = [0.0]
        self._lag = LoopLag(self._lags.append, loop=asyncio.get_running_loop(), interval=0.01)

    async def play(self) -> list[str]:
        """Return why the run must not count; empty if it does. Raises ProcessError and RequestFailed."""
        try:
            async with asyncio.timeout(self.case.patience):
                return await self._through()
        except TimeoutError:
            with suppress(RequestFailed):
                await self._judge()
            return [f"not through after {self.case.patience:g} s: {self.progress()}"]
        finally:
            self._lag.stop()

    def progress(self) -> str:
        """Return the progress as text."""
        return ", ".join(
            f"{name}: {track.created:,} of {track.batch.count:,} created, {track.bound_count:,} bound"
            for name, track in self.tracks.items()
        )

    async def _through(self) -> list[str]:
        self.capacity = await free_of(self.site)
        self.free = self.observer.free = FreeCapacity(self.capacity)
        self.observer.on_bound = self._ends.bound
        refused: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self.observer.run())]
            await self.observer.ready.wait()
            starts_now = self.case.template_last or not isinstance(self.case.load.arrival, Backlog)
            if starts_now:
                await self._start(tasks, background)
            for batch in self.case.before:
                await self._make(batch)
            refused = await self._measured(tasks, background)
            for task in background:
                task.cancel()
        return refused

    async def _start(self, tasks: asyncio.TaskGroup, background: list[asyncio.Task[None]]) -> None:
        await self.site.start_scheduler()
        background.append(tasks.create_task(self.site.died()))

    async def _make(self, batch: Batch) -> None:
        """Create the pods of a batch that exists before, and wait for their required result."""
        await self._loads[batch.name].run()
        track = self.tracks[batch.name]
        if batch.fate in (Fate.BOUND, Fate.PREEMPTED):
            await until(lambda: track.bound_count >= batch.count)
        elif batch.fate is Fate.WAITS:
            await self._all_pending(batch.count if batch.gang is None else 0)

    async def _all_pending(self, count: int, *, queues: tuple[str, ...] = ("unschedulable", "backoff")) -> None:
        """Wait until the scheduler has rejected and reported them; without metrics, until nothing happens."""
        while True:
            pending = (await self.site.meter.metrics()).by(measure.PENDING, "queue")
            refused = sum(pending.get(queue, 0.0) for queue in queues)
            quiet = time.monotonic() - self.observer.last_event > _QUIET
            if quiet and (not pending or refused >= count):
                return
            await asyncio.sleep(0.25)

    async def _measured(self, tasks: asyncio.TaskGroup, background: list[asyncio.Task[None]]) -> list[str]:
        case, track = self.case, self.track
        backlog = isinstance(case.load.arrival, Backlog)
        if backlog:
            await self.load.run()
        if case.template_last and backlog:
            await self._all_pending(case.load.count, queues=("gated",))
        around = [tasks.create_task(self._churning.run()), tasks.create_task(self._ends.run())]
        self._lag.start()
        before = await self.site.meter.read()
        setup = time.monotonic() - self._made
        self.began = time.monotonic()
        if self._watch is not None:
            around.append(tasks.create_task(_awaited(self._watch(self))))
        if case.template_last:
            await add_claim_template(self.site.transport, self.namespace)
        if not backlog:
            await self.load.run()
        elif not case.template_last:
            await self._start(tasks, background)
        await self._bound(track)
        after = await self._written(before)
        for task in around:
            task.cancel()
        await self._audited()
        late = backlog and not case.template_last
        figures = self.figures = figures_of(track, before, after, began=None if late else self.began)
        if backlog:
            # They waited for the template, and not only for the scheduler.
            figures.latency = Latency()
        figures.peak_mb = megabytes(self.site.meter.peak())
        figures.driver_lag_ms = max(self._lags) * 1000
        if case.load.schedule is not None:
            figures.sent_late_ms = self.load.latest * 1000
        figures.setup_seconds = setup
        figures.measured_seconds = after.at - self.began
        return reasons(self._evidence(figures.flushed))

    async def _bound(self, track: Track) -> None:
        """Wait until every measured pod is bound, or, if it need not be, until nothing more happens.

        Also for all pods that are created beside them to the end.
        """
        for each in self.case.churn:
            if isinstance(each, Creating) and each.to_the_end:
                beside = self.tracks[each.batch.name]
                await until(lambda beside=beside: beside.bound_count >= beside.batch.count)  # type: ignore[misc]
        if track.batch.fate is not Fate.ANY:
            await until(lambda: track.bound_count >= track.batch.count)
            return
        stuck = time.monotonic() + _LATE
        while track.bound_count < track.batch.count:
            seen = track.bound_count
            await asyncio.sleep(_QUIET)
            if self._ends.ended < self._ends.begun or track.bound_count != seen:
                # A pod that ends frees capacity.
                stuck = time.monotonic() + _LATE
                continue
            await self._judge()
            state = self.verdict.state
            if not (state.left_out or state.unsaid) or time.monotonic() > stuck:
                return

    async def _written(self, before: Reading) -> Reading:
        """Return the reading after the load, once the scheduler has also written its events.

        There is one of each pod. A group has at least one, so its count must have stopped, too.
        """
        gang = self.track.batch.gang
        least = self.track.bound_count if gang is None else self.track.bound_count // gang.size
        deadline = time.monotonic() + _WRITING
        written = -1.0
        while True:
            after = await self.site.meter.read()
            earlier, written = written, _events_in(after) - _events_in(before)
            waits = self.site.all_events and (written < least or (gang is not None and written != earlier))
            if not waits or time.monotonic() > deadline:
                return after
            # Each reading costs the scheduler some milliseconds, which count.
            await asyncio.sleep(_BETWEEN_READINGS)

    async def _audited(self) -> None:
        """Compute the verdict on the final state; pods left by churn get time to be bound, and gangs to be complete."""
        deadline = time.monotonic() + _LATE
        while True:
            await self._judge()
            is_settled = not (self.verdict.state.left_out or self.verdict.misplaced)
            if is_settled or time.monotonic() > deadline:
                return
            await asyncio.sleep(1.0)

    async def _judge(self) -> None:
        site = self.site
        self.verdict = await audit(site.transport, self.namespace, self.case, selector=site.selector)

    def _evidence(self, flushed: float | None) -> Evidence:
        judged = self.verdict
        deleted = {**self._churning.deleted, self.case.load.name: self._ends.asked}
        tallies = [
            Tally(
                name=name,
                fate=track.batch.fate,
                wanted=track.batch.count,
                created=track.created,
                bound=track.bound_count,
                there=judged.there[name],
                deleted=deleted.get(name, 0),
            )
            for name, track in self.tracks.items()
        ]
        refusals = self.observer.kubelet_refusals.items()
        return Evidence(
            tallies=tallies,
            over=[
                *self.free.over,
                *judged.state.overcommitted,
                *(f"kubelets refused {count} pods: {reason}" for reason, count in refusals),
            ],
            rebound=self.observer.rebound,
            doubled=judged.doubled,
            misplaced=judged.misplaced,
            left_out=judged.state.left_out,
            flushed=flushed,
        )


def _events_in(reading: Reading) -> float:
    return sum(reading.metrics.by(measure.EVENTS, "result").values())


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def until(holds: Callable[[], bool], *, tick: float = _TICK) -> None:
    """Return soon after `holds` returns True."""
    while True:
        if holds():
            return
        await asyncio.sleep(tick)


def megabytes(amount: float | None) -> float | None:
    return None if amount is None else amount / 2**20
