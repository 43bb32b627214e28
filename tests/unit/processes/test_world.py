"""A supervisor with its children on one cluster: who binds what, and what becomes of it all when one of them ends."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from agent_scheduler.apiserver.errors import ApiError
from agent_scheduler.apiserver.requests import Disturbance, Request
from agent_scheduler.engine.framework import Profile
from agent_scheduler.fastpath.explaining import Explainer
from agent_scheduler.fastpath.history import History
from agent_scheduler.fastpath.shard import Shard
from agent_scheduler.kube.lease import LeaderElector, boottime
from agent_scheduler.processes import exchange, supervisor
from agent_scheduler.processes.channel import Channel
from agent_scheduler.processes.child import Child
from agent_scheduler.processes.pages import EXPLAIN
from agent_scheduler.processes.wire import Begin, Hello, Lead, Order
from agent_scheduler.serving.http import NotReady
from tests.embedded import EmbeddedCluster, embedded_cluster, until
from tests.regressions.links import Tap
from tests.unit.shards.shared import SharedCluster, lists_shards, shared_cluster

from .world import World, eventually, world

ELECT = """leaderElection:
  leaderElect: true
  resourceName: one
  resourceNamespace: default
  leaseDuration: 6s
  renewDeadline: 5s
  retryPeriod: 100ms
