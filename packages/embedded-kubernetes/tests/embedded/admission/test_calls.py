"""Calls of webhooks over sockets: redirects, kept connections, certificates, services."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from embedded.sockets import Handler, answering
from embedded.support import SERVICES, World, named
from embedded_kubernetes.admission.calls import Call, CallFailed, Https, NoClient, call_of


async def _plain(request: web.Request) -> web.Response:
    return web.Response(text=request.host)


@asynccontextmanager
async def _asked(handler: Handler = _plain, *names: str) -> AsyncIterator[tuple[Https, str, bytes]]:
    """Yield a client, the address of a server with a certificate for these names, and the certificate's authority."""
    https = Https()
    async with answering(handler, *(names or ("127.0.0.1",))) as (address, authority):
        try:
            yield https, address, authority
        finally:
            await https.close()


@pytest.mark.parametrize(("status", "method"), [(302, "GET"), (307, "POST"), (308, "POST")])
async def test_a_redirect_is_followed(status: int, method: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/old":
            return web.Response(status=status, headers={"Location": "/new"})
        return web.Response(text=f"{request.method} {request.path} {await request.text()}".strip())

    async with _asked(handle) as (https, address, authority):
        answer = await https(Call(f"https://{address}/old", b"body", authority))
        assert answer.body.decode() == f"{method} /new {'body' if method == 'POST' else ''}".strip()


async def test_redirects_have_an_end() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/again"})

    async with _asked(handle) as (https, address, authority):
        with pytest.raises(CallFailed, match="stopped after 10 redirects"):
            await https(Call(f"https://{address}/", b"", authority))


async def test_a_connection_that_was_closed_while_it_was_kept_is_replaced() -> None:
    called = []

    async def handle(request: web.Request) -> web.Response:
        called.append(request.path)
        assert request.transport is not None
        if len(called) == 1:
            asyncio.get_running_loop().call_soon(request.transport.abort)
        return web.Response(text="x")

    async with _asked(handle) as (https, address, authority):
        for _ in range(3):
            try:
                await https(Call(f"https://{address}/", b"", authority))
            except CallFailed:
                assert len(called) == 1
        assert len(called) == 3


async def test_a_client_that_was_closed_opens_again_for_the_next_call() -> None:
    async with _asked() as (https, address, authority):
        for _ in range(2):
            assert (await https(Call(f"https://{address}/", b"", authority))).body == address.encode()
            await https.close()


async def test_who_hangs_up_without_an_answer_is_not_asked_again() -> None:
    called = []

    async def handle(request: web.Request) -> web.Response:
        called.append(request.path)
        request.transport.close()
        return web.Response(text="x")

    async with _asked(handle) as (https, address, authority):
        with pytest.raises(CallFailed, match="EOF"):
            await https(Call(f"https://{address}/", b"", authority))
        assert len(called) == 1


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("elsewhere",), "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"),
        (("127.0.0.2", "127.0.0.3"), "certificate is valid for 127.0.0.2, 127.0.0.3, not 127.0.0.1"),
    ],
)
async def test_a_certificate_of_another_name_is_refused(names: tuple[str, ...], said: str) -> None:
    async with _asked(_plain, *names) as (https, address, authority):
        with pytest.raises(CallFailed) as failed:
            await https(Call(f"https://{address}/", b"", authority))
        assert str(failed.value).endswith(f"x509: {said}")
        with pytest.raises(CallFailed, match="signed by unknown authority"):
            await https(Call(f"https://{address}/", b"", b"", ""))


async def test_a_service_shows_a_certificate_of_its_own_name() -> None:
    async with _asked(_plain, "hook.default.svc", "b.c") as (https, address, authority):
        answer = await https(Call("https://hook.default.svc:443/", b"", authority, address))
        assert answer.body == b"hook.default.svc:443"
        with pytest.raises(CallFailed) as failed:
            await https(Call("https://other.default.svc:443/", b"", authority, address))
        said = "certificate is valid for hook.default.svc, b.c, not other.default.svc"
        assert str(failed.value).endswith(f"x509: {said}")


async def test_plain_http_and_names_that_nobody_has_are_failures() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, _asked() as (https, *_):
        with pytest.raises(CallFailed, match=r"does not look like a TLS handshake|EOF"):
            await https(Call(f"https://127.0.0.1:{port}/", b""))
        with pytest.raises(CallFailed, match=r"dial tcp: lookup nosuch\.invalid: no such host"):
            await https(Call("https://nosuch.invalid/", b""))


async def test_certificates_that_are_none_are_no_client() -> None:
    async with _asked() as (https, *_):
        with pytest.raises(NoClient, match="unable to parse bytes as PEM block"):
            await https(Call("https://127.0.0.1/", b"", b"none"))


def _called(world: World, **service: object) -> Call:
    client = {"service": {"name": "hook", "namespace": "default", **service}}
    return call_of(world.api.registry, client, body=b"", seconds=7)


def test_a_service_is_called_by_its_name_at_its_address(world: World) -> None:
    with pytest.raises(CallFailed, match='service "hook" not found'):
        _called(world)
    ports = [{"port": 443, "targetPort": 8443}]
    made = world.post(SERVICES, named("hook", spec={"ports": ports}))
    call = _called(world, path="/a/")
    assert call.url == "https://hook.default.svc:443/a?timeout=7s"
    assert call.address == f"{made['spec'].get('clusterIP')}:443"
    with pytest.raises(CallFailed, match='no service port 444 found for service "hook"'):
        _called(world, port=444)


def test_a_service_without_an_address_cannot_be_called(world: World) -> None:
    spec = {"clusterIP": "None", "ports": [{"port": 443}]}
    world.post(SERVICES, named("hook", spec=spec))
    with pytest.raises(CallFailed, match="cannot route to service with ClusterIP"):
        _called(world)


def test_the_bundle_is_decoded_and_the_path_is_cleaned() -> None:
    bundle = base64.b64encode(b"pem").decode()
    client = {"url": "https://hook/", "caBundle": bundle}
    call = call_of(World().api.registry, client, body=b"b", seconds=1)
    assert call == Call("https://hook/?timeout=1s", b"b", b"pem")
