"""One run of a case: how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from bench.harness.model import Batch, Case, Nodes
from bench.harness.processes import ProcessError
from bench.harness.run import run_once
from bench.harness.site import Site

CASE = Case(name="c", nodes=Nodes(count=1), load=Batch(name="b", count=1))


@asynccontextmanager
async def failing(*, cancelled: bool) -> AsyncIterator[Site]:
    """Build a site whose cluster fails at once, optionally because the run is being cancelled."""
    task = asyncio.current_task()
    assert task is not None
    if cancelled:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
    raise ProcessError("the cluster ended")
    yield


async def test_a_cluster_that_dies_refuses_the_run() -> None:
    run = await run_once(CASE, failing(cancelled=False))
    assert run.refused == ["the cluster ended"]
    assert run.figures is None


async def test_what_fails_as_a_run_is_cancelled_does_not_keep_it_from_ending() -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run_once(CASE, failing(cancelled=True)))
