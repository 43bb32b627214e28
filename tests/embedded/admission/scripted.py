"""A server whose webhooks are functions: of a review's request, to what is said of it."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable
from typing import Any

import orjson
from tests.embedded.api.world import World

from embedded_kubernetes.admission.calls import Answer, Call, CallFailed
from embedded_kubernetes.inproc import Door

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
Hook = Callable[[dict[str, Any]], Any]


class Scripted(World):
    """`hooks` are by the last part of their path. What they were asked is in `asked`, with that part."""

    def __init__(self, hooks: dict[str, Hook] | None = None, **more: Any) -> None:
        super().__init__(transport=self, **more)
        self.hooks = dict(hooks or {})
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.door = Door(self.api)
        self.headers: dict[str, str] = {}

    async def __call__(self, call: Call) -> Answer:
        name = call.url.partition("?")[0].rpartition("/")[2]
        review = orjson.loads(call.body)
        self.asked.append((name, review["request"]))
        if name not in self.hooks:
            raise CallFailed(f'Post "{call.url}": nobody is there')
        said = self.hooks[name](review["request"])
        if inspect.isawaitable(said):
            said = await said
        response = {"uid": review["request"]["uid"], "allowed": True, **(said or {})}
        body = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        return Answer(200, "application/json", orjson.dumps(body))

    async def close(self) -> None:
        """There is nothing open."""

    async def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """The status and the decoded body of a request that may have to be awaited."""
        data = None if body is None else orjson.dumps(body)
        status, self.headers, raw = await self.door.request(
            method, path, body=data, headers={"Content-Type": kind}
        )
        return status, orjson.loads(raw) if raw else None

    def configure(self, kind: str, *webhooks: dict[str, Any], name: str = "one") -> None:
        path = f"{GROUP}/{kind.lower()}webhookconfigurations"
        self.ok("POST", path, {"metadata": {"name": name}, "webhooks": list(webhooks)})

    def policy(self, kind: str, spec: dict[str, Any], **binding: Any) -> None:
        """A policy for configmaps, and its binding."""
        rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
        spec = {"matchConstraints": {"resourceRules": [rule]}, **spec}
        if kind == "Mutating":
            spec = {"reinvocationPolicy": "Never", **spec}
        else:
            binding = {"validationActions": ["Deny"], **binding}
        place = f"{GROUP}/{kind.lower()}admissionpolic"
        self.ok("POST", f"{place}ies", {"metadata": {"name": "p"}, "spec": spec})
        self.ok(
            "POST", f"{place}ybindings", {"metadata": {"name": "b"}, "spec": {"policyName": "p", **binding}}
        )


def webhook(name: str, *resources: str, **more: Any) -> dict[str, Any]:
    """One that is called at `name`, for configmaps unless told otherwise."""
    rule = {
        "operations": ["*"],
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources) or ["configmaps"],
    }
    return {
        "name": f"{name}.example.com",
        "clientConfig": {"url": f"https://hooks/{name}"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(operations)).decode()}


def label(name: str, value: str = "1") -> dict[str, Any]:
    """A patch that sets one label."""
    return patch({"op": "add", "path": "/metadata/labels", "value": {name: value}})


def config(name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"k": "v"}}
