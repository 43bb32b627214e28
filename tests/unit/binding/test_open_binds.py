"""Binds that the watch has not delivered: when they are sent again."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from agent_scheduler.binding.open_binds import UnseenBinds
from kube_client.bind import BindOutcome, BindResult
from kube_client.retry import Timing


@pytest.mark.parametrize("answered_at", [0.0, 1.0, 17.5, 29.9, 30.0])
async def test_a_bind_that_the_watch_does_not_deliver_is_sent_again_after_30_seconds(answered_at: float) -> None:
    """Whenever it was answered: docs/bind-outcomes.md promises 30 s, at most one more."""
    now, sent = 0.0, []
    pod: Any = SimpleNamespace(uid="p", node_name="")
    cluster: Any = SimpleNamespace(pods={"p": pod}, ledger=SimpleNamespace(placements={"p": None}))

    async def bind(*_: Any) -> BindResult:
        sent.append(now)
        return BindResult(BindOutcome.BOUND)

    async def sleep(seconds: float) -> None:
        nonlocal now
        if now <= answered_at < now + seconds:
            unseen.answered.append((answered_at, pod, "n"))
        now += seconds
        if now > 100:
            raise asyncio.CancelledError

    calls: Any = SimpleNamespace(bind_while_it_helps=bind)
    unseen = UnseenBinds(cluster, calls, Timing(clock=lambda: now, sleep=sleep))
    with contextlib.suppress(asyncio.CancelledError):
        await unseen.run()
    assert answered_at + 30 <= sent[0] <= answered_at + 31
    assert 30 <= sent[1] - sent[0] <= 31
