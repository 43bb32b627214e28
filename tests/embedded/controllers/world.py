"""An API with controllers, on a clock that tests move."""

from __future__ import annotations

from typing import Any

from tests.embedded.api.world import World as Bare
from tests.embedded.api.world import pod

from embedded_kubernetes.controllers import Controller

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class World(Bare):
    """`controllers` are driven by `settle` alone, so that what happens before they look is the test's choice."""

    def __init__(self) -> None:
        super().__init__()
        self.controllers: list[Controller] = []
        self.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})

    def settle(self, seconds: float = 0.0, *, most: int = 64) -> None:
        """Let `seconds` pass, and everything happen that is due by then."""
        end = self.now + seconds
        for _ in range(10_000):
            before = self.store.rv
            due = [at for each in self.controllers if (at := each.advance(most=most)) is not None]
            self.collect()
            if self.store.rv != before or (due and min(due) <= self.now):
                continue
            if not due or min(due) > end:
                self.now = end
                return
            self.now = min(due)
        raise AssertionError("the controllers never come to rest")

    def ready_pod(self, name: str, *, app: str = "x", node: str = "n1", **spec: Any) -> None:
        body = pod(name, labels={"app": app}, spec={"nodeName": node, **spec})
        self.ok("POST", PODS, body)
        self.report(name, ready=True)

    def report(self, name: str, *, ready: bool = True, phase: str = "Running") -> None:
        """What a kubelet would say of a pod."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        body = {"status": {"phase": phase, "conditions": [condition]}}
        self.ok("PATCH", f"{PODS}/{name}/status", body, kind="application/strategic-merge-patch+json")

    def delete(self, path: str, **options: Any) -> None:
        self.ok("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def is_there(self, path: str) -> bool:
        return self.call("GET", path)[0] == 200
