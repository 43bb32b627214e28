"""How `explain` finds a scheduler, and to whom it shows which credentials."""

from __future__ import annotations

import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.cli.main import main
from agent_scheduler.cli.reach import Unreachable, Ways, ask
from embedded_kubernetes.certificates import make_certificates, server_context
from kube_client.testing.scripted import Action, Answer, Hang, Request, Script, serving, status
from tests.support.command_line import kubeconfig

PAGE = {"pod": "ns/p", "place": "active"}
TOKEN = "page-token"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/agent-scheduler/leases/agent-scheduler"
PODS = "/api/v1/namespaces/agent-scheduler/pods"
LEADER = "agent-scheduler-7d9f-abcde"
NAMED = "lease agent-scheduler/agent-scheduler"


def guarded(request: Request) -> Action:
    """A page that asks for a token and takes one."""
    if request.headers.get("authorization") == f"Bearer {TOKEN}":
        return Answer(200, PAGE)
    return Answer(401, b"a bearer token that the API server accepts is required\n")


def tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and the file of who signed its certificate."""
    certificates = make_certificates(["127.0.0.1"], now=time.time())
    authority = folder / "authority.pem"
    authority.write_bytes(certificates.authority)
    return server_context(certificates), authority


# ---- straight


async def test_the_page_is_asked_for_by_the_pods_name_and_without_credentials() -> None:
    async with serving(lambda _: Answer(200, PAGE)) as server:
        assert await ask("ns/p", Ways(server=server.url + "/")) == PAGE
    (request,) = server.requests
    assert (request.target, request.headers.get("authorization")) == ("/debug/explain?pod=ns/p", None)


async def test_a_given_token_is_shown_wherever_the_page_is() -> None:
    async with serving(guarded) as server:
        assert await ask("ns/p", Ways(server=server.url, token=TOKEN)) == PAGE
        with pytest.raises(Unreachable, match=r"401 a bearer token .* is required; use --token"):
            await ask("ns/p", Ways(server=server.url, token="wrong"))


async def test_the_contexts_token_is_not_sent_over_http(tmp_path: Path) -> None:
    async with serving(guarded) as server:
        with pytest.raises(Unreachable, match="requires a token; over http only one given with --token is sent"):
            await ask("ns/p", Ways(server=server.url, kubeconfig=kubeconfig(tmp_path, token=TOKEN)))
    assert [request.headers.get("authorization") for request in server.requests] == [None]


@pytest.mark.parametrize(
    ("page", "shown"),
    [(guarded, [None, f"Bearer {TOKEN}"]), (lambda _: Answer(200, PAGE), [None])],
    ids=["asks for one", "is open"],
)
async def test_the_contexts_token_is_sent_over_https_if_the_page_asks_for_one(
    tmp_path: Path, page: Script, shown: list[str | None]
) -> None:
    context, authority = tls(tmp_path)
    async with serving(page, tls=context) as server:
        file = kubeconfig(tmp_path, token=TOKEN)
        ways = Ways(server=server.url, certificate_authority=authority, kubeconfig=file)
        assert await ask("ns/p", ways) == PAGE
    assert [request.headers.get("authorization") for request in server.requests] == shown


async def test_a_server_whose_certificate_nobody_vouches_for_gets_nothing(tmp_path: Path) -> None:
    context, _ = tls(tmp_path)
    async with serving(guarded, tls=context) as server:
        with pytest.raises(Unreachable, match="use --certificate-authority, or --insecure-skip-tls-verify behind"):
            await ask("ns/p", Ways(server=server.url, token=TOKEN))
        with pytest.raises(Unreachable, match=r"; does it serve https\?$"):
            await ask("ns/p", Ways(server=server.url.replace("https:", "http:")))
    assert server.requests == []


async def test_an_unverified_server_gets_only_a_given_token(tmp_path: Path) -> None:
    context, _ = tls(tmp_path)
    async with serving(guarded, tls=context) as server:
        ways = Ways(server=server.url, is_unverified=True, kubeconfig=kubeconfig(tmp_path, token=TOKEN))
        with pytest.raises(Unreachable, match="with --insecure-skip-tls-verify only that of --token is sent"):
            await ask("ns/p", ways)
        assert await ask("ns/p", replace(ways, token=TOKEN)) == PAGE
    assert [request.headers.get("authorization") for request in server.requests] == [None, f"Bearer {TOKEN}"]


async def test_a_context_without_a_token_says_so(tmp_path: Path) -> None:
    context, authority = tls(tmp_path)
    async with serving(guarded, tls=context) as server:
        file = kubeconfig(tmp_path, username="u", password="p")
        ways = Ways(server=server.url, certificate_authority=authority, kubeconfig=file)
        with pytest.raises(Unreachable, match=r"context c of .* has none; use --token"):
            await ask("ns/p", ways)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(503, b"pods have not been listed yet; try again soon\n"), "503 pods have not been listed"),
        (Answer(403, b"not allowed to get the non-resource URL /debug/explain\n"), "403 not allowed to get"),
        (Answer(404, b"there is no such page\n"), "404 there is no such page; does this scheduler have"),
        (Answer(200, b"<html>"), "200 <html>"),
        (Answer(200, {"kind": "PodList"}), "answered: 200"),
    ],
)
async def test_what_is_not_the_page_is_told_in_one_line(answer: Answer, message: str) -> None:
    async with serving(lambda _: answer) as server:
        with pytest.raises(Unreachable, match=message) as caught:
            await ask("ns/p", Ways(server=server.url))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:10251", "ftp://h", "http://h?x=y"])
async def test_a_url_that_is_none_is_told(url: str) -> None:
    with pytest.raises(Unreachable, match="--server: base_url"):
        await ask("ns/p", Ways(server=url))


@pytest.mark.parametrize("command", ["explain ns/p", "check", "top"])
def test_where_no_scheduler_answers_a_line_says_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *more = command.split()
    assert main([name, *more, "--server", "http://127.0.0.1:1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"agent-scheduler {name}: no scheduler answers at http://127.0.0.1:1: ")
    assert said.err.count("\n") == 1


# ---- through the API server


def leader_pod(*, scheme: str | None = None, port: Any = "http") -> dict[str, Any]:
    probe = {"path": "/readyz", "port": port, **({"scheme": scheme} if scheme else {})}
    scheduler = {
        "name": "scheduler",
        "ports": [{"name": "http", "containerPort": 10251}],
        "readinessProbe": {"httpGet": probe},
    }
    sidecar = {"name": "sidecar", "readinessProbe": {"httpGet": {"path": "/", "port": 80}}}
    return {"metadata": {"name": LEADER}, "spec": {"containers": [sidecar, scheduler]}}


def api(*, holder: str = f"{LEADER}_3f1a", pod: dict[str, Any] | None = None, proxied: Action | None = None) -> Script:
    """An API server with a lease, the leader's pod, and an answer at that pod's proxy."""

    def script(request: Request) -> Action:
        if request.path == LEASE:
            return Answer(200, {"spec": {"holderIdentity": holder}})
        if request.path == f"{PODS}/{LEADER}":
            return Answer(200, pod or leader_pod())
        if "/proxy/" in request.path:
            return proxied or Answer(200, PAGE)
        return status(404, "NotFound", f"{request.path} not found")

    return script


async def through(tmp_path: Path, script: Script, **ways: Any) -> tuple[Any, list[Request]]:
    async with serving(script) as server:
        file = kubeconfig(tmp_path, server.url, token="user-token")
        try:
            return await ask("ns/p", Ways(kubeconfig=file, **ways)), server.requests
        except Unreachable as error:
            return str(error), server.requests


async def test_the_lease_leads_to_the_leaders_page_through_the_pods_proxy(tmp_path: Path) -> None:
    page, requests = await through(tmp_path, api())
    assert page == PAGE
    assert [request.target for request in requests] == [
        LEASE,
        f"{PODS}/{LEADER}",
        f"{PODS}/{LEADER}:10251/proxy/debug/explain?pod=ns/p",
    ]
    assert {request.headers["authorization"] for request in requests} == {"Bearer user-token"}
    assert all("x-agent-scheduler-token" not in request.headers for request in requests)


@pytest.mark.parametrize(
    ("pod", "target"),
    [(leader_pod(scheme="HTTPS"), f"https:{LEADER}:10251"), (leader_pod(scheme="HTTP", port=8080), f"{LEADER}:8080")],
)
async def test_scheme_and_port_are_the_probes(tmp_path: Path, pod: dict[str, Any], target: str) -> None:
    page, requests = await through(tmp_path, api(pod=pod))
    assert page == PAGE
    assert requests[-1].path == f"{PODS}/{target}/proxy/debug/explain"


async def test_a_token_for_the_page_is_sent_beside_the_users_credentials(tmp_path: Path) -> None:
    page, requests = await through(tmp_path, api(), token=TOKEN)
    assert page == PAGE
    assert requests[-1].headers["authorization"] == "Bearer user-token"
    assert requests[-1].headers["x-agent-scheduler-token"] == TOKEN


async def test_the_lease_may_have_another_name_and_namespace(tmp_path: Path) -> None:
    def script(request: Request) -> Action:
        if request.path == "/apis/coordination.k8s.io/v1/namespaces/other/leases/batch":
            return Answer(200, {"spec": {"holderIdentity": f"{LEADER}_3f1a"}})
        if request.path == f"/api/v1/namespaces/other/pods/{LEADER}":
            return Answer(200, leader_pod())
        return Answer(200, PAGE)

    assert (await through(tmp_path, script, namespace="other", lease="batch"))[0] == PAGE


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (api(holder=""), f"{NAMED} has no holder: no scheduler is leading"),
        (
            api(holder="laptop_1"),
            f"{NAMED} is held by laptop, which is not a pod of that namespace; for a scheduler outside the cluster use "
            "--server, by default http://127.0.0.1:10251 on its own host",
        ),
        (lambda _: Answer(404, b"default backend - 404"), f"{NAMED} cannot be read: 404 default backend - 404"),
        (lambda _: status(404, "NotFound", "no"), f"{NAMED} does not exist"),
        (lambda _: status(403, "Forbidden", "it is forbidden"), "cannot be read: 403 it is forbidden"),
        (lambda _: Answer(200, b"<html>"), "cannot be read: the response is not an object"),
        (api(pod={"metadata": {"name": LEADER}}), "has no readiness probe at /readyz"),
        (api(proxied=status(403, "Forbidden", "no pods/proxy")), "the API server answered: 403 no pods/proxy"),
        (api(proxied=Answer(401, b"a token is needed\n")), "401 a token is needed; use --token"),
    ],
)
async def test_every_step_that_fails_says_which_it_was(tmp_path: Path, script: Script, message: str) -> None:
    told, _ = await through(tmp_path, script)
    assert message in told


def local_scheduler(identity: str) -> Script:
    """Answer as a scheduler with this identity."""

    def script(request: Request) -> Action:
        if request.path != "/debug/figures":
            return Answer(200, PAGE)
        return Answer(200, {"time": 1, "attempts": {}, "pending": {}, "about": {"identity": identity}})

    return script


async def test_a_leader_outside_the_cluster_is_asked_straight_if_it_is_on_this_host(tmp_path: Path) -> None:
    async with serving(local_scheduler("laptop.example_3f1a")) as scheduler:
        ways = {"host": "laptop.example", "local": scheduler.url}
        page, _ = await through(tmp_path, api(holder="laptop.example_3f1a"), **ways)
        assert page == PAGE
        told, _ = await through(tmp_path, api(holder="elsewhere_3f1a"), **ways)
        assert "is held by elsewhere" in told
        paths = [request.target for request in scheduler.requests]
        assert paths == ["/debug/figures", "/debug/explain?pod=ns/p"]
        # The scheduler of another cluster has the usual port.
        told, _ = await through(tmp_path, api(holder="laptop.example_77aa"), **ways)
    assert "is held by laptop.example_77aa, but laptop.example_3f1a answers at" in told
    assert [request.target for request in scheduler.requests] == [*paths, "/debug/figures"]


async def test_a_silent_api_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.cli.reach.PATIENCE", 0.2)
    told, _ = await through(tmp_path, lambda _: Hang())
    assert isinstance(told, str) and LEASE in told
