"""Replays a recording about authentication and authorization, in which every request is a line.

Texts are compared word for word, but for what the recording leaves open: volatile values, the order of rules in a
SelfSubjectRulesReview, and which of several bindings that allow something is named.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from embedded_kubernetes.auth.aggregation import Aggregation
from embedded_kubernetes.auth.authentication import read_tokens
from embedded_kubernetes.auth.jwt import Keys
from embedded_kubernetes.auth.options import Options

from .comparison import compare
from .doors import Client, api
from .words import collected, compare_heads, compare_watches, decoded, opened, saved, texts

ISSUER = "https://kubernetes.default.svc"
#: The static token file of the recorded server.
_USERS = """
admin-token,admin,u-admin,"system:masters"
alice-token,alice,u-alice,"dev"
bob-token,bob,u-bob,"ops,dev"
carol-token,carol,u-carol
dave-token,dave,u-dave,"dev"
erin-token,erin,u-erin
frank-token,frank,u-frank,"leads"
grace-token,grace,u-grace,"leads"
heidi-token,heidi,u-heidi
ivan-token,ivan@example.com,u-ivan,"example:all"
judy-token,judy,u-judy,"night"
mallory-token,mallory,u-mallory
oscar-token,oscar,u-oscar,"night"
"""
_SAVED = re.compile(r"\{((?:tok|uid)\w*)\}")
_ALLOWED = re.compile(r'RBAC: allowed by (RoleBinding|ClusterRoleBinding) "([^"]*)" of .*')
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: A token that was accepted is accepted for ten seconds more; the recorder waited for longer.
_WAITED = 11.0


class Recorded:
    """The server of a recording: its users, issuer and keys, and a clock that a replay moves."""

    def __init__(self) -> None:
        self.keys = Keys()
        self._ahead = 0.0
        options = Options(
            rbac=True, tokens=read_tokens(_USERS), issuer=ISSUER, audiences=(ISSUER,), keys=self.keys
        )
        self.api = api(options, self.now)
        #: The only controller that ran.
        self._aggregation = Aggregation(self.api.registry)

    def now(self) -> float:
        return time.time() + self._ahead

    def wait(self) -> None:
        self._ahead += _WAITED

    def settle(self) -> None:
        """What the controller does after a request."""
        while self._aggregation.advance() is not None:
            pass


class AccessReplay:
    """One pass over the lines of a file."""

    def __init__(self, client: Client, recorded: Recorded, lines: list[dict[str, Any]]) -> None:
        self._client = client
        self._recorded = recorded
        self._lines = lines
        self._saved: dict[str, str] = {}

    async def run(self) -> list[list[str]]:
        """Differences by line, empty where the answer agrees."""
        found = []
        deleted = False
        for line in self._lines:
            if deleted and not line["name"].startswith("set up"):
                self._recorded.wait()
            deleted = line["name"].startswith("set up: delete")
            found.append(await collected(self._replay(line)))
            self._recorded.settle()
        return found

    async def _replay(self, line: dict[str, Any]) -> list[str]:
        for name, minted in (line.get("mint") or {}).items():
            self._saved[name] = await self._mint(minted)
        request = line.get("request") or {"headers": line.get("headers") or {}}
        headers = {name: self._filled(value) for name, value in (request["headers"] or {}).items()}
        if "watch" in line:
            return await compare_watches(self._client, self._filled(line["watch"]), headers, line)
        body = request["body"]
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            body = self._filled(text).encode()
        path = self._filled(request["path"])
        status, answered, raw = await self._client.request(
            request["method"], path, body=body, headers=headers
        )
        self._saved |= saved(line, raw)
        differences = compare_heads(line["response"], status, answered)
        return differences + await self._compare(line["response"]["body"], decoded(answered, raw))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return _SAVED.sub(lambda match: self._saved[match[1]], value)

    async def _mint(self, minted: dict[str, Any]) -> str:
        """A token that the recorder signed itself."""
        namespace, name = minted["namespace"], minted["serviceAccount"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        status, _, raw = await self._client.request(
            "GET", path, body=None, headers={"Authorization": "Bearer admin-token"}
        )
        uid = json.loads(raw)["metadata"]["uid"] if status == 200 else ""
        now = int(self._recorded.now())
        private: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": minted.get("uid", uid)},
        }
        claims = {
            "iss": minted.get("iss", ISSUER),
            "aud": minted.get("aud", [ISSUER]),
            "sub": minted.get("sub", f"system:serviceaccount:{namespace}:{name}"),
            "iat": now + minted.get("iat", 0),
            "nbf": now + minted.get("nbf", 0),
            "exp": now + minted.get("exp", 3600),
            "kubernetes.io": private,
        }
        keys = self._recorded.keys
        if minted.get("signedBy") == "another key":
            keys = Keys(rsa.generate_private_key(public_exponent=65537, key_size=2048))
        return keys.sign(claims, named=False)

    async def _compare(self, expected: Any, found: Any) -> list[str]:
        if isinstance(expected, dict) and isinstance(found, dict):
            kind = str(expected.get("kind")) if expected.get("kind") == found.get("kind") else ""
            if kind == "SelfSubjectRulesReview":
                expected, found = _with_sorted_rules(expected), _with_sorted_rules(found)
            elif kind.endswith("AccessReview"):
                found = await self._with_any_binding(expected, found)
        return [*(compare(opened(expected, found), found)), *texts(expected, found)]

    async def _with_any_binding(self, expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """The answer with the recorded binding for its reason, if it names another that is there."""
        wanted, given = (
            _ALLOWED.fullmatch(each.get("status", {}).get("reason", "")) for each in (expected, found)
        )
        if wanted is None or given is None or wanted[0] == given[0]:
            return found
        name, _, namespace = given[2].partition("/")
        place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        status, _, _ = await self._client.request(
            "GET", f"{_RBAC}/{place}/{name}", body=None, headers={"Authorization": "Bearer admin-token"}
        )
        return {**found, "status": expected["status"]} if status == 200 else found


def _with_sorted_rules(review: dict[str, Any]) -> dict[str, Any]:
    status = dict(review["status"])
    for name in ("resourceRules", "nonResourceRules"):
        status[name] = sorted(status.get(name) or [], key=json.dumps)
    return {**review, "status": status}
