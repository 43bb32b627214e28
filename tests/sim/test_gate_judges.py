"""The judges of worlds with gates see a scheduler that breaks what it promises of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.queue_admission import QueueAdmission
from agent_scheduler.cluster.gang_choice import GangChoice
from agent_scheduler.engine.session import written
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.gatedpods import Choice, GatedPods
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage
from embedded_kubernetes.autoscaler import Autoscaler

from .judging import found
from .world import Options, World, run

#: What leads to the moments at which most can go wrong.
_FAULTS = (
    *("crash", "queue_changed", "group_changed", "members_deleted", "webhook_down", "lost_after", "denied"),
    *("recreated", "bound_elsewhere", "node_again", "sigterm"),
)


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        *((seed, _FAULTS) for seed in range(100, 104)),
        # A gang lacks a role.
        (29, ()),
        # Members above the minimum of a gang that waits for release.
        (43, None),
        # Claims of some members of a gang.
        (267, None),
        # Others have what was left in a queue.
        (1795600968032, None),
        # More is reserved than there is.
        (1795599493070, None),
        # Gates are off, and no room is kept for who had one.
        (5003240, None),
    ],
)
def test_all_is_well_in_what_they_see_otherwise(seed: int, faults: tuple[str, ...] | None) -> None:
    assert not run(Options(seed=seed, scenario="gates", faults=faults)).violations


@pytest.mark.parametrize(
    "state",
    [
        "gate that comes late",
        "pod came without its gate after a timeout",
        "pod refused as the webhook was late",
    ],
)
def test_a_slow_webhook_has_its_effects(state: str) -> None:
    for seed in range(12):
        world = World(Options(seed=seed, scenario="gates", faults=("webhook_slow",)))
        assert not world.run().violations
        if world.states.seen[state]:
            return
    pytest.fail(f"no world reached: {state}")


@pytest.mark.parametrize(("scenario", "native"), [("gates", False), ("gates-native", True)])
def test_half_a_gang_that_is_let_past_is_seen(
    monkeypatch: pytest.MonkeyPatch, scenario: str, native: bool
) -> None:
    choose = GangChoice.__call__

    def half(self: GangChoice, key: Any, gated: Collection[PodInfo], reserved: Any) -> Choice | None:
        choice = choose(self, key, gated, reserved)
        if choice is None or len(choice.needed) < 2 or key.native is not native:
            return choice
        return Choice(choice.needed[:1], (), choice.at_least)

    monkeypatch.setattr(GangChoice, "__call__", half)
    assert "whose gang has" in found(scenario, "S32:")


def test_a_pod_that_is_let_past_into_a_full_queue_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    put = GatedPods._put

    def at_once(self: GatedPods, key: Any, members: Any) -> None:
        put(self, key, members)
        self.let_past([*self._waits_as.get(key, ())])

    monkeypatch.setattr(GatedPods, "_put", at_once)
    assert "would have" in found("gates", "S32:")


def test_a_gate_of_who_did_not_ask_is_seen_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = QueueUsage.seen

    def let_past_anybody(self: QueueUsage, pod: PodInfo) -> None:
        seen(self, pod)
        if pod.gates and not (pod.batch is not None and pod.batch.gate_managed):
            self.gated.on_admitted([pod])

    monkeypatch.setattr(QueueUsage, "seen", let_past_anybody)
    assert "asks: False" in found("gates", "S32:", faults=("webhook_lies",))


def test_a_full_queue_that_asks_for_nodes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unschedulable(self: FailureHandler, entry: Any, pod: PodInfo, short: Any, *, started: float) -> None:
        self._failed(entry, pod, "Unschedulable", str(short), plugins={"NodeResourcesFit"}, started=started)

    monkeypatch.setattr(FailureHandler, "queue_full", unschedulable)
    monkeypatch.setattr(written, "_held_by_queue", lambda *_: {})
    assert "says Unschedulable" in found("gates", "S33:")


def test_pods_that_ask_for_nodes_while_a_queue_has_lost_its_parent_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written, "_asking_queues", lambda *_: [])
    assert "lies in above-1" in found("gates", "L17:", faults=None, first=5003273)


def test_a_reservation_that_is_forgotten_at_a_restart_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    set_pod = GatedPods.set

    def forgetful(self: GatedPods, pod: PodInfo) -> None:
        if pod.gates or pod.uid in self:
            set_pod(self, pod)

    monkeypatch.setattr(GatedPods, "set", forgetful)
    assert "keeps no room" in found("gates", "S34:", faults=("webhook_down", "crash"))


def test_gates_that_are_left_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_args: Any) -> None:
        pass

    monkeypatch.setattr(QueueAdmission, "_remove", never)
    assert "behind" in found("gates", "L17:")


def test_pods_that_wait_for_one_another_s_reservations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.quotas.book._covers", lambda *_: False)
    assert "nodes to come" in found("gates", "L17:", faults=("webhook_down",), first=11)


def test_pods_for_which_no_node_comes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Autoscaler, "_scale_up", lambda *_: None)
    assert "to come" in found("gates", "L17:")


# -- gangs of Kubernetes' own groups


def test_a_gang_that_asks_one_of_its_queues_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for = QueueUsage.wait_for

    def for_one(self: QueueUsage, name: str, wanted: Any, first: PodInfo) -> None:
        queue = self.queue_of(first)
        wait_for(self, name, {queue: wanted[queue]} if queue in wanted else wanted, first)

    monkeypatch.setattr(QueueUsage, "wait_for", for_one)
    assert "would have" in found("gates-native", "S32:", first=42)


def test_a_gang_of_the_fast_path_that_is_not_asked_as_a_whole_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QueueUsage, "gang_full", lambda *_: None)
    assert "and of its gang queue" in found("gates-native", "S33:", faults=None, first=115)


def test_words_of_a_gang_that_are_true_no_more_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KubeMessenger.refused

    def of_others(self: KubeMessenger, pod: PodInfo, reason: str, message: str, **more: Any) -> None:
        if reason != "QueueFull" or pod.group is None or not pod.group.native:
            refused(self, pod, reason, message, **more)

    monkeypatch.setattr(KubeMessenger, "refused", of_others)
    options = Options(seed=76, scenario="gates-native", faults=("queue_changed",))
    assert any("has no room for its gang" in each for each in run(options).violations)


def test_gates_that_are_left_on_a_gang_of_kubernetes_own_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    group_of = GangChoice._group

    def unknown(self: GangChoice, key: Any, gated: Collection[PodInfo]) -> Any:
        return None if key.native else group_of(self, key, gated)

    monkeypatch.setattr(GangChoice, "_group", unknown)
    assert "of scheduling.k8s.io/" in found("gates-native", "L17:")


def test_a_gang_of_kubernetes_own_for_which_no_node_comes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = FailureHandler.unschedulable

    def quiet(self: FailureHandler, entry: Any, pod: PodInfo, refusal: Any, **more: Any) -> Any:
        if pod.group is None or not pod.group.native:
            return tell(self, entry, pod, refusal, **more)
        return self._failed(entry, pod, "Waiting", "", plugins=refusal.plugins, started=more["started"])

    monkeypatch.setattr(FailureHandler, "unschedulable", quiet)
    assert "of scheduling.k8s.io/" in found("gates-native", "L17:", first=15)


def test_part_of_a_gang_of_kubernetes_own_that_is_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Binder.commit_group

    def any_number(self: Binder, members: Any, minimum: int, admission: Any) -> Any:
        return commit(self, members, 0, admission)

    monkeypatch.setattr(Binder, "commit_group", any_number)
    monkeypatch.setattr(
        "agent_scheduler.fastpath.gangs.is_feasible",
        lambda tried: any(each.node_name for each in tried) and not any(each.attempt for each in tried),
    )
    assert "binds a member of scheduling.k8s.io/" in found("gates-native", "S27:")


def test_a_reservation_of_a_gang_of_kubernetes_own_that_is_forgotten_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_pod = GatedPods.set

    def forgetful(self: GatedPods, pod: PodInfo) -> None:
        if pod.gates or pod.uid in self or pod.group is None or not pod.group.native:
            set_pod(self, pod)

    monkeypatch.setattr(GatedPods, "set", forgetful)
    assert "keeps no room" in found("gates-native", "S34:", faults=("webhook_down", "crash"))


def test_room_that_is_given_back_and_still_counts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueUsage, "unreserve", lambda *_: None)
    assert "given its room back" in found("gates-native", "S34:", first=4)


def test_groups_of_either_kind_that_are_taken_for_one_another_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupKey, "text", property(lambda self: f"{self.namespace}/{self.name}"))
    assert found("gates-native")
