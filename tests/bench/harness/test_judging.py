"""Runs that must not count are refused, and say why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bench.harness.judging import Evidence, Tally, audit, breaches, broken, devices_given_twice, reasons
from bench.harness.model import Batch, Case, Fate, Gang, Nodes, Spread, Template
from bench.harness.watching import FreeCapacity, Observer, Track
from kube_client.testing.scripted import running
from kube_client.transport import OutcomeUnknown, Transport
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.transports import Through


def tally(fate: Fate = Fate.BOUND, **more: Any) -> Tally:
    return Tally(**{"name": "b", "fate": fate, "wanted": 10, "created": 10, "bound": 10, "there": 10, **more})


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (tally(created=9), "b: 9 of 10 pods were created"),
        (tally(bound=8), "b: 2 of 10 pods were never bound"),
        (tally(there=7), "b: 3 of 10 pods were bound and are lost"),
        (tally(there=3, deleted=6), "b: 1 of 10 pods were bound and are lost"),
        (tally(Fate.PREEMPTED, bound=9), "b: 1 of 10 pods were never bound"),
        (tally(Fate.WAITS, bound=1, there=1), "b: 1 pods were bound that fit nowhere"),
        (tally(Fate.GATED, created=9, bound=0, there=0), "b: 9 of 10 pods were created"),
    ],
)
def test_pods_that_did_not_end_as_they_had_to_refuse_it(batch: Tally, why: str) -> None:
    assert reasons(Evidence(tallies=[batch])) == [why]


@pytest.mark.parametrize(
    "batch",
    [
        tally(),
        tally(there=4, deleted=6),
        tally(Fate.PREEMPTED, there=0),
        tally(Fate.WAITS, bound=0, there=0),
        tally(Fate.ANY, created=3, bound=1, there=0),
    ],
)
def test_what_may_become_of_pods_does_not(batch: Tally) -> None:
    for flushed in (0.0, None):
        assert reasons(Evidence(tallies=[batch], flushed=flushed)) == []


def test_faults_of_nodes_pods_and_devices_are_quoted() -> None:
    many = [f"n{number}: cpu" for number in range(5)]
    evidence = Evidence(over=many, rebound=["p: a -> b"], doubled=["d"], left_out=["p fits n"], flushed=2.0)
    assert reasons(evidence) == [
        "over: n0: cpu; n1: cpu; n2: cpu; and 2 more",
        "moved: p: a -> b",
        "assigned twice: d",
        "left out: p fits n",
        "2 pods were rescued by a flush: no event had woken them",
    ]


def test_of_as_many_faults_as_are_quoted_no_more_are_counted() -> None:
    assert reasons(Evidence(over=["a", "b", "c"])) == ["over: a; b; c"]


def test_a_device_that_two_claims_hold_is_found() -> None:
    def claim(name: str, device: str) -> dict[str, Any]:
        results = [{"driver": "d", "pool": "n", "device": device}]
        return {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": results}}}}

    free: dict[str, Any] = {"metadata": {"name": "free"}, "status": {}}
    assert devices_given_twice([claim("a", "0"), claim("b", "1"), free]) == []
    assert devices_given_twice([claim("b", "0"), claim("a", "0")]) == ["device 0 of n is held by a, b"]


def test_books_say_where_room_was_not_enough_even_for_a_moment() -> None:
    free = FreeCapacity({"n": {"cpu": 1000, "pods": 5}})
    free.take("p1", "n", {"cpu": 600, "pods": 1})
    free.give_back("n", {"cpu": 600, "pods": 1})
    free.take("p2", "n", {"cpu": 600, "pods": 1})
    assert free.over == []
    free.take("p3", "n", {"cpu": 600, "pods": 1})
    free.give_back("n", {"cpu": 600, "pods": 1})
    assert free.over == ["n: cpu was 200 over its allocatable when p3 was bound to it"]


def test_a_pod_on_a_node_of_others_is_told() -> None:
    free = FreeCapacity({})
    free.take("p", "elsewhere", {"pods": 1})
    assert free.over == ["p was bound to elsewhere, which is none of the benchmark's nodes"]


@pytest.mark.parametrize(
    ("rule", "placed", "why"),
    [
        (Spread(key="zone", skew=1), "aab", "a skew of more than 1 over zone: {'a': 2, 'b': 1, 'c': 0}"),
        (Spread(key="zone", values=1), "aab", "pods are on 2 values of zone, not 1"),
        (Spread(key="zone", among=("a", "b")), "aabc", "pods are on zone c"),
        (Spread(key="host", most=1), "aab", "2 pods are on host a, not 1"),
    ],
)
def test_pods_that_were_placed_against_their_rules_are_told(rule: Spread, placed: str, why: str) -> None:
    assert breaches(rule, placed, "abc") == [why]
    assert reasons(Evidence(misplaced=[why])) == [f"misplaced: {why}"]


@pytest.mark.parametrize(
    ("rule", "placed"),
    [
        (Spread(key="zone", skew=1), "aabbc"),
        (Spread(key="zone", values=1), "bbb"),
        (Spread(key="zone", among=("a", "b")), "ab"),
        (Spread(key="host", most=1), "abc"),
    ],
)
def test_pods_that_keep_their_rules_are_not(rule: Spread, placed: str) -> None:
    assert breaches(rule, placed, "abc") == []


BATCH = Batch(name="b", count=3, templates=(Template(requests={"cpu": "600m"}),))
CASE = Case(name="c", nodes=Nodes(count=1), load=BATCH)


async def test_the_audit_reads_the_rules_label_of_the_nodes() -> None:
    async with embedded_cluster() as cluster:
        for name, zone in (("n1", "a"), ("n2", "b")):
            await cluster.add_node(name, labels={"zone": zone})
        for batch, node in (("b", "n1"), ("initial", "n2")):
            await cluster.add_pod(f"{batch}-000000")
            await cluster.bind(f"{batch}-000000", node)
        for rule, misplaced in (
            (Spread(key="zone", values=1), ["pods are on 2 values of zone, not 1"]),
            (Spread(key="zone", values=1, both=False), []),
        ):
            verdict = await audit(cluster.transport, "default", replace(CASE, rule=rule))
            assert list(verdict.misplaced) == misplaced


async def test_the_audit_counts_no_domain_that_the_pods_selector_excludes() -> None:
    """A cluster of one's own has other nodes, in zones where the benchmark's pods may not go."""
    rule = Spread(key="zone", skew=1, both=False)
    async with embedded_cluster() as cluster:
        for name, zone, mark in (("n1", "a", "mine"), ("n2", "b", "mine"), ("n3", "c", "other")):
            await cluster.add_node(name, labels={"zone": zone, "mark": mark})
        for number, node in enumerate(["n1", "n2", "n1", "n2"]):
            await cluster.add_pod(f"b-00000{number}")
            await cluster.bind(f"b-00000{number}", node)
        case = replace(CASE, rule=rule)
        assert (await audit(cluster.transport, "default", case, selector={"mark": "mine"})).misplaced == []
        (sentence,) = (await audit(cluster.transport, "default", case)).misplaced
    assert sentence == "a skew of more than 1 over zone: {'a': 2, 'b': 2, 'c': 0}"


class Cutting(Through):
    """A transport whose watches end after one batch each: first as `ends` says, then not any more."""

    EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410}}'

    def __init__(self, inner: Transport, ends: list[str]) -> None:
        super().__init__(inner)
        self.ends = ends

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async with self.inner.stream(path, read_timeout=read_timeout) as batches:
            yield self._some(batches)

    async def _some(self, batches: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
        async for lines in batches:
            yield lines
            end = self.ends.pop(0) if self.ends else ""
            if end == "cut":
                raise OutcomeUnknown("cut")
            if end == "expired":
                yield [self.EXPIRED]
            if end == "ended":
                return


async def test_a_watch_that_ends_is_taken_up_and_nothing_is_seen_twice_or_missed() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n", cpu="8")
        track, free = Track(replace(BATCH, count=20)), FreeCapacity({"n": {"cpu": 8000, "pods": 110}})
        cutting = Cutting(cluster.transport, ["cut", "expired", "ended", "expired", "cut"])
        observer = Observer(cutting, "default", [track], free)
        told: list[int] = []
        observer.on_bound = lambda _name, _track, number: told.append(number)
        async with running(observer.run()):
            for number in range(20):
                await cluster.add_pod(track.name(number), cpu="600m")
                await cluster.bind(track.name(number), "n")
                await until(partial(track.bound.__getitem__, number))
                # Four of them would not fit if it missed that one has gone.
                if number >= 10:
                    path = f"{PODS}/{track.name(number)}?gracePeriodSeconds=0"
                    await cluster.ask("DELETE", path)
        assert not cutting.ends
        assert observer.resumed >= 5
        assert told == list(range(20))
        assert free.over == []
        assert observer.rebound == []


async def test_the_audit_finds_lost_pods_and_nodes_that_are_over_and_minds_no_others() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n", cpu="1")
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "others"}})
        other = {"metadata": {"name": "waits"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await cluster.ask("POST", "/api/v1/namespaces/others/pods", other)
        for number in range(2):
            await cluster.add_pod(f"b-{number:06d}", cpu="600m")
        await cluster.bind("b-000000", "n")
        verdict = await audit(cluster.transport, "default", CASE)
        assert dict(verdict.there) == {"b": 1}
        assert not verdict.state.overcommitted
        # The second asks for more than is left, and the other's pod, which would fit, is not ours.
        assert not verdict.state.left_out
        await cluster.bind("b-000001", "n")
        verdict = await audit(cluster.transport, "default", CASE)
        assert dict(verdict.there) == {"b": 2}
        assert list(verdict.state.overcommitted) == ["n: cpu requested 1200, allocatable 1000"]


def test_a_gang_below_its_minimum_is_told() -> None:
    assert broken("b", Gang(size=3), [0, 1, 2, 3, 8]) == [
        "1 pods of gang 1 of b are bound, and 3 is its minimum",
        "1 pods of gang 2 of b are bound, and 3 is its minimum",
    ]
    assert broken("b", Gang(size=3, minimum=1), [0, 8]) == []
