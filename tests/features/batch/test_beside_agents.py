"""What is written of gangs makes way for agents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_scheduler.binding.binder import Binder
from agent_scheduler.kube.dispatch import Dispatcher
from agent_scheduler.kube.pace import Pace
from tests.support.embedded import until
from tests.support.installation import installed


async def test_all_that_is_written_of_gangs_asks_one_pace_which_knows_that_agents_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, bool] = {}
    paces = set()
    admits = Pace.admits

    def noted(self: Pace, go_on: Callable[[], object], waiting: int) -> bool:
        owner = getattr(go_on, "__self__", None)
        what = owner._send.__qualname__ if isinstance(owner, Dispatcher) else type(owner).__name__
        asked[what] = asked.get(what, False) or self.others_come
        paces.add(self)
        return admits(self, go_on, waiting)

    monkeypatch.setattr(Pace, "admits", noted)
    async with installed() as world:
        await world.add_node("a", cpu="8")
        await world.gang("large", 3, cpu="6")
        await until(lambda: "StatusWriter._write" in asked)
        assert not any(asked.values()), "there is no agent yet"
        await world.agent("agent", "q")
        await world.gang("fits", 3)
        await until(lambda: world.is_in_phase("fits", "Running"))
        fast_path = world.fast_path
        assert fast_path is not None and paces == {fast_path.binder.pace}
        kinds = {"GroupStatuses._write", "QueueStatuses._write", "EventRecorder._tell", "StatusWriter._write"}
        assert asked.keys() == {Binder.__name__, *kinds}
        assert asked[Binder.__name__] and asked["EventRecorder._tell"]
