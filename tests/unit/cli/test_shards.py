"""`agent-scheduler shards` as a shell sees it, against an embedded cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.cli.main import main
from agent_scheduler.cli.tables import age, table
from agent_scheduler.controllers.sharding import writes
from agent_scheduler.objects.shard import NODE_SHARDS
from kube_client.transport import Response
from tests.support.command_line import Command, kubeconfig
from tests.support.sharded import CRDS, NAME, NAMESPACE, limits
from tests.support.sharding import World, world

Capture = pytest.CaptureFixture[str]
ALL = "all:volcano:0.0:1.0:false:0:0"


def items(answer: Response) -> Any:
    """Of a list; None where the kind is not there."""
    return json.loads(answer.body)["items"] if answer.status == 200 else None


class Shell:
    """Runs the command with the cluster's kubeconfig. Nothing that it does changes the cluster's shards."""

    def __init__(self, it: World, folder: Path, capsys: Capture) -> None:
        self.it = it
        self.folder = folder
        self._command = Command("shards", kubeconfig(folder, it.cluster.server.url), capsys)

    async def run(self, line: str = "", *, leases: str = "--sharding-lease-namespace default") -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        before = await self.it.call("GET", NODE_SHARDS)
        config_map = f"--sharding-configmap-namespace {NAMESPACE} --sharding-configmap {NAME}"
        ended = await self._command.beside(f"{line} {leases} {config_map}")
        after = await self.it.call("GET", NODE_SHARDS)
        assert items(before) == items(after)
        return ended

    async def shows(self, line: str = "", **more: str) -> str:
        code, out, err = await self.run(line, **more)
        assert (code, err) == (0, "")
        return out

    async def refuses(self, line: str = "") -> str:
        """What it says in its only line."""
        code, out, err = await self.run(line)
        assert (code, out, err.count("\n")) == (2, "", 1)
        command, said = err.split(": ", 1)
        assert command == "agent-scheduler shards"
        return said

    async def table(self, line: str = "") -> list[list[str]]:
        rows = (await self.shows(line)).splitlines()
        return [[cell.strip() for cell in row.split("   ") if cell.strip()] for row in rows]


@pytest.fixture
async def shell(tmp_path: Path, capsys: Capture) -> AsyncIterator[Shell]:
    async with world() as it:
        yield Shell(it, tmp_path, capsys)


async def lease(it: World, shard: str, *, age: float, holder: str = "pod-a_1", namespace: str = "default") -> None:
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    await it.add(path, {"metadata": {"name": f"nodeshard-{shard}"}, "spec": spec})


async def some_shards(it: World) -> None:
    await it.add_nodes(4)
    await it.add_shard("a", ["n000", "n001", "n002"])
    updated = (datetime.now(UTC) - timedelta(seconds=300)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"nodesInUse": ["n001", "n003"], "lastUpdateTime": updated}
    await it.change_shard("a", {"status": status}, status=True)
    await it.add_shard("b", ["n003", "gone"], ours=False)


async def test_shards_are_shown_in_counts_with_who_holds_them(shell: Shell) -> None:
    await some_shards(shell.it)
    await lease(shell.it, "a", age=0)
    assert await shell.table() == [
        ["SHARD", "DESIRED", "IN USE", "ADD", "REMOVE", "HOLDER", "UPDATED"],
        ["a", "3", "2", "2", "1", "pod-a_1", "5m"],
        ["b", "2", "0", "2", "0", "-", "-"],
    ]


async def test_a_holder_whose_lease_has_ended_is_marked(shell: Shell) -> None:
    await some_shards(shell.it)
    await lease(shell.it, "a", age=3600)
    rows = await shell.table("-o wide")
    assert rows[0][-3:] == ["RENEWED", "MANAGED BY", "AGE"]
    assert rows[1][5:9] == ["pod-a_1 (expired)", "5m", "60m", "agent-scheduler-sharding"]
    assert rows[2][5:9] == ["-", "-", "-", "-"]


async def test_of_several_leases_of_a_shard_the_one_that_was_renewed_last_is_shown(shell: Shell) -> None:
    await some_shards(shell.it)
    for namespace, holder, seconds in (("one", "old", 3600), ("two", "now", 1), ("three", "older", 7200)):
        await shell.it.add("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await lease(shell.it, "a", age=seconds, holder=holder, namespace=namespace)
    found = json.loads(await shell.shows("-o json", leases=""))["shards"]
    assert {each["name"]: each["holder"] for each in found} == {"a": "now", "b": None}


async def test_nodes_are_shown_with_their_shards(shell: Shell) -> None:
    await some_shards(shell.it)
    await shell.it.change_node("n002", {"spec": {"unschedulable": True}})
    assert await shell.table("--nodes") == [
        ["NODE", "DESIRED BY", "USED BY", "STATE"],
        ["gone", "b", "-", "gone"],
        ["n000", "a", "-", "ready"],
        ["n001", "a", "a", "ready"],
        ["n002", "a", "-", "cordoned"],
        ["n003", "b", "a", "ready"],
    ]
    last = json.loads(await shell.shows("--nodes -o json"))["nodes"][-1]
    assert last == {"name": "n003", "desiredBy": ["b"], "usedBy": ["a"], "state": "ready"}


async def test_a_shard_that_cannot_be_read_is_an_error_and_never_left_out(shell: Shell) -> None:
    await some_shards(shell.it)
    path = f"{CRDS}/nodeshards.shard.volcano.sh"
    definition = await shell.it.get(path)
    for version in definition["spec"]["versions"]:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"] = {"openAPIV3Schema": anything}
    await shell.it.ask("PUT", path, definition)
    await shell.it.change_shard("b", {"spec": {"nodesDesired": "n003"}})
    assert f"list {NODE_SHARDS}: an object cannot be read: " in await shell.refuses()


async def test_json_has_the_names(shell: Shell) -> None:
    await some_shards(shell.it)
    first, second = json.loads(await shell.shows("-o json"))["shards"]
    assert (first["toAdd"], first["toRemove"]) == (["n000", "n002"], ["n003"])
    assert (second["managedBy"], second["holder"]) == (None, None)


@pytest.mark.parametrize("line", ["", "--nodes", "plan"])
async def test_programs_get_json_and_yaml_alike(shell: Shell, line: str) -> None:
    await some_shards(shell.it)
    told = json.loads(await shell.shows(f"{line} -o json"))
    assert told["nodes" if "--nodes" in line else "shards"]
    assert yaml.safe_load(await shell.shows(f"{line} -o yaml")) == told


async def test_no_shards_are_told(shell: Shell) -> None:
    code, out, err = await shell.run()
    assert (code, err) == (0, "agent-scheduler shards: there are no shards\n")
    assert out.startswith("SHARD")


# ---- the dry run


async def test_a_dry_run_says_what_would_move_and_why_and_writes_nothing(shell: Shell) -> None:
    it = shell.it
    await it.add_nodes(4)
    await it.add_shard("a", ["n000", "n001", "n002"])
    await it.add_shard("old", ["n003"])
    await it.configure(limits(a=2, b=1))
    out = await shell.shows("plan")
    parts = [[line.split() for line in part.splitlines()] for part in out.split("\n\n")]
    assert out.startswith(f"by ConfigMap {NAMESPACE}/{NAME}, sharding.yaml\n\n")
    assert parts[1] == [
        ["SHARD", "NOW", "PLANNED", "ADD", "REMOVE", "NOTES"],
        ["a", "3", "2", "+0", "-1", "-"],
        ["b", "-", "1", "+1", "-0", "new"],
        ["old", "1", "0", "+0", "-1", "no", "longer", "configured:", "emptied,", "then", "deleted"],
    ]
    moves = {line[0]: line[1:3] for line in parts[2][1:]}
    assert parts[2][0] == ["NODE", "FROM", "TO", "WHY"]
    assert set(moves) == {"n002", "n003"}
    assert all(len(line) > 3 for line in parts[2])
    assert sorted(target for _, target in moves.values()) == ["-", "b"]
    assert parts[3][0] == ["1", "node", "would", "be", "in", "no", "shard:"]


async def test_a_dry_run_is_what_the_controller_does(shell: Shell) -> None:
    it = shell.it
    await it.add_nodes(12)
    await it.load("n003", "9")
    await it.load("n007", "9")
    await it.add_shard("theirs", ["n001"], ours=False)
    configs = "low:volcano:0.0:0.6:false:0:0,high:agent:0.7:1.0:false:0:0"
    told = json.loads(await shell.shows(f"plan -o json --scheduler-configs {configs}"))
    planned = {each["name"]: each["planned"] for each in told["shards"]}
    assert planned == {"low": 9, "high": 2, "theirs": None}
    assert told["unassigned"] == {"n001": "wanted by the foreign shard theirs"}
    it.start(configs=configs)
    specs = await it.until_counts(low=9, high=2, theirs=1)
    assert specs["high"] == [move["node"] for move in told["moves"] if move["to"] == "high"]
    code, out, _ = await shell.run(f"plan --scheduler-configs {configs}")
    assert code == 0 and "no node would move" in out


async def test_a_dry_run_takes_a_file_and_says_where_it_is_wrong(shell: Shell) -> None:
    await shell.it.add_nodes(2)
    file = shell.folder / "sharding.yaml"
    file.write_text(yaml.safe_dump(limits(one=1)))
    assert (await shell.shows(f"plan --sharding-config {file}")).startswith(f"by {file}\n")
    file.write_text("schedulerConfigs:\n- name: a\n  policies:\n  - name: no-such\n")
    err = await shell.refuses(f"plan --sharding-config {file}")
    assert err.startswith(f"{file}:4: schedulerConfigs[0].policies[0].name: ")


async def test_a_config_map_that_cannot_be_used_is_one_line_and_exit_code_2(shell: Shell) -> None:
    await shell.it.configure("schedulerConfigs: []")
    assert (await shell.refuses("plan")).startswith(f"ConfigMap {NAMESPACE}/{NAME}, sharding.yaml")


async def test_shards_that_are_all_somebody_elses_would_be_left_alone(shell: Shell) -> None:
    await shell.it.add_nodes(1)
    await shell.it.add_shard("all", [], ours=False)
    out = await shell.shows(f"plan --scheduler-configs {ALL}")
    assert "configured, but owned by another controller: unchanged" in out
    assert out.endswith("every configured shard is owned by another controller: nothing would be written\n")


async def test_without_a_config_map_the_dry_run_says_what_it_goes_by(shell: Shell) -> None:
    head = f"by the default shards, because there is no ConfigMap {NAMESPACE}/{NAME}"
    assert (await shell.shows("plan")).splitlines()[0] == head


async def test_a_shard_that_would_be_too_large_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "MAX_BYTES", 20)
    await shell.it.add_nodes(3)
    out = await shell.shows(f"plan --scheduler-configs {ALL}")
    assert "new, not written: the names of its 3 nodes take 22 bytes; allowed: 20" in out


# ---- what goes wrong


@pytest.mark.parametrize("line", ["", "--nodes", "plan"])
async def test_a_cluster_without_the_kind_or_an_answer_is_told_in_one_line(shell: Shell, line: str) -> None:
    await shell.it.delete(f"{CRDS}/nodeshards.shard.volcano.sh")
    assert await shell.refuses(line) == (
        "the API server has no NodeShard (shard.volcano.sh/v1alpha1); install it: kubectl apply -k config/crd\n"
    )
    kubeconfig(shell.folder, "http://127.0.0.1:1")
    assert (await shell.refuses(line)).startswith("list ")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["plan", "--nodes"], "plan: does not support --nodes and -o wide; allowed: -o table, -o json, -o yaml"),
        (["plan", "-o", "wide"], "plan: does not support --nodes and -o wide; allowed: -o table, -o json, -o yaml"),
        (["--sharding-config", "f"], "--sharding-config: needs plan"),
        (["plan", "--sharding-config", "/no/f"], "--sharding-config /no/f: No such file or directory"),
    ],
)
def test_what_contradicts_itself_is_refused(capsys: Capture, line: list[str], problem: str) -> None:
    assert main(["shards", *line]) == 2
    assert capsys.readouterr() == ("", f"agent-scheduler shards: {problem}\n")


# ---- tables


def test_columns_are_aligned_and_nothing_is_a_dash() -> None:
    rows: list[list[Any]] = [["a", 1, ""], ["long name", 0, None]]
    assert table(("X", "Y", "Z"), rows) == "X           Y   Z\na           1   -\nlong name   0   -\n"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d"), (-5, "0s")],
)
def test_ages_are_short(seconds: int, shown: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == shown


@pytest.mark.parametrize("stamp", [None, "", "yesterday", "2026-01-01T00:00:00"])
def test_what_is_no_time_has_no_age(stamp: str | None) -> None:
    assert age(stamp, datetime(2026, 1, 1, tzinfo=UTC)) == ""
