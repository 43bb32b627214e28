"""The fast path with the embedded API: created pods are bound correctly, and its reports are complete."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from agent_scheduler.engine.decide.capacity_classes import CapacityClasses
from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.framework.plugin import Depends
from agent_scheduler.engine.state.columns import Columns
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import AGENT, SETTINGS, raising_for_some, scheduling


async def test_a_pod_is_bound_and_people_are_told() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1")
        pod = await cluster.add_pod("a")
        await until(cluster.placed)
        condition = await cluster.condition("a")
        assert condition is not None and condition["status"] == "True"
        await running.stop()
        events = (await cluster.ask("GET", "/api/v1/namespaces/default/events"))["items"]
        assert [(each["reason"], each["message"], each["type"]) for each in events] == [
            ("Scheduled", "Successfully assigned default/a to n1", "Normal")
        ]
        assert events[0]["involvedObject"]["uid"] == pod["metadata"]["uid"]
        assert running.reports.attempts == {"scheduled": 1}


async def test_the_first_pod_does_not_pay_for_a_look_at_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look_at_all = CapacityClasses._look_at_all

    def look(self: CapacityClasses, columns: Columns) -> None:
        looks.append(columns.size)
        look_at_all(self, columns)

    monkeypatch.setattr(CapacityClasses, "_look_at_all", look)
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1")
        async with scheduling(cluster.transport):
            looks.clear()
            await cluster.add_pod("a")
            await until(cluster.placed)
            assert looks == []


@pytest.mark.promise("S3", "L2")
async def test_only_pods_that_name_this_scheduler_are_answered_for_but_all_are_counted() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="2")
        await cluster.add_pod("foreign", cpu="1500m", scheduler="default-scheduler")
        await cluster.bind("foreign", "n1")
        async with scheduling(cluster.transport):
            await cluster.add_pod("other", scheduler="another-scheduler")
            await cluster.add_pod("large", cpu="1")
            await cluster.add_pod("small", cpu="500m")
            await until(lambda: cluster.condition("large"))
            await until(lambda: cluster.all_placed(2))
            assert await cluster.placed() == {"foreign": "n1", "small": "n1"}
            assert await cluster.condition("other") is None
            condition = await cluster.condition("large")
            assert condition is not None
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
            assert condition["message"] == (
                "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
                "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
            )


@pytest.mark.promise("L1", "L5")
async def test_a_refused_pod_is_bound_as_soon_as_something_helps_it() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("small", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await cluster.add_pod("third", cpu="2")
        await until(lambda: cluster.condition("third"))
        await until(lambda: cluster.condition("second"))
        await cluster.end_pod("first")
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert (await cluster.placed()) == {"second": "small"}
        await cluster.add_node("large", cpu="8")
        await until(lambda: running.reports.attempts["scheduled"] == 3)
        assert (await cluster.placed())["third"] == "large"
        assert running.reports.counts["after flush"] == 0


async def test_a_condition_that_says_nothing_new_is_not_written_again() -> None:
    async with embedded_cluster() as cluster:
        async with scheduling(cluster.transport, initial_backoff=0.01, max_backoff=0.01) as running:
            await cluster.add_node("n1", cpu="1")
            await cluster.add_pod("large", cpu="2")
            await until(lambda: cluster.condition("large"))
            before = (await cluster.ask("GET", f"{PODS}/large"))["metadata"]["resourceVersion"]
            for index in range(3):
                running.fast_path.queue.activate([pod.uid for pod in running.fast_path.cluster.pods.values()])
                await until(lambda index=index: running.reports.attempts["unschedulable"] >= index + 2)
            assert (await cluster.ask("GET", f"{PODS}/large"))["metadata"]["resourceVersion"] == before
            assert running.reports.counts["status written"] == 1
        # A new scheduler finds the condition already there.
        async with scheduling(cluster.transport) as running:
            await until(lambda: running.reports.attempts["unschedulable"])
            await running.stop()
            assert running.reports.counts["status written"] == 0


async def test_a_pod_whose_cycle_raises_kills_no_worker() -> None:
    profiles = (raising_for_some(Depends.NODE, lambda _: True),)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, profiles=profiles) as running:
        await cluster.add_node("n1")
        await cluster.add_pod("bad", tolerations=[{"key": "boom", "operator": "Exists"}])
        for index in range(5):
            await cluster.add_pod(f"good{index}")
        await until(lambda: cluster.all_placed(5))
        assert {type(error) for error in running.reports.failures} == {ZeroDivisionError}
        condition = await until(lambda: cluster.condition("bad"))
        assert condition["reason"] == "SchedulerError"
        assert condition["message"] == "ZeroDivisionError: boom"
        # An error is no refusal: the pod comes back by itself, after its backoff.
        assert running.fast_path.queue.pending().backoff == 1


async def test_many_workers_never_wait_for_one_another_for_ever() -> None:
    # Room for two results at most, so that nearly all workers wait for room nearly all the time.
    narrow = replace(SETTINGS.binds, concurrency=1)
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="64", pods="1000")
        async with scheduling(cluster.transport, workers=8, binds=narrow) as running:
            for index in range(100):
                await cluster.add_pod(f"p{index}", cpu="10m")
                if index % 10 == 0:
                    await cluster.add_pod(f"large{index}", cpu="100")
                if index % 7 == 0:
                    # A pod that is deleted while it waits, is decided, or is bound.
                    await cluster.add_pod(f"short{index}", cpu="10m")
                    await cluster.end_pod(f"short{index}")
            await until(lambda: cluster.all_placed(100))
            await until(lambda: running.reports.attempts["unschedulable"] >= 10)
            await until(lambda: running.fast_path.binder.in_flight == 0)
            assert running.fast_path.queue.pending().in_flight == 0
            # Closing while all wait ends at once, too.
            await running.stop()


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    "policy", [ConflictPolicy.REVALIDATE, pytest.param(ConflictPolicy.STRICT, marks=pytest.mark.wide)]
)
async def test_eight_workers_fill_ten_nodes_to_the_last_millicore(policy: ConflictPolicy) -> None:
    async with embedded_cluster() as cluster:
        for index in range(10):
            await cluster.add_node(f"n{index}", cpu="4", pods="40")
        async with scheduling(cluster.transport, workers=8, policy=policy, profiles=(AGENT,)) as running:
            for index in range(400):
                await cluster.add_pod(f"p{index}", cpu="100m")
            await until(lambda: running.reports.attempts["scheduled"] == 400, seconds=60)
            placed = await cluster.placed()
            assert Counter(placed.values()) == {f"n{index}": 40 for index in range(10)}
            assert running.reports.outcomes == {"bound": 400}


@pytest.mark.promise("S1")
async def test_under_strict_races_are_lost_and_all_end_well() -> None:
    async with embedded_cluster() as cluster:
        for index in range(200):
            await cluster.add_pod(f"p{index}", cpu="100m")
        for index in range(2):
            await cluster.add_node(f"n{index}", cpu="10")
        async with scheduling(
            cluster.transport, workers=8, policy=ConflictPolicy.STRICT, max_urgent_retries=50
        ) as running:
            await until(lambda: running.reports.attempts["scheduled"] == 200, seconds=60)
            assert running.reports.conflicts > 0
            assert running.reports.urgent[True] > 0
            assert Counter((await cluster.placed()).values()) == {"n0": 100, "n1": 100}
            assert running.reports.revalidated == 0


@pytest.mark.promise("L6")
async def test_stopping_ends_what_is_under_way_and_takes_nothing_new() -> None:
    async with embedded_cluster() as cluster:
        for index in range(300):
            await cluster.add_pod(f"p{index}", cpu="10m")
        await cluster.add_node("n1", cpu="64", pods="1000")
        async with scheduling(cluster.transport) as running:
            await until(lambda: running.reports.outcomes["bound"] > 5)
            await running.stop()
            bound = len(await cluster.placed())
            assert running.fast_path.binder.in_flight == 0
            assert bound == running.reports.outcomes["bound"]
            assert running.reports.counts["event recorded"] == bound
            queue = running.fast_path.queue
            for name in ("late", "later"):
                uid = (await cluster.add_pod(name))["metadata"]["uid"]
                await until(lambda uid=uid: queue.where(uid))
            # A worker that still took pods would have taken the first one when the second came.
            assert queue.pending().in_flight == 0
            assert len(await cluster.placed()) == bound


async def condition_of(cluster: EmbeddedCluster, name: str, **wanted: Any) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        condition = await cluster.condition(name)
        same = condition is not None and all(condition.get(key) == value for key, value in wanted.items())
        return condition if same else None

    found: dict[str, Any] = await until(there)
    return found


async def test_a_condition_names_the_generation_of_the_spec_that_it_was_found_of() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport):
        await cluster.add_node("n1", taints=[{"key": "full", "effect": "NoSchedule"}])
        await cluster.add_pod("p")
        assert (await condition_of(cluster, "p", status="False"))["observedGeneration"] == 1
        toleration = {"spec": {"tolerations": [{"key": "t", "operator": "Exists"}]}}
        await cluster.merge(f"{PODS}/p", toleration)
        assert (await cluster.pods())["p"]["metadata"]["generation"] == 2
        found = await condition_of(cluster, "p", observedGeneration=2)
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")


async def test_preferences_that_cannot_be_read_are_told_as_an_error_of_the_scheduler() -> None:
    term = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["new"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", labels={"gen": "3"})
        await cluster.add_node("n2", labels={"gen": "4"})
        await cluster.add_pod("p", affinity={"nodeAffinity": preferred})
        found = await condition_of(cluster, "p", status="False")
        assert found["reason"] == "SchedulerError"
        assert found["message"] == (
            'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].values[0]: Invalid value: "new": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
        assert running.reports.failures == []
        # The pod is retried after a backoff, and with one node left there is nothing to rank.
        await cluster.ask("DELETE", "/api/v1/nodes/n1")
        await until(cluster.placed)
        assert (await cluster.placed())["p"] == "n2"


async def test_room_that_a_pod_gives_back_as_a_whole_wakes_who_waits_for_it() -> None:
    """A resize in place ends when the kubelet reports the pod's new amounts."""

    def has(cpu: str) -> dict[str, Any]:
        return {"status": {"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}}

    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="4")
        await cluster.add_pod("shrinks", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "4"}})
        await until(cluster.placed)
        await cluster.merge(f"{PODS}/shrinks/status", has("3500m"))
        known = running.fast_path.cluster
        await until(lambda: any(pod.requests.get("cpu") == 3500 for pod in known.pods.values()))
        await cluster.add_pod("waits", cpu="2")
        assert "Insufficient cpu" in (await condition_of(cluster, "waits", status="False"))["message"]
        await cluster.merge(f"{PODS}/shrinks/status", has("1"))
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert (await cluster.placed())["waits"] == "n1"
