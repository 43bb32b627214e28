"""What groups ask of their queue as a session lets them in."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.queues.asks import Ask
from agent_scheduler.engine.session.actions.enqueue import enqueue
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.engine.session.session import Session

from ..scene import opened, sized


class Asked:
    """Stands for `Promises`, and lets in nobody."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def begin(self, asks: list[Ask]) -> None:
        self.asks = asks

    def is_let_in(self, _key: Any) -> bool:
        return False

    def ask(self, _ask: Ask, _may_go: Any) -> None:
        pass

    def shortfall(self, _key: Any) -> None:
        pass


def asks_of(session: Session) -> list[Ask]:
    session.promises = asked = Asked()  # type: ignore[assignment]
    for _ in enqueue(session):
        pass
    return asked.asks


@pytest.mark.promise("L24")
@pytest.mark.parametrize("seen", [("g-1", "g-2"), ("g-2", "g-1")])
def test_a_group_asks_for_its_first_members_in_whichever_order_they_were_seen(seen: tuple[str, ...]) -> None:
    scene = sized(8)
    scene.group("g", uid="of-g", minResources={"cpu": "1"})
    for name in seen:
        scene.member("g", name, cpu=name[-1], created="2026-01-01T00:00:00Z")
    assert [ask.wanted["cpu"] for ask in asks_of(opened(scene.session()))] == [1000]


def test_a_member_that_waits_for_others_to_leave_its_node_is_one_that_the_group_has() -> None:
    scene = sized(8)
    scene.group("g", uid="of-g", minResources={"cpu": "1"})
    scene.member("g", "g-0", cpu="1")
    session = opened(scene.session())
    (job,) = session.jobs.values()
    (task,) = job.tasks.values()
    job.set_status(task, TaskStatus.PIPELINED)
    assert [(ask.complete, ask.wanted["cpu"]) for ask in asks_of(session)] == [(True, 1000)]