"""
SHARDED = """profiles: [{{schedulerName: a}}]
leaderElection: {{leaseDuration: 6s, renewDeadline: 5s, retryPeriod: 100ms}}
sharding: {{mode: {mode}, leaseNamespace: default, fencePeriod: 1s}}
"""


@pytest.fixture(autouse=True)
def short_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FENCE", 0.3)


async def nodes(cluster: EmbeddedCluster, count: int, **node: Any) -> None:
    for number in range(count):
        await cluster.add_node(f"n{number}", **node)


async def test_a_burst_is_bound_by_all_children_each_on_its_own_nodes() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 6)
        async with world(cluster, 2) as made:
            await made.uses(3, 3)
            names = [f"p{number}" for number in range(40)]
            for name in names:
                await cluster.add_pod(name)
            placed = await made.placed(*names)
            on = Counter(0 if node in made.nodes(0) else 1 for node in placed.values())
            await eventually(lambda: {0: made.outcomes(0), 1: made.outcomes(1)}, dict(on))
            assert min(on.values()) > 0


async def test_pods_for_one_node_are_bound_by_the_child_that_has_it() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 3)
        await cluster.add_node("only", cpu="16", labels={"only": "here"})
        async with world(cluster, 3) as made:
            names = [f"p{number}" for number in range(30)]
            for name in names:
                await cluster.add_pod(name, nodeSelector={"only": "here"})
            assert set((await made.placed(*names)).values()) == {"only"}
            (owner,) = [number for number in range(3) if "only" in made.nodes(number)]
            await eventually(lambda: made.outcomes(owner), 30)
            # A node that nobody but one may use takes as many as it has room for, and the rest is told of all nodes.
            await cluster.add_pod("large", cpu="15", nodeSelector={"only": "here"})
            condition = await until(lambda: cluster.condition("large"))
            assert condition["message"].startswith(
                "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector."
            )


async def test_a_full_cluster_is_filled_to_the_last_pod_whoever_these_are_for() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 3, cpu="1")
        async with world(cluster, 2) as made:
            names = [f"p{number}" for number in range(30)]
            for name in names:
                await cluster.add_pod(name, cpu="100m")
            placed = await made.placed(*names)
            assert set(Counter(placed.values()).values()) == {10}
            await cluster.add_pod("more", cpu="100m")
            assert (await until(lambda: cluster.condition("more")))["reason"] == "Unschedulable"


async def test_a_child_that_dies_in_a_burst_loses_no_pod_and_gets_its_nodes_back() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 6, cpu="2")
        async with world(cluster, 2, "clientConnection: {qps: 100, burst: 1}\n") as made:
            await made.uses(3, 3)
            names = [f"p{number}" for number in range(100)]
            for name in names:
                await cluster.add_pod(name)
            await until(lambda: made.outcomes(1) > 5)
            made.starts[1][-1].kill()
            placed = await made.placed(*names)
            assert max(Counter(placed.values()).values()) <= 20
            await eventually(lambda: len(made.starts[1]), 2)
            await made.uses(3, 3)
            ended = made.supervisor.metrics.children_ended_total
            assert [series.value for series in ended.series.values()] == [0, 1]


async def test_while_a_child_is_away_its_pods_wait_for_the_others_and_its_nodes_for_the_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 4, cpu="1")
        async with world(cluster, 2) as made:
            await made.uses(2, 2)
            theirs = made.nodes(1)
            again: asyncio.Event = asyncio.Event()
            spawn = made.spawn

            async def later(number: int) -> Any:
                await again.wait()
                return await spawn(number)

            monkeypatch.setattr(made.supervisor.children, "_spawn", later)
            made.starts[1][-1].kill()
            # One a node, so that the last ones need the nodes of the child that is away.
            for number in range(4):
                await cluster.add_pod(f"p{number}", cpu="600m")
            placed = await made.placed(*(f"p{number}" for number in range(4)))
            assert len(set(placed.values())) == 4
            assert made.nodes(0) == {"n0", "n1", "n2", "n3"}
            assert theirs < made.nodes(0)
            again.set()
            await eventually(lambda: len(made.starts[1]), 2)
            await made.uses(2, 2)


async def test_nodes_that_come_and_go_are_divided_and_pods_go_there() -> None:
    async with embedded_cluster() as cluster, world(cluster, 2) as made:
        await cluster.add_pod("first")
        assert (await until(lambda: cluster.condition("first")))["reason"] == "Unschedulable"
        await nodes(cluster, 4)
        await made.placed("first")
        await made.uses(2, 2)
        for name in sorted(made.nodes(0)):
            await cluster.ask("DELETE", f"/api/v1/nodes/{name}")
        await made.uses(1, 1)


async def test_a_node_changes_hands_only_when_nothing_is_under_way_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_way, answered = asyncio.Event(), asyncio.Event()
    from agent_scheduler.kube import bind

    real = bind.bind

    async def hang(*arguments: Any, **more: Any) -> Any:
        under_way.set()
        await answered.wait()
        return await real(*arguments, **more)

    async with embedded_cluster() as cluster:
        await nodes(cluster, 1)
        async with world(cluster, 2) as made:
            await made.uses(1, 0)
            monkeypatch.setattr("agent_scheduler.kube.bind.bind", hang)
            monkeypatch.setattr("agent_scheduler.kube.bind.begin", lambda *_, **__: False)
            await cluster.add_pod("p")
            await asyncio.wait_for(under_way.wait(), 10)
            shared = made.supervisor.exchange
            # As if others had come that it is to be divided with.
            shared._parts._members = frozenset({1})
            shared._parts._open = None
            shared.go_on()
            await eventually(lambda: made.nodes(0), frozenset())
            await asyncio.sleep(0.2)
            assert made.nodes(1) == frozenset()
            assert shared._parts.holder("n0") is None
            assert shared.under_way(["n0"]) == {"n0"}
            answered.set()
            await made.placed("p")
            await eventually(lambda: made.nodes(1), frozenset({"n0"}))
            shared._parts._members = frozenset({0, 1})


async def test_a_child_writes_no_longer_than_it_was_told_and_binds_again_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        more = "leaderElection: {leaderElect: false, renewDeadline: 400ms, retryPeriod: 100ms, leaseDuration: 1s}\n"
        async with world(cluster, 2, more + "podInitialBackoffSeconds: 0.1\n") as made:
            await made.uses(1, 1)
            now = boottime()
            monkeypatch.setattr(made.supervisor.children, "_until", lambda: now)
            await until(lambda: not any(made.child(number).may_write() for number in (0, 1)))
            names = [f"p{number}" for number in range(4)]
            for name in names:
                await cluster.add_pod(name)
            await asyncio.sleep(0.3)
            assert await cluster.placed() == {}
            monkeypatch.undo()
            await made.placed(*names)


async def test_children_may_write_no_longer_than_the_leases_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[float, float]] = []
    told = Child.told

    def noting(child: Child, order: Order) -> None:
        if isinstance(order, Lead):
            # Renewals only put the end of the leases off.
            said.append((order.until, made.supervisor.leases.until))
        told(child, order)

    monkeypatch.setattr(Child, "told", noting)
    text = ELECT.replace("retryPeriod: 100ms", "retryPeriod: 1s").replace(
        "renewDeadline: 5s", "renewDeadline: 2s"
    )
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        made = World(cluster)
        made.make(2, text)
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        await until(lambda: sum(until > float("-inf") for until, _ in said) >= 6)
        made.supervisor.stop()
        assert await asyncio.wait_for(ending, 30) == 0
    assert [until for until, held in said if until > held] == []


LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"


class Refusals:
    """Of lists of pods: all but the first so many."""

    def __init__(self, *, but: int) -> None:
        self._left = but
        self.count = 0

    def __call__(self, request: Request) -> Disturbance | None:
        if request.path != "/api/v1/pods" or "watch" in request.query:
            return None
        if self._left:
            self._left -= 1
            return None
        self.count += 1
        return Disturbance(error=ApiError(403, "Forbidden", "no"))


async def test_the_leases_are_given_back_when_no_child_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_NOBODY_BEGINS", 0.5)
    # Each child lists them at its start, and not again when it is to take over.
    async with embedded_cluster(disturb=Refusals(but=2)) as cluster:
        await nodes(cluster, 2)
        made = World(cluster)
        made.make(2, ELECT)
        assert await asyncio.wait_for(made.supervisor.run(signals=False), 30) == 1
        lease = await cluster.ask("GET", LEASE)
        assert not lease["spec"].get("holderIdentity")
        assert lease["spec"]["leaseTransitions"] == 0


async def test_who_cannot_list_the_cluster_takes_no_lease() -> None:
    refusals = Refusals(but=0)
    async with embedded_cluster(disturb=refusals) as cluster:
        made = World(cluster)
        made.make(2, ELECT)
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        # A lease that is free is taken with the first requests; by then each child has tried three times.
        await until(lambda: refusals.count >= 6)
        assert (await cluster.call("GET", LEASE)).status == 404
        made.supervisor.stop()
        assert await asyncio.wait_for(ending, 30) == 0


async def test_a_standby_waits_with_synced_children_and_takes_over() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2, ELECT) as first:
            await cluster.add_pod("one")
            await first.placed("one")
            second = World(cluster)
            made = asyncio.create_task(_stand_by(cluster, second))
            await until(lambda: second.starts and len(second.supervisor._synced) == 2)
            assert second.supervisor._problem() is None
            assert not second.supervisor.exchange.begun
            assert not any(second.child(number).may_write() for number in (0, 1))
            first.supervisor.stop()
            await cluster.add_pod("two")
            await second.placed("two")
            second.supervisor.stop()
            assert await made == 0


async def _stand_by(cluster: EmbeddedCluster, made: World) -> int:
    made.make(2, ELECT)
    return await made.supervisor.run(signals=False)


async def test_a_lease_that_is_lost_ends_all_children_and_the_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        made = World(cluster)
        made.make(2, ELECT)
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        await eventually(lambda: made.supervisor.exchange.begun, True)
        monkeypatch.setattr(LeaderElector, "leading", property(lambda _self: False))
        assert await asyncio.wait_for(ending, 10) == 1
        await until(lambda: all(start.task.done() for starts in made.starts.values() for start in starts))


async def test_another_configuration_reaches_all_children_and_those_that_start_later() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2) as made:
            await made.uses(1, 1)
            made.supervisor._apply(made.configuration("profiles: [{schedulerName: other}]\n", 2))
            names = [f"p{number}" for number in range(6)]
            for name in names:
                await cluster.add_pod(name, scheduler="other")
            await made.placed(*names)
            made.starts[0][-1].kill()
            made.starts[1][-1].kill()
            await eventually(lambda: [len(starts) for starts in made.starts.values()], [2, 2])
            await cluster.add_pod("later", scheduler="other")
            await made.placed("later")


async def test_limits_of_requests_are_for_all_children_together() -> None:
    text = "clientConnection: {qps: 30}\nbindConcurrency: 5\nstatusWrites: {qps: 10, burst: 3}\n"
    async with embedded_cluster() as cluster, world(cluster, 2, text) as made:
        for number in (0, 1):
            runtime = made.child(number).runtime
            assert runtime is not None
            settings = runtime._settings
            assert (settings.binds.qps, settings.binds.burst, settings.binds.concurrency) == (15, 30, 3)
            assert (settings.status_writes.qps, settings.status_writes.burst) == (5, 2)


async def test_pages_are_of_all_children_together() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2) as made:
            await made.uses(1, 1)
            for number in range(10):
                await cluster.add_pod(f"w{number}", cpu="99")
            sources = made.supervisor._asking.sources(
                own=made.supervisor.metrics.exposition,
                configuration=dict,
                problem=lambda: None,
                leases=lambda: None,
            )
            assert sources.queue is not None and sources.explain is not None and sources.cache is not None
            from agent_scheduler.serving.http import DebugQuery

            async def all_wait() -> bool:
                page = await sources.queue(DebugQuery())  # type: ignore[misc]
                return page.summary["pending"]["unschedulable"] == 10

            await until(all_wait)
            page = await sources.queue(DebugQuery(limit=3))  # type: ignore[misc]
            assert {item["process"] for item in page.items} == {0, 1}
            for number in range(10):
                known, told = await sources.explain("default", f"w{number}")  # type: ignore[misc]
                assert known and told["place"] == "unschedulable" and told["attempts"]
                assert told["process"] in (0, 1)
            known, told = await sources.explain("default", "nobody")  # type: ignore[misc]
            assert not known
            page = await sources.cache(DebugQuery())  # type: ignore[misc]
            assert page.summary["nodes"] == 2
            assert page.summary["processes"].keys() == {"0", "1"}
            body, _ = await sources.metrics()  # type: ignore[misc]
            text = body.decode()
            assert text.count("# TYPE scheduler_pending_pods gauge\n") == 1
            for process in ("0", "1"):
                assert f'scheduler_pending_pods{{process="{process}",queue="unschedulable"}}' in text
            assert 'agent_scheduler_children_ended_total{process="supervisor",child="0"} 0.0' in text


async def test_a_hard_shard_is_divided_and_given_back_only_when_no_child_uses_it() -> None:
    async with shared_cluster(5) as shared:
        await shared.desire("a", ["n0", "n1", "n2", "n3"])
        async with world(shared.cluster, 2, SHARDED.format(mode="hard")) as made:
            await made.uses(2, 2)
            assert await shared.in_use("a") == "n0 n1 n2 n3"
            names = [f"p{number}" for number in range(12)]
            for name in names:
                await shared.cluster.add_pod(name, scheduler="a", cpu="1")
            assert "n4" not in set((await made.placed(*names)).values())
            await shared.desire("a", ["n2", "n3"])
            await until(lambda: shared.uses("a", "n2 n3"))
            await made.uses(1, 1)
            await shared.cluster.add_pod("large", scheduler="a", cpu="3500m")
            condition = await until(lambda: shared.cluster.condition("large"))
            assert "3 node isn't in scheduler node shard" in condition["message"]
            await shared.delete("a")
            await shared.cluster.add_pod("lost", scheduler="a")
            condition = await until(lambda: shared.cluster.condition("lost"))
            assert condition["reason"] == "NodeShardNotReady"
            await shared.desire("a", ["n4"])
            await made.placed("large", "lost")
        # In good order: nobody has to wait for a fence.
        assert await shared.in_use("a") == ""


def _writes_a_condition(request: Request) -> bool:
    return request.method == "PATCH" and "/pods/" in request.path


@pytest.mark.parametrize("mode", ["soft", "hard"])
async def test_pods_that_wait_at_the_start_are_tried_when_it_is_known_which_nodes_are_ours(mode: str) -> None:
    tap = Tap()
    async with shared_cluster(4, disturb=tap) as shared:
        await shared.desire("a", ["n0", "n1"])
        names = [f"p{number}" for number in range(20)]
        for name in names:
            await shared.cluster.add_pod(name, scheduler="a")
        # What is claimed is used only when the shards have been read once more.
        tap.harm = lambda request: Disturbance(delay=0.3) if lists_shards(request) else None
        async with world(shared.cluster, 2, SHARDED.format(mode=mode)) as made:
            assert set((await made.placed(*names)).values()) <= {"n0", "n1"}
        assert tap.count(_writes_a_condition) == 0


async def test_children_of_one_that_may_not_read_the_shards_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.shards.coordinator._UNSETTLED", 0.5)
    tap = Tap()
    tap.harm = lambda request: (
        Disturbance(error=ApiError(403, "Forbidden", "no")) if lists_shards(request) else None
    )
    async with shared_cluster(2, disturb=tap) as shared:
        await shared.desire("a", ["n0"])
        await shared.cluster.add_pod("p", scheduler="a")
        async with world(shared.cluster, 2, SHARDED.format(mode="hard")) as made:
            condition = await until(lambda: shared.cluster.condition("p"))
            assert condition["reason"] == "NodeShardNotReady"
            tap.harm = lambda request: None
            assert await made.placed("p") == {"p": "n0"}


async def test_a_soft_shard_comes_first_and_other_nodes_when_none_of_it_will_do() -> None:
    async with shared_cluster(4) as shared:
        await shared.desire("a", ["n0", "n1"])
        async with world(shared.cluster, 2, SHARDED.format(mode="soft")) as made:
            await made.uses(2, 2)
            assert {len(made.nodes(number) & {"n0", "n1"}) for number in (0, 1)} == {1}
            names = [f"p{number}" for number in range(8)]
            for name in names:
                await shared.cluster.add_pod(name, scheduler="a", cpu="1")
            assert set((await made.placed(*names)).values()) == {"n0", "n1"}
            more = [f"q{number}" for number in range(8)]
            for name in more:
                await shared.cluster.add_pod(name, scheduler="a", cpu="1")
            placed = await made.placed(*more)
            assert {placed[name] for name in more} == {"n2", "n3"}


async def test_a_silent_child_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_scheduler.processes import children

    monkeypatch.setattr(children, "_SILENCE", 0.5)
    more = (
        "leaderElection: {leaderElect: false, renewDeadline: 400ms, retryPeriod: 100ms, leaseDuration: 1s}\n"
    )
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2, more) as made:
            await made.uses(1, 1)
            made.starts[1][-1].way.told = lambda order: None
            await eventually(lambda: len(made.starts[1]), 2)
            await made.uses(1, 1)
            assert len(made.starts[0]) == 1


async def test_two_who_share_nodes_by_shards_may_both_be_several_processes() -> None:
    async with shared_cluster(4) as shared:
        await shared.desire("a", ["n0", "n1", "n2", "n3"])
        await shared.desire("b", [])
        async with (
            world(shared.cluster, 2, SHARDED.format(mode="hard")) as one,
            world(shared.cluster, 2, SHARDED.format(mode="hard").replace("Name: a", "Name: b")) as two,
        ):
            await one.uses(2, 2)
            await _hand_over(shared)
            await one.uses(1, 1)
            await two.uses(1, 1)
            mine = one.nodes(0) | one.nodes(1)
            theirs = two.nodes(0) | two.nodes(1)
            assert (mine, theirs) == ({"n2", "n3"}, {"n0", "n1"})


async def _hand_over(shared: SharedCluster) -> None:
    await shared.desire("b", ["n0", "n1"])
    await shared.desire("a", ["n2", "n3"])
    await until(lambda: shared.uses("b", "n0 n1"))


async def test_nothing_is_said_to_a_child_before_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    made: World
    over = Channel.over

    async def and_others_speak(channel: Channel[Any], end: socket.socket) -> None:
        await over(channel, end)
        made.supervisor.children.say_to_all(Lead(0.0))

    monkeypatch.setattr(Channel, "over", and_others_speak)
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        made = World(cluster)
        made.make(2)
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        await made.uses(1, 1)
        made.supervisor.stop()
        assert await asyncio.wait_for(ending, 30) == 0


async def test_a_configuration_that_changes_while_children_start_is_what_they_begin_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        made = World(cluster)
        made.make(2)
        supervisor = made.supervisor
        hello, loop = supervisor._hello, asyncio.get_running_loop()

        def and_then_another(number: int) -> Hello:
            if not made.starts[number][:-1]:
                other = made.configuration("profiles: [{schedulerName: other}]\n", 2)
                loop.call_soon(supervisor._apply, other)
            return hello(number)

        monkeypatch.setattr(supervisor.children, "_hello", and_then_another)
        ending = asyncio.create_task(supervisor.run(signals=False))
        await made.uses(1, 1)
        assert [len(starts) for starts in made.starts.values()] == [1, 1]
        names = [f"p{number}" for number in range(6)]
        for name in names:
            await cluster.add_pod(name, scheduler="other")
        await made.placed(*names)
        supervisor.stop()
        assert await asyncio.wait_for(ending, 30) == 0


async def test_a_child_that_is_being_started_when_all_are_to_end_holds_nobody_up() -> None:
    async with embedded_cluster() as cluster:
        made = World(cluster)
        made.make(2)
        spawn, starting, go_on = made.spawn, asyncio.Event(), asyncio.Event()

        async def slowly(number: int) -> Any:
            starting.set()
            await go_on.wait()
            return await spawn(number)

        made.supervisor.children._spawn = slowly  # type: ignore[assignment]
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        await starting.wait()
        made.supervisor.stop()
        await asyncio.sleep(0.05)
        go_on.set()
        assert await asyncio.wait_for(ending, 5) == 0
        assert all(start.task.done() for starts in made.starts.values() for start in starts)


async def test_children_may_write_as_soon_as_they_are_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    could: list[bool] = []
    told = Child.told

    def and_could_write(self: Child, order: Order) -> None:
        told(self, order)
        if isinstance(order, Begin):
            could.append(self.may_write())

    monkeypatch.setattr(Child, "told", and_could_write)
    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2, ELECT):
            second = World(cluster)
            made = asyncio.create_task(_stand_by(cluster, second))
            await until(lambda: second.starts and len(second.supervisor._synced) == 2)
        await eventually(lambda: second.supervisor.exchange.begun, True)
        assert could == [True] * 4
        second.supervisor.stop()
        assert await made == 0


async def test_a_page_that_breaks_ends_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a plugin of theirs broke")

    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2) as made:
            await made.uses(1, 1)
            asking = made.supervisor._asking
            monkeypatch.setattr(Explainer, "pod", broken)
            with pytest.raises(NotReady, match="RuntimeError: a plugin of theirs broke"):
                await asking.ask(EXPLAIN, {"namespace": "default", "name": "p"})
            # What cannot be said, neither.
            monkeypatch.setattr(Explainer, "pod", lambda *_: {"place": "nowhere", "number": 1 << 70})
            with pytest.raises(NotReady, match="OverflowError"):
                await asking.ask(EXPLAIN, {"namespace": "default", "name": "p"})
            await cluster.add_pod("p")
            await made.placed("p")
            assert [len(starts) for starts in made.starts.values()] == [1, 1]


async def test_nodes_that_are_still_caught_up_with_hold_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Shard, version: str) -> None:
        await asyncio.get_running_loop().create_future()

    clock = asyncio.get_running_loop().time
    async with embedded_cluster() as cluster:
        await nodes(cluster, 4)
        async with world(cluster, 2) as made:
            await made.uses(2, 2)
            monkeypatch.setattr(Shard, "catch_up", never)
            made.starts[1][-1].kill()
            await until(lambda: made.child(0)._coming or made.child(1)._coming)
            began = clock()
        assert clock() < began + 5


async def test_a_configuration_whose_plugins_break_is_heard_of_by_no_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Profile) -> Any:
        raise RuntimeError("a plugin of theirs broke")

    async with embedded_cluster() as cluster:
        await nodes(cluster, 2)
        async with world(cluster, 2) as made:
            await made.uses(1, 1)
            with monkeypatch.context() as patch:
                patch.setattr(Profile, "hint_map", broken)
                with pytest.raises(RuntimeError, match="a plugin of theirs broke"):
                    made.supervisor._apply(made.configuration("candidateNodeCount: 1\n", 2))
                await asyncio.sleep(0.1)
            await cluster.add_pod("p")
            await made.placed("p")
            assert [len(starts) for starts in made.starts.values()] == [1, 1]
            made.starts[0][-1].kill()
            await eventually(lambda: len(made.starts[0]), 2)
            await made.uses(1, 1)
            runtime = made.child(0).runtime
            assert runtime is not None and runtime._settings.candidates != 1


async def test_no_pod_is_tried_before_it_is_known_whose_it_is() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n0")
        for name, cpu in (("p0", "100m"), ("p1", "100m"), ("hopeless", "99")):
            await cluster.add_pod(name, cpu=cpu)
        made = World(cluster)
        made.make(2)
        spawn, go_on = made.spawn, asyncio.Event()

        def history(number: int) -> History:
            fast_path = made.child(number)._fast_path
            assert fast_path is not None
            return fast_path.history

        async def later(number: int) -> Any:
            if number == 1:
                await go_on.wait()
            return await spawn(number)

        made.supervisor.children._spawn = later  # type: ignore[assignment]
        ending = asyncio.create_task(made.supervisor.run(signals=False))
        await until(lambda: 0 in made.supervisor.exchange.members)
        await asyncio.sleep(0.2)
        assert await cluster.condition("hopeless") is None
        assert len(history(0)) == 0
        go_on.set()
        await made.placed("p0", "p1")
        await until(lambda: cluster.condition("hopeless"))
        uid = (await cluster.pods())["hopeless"]["metadata"]["uid"]
        assert sorted(bool(history(number).of(uid)) for number in (0, 1)) == [False, True]
        made.supervisor.stop()
        assert await asyncio.wait_for(ending, 30) == 0
