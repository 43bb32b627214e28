"""What a recorded line tells of the state that it needs: which objects were there, and what they looked like."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

_CLUSTER_SUBRESOURCES = ("status", "finalize")


class Line:
    """One recorded line. A watch has no request but a path, and events for an answer."""

    def __init__(self, number: int, line: dict[str, Any]) -> None:
        request, response = line.get("request") or {}, line.get("response") or line
        self.number = number
        self.name: str = line["name"]
        self.method: str = request.get("method", "GET")
        self.path: str = request.get("path") or line["watch"]
        self.headers: dict[str, str] = request.get("headers") or {}
        self.body: Any = request.get("body")
        self.status: int = response["status"]
        self.content_type: str = response.get("contentType") or ""
        self.answer: Any = response.get("body")
        self.events: list[Any] | None = line.get("events")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is: its collection's path and its name."""

    collection: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def namespace(self) -> str:
        parts = self.collection.split("/")
        return parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-1] else ""


def split(path: str) -> tuple[str, str, str]:
    """Collection, object name and subresource of a request path; name and subresource may be empty."""
    parts = path.partition("?")[0].strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    rest = parts[head:]
    prefix = "/" + "/".join(parts[:head])
    if (
        len(rest) > 2
        and rest[0] == "namespaces"
        and not (len(rest) == 3 and rest[2] in _CLUSTER_SUBRESOURCES)
    ):
        prefix, rest = f"{prefix}/{rest[0]}/{rest[1]}", rest[2:]
    if not rest or not rest[0]:
        return "", "", ""
    return f"{prefix}/{rest[0]}", rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""


def shown(line: Line) -> Iterator[dict[str, Any]]:
    """Every whole object that a line's answer shows."""
    answers = (
        [event.get("object", {}) for event in line.events or ()] if line.events is not None else [line.answer]
    )
    for answer in answers:
        if not isinstance(answer, dict):
            continue
        for item in answer.get("items", ()) if str(answer.get("kind")).endswith("List") else [answer]:
            if (
                isinstance(item, dict)
                and isinstance(item.get("metadata"), dict)
                and item["metadata"].get("name")
            ):
                yield item


def needed(line: Line) -> list[Place]:
    """The objects that must be there before a line is replayed."""
    collection, name, _ = split(line.path)
    if not collection:
        return []
    if line.events is not None:
        initial = "resourceVersion={rv}" not in line.path
        return [Place(collection, found["metadata"]["name"]) for found in shown(line)] if initial else []
    reason = line.answer.get("reason") if isinstance(line.answer, dict) else None
    if collection.endswith("/bindings") and line.method == "POST" and line.status != 404:
        return [Place(collection.removesuffix("bindings") + "pods", line.body["metadata"]["name"])]
    if name:
        applies = "apply-patch" in line.headers.get("Content-Type", "")
        if line.status == 404 or (line.status == 201 and applies) or collection.endswith("/namespaces"):
            return []
        return [Place(collection, name)]
    if line.method == "POST" and reason == "AlreadyExists":
        return [Place(collection, line.body["metadata"]["name"])]
    if line.method == "GET" and line.status == 200 and isinstance(line.answer, dict):
        if "Table" in line.headers.get("Accept", ""):
            rows = [row["object"]["metadata"] for row in line.answer.get("rows", ())]
        else:
            rows = [found["metadata"] for found in shown(line)]
        found_in = [(row["name"], row.get("namespace", "")) for row in rows if row.get("name")]
        return [Place(_in_namespace(collection, namespace), row) for row, namespace in found_in]
    return []


def _in_namespace(collection: str, namespace: str) -> str:
    if not namespace or "/namespaces/" in collection:
        return collection
    prefix, _, plural = collection.rpartition("/")
    return f"{prefix}/namespaces/{namespace}/{plural}"


def blueprint(lines: list[Line], line: Line, place: Place) -> dict[str, Any] | None:
    """What to send to create the object at `place`: as the next answer shows it, without what the server sets and
    what this very line changes; else like the first object of its kind that the recording creates."""
    for later in lines[line.number :]:
        for found in shown(later):
            metadata = found["metadata"]
            if metadata["name"] != place.name or metadata.get("namespace", "") != place.namespace:
                continue
            if split(later.path)[0].rpartition("/")[2] == place.collection.rpartition("/")[2]:
                return creatable(found, line)
    for earlier in lines:
        created = earlier.method == "POST" and earlier.status == 201 and isinstance(earlier.body, dict)
        if created and earlier.path.partition("?")[0] == place.collection:
            return {**earlier.body, "metadata": {**earlier.body["metadata"], "name": place.name}}
    return None


def creatable(found: dict[str, Any], line: Line | None = None) -> dict[str, Any]:
    """An object as a client would send it to create it; `line` is the request that is about to change it."""
    found = deepcopy(found)
    kept = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
    body = {key: value for key, value in found.items() if key not in ("metadata", "status")}
    body["metadata"] = {key: found["metadata"][key] for key in kept if key in found["metadata"]}
    if isinstance(found.get("spec"), dict):
        # Set by binding and by admission.
        drop = {"nodeName", "priority", "preemptionPolicy"} if "containers" in found["spec"] else set()
        body["spec"] = {key: value for key, value in found["spec"].items() if key not in drop}
    if "containers" not in found.get("spec", {}) and "status" in found:
        body["status"] = found["status"]
    if line is not None and line.method == "PATCH" and isinstance(line.body, dict):
        _remove(body, line.body)
    return body


def _remove(body: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(body.get(key), dict):
            _remove(body[key], value)
        elif key in body and not isinstance(value, list):
            del body[key]


def is_bound(found: dict[str, Any]) -> bool:
    """Whether a pod was bound, rather than created on its node."""
    conditions = found.get("status", {}).get("conditions", ())
    scheduled = any(entry["type"] == "PodScheduled" and entry["status"] == "True" for entry in conditions)
    return bool(found.get("spec", {}).get("nodeName")) and scheduled
