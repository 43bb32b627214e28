from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_client.auth import load_endpoint
from kube_client.credentials import KubeConfigError
from kube_client.http1 import Http1Transport
from kube_client.testing.authority import Authority, server_tls
from kube_client.testing.scripted import Answer, FakeTime, in_order, serving
from kube_client.transport import Endpoint, NotSent

from .test_exec_plugin import V1

pytestmark = pytest.mark.real_time


def b64(content: bytes | Path) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.read_bytes()).decode()


def write(folder: Path, *, cluster: Any = None, user: Any = None, name: str = "config", **changes: Any) -> Path:
    """A kubeconfig with one context; `changes` replace top-level keys, None removes one."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"} | (cluster or {})}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    content = {key: value for key, value in {**content, **changes}.items() if value is not None}
    file = folder / name
    file.write_text(yaml.safe_dump(content))
    return file


async def ask(endpoint: Endpoint) -> int:
    transport = Http1Transport(endpoint)
    try:
        return (await transport.request("GET", "/version", timeout=60)).status
    finally:
        await transport.close()


async def authorization(endpoint: Endpoint) -> str | None:
    return (await endpoint.headers()).get("Authorization")


# -- where it is looked for


def test_an_explicit_file_goes_before_everything(tmp_path: Path) -> None:
    given = write(tmp_path, cluster={"server": "https://given"}, name="given")
    other = write(tmp_path, cluster={"server": "https://other"}, name="other")
    endpoint = load_endpoint(kubeconfig=given, environ={"KUBECONFIG": str(other)})
    assert endpoint.base_url == "https://given"
    assert endpoint.namespace == "ns"
    assert endpoint.source == f"context c of {given}"


def test_an_explicit_file_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="missing: no such kubeconfig"):
        load_endpoint(kubeconfig=tmp_path / "missing", environ={})


def test_files_of_kubeconfig_are_merged_and_the_first_current_context_counts(tmp_path: Path) -> None:
    first = write(tmp_path, name="first", clusters=None, users=None)
    second = write(tmp_path, cluster={"server": "https://second"}, name="second", **{"current-context": "other"})
    environ = {"KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}"}
    assert load_endpoint(environ=environ).base_url == "https://second"


def test_kubeconfig_that_names_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="KUBECONFIG names no file that exists"):
        load_endpoint(environ={"KUBECONFIG": str(tmp_path / "missing")}, home=tmp_path)


def test_another_context_can_be_asked_for(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        clusters=[{"name": n, "cluster": {"server": f"https://{n}"}} for n in ("a", "b")],
        contexts=[{"name": n, "context": {"cluster": n}} for n in ("a", "b")],
        **{"current-context": "a"},
    )
    assert load_endpoint(kubeconfig=file).base_url == "https://a"
    assert load_endpoint(kubeconfig=file, context="b").base_url == "https://b"
    with pytest.raises(KubeConfigError, match="the given context names 'z', but contexts has: a, b"):
        load_endpoint(kubeconfig=file, context="z")


def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube", cluster={"server": "https://home"})
    assert load_endpoint(environ={}, home=tmp_path).base_url == "https://home"


def test_without_any_configuration_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=f"no cluster is configured.*{tmp_path}/.kube/config"):
        load_endpoint(environ={}, home=tmp_path)


# -- in a pod


def pod_environ(host: str = "127.0.0.1", port: str = "443") -> Mapping[str, str]:
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def mount(folder: Path) -> None:
    (folder / "token").write_text("pod-token\n")
    (folder / "namespace").write_text("agents")


async def test_a_pod_uses_its_service_account(tmp_path: Path, authority: Authority) -> None:
    mount(tmp_path)
    async with serving(in_order(Answer()), tls=server_tls(authority)) as server:
        port = server.url.rpartition(":")[2]
        endpoint = load_endpoint(environ=pod_environ(port=port), service_account=tmp_path, home=tmp_path)
        assert await ask(endpoint) == 200
        assert server.requests[0].headers["authorization"] == "Bearer pod-token"
        assert endpoint.namespace == "agents"


def test_an_ipv6_service_is_bracketed(tmp_path: Path, authority: Authority) -> None:
    mount(tmp_path)
    endpoint = load_endpoint(environ=pod_environ("fd00::1"), service_account=tmp_path)
    assert endpoint.base_url == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("token", None, "token is missing.*automountServiceAccountToken"),
        ("ca.crt", None, "ca.crt is missing"),
        ("ca.crt", "nonsense", "ca.crt: not a certificate bundle"),
    ],
)
def test_a_pod_whose_mount_cannot_be_used_says_so(
    tmp_path: Path, authority: Authority, file: str, content: str | None, words: str
) -> None:
    mount(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(KubeConfigError, match=words):
        load_endpoint(environ=pod_environ(), service_account=tmp_path)


def test_a_pod_without_a_port_says_so(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="must both be set"):
        load_endpoint(environ={"KUBERNETES_SERVICE_HOST": "h"}, service_account=tmp_path)


# -- TLS


async def reached(
    authority: Authority, cluster: Any, *, user: Any = None, names: tuple[str, ...] = (), clients: bool = False
) -> int:
    """The status that a server with TLS answers; `names`: of its certificate, `clients`: it asks for theirs."""
    tls = server_tls(authority, *names, clients=clients)
    async with serving(in_order(Answer()), tls=tls) as server:
        file = write(authority.folder, cluster={"server": server.url, **cluster}, user=user)
        try:
            return await ask(load_endpoint(kubeconfig=file))
        except NotSent:
            assert server.requests == []
            raise


async def test_the_authority_of_the_cluster_is_trusted_and_no_other(tmp_path: Path, authority: Authority) -> None:
    assert await reached(authority, {"certificate-authority": "ca.crt"}) == 200
    assert await reached(authority, {"certificate-authority-data": b64(authority.pem)}) == 200
    assert await reached(authority, {"insecure-skip-tls-verify": True}, names=("elsewhere",)) == 200
    stranger = b64(Authority(tmp_path / "other").pem)
    with pytest.raises(NotSent, match=r"(?i)certificate"):
        await reached(authority, {"certificate-authority-data": stranger})


async def test_the_name_in_the_certificate_can_be_given(authority: Authority) -> None:
    cluster = {"certificate-authority": "ca.crt"}
    with pytest.raises(NotSent):
        await reached(authority, cluster, names=("api.example",))
    cluster["tls-server-name"] = "api.example"
    assert await reached(authority, cluster, names=("api.example",)) == 200


async def test_a_scheme_in_capitals_is_a_scheme(tmp_path: Path, authority: Authority) -> None:
    async with serving(in_order(Answer()), tls=server_tls(authority)) as server:
        url = server.url.replace("https", "HTTPS")
        file = write(tmp_path, cluster={"server": url, "certificate-authority": "ca.crt"})
        assert await ask(load_endpoint(kubeconfig=file)) == 200


@pytest.mark.parametrize("how", ["data", "files", "data and file", "a plugin"])
async def test_a_client_certificate_is_presented(tmp_path: Path, authority: Authority, how: str) -> None:
    certificate, key = authority.issue("me")
    given = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
    answer = tmp_path / "answer"
    answer.write_text(json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": given}))
    user = {
        "data": {"client-certificate-data": b64(certificate), "client-key-data": b64(key)},
        "files": {"client-certificate": "me.crt", "client-key": "me.key"},
        "data and file": {"client-certificate-data": b64(certificate), "client-key": "me.key"},
        "a plugin": {"exec": {"apiVersion": V1, "command": "/bin/cat", "args": [str(answer)]}},
    }[how]
    assert await reached(authority, {"certificate-authority": "ca.crt"}, user=user, clients=True) == 200


# -- users


def _unsigned() -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({"alg": "none"}, {"exp": 4e9}))
    return ".".join([*(part.decode().rstrip("=") for part in parts), "x"])


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, None),
        ({"token": "secret"}, "Bearer secret"),
        # Before a token.
        ({"token": "old", "tokenFile": "tok"}, "Bearer rotated"),
        ({"username": "me", "password": "pass"}, "Basic bWU6cGFzcw=="),
        # Through the library.
        ({"auth-provider": {"name": "oidc", "config": {"id-token": _unsigned()}}}, f"Bearer {_unsigned()}"),
    ],
    ids=["none", "token", "token file", "password", "legacy provider"],
)
async def test_a_user_may_have_credentials_of_each_kind(
    tmp_path: Path, user: dict[str, Any], expected: str | None
) -> None:
    (tmp_path / "tok").write_text("rotated\n")
    assert await authorization(load_endpoint(kubeconfig=write(tmp_path, user=user))) == expected


async def test_a_context_may_be_without_a_user(tmp_path: Path) -> None:
    file = write(tmp_path, contexts=[{"name": "c", "context": {"cluster": "k"}}], users=None)
    assert await authorization(load_endpoint(kubeconfig=file)) is None


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"nul\0", b"\xff"])
def test_a_token_file_without_a_token_is_one_error_from_the_start(
    tmp_path: Path, authority: Authority, content: bytes | None
) -> None:
    mount(tmp_path)
    if content is not None:
        (tmp_path / "tok").write_bytes(content)
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(KubeConfigError, match=r"token file .*token: it"):
            load_endpoint(environ=pod_environ(), service_account=tmp_path)
    with pytest.raises(KubeConfigError, match=r"token file .*tok: "):
        load_endpoint(kubeconfig=write(tmp_path, user={"tokenFile": "tok"}))


def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = write(tmp_path, user={"token": "se\ncret"})
    with pytest.raises(KubeConfigError, match=r"users\[u\].user.token cannot be used") as raised:
        load_endpoint(kubeconfig=file)
    assert "cret" not in str(raised.value)


async def test_a_plugin_is_told_of_the_cluster_and_of_what_the_cluster_has_for_it(
    tmp_path: Path, authority: Authority
) -> None:
    info = tmp_path / "info"
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}}
    spec = {
        "apiVersion": V1,
        "command": "/bin/sh",
        "args": ["-c", f"printf %s \"$KUBERNETES_EXEC_INFO\" > {info}; echo '{json.dumps(answer)}'"],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    about = {"server": "https://api.example", "tls-server-name": "other.example"}
    extensions = [
        {"name": "other", "extension": {"a": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}},
    ]
    cluster = {**about, "certificate-authority": "ca.crt", "extensions": extensions}
    file = write(tmp_path, cluster=cluster, user={"exec": spec})
    assert await authorization(load_endpoint(kubeconfig=file, environ={})) == "Bearer t"
    data = {"certificate-authority-data": b64(authority.pem), "config": {"audience": "me"}}
    assert json.loads(info.read_text())["spec"] == {"interactive": False, "cluster": {**about, **data}}


async def test_a_legacy_provider_that_cannot_renew_is_no_credentials(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {}}}
    with pytest.raises(NotSent, match=r"users\[u\].user.auth-provider"):
        await load_endpoint(kubeconfig=write(tmp_path, user=user)).headers()


async def test_requests_go_on_with_the_token_of_a_legacy_provider_while_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, gate, time = iter(["one", "two"]), asyncio.Event(), FakeTime()

    async def load_and_set(_loader: object, configuration: Any) -> None:
        token = next(tokens)
        if token == "two":
            await gate.wait()
        configuration.api_key["BearerToken"] = f"Bearer {token}"

    monkeypatch.setattr("kubernetes_asyncio.config.kube_config.KubeConfigLoader.load_and_set", load_and_set)
    user = {"auth-provider": {"name": "oidc", "config": {}}}
    endpoint = load_endpoint(kubeconfig=write(tmp_path, user=user))
    provider = endpoint.headers.__self__  # type: ignore[attr-defined]
    provider._clock = lambda: time.now
    assert await authorization(endpoint) == "Bearer one"
    time.now += 61
    for _ in range(3):
        assert await authorization(endpoint) == "Bearer one"
    gate.set()
    await provider._renewal.ended()
    assert await authorization(endpoint) == "Bearer two"


# -- what is wrong is said, with file and key


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{]", "config: not YAML: .*line 1"),
        ("[" * 1_000_000, "config: not YAML: line 1: nested too deeply"),
        ("!!bool x", "config: not YAML"),
        ("- a", "config: not a kubeconfig: the file must hold a mapping"),
        ("", "config: not a kubeconfig"),
        ("clusters: {}", "config: clusters must be a list"),
        ("users: [{user: {}}]", r"config: users\[0\].name is required"),
        ("contexts: [{name: a, context: 3}]", r"config: contexts\[0\].context must be a mapping"),
        ("current-context: 3", "config: current-context must be a string"),
        ("clusters: []", "config: current-context is not set"),
        ("current-context: c", "config: current-context names 'c', but contexts has: none"),
        ("{current-context: c, contexts: [{name: c}]}", r"contexts\[c\].context.cluster is required"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(KubeConfigError, match=words):
        load_endpoint(kubeconfig=file)


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": ""}, {}, r"clusters\[k\].cluster.server must be an http:// or https:// URL, not ''"),
        ({"server": "k:6443"}, {}, "server must be an http:// or https:// URL"),
        ({"server": 3}, {}, "server must be a string, not int"),
        ({"proxy-url": "socks5://p"}, {}, "proxy-url must be an http:// or https:// URL"),
        ({"certificate-authority": "nope"}, {}, r"cluster.certificate-authority: no such file: .*nope"),
        ({"certificate-authority-data": "abc"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": "YWJj"}, {}, "certificate-authority-data holds no PEM certificates"),
        (
            {"certificate-authority-data": "YWJj", "insecure-skip-tls-verify": True},
            {},
            "insecure-skip-tls-verify and certificate-authority-data exclude each other",
        ),
        ({}, {"client-certificate-data": "YWJj"}, r"users\[u\].user.client-key is required"),
        ({}, {"client-key-data": "YWJj"}, r"users\[u\].user.client-certificate is required"),
        ({}, {"client-certificate-data": "YWJj", "client-key-data": "YWJj"}, "cannot be loaded"),
        ({}, {"as": "admin"}, r"users\[u\].user.as: impersonation is not supported"),
        ({}, {"exec": 3}, r"users\[u\].user.exec must be a mapping"),
        ({}, {"exec": {"command": "x"}}, r"users\[u\].user.exec.apiVersion must be"),
        ({}, {"token": 3}, r"users\[u\].user.token must be a string"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused_with_file_and_key(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str
) -> None:
    file = write(tmp_path, cluster={"server": "https://k"} | cluster, user=user)
    with pytest.raises(KubeConfigError, match=words) as raised:
        load_endpoint(kubeconfig=file)
    assert str(file) in str(raised.value)


def test_a_user_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, users=[{"name": "x", "user": {}}])
    with pytest.raises(KubeConfigError, match=r"contexts\[c\].context.user names 'u', but users has: x"):
        load_endpoint(kubeconfig=file)
