from __future__ import annotations

import asyncio
import time as real_time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_client.errors import StoreWentBack
from kube_client.lease import LeaderElector, LeadershipOverrun, LeaseConfig, boottime
from kube_client.recorder import ObjectReference
from kube_client.testing.scripted import (
    LOGIN_PAGE,
    Action,
    Answer,
    FakeTime,
    Hang,
    Request,
    Reset,
    ScriptedTransport,
    answering,
    eventually,
    running,
    status,
)

CONFIG = LeaseConfig(namespace="kube-system", name="agent-scheduler", identity="me")
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Leases:
    """The one Lease, kept as an API server keeps it. `fault` answers instead, if it is set."""

    def __init__(self, **spec: Any) -> None:
        self.version = 1
        self.lease: dict[str, Any] | None = None
        self.fault: Callable[[Request], Action | None] = lambda _request: None
        self.holders: list[str] = []
        if spec:
            self.write(spec)

    def write(self, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        self.version += 1
        meta = {"name": "agent-scheduler", "namespace": "kube-system", "uid": "u1"}
        meta["resourceVersion"] = str(self.version)
        version = "coordination.k8s.io/v1"
        self.lease = {"kind": "Lease", "apiVersion": version, "metadata": meta | metadata, "spec": spec}
        self.holders.append(spec.get("holderIdentity", ""))
        return self.lease

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def __call__(self, request: Request) -> Action:
        fault = self.fault(request)
        return fault if fault is not None else self.answer(request)

    def answer(self, request: Request) -> Answer:
        if request.method == "POST":
            assert request.path == PATH
            if self.lease is not None:
                return status(409, "AlreadyExists")
            return Answer(201, self.write(request.json["spec"]))
        assert request.path == f"{PATH}/agent-scheduler"
        if self.lease is None:
            return status(404, "NotFound")
        if request.method == "GET":
            return Answer(body=self.lease)
        sent = request.json
        if sent["metadata"]["resourceVersion"] != str(self.version):
            return status(409, "Conflict")
        extra = {key: value for key, value in sent["metadata"].items() if key not in self.lease["metadata"]}
        labels = sent["metadata"].get("labels")
        return Answer(body=self.write(sent["spec"], **extra, **({"labels": labels} if labels else {})))


class Work:
    """What a leader does: until it is cancelled or `done`, and then what `stopping` says.

    Notes the clock when it was stopped.
    """

    def __init__(self, clock: Callable[[], float], stopping: Callable[[], Awaitable[None]] | None = None) -> None:
        self.clock = clock
        self.stopping = stopping
        self.started = asyncio.Event()
        self.done = asyncio.Event()
        self.stopped_at: float | None = None

    async def __call__(self) -> None:
        self.started.set()
        try:
            await self.done.wait()
        finally:
            self.stopped_at = self.clock()
            if self.stopping is not None:
                await self.stopping()


@dataclass
class Led:
    """A leader at work, and its clock. `task` is what it leads in."""

    elector: LeaderElector
    time: FakeTime
    work: Work
    task: asyncio.Task[Any]

    async def lost(self) -> None:
        """Once it has stopped as its lease was lost."""
        assert await asyncio.wait_for(asyncio.shield(self.task), 60) is False
        assert self.work.stopped_at is not None and not self.elector.is_leader


def _unheard(identity: str) -> None: ...


@asynccontextmanager
async def leading(
    leases: Leases,
    *,
    config: LeaseConfig = CONFIG,
    time: FakeTime | None = None,
    waits: bool = True,
    stopping: Callable[[], Awaitable[None]] | None = None,
    **options: Any,
) -> AsyncIterator[Led]:
    """Waits, unless told not to, until the elector leads, and ends it in the end."""
    time = time or FakeTime()
    timing = replace(time.timing, now=options.pop("now", time.timing.now))
    elector = LeaderElector(answering(leases)[1], config, timing=timing, **{"on_new_leader": _unheard, **options})
    work = Work(lambda: time.now, stopping)
    async with running(elector.run(work)) as task:
        if waits:
            await work.started.wait()
        yield Led(elector, time, work, task)


async def test_a_lease_that_does_not_exist_is_made_and_led_under() -> None:
    leases = Leases()
    moment = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)
    async with leading(leases, waits=False, now=lambda: moment) as led:
        assert not led.elector.is_leader
        await led.work.started.wait()
        assert led.elector.is_leader and led.elector.leader == "me"
        assert leases.spec == {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-21T01:02:03.456789Z",
            "renewTime": "2026-11-21T01:02:03.456789Z",
            "leaseTransitions": 0,
        }
    assert not led.elector.is_leader


