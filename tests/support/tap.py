"""The requests of an embedded server, counted, and harmed when a test says so."""

from __future__ import annotations

from collections.abc import Callable

from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturb, Disturbance, Request


class Tap:
    """A server's `disturb` that remembers every request and lets a test harm those that it picks."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.harm: Disturb = _nothing

    def __call__(self, request: Request) -> Disturbance | None:
        self.requests.append(request)
        return self.harm(request)

    def count(self, picked: Callable[[Request], bool]) -> int:
        return sum(picked(request) for request in self.requests)

    def binds(self, pod: str) -> int:
        """How often a pod was sent to be bound."""
        return self.count(lambda request: is_bind(request) and f"/{pod}/" in request.path)


def denied(pod: str = "") -> Disturb:
    """A webhook at the server refuses the pod's binds, or all."""

    def harm(request: Request) -> Disturbance | None:
        refused = is_bind(request) and f"/{pod}" in request.path
        return Disturbance(error=ApiError(403, "Forbidden", "denied by a webhook")) if refused else None

    return harm


def _nothing(_request: Request) -> Disturbance | None:
    return None


def is_bind(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def is_watch(request: Request) -> bool:
    return request.method == "GET" and request.flag("watch")
