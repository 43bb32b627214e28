"""Rights to allocate and reserve a ResourceClaim, and to report about its devices."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import CLAIMS, MERGE, NODES, PODS, container, named
from embedded_kubernetes.auth.audit import FURTHER, event

from .people import ANN, Guarded, rule

STATUS = f"{CLAIMS}/c/status"
GROUP = "resource.k8s.io"
DRIVER = "d.example.com"


def allocation(node: str = "n1") -> dict[str, Any]:
    result = {"request": "r", "driver": DRIVER, "pool": "p", "device": "d"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"devices": {"results": [result]}, "nodeSelector": selector}


REPORT = {"driver": DRIVER, "pool": "p", "device": "d", "conditions": []}


@pytest.fixture
def server() -> Guarded:
    server = Guarded()
    request = {"name": "r", "exactly": {"deviceClassName": "x"}}
    server.made(CLAIMS, named("c", spec={"devices": {"requests": [request]}}))
    server.grant("status", [rule("patch update", "resourceclaims/status", group=GROUP)], ANN)
    return server


def patched(server: Guarded, status: dict[str, Any], by: str = "ann") -> tuple[int, Any]:
    return server.by(by, "PATCH", STATUS, {"status": status}, kind=MERGE)


def test_an_allocation_needs_binding_in_the_whole_cluster(server):
    code, answer = patched(server, {"allocation": allocation()})
    assert code == 422
    [cause] = answer["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status")
    assert 'requires resource="resourceclaims/binding", verb="patch" permission' in cause["message"]
    assert 'User "ann" cannot patch resource "resourceclaims/binding"' in cause["message"]
    assert "at the cluster scope" in cause["message"]
    server.grant("binding", [rule("patch", "resourceclaims/binding", group=GROUP)], ANN)
    server.audited.clear()
    assert patched(server, {"allocation": allocation()})[0] == 200
    [asked] = server.audited
    [further] = asked.further
    assert (further.verb, further.combined, further.namespace, further.name) == (
        "patch", "resourceclaims/binding", "", "",
    )  # fmt: skip
    assert event(asked, "id")["annotations"][FURTHER] == "patch resourceclaims/binding.resource.k8s.io"


def test_a_reservation_needs_binding_as_an_allocation_does(server):
    assert patched(server, {"allocation": allocation()}, by="admin")[0] == 200
    user = {"resource": "pods", "name": "p", "uid": "u"}
    code, answer = patched(server, {"reservedFor": [user]})
    assert code == 422
    assert 'requires resource="resourceclaims/binding"' in answer["message"]
    assert patched(server, {"reservedFor": [user]}, by="admin")[0] == 200
    assert patched(server, {"reservedFor": None})[0] == 422, "nor is one taken back"


def test_a_report_needs_the_right_for_its_driver(server):
    assert patched(server, {"allocation": allocation()}, by="admin")[0] == 200
    code, answer = patched(server, {"devices": [REPORT]})
    assert code == 422
    assert 'verb="[arbitrary-node:patch]"' in answer["message"]
    other = rule("arbitrary-node:patch", "resourceclaims/driver", group=GROUP, names="other.example.com")
    server.grant("other", [other], ANN)
    assert patched(server, {"devices": [REPORT]})[0] == 422
    server.grant("driver", [{**other, "resourceNames": [DRIVER]}], ANN)
    assert patched(server, {"devices": [REPORT]})[0] == 200


def test_a_report_of_another_driver_is_not_taken_back(server):
    assert patched(server, {"allocation": allocation()}, by="admin")[0] == 200
    assert patched(server, {"devices": [REPORT]}, by="admin")[0] == 200
    code, answer = patched(server, {"devices": None})
    assert code == 422
    assert 'requires resource="resourceclaims/driver"' in answer["message"]


@pytest.mark.parametrize(("node", "code"), [("n1", 200), ("n2", 422)])
def test_a_driver_reports_about_its_own_node(server, node, code):
    server.account("driver")
    server.made(NODES, named("n1"))
    spec = {"containers": [container()], "serviceAccountName": "driver", "nodeName": "n1"}
    server.made(PODS, named("p", spec=spec))
    subject = {"kind": "ServiceAccount", "name": "driver", "namespace": "default"}
    rules = [
        rule("patch", "resourceclaims/status", group=GROUP),
        rule("associated-node:patch", "resourceclaims/driver", group=GROUP, names=DRIVER),
    ]
    server.grant("driver", rules, subject)
    token = server.token("driver", boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})
    assert patched(server, {"allocation": allocation(node)}, by="admin")[0] == 200
    assert patched(server, {"devices": [REPORT]}, by=token)[0] == code