async def test_a_lease_is_renewed_in_every_period_without_being_read() -> None:
    leases, methods = Leases(), list[str]()
    leases.fault = lambda request: methods.append(request.method)
    async with leading(leases):
        await asyncio.sleep(21)
    assert methods == ["GET", "POST", *["PUT"] * 10, "PUT"], "ten renewals, and the release"


async def test_work_that_ends_releases_the_lease() -> None:
    leases = Leases()
    async with leading(leases) as led:
        led.work.done.set()
        assert await led.task is True
        assert (leases.spec["holderIdentity"], leases.spec["leaseDurationSeconds"]) == ("", 1)
        assert not led.elector.is_leader


async def test_cancelling_stops_the_work_first_and_releases_the_lease_after() -> None:
    leases, order = Leases(), list[str]()

    async def stopping() -> None:
        # Longer than the lease lasts: it is renewed meanwhile.
        await asyncio.sleep(60)
        order.append(f"stopped while {leases.spec['holderIdentity']} held it")

    async with leading(leases, stopping=stopping):
        pass
    assert order == ["stopped while me held it"]
    assert leases.spec["holderIdentity"] == ""


async def test_what_the_work_raises_is_raised_and_the_lease_released() -> None:
    leases = Leases()

    async def lead() -> None:
        raise RuntimeError("a bug of the leader")

    with pytest.raises(RuntimeError, match="a bug of the leader"):
        await LeaderElector(answering(leases)[1], CONFIG, timing=FakeTime().timing, on_new_leader=_unheard).run(lead)
    assert leases.spec["holderIdentity"] == ""


@pytest.mark.parametrize("clock", ["goes", "stands still"])
async def test_a_lease_that_is_being_renewed_is_never_taken(clock: str) -> None:
    """Whatever the holder's clock says."""
    leases = Leases(holderIdentity="other", leaseDurationSeconds=15)
    reads = 0

    def renewing(request: Request) -> None:
        nonlocal reads
        if request.method == "GET":
            reads += 1
            if reads % 6 == 0:
                renewed = str(reads) if clock == "goes" else "2001-01-01T00:00:00.000000Z"
                leases.write({"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": renewed})

    leases.fault = renewing
    async with leading(leases, waits=False) as led:
        await eventually(lambda: reads > 60)
        assert not led.work.started.is_set()
    assert set(leases.holders) == {"other"}


@pytest.mark.parametrize(
    ("stated", "waited"), [({"leaseDurationSeconds": 60}, 60), ({"leaseDurationSeconds": 5}, 15), ({}, 15)]
)
async def test_the_longer_of_both_durations_is_waited_for_whatever_times_the_lease_has(
    stated: dict[str, int], waited: int
) -> None:
    """The holder's clock is years behind: by renewTime its lease ran out long ago."""
    leases = Leases(holderIdentity="other", renewTime="2001-01-01T00:00:00.000000Z", **stated)
    async with leading(leases) as led:
        assert waited <= led.time.now - 1000 < waited + 2.4


