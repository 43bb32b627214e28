"""Objects survive a restart with `--data-dir`, also after a kill; damage and a second process are refused."""

from __future__ import annotations

import errno
import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import orjson
import pytest

from embedded.support import DEFINITIONS, MAPS, NAMESPACES, NODES, PODS, World, config_map, definition, named, owner
from embedded_kubernetes import EmbeddedCluster, journal
from embedded_kubernetes.journal import LOG, DataError, Journal

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


class Kept(World):
    """A server that keeps its objects in a directory."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.journal = Journal(folder)
        super().__init__(restore=self.journal.restore, **more)
        if self.journal.is_new:
            self.journal.ready()
        else:
            # UIDs of a restarted server are new.
            fresh = self.store.uid
            self.store.uid = lambda: "1" + fresh()[1:]


@pytest.fixture
def again(tmp_path: Path) -> Callable[[], Kept]:
    """Return a function that starts the server, after an end of the one before without warning."""
    before: list[Kept] = []

    def start() -> Kept:
        if before:
            before.pop().journal.close()
        before.append(Kept(tmp_path / "data"))
        return before[0]

    return start


def test_objects_versions_and_uids_survive_and_watches_go_on_or_expire(again: Callable[[], Kept]) -> None:
    world = again()
    world.post(DEFINITIONS, definition())
    about = {"apiVersion": "example.com/v1", "kind": "Widget"}
    world.post(WIDGETS, named("w", **about))
    world.post(MAPS, config_map("gone"))
    early = world.store.rv
    world.delete(f"{MAPS}/gone")
    world.post(MAPS, config_map("a", data={"text": "two\nlines \u2028 ü"}))
    world.patch(f"{MAPS}/a", {"metadata": {"labels": {"x": "y"}}})
    before = {path: world.get(path) for path in (MAPS, WIDGETS, DEFINITIONS, NAMESPACES)}
    last = world.store.rv

    world = again()
    assert world.store.rv == last
    assert {path: world.get(path) for path in before} == before
    assert world.get(f"{MAPS}?labelSelector=x=y")["items"]
    watch = world.watch(f"{MAPS}?watch=true&resourceVersion={last}")
    world.post(MAPS, config_map("b"))
    assert watch.seen() == [("ADDED", "b")]
    (event,) = world.watch(f"{MAPS}?watch=true&resourceVersion={early}").events()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert again().names(MAPS) == ["a", "b"]


def test_deletions_that_were_under_way_are_completed(again: Callable[[], Kept]) -> None:
    world = again()
    world.namespace("team")
    world.post(MAPS.replace("default", "team"), config_map("c"))
    parent = world.post(MAPS, config_map("parent"))
    world.post(MAPS, config_map("child", ownerReferences=[owner(parent)]))
    world.delete(f"{MAPS}/parent")
    world.delete("/api/v1/namespaces/team")
    # The server ends before its collector has run.
    world = again()
    world.collect()
    assert world.names(MAPS) == []
    assert "team" not in world.names(NAMESPACES)


def test_the_rest_of_an_interrupted_write_is_ignored_and_other_damage_is_refused(
    again: Callable[[], Kept], tmp_path: Path
) -> None:
    log = tmp_path / "data" / LOG
    world = again()
    world.post(MAPS, config_map("a"))
    world.journal.close()
    whole = log.read_bytes()
    log.write_bytes(whole + whole.splitlines()[-1][:40])
    world = again()
    assert world.names(MAPS) == ["a"]
    world.post(MAPS, config_map("b"))
    world.journal.close()
    lines = log.read_bytes().splitlines(keepends=True)
    broken = b"".join(lines[:-1]) + lines[-1].replace(b'"b"', b'"c"')
    log.write_bytes(broken)
    with pytest.raises(DataError) as refused:
        Journal(tmp_path / "data")
    assert str(refused.value).startswith(
        f"{log}: line {len(lines)} is damaged; to keep only what is before it: truncate"
    )
    assert log.read_bytes() == broken
    log.write_bytes(b"something else\n")
    with pytest.raises(DataError, match="not a log of this version"):
        Journal(tmp_path / "data")
    assert log.read_bytes() == b"something else\n"


def test_a_start_that_was_interrupted_begins_again(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    world = World(restore=first.restore)
    world.post(MAPS, config_map("half"))
    first.close()
    world = Kept(tmp_path)
    assert world.journal.is_new
    assert world.names(MAPS) == []
    world.journal.close()


def test_two_processes_cannot_use_one_directory(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(DataError, match="is in use by another process"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file: "):
        Journal(tmp_path / "file")


def test_an_outdated_log_is_replaced(
    again: Callable[[], Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_LEAST", 20_000)
    world = again()
    world.controllers = [world.journal]
    world.post(MAPS, config_map("a"))
    log = tmp_path / "data" / LOG
    sizes = []
    for number in range(300):
        world.patch(f"{MAPS}/a", {"data": {"k": str(number)}})
        world.settle()
        sizes.append(log.stat().st_size)
    assert max(sizes) < 40_000
    last = world.store.rv
    world = again()
    assert (world.store.rv, world.get(f"{MAPS}/a")["data"]) == (last, {"k": "299"})


def test_a_write_that_does_not_fit_on_the_disk_is_refused_and_changes_nothing(
    again: Callable[[], Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = again()
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    status, answer = world.call("POST", MAPS, config_map("a", data={}))
    assert (status, answer["reason"]) == (500, "InternalError")
    assert answer["message"].endswith(f"{LOG}: No space left on device")
    assert world.names(MAPS) == []
    monkeypatch.setattr(os, "write", write)
    world.post(MAPS, config_map("a"))
    assert again().names(MAPS) == ["a"]


def test_an_embedded_cluster_goes_on_with_its_nodes_pods_and_credentials(tmp_path: Path) -> None:
    body = {"spec": {"nodeName": "node-00001", "containers": [{"name": "c", "image": "i"}]}}
    options = {"nodes": 2, "data_dir": tmp_path / "data", "tls": True}
    with EmbeddedCluster(**options) as cluster:
        (pod,) = cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **body})
        config = cluster.kubeconfig_dict()
    with EmbeddedCluster(**{**options, "nodes": 5}) as cluster:
        again = cluster.kubeconfig_dict()
        for part in ("users", "clusters"):
            for each in (config, again):
                each[part][0].get("cluster", {}).pop("server", None)
            assert again[part] == config[part]
        trusted = ssl.create_default_context(cadata=cluster.authority)
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        for path, names in ((PODS, ["p"]), (NODES, ["node-00000", "node-00001"])):
            with urlopen(Request(f"{cluster.url}{path}", headers=headers), context=trusted) as answer:
                items = orjson.loads(answer.read())["items"]
            assert [each["metadata"]["name"] for each in items] == names
            assert names != ["p"] or items[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    assert oct((tmp_path / "data" / "token").stat().st_mode)[-3:] == "600"


@pytest.mark.wide
def test_a_killed_command_has_every_object_that_it_has_answered(tmp_path: Path) -> None:
    def start() -> tuple[subprocess.Popen[bytes], http.client.HTTPConnection]:
        flags = ("--port", "0", "--nodes", "1", "--data-dir", str(tmp_path / "data"))
        config = tmp_path / "config"
        config.unlink(missing_ok=True)
        made = subprocess.Popen([sys.executable, "-m", "embedded_kubernetes", *flags, "--kubeconfig-out", str(config)])
        while not config.exists():
            assert made.poll() is None
            time.sleep(0.02)
        server = orjson.loads(config.read_bytes())["clusters"][0]["cluster"]["server"]
        return made, http.client.HTTPConnection(server.removeprefix("http://"), timeout=60)

    answered: list[str] = []
    for start_number in range(3):
        process, connection = start()
        connection.request("GET", MAPS)
        found = orjson.loads(connection.getresponse().read())
        names = {each["metadata"]["name"] for each in found["items"]}
        assert set(answered) <= names
        versions = [int(each["metadata"]["resourceVersion"]) for each in found["items"]]
        assert len(set(versions)) == len(versions)
        for number in range(200):
            if number == 150:
                os.kill(process.pid, signal.SIGKILL)
            name = f"c-{start_number}-{number}"
            try:
                connection.request("POST", MAPS, orjson.dumps(config_map(name)), {"Content-Type": "application/json"})
                if connection.getresponse().read().startswith(b'{"kind":"ConfigMap"'):
                    answered.append(name)
            except (OSError, http.client.HTTPException):
                break
        connection.close()
        process.wait(60)
    assert len(answered) >= 400


def test_a_kind_that_is_not_served_any_longer_is_refused(again: Callable[[], Kept], tmp_path: Path) -> None:
    world = again()
    world.post(MAPS, config_map("a"))
    log = tmp_path / "data" / LOG
    world.journal.close()
    head = ["P", world.store.rv + 1, "scheduling.k8s.io", "workloads", "default/w"]
    with log.open("ab") as file:
        file.write(journal._line(head, b'{"metadata":{"resourceVersion":"1","name":"w","uid":"u"}}'))
    with pytest.raises(DataError, match=r"has workloads\.scheduling\.k8s\.io such as default/w, which is not served"):
        again()
