"""The HTTP server over real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from agent_scheduler.config.schema import Serving
from agent_scheduler.serving import given_certificates, self_signed
from agent_scheduler.serving.health import Check
from agent_scheduler.serving.http import HttpServer, server_of
from agent_scheduler.serving.sources import (
    MAX_LIMIT,
    TOKEN_HEADER,
    DebugPage,
    DebugQuery,
    DebugSources,
    NotReady,
    ServingError,
    Sources,
)
from agent_scheduler.telemetry.metrics import Metrics
from kube_client.authorization import Access
from kube_client.testing.scripted import Hang, answering
from tests.support.embedded import until
from tests.support.http_servers import http_server
from tests.support.needed import ipv6_loopback
from tests.unit.webhook.test_authority import made

pytestmark = pytest.mark.real_time

PODS = [{"key": f"ns{index % 2}/p{index}", "place": "active", "api_token": "t0p"} for index in range(250)]


class World:
    """What the server tells of, changeable by a test."""

    def __init__(self) -> None:
        self.synced = False
        self.alive = True
        self.metrics = Metrics(version="1")
        self.read = 0
        self.tokens = Tokens()

    def sources(self) -> Sources:
        return Sources(
            metrics=self.metrics.exposition,
            configuration=lambda: {"workerCount": 2, "password": "hunter2"},
            debug=DebugSources(
                queue=self.queue,
                places=("active", "backoff"),
                pending=self.queue,
                cache=self.cache,
                explain=self.explain,
                explain_group=lambda namespace, name: (True, {"podgroup": f"{namespace}/{name}"}),
                check=self.check,
            ),
            live=(Check("loop", lambda: None if self.alive else "blocked"),),
            ready=(Check("sync", lambda: None if self.synced else "pods not listed yet"),),
        )

    async def check(self) -> dict[str, Any]:
        return {}

    def queue(self, query: DebugQuery) -> DebugPage:
        def pods() -> Iterator[dict[str, str]]:
            for pod in PODS:
                if query.namespace is None or pod["key"].startswith(f"{query.namespace}/"):
                    self.read += 1
                    yield pod

        return DebugPage({"pending": {"active": len(PODS)}, "asked": query.place}, pods())

    def explain(self, namespace: str, name: str) -> tuple[bool, dict[str, Any]]:
        if not self.synced:
            raise NotReady("not listed yet")
        return name != "nobody", {"pod": f"{namespace}/{name}", "place": "active"}

    def cache(self, query: DebugQuery) -> DebugPage:
        raise RuntimeError("the ledger is on fire")


@pytest.fixture
def world() -> World:
    return World()


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self.base = base

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str]:
        async with self._session.request(method, self.base + path, headers=headers) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()

    async def json(self, path: str, **headers: str) -> Any:
        status, text = await self.get(path, **headers)
        assert status == 200, text
        return json.loads(text)


@asynccontextmanager
async def served(sources: Sources, **more: Any) -> AsyncIterator[Client]:
    server = http_server(sources, address="127.0.0.1", port=0, **more)
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{port}")
    await server.stop()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with served(world.sources()) as client:
        yield client


ALL_LOOPS = "[+]ping ok\n[+]loop ok\n"
NO_PAGE = "there is no such page\n"
ALLOWED = "allowed: a whole number from 1 to 1000\n"


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        *((path, 200, "ok") for path in ("/healthz", "/livez", "/healthz/ping", "/livez/loop")),
        ("/readyz", 500, f"{ALL_LOOPS}[-]sync failed: pods not listed yet\nreadyz check failed\n"),
        ("/readyz?exclude=sync", 200, "ok"),
        (
            "/readyz?verbose&exclude=sync&exclude=none",
            200,
            f"{ALL_LOOPS}[+]sync excluded: ok\nwarn: some health checks cannot be excluded: no matches for none\n"
            "readyz check passed\n",
        ),
        ("/readyz/nothing", 404, "readyz has no check 'nothing'\n"),
        ("/debug/explain?pod=ns/p", 503, "not listed yet\n"),
        ("/debug/explain?podgroup=g", 400, "podgroup: found 'g'; allowed: NAMESPACE/NAME\n"),
        ("/debug/explain?podgroup=a/b&pod=a/b", 400, "found pod and podgroup; allowed: one of them\n"),
        ("/debug/explain?pod=a/b&x=3", 400, "unknown parameter 'x'; allowed: pod, podgroup, output\n"),
        *(
            (f"/debug/queue?limit={limit}", 400, f"limit: found '{limit}'; {ALLOWED}")
            for limit in ("0", "-1", "1001", "٣", "9" * 5000)
        ),
        ("/debug/queue?place=nowhere", 400, "place: found 'nowhere'; allowed: active, backoff\n"),
        ("/debug/queue?pod=x", 400, "unknown parameter 'pod'; allowed: limit, namespace, place\n"),
        # Without a trace, and it harms no other.
        ("/debug/cache", 500, "this page failed; the log has the reason\n"),
        *(
            (path, 404, NO_PAGE)
            for path in ("/", "/debug", "/debug/pprof/", "/metrics/", "/readyz/a/b", "/%2e%2e/etc/passwd")
        ),
    ],
    ids=lambda each: str(each)[:50],
)
async def test_what_a_page_says_while_pods_are_not_listed(
    client: Client, path: str, status: int, expected: str
) -> None:
    assert await client.get(path) == (status, expected)
    assert client.headers["X-Content-Type-Options"] == "nosniff"
    assert client.headers["Cache-Control"] == "no-store"
    assert client.headers["Content-Type"].startswith("text/plain")
    assert (await client.get("/livez"))[0] == 200


async def test_readiness_follows_its_checks(client: Client, world: World) -> None:
    world.synced = True
    assert await client.get("/readyz") == (200, "ok")
    passed = f"{ALL_LOOPS}[+]sync ok\nreadyz check passed\n"
    assert await client.get("/readyz?verbose") == (200, passed)
    world.alive = False
    for path in ("/healthz", "/livez", "/readyz", "/livez/loop"):
        assert (await client.get(path))[0] == 500


async def test_metrics_are_prometheus_text(client: Client, world: World) -> None:
    world.metrics.profile("a").attempts["scheduled"][0].inc()
    status, text = await client.get("/metrics")
    assert status == 200
    assert client.headers["Content-Type"].startswith("text/plain; version=")
    assert 'scheduler_schedule_attempts_total{result="scheduled",profile="a"} 1.0' in text


async def test_the_configuration_is_shown_without_secrets(client: Client) -> None:
    shown = await client.json("/configz")
    assert shown == {"configuration": {"workerCount": 2, "password": "[redacted]"}}


async def test_a_debug_page_is_cut_and_says_so_and_can_be_narrowed(client: Client, world: World) -> None:
    page = await client.json("/debug/queue")
    assert (len(page["items"]), page["limit"], page["truncated"]) == (100, 100, True)
    assert page["pending"] == {"active": 250}
    assert page["items"][0]["api_token"] == "[redacted]"
    assert world.read == 101
    page = await client.json(f"/debug/queue?limit={MAX_LIMIT}&namespace=ns1&place=active")
    assert (len(page["items"]), page["truncated"], page["asked"]) == (125, False, "active")
    page = await client.json(f"/debug/queue?limit={len(PODS)}")
    assert (len(page["items"]), page["truncated"]) == (len(PODS), False)


async def test_one_pod_or_group_is_explained(client: Client, world: World) -> None:
    assert await client.json("/debug/explain?podgroup=ns/g") == {"podgroup": "ns/g"}
    world.synced = True
    assert await client.json("/debug/explain?pod=ns/p") == {"pod": "ns/p", "place": "active"}
    status, text = await client.get("/debug/explain?pod=ns/nobody")
    assert (status, json.loads(text)["pod"]) == (404, "ns/nobody")
    assert client.headers["Content-Type"].startswith("application/json")
    for query in ("", "?pod=", "?pod=p", "?pod=/p", "?pod=ns/", "?pod=a/b/c"):
        status, text = await client.get(f"/debug/explain{query}")
        assert (status, text.rpartition("; ")[2]) == (400, "allowed: NAMESPACE/POD\n")


async def test_a_process_without_a_queue_has_no_pages_of_a_scheduler(world: World) -> None:
    async with served(Sources(metrics=world.metrics.exposition, configuration=dict)) as client:
        assert await client.json("/configz") == {"configuration": {}}
        for page in ("debug/queue", "debug/cache", "debug/explain", "ui/"):
            assert await client.get(f"/{page}") == (404, NO_PAGE)


async def test_only_reading_is_allowed(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        told = f"{method} is not allowed here; allowed: GET,HEAD\n"
        assert await client.get("/metrics", method=method) == (405, told)
    assert (await client.get("/metrics", method="HEAD"))[0] == 200


# ---- start and stop


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
async def test_a_port_that_is_taken_is_told(world: World, address: str) -> None:
    first = http_server(world.sources(), address=address, port=0)
    port = first.listen()
    server = http_server(world.sources(), address=address, port=port)
    told = f"cannot serve on {address} port {port}: Address already in use$"
    with pytest.raises(ServingError, match=told):
        await server.start()
    await server.stop()
    await first.stop()


async def test_what_is_asked_before_the_server_answers_is_answered_then(world: World) -> None:
    server = http_server(world.sources(), address="127.0.0.1", port=0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listen())
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    await writer.drain()
    await server.serve()
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await server.stop()


@pytest.mark.parametrize("answers", [False, True])
async def test_a_stopped_server_frees_its_port_whether_it_answered_or_not(world: World, answers: bool) -> None:
    first = http_server(world.sources(), address="127.0.0.1", port=0)
    port = await first.start() if answers else first.listen()
    await first.stop()
    await first.stop()
    second = http_server(world.sources(), address="127.0.0.1", port=port)
    assert await second.start() == port
    await second.stop()


def with_tls(world: World, certificate: str, key: str) -> HttpServer:
    """Its transport asks nobody."""
    serving = Serving(port=0, tls_cert_file=certificate, tls_private_key_file=key)
    return server_of(serving, world.sources(), answering(lambda _: Hang())[1])


async def test_tls_is_spoken_with_a_certificate_that_is_replaced_without_a_restart(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_certificates, "PERIOD", 0.02)
    files = tmp_path / "tls.pem", tmp_path / "tls.key"

    def write() -> bytes:
        held = made(datetime.now(UTC), ("localhost",))
        for file, content in zip(files, (held.certificate, held.key), strict=True):
            file.write_bytes(content)
        return held.certificate

    async def is_presented() -> bool:
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        return shown.encode() == expected

    expected = write()
    server = with_tls(world, *map(str, files))
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/livez", ssl=False) as answer:
            assert await answer.text() == "ok"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/livez")
    assert await is_presented()
    files[0].write_bytes(b"no certificate")
    for _ in range(3):
        assert await is_presented()
    expected = write()
    await until(is_presented)
    await server.stop()


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("agent-scheduler-7d4b9", ["agent-scheduler-7d4b9", "localhost"]),
        ("x" * 70, ["x" * 70, "localhost"]),
        *((host, ["localhost"]) for host in ("", "h\u00e4user", "h\udcc3")),
    ],
)
async def test_without_a_given_certificate_the_process_signs_its_own_and_replaces_it_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch, host: str, names: list[str]
) -> None:
    monkeypatch.setattr(self_signed, "PERIOD", timedelta(milliseconds=20))
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    server = server_of(Serving(port=0, self_signed_certificate=True), world.sources(), answering(lambda _: Hang())[1])
    port = await server.start()

    async def presented() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    first = await presented()
    loaded = x509.load_pem_x509_certificate(first.encode())
    found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == names

    async def is_replaced() -> bool:
        return await presented() != first

    await until(is_replaced)
    async with aiohttp.ClientSession() as session, session.get(f"https://127.0.0.1:{port}/livez", ssl=False) as answer:
        assert await answer.text() == "ok"
    await server.stop()


def test_a_certificate_that_cannot_be_read_is_told(world: World, tmp_path: Path) -> None:
    told = r"cannot use the certificate .*none\.pem with the key .*none\.key"
    with pytest.raises(ServingError, match=told):
        with_tls(world, str(tmp_path / "none.pem"), str(tmp_path / "none.key"))


# ---- where it listens, and who is warned of what


async def reached(world: World, address: str) -> set[str]:
    """The hosts at which a server with this address answers."""
    server, found = http_server(world.sources(), address=address, port=0), set()
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        for host, written in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
            with suppress(aiohttp.ClientConnectorError):
                async with session.get(f"http://{written}:{port}/livez") as answer:
                    assert answer.status == 200
                    found.add(host)
    await server.stop()
    return found


@pytest.mark.parametrize(
    ("address", "families"),
    [("::", {"127.0.0.1", "::1"}), ("0.0.0.0", {"127.0.0.1"}), ("127.0.0.1", {"127.0.0.1"}), ("::1", {"::1"})],
)
async def test_all_addresses_are_those_of_both_families(world: World, address: str, families: set[str]) -> None:
    ipv6_loopback()
    assert await reached(world, address) == families


async def test_a_host_without_ipv6_serves_what_it_has(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert "127.0.0.1" in await reached(world, "::")


@pytest.mark.parametrize("authorized", [False, True])
@pytest.mark.parametrize(
    ("address", "is_open"),
    [*((each, True) for each in ("0.0.0.0", "::", "10.0.0.7")), ("127.1.2.3", False), ("::1", False)],
)
def test_pages_that_anyone_reaches_are_warned_of(world: World, address: str, is_open: bool, authorized: bool) -> None:
    with capture_logs() as lines:
        serving = Serving(bind_address=address, authorize_metrics=authorized)
        server_of(serving, world.sources(), answering(lambda _: Hang())[1])
    told = [(line["event"], line["log_level"], line["address"]) for line in lines]
    assert told == ([("pages are open", "warning", address)] if is_open and not authorized else [])


# ---- who may read


class Tokens:
    """A `KubeAuthorizer` that knows two tokens, and has too much to do for a third."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def access(self, token: str, path: str) -> Access:
        self.asked.append(token)
        if token in ("prometheus", "tenant"):
            return Access.ALLOWED if (token, path) == ("prometheus", "/metrics") else Access.FORBIDDEN
        return {"late": Access.BUSY, "unasked": Access.UNKNOWN}.get(token, Access.UNAUTHENTICATED)


