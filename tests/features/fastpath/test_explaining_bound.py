"""The explanations of pods with a node: the decision as it was, and the scores as of now without the pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.engine.state.gpus import RESOURCE as GPUS
from agent_scheduler.fastpath import explaining
from agent_scheduler.serving.explanation import render
from tests.support.device_cluster import devices
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.native import native_gangs
from tests.support.objects import container, node
from tests.support.running import Running, scheduling, settings_from
from tests.support.shared import decides_on, scheduler, shared_cluster
from tests.support.transports import Faulty, Held

from .preempting import full

PACKED = """
profiles:
  - schedulerName: agent-scheduler
    plugins: {score: {disabled: [{name: NodeResourcesFit}], enabled: [{name: NodeResourcesFit, weight: 5}]}}
    pluginConfig:
      - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}}
"""


async def page(running: Running, name: str) -> dict[str, Any]:
    """Return the page of a pod once the watch has shown its node."""

    def found() -> dict[str, Any] | None:
        answer = running.fast_path.explainer.pod("default", name)
        return answer if answer["place"] == explaining.BOUND and not answer["why"] else None

    answer: dict[str, Any] = await until(found)
    assert render(answer)
    return answer


async def placement(running: Running, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await page(running, name))["placement"]
    return found


async def nodes(cluster: EmbeddedCluster, **cpu: str) -> None:
    for name, amount in cpu.items():
        await cluster.add_node(name, cpu=amount)


async def test_a_bound_pod_is_told_with_its_candidates_and_its_scores_as_if_it_were_not_there() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, n1="4", n2="8", n3="1", n4="4")
        async with scheduling(cluster.transport) as running:
            await cluster.add_pod("p", cpu="2")
            found = await placement(running, "p")
            assert (found["node"], found["attempt"], found["by"]) == ("n1", 1, "worker 0")
            assert not found["nominated"]
            assert found["candidates"] == [
                {"node": "n1", "below": 0, "since": "unchanged"},
                {"node": "n4", "below": 0, "since": "unchanged"},
                {"node": "n2", "below": 13, "since": "unchanged"},
            ]
            now = found["now"]
            assert (now["nodes"], now["feasible"], now["note"]) == (4, 3, "")
            assert [(each["plugin"], each["reasons"]) for each in now["plugins"]] == [
                ("NodeResourcesFit", {"Insufficient cpu": 1})
            ]
            # No candidate has changed, so the scores are those of the decision.
            assert now["weights"] == {"TaintToleration": 3, "NodeResourcesFit": 1}
            assert [(each["node"], each["total"], each["scores"]) for each in now["best"]] == [
                ("n1", 325, {"TaintToleration": 300, "NodeResourcesFit": 25}),
                ("n4", 325, {"TaintToleration": 300, "NodeResourcesFit": 25}),
                ("n2", 312, {"TaintToleration": 300, "NodeResourcesFit": 12}),
            ]
            await nodes(cluster, n5="2", n6="2", n7="2")
            await cluster.ask("DELETE", "/api/v1/nodes/n2")
            await cluster.add_pod("r", cpu="1", affinity=_on("n4"))
            await page(running, "r")
            found = await until(lambda: _once_gone(running, "n2"))
            assert [each["since"] for each in found["candidates"]] == ["unchanged", "changed", "gone"]
            # The best nodes now, the chosen one and the candidates that still exist.
            assert [each["node"] for each in found["now"]["best"]] == ["n5", "n6", "n7", "n4", "n1"]
            await cluster.ask("DELETE", "/api/v1/nodes/n1")
            found = await until(lambda: _once_gone(running, "n1"))
            assert found["candidates"][0]["since"] == "gone" and "now" not in found


def _on(name: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


async def _once_gone(running: Running, name: str) -> dict[str, Any] | None:
    return None if name in running.fast_path.ledger.rows else await placement(running, "p")


async def test_a_packed_profile_shows_its_weights_and_the_plugins_that_read_other_nodes_count() -> None:
    async with embedded_cluster() as cluster:
        for name, zone in (("n1", "a"), ("n2", "b")):
            await cluster.add_node(name, cpu="4", labels={"zone": zone})
        await cluster.add_pod("here", cpu="2", scheduler="other", labels={"app": "x"})
        await cluster.bind("here", "n1")
        async with scheduling(cluster.transport, settings_from(PACKED)) as running:
            await cluster.add_pod("packed", cpu="1")
            found = await placement(running, "packed")
            assert found["candidates"][1] == {"node": "n2", "below": 250, "since": "unchanged"}
            assert found["now"]["weights"]["NodeResourcesFit"] == 5
            assert [each["scores"]["NodeResourcesFit"] for each in found["now"]["best"]] == [375, 125]
            text = render(await page(running, "packed"))
            assert "NodeResourcesFit x 5" in text and "  75\n" in text
            apart = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            apart["labelSelector"] = {"matchLabels": {"app": "x"}}
            await cluster.add_pod("apart", cpu="1", labels={"app": "x"}, topologySpreadConstraints=[apart])
            found = await placement(running, "apart")
            assert (found["node"], [each["node"] for each in found["candidates"]]) == ("n2", ["n2"])
            # Without the pod itself, n2 still has none of the pods that it has to be apart from.
            assert [each["node"] for each in found["now"]["best"]] == ["n2"]


async def test_an_explanation_changes_nothing_that_decisions_read() -> None:
    async with embedded_cluster() as cluster:
        for name in ("n1", "n2"):
            await cluster.add_node(name, labels={"kubernetes.io/hostname": name})
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        async with scheduling(cluster.transport) as running:
            for name in ("p", "q"):
                await cluster.add_pod(name, labels={"app": "x"}, affinity=apart)
                await page(running, name)
            ledger = running.fast_path.ledger
            before = (ledger.sequence, ledger.counts_version, dict(ledger.terms.counts), ledger.columns.taken[:])
            found = await placement(running, "q")
            # Its own term does not keep it from its node.
            assert [each["node"] for each in found["now"]["best"]] == [found["node"]]
            assert (
                ledger.sequence,
                ledger.counts_version,
                dict(ledger.terms.counts),
                ledger.columns.taken[:],
            ) == before
            assert len(running.fast_path.binder.past) == 2
            # Views that were kept meanwhile, and the snapshot, are as they would be without it.
            report = await running.fast_path.selfcheck.run()
            assert report.checked and not report.differences, report


async def test_a_pod_that_changes_while_it_is_bound_is_removed_as_it_is_counted() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", labels={"kubernetes.io/hostname": "n1"})
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        transport, held = Faulty(cluster.transport), Held()
        transport.ways["POST", "/binding"] = [held]
        async with scheduling(transport) as running:
            await cluster.add_pod("p", labels={"app": "x"}, affinity=apart)
            await held.came.wait()
            await cluster.patch("/api/v1/namespaces/default/pods/p", {"metadata": {"labels": {"app": "y"}}})
            pods = running.fast_path.cluster.pods
            await until(lambda: any(dict(pod.labels)["app"] == "y" for pod in pods.values()))
            found = running.fast_path.explainer.pod("default", "p")["placement"]
            assert found["now"]["feasible"] == 1
            held.go.set()
            await placement(running, "p")


@pytest.mark.parametrize("what", ["devices", "GPUs"])
async def test_a_pod_with_devices_is_told_with_the_nodes_that_have_them(what: str) -> None:
    async with devices("n1", "n2") as found, scheduling(found.cluster.transport) as running:
        if what == "devices":
            await found.add_template()
            await found.add_pod("p", template="t")
        else:
            for name in ("g1", "g2"):
                await found.cluster.ask("POST", "/api/v1/nodes", node(name, extended={GPUS: "1000"}))
            shares = {GPUS: "700"}
            await found.cluster.add_pod("p", containers=[container(requests=shares, limits=shares)])
        told = await placement(running, "p")
        assert told["by"] == "worker 0"
        best = [each["node"] for each in told["now"]["best"]]
        if what == "devices":
            assert best == [told["node"]] and told["now"]["note"].startswith("the pod keeps its devices")
        else:
            # Without the pod its own share is free again.
            assert best == ["g1", "g2"] and told["now"]["note"] == ""


async def test_a_pod_that_evicted_others_is_told_as_nominated() -> None:
    async with full(initial_backoff=0.05) as world:
        await world.add("high")
        await world.victims()
        await until(lambda: world.nominated("high"))
        await world.cluster.end_pod("low-0")
        assert await world.node_of("high") == "n1"
        found = await page(world.running, "high")
        assert found["placement"]["nominated"] and found["placement"]["attempt"] == 2
        assert "nominated to the node, which came first" in render(found)
        assert [each["result"] for each in found["attempts"]] == ["scheduled", "unschedulable"]


async def test_a_member_of_a_native_gang_is_told_with_its_group() -> None:
    async with native_gangs() as world:
        await world.add_node("n1")
        await world.native_gang("g", 0, minimum=2)
        for name in ("g-0", "g-1"):
            await world.add_pod(name, schedulingGroup={"podGroupName": "g"})
        assert await until(lambda: world.has_placed("g", 2))
        debug = world.runtime.sources().debug
        assert debug is not None
        _, found = debug.explain("default", "g-0")
        assert found["placement"]["by"] == "worker 0, with group g"
        assert found["placement"]["candidates"][0]["below"] == 0


async def test_a_pod_without_a_record_is_told_as_such() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, n1="4", n2="4")
        async with scheduling(cluster.transport) as running:
            for name, scheduler_name in (("theirs", "another"), ("foreign", "agent-scheduler")):
                await cluster.add_pod(name, scheduler=scheduler_name, nodeSelector={"not": "there"})
                await cluster.bind(name, "n2")
            found = await placement(running, "theirs")
            why = "its schedulerName is 'another': another scheduler or the pod's creator chose the node"
            assert found["unknown"] == why and "now" not in found
            found = await placement(running, "foreign")
            assert found["unknown"].startswith(f"the records of this process begin at {found['since']} and lack")
            assert found["now"]["feasible"] == 0
            await cluster.add_pod("p")
            assert (await placement(running, "p"))["by"] == "worker 0"
        async with scheduling(cluster.transport) as running:
            # Another process knows nothing of decisions before it.
            found = await placement(running, "p")
            assert "lack the pod" in found["unknown"] and found["now"]["feasible"] == 2


async def test_a_pod_that_another_scheduler_bound_elsewhere_meanwhile_is_not_told_as_decided_here() -> None:
    async with embedded_cluster() as cluster:
        await nodes(cluster, n1="4", n2="4")
        async with scheduling(cluster.transport) as running:
            binds = running.fast_path.binder._open
            waiting = asyncio.Event()
            begin = running.fast_path.binder._begin

            def late(pod: Any, node_name: str, ended: Any) -> bool:
                waiting.set()
                return False

            async def elsewhere(pod: Any, node_name: str, already_sent: Any) -> Any:
                await cluster.bind("p", "n2")
                return await bind(pod, node_name, already_sent)

            bind, binds.bind_while_it_helps = binds.bind_while_it_helps, elsewhere  # type: ignore[method-assign]
            running.fast_path.binder._begin = late  # type: ignore[assignment]
            await cluster.add_pod("p")
            await waiting.wait()
            found = await placement(running, "p")
            assert found["unknown"].startswith("this process chose n1 at ")
            assert found["unknown"].endswith(", and another one bound the pod to n2")
            running.fast_path.binder._begin = begin


async def test_a_pod_on_a_node_of_another_shard_says_so() -> None:
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n0") as runtime:
        await until(lambda: decides_on(runtime, "n0"))
        await shared.add_pod("p", scheduler="a", nodeSelector={"not": "there"})
        await shared.bind("p", "n1")
        assert runtime.fast_path is not None
        explainer = runtime.fast_path.explainer

        def told() -> dict[str, Any] | None:
            found: dict[str, Any] | None = explainer.pod("default", "p").get("placement")
            return found

        found = await until(told)
        assert found["unknown"].endswith("; n1 is not in the shard of this scheduler")
