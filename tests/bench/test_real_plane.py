"""The delays of `--like-real`, as the embedded cluster applies them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bench.harness.real_plane import WRITES, delays
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.requests import Request

NAMESPACE = "/api/v1/namespaces/default"


def requests(method: str, path: str) -> Counter[float]:
    """Return how often each delay strikes ten thousand requests."""
    injector = Injector(plan_of(json.dumps(delays())))
    found = (injector(Request(method, path)) for _ in range(10_000))
    return Counter(0.0 if each is None else each.delay for each in found)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{NAMESPACE}/pods/p/binding"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events"),
        ("PATCH", f"{NAMESPACE}/pods/p/status"),
        ("PATCH", "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/g"),
        ("PATCH", "/apis/scheduling.volcano.sh/v1beta1/queues/q/status"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
    ],
)
def test_each_write_of_a_scheduler_takes_a_time_of_the_distribution(method: str, path: str) -> None:
    found = requests(method, path)
    assert found.keys() == {seconds for seconds, _ in WRITES}
    assert sum(share for _, share in WRITES) == pytest.approx(1)
    for seconds, share in WRITES:
        assert found[seconds] / 10_000 == pytest.approx(share, abs=0.02)


def test_the_load_itself_is_not_delayed() -> None:
    assert requests("POST", f"{NAMESPACE}/pods") == {0.0: 10_000}
