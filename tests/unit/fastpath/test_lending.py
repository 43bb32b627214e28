"""Fast paths that share the pods and the nodes of one cluster: who decides, who binds, and what comes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.views import Place
from agent_scheduler.engine.shards.homes import Homes
from agent_scheduler.fastpath.cluster import Cluster
from agent_scheduler.fastpath.neighbours import Ending
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.kube.bind import BindOutcome, BindResult
from tests.embedded import PODS, EmbeddedCluster, embedded_cluster, until

from .running import SETTINGS, Reports


class Way:
    """From one fast path to all others: what is said arrives in the next turn of the loop."""

    def __init__(self, group: Group, number: int) -> None:
        self._group = group
        self._number = number
        self.lent: list[tuple[str, str]] = []
        self.returned: list[tuple[Ending, str]] = []

    def lend(self, uid: str, node_name: str) -> None:
        self.lent.append((uid, node_name))
        asyncio.get_running_loop().call_soon(self._group.lend, self._number, uid, node_name)

    def give_back(self, uid: str, ending: Ending, message: str) -> None:
        self.returned.append((ending, message))
        asyncio.get_running_loop().call_soon(self._group.give_back, uid, ending, message)


class Group:
    """Several fast paths, their parts, and who lent which pod."""

    def __init__(self) -> None:
        self.members: list[FastPath] = []
        self.ways: list[Way] = []
        self.reports: list[Reports] = []
        self.lenders: dict[str, int] = {}
        self.homes = Homes()

    def lend(self, lender: int, uid: str, node_name: str) -> None:
        self.lenders[uid] = lender
        for member in self.members:
            if node_name in member.part.membership.nodes:  # type: ignore[union-attr]
                assert member.guests is not None
                member.guests.take_in(uid, node_name)
                return
        self.give_back(uid, Ending.REFUSED, "")

    def give_back(self, uid: str, ending: Ending, message: str) -> None:
        lending = self.members[self.lenders[uid]].lending
        assert lending is not None
        lending.ended(uid, ending, message)

    def settle(self, homes: Iterable[int]) -> None:
        self.homes = self.homes.among(homes)
        for number, member in enumerate(self.members):
            member.cluster.settle(self.homes, number)

    def check(self) -> None:
        for member in self.members:
            assert member.ledger.check() == []
            member.queue.check_invariants()
            assert member.guests is not None and member.lending is not None
            assert len(member.guests) == len(member.lending) == 0
            assert member.queue.pending().in_flight == 0
            assert member.ledger.assumed == 0


@asynccontextmanager
async def group(cluster: EmbeddedCluster, *parts: set[str], **settings: Any) -> AsyncIterator[Group]:
    """A fast path for each part. All pods are the first one's until `settle` says otherwise."""
    made = Group()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for number in range(len(parts)):
            made.ways.append(Way(made, number))
            made.reports.append(Reports())
            member = FastPath(
                replace(SETTINGS, **settings),
                transport=cluster.transport,
                observer=made.reports[-1],
                recorder=made.reports[-1],
                neighbours=made.ways[-1],
            )
            made.members.append(member)
            stack.callback(tasks.create_task(member.watch()).cancel)
        for member, part in zip(made.members, parts, strict=True):
            await asyncio.wait_for(member.synced(), 10)
            assert member.part is not None
            member.part.use(frozenset(part), "")
        made.settle([0])
        for member in made.members:
            stack.callback(tasks.create_task(member.schedule()).cancel)
        yield made


async def placed(cluster: EmbeddedCluster, *names: str) -> dict[str, str]:
    async def all_placed() -> dict[str, str] | None:
        found = await cluster.placed()
        return found if found.keys() >= set(names) else None

    return await until(all_placed)


async def test_a_pod_that_fits_on_its_own_part_is_not_lent() -> None:
    async with embedded_cluster() as cluster:
        for name in ("mine", "theirs"):
            await cluster.add_node(name)
        async with group(cluster, {"mine"}, {"theirs"}) as both:
            names = [f"p{number}" for number in range(8)]
            for name in names:
                await cluster.add_pod(name)
            assert set((await placed(cluster, *names)).values()) == {"mine"}
            assert both.ways[0].lent == []


async def test_a_pod_that_only_another_part_can_take_is_bound_there_by_its_process() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("mine")
        await cluster.add_node("theirs", labels={"disk": "ssd"})
        async with group(cluster, {"mine"}, {"theirs"}) as both:
            await cluster.add_pod("p", nodeSelector={"disk": "ssd"})
            assert await placed(cluster, "p") == {"p": "theirs"}
            await until(lambda: both.reports[0].counts["lent bound"] == 1)
            assert both.reports[0].outcomes["bound"] == 0
            assert both.reports[1].outcomes["bound"] == 1
            # Its home counts what its queue knows, the other one the attempt.
            assert both.reports[0].counts["after flush"] == 0
            assert both.reports[1].attempts["scheduled"] == 1
            await until(lambda: all(member.ledger.assumed == 0 for member in both.members))
            both.check()


