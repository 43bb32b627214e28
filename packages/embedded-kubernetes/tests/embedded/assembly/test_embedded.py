"""`EmbeddedCluster` as in the tests of a client: over HTTP, from code without an event loop."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from embedded.support import NODES, PODS, cases, container, named
from embedded_kubernetes import ClusterError, EmbeddedCluster, User, cluster, kubelet
from embedded_kubernetes.embedded import _Thread
from embedded_kubernetes.settings import Settings

POD = named("p", apiVersion="v1", kind="Pod", spec={"containers": [container()]})


def ask(
    to: EmbeddedCluster, method: str, path: str, body: Any = None, *, token: str = "", kind: str = "json"
) -> tuple[int, Any]:
    """Return status and object of the answer."""
    headers = {"Content-Type": f"application/{kind}", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{to.url}{path}", data, headers, method=method)
    trust = ssl.create_default_context(cadata=to.authority) if to.authority else None
    try:
        with urlopen(request, context=trust, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def names(to: EmbeddedCluster, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in ask(to, "GET", path)[1]["items"]]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "embedded-kubernetes"]


def assert_gone(url: str) -> None:
    assert threads() == []
    with pytest.raises(URLError, match="refused"):
        urlopen(f"{url}/version", timeout=60)


def test_what_is_applied_is_created_and_then_changed() -> None:
    with EmbeddedCluster() as found:
        space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
        config = named("c", apiVersion="v1", kind="ConfigMap", namespace="shop")
        given = [{**config, "data": {"a": "1"}}, space]
        applied = found.apply(given)
        assert [obj["kind"] for obj in applied] == ["Namespace", "ConfigMap"]
        uid = applied[1]["metadata"]["uid"]
        (changed,) = found.apply({**config, "data": {"b": "2"}})
        assert (changed["data"], changed["metadata"]["uid"]) == ({"b": "2"}, uid)
        assert given[0] == {**config, "data": {"a": "1"}}
        assert found.requests == []


def test_what_cannot_be_applied_is_named() -> None:
    with EmbeddedCluster() as found:
        with pytest.raises(ClusterError, match="item 2, document 1: v1 Pot is not served by this cluster"):
            found.apply([POD, "apiVersion: v1\nkind: Pot\nmetadata: {name: p}\n"])
        with pytest.raises(ClusterError, match=r'object, Pod p: pods "p" is forbidden|namespaces "none" not found'):
            found.apply({**POD, "metadata": {"name": "p", "namespace": "none"}})
        with pytest.raises(ClusterError, match="item 1: expected objects, YAML texts or files"):
            found.apply([3])  # type: ignore[list-item]


def test_roles_decide_what_the_token_of_a_service_account_may_do() -> None:
    users = {"alices": User("alice", groups=("dev",))}
    with EmbeddedCluster(authorization_mode="RBAC", users=users) as found:
        account = found.service_account_token("builder")
        code, refusal = ask(found, "GET", PODS, token=account)
        assert code == 403
        assert refusal["message"] == (
            'pods is forbidden: User "system:serviceaccount:default:builder" cannot list resource "pods" in API group '
            '"" in the namespace "default"'
        )
        found.apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b}\n"
            "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"
            "subjects: [{kind: ServiceAccount, name: builder, namespace: default}]\n"
        )
        assert ask(found, "GET", PODS, token=account)[0] == 200
        assert ask(found, "GET", PODS, token="alices")[0] == 403
        assert ask(found, "GET", PODS, token="guess")[0] == 401
        assert ask(found, "GET", PODS, token=found.token)[0] == 200
        asked = [(each.by, each.attributes.verb, each.code) for each in found.requests]
    builder = "system:serviceaccount:default:builder"
    assert asked == [
        (builder, "list", 403),
        (builder, "list", 200),
        ("alice", "list", 403),
        ("", "list", 401),
        ("kubernetes-admin", "list", 200),
    ]


def test_faults_come_and_go_while_it_runs() -> None:
    plan = {"rules": [{"match": {"resource": "pods"}, "fault": {"error": {"status": 503}}}]}
    with EmbeddedCluster(faults=plan) as found:
        assert ask(found, "GET", PODS)[0] == 503
        found.apply(POD)
        assert found.fired == {"error": 1}
        found.inject("rules:\n- match: {verbs: [delete]}\n  fault: {conflict: {of: modified}}\n")
        assert names(found, PODS) == ["p"]
        assert ask(found, "DELETE", f"{PODS}/p")[0] == 409
        assert found.fired == {"conflict": 1}
        found.inject(None)
        assert found.fired == {}
        assert ask(found, "DELETE", f"{PODS}/p")[0] == 200


def test_an_exception_leaves_no_thread_no_socket_and_no_file() -> None:
    class Failed(Exception):
        pass

    found = EmbeddedCluster(faults={"rules": [{"match": {"path": "/hung"}, "fault": {"hang": {}}}]})
    with pytest.raises(Failed), socket.socket() as waiting, found:
        url, file = found.url, found.kubeconfig
        # Neither an open watch nor an answer that never comes delays the end.
        watch = urlopen(f"{url}{PODS}?watch=true", timeout=60)
        waiting.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        waiting.sendall(b"GET /hung HTTP/1.1\r\nHost: localhost\r\n\r\n")
        loop = found._on.loop
        raise Failed
    watch.close()
    assert loop.is_closed()
    assert_gone(url)
    assert not file.exists()
    with pytest.raises(ClusterError, match="the cluster is not running"):
        found.url  # noqa: B018


def test_a_cluster_that_is_entered_again_begins_anew() -> None:
    found = EmbeddedCluster()
    with found:
        found.apply(POD)
        with pytest.raises(ClusterError, match="running already"):
            found.__enter__()
        assert names(found, PODS) == ["p"]
    with found:
        assert names(found, PODS) == []


async def test_code_with_a_loop_may_block_while_the_cluster_answers() -> None:
    async with EmbeddedCluster(nodes=1) as found:
        url = found.url
        found.apply(POD)
        assert names(found, PODS) == ["p"]
        assert await asyncio.to_thread(names, found, NODES) == ["node-00000"]
    assert_gone(url)


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def starting() -> None:
        async with EmbeddedCluster(nodes=500):
            raise AssertionError

    task = asyncio.create_task(starting())
    await asyncio.sleep(0)
    assert threads() == ["embedded-kubernetes"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads() == []


def test_a_cluster_that_cannot_start_says_why() -> None:
    with EmbeddedCluster() as found:
        port = int(found.url.rpartition(":")[2])
        with pytest.raises(ClusterError, match=f"cannot listen on 127.0.0.1, port {port}"):
            EmbeddedCluster(port=port).__enter__()
        assert threads() == ["embedded-kubernetes"]
    with pytest.raises(ClusterError, match=r"/none\.yaml: cannot be read"), EmbeddedCluster(load=Path("/none.yaml")):
        raise AssertionError
    assert threads() == []


@cases("""
    options | said
    {authorization_mode: ABAC} | 'authorization_mode: must be one of AlwaysAllow, RBAC, not ABAC'
    {controllers: nonesuch} | 'controllers: there is no controller nonesuch'
    {faults: {rules: [{fault: {dorp: {}}}]}} | unknown key; did you mean drop?
    {faults: 3} | 'faults: expected a plan, its text or a file'
    {runtime_config: a/v1=true} | 'runtime_config a/v1=true: allowed: scheduling.k8s.io/v1alpha2=true'
    {runtime_config: scheduling.k8s.io/v1alpha2=on} | 'allowed: scheduling.k8s.io/v1alpha2=true'
    """)
def test_a_bad_option_is_refused_before_anything_starts(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterError) as refused:
        EmbeddedCluster(**options)
    assert said in str(refused.value)


@pytest.mark.parametrize(("given", "status"), [("true", 200), ("false", 404)])
def test_an_alpha_version_is_served_where_it_is_asked_for(given: str, status: int) -> None:
    with EmbeddedCluster(runtime_config=f"scheduling.k8s.io/v1alpha2={given}") as found:
        assert ask(found, "GET", "/apis/scheduling.k8s.io/v1alpha2/podgroups")[0] == status


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> EmbeddedCluster:
    """Return a cluster whose kubelets fail once a pod is bound."""

    def advance(self: kubelet.Kubelets, *, most: int = 64) -> float | None:
        if any(pod.namespace for pod in self._store.tables[kubelet.PODS].scan("")):
            raise RuntimeError("of a kubelet")
        return None

    monkeypatch.setattr(kubelet.Kubelets, "advance", advance)
    return EmbeddedCluster(nodes=1)


def fail(found: EmbeddedCluster) -> None:
    """Make the cluster fail, and return once it has."""
    found.apply({**POD, "spec": {**POD["spec"], "nodeName": "node-00000"}})
    found._on.thread.join(60)


def test_a_fault_of_the_cluster_ends_the_test_that_used_it(failing: EmbeddedCluster) -> None:
    with pytest.raises(ExceptionGroup) as failed, failing:
        fail(failing)
        with pytest.raises(ClusterError, match="the cluster failed while it ran"):
            failing.apply(POD)
    assert failed.value.subgroup(lambda error: str(error) == "of a kubelet")
    assert threads() == []


def test_a_fault_of_the_cluster_is_noted_at_the_error_that_it_led_to(failing: EmbeddedCluster) -> None:
    with pytest.raises(URLError) as failed, failing:
        url = failing.url
        fail(failing)
        urlopen(f"{url}/version", timeout=60)
    assert "of a kubelet" in failed.value.__notes__[0]


def test_what_a_loop_that_ends_does_not_come_to_is_given_up() -> None:
    on = _Thread()
    on.loop.close()
    on.loop = SimpleNamespace(call_soon_threadsafe=lambda work: on.ended())  # type: ignore[assignment]
    with pytest.raises(ClusterError, match="the cluster failed while it ran"):
        on.carry_out(lambda: None)


def test_options_are_the_flags_of_the_command_with_their_defaults() -> None:
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    flags = vars(parser.parse_args([]))
    assert flags.pop("program") == parser.prog
    defaults = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    assert set(flags) == set(defaults) - {"users"}
    differing = {name for name, value in flags.items() if (value or None) != (defaults[name] or None)}
    assert differing == {"nodes", "port"}


def test_requests_are_in_the_audit_log_too(tmp_path: Path) -> None:
    with EmbeddedCluster(audit_log_path=tmp_path / "log") as found:
        ask(found, "GET", PODS)
        (asked,) = found.requests
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["requestURI"] == asked.uri == PODS


def test_the_autoscaler_is_a_client_with_a_name_and_a_role_of_its_own() -> None:
    rule = "cpu=4,memory=8Gi,name=pool,delay=0"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    with EmbeddedCluster(authorization_mode="RBAC", autoscaler=rule) as found:
        found.apply(POD)
        body = {"status": {"conditions": [condition]}}
        status, _ = ask(found, "PATCH", f"{PODS}/p/status", body, token=found.token, kind="merge-patch+json")
        assert status == 200
        until(
            lambda: any(
                asked.attributes.verb == "create" and asked.attributes.resource == "nodes" for asked in found.requests
            )
        )
        asked_for = {
            (asked.attributes.verb, asked.attributes.resource, asked.code)
            for asked in found.requests
            if asked.by == "system:serviceaccount:kube-system:cluster-autoscaler"
        }
    assert asked_for == {
        ("watch", "nodes", 200),
        ("watch", "pods", 200),
        ("create", "events", 201),
        ("create", "nodes", 201),
    }


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def in_a_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_imported_on_first_use_and_none_of_the_scheduler() -> None:
    early, late = in_a_process(
        "import sys, embedded_kubernetes, embedded_kubernetes.pytest_plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('embedded_kubernetes')))\n"
        "plan = {'rules': [{'match': {'path': '/none'}, 'fault': {'drop': {}}}]}\n"
        "with embedded_kubernetes.EmbeddedCluster(nodes=1, authorization_mode='RBAC', faults=plan) as cluster:\n"
        "    cluster.service_account_token()\n"
        "print(*(name for name in sys.modules if name.startswith(('agent_scheduler', 'bench', 'pytest_asyncio'))))\n"
    ).split("\n")[:2]
    assert early.split() == ["embedded_kubernetes", "embedded_kubernetes.pytest_plugin"]
    assert late == ""
