"""Which proxy is used, by Go's rules, and what goes through it."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from kube_client.auth import load_endpoint
from kube_client.credentials import KubeConfigError
from kube_client.http1 import Http1Transport
from kube_client.proxies import proxy_for
from kube_client.testing.authority import Authority, server_tls
from kube_client.testing.scripted import eventually, listening, port_of
from kube_client.transport import Endpoint, NotSent

from .raw_server import OK, client, get, post, saying
from .test_auth import pod_environ, write

pytestmark = pytest.mark.real_time

P = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api", {}, ""),
        ("https://api", P, "http://proxy:3128"),
        ("http://api", P, ""),
        ("http://api", {"HTTP_PROXY": "http://plain"}, "http://plain"),
        ("https://api", {"HTTP_PROXY": "http://plain"}, ""),
        ("https://api", {"https_proxy": "http://small"}, "http://small"),
        ("https://api", P | {"https_proxy": "http://small"}, "http://proxy:3128"),
        ("https://api", {"HTTPS_PROXY": "", "https_proxy": "http://small"}, "http://small"),
        ("https://api", {"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ("https://api", {"HTTPS_PROXY": "user:pw@proxy:3128"}, "http://user:pw@proxy:3128"),
        ("https://api", {"HTTPS_PROXY": "https://proxy"}, "https://proxy"),
        ("https://api", {"HTTPS_PROXY": "HTTP://proxy"}, "HTTP://proxy"),
        ("https://localhost:6443", P, ""),
        ("https://127.0.0.1:6443", P, ""),
        ("https://127.8.9.1", P, ""),
        ("https://[::1]:6443", P, ""),
        ("https://[::ffff:127.0.0.1]:6443", P, ""),
    ],
)
def test_the_environment_names_the_proxy(url: str, environ: dict[str, str], proxy: str) -> None:
    assert proxy_for(url, environ)[0] == proxy


@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("https://api.example.com", "*", True),
        ("https://api.example.com", "example.com", True),
        ("https://example.com", "example.com", True),
        ("https://api.example.com", ".example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", True),
        ("https://example.com", "*.example.com", False),
        ("https://notexample.com", "example.com", False),
        ("https://API.Example.COM", "api.eXample.com", True),
        ("https://api.example.com", "a, ,b,  example.com ", True),
        ("https://api.example.com", "example.com:443", True),
        ("https://api.example.com:6443", "example.com:443", False),
        ("https://api.example.com:6443", "example.com:6443", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "10.96.0.0/16", True),
        ("https://10.97.0.1", "10.96.0.0/16", False),
        ("https://10.96.0.1:6443", "10.96.0.1:6443", True),
        ("https://10.96.0.1:6443", "10.96.0.1:443", False),
        ("https://10.96.0.1", "10.96", False),
        ("https://10.96.0.1", "10.96.0.0/99", False),
        ("https://10.96.0.1", "::ffff:10.96.0.1", True),
        ("https://[::ffff:10.96.0.1]:6443", "10.96.0.0/16", True),
        ("https://api.example.com", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "[fd00::1]:443", False),
        ("https://[fd00::1]", "fe80::/10", False),
        ("https://kubernetes.default.svc", ".svc,.cluster.local", True),
        ("https://api.example.com", ":443", False),
    ],
)
def test_no_proxy_lists_what_is_reached_directly(url: str, no_proxy: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        assert (proxy_for(url, P | {name: no_proxy})[0] == "") == direct


def test_a_kubeconfig_and_a_pod_take_the_environment_s_proxy_and_a_given_one_goes_before_it(tmp_path: Path) -> None:
    plain = write(tmp_path, cluster={"server": "https://api.example"}, name="plain")
    given = write(tmp_path, cluster={"server": "https://api.example", "proxy-url": "http://given"}, name="given")
    local = write(tmp_path, cluster={"server": "https://127.0.0.1:6443", "proxy-url": "http://given"}, name="local")
    assert load_endpoint(kubeconfig=plain, environ=P).proxy == "http://proxy:3128"
    assert load_endpoint(kubeconfig=plain, environ=P | {"NO_PROXY": "api.example"}).proxy is None
    assert load_endpoint(kubeconfig=given, environ=P | {"NO_PROXY": "*"}).proxy == "http://given"
    assert load_endpoint(kubeconfig=local, environ=P).proxy == "http://given"
    Authority(tmp_path)
    (tmp_path / "token").write_text("t")
    pod = pod_environ("10.96.0.1")
    assert load_endpoint(environ=pod | P, service_account=tmp_path).proxy == "http://proxy:3128"
    inside = pod | P | {"NO_PROXY": "10.96.0.0/16"}
    assert load_endpoint(environ=inside, service_account=tmp_path).proxy is None


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://me:geheim@proxy", "must be an http:// or https:// URL.*SOCKS is not supported"),
        ("http://me:geheim@proxy:port", "Port could not be cast"),
        ("http://me:geheim@", "expected http://HOST"),
    ],
)
@pytest.mark.parametrize("where", ["HTTPS_PROXY", "proxy-url"])
def test_a_proxy_that_cannot_be_used_is_one_error_without_its_password(
    tmp_path: Path, proxy: str, words: str, where: str
) -> None:
    cluster = {"server": "https://api.example"} | ({where: proxy} if where == "proxy-url" else {})
    with pytest.raises(KubeConfigError, match=words) as raised:
        load_endpoint(kubeconfig=write(tmp_path, cluster=cluster), environ={where: proxy})
    assert where in str(raised.value)
    assert "geheim" not in "".join(traceback.format_exception(raised.value))


# -- through it


class Tunnels:
    """An HTTP proxy: opens tunnels where the credentials are right."""

    def __init__(self, authorization: str) -> None:
        self.authorization = authorization
        self.heads: list[str] = []
        self.url = ""
        self.answer = b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if f"\r\nProxy-Authorization: {self.authorization}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        writer.write(self.answer)
        if not self.answer.startswith(b"HTTP/1.1 200"):
            return
        host, _, port = head.split()[1].rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        finally:
            writer.close()


@asynccontextmanager
async def tunnelling(tls: ssl.SSLContext | None) -> AsyncIterator[Tunnels]:
    proxy = Tunnels("Basic " + base64.b64encode(b"me:ge/heim").decode())
    async with listening(proxy.serve, tls=tls) as opened:
        proxy.url = f"{'https' if tls else 'http'}://me:ge%2Fheim@127.0.0.1:{port_of(opened)}"
        yield proxy


async def through(authority: Authority, proxys: Authority, *, secure: bool) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.file))
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n0\r\n\r\n"
    async with (
        tunnelling(server_tls(proxys) if secure else None) as proxy,
        saying([[OK], [OK]], [[stream]], tls=server_tls(authority)) as server,
    ):
        transport = Http1Transport(Endpoint(server.url, trusting, proxy=proxy.url))
        assert await post(transport) == 200
        assert await get(transport) == b"ok"
        async with transport.stream("/watch", read_timeout=5) as batches:
            assert [batch async for batch in batches] == [[b"1"]]
        assert server.lines == ["POST /", "GET /", "GET /watch"]
        assert [head.split("\r\n")[0] for head in proxy.heads] == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"] * 2
        assert all(b"Proxy-Authorization" not in text for _, text in server.requests)
        await transport.close()
        await eventually(lambda: server.open == 0)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_and_watches_go_through_a_tunnel(tmp_path: Path, secure: bool, loop_factory: Any) -> None:
    authority = Authority(tmp_path)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(through(authority, authority, secure=secure))


@pytest.mark.parametrize("trusted", [True, False])
def test_a_proxy_with_tls_is_trusted_where_the_system_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    cluster, system = Authority(tmp_path / "cluster"), Authority(tmp_path / "system")
    with asyncio.Runner() as runner:
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(system.file))
            runner.run(through(cluster, system, secure=True))
        else:
            with pytest.raises(NotSent, match="certificate verify failed"):
                runner.run(through(cluster, system, secure=True))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("407", "refused a tunnel: 'HTTP/1.1 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "refused a tunnel: 'HTTP/1.1 502"),
        (b"nonsense\r\n\r\n", "refused a tunnel: 'nonsense'"),
        (b"HTTP/1.1\r\n\r\n", "refused a tunnel: 'HTTP/1.1'"),
        (b"", "the proxy closed the connection"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_means_not_sent_and_its_password_is_not_shown(
    tmp_path: Path, answer: bytes | str, why: str
) -> None:
    trusting = ssl.create_default_context(cafile=str(Authority(tmp_path).file))
    with structlog.testing.capture_logs() as logs:
        async with tunnelling(None) as proxy, saying([[OK]]) as server:
            if isinstance(answer, bytes):
                proxy.answer = answer
            else:
                proxy.authorization = "Basic other"
            endpoint = Endpoint(server.url.replace("http:", "https:"), trusting, proxy=proxy.url)
            transport = Http1Transport(endpoint)
            with pytest.raises(NotSent, match=why) as raised:
                await post(transport)
            assert server.connections == 0
            await transport.close()
    said = "".join(traceback.format_exception(raised.value)) + repr(logs) + repr(endpoint)
    assert "heim" not in said and proxy.authorization.split()[1] not in said


async def test_the_server_behind_a_proxy_has_to_prove_who_it_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with tunnelling(None) as proxy, saying([[OK]], tls=server_tls(authority, "elsewhere.example")) as server:
        about = {"ssl_context": trusting, "proxy": proxy.url}
        async with client(server.url, **about) as transport:
            with pytest.raises(NotSent, match=r"through the proxy 127.0.0.1:.*certificate verify failed"):
                await post(transport)
        async with client(server.url, server_hostname="elsewhere.example", **about) as transport:
            assert await post(transport) == 200


async def test_a_proxy_that_is_not_there_is_named(tmp_path: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(Authority(tmp_path).file))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = Endpoint("https://api.example", trusting, proxy=f"http://me:geheim@127.0.0.1:{port}")
    transport = Http1Transport(endpoint)
    with pytest.raises(NotSent, match=f"api.example:443 through the proxy 127.0.0.1:{port}") as raised:
        await post(transport)
    assert "geheim" not in "".join(traceback.format_exception(raised.value))
    await transport.close()


async def test_a_proxy_of_a_server_without_tls_is_sent_the_password_with_each_request() -> None:
    async with saying([[OK]] * 2) as proxy:
        url = proxy.url.replace("//", "//me:geheim@")
        async with client("http://api.example", proxy=url) as transport:
            assert await get(transport, "/x") == b"ok"
        (_, text), *_ = proxy.requests
        assert text.startswith(b"GET http://api.example/x HTTP/1.1\r\nHost: api.example\r\n")
        assert b"\r\nProxy-Authorization: Basic " + base64.b64encode(b"me:geheim") + b"\r\n" in text


# -- a user and a password in the server's URL


async def test_a_user_in_the_servers_url_is_basic_authentication_and_shown_nowhere(tmp_path: Path) -> None:
    """As Go's HTTP client takes it, before what client-go would add."""
    async with saying([[OK]]) as server:
        url = server.url.replace("//", "//me:ge%40heim@")
        file = write(tmp_path, cluster={"server": url}, user={"token": "other"})
        endpoint = load_endpoint(kubeconfig=file, environ={})
        assert endpoint.base_url == server.url
        transport = Http1Transport(endpoint)
        assert await get(transport) == b"ok"
        await transport.close()
        assert b"\r\nAuthorization: Basic " + base64.b64encode(b"me:ge@heim") in server.requests[0][1]
        assert b"Bearer" not in server.requests[0][1]
    assert "heim" not in repr(endpoint)


@pytest.mark.parametrize("url", ["ftp://me:geheim@api", "https://me:geheim@api:port", "https://me:geheim@"])
async def test_a_url_that_cannot_be_used_is_shown_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(KubeConfigError, match=r"clusters\[k\].cluster.server") as raised:
        load_endpoint(kubeconfig=write(tmp_path, cluster={"server": url}), environ={})
    assert "geheim" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(ValueError, match="base_url") as refused:
        Http1Transport(Endpoint(url))
    assert "geheim" not in "".join(traceback.format_exception(refused.value))
