"""An embedded cluster with kubelets on a real port, for what talks to one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.embedded import EmbeddedCluster, embedded_cluster


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster(kubelets=True) as cluster:
        yield cluster