async def test_who_takes_a_lease_says_since_when_it_has_it() -> None:
    """People, and client-go's tools, read from it how long this holder has led."""
    leases = Leases(holderIdentity="", acquireTime="2001-01-01T00:00:00.000000Z", leaseTransitions=3)
    async with leading(leases) as led:
        acquired = leases.spec["acquireTime"]
        assert acquired > "2001-01-02" and leases.spec["leaseTransitions"] == 4
        writes = len(leases.holders)
        await eventually(lambda: len(leases.holders) > writes + 2)
        assert led.elector.is_leader
        # A renewal is no change of the holder.
        assert (leases.spec["acquireTime"], leases.spec["leaseTransitions"]) == (acquired, 4)


@pytest.mark.parametrize("holder", ["", "me"])
async def test_a_lease_that_is_free_or_our_own_is_taken_at_once(holder: str) -> None:
    leases = Leases(holderIdentity=holder, leaseDurationSeconds=15)
    async with leading(leases) as led:
        assert leases.spec["holderIdentity"] == "me"
        assert led.time.now == 1000


async def test_a_candidate_that_lost_the_race_goes_on_waiting() -> None:
    leases = Leases(holderIdentity="", leaseDurationSeconds=1)

    def race(request: Request) -> None:
        if request.method == "PUT" and leases.holders == [""]:
            leases.write({"holderIdentity": "other", "leaseDurationSeconds": 15})

    leases.fault = race
    async with leading(leases) as led:
        assert leases.holders[:3] == ["", "other", "me"]
        assert led.time.now >= 1015


async def test_what_others_keep_in_the_lease_stays() -> None:
    leases = Leases(holderIdentity="", strategy="OldestEmulationVersion")
    assert leases.lease is not None
    leases.lease["metadata"]["labels"] = {"team": "agents"}
    async with leading(leases):
        assert leases.spec["strategy"] == "OldestEmulationVersion"
        assert leases.lease["metadata"]["labels"] == {"team": "agents"}


#: What is not the API server's, or about another lease, and renews nothing.
LIES = [
    LOGIN_PAGE,
    Answer(200, b'{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"another"}}'),
    Answer(404, b"default backend - 404"),
    Answer(409, b"<html>"),
]
REFUSALS = [status(code) for code in (403, 429, 500, 503)]


@pytest.mark.parametrize("answer", [Reset(), Hang(), *REFUSALS, *LIES])
@pytest.mark.parametrize(("deadline", "period"), [(10.0, 2.0), (8.5, 6.0)])
@pytest.mark.promise("S9")
async def test_a_leader_that_cannot_renew_stops_at_its_deadline_before_another_may_follow(
    answer: Action, deadline: float, period: float
) -> None:
    """kubernetes_asyncio 36.1 led on for 9 s after the API was gone, with a lease of 4 s."""
    leases = Leases()
    async with leading(leases, config=replace(CONFIG, renew_deadline=deadline, retry_period=period)) as led:
        renewed_at = led.time.now
        leases.fault = lambda _request: answer
        await led.lost()
        assert led.work.stopped_at == renewed_at + deadline
        assert leases.spec["holderIdentity"] == "me"


@pytest.mark.parametrize(
    ("count", "commits", "leads"), [(1, False, True), (1, True, True), (3, False, True), (5, False, False)]
)
async def test_an_outage_costs_nothing_that_ends_before_the_deadline(count: int, commits: bool, leads: bool) -> None:
    """The first `count` requests are lost, and carried out all the same if it `commits`."""
    leases, lost = Leases(), list[Request]()

    def outage(request: Request) -> Action | None:
        lost.append(request)
        if commits and len(lost) == 1:
            leases.answer(request)
        return Reset() if len(lost) <= count else None

    async with leading(leases) as led:
        leases.fault = outage
        await asyncio.sleep(60)
        assert led.elector.is_leader is leads
        assert (led.work.stopped_at is None) is leads


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    leases = Leases()
    async with leading(leases) as led:
        leases.lease = None
        await asyncio.sleep(3)
        assert leases.lease is not None
        assert led.elector.is_leader and not led.work.stopped_at


