"""A server with RBAC, and its users."""

from __future__ import annotations

from functools import cache
from typing import Any

from embedded.support import ACCOUNTS, World, named
from embedded_kubernetes.auth.audit import AuditedRequest
from embedded_kubernetes.auth.identity import MASTERS, User
from embedded_kubernetes.auth.jwt import Keys
from embedded_kubernetes.auth.options import Options

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@cache
def keys() -> Keys:
    """Return one key pair for all tests, because creating it takes long."""
    return Keys()


class Guarded(World):
    """A server on which `admin` may do everything, and `ann` is in the group `team`. `audited` has its requests."""

    def __init__(self, **options: Any) -> None:
        self.audited: list[AuditedRequest] = []
        users = {"admin": User("admin", groups=(MASTERS,)), "ann": User("ann", "u-ann", ("team",))}
        super().__init__(
            auth=Options(**{"rbac": True, "tokens": users, "keys": keys(), **options}), observer=self.audited.append
        )

    def by(
        self, token: str, method: str, path: str, body: Any = None, *, headers: Any = (), **more: Any
    ) -> tuple[int, Any]:
        """Return status and body of the answer to the user with this token."""
        return self.call(method, path, body, authorization=f"Bearer {token}", impersonate=tuple(headers), **more)

    def made(self, path: str, body: Any) -> Any:
        """Return an object that the administrator creates."""
        status, answer = self.by("admin", "POST", path, body)
        assert status == 201, answer
        return answer

    def grant(self, name: str, rules: list[dict[str, Any]], subject: dict[str, str]) -> None:
        """Allow the subject these rules in the whole cluster."""
        self.made(f"{RBAC}/clusterroles", named(name, rules=rules))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        body = named(name, roleRef=role, subjects=[subject])
        self.made(f"{RBAC}/clusterrolebindings", body)

    def account(self, name: str) -> str:
        """Create a service account and return its UID."""
        return self.made(ACCOUNTS, named(name))["metadata"]["uid"]

    def token(self, account: str, **spec: Any) -> str:
        """Return a token of the account."""
        return self.made(f"{ACCOUNTS}/{account}/token", {"spec": spec})["status"]["token"]


ANN = {"kind": "User", "name": "ann"}


def rule(verbs: str, resources: str, *, group: str = "", names: str = "") -> dict[str, Any]:
    """Return a rule about one group; words are separated by spaces."""
    made: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**made, "resourceNames": names.split()} if names else made
