"""Replays a recording about webhooks and admission policies, in which every request is a line.

Texts are compared word for word. Compared are the calls, too: what each webhook was sent, those of mutating ones in
their order. How often a delete is shown is up to timing, so equal reviews in a row count once.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from tests.embedded.support import named

from .admission_hooks import Called, Hooks
from .comparison import compare
from .doors import Client
from .words import collected, compare_heads, compare_watches, decoded, opened, saved, texts

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_ADMIN = {"Authorization": "Bearer admin-token"}
_JSON = {**_ADMIN, "Content-Type": "application/json"}
_SERVICES = "/api/v1/namespaces/hooks/services"
_EXTERNAL = {"type": "ExternalName", "externalName": "localhost"}
_SERVICE = json.dumps(named("hook", apiVersion="v1", kind="Service", spec=_EXTERNAL)).encode()
_SAVED = re.compile(r"\{((?:tok|uid|rv)\w*)\}")
_VALIDATING = "ValidatingWebhookConfiguration"


class AdmissionReplay:
    """One pass over the lines of a file."""

    def __init__(self, client: Client, hooks: Hooks, lines: list[dict[str, Any]]) -> None:
        self._client = client
        self._hooks = hooks
        self._lines = lines
        #: Values of earlier responses, by the names that later lines have for them.
        self._saved: dict[str, str] = {}

    async def run(self) -> list[list[str]]:
        """Differences by line, empty where the answer and the calls agree."""
        found = []
        for line in self._lines:
            text = _SAVED.sub(lambda match: self._saved.get(match[1], match[0]), json.dumps(line))
            found.append(await collected(self._replay(self._hooks.filled(json.loads(text)))))
        return found

    async def _replay(self, line: dict[str, Any]) -> list[str]:
        if "watch" in line:
            headers = line.get("headers") or _ADMIN
            return await compare_watches(self._client, line["watch"], headers, line)
        configurations = line.get("configurations") or []
        self._hooks.expect([])
        for each in configurations:
            if any("service" in hook["clientConfig"] for hook in each.get("webhooks", ())):
                # It was made without a line; 409 if it is there.
                await self._client.request("POST", _SERVICES, body=_SERVICE, headers=_JSON)
            body = json.dumps(each).encode()
            status, _, raw = await self._client.request("POST", _place(each), body=body, headers=_JSON)
            assert status == 201, raw
        validating = await self._paths(_VALIDATING) - await self._paths("MutatingWebhookConfiguration")
        self._hooks.expect(line.get("webhooks") or [])
        request, expected = line["request"], line["response"]
        body = request["body"]
        if body is not None:
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        status, headers, raw = await self._client.request(
            request["method"], request["path"], body=body, headers=request["headers"] or {}
        )
        self._saved |= saved(line, raw)
        called = self._hooks.called
        for each in configurations:
            path = f"{_place(each)}/{each['metadata']['name']}"
            await self._client.request("DELETE", path, body=None, headers=_ADMIN)
        return [
            *_compare_answers(expected, status, headers, raw),
            *_compare_calls((line.get("webhooks") or []), called, validating),
        ]

    async def _paths(self, kind: str) -> set[str]:
        """Where the webhooks of one kind of configuration are called."""
        status, _, raw = await self._client.request(
            "GET", f"{_GROUP}/{kind.lower()}s", body=None, headers=_ADMIN
        )
        assert status == 200, raw
        found = [hook["clientConfig"] for each in json.loads(raw)["items"] for hook in each["webhooks"]]
        urls = [client.get("url") or f"https://x{client['service'].get('path', '')}" for client in found]
        return {f"/{url.split('/', 3)[3]}" if url.count("/") > 2 else "/" for url in urls}


def _place(configuration: dict[str, Any]) -> str:
    kind = configuration["kind"].lower()
    return f"{_GROUP}/{kind[:-1]}ies" if kind.endswith("y") else f"{_GROUP}/{kind}s"


def _compare_answers(expected: dict[str, Any], status: int, headers: dict[str, str], raw: bytes) -> list[str]:
    if expected["status"] == 0:
        # The recorded server panicked.
        return [] if status >= 500 else [f"an error expected, {status} found"]
    found = decoded(headers, raw)
    return [
        *compare_heads(expected, status, headers),
        *compare(opened(expected["body"], found), found),
        *texts(expected["body"], found),
    ]


def _compare_calls(expected: list[dict[str, Any]], called: list[Called], validating: set[str]) -> list[str]:
    wanted = _once([Called(each["path"], each["headers"], each["review"]) for each in expected])
    found = _once(called)
    side_by_side = [
        sorted((each for each in calls if each.path.partition("?")[0] in validating), key=_key)
        for calls in (wanted, found)
    ]
    in_order = [
        [each for each in calls if each.path.partition("?")[0] not in validating] for calls in (wanted, found)
    ]
    differences = []
    for one, other in (side_by_side, in_order):
        paths = [each.path for each in one], [each.path for each in other]
        if paths[0] != paths[1]:
            differences.append(f"calls of {paths[0]} expected, of {paths[1]} found")
            continue
        for number, (recorded, call) in enumerate(zip(one, other, strict=True)):
            where = f"review {number} ({call.path})"
            differences += compare(_plain(recorded.review, call.review), call.review, where)
            differences += compare(recorded.headers, call.headers, f"{where} headers")
    return differences


def _key(call: Called) -> tuple[str, str]:
    return call.path, json.dumps((call.review or {}).get("request", {}).get("name"))


def _once(calls: list[Called]) -> list[Called]:
    """Equal deletes in a row as one."""

    def shown(call: Called) -> str:
        if not call.review:
            return call.path
        request = {key: value for key, value in call.review["request"].items() if key != "uid"}
        return call.path + json.dumps(request, sort_keys=True)

    found = []
    for _, same in groupby(calls, key=shown):
        listed = list(same)
        deletes = listed[0].review and listed[0].review["request"]["operation"] == "DELETE"
        found += listed[:1] if deletes else listed
    return found


def _plain(recorded: Any, found: Any) -> Any:
    """The recorded review without managedFields, and with the name that was generated in this run."""
    if not recorded or not found:
        return recorded
    request = dict(recorded["request"])
    for name in ("object", "oldObject"):
        if request.get(name):
            held = dict(request[name])
            if "metadata" in held:
                held["metadata"] = {
                    key: value for key, value in held["metadata"].items() if key != "managedFields"
                }
            request[name] = held
    prefix = (request.get("object") or {}).get("metadata", {}).get("generateName")
    name = found["request"].get("name", "")
    if prefix and request.get("name", "").startswith(prefix) and name.startswith(prefix):
        request["name"] = name
    return {**recorded, "request": request}