@pytest.mark.parametrize("holder", ["usurper", ""], ids=["replaced", "released in our name"])
@pytest.mark.promise("S9")
async def test_a_leader_whose_lease_is_gone_stops_with_its_next_renewal_and_may_write_nothing_meanwhile(
    holder: str,
) -> None:
    """By the clock its right would go on for seconds, and somebody else may lead already."""
    leases, allowed, seen = Leases(), list[bool](), list[str]()

    async def stopping() -> None:
        allowed.append(led.elector.is_leader)

    async with leading(leases, stopping=stopping, on_new_leader=seen.append) as led:
        assert led.elector.is_leader
        began = led.time.now
        leases.write({"holderIdentity": holder, "leaseDurationSeconds": 15})
        await led.lost()
        assert led.time.now == began + CONFIG.retry_period
    assert allowed == [False]
    assert leases.spec["holderIdentity"] == holder
    assert seen == ["me", holder]


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 2.0), (0.5, 2.2), (1.0, 2.4)])
async def test_candidates_try_at_times_of_their_own_and_a_leader_renews_in_every_period(
    chance: float, pause: float
) -> None:
    """As client-go: or all who wait for one lease would ask for it together."""
    leases = Leases(holderIdentity="other", leaseDurationSeconds=15)
    time = FakeTime(chance=chance)
    async with leading(leases, time=time):
        waited = len(time.slept)
        await eventually(lambda: len(time.slept) >= waited + 3)
        assert {round(seconds, 3) for seconds in time.slept[: waited - 1]} == {pause}
        assert set(time.slept[waited : waited + 3]) == {2.0}


@pytest.mark.promise("L15")
async def test_a_leader_whose_lease_is_of_an_earlier_version_than_it_wrote_stops_and_starts_over() -> None:
    """The store was restored from a backup, in which it may well hold the lease."""
    leases = Leases()
    with pytest.raises(StoreWentBack, match=r"is of version 2, and [0-9]+ was seen"):
        async with leading(leases) as led:
            await eventually(lambda: leases.version >= 4)
            leases.version = 1
            leases.write(leases.spec)
            await asyncio.wait({led.task})
            assert led.work.stopped_at is not None
            assert not led.elector.is_leader
    assert leases.version == 2, "nothing was written any more"


@pytest.mark.promise("L15")
async def test_a_candidate_that_reads_a_lease_of_an_earlier_version_starts_over() -> None:
    leases = Leases(holderIdentity="other", leaseDurationSeconds=15)
    reads = 0

    def renewing(request: Request) -> None:
        nonlocal reads
        reads += 1
        if reads == 5:
            leases.version = 0
        leases.write(leases.spec)

    leases.fault = renewing
    with pytest.raises(StoreWentBack, match="is of version 1, and 6 was seen"):
        async with leading(leases, waits=False) as led:
            await asyncio.wait({led.task})


@pytest.mark.promise("S9")
async def test_a_process_that_was_stopped_for_long_does_not_lead_any_more_when_it_goes_on() -> None:
    """SIGSTOP, a long collection, a suspended machine: the clock jumps between two instructions."""
    leases = Leases()
    async with leading(leases) as led:
        assert led.elector.is_leader
        assert led.elector.expired_for == -15
        led.time.now += 3600
        assert not led.elector.is_leader
        assert led.elector.expired_for == 3600 - 15
        writes = len(leases.holders)
        await led.lost()
        # At most a renewal that was under way already; none was begun.
        assert len(leases.holders) <= writes + 1


async def test_what_the_work_raises_while_it_is_stopped_is_raised() -> None:
    leases = Leases()

    async def stopping() -> None:
        raise RuntimeError("a bug of the end")

    with pytest.raises(RuntimeError, match="a bug of the end"):
        async with leading(leases, stopping=stopping) as led:
            leases.fault = lambda _request: Reset()
            await asyncio.wait({led.task})
    assert led.elector.expired_for == float("-inf")


