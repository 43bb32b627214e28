"""A server with RBAC, and people who ask it for something."""

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
    """One key pair for all tests: to make one takes long."""
    return Keys()


class Guarded(World):
    """`admin` may do everything, `ann` is in the group `team`. `audited` are the requests that came."""

    def __init__(self, **options: Any) -> None:
        self.audited: list[AuditedRequest] = []
        users = {"admin": User("admin", groups=(MASTERS,)), "ann": User("ann", "u-ann", ("team",))}
        super().__init__(
            auth=Options(**{"rbac": True, "tokens": users, "keys": keys(), **options}),
            observer=self.audited.append,
        )

    def by(
        self, token: str, method: str, path: str, body: Any = None, *, headers: Any = (), **more: Any
    ) -> tuple[int, Any]:
        """Status and body of what is answered to who has this token."""
        return self.call(
            method, path, body, authorization=f"Bearer {token}", impersonate=tuple(headers), **more
        )

    def made(self, path: str, body: Any) -> Any:
        """Made by the administrator."""
        status, answer = self.by("admin", "POST", path, body)
        assert status == 201, answer
        return answer

    def grant(self, name: str, rules: list[dict[str, Any]], subject: dict[str, str]) -> None:
        """Lets the subject do this in the whole cluster."""
        self.made(f"{RBAC}/clusterroles", named(name, rules=rules))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        body = named(name, roleRef=role, subjects=[subject])
        self.made(f"{RBAC}/clusterrolebindings", body)

    def account(self, name: str) -> str:
        """A new service account's UID."""
        return self.made(ACCOUNTS, named(name))["metadata"]["uid"]

    def token(self, account: str, **spec: Any) -> str:
        """A token of the account."""
        return self.made(f"{ACCOUNTS}/{account}/token", {"spec": spec})["status"]["token"]


ANN = {"kind": "User", "name": "ann"}


def rule(verbs: str, resources: str, *, group: str = "", names: str = "") -> dict[str, Any]:
    """A rule about one group; words are separated by spaces."""
    made: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**made, "resourceNames": names.split()} if names else made
