"""An API with a clock that tests move, and calls that read like a client's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import orjson

from embedded_kubernetes.admission.calls import Transport
from embedded_kubernetes.auth.audit import Observer
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.requests import Request, Response, Stream
from embedded_kubernetes.resource import Resource
from embedded_kubernetes.store import Store

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class World:
    """One API in the test's hands. `call` gives the status and the decoded body."""

    def __init__(
        self,
        *,
        history: int = 1000,
        auth: Options | None = None,
        observer: Observer | None = None,
        controllers: bool = True,
        resources: Iterable[Resource] = BUILTIN,
        transport: Transport | None = None,
    ) -> None:
        self.now = 1_800_000_000.0
        numbers = itertools.count(1)
        self.store = Store(
            clock=lambda: self.now,
            uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}",
            history=history,
        )
        self.api = Api(
            self.store,
            resources,
            auth=auth,
            observer=observer,
            controllers=controllers,
            transport=transport,
        )

    def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **more: Any
    ) -> Response:
        path, _, query = path.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        result = self.api.handle(Request(method, path, query, body=data, content_type=kind, **more))
        assert isinstance(result, Response)
        return result

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        response = self.send(method, path, body, **more)
        return response.status, orjson.loads(response.body)

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        status, answer = self.call(method, path, body, **more)
        assert status < 300, answer
        return answer

    def refused(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """The status and the reason of a refusal."""
        status, answer = self.call(method, path, body, **more)
        assert answer["kind"] == "Status" and answer["status"] == "Failure", answer
        assert status == answer["code"]
        return status, answer.get("reason", "")

    def watch(self, path: str, **more: Any) -> Watch:
        path, _, query = path.partition("?")
        result = self.api.handle(Request("GET", path, query, **more))
        assert isinstance(result, Stream), result.body
        return Watch(result)

    def pod(self, name: str, *, namespace: str = "default", **metadata: Any) -> Any:
        path = f"/api/v1/namespaces/{namespace}/pods"
        return self.ok("POST", path, pod(name, **metadata))

    def bind(self, name: str, node: str, **metadata: Any) -> tuple[int, Any]:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": target,
        }
        return self.call("POST", f"{PODS}/{name}/binding", body)

    def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.ok("GET", path)["items"]]

    def collect(self) -> None:
        self.api.collector.drain()


class Watch:
    """An open watch, read by hand."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def events(self) -> list[dict[str, Any]]:
        """What came since the last call."""
        found = []
        while lines := self.stream.watcher.take(1 << 20):
            found += [orjson.loads(line) for line in lines]
        return found

    def seen(self) -> list[tuple[str, str]]:
        """Types and names of what came since the last call."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events()]


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    spec = metadata.pop("spec", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    data = metadata.pop("data", {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}
