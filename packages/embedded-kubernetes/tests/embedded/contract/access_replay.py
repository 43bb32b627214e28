"""Replays recordings in which every request is a line: here, the one about authentication and authorization.

Texts are compared word for word, except volatile values, the order of rules in a SelfSubjectRulesReview, and the
binding that is named if several allow a request.
"""

from __future__ import annotations

import json
import re
import time
from functools import reduce
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from embedded_kubernetes.auth.aggregation import Aggregation
from embedded_kubernetes.auth.authentication import read_tokens
from embedded_kubernetes.auth.jwt import Keys
from embedded_kubernetes.auth.options import Options

from .comparison import collected, compare, compare_heads, opened, texts
from .doors import Client, api

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
#: Seconds that the recorder waited between lines: a token that was accepted is accepted for ten seconds more.
_WAITED = 11.0


class Recorded:
    """The server of a recording: its users, issuer and keys, and a clock that a replay moves."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.ahead = 0.0
        options = Options(rbac=True, tokens=read_tokens(_USERS), issuer=ISSUER, audiences=(ISSUER,), keys=self.keys)
        self.api = api(options, self.now)
        #: The only controller that ran.
        self._aggregation = Aggregation(self.api.registry)

    def now(self) -> float:
        return time.time() + self.ahead

    def settle(self) -> None:
        """Run the controller after a request."""
        while self._aggregation.advance() is not None:
            pass


class AccessReplay:
    """One replay of the lines of a file."""

    def __init__(self, client: Client, recorded: Recorded, lines: list[dict[str, Any]]) -> None:
        self.client = client
        self._recorded = recorded
        self._lines = lines
        #: Values of earlier responses, by the names that later lines use for them.
        self._saved: dict[str, str] = {}

    async def run(self) -> list[list[str]]:
        """Return the differences by line, empty where the answer agrees."""
        found = []
        deleted = False
        for line in self._lines:
            if deleted and not line["name"].startswith("set up"):
                self._recorded.ahead += _WAITED
            deleted = line["name"].startswith("set up: delete")
            found.append(await collected(self._replay(line)))
            self._recorded.settle()
        return found

    async def _replay(self, line: dict[str, Any]) -> list[str]:
        for name, minted in (line.get("mint") or {}).items():
            self._saved[name] = await self._mint(minted)
        line = self.filled(line)
        if "watch" not in line:
            return await self.exchange(line)
        async with self.client.watch(line["watch"], headers=line["headers"]) as (status, lines):
            found = [json.loads(text) async for text in lines if text.strip()]
        differences = [] if status == line["status"] else [f"status {line['status']} expected, {status} found"]
        return differences + compare(self.client.comparable(line["events"]), self.client.comparable(found))

    def filled(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the line with the values of this run."""
        return json.loads(_SAVED.sub(lambda match: self._saved.get(match[1], match[0]), json.dumps(line)))  # type: ignore[no-any-return]

    async def exchange(self, line: dict[str, Any]) -> list[str]:
        """Send the request of a line, and compare the answer."""
        request, expected = line["request"], line["response"]
        body = request["body"]
        if body is not None:
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        status, headers, raw = await self.client.request(
            request["method"], request["path"], body=body, headers=request["headers"] or {}
        )
        if expected["status"] == 0:
            # The recorded server panicked.
            return [] if status >= 500 else [f"an error expected, {status} found"]
        is_json = headers.get("content-type", "").startswith("application/json") and raw
        found = json.loads(raw) if is_json else raw.decode()
        for name, at in (line.get("save") or {}).items():
            self._saved[name] = reduce(lambda value, part: value[part], at.split("."), found)
        wanted, found = await self._alike(expected["body"], found)
        heads = compare_heads(expected, status, headers)
        return [
            *heads,
            *compare(self.client.comparable(opened(wanted, found)), self.client.comparable(found)),
            *texts(wanted, found),
        ]

    async def _mint(self, minted: dict[str, Any]) -> str:
        """Return a token that the recorder signed itself."""
        namespace, name = minted["namespace"], minted["serviceAccount"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        status, account = await self.client.call("GET", path)
        uid = account["metadata"]["uid"] if status == 200 else ""
        good = {"iss": ISSUER, "sub": f"system:serviceaccount:{namespace}:{name}", "iat": 0, "nbf": 0, "exp": 3600}
        claims = {claim: minted.get(claim, value) for claim, value in good.items()}
        claims |= {claim: int(self._recorded.now()) + claims[claim] for claim in ("iat", "nbf", "exp")}
        about = {"name": name, "uid": minted.get("uid", uid)}
        claims |= {"aud": [ISSUER], "kubernetes.io": {"namespace": namespace, "serviceaccount": about}}
        keys = self._recorded.keys
        if minted["signedBy"] == "another key":
            keys = Keys(rsa.generate_private_key(public_exponent=65537, key_size=2048))
        return keys.sign(claims, named=False)

    async def _alike(self, expected: Any, found: Any) -> tuple[Any, Any]:
        """Return both without the parts of a review that may differ."""
        kinds = {str(each.get("kind")) if isinstance(each, dict) else "" for each in (expected, found)}
        if kinds == {"SelfSubjectRulesReview"}:
            return _with_sorted_rules(expected), _with_sorted_rules(found)
        if len(kinds) == 1 and kinds.pop().endswith("AccessReview"):
            found = await self._with_any_binding(expected, found)
        return expected, found

    async def _with_any_binding(self, expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Return the answer with the recorded binding as its reason, if it names another existing one."""
        wanted, given = (_ALLOWED.fullmatch(each.get("status", {}).get("reason", "")) for each in (expected, found))
        if wanted is None or given is None or wanted[0] == given[0]:
            return found
        name, _, namespace = given[2].partition("/")
        place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        status, _ = await self.client.call("GET", f"{_RBAC}/{place}/{name}")
        return {**found, "status": expected["status"]} if status == 200 else found


def _with_sorted_rules(review: dict[str, Any]) -> dict[str, Any]:
    status = dict(review["status"])
    for name in ("resourceRules", "nonResourceRules"):
        status[name] = sorted(status.get(name) or [], key=json.dumps)
    return {**review, "status": status}
