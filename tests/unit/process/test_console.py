"""What the console and `agent-scheduler top` are told of a scheduler's process, from its parts as they stand."""

from __future__ import annotations

from typing import Any

from agent_scheduler.objects.batch import WAITING_ROLES
from agent_scheduler.process.scheduler import SchedulerProcess
from tests.features.fastpath.test_runtime import running
from tests.support.embedded import embedded_cluster, until
from tests.support.installation import GROUP, installed
from tests.support.objects import GPU, container, node, pod, pod_group

GROUPS = f"{GROUP}/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"


def picture(runtime: SchedulerProcess) -> Any:
    assert runtime.fast_path is not None
    return runtime._console(runtime.fast_path)


async def test_counters_are_summed_over_profiles_and_attempts() -> None:
    two = "profiles: [{schedulerName: agent-scheduler}, {schedulerName: other}]\n"
    async with embedded_cluster() as cluster, running(cluster, two) as process:
        await cluster.add_node("n1", cpu="4", memory="8Gi")
        for name, scheduler in (("a", "agent-scheduler"), ("b", "other"), ("c", "other")):
            await cluster.add_pod(name, cpu="500m", scheduler=scheduler)
        await cluster.add_pod("large", cpu="8")
        await until(lambda: picture(process.runtime).figures()["placed"] == 3)
        await until(lambda: cluster.condition("large"))
        found = picture(process.runtime).figures()
        assert {name: count for name, count in found["attempts"].items() if count} == {
            "scheduled": 3.0,
            "unschedulable": 1.0,
        }
        assert found["latency"]["counts"][-1] == 3
        assert found["latency"]["counts"] == sorted(found["latency"]["counts"])
        assert (found["leading"], found["synced"], found["binding"], found["conflicts"]) == (True, True, 0, 0)
        assert (found["pending"]["unschedulable"], found["pending"]["batch"]) == (1, 0)
        assert found["nodes"]["count"] == 1
        assert found["nodes"]["resources"]["cpu"] == {"offered": 4000, "taken": 1500}
        assert found["gangs"] == {"phases": {}, "shown": []}
        assert found["shards"] == []


async def test_news_have_tables_that_changed_since_the_last_ones_and_no_others() -> None:
    """What they have of nodes is read of the stream, in tests/console."""
    async with embedded_cluster() as cluster, running(cluster) as process:
        await cluster.add_node("n0", cpu="4")
        await until(lambda: process.runtime.fast_path and process.runtime.fast_path.ledger.rows)
        shown = picture(process.runtime)
        assert {"queues", "gangs", "shards"} <= shown.news().keys()
        nothing = shown.news()
        assert nothing["nodes"] == {"spec": [], "use": [], "gone": []}
        assert not {"queues", "gangs", "shards", "shardOf"} & nothing.keys()


async def test_gpus_of_a_node_are_whole_ones_whether_they_are_shared_or_not() -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        for name, gpus in (("n0", {GPU: "2000"}), ("n1", {"nvidia.com/gpu": "4"}), ("n2", {})):
            await cluster.ask("POST", "/api/v1/nodes", node(name, extended=gpus))
        shares = container(requests={GPU: "500"}, limits={GPU: "500"})
        await cluster.ask("POST", PODS, pod("a", node="n0", containers=[shares]))
        await until(lambda: len(picture(process.runtime).whole()["nodes"]["spec"]) == 3)
        await until(lambda: picture(process.runtime).figures()["placed"])
        whole = picture(process.runtime).whole()["nodes"]
        assert {each[1]: each[4] for each in whole["spec"]} == {"n0": 2, "n1": 4, "n2": 0}
        assert sorted(each[3] for each in whole["use"]) == [0, 0, 0.5]


async def test_queues_and_gangs_are_told_with_what_they_have_and_those_first_that_wait() -> None:
    async with installed() as cluster:
        runtime = cluster.runtime
        await cluster.add_node("n1", cpu="4")
        await cluster.queue("small", capability={"cpu": "2"}, parent="q", deserved={"cpu": "1"})
        await cluster.gang("runs", 2)
        await until(lambda: cluster.has_placed("runs", 2))
        await until(lambda: cluster.is_in_phase("runs", "Running"))
        least = {"master": 1, "worker": 2}
        waiting = {WAITING_ROLES: "worker,report"}
        group = pod_group("waits", minimum=3, queue="small", minTaskMember=least, annotations=waiting)
        await cluster.ask("POST", GROUPS, group)
        body = pod("waits-0", scheduler="volcano", group="waits")
        body["metadata"]["annotations"]["volcano.sh/task-spec"] = "master"
        await cluster.ask("POST", PODS, body)
        await cluster.ask("POST", PODS, pod("bare", scheduler="volcano", cpu="99"))
        await until(lambda: len(picture(runtime).figures()["gangs"]["shown"]) == 2)
        await until(lambda: picture(runtime).figures()["pending"]["batch"] == 2)
        found = picture(runtime).figures()
        queues = {each["name"]: each for each in found["queues"]}
        assert {"q", "small"} <= queues.keys()
        assert (queues["small"]["parent"], queues["small"]["deserved"]) == ("q", {"cpu": 1000})
        assert queues["small"]["capability"] == {"cpu": 2000}
        assert queues["q"]["state"] == "Open"
        assert queues["q"]["allocated"]["cpu"] == 2000
        waits, runs = found["gangs"]["shown"]
        assert sum(found["gangs"]["phases"].values()) == 2
        assert (runs["name"], runs["has"], runs["members"], runs["needs"]) == ("default/runs", 2, 2, 2)
        assert runs["roles"] == []
        assert (waits["name"], waits["has"], waits["members"], waits["needs"]) == ("default/waits", 0, 1, 3)
        assert waits["roles"] == [("master", 0, 1, 1, False), ("worker", 0, 0, 2, True)]
        assert (waits["queue"], waits["phase"], waits["owner"]) == ("small", "Pending", "")