async def test_an_event_about_the_lease_names_it_with_its_uid_once_that_is_known() -> None:
    async with leading(Leases(), waits=False) as led:
        assert led.elector.reference.uid == ""
        await led.work.started.wait()
        assert led.elector.reference == ObjectReference(
            "Lease", "kube-system", "agent-scheduler", "u1", "coordination.k8s.io/v1"
        )


async def test_a_lease_that_was_won_before_a_long_stop_is_not_led_under() -> None:
    leases, time = Leases(), FakeTime()

    def stopped_meanwhile(request: Request) -> Action | None:
        if request.method == "POST":
            time.now += 3600
        return None

    leases.fault = stopped_meanwhile
    async with leading(leases, time=time) as led:
        assert led.elector.is_leader
        assert len(leases.holders) >= 2


async def test_work_that_cannot_be_stopped_in_time_is_an_error_that_ends_the_process() -> None:
    leases, release = Leases(), asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    with pytest.raises(LeadershipOverrun, match="continues although its lease has ended"):
        async with leading(leases, stopping=stubborn) as led:
            began = led.time.now
            leases.fault = lambda _request: Reset()
            await asyncio.wait({led.task})
            assert led.time.now == began + CONFIG.lease_duration
            assert not led.elector.is_leader
            release.set()


