"""Pytest fixtures for embedded clusters.

Enable them in the `conftest.py` at the root of the tests:

    pytest_plugins = ["embedded_kubernetes.pytest_plugin"]

`embedded_cluster` is a cluster for one test, with the options of the test's marker:

    @pytest.mark.embedded_cluster(nodes=3)
    def test_nodes(embedded_cluster): ...

`embedded_clusters` starts a cluster per call: `embedded_clusters(nodes=3)`. All clusters end with the test. There is
no entry point, so that installing this distribution does not add fixtures to every run of pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .embedded import EmbeddedCluster

MARK = "embedded_cluster"


def pytest_configure(config: pytest.Config) -> None:
    text = f"{MARK}(**options): the options of embedded_kubernetes.EmbeddedCluster for the fixture {MARK}"
    config.addinivalue_line("markers", text)


@pytest.fixture
def embedded_clusters() -> Iterator[Callable[..., EmbeddedCluster]]:
    """Return a function that starts a cluster with the given options."""
    from .embedded import EmbeddedCluster

    with ExitStack() as running:
        yield lambda **options: running.enter_context(EmbeddedCluster(**options))


@pytest.fixture
def embedded_cluster(
    request: pytest.FixtureRequest, embedded_clusters: Callable[..., EmbeddedCluster]
) -> EmbeddedCluster:
    """Return a cluster for this test only."""
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):
        options.update(mark.kwargs)
    return embedded_clusters(**options)
