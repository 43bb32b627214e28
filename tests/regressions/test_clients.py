"""Faults of Kubernetes clients: what happened, under which conditions, and what this scheduler does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from kube_client.testing.virtual import time_of_day
from tests.features.fastpath.test_runtime import ELECT
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until


@pytest.fixture
def west_of_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Written so that no time zone files are needed.
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    assert time.localtime().tm_gmtoff == -5 * 3600
    yield
    monkeypatch.undo()
    time.tzset()


def _age(written: str) -> float:
    return time_of_day() - datetime.fromisoformat(written).timestamp()


async def test_what_is_written_is_utc(west_of_greenwich: None) -> None:
    """kubernetes_asyncio 36.1: times in the lease were local time, marked as UTC.

    What happened: the election wrote the local time with a "Z". In New York a lease appeared to have been renewed five
    hours before it was, to every reader.

    Conditions: a process in a zone other than UTC.

    Here: all written times are UTC: in the lease, in events and in conditions.
    """
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        async with process(cluster, ELECT):
            await cluster.add_pod("fits")
            await cluster.add_pod("large", cpu="8")
            await until(cluster.placed)
            condition = await until(lambda: cluster.condition("large"))
        lease = (await cluster.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"))["spec"]
        events = (await cluster.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        assert {each["reason"] for each in events} == {"Scheduled", "FailedScheduling", "LeaderElection"}
        written = [condition["lastTransitionTime"], lease["acquireTime"], lease["renewTime"]]
        written += [each["eventTime"] for each in events]
        for text in written:
            assert text.endswith("Z")
            assert -60 < _age(text) < 60
