"""The command: its server, and its refusals."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_asyncio as kubernetes
import pytest
from aiohttp import ClientConnectorCertificateError

from apimachinery.output import LogOutput
from embedded.support import World, cases, definition, named
from embedded_kubernetes import EmbeddedCluster, User, cluster, companion, server
from embedded_kubernetes.assembly import kubeconfig, write_kubeconfig
from embedded_kubernetes.certificates import make_certificates
from embedded_kubernetes.loading import LoadError, create
from embedded_kubernetes.settings import SettingError, Settings
from embedded_kubernetes.simulated_nodes import nodes


def arguments(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="embedded-kubernetes")
    cluster.add_arguments(parser)
    return parser.parse_args(flags)


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = json.dumps(definition(schema=LOOSE))


def test_files_are_loaded_whatever_their_order(world: World, tmp_path: Path) -> None:
    custom = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: shop}\nsize: 3\n"
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
    (tmp_path / "a.yaml").write_text(f"{custom}---\n{POD}---\n---\n{CRD}\n")
    (tmp_path / "b.yaml").write_text(space)
    assert create(world.api, [tmp_path / "a.yaml", tmp_path / "b.yaml"]) == 4
    assert world.get("/apis/example.com/v1/namespaces/shop/widgets/w")["size"] == 3
    world.get("/api/v1/namespaces/default/pods/p")


def test_a_dump_of_another_cluster_is_loaded(world: World, tmp_path: Path) -> None:
    about = {"apiVersion": "v1", "kind": "Node", "uid": "u", "resourceVersion": "5"}
    node = named("n", **about, status={"allocatable": {"cpu": "1"}})
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            named("default", apiVersion="v1", kind="Namespace", uid="u"),
            {**node, "metadata": {**node["metadata"], "managedFields": []}},
        ],
    }
    typed = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [named("c", data={"a": "b"})]}
    (tmp_path / "dump.json").write_text(json.dumps(listed))
    (tmp_path / "typed.json").write_text(json.dumps(typed))
    create(world.api, [tmp_path / "dump.json", tmp_path / "typed.json"])
    assert world.get("/api/v1/nodes/n")["status"]["allocatable"] == {"cpu": "1"}
    assert world.get("/api/v1/namespaces/default/configmaps/c")["data"] == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "x.yaml: not YAML"),
        ("[" * 1_000_000, "x.yaml: not YAML: line 1: nested too deeply; allowed: 1000 levels"),
        ("- 1\n", "x.yaml, document 1: expected an object with apiVersion and kind, found list"),
        (POD + "---\nkind: Pod\n", "x.yaml, document 2: expected an object with apiVersion and kind"),
        ("apiVersion: v1\nkind: Pod\n", "x.yaml, document 1: expected metadata of the Pod"),
        ("apiVersion: a/v1\nkind: Thing\nmetadata: {}\n", "document 1: a/v1 Thing is not served by this cluster"),
        (POD + "---\n" + POD, 'x.yaml, document 2, Pod p: pods "p" already exists'),
        (POD.replace("image: i", "image: ''"), "x.yaml, document 1, Pod p: "),
    ],
)  # fmt: skip
def test_a_bad_manifest_is_refused_with_its_place(world: World, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(LoadError) as refused:
        create(world.api, [tmp_path / "x.yaml"])
    assert said in str(refused.value)


def test_nodes_are_spread_over_zones_and_have_gpus_only_if_asked() -> None:
    made = list(nodes(4, Settings(node_cpu=2, node_gpus="1").node_amounts()))
    assert [node["metadata"]["name"] for node in made] == [f"node-0000{number}" for number in range(4)]
    zones = [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in made]
    assert zones == ["local-a", "local-b", "local-c", "local-a"]
    amounts = {"cpu": "2", "memory": "128Gi", "pods": "110", "nvidia.com/gpu": "1"}
    assert made[0]["status"]["allocatable"] == made[0]["status"]["capacity"] == amounts
    assert "nvidia.com/gpu" not in Settings().node_amounts()


@cases("""
    options | said
    {node_cpu: lots} | "node_cpu: invalid quantity 'lots'"
    {node_pods: -1} | 'node_pods: must be at least 0, not -1'
    {nodes: '3'} | "nodes: must be a whole number, not '3'"
    {nodes: null} | 'nodes: must be a whole number, not None'
    {users: {t: alice}} | "users: must be embedded_kubernetes.User by token, not 'alice'"
    {device_attach_seconds: '3'} | "device_attach_seconds: must be a number, not '3'"
    {autoscaler: 'cpu=1,memory=1Gi,max=x'} | 'autoscaler cpu=1,memory=1Gi,max=x: entry 3 (max=x): must be a whole
        number from 1 on'
    """)
def test_a_bad_option_is_refused_by_its_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings(**options)
    assert said in str(refused.value)
    name, _, rest = str(refused.value).partition(":")
    assert refused.value.as_flag() == f"--{name.replace('_', '-')}:{rest}"


@cases("""
    flags | said
    --nodes -1 | '--nodes: must be at least 0, not -1'
    --port 70000 | '--port: must be from 0 to 65535'
    --node-memory 1Zi | '--node-memory: invalid quantity'
    --devices-per-node -1 | '--devices-per-node: must be at least 0, not -1'
    --devices-per-node 1 --device-nodes -1 | '--device-nodes: must be at least 0, not -1'
    --devices-per-node 1 --device-attach-seconds -1 | '--device-attach-seconds: must be at least 0, not -1.0'
    --controllers *,-nonesuch | '--controllers: there is no controller -nonesuch; there are: '
    --token-auth-file /none/there | '--token-auth-file /none/there: cannot be read'
    --service-account-signing-key-file /none/there | '--service-account-signing-key-file /none/there: cannot be read'
    --host 0.0.0.0 --no-tls | '--host 0.0.0.0: other hosts can reach it, which needs TLS and a generated token'
    --authorization-mode ABAC | 'embedded-kubernetes: --authorization-mode: must be one of'
    --port 0 --audit-log-path /none/there | 'embedded-kubernetes: --audit-log-path /none/there: cannot be written'
    --port 0 --load /nowhere.yaml | '/nowhere.yaml: cannot be read'
    --port 0 --kubeconfig-out /nowhere/config | '--kubeconfig-out /nowhere/config: cannot be written'
    """)
def test_a_cluster_that_cannot_start_says_why_and_exits_1(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.main(arguments(*flags.split())) == 1
    assert said in capsys.readouterr().err


def test_without_the_scheduler_its_flag_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(companion, "find_spec", lambda name: None)
    assert cluster.main(arguments("--port=0", "--with-scheduler")) == 1
    said = "embedded-kubernetes: --with-scheduler: agent-scheduler is not installed; install it with: pip install"
    assert capsys.readouterr().err.startswith(said)


def test_a_kubeconfig_of_a_server_with_https_has_credentials() -> None:
    with EmbeddedCluster(tls=True) as found:
        assert found.kubeconfig_dict()["users"][0]["user"]["token"]


async def test_a_kubeconfig_of_the_cluster_leads_to_it_through_tls_and_token(tmp_path: Path) -> None:
    async with EmbeddedCluster(tls=True, token="secret") as found:

        async def status(config: dict[str, Any]) -> int:
            file = tmp_path / "config"
            write_kubeconfig(file, config)
            assert file.stat().st_mode & 0o777 == 0o600
            settings = kubernetes.client.Configuration()
            await kubernetes.config.load_kube_config(str(file), client_configuration=settings)
            async with kubernetes.client.ApiClient(settings) as client:
                try:
                    await kubernetes.client.CoreV1Api(client).list_node()
                except kubernetes.client.ApiException as refused:
                    return int(refused.status)
                return 200

        assert await status(found.kubeconfig_dict()) == 200
        assert await status(found.kubeconfig_dict("guess")) == 401
        other = make_certificates(("127.0.0.1",), now=time.time()).authority
        with pytest.raises(ClientConnectorCertificateError, match="certificate verify failed"):
            await status(kubeconfig(found.url, authority=other, token="secret"))


@pytest.mark.parametrize("more", [{}, {"users": {"t": User("alice")}}], ids=["alone", "with users"])
async def test_a_cluster_that_other_hosts_reach_requires_a_token(tmp_path: Path, more: dict[str, Any]) -> None:
    async with EmbeddedCluster(host="0.0.0.0", kubeconfig_out=tmp_path / "config", **more) as found:
        written = json.loads((tmp_path / "config").read_text())
        assert written == found.kubeconfig_dict() and found.url.startswith("https://")
        assert not ip_address(urlsplit(found.url).hostname or "").is_unspecified
        settings = kubernetes.client.Configuration()
        await kubernetes.config.load_kube_config(str(tmp_path / "config"), client_configuration=settings)
        async with kubernetes.client.ApiClient(settings) as client:
            await kubernetes.client.CoreV1Api(client).list_node()
        settings.api_key.clear()
        async with kubernetes.client.ApiClient(settings) as client:
            with pytest.raises(kubernetes.client.ApiException) as refused:
                await kubernetes.client.CoreV1Api(client).list_node()
        assert refused.value.status == 401
    for open_ in ({"host": "0.0.0.0", "insecure": True}, {"host": "::1"}, {"host": "localhost"}):
        settled = Settings(**open_)
        assert (settled.token, settled.serves_tls) == ("", False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_tells_what_it_serves_until_a_signal_and_then_exits_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    told: list[str] = []

    def heard(_output: LogOutput, line: bytes) -> None:
        told.append(line.decode().rstrip())
        os.kill(os.getpid(), number)

    monkeypatch.setattr(LogOutput, "write", heard)
    monkeypatch.setattr(server, "calm_gc", lambda: None)
    (tmp_path / "pod.yaml").write_text(POD)
    flags = f"--port 0 --nodes 3 --token t --load {tmp_path / 'pod.yaml'}"
    assert cluster.main(arguments(*flags.split())) == 0
    assert cluster.main(arguments(*flags.split(), "--kubeconfig-out", str(tmp_path / "config"))) == 0
    url = json.loads((tmp_path / "config").read_text())["clusters"][0]["cluster"]["server"]
    assert told[0].endswith(" --token TOKEN get nodes")
    said = f"cluster ready at {url} with 3 nodes and loaded objects (1); try: kubectl --kubeconfig {tmp_path}/config"
    assert told[1] == f"{said} get nodes"


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def stalled_pipe() -> int:
    """Return the writing end of a pipe that is full and never read."""
    _, writing = os.pipe()
    own = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(own, bytes(4096))
    os.close(own)
    return writing


@pytest.mark.parametrize("opened", [full_disk, stalled_pipe])
def test_outputs_that_accept_nothing_do_not_stop_the_server(tmp_path: Path, opened: Callable[[], int]) -> None:
    config, output = tmp_path / "kubeconfig", opened()
    flags = ("--port", "0", "--kubeconfig-out", str(config), "--audit-log-path", f"/proc/self/fd/{output}")
    program = (sys.executable, "-m", "embedded_kubernetes", *flags)
    with subprocess.Popen(program, stdout=output, stderr=output, pass_fds=(output,)) as process:
        try:
            while not config.exists():
                assert process.poll() is None
                time.sleep(0.05)
            url = json.loads(config.read_text())["clusters"][0]["cluster"]["server"]
            for _ in range(3):
                assert urllib.request.urlopen(f"{url}/api/v1/nodes", timeout=30).status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
