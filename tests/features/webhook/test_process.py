"""The whole process: certificates, reviews, readiness and its end."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.config.schema import Serving
from tests.support.embedded import until
from tests.support.reviews import GATE, pod, queue
from tests.support.webhooks import asked, asking, review, webhooks
from tests.unit.webhook.test_authority import made

pytestmark = pytest.mark.real_time


async def test_a_pod_is_gated_over_tls_by_a_certificate_that_the_configurations_trust() -> None:
    async with asked() as (_process, api_server):
        assert await api_server.review("/pods/mutate", pod("a.example/x")) == {
            "allowed": True,
            "patch": [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}],
            "patchType": "JSONPatch",
        }
        assert await api_server.review("/pods/mutate", pod(annotation=None)) == {"allowed": True}
        assert api_server.headers["Content-Type"].startswith("application/json")


async def test_what_is_no_review_gets_no_answer_of_one() -> None:
    whole = review({"uid": "u", "operation": "CREATE"})
    async with asked() as (_process, api_server):
        for path, body, content_type, expected in (
            ("/pods/mutate", b"{}", "application/json", 400),
            ("/pods/mutate", b"", "application/json", 400),
            ("/pods/mutate", whole, "text/plain", 415),
            ("/pods/mutate", b" " * (9 * 1024 * 1024), "application/json", 413),
            ("/pods/validate", b"{}", "application/json", 404),
        ):
            status, text = await api_server.post(path, body, content_type)
            assert (status, "Traceback" in text) == (expected, False)


async def test_until_queues_are_listed_only_what_needs_none_is_answered() -> None:
    async with asked() as (process, api_server):
        await until(lambda: process._is_synced)
        assert process._picture is not None
        process._picture._informers._first[0].synced.clear()
        made = review({"uid": "u", "operation": "CREATE", "object": queue()})
        assert await api_server.post("/queues/validate", made) == (503, "queues and namespaces are not listed yet\n")
        assert (await api_server.review("/pods/mutate", pod()))["patch"]
        assert "sync failed" in (await api_server.get("/readyz"))[1]
        assert (await api_server.get("/healthz"))[0] == 200


async def test_a_process_that_is_asked_to_end_is_not_ready_and_answers_for_a_while() -> None:
    async with webhooks() as world:
        process = world.start()
        delay = asyncio.Event()
        async with asking(process, await world.trusted()) as api_server:
            await until(lambda: process._is_synced)
            await api_server.review("/pods/mutate", pod())
            assert api_server.headers.get("Connection") != "close"
            process._timing = replace(process._timing, sleep=lambda _seconds: delay.wait())
            process.stop()
            assert "shutdown failed: shutting down" in (await api_server.get("/readyz"))[1]

            async def closing() -> bool:
                assert (await api_server.review("/pods/mutate", pod()))["patch"]
                return api_server.headers.get("Connection") == "close"

            await until(closing)
        delay.set()
        assert await world.ended(process) == 0


async def test_a_request_that_is_under_way_at_the_end_is_answered() -> None:
    async with webhooks() as world:
        process = world.start(shutdown_delay=0.2)
        trusted = await world.trusted()
        await until(lambda: process._is_synced)
        reader, writer = await asyncio.open_connection("localhost", process.port, ssl=trusted)
        body = review({"uid": "u", "operation": "CREATE", "object": pod()})
        head = ("POST /pods/mutate HTTP/1.1", "Host: x", "Content-Type: application/json")
        writer.write("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body[:10])
        await writer.drain()
        await asyncio.sleep(0.05)
        process.stop()
        await asyncio.sleep(0.4)
        writer.write(body[10:])
        answer = await reader.readuntil(b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        writer.close()
        assert await world.ended(process) == 0


async def test_what_becomes_of_reviews_is_counted() -> None:
    async with asked() as (_process, api_server):
        await api_server.review("/pods/mutate", pod())
        await api_server.review("/pods/mutate", pod(annotation=None))
        await api_server.review("/pods/mutate", pod(), operation="UPDATE")
        await api_server.post("/pods/mutate", b"{}")
        _, text = await api_server.get("/metrics")
        _, shown = await api_server.get("/configz")
        lines = text.splitlines()
        for result, count in {"patched": 1, "allowed": 1, "denied": 1, "unreadable": 1, "failed": 0}.items():
            name = f'agent_scheduler_webhook_reviews_total{{path="/pods/mutate",result="{result}"}}'
            assert f"{name} {count}" in [line.removesuffix(".0") for line in lines]
        assert 'agent_scheduler_webhook_review_duration_seconds_count{path="/pods/mutate"} 4' in lines
        assert any(line.startswith("agent_scheduler_webhook_certificate_expiry") for line in lines)
        assert json.loads(shown)["configuration"]["schedulerNames"] == ["volcano", "agent-scheduler"]


async def test_resource_groups_follow_their_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.process.webhook._LOOK_EVERY", 0.02)
    file = tmp_path / "groups.yaml"
    file.write_text("resourceGroups: []")
    async with asked(admission_conf=str(file)) as (process, api_server):
        file.write_text("resourceGroups: 7")
        counts = process.metrics.config_reloads_total
        await until(lambda: counts.labels("refused").value == 1)
        assert await api_server.review("/pods/mutate", pod(annotation=None)) == {"allowed": True}
        file.write_text(
            "resourceGroups:\n- resourceGroup: g\n  object: {key: namespace, value: [default]}\n  labels: {n: '1'}"
        )

        async def given() -> bool:
            return "patch" in await api_server.review("/pods/mutate", pod(annotation=None))

        await until(given)
        assert counts.labels("applied").value == 1


async def test_files_that_cannot_be_used_end_it_with_2(tmp_path: Any) -> None:
    async with webhooks() as world:
        missing = str(tmp_path / "none.pem")
        serving = Serving(bind_address="127.0.0.1", port=0, tls_cert_file=missing, tls_private_key_file=missing)
        assert await world.ended(world.start(serving=serving)) == 2


async def test_without_a_certificate_it_ends_when_it_is_asked() -> None:
    async with webhooks() as world:
        await world.cluster.ask("DELETE", "/api/v1/namespaces/agent-scheduler")
        process = world.start()
        await until(lambda: process.port)
        process.stop()
        assert await world.ended(process) == 0


def put(folder: Path, *, key_of_another: bool = False) -> ssl.SSLContext:
    """Write a certificate for localhost to `folder` and return a context that trusts it."""
    now = datetime.now(UTC)
    held, other = made(now, ("localhost",)), made(now, ("localhost",))
    (folder / "tls.crt").write_bytes(held.certificate)
    (folder / "tls.key").write_bytes(other.key if key_of_another else held.key)
    return ssl.create_default_context(cadata=held.bundle.decode())


async def test_files_that_are_replaced_take_effect_and_those_that_do_not_fit_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.serving.given_certificates.PERIOD", 0.02)
    serving = Serving(
        bind_address="127.0.0.1",
        port=0,
        tls_cert_file=str(tmp_path / "tls.crt"),
        tls_private_key_file=str(tmp_path / "tls.key"),
    )
    first = put(tmp_path)
    async with webhooks() as world:
        process = world.start(serving=serving)
        await until(lambda: process.port)
        async with asking(process, first) as api_server:
            assert (await api_server.review("/pods/mutate", pod()))["allowed"]
        before = process.certificate._digest
        put(tmp_path, key_of_another=True)
        for _ in range(5):
            async with asking(process, first) as api_server:
                assert (await api_server.get("/livez"))[0] == 200
        assert process.certificate._digest == before
        second = put(tmp_path)
        await until(lambda: process.certificate._digest != before)
        async with asking(process, second) as api_server:
            assert (await api_server.get("/livez"))[0] == 200
        # No configurations are written: the provider of the certificate sets their authority.
        assert await world.secret() == {}
