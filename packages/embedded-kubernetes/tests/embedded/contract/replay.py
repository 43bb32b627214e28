"""Replays recorded requests against a server and reports, line by line, how its answers differ.

Some requests have no line; they are sent here, before the line that needs them or while its watch is open.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from embedded.support import DEFINITIONS, MERGE, asking, named, pod

from ..recordings import CRDS
from .comparison import collected, compare
from .doors import Client

_PODS = "/api/v1/namespaces/t/pods"
_CRDS = (
    Path(__file__).parent / "crds" / "nodeshards.yaml",
    *(CRDS / f"scheduling.volcano.sh_{plural}.yaml" for plural in ("podgroups", "queues")),
)
#: Seconds that are longer than any watch in a recording.
_PATIENCE = 10.0

#: Method, path and body.
Asked = tuple[str, str, Any]


def _made(name: str = "", *, gates: tuple[str, ...] = (), **metadata: Any) -> Asked:
    containers = [{**asking(cpu="100m", memory="64Mi"), "image": "img"}]
    spec = {"containers": containers, "schedulingGates": [{"name": gate} for gate in gates]}
    return "POST", _PODS, pod(name, spec=spec, **metadata)


def _bound(name: str, node: str) -> Asked:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return "POST", f"{_PODS}/{name}/binding", named(name, apiVersion="v1", kind="Binding", target=target)


_X = {"app": "x"}
_BEFORE: dict[str, list[Asked]] = {
    "bind with wrong uid: 409": [_made("b", labels=_X)],
    "tighten node selector while gated": [_made("g2", labels=_X, gates=("example.com/one",))],
    "status strategic patch: condition added": [_made("s", labels=_X)],
    "list pods ": [_made(generateName="gen-")],
    "delete pod with finalizer: stays": [_made("fin", labels=_X, finalizers=["example.com/f"])],
    # A budget protects only running pods.
    "evict guarded: 429": [
        _made("guard", labels={"app": "guard"}),
        ("PATCH", f"{_PODS}/guard/status", {"status": {"phase": "Running"}}),
    ],
}
_MEANWHILE: dict[str, list[Asked]] = {
    "watch: ADDED MODIFIED DELETED": [
        _made("w1", labels=_X),
        _bound("w1", "n1"),
        ("DELETE", f"{_PODS}/w1?gracePeriodSeconds=0", None),
    ],
    "watch unassigned: leaves the selector as DELETED": [_made("w2", labels=_X), _bound("w2", "n1")],
    "watch assigned: enters the selector as ADDED": [_made("w3", labels=_X), _bound("w3", "n8")],
}


class Replay:
    """One replay of the lines. Values are kept by the names by which later lines refer to them."""

    def __init__(self, client: Client, lines: list[dict[str, Any]]) -> None:
        self._client = client
        self._lines = lines
        self._known: dict[str, str] = {}

    async def run(self) -> list[list[str]]:
        """Return the differences by line, empty where the answer agrees."""
        return [await collected(self._replay(line)) for line in self._lines]

    async def _replay(self, line: dict[str, Any]) -> list[str]:
        if line["name"] == "create nodeshard: status dropped":
            for file in _CRDS:
                await self._must("POST", DEFINITIONS, yaml.safe_load(file.read_text()))
        for asked in _BEFORE.get(line["name"], ()):
            await self._must(*asked)
        if "watch" in line:
            return await self._watch(line)
        request, expected = line["request"], line["response"]
        body = request["body"]
        if body is not None:
            body = self._filled(body if isinstance(body, str) else json.dumps(body)).encode()
        path, headers = self._filled(request["path"]), {**self._client.own, **request["headers"]}
        status, answered, raw = await self._client.request(request["method"], path, body=body, headers=headers)
        answer = _decoded(raw)
        self._remember(request["method"], answer)
        differences = []
        if status != expected["status"]:
            differences.append(f"status {expected['status']} expected, {status} found: {raw[:300]!r}")
        media = (expected["contentType"] or "").partition(";")[0]
        if media and answered.get("content-type", "").partition(";")[0] != media:
            differences.append(f"content type {media} expected, {answered.get('content-type')} found")
        return differences + compare(self._client.comparable(expected["body"]), self._client.comparable(answer))

    async def _must(self, method: str, path: str, body: Any = None) -> Any:
        media = MERGE if method == "PATCH" else "application/json"
        status, answer = await self._client.call(method, path, body, media=media)
        assert status < 300, f"a helper request failed: {method} {path}: {status} {answer!r}"
        return answer

    def _filled(self, text: str) -> str:
        """Return `text` with values of earlier answers in its placeholders."""
        return re.sub(r"\{(\w+)\}", lambda match: self._known[match[1]], text)

    def _remember(self, method: str, answer: Any) -> None:
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        if not isinstance(metadata, dict):
            return
        if metadata.get("continue"):
            self._known["cont"] = quote(metadata["continue"], safe="")
        if metadata.get("name") and metadata.get("uid"):
            self._known[f"uid_{metadata['name']}"] = metadata["uid"]
            # The version in the answer to a create or a read; those of other writes do not count.
            if method in ("POST", "GET"):
                self._known[f"rv_{metadata['name']}"] = metadata.get("resourceVersion", "")

    async def _watch(self, line: dict[str, Any]) -> list[str]:
        self._known["rv"] = (await self._must("GET", _PODS))["metadata"]["resourceVersion"]
        path, expected = self._filled(line["watch"]), line["events"] or []
        found: list[Any] = []
        async with self._client.watch(path, headers=self._client.own) as (status, lines):
            for asked in _MEANWHILE.get(line["name"], ()):
                await self._must(*asked)
            async with asyncio.timeout(_PATIENCE):
                async for text in lines:
                    if text.strip():
                        found.append(json.loads(text))
                    if expected and len(found) == len(expected):
                        break
        differences = [] if status == line["status"] else [f"status {line['status']} expected, {status} found"]
        return differences + compare(self._client.comparable(expected), self._client.comparable(found))


def _decoded(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()
