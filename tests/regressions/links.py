"""The connections between a scheduler and the embedded API server, which a test can break.

Faults of watches need a connection that can be cut, or fall silent, while binds still arrive: requests are sent
straight to the server, watches through a `Relay`. Faults of the server itself are a `Server`'s `disturb`, a `Tap` of
tests/support.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport
from tests.support.embedded import EmbeddedCluster, embedded_cluster
from tests.support.relay import Relay
from tests.support.running import Running, scheduling


class _Split:
    """Sends requests on one transport and watches on another. Closes neither."""

    def __init__(self, requests: Transport, watches: Transport) -> None:
        self.request = requests.request
        self.stream = watches.stream

    async def close(self) -> None: ...


@asynccontextmanager
async def watching_through_a_relay(cluster: EmbeddedCluster) -> AsyncIterator[tuple[Transport, Relay]]:
    """Yield a transport whose watches alone go through the relay."""
    async with Relay(cluster.server.port) as relay:
        watches = Http1Transport(Endpoint(f"http://127.0.0.1:{relay.port}"))
        try:
            yield _Split(cluster.transport, watches), relay
        finally:
            await watches.close()


@asynccontextmanager
async def watching(**settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, Relay, Running]]:
    """Yield a cluster, the relay of the watches, and a fast path with these settings."""
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport, **settings) as running,
    ):
        yield cluster, relay, running


def forget_history(cluster: EmbeddedCluster) -> None:
    """Compact the history as etcd does: an older watch gets a 410, and what it missed is not delivered."""
    store = cluster.api.store
    store.compact(store.rv)
