"""Records the requests of an embedded server, and disturbs those that a test picks."""

from __future__ import annotations

from collections.abc import Callable

from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturb, Disturbance, Request


class Tap:
    """A server's `disturb` hook that records every request and lets a test disturb some of them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.harm: Disturb = _nothing

    def __call__(self, request: Request) -> Disturbance | None:
        self.requests.append(request)
        return self.harm(request)

    def count(self, picked: Callable[[Request], bool]) -> int:
        return sum(picked(request) for request in self.requests)

    def binds(self, pod: str) -> int:
        """Return how often a bind was sent for a pod."""
        return self.count(lambda request: is_bind(request) and f"/{pod}/" in request.path)


def denied(pod: str = "") -> Disturb:
    """Return a hook with which a webhook denies the pod's binds, or all."""

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
