"""Sessions one after another, with actions in every order: they come to rest, and then nobody waits beside room that it
may have."""

from __future__ import annotations

from collections.abc import Collection
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
    gated: bool
    #: Of each member; empty for one that waits.
    places: list[str]
    claims: dict[int, str] = field(default_factory=dict)
    told: Collection[str] = ()
    phase: str = "Pending"

    @property
    def running(self) -> int:
        return sum(map(bool, self.places))

    def into(self, scene: Scene) -> None:
        about: dict[str, Any] = {"queue": self.queue, "phase": self.phase, "minMember": self.minimum}
        scene.group(self.name, priorityClassName=str(self.priority), **about)
        for number, place in enumerate(self.places):
            more: dict[str, Any] = GATED if self.gated and not place else {}
            more = {**more, "status": {"nominatedNodeName": self.claims.get(number)}}
            member = f"{self.name}-{number}"
            scene.member(self.name, member, cpu=str(self.cpu), node=place, priority=self.priority, **more)


@dataclass
class Rounds:
    conf: SessionConf
    nodes: list[int]
    queues: dict[str, dict[str, Any]]
    gangs: list[Gang] = field(default_factory=list)

    def run(self) -> bool:
        """One session. Whether anything came of it. Who is evicted is made again."""
        made = sized(*self.nodes)
        made.queues += [queue_of(name, "root", **spec) for name, spec in self.queues.items()]
        made.more["priorities"] = {str(value): value for value in range(3)}
        for gang in self.gangs:
            gang.into(made)
        session, result = made.run(self.conf, book=made.book(bound=True))
        columns = session.nodes.columns
        assert all(taken[0] <= offers[0] for offers, taken in zip(columns.offers, columns.taken, strict=True))
        placed, gone = bound(session), evicted(session)
        moved = bool(placed or gone)
        for gang in self.gangs:
            names = [f"{gang.name}-{number}" for number in range(len(gang.places))]
            pairs = zip(names, gang.places, strict=True)
            gang.places = ["" if name in gone else placed.get(name, place) for name, place in pairs]
            job, phase = session.jobs[f"default/{gang.name}"], gang.phase
            claims = [task for task in job.pipelined_tasks() if task.evicting]
            gang.claims = {names.index(task.pod.name): task.node_name for task in claims}
            gang.told = {error.message for error in job.fit_errors.values()}
            gang.phase = status_of(result, gang.name).phase
            moved = moved or bool(claims) or phase != gang.phase
            assert not gang.running or gang.running >= gang.minimum, gang
        for name, spec in self.queues.items():
            assert self.held(name) <= spec.get("capability", self.held(name)), name
        return moved

    def rest(self) -> None:
        assert any(not self.run() for _ in range(ROUNDS)), "it does not come to rest"

    def held(self, queue: str) -> int:
        return sum(gang.running * gang.cpu * 1000 for gang in self.gangs if gang.queue == queue)

    def fits(self, gang: Gang) -> bool:
        """Whether what it lacks has room on nodes, and in its queue beside the guarantees of others."""
        lacks = max(gang.minimum - gang.running, 1)
        taken = [(place, each.cpu) for each in self.gangs for place in each.places]
        free = [
            cpus - sum(cpu for place, cpu in taken if place == f"n{index}") for index, cpus in enumerate(self.nodes)
        ]
        others = [spec.get("guarantee", 0) for name, spec in self.queues.items() if name != gang.queue]
        limit = sum(self.nodes) * 1000 - sum(others)
        limit = min(self.queues[gang.queue].get("capability", limit), limit)
        has_room = self.held(gang.queue) + lacks * gang.cpu * 1000 <= limit
        return "" in gang.places and not gang.gated and has_room and sum(n // gang.cpu for n in free) >= lacks


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
    others = data.draw(st.sets(st.sampled_from(ACTIONS)))
    actions = data.draw(st.permutations([each for each in ACTIONS if each in {*others, "allocate"}]))
    named = (("priority", "gang", "conformance"), ("predicates", plugin, "nodeorder"))
    tiers = tuple(tuple(PluginOption(each) for each in tier if each) for tier in named)
    conf = SessionConf(actions=tuple(actions), tiers=tiers, work_conserving=True)
    nodes = data.draw(st.lists(st.integers(2, 10), min_size=1, max_size=3))
    queues = data.draw(st.dictionaries(st.sampled_from("abc"), of_queue(plugin), min_size=1))
    rounds = Rounds(conf, nodes, queues)
    for number in range(data.draw(st.integers(1, 6))):
        among = ((1, 6), (1, 3), (0, 2), (0, 9))
        size, cpu, priority, gated = (data.draw(st.integers(*each)) for each in among)
        queue, minimum = data.draw(st.sampled_from([*queues])), data.draw(st.integers(1, size))
        rounds.gangs.append(Gang(f"g{number}", queue, minimum, cpu, priority, gated == 9, [""] * size))
        if data.draw(st.booleans()):
            rounds.rest()
    rounds.rest()
    for gang in filter(rounds.fits, rounds.gangs):
        # Who is within its queue's share may wait for more room than there is, which others would take bit by bit.
        assert any("kept for pods within the share" in each for each in gang.told), gang