async def test_no_more_pods_are_lent_for_a_node_than_it_has_room_for() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("mine", cpu="1")
        await cluster.add_node("theirs", cpu="2")
        # All wait when the first is decided on.
        names = [f"p{number}" for number in range(16)]
        for name in names:
            await cluster.add_pod(name, cpu="500m")
        async with group(cluster, {"mine"}, {"theirs"}) as both:
            first = both.members[0]
            await until(lambda: first.queue.pending().unschedulable == 10)
            await until(lambda: first.ledger.assumed == 0)
            assert sorted((await cluster.placed()).values()) == ["mine"] * 2 + ["theirs"] * 4
            assert len(both.ways[0].lent) == 4
            left = min(set(names) - (await cluster.placed()).keys())
            condition = await until(lambda: cluster.condition(left))
            assert condition["reason"] == "Unschedulable"
            assert condition["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
            both.check()


async def test_a_refused_pod_says_what_all_nodes_say_and_only_its_home_says_it() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("mine", cpu="1")
        await cluster.add_node("theirs", cpu="1", unschedulable=True)
        async with group(cluster, {"mine"}, {"theirs"}) as both:
            await cluster.add_pod("p", cpu="3")
            condition = await until(lambda: cluster.condition("p"))
            said = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
            assert condition["message"].startswith(said)
            await until(lambda: both.reports[0].counts["status written"] == 1)
            assert both.reports[1].counts["status written"] == 0
            assert both.reports[1].attempts == {}


async def test_a_pod_that_is_refused_where_it_was_lent_is_tried_again_and_backs_off_in_the_end() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("mine", cpu="1")
        await cluster.add_node("nobodys", cpu="4")
        async with group(cluster, {"mine"}, set(), max_urgent_retries=3) as both:
            pod = await cluster.add_pod("p", cpu="2")
            uid = pod["metadata"]["uid"]
            first = both.members[0]
            await until(lambda: first.queue.where(uid) is Place.BACKOFF)
            assert both.ways[0].lent == [(uid, "nobodys")] * 4
            both.check()
            assert both.members[1].part is not None
            both.members[1].part.use(frozenset({"nobodys"}), "")
            assert await placed(cluster, "p") == {"p": "nobodys"}


async def test_a_pod_that_the_other_process_has_not_seen_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, late = Cluster.set_pod, deque[tuple[Cluster, PodInfo]]()
    behind: list[Cluster] = []

    def set_pod(self: Cluster, pod: PodInfo) -> None:
        late.append((self, pod)) if self in behind else take(self, pod)

    monkeypatch.setattr(Cluster, "set_pod", set_pod)
    async with embedded_cluster() as cluster:
        await cluster.add_node("theirs")
        async with group(cluster, set(), {"theirs"}) as both:
            guests = both.members[1].guests
            assert guests is not None
            behind.append(both.members[1].cluster)
            await cluster.add_pod("p")
            await until(lambda: len(guests) == 1 and late)
            behind.clear()
            while late:
                take(*late.popleft())
            assert await placed(cluster, "p") == {"p": "theirs"}


async def test_a_guest_for_a_node_that_was_given_away_meanwhile_is_refused() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("theirs")
        async with group(cluster, set(), {"theirs"}) as both:
            part, guests = both.members[1].part, both.members[1].guests
            assert part is not None and guests is not None
            part.use(frozenset(), "")
            await cluster.add_pod("p")
            uid = (await cluster.pods())["p"]["metadata"]["uid"]
            await until(lambda: uid in both.members[1].cluster.pods)
            both.lenders[uid] = 0
            guests.take_in(uid, "theirs")
            assert both.ways[1].returned == [(Ending.REFUSED, "")]
            assert both.reports[1].outcomes == {}


async def test_a_pod_that_the_other_process_never_sees_comes_back() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("theirs")
        async with group(cluster, set(), {"theirs"}) as both:
            guests = both.members[1].guests
            assert guests is not None
            both.lenders["unseen"] = 0
            guests.take_in("unseen", "theirs")
            assert len(guests) == 1
            await until(lambda: both.ways[1].returned == [(Ending.REFUSED, "")])
            both.check()


async def test_a_bind_that_the_server_refuses_is_told_by_the_home_of_the_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("theirs")
        async with group(cluster, set(), {"theirs"}) as both:
            guests = both.members[1].guests
            assert guests is not None

            def broken(pod: Any, node_name: str) -> Any:
                raise RuntimeError("a plugin of theirs broke")

            monkeypatch.setattr(guests, "_try", broken)
            await cluster.add_pod("p")
            condition = await until(lambda: cluster.condition("p"))
            assert condition["reason"] == "SchedulerError"
            assert condition["message"] == "RuntimeError: a plugin of theirs broke"
            await until(lambda: both.reports[0].counts["status written"] == 1)
            assert both.reports[1].counts["status written"] == 0


async def test_pods_are_divided_among_their_homes_and_none_is_left_when_these_change() -> None:
    async with embedded_cluster() as cluster:
        for name in ("one", "two"):
            await cluster.add_node(name)
        async with group(cluster, {"one"}, {"two"}) as both:
            both.settle([0, 1])
            names = [f"p{number}" for number in range(30)]
            for name in names:
                await cluster.add_pod(name, cpu="10m")
            assert set((await placed(cluster, *names)).values()) == {"one", "two"}
            waiting = [f"w{number}" for number in range(30)]
            for name in waiting:
                await cluster.add_pod(name, cpu="9")
            await until(lambda: sum(each.queue.pending().unschedulable for each in both.members) == 30)
            assert min(each.queue.pending().unschedulable for each in both.members) > 0
            both.settle([1])
            assert both.members[0].queue.pending().unschedulable == 0
            await until(lambda: both.members[1].queue.pending().unschedulable == 30)
            both.settle([0, 1])
            await until(lambda: sum(each.queue.pending().unschedulable for each in both.members) == 30)
            assert min(each.queue.pending().unschedulable for each in both.members) > 0
            both.check()


async def test_a_guest_that_has_its_home_here_meanwhile_is_tried_again_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("theirs")
        async with group(cluster, set(), {"theirs"}) as both:
            first, second = both.members
            under_way, answered = asyncio.Event(), asyncio.Event()

            async def refused(*_: Any, **__: Any) -> BindResult:
                under_way.set()
                await answered.wait()
                return BindResult(BindOutcome.UNAVAILABLE)

            with monkeypatch.context() as patch:
                patch.setattr(second.binder, "_bind", refused)
                patch.setattr(second.binder, "_begin", lambda *_: False)
                await cluster.add_pod("p")
                await asyncio.wait_for(under_way.wait(), 10)
                # As when its home has ended: the queue here has looked at it before it is known what became of it.
                both.settle([1])
                await until(lambda: second.queue.pending().active == 0)
            answered.set()
            assert await placed(cluster, "p") == {"p": "theirs"}
            await until(lambda: first.ledger.assumed == second.ledger.assumed == 0)
            both.check()


async def test_pods_with_rules_about_other_pods_are_decided_by_one_process_a_namespace() -> None:
    async with embedded_cluster() as cluster:
        for name in ("one", "two"):
            await cluster.add_node(name, labels={"zone": "z"})
        apart = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        async with group(cluster, {"one"}, {"two"}) as both:
            both.settle([0, 1])
            for number in range(8):
                await cluster.add_pod(f"p{number}", labels={"app": "a"}, affinity=affinity)
            await until(lambda: sum(each.queue.pending().unschedulable for each in both.members) == 7)
            assert len(await cluster.placed()) == 1


async def test_room_that_is_kept_for_a_pod_of_another_process_is_not_given_away() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n", cpu="1")
        async with group(cluster, set(), {"n"}) as both:
            for name, value in (("low", 1), ("high", 10)):
                await cluster.ask(
                    "POST",
                    "/apis/scheduling.k8s.io/v1/priorityclasses",
                    {"metadata": {"name": name}, "value": value},
                )
            await cluster.add_pod("lesser", cpu="1", priorityClassName="low")
            await placed(cluster, "lesser")
            await cluster.add_pod("greater", cpu="1", priorityClassName="high")
            first, second = both.members
            uid = (await cluster.pods())["greater"]["metadata"]["uid"]
            await until(lambda: first.queue.nominator.node_of(uid) == "n")
            await until(lambda: second.queue.nominator.node_of(uid) == "n")
            both.settle([0, 1])
            for number in range(8):
                await cluster.add_pod(f"rival{number}", cpu="1", priorityClassName="low")
            await until(lambda: sum(each.queue.pending().unschedulable for each in both.members) == 9)
            await cluster.ask("DELETE", f"{PODS}/lesser", {"gracePeriodSeconds": 0})
            assert set(await placed(cluster, "greater")) == {"greater"}
            await until(lambda: not first.queue.nominator and not second.queue.nominator)
