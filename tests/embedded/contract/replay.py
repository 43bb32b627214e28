"""Replays a recording against a server and tells, line by line, what its answers differ in."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import yaml

from embedded_kubernetes.builtin import BUILTIN
from tests.embedded.support import DEFINITIONS, MERGE, named, pod
from tests.support.places import CONFIG

from .comparison import collected, compare
from .derivation import Line, Place, blueprint, creatable, is_bound, needed, shown, split
from .doors import Client

#: As the recording has them, where those that are installed have other columns; then those that are installed.
_CRDS = (Path(__file__).parent / "crds", CONFIG / "crd")
_GROUPS = {resource.group for resource in BUILTIN}
_PLACEHOLDER = re.compile(r"\{(uid|rv)_([^}]+)\}|\{(rv|cont)\}")
#: Longer than any watch in a recording asks to last.
_PATIENCE = 10.0


#: What no answer shows that is needed before a line of this name: a budget refuses only for a pod that runs.
_BEFORE: dict[str, list[tuple[str, str, str, Any]]] = {
    "evict guarded: 429": [
        ("POST", "/api/v1/namespaces/t/pods", "application/json", pod("guard", labels={"app": "guard"})),
        ("PATCH", "/api/v1/namespaces/t/pods/guard/status", MERGE, {"status": {"phase": "Running"}}),
    ]
}


def _definitions(group: str) -> dict[str, Any]:
    """CustomResourceDefinitions of a group, by name."""
    found: dict[str, Any] = {}
    for folder in _CRDS:
        for file in sorted(folder.glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            if definition["kind"] == "CustomResourceDefinition" and definition["spec"]["group"] == group:
                found.setdefault(definition["metadata"]["name"], definition)
    return found


class Replay:
    """One pass over the lines. Values that later lines refer to are remembered by the names they are referred by."""

    def __init__(self, client: Client, lines: list[Line]) -> None:
        self._client = client
        self._lines = lines
        self._uids: dict[str, str] = {}
        #: The version that a create or a read of an object answered; a write's answer does not count.
        self._versions: dict[str, str] = {}
        self._continue = ""
        self._installed: set[str] = set()
        #: Recorded generated names to the ones that this server generated.
        self._names: dict[str, str] = {}

    async def run(self) -> list[list[str]]:
        """Differences by line, empty where the answer agrees."""
        return [await collected(self._replay(line)) for line in self._lines]

    async def _replay(self, line: Line) -> list[str]:
        await self._prepare(line)
        if line.events is not None:
            return await self._watch(line)
        path = self._known_names(await self._filled(line.path, line))
        body = line.body
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            body = (await self._filled(text, line)).encode()
        headers = {**self._client.own, **line.headers}
        status, answered, raw = await self._client.request(line.method, path, body=body, headers=headers)
        answer = _decoded(raw)
        self._remember(line, answer)
        differences = (
            [] if status == line.status else [f"status {line.status} expected, {status} found: {raw[:300]!r}"]
        )
        media = line.content_type.partition(";")[0]
        if media and answered.get("content-type", "").partition(";")[0] != media:
            differences.append(f"content type {media} expected, {answered.get('content-type')} found")
        return differences + compare(line.answer, answer)

    async def _prepare(self, line: Line) -> None:
        group = line.path.split("/")[2] if line.path.startswith("/apis/") else ""
        if group and group not in _GROUPS and group not in self._installed:
            self._installed.add(group)
            for definition in _definitions(group).values():
                await self._must("POST", DEFINITIONS, definition)
        for method, path, media, body in _BEFORE.get(line.name, ()):
            await self._must(method, path, body, media=media)
        for place in needed(line):
            if place.name in self._names or await self._get(place) is not None:
                continue
            body = blueprint(self._lines, line, place)
            if body is not None:
                created = await self._must("POST", place.collection, body)
                self._uids[place.name] = created["metadata"]["uid"]

    async def _get(self, place: Place) -> dict[str, Any] | None:
        status, found = await self._client.call("GET", place.path)
        return found if status == 200 else None

    async def _must(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json"
    ) -> dict[str, Any]:
        status, answer = await self._client.call(method, path, body, media=media)
        assert status < 300, f"a helper request failed: {method} {path}: {status} {answer!r}"
        return answer  # type: ignore[no-any-return]

    async def _filled(self, text: str, line: Line) -> str:
        """`text` with every placeholder replaced by what an earlier answer had there."""
        filled = text
        for match in _PLACEHOLDER.finditer(text):
            kind, name, plain = match.groups()
            if kind == "uid":
                value = self._uids[name]
            elif kind == "rv":
                value = self._versions[name]
            elif plain == "cont":
                value = quote(self._continue, safe="")
            else:
                collection = split(line.path)[0]
                listed = await self._must("GET", collection)
                value = listed["metadata"]["resourceVersion"]
            filled = filled.replace(match[0], value)
        return filled

    def _known_names(self, path: str) -> str:
        for recorded, own in self._names.items():
            path = path.replace(recorded, own)
        return path

    def _remember(self, line: Line, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        metadata = answer.get("metadata")
        if not isinstance(metadata, dict):
            return
        if metadata.get("continue"):
            self._continue = metadata["continue"]
        if metadata.get("name") and metadata.get("uid"):
            self._uids[metadata["name"]] = metadata["uid"]
            if line.method in ("POST", "GET"):
                self._versions[metadata["name"]] = metadata.get("resourceVersion", "")
        if line.method == "POST" and metadata.get("generateName"):
            for recorded in shown(line):
                self._names[recorded["metadata"]["name"]] = metadata["name"]

    async def _watch(self, line: Line) -> list[str]:
        path = await self._filled(line.path, line)
        expected = line.events or []
        query = parse_qs(path.partition("?")[2], keep_blank_values=True)
        acts = "resourceVersion={rv}" in line.path
        found: list[Any] = []
        async with self._client.watch(path, headers=self._client.own) as (status, lines):
            if acts:
                for event in expected:
                    await self._act(split(line.path)[0], event, query)
            async with asyncio.timeout(_PATIENCE):
                async for text in lines:
                    if text.strip():
                        found.append(json.loads(text))
                    if expected and len(found) == len(expected):
                        break
        differences = [] if status == line.status else [f"status {line.status} expected, {status} found"]
        return differences + compare(expected, found)

    async def _act(self, collection: str, event: dict[str, Any], query: dict[str, list[str]]) -> None:
        """Do what made a recorded event happen."""
        recorded = event["object"]
        place = Place(collection, recorded["metadata"]["name"])
        current = await self._get(place)
        if event["type"] == "ADDED" and current is None:
            await self._must("POST", collection, creatable(recorded))
            if is_bound(recorded):
                await self._bind(place, recorded["spec"]["nodeName"])
            return
        if current is None:
            return
        metadata, wanted = current["metadata"], recorded["metadata"]
        if "deletionTimestamp" in wanted and "deletionTimestamp" not in metadata:
            seconds = wanted.get("deletionGracePeriodSeconds", 0)
            await self._must("DELETE", f"{place.path}?gracePeriodSeconds={seconds}")
        elif is_bound(recorded) and not current["spec"].get("nodeName"):
            await self._bind(place, recorded["spec"]["nodeName"])
        elif wanted.get("labels") != metadata.get("labels"):
            labels = dict.fromkeys(metadata.get("labels", {})) | wanted.get("labels", {})
            await self._patch(place.path, {"metadata": {"labels": labels}})
        elif event["type"] == "DELETED" and "spec.nodeName=" in query.get("fieldSelector", [""])[0]:
            # It left the selector rather than the server: it was bound, and shown as it was before.
            await self._bind(place, "n1")
        elif event["type"] == "DELETED":
            await self._must("DELETE", f"{place.path}?gracePeriodSeconds=0")
        elif recorded.get("status") != current.get("status"):
            await self._patch(f"{place.path}/status", {"status": recorded["status"]})
        elif recorded.get("spec") != current.get("spec"):
            await self._patch(place.path, {"spec": recorded["spec"]})

    async def _bind(self, place: Place, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = named(place.name, apiVersion="v1", kind="Binding", target=target)
        await self._must("POST", f"{place.path}/binding", body)

    async def _patch(self, path: str, body: dict[str, Any]) -> None:
        await self._must("PATCH", path, body, media=MERGE)


def _decoded(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()
