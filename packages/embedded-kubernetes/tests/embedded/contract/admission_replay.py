"""Replays a recording about webhooks and admission policies, in which every request is a line.

Texts are compared word for word. The calls are compared, too: the reviews of each webhook, those of mutating ones in
their order. The number of reviews of a delete depends on timing, so consecutive equal reviews count once.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from embedded.support import ADMISSION, named

from .access_replay import AccessReplay, Recorded
from .admission_hooks import Called, Hooks
from .comparison import compare
from .doors import Client

_SERVICES = "/api/v1/namespaces/hooks/services"
_EXTERNAL = {"type": "ExternalName", "externalName": "localhost"}
_SERVICE = named("hook", apiVersion="v1", kind="Service", spec=_EXTERNAL)


class AdmissionReplay(AccessReplay):
    def __init__(self, client: Client, recorded: Recorded, lines: list[dict[str, Any]], hooks: Hooks) -> None:
        super().__init__(client, recorded, lines)
        self._hooks = hooks

    def filled(self, line: dict[str, Any]) -> dict[str, Any]:
        return self._hooks.filled(super().filled(line))

    async def exchange(self, line: dict[str, Any]) -> list[str]:
        """Send a line with its configurations, and compare the answer and the calls."""
        configurations, webhooks = line.get("configurations") or [], line["webhooks"] or []
        self._hooks.expect([])
        for each in configurations:
            if any("service" in hook["clientConfig"] for hook in each.get("webhooks", ())):
                # The Service was created without a line; 409 if it exists.
                await self.client.call("POST", _SERVICES, _SERVICE)
            status, answer = await self.client.call("POST", _place(each), each)
            assert status == 201, answer
        validating = await self._paths("validating") - await self._paths("mutating")
        self._hooks.expect(webhooks)
        differences = await super().exchange(line)
        called = self._hooks.called
        for each in configurations:
            await self.client.call("DELETE", f"{_place(each)}/{each['metadata']['name']}")
        return [*differences, *_compare_calls(webhooks, called, validating)]

    async def _paths(self, kind: str) -> set[str]:
        """Return the paths of the webhooks of one kind of configuration."""
        status, listed = await self.client.call("GET", f"{ADMISSION}/{kind}webhookconfigurations")
        assert status == 200, listed
        found = [hook["clientConfig"] for each in listed["items"] for hook in each["webhooks"]]
        urls = [client.get("url") or f"https://x{client['service'].get('path', '')}" for client in found]
        return {f"/{url.split('/', 3)[3]}" if url.count("/") > 2 else "/" for url in urls}


def _place(configuration: dict[str, Any]) -> str:
    kind = configuration["kind"].lower()
    return f"{ADMISSION}/{kind[:-1]}ies" if kind.endswith("y") else f"{ADMISSION}/{kind}s"


def _compare_calls(expected: list[dict[str, Any]], called: list[Called], validating: set[str]) -> list[str]:
    wanted = _once([Called(each["path"], each["headers"], each["review"]) for each in expected])
    found = _once(called)
    differences = []
    for beside in (True, False):
        # Validating webhooks are called concurrently, the others in order.
        one, other = (
            [each for each in calls if (each.path.partition("?")[0] in validating) is beside]
            for calls in (wanted, found)
        )
        if beside:
            one, other = (sorted(calls, key=lambda call: call.path) for calls in (one, other))
        paths = [each.path for each in one], [each.path for each in other]
        if paths[0] != paths[1]:
            differences.append(f"calls of {paths[0]} expected, of {paths[1]} found")
            continue
        for number, (recorded, call) in enumerate(zip(one, other, strict=True)):
            where = f"review {number} ({call.path})"
            differences += compare(_renamed(recorded.review, call.review), call.review, where)
            differences += compare(recorded.headers, call.headers, f"{where} headers")
    return differences


def _once(calls: list[Called]) -> list[Called]:
    """Return the calls with consecutive equal deletes as one."""

    def shown(call: Called) -> tuple[bool, str, str]:
        request = {**call.review["request"], "uid": ""} if call.review else {}
        return request.get("operation") == "DELETE", call.path, json.dumps(request, sort_keys=True)

    found: list[Called] = []
    for (deletes, _, _), same in groupby(calls, key=shown):
        found += list(same)[: 1 if deletes else None]
    return found


def _renamed(recorded: Any, found: Any) -> Any:
    """Return the recorded review with the name that was generated in this run."""
    request = (recorded or {}).get("request", {})
    prefix = (request.get("object") or {}).get("metadata", {}).get("generateName")
    if not prefix or not found or not found["request"].get("name", "").startswith(prefix):
        return recorded
    return {**recorded, "request": {**request, "name": request.get("name") and found["request"]["name"]}}
