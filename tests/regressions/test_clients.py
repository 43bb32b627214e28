"""Faults that clients of Kubernetes had: what happened, on which conditions, and what is done here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import pytest

from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.kube.reflector import Reflector, WatchTimes
from agent_scheduler.kube.watch_events import Change
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.features.fastpath.test_runtime import ELECT
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until
from tests.support.scripted import FakeTime
from tests.support.virtual import time_of_day

from .links import Tap, is_watch, watching
from .stages import HeldBinds, millicores, refusal


@pytest.mark.real_time
async def test_a_watch_that_fell_silent_is_asked_for_again() -> None:
    """kopf #585 (and #957; kubernetes-client/python #1402): a watch fell silent, and nothing happened any more.

    What happened: after some time handlers were no longer called. The connection of the watch was still there for
    the client, but nothing came over it: its peer had vanished without a word. Without a timeout of the client's
    own it waits for ever; the server's `timeoutSeconds` cannot help where the server is what was lost.

    Conditions: a peer that vanishes without closing the connection, or something between that forgets the
    connection.

    Ours: a watch on which nothing arrives for longer than the server was asked to keep it, or than bookmarks
    come, is taken for dead and asked for again from where it was.
    """
    async with watching(watch_times=WatchTimes(stall=0.3)) as (cluster, relay, running):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        relay.fall_silent()
        await cluster.end_pod("first")
        await cluster.add_node("n2", cpu="1")
        await cluster.add_pod("third", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"] == 3)
        assert set(await cluster.placed()) == {"second", "third"}
        assert running.reports.counts["Pod list_initial"] == 1
        assert running.reports.counts["after flush"] == 0


@pytest.mark.real_time
async def test_a_conflict_is_not_taken_for_a_bind() -> None:
    """kubernetes_asyncio 36.1 (#402): a refused request returned like a successful one.

    What happened: asked for the raw answer (`_preload_content=False`, as fast callers and its dynamic client do),
    the client checks no status. A binding that was answered 409 raised nothing, so a scheduler took a pod for
    bound that another had.

    Conditions: the pod has a node already, and the watch has not told yet.

    Ours: nothing but a 201 means bound. After any other answer the pod itself is asked, and what it says is
    carried out: here the room is given back, no success is counted and no Scheduled event is written.
    """
    async with watching() as (cluster, relay, running):
        held = HeldBinds(running.fast_path)
        for name in ("n1", "n2"):
            await cluster.add_node(name, cpu="1")
        await until(lambda: len(running.fast_path.ledger.rows) == 2)
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        assumed = held.nodes["a"]
        relay.cut()
        await cluster.bind("a", "n2" if assumed == "n1" else "n1")
        held.release()
        await until(lambda: sum(running.reports.outcomes.values()))
        assert running.reports.outcomes == {"bound elsewhere": 1}
        assert millicores(running.fast_path.ledger, assumed) == 0
        await running.stop()
        assert running.reports.attempts["scheduled"] == 0
        assert running.reports.counts["event recorded"] == 0


@pytest.fixture
def west_of_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Spelled so that it needs no file of zones.
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    assert time.localtime().tm_gmtoff == -5 * 3600
    yield
    monkeypatch.undo()
    time.tzset()


def _age(written: str) -> float:
    return time_of_day() - datetime.fromisoformat(written).timestamp()


async def test_what_is_written_is_utc(west_of_greenwich: None) -> None:
    """kubernetes_asyncio 36.1: times in the lease were local time that claimed to be UTC.

    What happened: the election wrote the local time with a "Z" behind it. In New York a lease had been renewed
    five hours before it was, for every reader that believes what is written.

    Conditions: a process in a zone other than UTC.

    Ours: what is written is UTC: in the lease, in events and in conditions.
    """
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        async with process(cluster, ELECT):
            await cluster.add_pod("fits")
            await cluster.add_pod("large", cpu="8")
            await until(cluster.placed)
            condition = await until(lambda: cluster.condition("large"))
        lease = (await cluster.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"))[
            "spec"
        ]
        events = (await cluster.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        assert {each["reason"] for each in events} == {"Scheduled", "FailedScheduling", "LeaderElection"}
        written = [condition["lastTransitionTime"], lease["acquireTime"], lease["renewTime"]]
        written += [each["eventTime"] for each in events]
        for text in written:
            assert text.endswith("Z")
            assert -60 < _age(text) < 60


FAULTS = {
    "dropped": Disturbance(drop=True),
    "closed in order": None,
    "too old": Disturbance(error=ApiError(410, "Expired", "too old resource version: 1 (2)")),
    "too many": Disturbance(error=ApiError(429, "TooManyRequests", "later")),
}
ATTEMPTS = 30


@pytest.mark.real_time
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_watch_that_fails_at_once_is_asked_for_ever_more_slowly(fault: str) -> None:
    """kubernetes_asyncio 36.1: a watch that the server closes at once was asked for again 2,000 times a second.

    What happened: the client reconnects without a pause. It repeats a watch that was answered 410 with the very
    version that is too old, and where it has none it hands a whole list over as added, so that deletions are
    lost.

    Conditions: a server that ends each watch at once, in order or with a reset, or calls every version too old.

    Ours: attempts that bring nothing are made ever more slowly, up to a cap, whatever the way in which they fail;
    after a 410 the whole is listed once more, and what it lacks is told as deleted.
    """
    tap = Tap()
    time = FakeTime()
    changes: list[Change[PodInfo]] = []
    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_pod("a")

        def end_watches() -> None:
            for hub in (served.hub for served in cluster.api.registry.tables()):
                for watcher in hub.watchers():
                    watcher.end()

        def harm(request: Request) -> Disturbance | None:
            if is_watch(request):
                # For one that is let through: it is open when this returns, and closed before anything comes.
                asyncio.get_running_loop().call_soon(end_watches)
                return FAULTS[fault]
            return None

        tap.harm = harm
        reflector: Reflector[PodInfo] = Reflector(
            cluster.transport, "/api/v1/pods", PodReader(PodClasses()), changes.extend, timing=time.timing
        )
        running = asyncio.create_task(reflector.run())
        await until(lambda: tap.count(is_watch) >= ATTEMPTS)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        # Seconds that passed on the client's clock, which only its pauses move.
        assert sum(time.slept) > ATTEMPTS * 5
        assert len(changes) == 1