def test_the_clock_of_a_lease_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no such clock, it is the one that stands still then."""
    monkeypatch.setattr(real_time, "clock_gettime", {real_time.CLOCK_BOOTTIME: 7.0}.__getitem__)
    assert boottime() == 7.0
    monkeypatch.delattr(real_time, "CLOCK_BOOTTIME")
    monkeypatch.setattr(real_time, "monotonic", lambda: 3.0)
    assert boottime() == 3.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": ""}, "identity must not be empty"),
        ({"lease_duration": 0}, "whole seconds, at least 1"),
        ({"lease_duration": 1.5}, "whole seconds, at least 1"),
        ({"renew_deadline": 15.0}, r"renew_deadline \(15.0 s\) must be .* less than lease_duration \(15 s\)"),
        ({"renew_deadline": 0.0}, "renew_deadline"),
        ({"request_timeout": 0.0}, "request_timeout"),
        ({"namespace": ""}, "namespace must not be empty"),
        ({"name": ""}, "name must not be empty"),
        ({"request_timeout": 10.0}, r"request_timeout \(10.0 s\) must be .* less than renew_deadline"),
        ({"retry_period": 9.0}, r"retry_period \(9.0 s\) must be"),
        ({"retry_period": 0.0}, "retry_period"),
    ],
)
def test_times_that_cannot_be_safe_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LeaseConfig(**({"namespace": "n", "name": "l", "identity": "me"} | change))


@pytest.mark.parametrize(
    ("there", "refused", "told"),
    [
        # One warning for each verb, and another when it is refused in another way.
        (True, {"GET": [403] * 6 + [500] * 3}, ["get 403", "get 500"]),
        (False, {"POST": [403] * 6 + [500] * 3}, ["create 403", "create 500"]),
        (True, {"PUT": [403] * 6 + [500] * 3}, ["update 403", "update 500"]),
        # A role may lack several of them, and is mended all the sooner.
        (True, {"PUT": [403] * 9, "GET": [200, 200, *[403] * 9]}, ["update 403", "get 403"]),
        # Each row of refusals has a warning of its own.
        (True, {"PUT": [200, *[200, 403, 403, 200] * 2]}, ["update 403"] * 2),
        # What is ordinary is no warning: it is not there, or was written by somebody else in between.
        (False, {}, []),
        (True, {"PUT": [200, 409]}, []),
    ],
)
async def test_a_refused_request_is_one_warning_that_says_what_and_where(
    there: bool, refused: dict[str, list[int]], told: list[str]
) -> None:
    leases = Leases(holderIdentity="", leaseDurationSeconds=1) if there else Leases()
    left = {method: list(codes) for method, codes in refused.items()}

    def fault(request: Request) -> Action | None:
        code = (left.get(request.method) or [200]).pop(0)
        reasons = {403: "Forbidden", 409: "Conflict", 500: "InternalError"}
        return None if code == 200 else status(code, reasons[code])

    leases.fault = fault
    config = replace(CONFIG, namespace_from="$POD_NAMESPACE")
    with capture_logs() as lines:
        async with leading(leases, waits=False, config=config):
            await asyncio.sleep(120)
    lines = [line for line in lines if line["log_level"] == "warning" and line["event"] != "lease lost"]
    assert [f"{line['verb']} {line['error'][:3]}" for line in lines] == told
    where = {"namespace": "kube-system", "name": "agent-scheduler", "namespace_from": "$POD_NAMESPACE"}
    for line in lines:
        assert line["event"] == "lease request failed" and line.items() >= where.items()


@pytest.mark.parametrize("refused", [False, True])
async def test_the_usual_namespace_is_created_if_it_is_missing(refused: bool) -> None:
    leases, made = Leases(), list[Any]()

    def fault(request: Request) -> Action | None:
        if request.path == "/api/v1/namespaces":
            made.append(request.json["metadata"])
            return status(403, "Forbidden") if refused else Answer(201, request.json)
        if request.method == "POST" and (refused or not made):
            return status(404, "NotFound", name="kube-system", kind="namespaces")
        return None

    leases.fault = fault
    with capture_logs() as lines:
        config = replace(CONFIG, creates_namespace=True)
        async with leading(leases, waits=False, config=config) as led:
            await asyncio.sleep(10)
            assert led.elector.is_leader is not refused
    assert made[0] == {"name": "kube-system"}
    warnings = [line["verb"] for line in lines if line["log_level"] == "warning"]
    assert (warnings, len(made)) == ((["create namespace"], len(made)) if refused else ([], 1))


async def test_no_request_of_a_leader_may_take_longer_than_its_right_lasts() -> None:
    leases, left = Leases(), list[float]()

    def failing(_: Request) -> Action:
        left.append(led.elector.valid_until - led.time.now)
        return status(500, "InternalError")

    async with leading(leases) as led:
        server = led.elector._transport
        assert isinstance(server, ScriptedTransport)
        server.timeouts.clear()
        leases.fault = failing
        await led.lost()
    assert server.timeouts == [min(CONFIG.request_timeout, max(0.001, each)) for each in left]
    assert len(left) == 4


# ---- its release is a courtesy: what belongs to another by then is left alone


def releases(request: Request) -> bool:
    return request.method == "PUT" and request.json["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize(("between", "left"), [("usurper", "usurper"), ("me", "")])
async def test_a_release_that_meets_another_write_is_made_again_unless_the_lease_is_theirs(
    between: str, left: str
) -> None:
    """A write of ours may be a renewal that was under way when the leader stopped."""
    leases, written = Leases(), list[bool]()

    def meanwhile(request: Request) -> Action | None:
        if releases(request) and not written:
            written.append(True)
            leases.write({**leases.spec, "holderIdentity": between})
        return None

    leases.fault = meanwhile
    async with leading(leases):
        pass
    assert leases.spec["holderIdentity"] == leases.holders[-1] == left


async def test_a_lease_that_ran_out_before_its_release_is_not_written_any_more() -> None:
    leases, asked = Leases(), list[str]()
    async with leading(leases) as led:
        leases.fault = lambda _request: Reset()
        await led.lost()
        leases.fault = lambda request: asked.append(request.method)
    assert asked == []
    assert leases.spec["holderIdentity"] == "me"
