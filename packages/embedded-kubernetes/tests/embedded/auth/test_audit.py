"""Audit: the observer is called for every request, and the log has it in the form of audit.k8s.io/v1."""

from __future__ import annotations

import io

import orjson
import pytest

from apimachinery.output import to_stream
from embedded_kubernetes.auth.audit import AuditLog
from embedded_kubernetes.requests import Request, Stream

from .people import ANN, Guarded, rule

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine"


@pytest.fixture
def server() -> Guarded:
    server = Guarded()
    server.grant("reader", [rule("get list watch", "pods"), rule("impersonate", "users", names="bob")], ANN)
    server.audited.clear()
    return server


def test_a_request_is_told_with_its_user_attributes_and_answer(server):
    server.by("ann", "GET", "/api/v1/namespaces/default/pods/p?pretty=1")
    server.by("ann", "PATCH", f"{LEASE}/status")
    server.by("nobody", "GET", "/version")
    found, refused, unknown = server.audited
    assert (found.by, found.code, found.allowed) == ("ann", 404, True)
    assert found.uri == "/api/v1/namespaces/default/pods/p?pretty=1"
    attributes = found.attributes
    assert (attributes.verb, attributes.resource, attributes.name) == ("get", "pods", "p")
    assert (refused.by, refused.code, refused.allowed) == ("ann", 403, False)
    assert (refused.attributes.verb, refused.attributes.combined) == ("patch", "leases/status")
    assert (unknown.by, unknown.user, unknown.code, unknown.allowed) == ("", None, 401, None)


def test_a_watch_is_told_when_it_begins_and_an_impersonated_user_beside_the_own(server):
    watch = server.api.handle(Request("GET", "/api/v1/pods", "watch=1", authorization="Bearer ann"))
    assert isinstance(watch, Stream)
    watch.watcher.close()
    server.by("ann", "GET", "/api/v1/pods", headers=[("impersonate-user", "bob")])
    begun, impersonated = server.audited
    assert begun.watches
    assert begun.attributes.verb == "watch"
    assert (impersonated.user.name, impersonated.by, impersonated.code) == ("ann", "bob", 403)


def test_the_log_has_a_line_a_request(server):
    server.by("ann", "GET", "/api/v1/pods?limit=1")
    server.by("ann", "GET", "/metrics")
    file = io.BytesIO()
    log = AuditLog(to_stream(file), lambda: "the-id")
    for asked in server.audited:
        log(asked)
    resource, path = (orjson.loads(line) for line in file.getvalue().splitlines())
    assert resource["objectRef"] == {"resource": "pods", "apiVersion": "v1"}
    assert resource["user"] == {
        "username": "ann", "uid": "u-ann", "groups": ["team", "system:authenticated"],
    }  # fmt: skip
    assert (resource["verb"], resource["requestURI"]) == ("list", "/api/v1/pods?limit=1")
    about = [resource[field] for field in ("auditID", "level", "stage")]
    assert about == ["the-id", "Metadata", "ResponseComplete"]
    assert resource["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert "objectRef" not in path
    assert path["responseStatus"]["code"] == 403
    assert path["annotations"]["authorization.k8s.io/decision"] == "forbid"