@pytest.fixture
async def guarded(world: World) -> AsyncIterator[Client]:
    world.tokens = Tokens()
    async with served(world.sources(), authorizer=world.tokens) as client:
        yield client


async def test_health_needs_no_token(guarded: Client, world: World) -> None:
    assert (await guarded.get("/livez"))[0] == 200
    assert (await guarded.get("/readyz"))[0] == 500
    assert world.tokens.asked == []


async def test_everything_else_needs_one(guarded: Client, world: World) -> None:
    debug = [f"/debug/{page}" for page in ("queue", "cache", "explain", "check")]
    for path in ("/metrics", "/configz", *debug, "/nothing", "/livezz"):
        for headers in ({}, {"Authorization": "Basic cHJvbWV0aGV1cw=="}, {"Authorization": "Bearer "}):
            told = "a bearer token that the API server accepts is required\n"
            assert await guarded.get(path, **headers) == (401, told)
            assert guarded.headers["WWW-Authenticate"] == "Bearer"
        assert world.tokens.asked == []
        assert (await guarded.get(path, Authorization="Bearer guessed"))[0] == 401
        world.tokens.asked.clear()


async def test_a_token_is_taken_from_either_header_and_is_good_for_its_pages_alone(guarded: Client) -> None:
    for header, scheme in (("Authorization", "bearer "), (TOKEN_HEADER, "")):
        answers = {
            token: (await guarded.get("/metrics", **{header: scheme + token}))[0]
            for token in ("prometheus", "tenant", "guessed", "late", "unasked")
        }
        assert list(answers.values()) == [200, 403, 401, 429, 503]
        told = "not allowed to get the non-resource URL /configz\n"
        assert await guarded.get("/configz", **{header: f"{scheme}prometheus"}) == (403, told)
    await guarded.get("/metrics", Authorization="Bearer late")
    assert guarded.headers["Retry-After"] == "1"
    # The header that the API server's proxy passes on comes first: a token beside it is not a second try.
    both = {"Authorization": "Bearer guessed", TOKEN_HEADER: "prometheus"}
    assert (await guarded.get("/metrics", **both))[0] == 401
