"""The binder between a real queue, ledger and picture of the cluster, with binds whose answers come late, are lost or
lie in ruins: no pod is lost, none is in two places, and no node is given away twice.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.views import page
from agent_scheduler.engine.recount import contradictions
from kube_client.bind import DEFAULT_POLICY, BindOutcome, BindResult, UnknownOutcome
from tests.support.stateful import model_test

from .binder_world import Sent, ServerPod, World

pytestmark = pytest.mark.promise("S1", "S2", "S6", "S7", "L1", "L4")

NODES = ("n0", "n1", "n2")
#: Shapes of `ledger_model`: nodes for two small pods, for more, with a taint, and cordoned.
NODE_SHAPES = (2, 2, 0, 5, 8)
#: One fills a small node's CPU, two need half of it, two want a port, one a zone.
POD_SHAPES = (0, 1, 1, 4, 4, 8)
PODS = tuple(f"p{index}" for index in range(7))

POD = st.sampled_from(PODS)
NODE = st.sampled_from(NODES)
ANY = st.integers(0, 6)
#: What is heard of the news: nothing yet, all but the last of each kind, all; or the watches break.
NEWS = st.sampled_from(["none", "none", "most", "all", "all", "relist"])
#: What happens to a pod meanwhile, what news comes, and how far the loop runs after it: until nothing is ready, once
#: around, or not at all.
THEN = st.sampled_from(
    [
        (happens, news, rounds)
        for rounds in (1000, 1000, 1, 0)
        for news in ("all", "most", "all", "none", "most", "relist")
        for happens in ("", "", "", "", "changed", "deleting", "bound", "bound", "gone", "gated")
    ]
)
#: How many pods are decided, and whether a worker is late.
DECIDED = st.sampled_from([(count, late) for late in (False, True) for count in (2, 0, 1, 3)])
#: What becomes of a bind. Before a slash: whether the server carries it out; behind: what is heard of that. Or
#: none ends, and time passes. `late` is carried out when time passes, but within the minute that a bind may take;
#: `settling`: no answer came, the pod is seen to wait, and only that minute can tell.
ANSWERS = st.sampled_from(
    [
        *["done/true"] * 5,
        "done/unknown",
        "done/unknown",
        "done/raises",
        "lost/unknown",
        "lost/settling",
        "late/settling",
        "lost/raises",
        "lost/unavailable",
        "lost/refused",
        "soon",
        "soon",
        "later",
    ]
)
WAITING = {Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED}


class BinderMachine(RuleBasedStateMachine):
    """The server is the truth, news of it comes late, and everything else is judged by it."""

    @initialize(
        policy=st.sampled_from(ConflictPolicy),
        concurrency=st.integers(1, 3),
        candidates=st.integers(1, 3),
        silent=st.booleans(),
    )
    def start(self, policy: ConflictPolicy, concurrency: int, candidates: int, silent: bool) -> None:
        """`silent`: once the first pods were seen no news comes until the end, as when the server is hardly there."""
        self.world = World(policy, concurrency=concurrency, candidates=candidates)
        self.server = self.world.server
        self.numbers = itertools.count()
        self.silent = False
        for name, shape in zip(NODES, (2, 0), strict=False):
            self.server.set_node(name, shape, 0)
        for name, shape in zip(PODS, POD_SHAPES, strict=False):
            self.a_pod_is_made(name, shape, False, "all")
        self.silent = silent

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if sys.exception() is None:
                self.everything_settles()
        finally:
            self.world.end()

    # -- what happens in the cluster ---------------------------------------------------------------------

    @rule(name=POD, shape=st.sampled_from(POD_SHAPES), gated=st.sampled_from([False, False, True]), news=NEWS)
    def a_pod_is_made(self, name: str, shape: int, gated: bool, news: str) -> None:
        """If its name was taken, the other one is gone."""
        if name in self.server.pods:
            self.server.remove_pod(name)
        self.server.set_pod(ServerPod(name, f"u{next(self.numbers)}", shape, gated=gated))
        self.news_comes(news)

    def name_of(self, pick: int) -> str:
        """Of the pods that are being tried or bound, before all others."""
        world = self.world
        tried = [pod.name for pod in world.cluster.pods.values() if world.queue.where(pod.uid) is Place.IN_FLIGHT]
        return [*tried, *PODS][pick]

    @rule(
        pick=ANY,
        what=st.sampled_from(["gone", "bound", "deleting", "gated", "let in", "changed", "gone"]),
        node=NODE,
        news=NEWS,
    )
    def a_pod_changes(self, pick: int, what: str, node: str, news: str) -> None:
        server, name = self.server, self.name_of(pick)
        pod = server.pods.get(name)
        if pod is None:
            self.a_pod_is_made(name, 0, what == "gated", news)
            return
        if what == "gone":
            server.remove_pod(name)
        elif what == "bound":
            if server.state(name, pod.uid, node) is None:
                server.disturbed.add(node)
                server.strangers.add(pod.uid)
                server.bind(name, pod.uid, node)
        elif what == "deleting":
            server.set_pod(replace(pod, deleting=True))
        elif what == "changed":
            # To a bind that is under way this comes too late: the room was taken for what the pod wanted before.
            server.grown.add(pod.uid)
            shape = POD_SHAPES[(POD_SHAPES.index(pod.shape) + 2) % len(POD_SHAPES)]
            server.set_pod(replace(pod, shape=shape))
        elif pod.pending:
            server.set_pod(replace(pod, gated=what == "gated"))
        self.news_comes(news)

    @rule(name=NODE, shape=st.none() | st.sampled_from(NODE_SHAPES), again=st.booleans(), news=NEWS)
    def a_node_changes(self, name: str, shape: int | None, again: bool, news: str) -> None:
        if again or shape is None:
            self.server.remove_node(name)
        if shape is not None:
            self.server.set_node(name, shape, next(self.numbers) if again else 0)
        self.news_comes(news)

    def news_comes(self, news: str) -> None:
        if self.silent:
            return
        if news == "relist":
            self.world.relist()
        elif news != "none":
            behind = int(news == "most")
            self.world.hear_of_nodes(len(self.server.node_news) - behind)
            self.world.hear_of_pods(len(self.server.pod_news) - behind)

    # -- what the scheduler does -------------------------------------------------------------------------

    @rule(decided=DECIDED, then=THEN, pick=ANY, how=ANSWERS)
    def the_scheduler_works(self, decided: tuple[int, bool], then: tuple[str, str, int], pick: int, how: str) -> None:
        """Some pods are decided, by two workers in turn; something happens; news comes, and only then the binder has
        its turn; a bind ends.

        The first worker may be late: it decides on what it saw before, which may be long outdated.
        """
        (count, late), (happens, news, rounds) = decided, then
        for number in range(count):
            worker = number % 2
            self.world.decide(worker, late=late and worker == 0)
        if happens:
            self.a_pod_changes(pick, happens, NODES[pick % len(NODES)], news)
        else:
            self.news_comes(news)
        self.turn(rounds)
        if how == "soon":
            self.world.time_passes(5.0)
        elif how == "later":
            self.world.time_passes(301.0)
            if not self.silent:
                self.pods_end()
        elif self.world.sent:
            # What is of unknown outcome is refused sooner than others: that is when a refusal says least.
            doubts = [sent for sent in self.world.sent if sent.unknown] if how.startswith("lost") else []
            sent = doubts or self.world.sent
            self.answer(sent[pick % len(sent)], how)
        self.turn(rounds)

    def pods_end(self) -> None:
        """Those that ran are done, and others come in their place."""
        for name, shape in zip(PODS, POD_SHAPES, strict=False):
            pod = self.server.pods.get(name)
            if pod is None or pod.node or pod.deleting:
                self.a_pod_is_made(name, shape, False, "all")

    #: More often than other steps: it is what the binder is about.
    it_works_on = rule(decided=DECIDED, then=THEN, pick=ANY, how=ANSWERS)(
        lambda self, **given: self.the_scheduler_works(**given)
    )
    it_goes_on_working = rule(decided=DECIDED, then=THEN, pick=ANY, how=ANSWERS)(
        lambda self, **given: self.the_scheduler_works(**given)
    )

    def answer(self, sent: Sent, how: str) -> None:
        self.world.sent.remove(sent)
        fate, heard = how.split("/")
        if heard == "raises":
            if fate == "done" and not (sent.unknown and sent.unknown.then):
                self.server.bind(sent.pod.name, sent.pod.uid, sent.node)
            sent.answer.set_exception(RuntimeError("a fault of ours"))
            return
        sent.answer.set_result(self.result(sent, fate, heard))

    def result(self, sent: Sent, fate: str, heard: str) -> BindResult:
        """What `kube_client.bind.bind` would have made of what the server did."""
        bind = sent.pod.name, sent.pod.uid, sent.node
        known = self.server.state(*bind) if sent.unknown else None
        if sent.unknown and sent.unknown.then and known is None:
            # Nothing is sent any more.
            return BindResult(BindOutcome.UNKNOWN, unknown=sent.unknown) if heard == "unknown" else sent.unknown.then
        if known is not None and heard in ("unavailable", "refused", "settling"):
            # An answer to what is of unknown outcome is never about the last request alone.
            return BindResult(known)
        if fate == "late":
            self.server.late.append(bind)
        outcome = self.server.bind(*bind) if fate == "done" else None
        if heard == "settling":
            unknown = UnknownOutcome(self.world.now + DEFAULT_POLICY.settles, BindResult(BindOutcome.UNAVAILABLE))
            return BindResult(BindOutcome.UNKNOWN, unknown=unknown)
        if heard == "unknown":
            return BindResult(BindOutcome.UNKNOWN, unknown=UnknownOutcome(self.world.now + DEFAULT_POLICY.settles))
        return BindResult(outcome or BindOutcome(heard))

    def turn(self, rounds: int) -> None:
        """Let the binder work. Only it takes room now: for pods as they are, and none that is not there."""
        before, known = self.taken(), set(self.world.ledger.placements)
        self.world.turn(rounds)
        for uid, placement in self.world.ledger.placements.items():
            assert uid in known or placement.cls is self.world.cluster.pods[uid].cls
        for (node, resource), amount in self.taken().items():
            if amount > before[node, resource]:
                info = self.world.ledger.node(node)
                assert info is not None, f"room was taken on {node}, which is gone"
                offered = 1 if resource.startswith("port ") else info.allocatable.get(resource, 0)
                assert amount <= offered, f"{node} is over its {resource}"

    def taken(self) -> Counter[tuple[str, str]]:
        """What all pods in the ledger take, added up anew."""
        found: Counter[tuple[str, str]] = Counter()
        for placement in self.world.ledger.placements.values():
            for resource, amount in placement.cls.requests.items():
                found[placement.node_name, resource] += amount
            for port in placement.cls.host_ports:
                found[placement.node_name, f"port {port}"] += 1
        return found

    # -- what always holds -------------------------------------------------------------------------------

    @invariant()
    def every_pod_is_in_exactly_one_place(self) -> None:
        world = self.world
        queue, placements = world.queue, world.ledger.placements
        queue.check_invariants()
        assert contradictions(world.ledger) == []
        waiting = 0
        for uid, pod in world.cluster.pods.items():
            place, placed, truth = queue.where(uid), placements.get(uid), self.server.of(uid)
            waiting += place in WAITING
            if pod.node_name:
                assert placed is not None and placed.node_name == pod.node_name and not placed.assumed
                assert place not in WAITING
            elif not world.cluster.waits(uid):
                assert place not in WAITING
            elif truth is None or not truth.pending:
                # Whoever bound it was told, or the binder was, and the watch has not been yet.
                assert placed is None or place is Place.IN_FLIGHT or not placed.assumed
            elif placed is not None:
                assert placed.assumed and place is Place.IN_FLIGHT
            else:
                assert place is not None, f"{uid} waits at the server and is nowhere"
        counts = queue.pending()
        assert sum(counts) - counts.in_flight == waiting, "the queue has a pod that does not exist"

    @invariant()
    def attempts_are_remembered_of_pods_that_exist(self) -> None:
        """Of those that wait for as long as they wait, and of others until a time that is set."""
        world = self.world
        leaving = world.history._leaving
        assert sorted(leaving.values()) == list(leaving.values())
        for uid in world.history._attempts:
            assert uid in leaving or (world.cluster.waits(uid) and uid in world.cluster.pods), uid
            assert uid in world.cluster.pods or leaving[uid] > world.now

    @invariant()
    def what_we_bound_is_counted(self) -> None:
        """Whether we know that it is bound or not: its room is never given back while the pod stands there."""
        placements = self.world.ledger.placements
        for pod in self.server.pods.values():
            if pod.node and pod.uid not in self.server.strangers:
                placed = placements.get(pod.uid)
                assert placed is not None and placed.node_name == pod.node, f"{pod.uid} is not counted"

    @invariant()
    def every_result_is_under_way_or_has_ended(self) -> None:
        """A popped pod is in flight until its attempt ends, and workers keep none to themselves."""
        world = self.world
        assert world.binder.in_flight == world.queue.pending().in_flight
        assert world.binder._idle.is_set() is (world.binder.in_flight == world.binder._in_doubt)
        # Beside them, binds that the watch has not shown are looked for, or one of them is sent again.
        assert len(world.sent) + len(world.sleepers) - world.idle_sleepers <= world.binder.in_flight
        assumed = {uid for uid, each in world.ledger.placements.items() if each.assumed}
        assert len(assumed) == world.ledger.assumed
        for uid in assumed:
            assert world.queue.where(uid) is Place.IN_FLIGHT, f"nobody will ever free the room of {uid}"
        assert world.reports.failures == []

    # -- the end -----------------------------------------------------------------------------------------

    def everything_settles(self) -> None:
        """Once the server answers and news arrives, nothing is under way and every pod is where it belongs."""
        world, server = self.world, self.server
        for _ in range(200):
            self.silent = False
            self.news_comes("all")
            world.time_passes(11.0)
            while world.decide(0, late=False):
                pass
            self.turn(1000)
            for sent in list(world.sent):
                self.answer(sent, "done/true")
            self.turn(1000)
            counts = world.queue.pending()
            if not (server.pod_news or counts.active or counts.backoff or counts.in_flight):
                break
        else:
            waiting = [page(world.queue, place, 100) for place in Place]
            raise AssertionError(f"nothing settles: {world.queue.pending()}, {waiting}")
        # What was refused on an outdated picture has its next turn after a while.
        if world.queue.pending().unschedulable and world.now < 1e6:
            world.time_passes(1e6)
            self.everything_settles()
            return
        self.nothing_is_under_way()
        picture = server.picture()
        for pod in server.pods.values():
            place, placed = world.queue.where(pod.uid), world.ledger.placements.get(pod.uid)
            if pod.node:
                assert place is None and placed is not None and placed.node_name == pod.node
            elif pod.deleting:
                assert place is None
            elif pod.gated:
                assert place is Place.GATED and placed is None
            else:
                assert place is Place.UNSCHEDULABLE and placed is None
                assert not picture.feasible(pod.shape), f"{pod.name} waits, and there is room for it"
        uids = {pod.uid for pod in server.pods.values()}
        assert world.cluster.pods.keys() == uids and world.ledger.placements.keys() <= uids

    def nothing_is_under_way(self) -> None:
        world = self.world
        assert world.binder.in_flight == world.ledger.assumed == 0
        assert not world.sent and len(world.sleepers) == world.idle_sleepers
        drained = world.loop.create_task(world.binder.drained())
        self.turn(1000)
        assert drained.done(), "the binder does not know that it is idle"
        assert world.reports.attempts["scheduled"] == len(world.messages.scheduled_uids)


TestBinderModel = model_test(BinderMachine, examples=150, steps=50)
