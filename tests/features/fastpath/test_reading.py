"""Objects that are read only for plugins that need them: images, and the selectors of pods by default."""

from __future__ import annotations

from typing import Any

from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import container
from tests.support.running import Running, scheduling, settings_from

IMAGE = "registry.example/agent:1"


AGENT = settings_from()
KUBE = settings_from("profiles: [{schedulerName: agent-scheduler, base: default-scheduler}]")
SPREADING = settings_from(
    "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: "
    "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}]}]"
)


async def two_nodes(cluster: EmbeddedCluster, *, image_on: str = "") -> None:
    for name in ("n1", "n2"):
        node = await cluster.add_node(name, labels={"zone": name})
        if name == image_on:
            node["status"]["images"] = [{"names": [IMAGE], "sizeBytes": 900 * 2**20}]
            await cluster.ask("PUT", f"/api/v1/nodes/{name}/status", node)


def with_image() -> list[dict[str, Any]]:
    return [container(requests={"cpu": "100m"}, image=IMAGE)]


async def placed(cluster: EmbeddedCluster, name: str) -> str:
    await until(lambda: cluster.is_bound(name))
    return (await cluster.placed())[name]


async def test_a_profile_that_begins_to_rank_by_images_reads_pods_and_nodes_again() -> None:
    async with embedded_cluster() as cluster:
        await two_nodes(cluster, image_on="n2")
        await cluster.add_pod("waiting", containers=with_image(), schedulingGates=[{"name": "e/gate"}])
        async with scheduling(cluster.transport, AGENT) as running:
            await cluster.add_pod("before", containers=with_image())
            assert await placed(cluster, "before") == "n1"
            running.fast_path.reconfigure(KUBE)
            await until(lambda: _images_are_known(running))
            await cluster.merge(f"{PODS}/waiting", {"spec": {"schedulingGates": None}})
            assert await placed(cluster, "waiting") == "n2"
            running.fast_path.reconfigure(AGENT)
            await until(lambda: not _images_are_known(running))
            assert running.reports.counts["Pod list_renewed"] == 2


def _images_are_known(running: Running) -> bool:
    node = running.fast_path.ledger.node("n2")
    pods = running.fast_path.cluster.pods.values()
    return node is not None and bool(node.images) and all(pod.cls.images for pod in pods)


async def serve(cluster: EmbeddedCluster, **selector: str) -> None:
    await cluster.ask(
        "POST",
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "s"}, "spec": {"selector": selector, "ports": [{"port": 80}]}},
    )


async def test_services_are_watched_from_when_a_profile_first_spreads_by_them() -> None:
    async with embedded_cluster() as cluster:
        await two_nodes(cluster)
        await serve(cluster, app="web")
        async with scheduling(cluster.transport, AGENT) as running:
            for name in ("a", "b"):
                await cluster.add_pod(f"before-{name}", labels={"app": "web"})
            assert {await placed(cluster, f"before-{name}") for name in ("a", "b")} == {"n1"}
            assert not running.reports.counts["Service watch"]
            running.fast_path.reconfigure(SPREADING)
            await until(lambda: running.reports.counts["Service changes"])
            for name in ("a", "b"):
                await cluster.add_pod(f"after-{name}", labels={"app": "web"})
            assert {await placed(cluster, f"after-{name}") for name in ("a", "b")} == {"n2"}
            await cluster.add_pod("of-no-service", labels={"app": "other"})
            assert await placed(cluster, "of-no-service") == "n1"
            await running.fast_path.renew()
            running.fast_path.reconfigure(AGENT)
            await cluster.add_pod("later", labels={"app": "web"})
            assert await placed(cluster, "later") == "n1"
            assert running.fast_path.is_synced
