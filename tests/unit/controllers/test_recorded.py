"""Scenarios that Volcano's own queue and podgroup controllers were recorded in, step by step."""

from __future__ import annotations

import asyncio

from .batch_world import batch_world
from .replay import Replay, scenarios

CLASSES = {"vc-rec-high": 1000, "vc-rec-mid": 500, "vc-rec-low": 10}


async def test_every_step_has_volcanos_result() -> None:
    found = scenarios("podgroup", "queue")
    assert found
    async with batch_world() as it:
        for name, value in CLASSES.items():
            body = {"metadata": {"name": name}, "value": value}
            await it.cluster.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        it.start()
        await it.until_states(root="Open", default="Open")
        differences = await asyncio.gather(*(Replay(it, each).run() for each in found))
    assert [line for lines in differences for line in lines] == []
