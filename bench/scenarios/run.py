"""Plays one case once: nodes, the pods that are there before, the measured ones, and then the judgement.

    site up → pods before → churn begins → READ → load until every pod is bound → events written → READ
      → churn ends → audit → refused, or figures → scheduler ends → binds alone, on the same cluster

A run that is not through in the case's time, or whose processes die, is refused like one that lost pods.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_scheduler.demo.asking import first_of
from agent_scheduler.demo.measure import PENDING
from agent_scheduler.demo.processes import ProcessError
from agent_scheduler.kube.errors import RequestFailed

from . import meters
from .arrivals import Backlog
from .bare import bare_rate
from .churn import Churning
from .embedded import embedded
from .existing import existing
from .judging import Audit, Evidence, Tally, audit, reasons
from .lag import Lag
from .load import Ends, Load
from .measuring import figures_of, megabytes
from .meters import Reading
from .model import Batch, Case, Fate
from .options import Options
from .result import Figures, Run
from .site import Site, prepared, room_of
from .watching import Books, Observer, Track

#: Between two looks at how far things are, seconds.
_TICK = 0.02
#: Seconds without any event after which pods that fit nowhere are taken to have been refused for good.
_QUIET = 1.5
#: Seconds that events may take to be written once all pods are bound.
_WRITING = 60.0
#: Seconds that pods which fit may stay unbound once the load is over: longer than the longest backoff.
_LATE = 20.0
#: Binds of the bare client at most: enough to be steady.
_BARE_PODS = 5000


class _RefusedError(Exception):
    """The run cannot count; the text says why."""


async def run_once(case: Case, *, scenario: str, number: int, options: Options) -> Run:
    """One run. Never raises for what the scheduler or the cluster does: that is a refusal."""
    result = Run(scenario=scenario, case=case.name, number=number, at=case.at, series=case.series)
    began = time.monotonic()
    play: _Play | None = None
    try:
        async with _site(case, options) as site, prepared(site, case) as namespace:
            play = _Play(site, case, namespace, options=options)
            async with asyncio.timeout(case.patience):
                result.figures = await play.figures()
                result.nodes = play.nodes
    except* TimeoutError:
        result.refused = [
            f"not through after {case.patience:g} s: {play.progress() if play else 'not ready'}"
        ]
    except* (_RefusedError, ProcessError, RequestFailed) as errors:
        result.refused = str(first_of(errors)).split("\n")
    result.seconds = time.monotonic() - began
    return result


@asynccontextmanager
async def _site(case: Case, options: Options) -> AsyncIterator[Site]:
    if options.kubeconfig is not None:
        async with existing(case, options=options) as there:
            yield there
        return
    with TemporaryDirectory(prefix="bench-") as folder:
        async with embedded(case, folder=Path(folder), scheduler_name=options.scheduler_name) as made:
            yield made


class _Play:
    """One run on a site that is ready."""

    def __init__(self, site: Site, case: Case, namespace: str, *, options: Options) -> None:
        self._site = site
        self._case = case
        self._namespace = namespace
        self._options = options
        self._tracks = {batch.name: Track(batch) for batch in case.batches}
        self._loads = {
            name: Load(
                site.transport,
                namespace=namespace,
                track=track,
                scheduler_name=site.scheduler_name,
                selector=site.selector,
            )
            for name, track in self._tracks.items()
        }
        self._track = self._tracks[case.load.name]
        self._load = self._loads[case.load.name]
        self._ends = Ends(site.transport, namespace, self._track)
        self._churning = Churning(site, case, namespace, self._loads, self._tracks)
        self._lag = Lag()
        self._observer: Observer
        self._books: Books
        self._nodes: list[str] = []
        self._began = time.monotonic()

    def progress(self) -> str:
        """How far it came."""
        return ", ".join(
            f"{name}: {track.created:,} of {track.batch.count:,} created, {track.bound_count:,} bound"
            for name, track in self._tracks.items()
        )

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    async def figures(self) -> Figures:
        """Plays it. Raises _RefusedError."""
        room = await room_of(self._site)
        self._nodes, self._books = list(room), Books(room)
        self._observer = Observer(
            self._site.transport, self._namespace, list(self._tracks.values()), self._books
        )
        self._observer.on_bound = self._ends.bound
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._observer.run())]
            await self._observer.ready.wait()
            if not isinstance(self._case.load.arrival, Backlog):
                await self._site.start_scheduler()
                background.append(tasks.create_task(self._site.died()))
            for batch in self._case.before:
                await self._make(batch)
            figures = await self._measured(tasks, background)
            for task in background:
                task.cancel()
        await self._site.stop_scheduler()
        if self._options.bare:
            await self._compare(figures)
        return figures

    async def _make(self, batch: Batch) -> None:
        """The pods of a batch that is there before, and what is to become of them."""
        await self._loads[batch.name].run()
        track = self._tracks[batch.name]
        if batch.fate in (Fate.BOUND, Fate.PREEMPTED):
            await _until(lambda: track.bound_count >= batch.count)
        elif batch.fate is Fate.WAITS:
            await self._all_pending(batch.count)

    async def _all_pending(self, count: int) -> None:
        """Until the scheduler has refused them and said so; where it has no metrics, until nothing happens any more."""
        while True:
            pending = (await self._site.meter.metrics()).by(PENDING, "queue")
            refused = pending.get("unschedulable", 0.0) + pending.get("backoff", 0.0)
            quiet = time.monotonic() - self._observer.last_event > _QUIET
            if quiet and (not pending or refused >= count):
                return
            await asyncio.sleep(0.25)

    async def _measured(self, tasks: asyncio.TaskGroup, background: list[asyncio.Task[None]]) -> Figures:
        case, track = self._case, self._track
        backlog = isinstance(case.load.arrival, Backlog)
        if backlog:
            await self._load.run()
        around = [tasks.create_task(self._churning.run()), tasks.create_task(self._ends.run())]
        around.append(tasks.create_task(self._lag.run()))
        before = await self._site.meter.read()
        setup = time.monotonic() - self._began
        began = time.monotonic()
        if backlog:
            await self._site.start_scheduler()
            background.append(tasks.create_task(self._site.died()))
        else:
            await self._load.run()
        await self._bound(track)
        after = await self._written(before)
        for task in around:
            task.cancel()
        judged = await self._audited()
        refused = reasons(self._evidence(judged, before, after))
        if refused:
            raise _RefusedError("\n".join(refused))
        figures = figures_of(track, before, after, began=None if backlog else began)
        figures.peak_mb = megabytes(self._site.meter.peak())
        figures.driver_lag_ms = self._lag.worst * 1000
        if case.load.schedule is not None:
            figures.sent_late_ms = self._load.latest * 1000
        figures.setup_seconds = setup
        figures.measured_seconds = after.at - began
        return figures

    async def _bound(self, track: Track) -> None:
        """Until every measured pod was seen bound, or, if that may not be, until nothing more comes."""
        if track.batch.fate is not Fate.ANY:
            await _until(lambda: track.bound_count >= track.batch.count)
            return
        while track.bound_count < track.batch.count:
            seen = track.bound_count
            await asyncio.sleep(_QUIET)
            busy = self._ends.ended < self._ends.begun or track.bound_count != seen
            if not busy and not (await self._judge()).left_out:
                return

    async def _written(self, before: Reading) -> Reading:
        """The reading after the load, once the scheduler has written its events, too."""
        deadline = time.monotonic() + _WRITING
        while True:
            after = await self._site.meter.read()
            written = sum(after.metrics.by(meters.EVENTS, "result").values())
            then = sum(before.metrics.by(meters.EVENTS, "result").values())
            events = self._site.ours and self._case.tuning.events
            if not events or written - then >= self._track.bound_count or time.monotonic() > deadline:
                return after
            await asyncio.sleep(0.2)

    async def _audited(self) -> Audit:
        """The verdict on the last state; pods that churn left behind get the time to be bound."""
        deadline = time.monotonic() + _LATE
        while True:
            verdict = await self._judge()
            if not verdict.left_out or time.monotonic() > deadline:
                return verdict
            await asyncio.sleep(1.0)

    async def _judge(self) -> Audit:
        site = self._site
        return await audit(site.transport, self._namespace, self._case, selector=site.selector)

    def _evidence(self, judged: Audit, before: Reading, after: Reading) -> Evidence:
        deleted = dict(self._churning.deleted)
        deleted[self._case.load.name] = self._ends.asked
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
            for name, track in self._tracks.items()
        ]
        return Evidence(
            tallies=tallies,
            over=[*self._books.over, *judged.over],
            rebound=self._observer.rebound,
            doubled=judged.doubled,
            misplaced=judged.misplaced,
            left_out=judged.left_out,
            flushed=meters.grown(before.metrics, after.metrics, meters.FLUSHED),
        )

    async def _compare(self, figures: Figures) -> None:
        """Measures binds alone on what is there now."""
        pods = max(1, min(_BARE_PODS, self._case.load.count))
        figures.bare_per_second = await bare_rate(
            self._site.transport, self._namespace, self._nodes, pods=pods, selector=self._site.selector
        )
        if figures.pods_per_second is not None and self._case.load.schedule is None:
            figures.of_bare = figures.pods_per_second / figures.bare_per_second


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(_TICK)
