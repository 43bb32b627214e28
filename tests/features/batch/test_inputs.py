"""The inputs of plugins reach the process, with the shipped roles, and affect its decisions.

Each row of `inputs.yaml` is an input: an object, and a pod that is placed elsewhere, or not at all, because of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.session.session import ClusterView
from agent_scheduler.fastpath.watching import READERS
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from tests.support.batched import DEFINITIONS, definition
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, forbids, until
from tests.support.installation import CONFIGURATION, installed, started
from tests.support.objects import Object, collection, owner, pod
from tests.support.places import CONFIG
from tests.support.volume_cluster import Storage

#: All plugins of sessions, and a profile that spreads pods by default, like kube-scheduler's.
EVERYTHING = CONFIGURATION.replace(
    "batch: {schedulePeriod: 50ms}",
    """profiles: [{schedulerName: agent-scheduler}, {schedulerName: spread, base: default-scheduler}]
batch:
  schedulePeriod: 50ms
  actions: enqueue, allocate, preempt, backfill
  tiers:
    - plugins: [{name: sla}, {name: priority}, {name: gang}, {name: conformance}, {name: pdb}, {name: resourcequota}]
    - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]""",
)
SHARDED = f"{EVERYTHING}\nsharding: {{mode: hard, leaseNamespace: agent-scheduler}}"
TABLES = yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text(encoding="utf-8"))


def _made(text: str, *, owned_by: Object | None = None) -> Object:
    """Return an object by its name, or a pod by its own name and its parts."""
    name, colon, parts = text.partition(":")
    if not colon:
        version, kind, metadata, *rest = TABLES["objects"][name]
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **(rest[0] if rest else {})}
    about: dict[str, Any] = {"namespace": "default"}
    for part in filter(None, parts.split("+")):
        about |= TABLES["parts"][part] if part != "owned" else {"owners": [owner(owned_by or {})]}
    return pod(name, **about)


class Row:
    def __init__(self, text: str) -> None:
        columns = [each.strip() for each in text.split("|")]
        self.plugin, self.object, self.pod, *goes = columns[:5]
        self.goes = tuple(goes)
        self.given, self.then = (each.split() for each in (*columns[5:], "", "")[:2])
        made = _made(self.object)
        native = ".scheduling.k8s.io" * made["apiVersion"].startswith("scheduling.k8s.io/v1alpha")
        self.kind = made["kind"] + native


async def _put(it: EmbeddedCluster, body: Object) -> None:
    path = collection(body)
    answer = await it.call("POST", path, body)
    path = f"{path}/{body['metadata']['name']}"
    if answer.status == 409:
        await it.patch(path, body)
    else:
        assert answer.status < 300, (path, answer.body)
    if "status" in body and body["kind"] not in ("Node", "PodGroup"):
        await it.patch(f"{path}/status", {"status": body["status"]})


async def _goes_to(row: Row, *objects: str) -> str:
    text = SHARDED if row.kind == "NodeShard" else EVERYTHING
    if row.plugin == "capacity":
        text = text.replace("proportion", row.plugin)
    async with installed(text, kinds=(*BUILTIN, *ALPHA)) as it:
        await it.add(DEFINITIONS, definition(CONFIG / "crd" / "shard.volcano.sh_nodeshards.yaml"))
        volumes = Storage(it)
        volumes.play()
        for each in ("node1", "node2", "other", *row.given, *objects):
            await _put(it, _made(each))
        await asyncio.sleep(1)
        await _put(it, _made(f"p:{row.pod}", owned_by=_made(row.object)))
        for each in row.then:
            await _put(it, _made(each))
        await asyncio.sleep(3)
        found = await it.get(f"{PODS}/p")
        await volumes.hold()
        return str(found["spec"].get("nodeName") or found["status"].get("nominatedNodeName", ""))


TABLE = [Row(line) for line in TABLES["rows"].strip().splitlines()]


@pytest.mark.promise("S14")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.plugin}-{row.kind}")
async def test_a_pod_is_decided_otherwise_by_what_a_plugin_reads(row: Row) -> None:
    assert (await _goes_to(row), await _goes_to(row, row.object)) == row.goes


async def test_all_that_is_watched_has_a_row_and_what_a_session_may_read_is_there() -> None:
    async with installed(EVERYTHING, kinds=(*BUILTIN, *ALPHA)) as it:
        kinds = {kind.name for kind, _ in it.fast_path._informers.watched}
        await _put(it, {**_made("high"), "globalDefault": True})
        for each in ("quota", "budget-a", "group", "node1", "queue", "g:batch+in-g", "p:in-late"):
            await _put(it, _made(each))
        await until(lambda: it.is_bound("g", "p"))
        await it.rest()
        view = it.batch.last.session.view
    rows = {(row.kind, row.plugin) for row in TABLE}
    assert kinds | {"NodeShard"} == {kind for kind, _ in rows}
    assert {name for readers in READERS.values() for name in readers} <= {name for _, name in rows}
    # No group was lost, there are no independent Jobs if other Jobs may be evicted, and shards are another
    # configuration.
    absent = {name for name in ClusterView.__struct_fields__ if not getattr(view, name)}
    assert absent == {"lost", "settled", "unready", "shard_full"}


async def test_a_group_is_kept_out_by_a_quota_of_its_pods_and_let_in_when_that_changes() -> None:
    async with installed(EVERYTHING) as it:
        await it.add_node("n1", cpu="4")
        await _put(it, _made("quota"))
        await it.gang("g", 0, minimum=2, minResources={"cpu": "2"})
        await it.rest()
        assert await it.is_in_phase("g", "Pending")
        await _put(it, {**_made("quota"), "status": {"hard": {"cpu": "2"}, "used": {"cpu": "0"}}})
        await until(lambda: it.is_in_phase("g", "Inqueue"))
        before = await it.rest()
        await _put(it, _made("quota"))
        await asyncio.sleep(1)
        assert it.sessions == before, "no group waits for it"


async def test_a_group_that_has_waited_for_long_enough_is_let_in_though_nothing_happens() -> None:
    # The first tier votes, so that the second is not called.
    tiers = "tiers: [{plugins: [{name: sla}]}, {plugins: [{name: gang}, {name: overcommit}]}]"
    async with installed(CONFIGURATION.replace("50ms}", f"50ms, enqueueBy: cluster, {tiers}}}")) as it:
        await it.add_node("n1", cpu="1")
        await it.gang("g", 0, minResources={"cpu": "9"}, minimum=1, annotations={"sla-waiting-time": "1m"})
        await it.rest()
        for _ in range(5):
            await asyncio.sleep(10)
            assert await it.is_in_phase("g", "Pending") and await it.is_left_alone()
        await until(lambda: it.is_in_phase("g", "Inqueue"))
        before = await it.rest()
        await asyncio.sleep(600)
        assert it.sessions == before, "no group waits any more"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/resourcequotas", ("plugin resourcequota reads ResourceQuota", "403", "watch resourcequotas,")),
        ("/apis/resource.k8s.io/v1/resourceclaims", ("plugin DynamicResources", " resourceclaims.resource.k8s.io,")),
        ("/api/v1/nodes", ("this process reads Node", "list and watch nodes,")),
    ],
)
async def test_a_process_that_may_not_read_what_a_plugin_decides_by_says_so_and_ends(
    path: str, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        embedded_cluster(components=("default",), disturb=forbids(path)) as cluster,
        started(cluster, EVERYTHING) as (_, ending),
    ):
        assert await asyncio.wait_for(ending, 30) == 2
    told = [line for line in capsys.readouterr().out.splitlines() if "input refused" in line]
    assert len(told) == 1 and all(word in told[0] for word in ("error", *words)), told


async def test_a_plugin_that_comes_later_and_may_not_read_is_told_of_once_and_the_process_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with installed(disturb=forbids("/api/v1/resourcequotas")) as it:
        it.runtime._apply(load_text(EVERYTHING))
        await asyncio.sleep(60)
        await it.add_node("n1")
        await it.add_pod("p")
        await until(it.placed)
    assert sum("input refused" in line for line in capsys.readouterr().out.splitlines()) == 1


async def test_without_the_kinds_of_batches_a_process_goes_on_and_names_who_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with embedded_cluster(components=("default",)) as it, started(it, CONFIGURATION):
        await it.add_node("n1")
        await it.add_pod("p")
        await until(it.placed)
    told = [line for line in capsys.readouterr().out.splitlines() if "input not served" in line]
    assert ["gang" in each and "podgroups.sch" in each for each in told if "warning" in each] == [False, True]
