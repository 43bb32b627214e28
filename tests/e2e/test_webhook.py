"""The webhook as a user installs it: with its own ServiceAccount, on a cluster that authorizes by RBAC."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

from agent_scheduler.webhook.configurations import MUTATING, VALIDATING
from tests.support.embedded import until
from tests.support.reviews import pod, queue
from tests.support.webhooks import SECRET, review

from .installed import Installation
from .processes import Served
from .test_installed import NAMESPACE, all_is_used, embedded_alone, lost, own_cluster

ACCOUNT = "agent-scheduler-webhook"
#: Flags for processes that are reached by another address than their Service's.
HERE = ("--certificate-host", "127.0.0.1", "--shutdown-delay", "200ms")
_PATHS = tuple(f"{path}/{ACCOUNT}" for path in (MUTATING, VALIDATING))


async def bundle(installed: Installation) -> str:
    """Return the authority of both configurations, once it is the same in all their webhooks."""
    found: set[str] = set()

    async def same() -> bool:
        found.clear()
        for path in _PATHS:
            webhooks = (await installed.ask("GET", path))["webhooks"]
            found.update(each["clientConfig"].get("caBundle", "") for each in webhooks)
        return len(found) == 1 and "" not in found

    await until(same)
    return base64.b64decode(found.pop()).decode()


async def reached(installed: Installation, webhook: Served) -> None:
    """Make the API server call the webhook's process, because nothing serves the address of its Service."""
    await bundle(installed)
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    await installed.ask("DELETE", f"{services}/{ACCOUNT}")
    here = {"type": "ExternalName", "externalName": "localhost"}
    await installed.ask("POST", services, {"metadata": {"name": ACCOUNT}, "spec": here})
    for path in (MUTATING, VALIDATING):
        webhooks = (await installed.ask("GET", f"{path}/{ACCOUNT}"))["webhooks"]
        for each in webhooks:
            each["clientConfig"]["service"]["port"] = webhook.port
        await installed.merge(f"{path}/{ACCOUNT}", {"webhooks": webhooks})


def asked(webhook: Served, path: str, made: Any, authority: str, **more: Any) -> Any:
    """Return the response of a review to a client that trusts only `authority`."""
    body = review({"uid": "u", "operation": "CREATE", "namespace": "default", "object": made, **more})
    request = urllib.request.Request(
        f"https://127.0.0.1:{webhook.port}{path}", data=body, headers={"Content-Type": "application/json"}
    )
    context = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, timeout=300, context=context) as answer:
        return json.load(answer)["response"]


@embedded_alone
async def test_the_webhook_uses_each_right_that_it_has_and_needs_no_other(tmp_path: Path) -> None:
    # The answer to the first write is lost: the webhook finds that it was carried out.
    async with own_cluster(
        tmp_path, "--nodes", "0", faults=[lost("secrets")], components=["crd", "webhook", "default"]
    ) as installed:
        webhooks = [await installed.start(ACCOUNT, name, *HERE) for name in ("one", "other")]
        for each in webhooks:
            await each.ready()
        authority = await bundle(installed)
        for each in webhooks:
            response = await asyncio.to_thread(asked, each, "/pods/mutate", pod(), authority)
            assert response["patchType"] == "JSONPatch"
            response = await asyncio.to_thread(asked, each, "/queues/validate", queue(parent="none"), authority)
            assert "failed to get parent queue none" in response["status"]["message"]
            assert (await asyncio.to_thread(each.get, "/metrics"))[0] == 401
        await installed.ask("DELETE", SECRET)

        async def is_made_again() -> bool:
            return await bundle(installed) != authority

        await until(is_made_again)

        await all_is_used(installed, ACCOUNT, *webhooks)
        for each in webhooks:
            assert await each.terminate() == 0
