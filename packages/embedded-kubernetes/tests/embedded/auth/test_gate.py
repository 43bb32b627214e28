"""A request is authenticated and authorized before anything else, or is refused."""

from __future__ import annotations

import pytest

from embedded.support import LEASES, PODS, World, container, named
from embedded_kubernetes.auth.gate import FURTHER
from embedded_kubernetes.auth.options import ADMIN, Options

from .people import ANN, rule

GROUP = "coordination.k8s.io"


def test_without_rbac_who_is_known_may_do_everything():
    world = World(auth=Options(tokens={"t": ADMIN}, anonymous=False))
    assert world.send("GET", PODS).status == 401
    assert world.send("GET", PODS, authorization="Bearer t").status == 200
    roles = world.get("/apis/rbac.authorization.k8s.io/v1/clusterroles", authorization="Bearer t")
    assert roles["items"] == []


def test_what_nobody_is_told_of_is_not_kept():
    for world in (World(), World(auth=Options(rbac=True, tokens={"t": ADMIN}))):
        body = named("mine", apiVersion=f"{GROUP}/v1", kind="Lease")
        assert world.send("PUT", f"{LEASES}/mine", body, authorization="Bearer t").status == 201
        assert FURTHER.get() is None


def test_a_server_that_asks_nobody_takes_everybody_for_an_administrator(world: World) -> None:
    review = world.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, authorization="Bearer any")
    assert review["status"]["userInfo"]["groups"] == ["system:masters", "system:authenticated"]
    asked = {"spec": {"resourceAttributes": {"verb": "*", "resource": "*"}}}
    review = world.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
    assert review["status"] == {"allowed": True}


@pytest.mark.parametrize(
    ("stream", "code", "said"),
    [("log", 204, b""), ("exec", 400, b"pod p does not have a host assigned"), ("attach", 400, b"host assigned")],
)
def test_what_only_a_kubelet_knows_needs_a_node(server, stream, code, said):
    spec = {"containers": [container()]}
    server.made(PODS, named("p", spec=spec))
    server.made(PODS, named("bound", spec={**spec, "nodeName": "n"}))
    server.grant("stream", [rule("get", f"pods/{stream}")], ANN)
    answer = server.send("GET", f"{PODS}/p/{stream}", authorization="Bearer ann")
    assert answer.status == code
    assert said in answer.body
    assert server.by("ann", "GET", f"{PODS}/bound/{stream}")[0] == 500
    assert server.by("ann", "GET", f"{PODS}/none/{stream}")[0] == 404
    assert server.by("ann", "POST", f"{PODS}/p/{stream}")[0] == 403
