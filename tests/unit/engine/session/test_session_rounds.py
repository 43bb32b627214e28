"""Sessions one after another, with actions in every order: they come to rest, and then nobody waits beside room that it
may have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from tests.support.engine import queue_of
from tests.support.examples import examples, in_time
from tests.unit.engine.session.scene import GATED, Scene, bound, evicted, sized, status_of

ACTIONS = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
ROUNDS = 30


@dataclass
class Gang:
    name: str
    queue: str
    minimum: int
    cpu: int
    priority: int
    #: Of each member; empty for one that waits.
    places: list[str]
    claims: dict[int, str] = field(default_factory=dict)
    told: Collection[str] = ()
    phase: str = "Pending"
    gated: bool = False

    @property
    def running(self) -> int:
        return sum(map(bool, self.places))

    def lacks(self) -> int:
        """Members that have to come together next."""
        return max(self.minimum - self.running, 1) if "" in self.places and not self.gated else 0


@dataclass
class Rounds:
    conf: SessionConf
    nodes: Sequence[int]
    queues: Mapping[str, Mapping[str, Any]]
    gangs: list[Gang]

    def scene(self) -> Scene:
        made = sized(*self.nodes)
        made.queues += [queue_of(name, "root", **spec) for name, spec in self.queues.items()]
        made.more["priorities"] = {str(value): value for value in range(3)}
        for gang in self.gangs:
            about = {"minMember": gang.minimum, "queue": gang.queue, "phase": gang.phase}
            made.group(gang.name, priorityClassName=str(gang.priority), **about)
            for number, place in enumerate(gang.places):
                more = {"status": {"nominatedNodeName": gang.claims[number]}} if number in gang.claims else {}
                more |= GATED if gang.gated and not place else {}
                name = f"{gang.name}-{number}"
                made.member(gang.name, name, cpu=str(gang.cpu), node=place, priority=gang.priority, **more)
        return made

    def run(self) -> bool:
        """One session. Whether anything came of it. Who is evicted is made again."""
        made = self.scene()
        session, result = made.run(self.conf, book=made.book(bound=True))
        placed, gone = bound(session), evicted(session)
        phases = [gang.phase for gang in self.gangs]
        for gang in self.gangs:
            names = [f"{gang.name}-{number}" for number in range(len(gang.places))]
            gang.places = [
                "" if name in gone else placed.get(name, place)
                for name, place in zip(names, gang.places, strict=True)
            ]
            job = session.jobs[f"default/{gang.name}"]
            claims = [task for task in job.pipelined_tasks() if task.evicting]
            gang.claims = {names.index(task.pod.name): task.node_name for task in claims}
            gang.told = {error.message for error in job.fit_errors.values()}
            gang.phase = status_of(result, gang.name).phase
        moved = phases != [gang.phase for gang in self.gangs]
        return bool(placed or gone or moved or any(gang.claims for gang in self.gangs))

    def held(self, queue: str) -> int:
        return sum(gang.running * gang.cpu for gang in self.gangs if gang.queue == queue)

    def check(self) -> None:
        for name, spec in self.queues.items():
            assert self.held(name) * 1000 <= spec.get("capability", self.held(name) * 1000), name
        for gang in self.gangs:
            assert not gang.running or gang.running >= gang.minimum, gang

    def rest(self) -> None:
        self.check()
        for _ in range(ROUNDS):
            if not self.run():
                return
            self.check()
        raise AssertionError("it does not come to rest")

    def fits(self, gang: Gang) -> bool:
        """Whether what it lacks has room on nodes, and in its queue beside the guarantees of others."""
        lacks = gang.lacks()
        free = {f"n{index}": cpus for index, cpus in enumerate(self.nodes)}
        for each in self.gangs:
            for place in filter(None, each.places):
                free[place] -= each.cpu
        of_others = [spec.get("guarantee", 0) for name, spec in self.queues.items() if name != gang.queue]
        limit = sum(self.nodes) * 1000 - sum(of_others)
        limit = min(self.queues[gang.queue].get("capability", limit), limit)
        room = sum(cpus // gang.cpu for cpus in free.values())
        return bool(lacks) and room >= lacks and (self.held(gang.queue) + lacks * gang.cpu) * 1000 <= limit


def of_queue(plugin: str) -> st.SearchStrategy[dict[str, Any]]:
    limits = {"capability": st.integers(1, 12).map(lambda cpus: cpus * 1000), "reclaimable": st.just(False)}
    limits |= {"deserved": st.integers(1, 9).map(lambda cpus: cpus * 1000)} if plugin == "capacity" else {}
    limits |= {"priority": st.just(1), "guarantee": st.just(1000)}
    return st.fixed_dictionaries({"weight": st.integers(1, 3)}, optional=limits)


@in_time
@pytest.mark.promise("S28")
@pytest.mark.parametrize("plugin", ["proportion", "capacity", ""])
@examples(150)
@given(st.data())
def test_sessions_come_to_rest_and_then_nobody_waits_beside_room_that_it_may_have(
    plugin: str, data: st.DataObject
) -> None:
    others = data.draw(st.lists(st.sampled_from(ACTIONS), unique=True))
    actions = data.draw(st.permutations([each for each in ACTIONS if each in {*others, "allocate"}]))
    named = (("priority", "gang", "conformance"), ("predicates", plugin, "nodeorder"))
    tiers = tuple(tuple(PluginOption(each) for each in tier if each) for tier in named)
    queues = data.draw(st.dictionaries(st.sampled_from("abc"), of_queue(plugin), min_size=1))
    rounds = Rounds(
        SessionConf(actions=tuple(actions), tiers=tiers, work_conserving=True),
        data.draw(st.lists(st.integers(2, 10), min_size=1, max_size=3)),
        queues,
        [],
    )
    for number in range(data.draw(st.integers(1, 6))):
        size, cpu, priority = (data.draw(st.integers(*among)) for among in ((1, 6), (1, 3), (0, 2)))
        queue, minimum = data.draw(st.sampled_from([*queues])), data.draw(st.integers(1, size))
        gang = Gang(f"g{number}", queue, minimum, cpu, priority, [""] * size)
        gang.gated = data.draw(st.integers(0, 9)) == 9
        rounds.gangs.append(gang)
        if data.draw(st.booleans()):
            rounds.rest()
    rounds.rest()
    for gang in filter(rounds.fits, rounds.gangs):
        # Who is within its queue's share may wait for more room than there is, which others would take bit by bit.
        assert any("kept for pods within the share" in each for each in gang.told), gang
