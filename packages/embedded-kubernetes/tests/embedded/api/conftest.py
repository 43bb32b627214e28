from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from embedded.sockets import Client, Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as found:
        yield found


@pytest.fixture
async def client(served: Served) -> Client:
    return await served.client()
