"""Paths are resolved independently of earlier requests."""

from __future__ import annotations

import pytest

from embedded.support import DEFAULT, DEPLOYMENTS, PODS, World, cases
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.requests import Request, Response

_BELOW = """pods pods/ pods// pods/a pods/a/ pods/a/status pods/a/status/ pods/a/status/more pods//status
pods/a/nothing pods/%61 status finalize nosuch nodes"""
_ALIKE = [
    *(f"{DEFAULT}/{path}" for path in _BELOW.split()),
    DEFAULT,
    f"{PODS.replace('default', 'd%65fault')}/a",
    "/api/v1/watch/namespaces/default/pods",
    "/api/v1/watch/namespaces/default/pods/a",
    "/api/v1/namespaces/other/pods/a",
    *(f"{DEPLOYMENTS}{path}" for path in ("", "/a", "/a/scale")),
    DEPLOYMENTS.replace("v1", "v2"),
]


def _answer(world: World, path: str) -> tuple[int, bytes, int]:
    result = world.api.handle(Request("GET", path))
    if isinstance(result, Response):
        return result.status, result.body, 0
    lines = result.watcher.take(1 << 20)
    result.watcher.close()
    return 0, b"".join(lines), len(lines)


@pytest.mark.parametrize("path", _ALIKE)
def test_a_path_leads_where_it_would_lead_if_it_were_the_first(path: str) -> None:
    used, fresh = World(), World()
    for world in (used, fresh):
        world.pod("a")
    for known in _ALIKE * 2:
        _answer(used, known)
    assert used.api.registry.routes
    fresh.api.registry.routes.clear()
    assert _answer(used, path) == _answer(fresh, path)


def test_a_known_path_still_asks_for_the_token() -> None:
    world = World(auth=Options.one_token("secret"))
    assert world.call("GET", PODS, authorization="Bearer secret")[0] == 200
    assert world.call("GET", PODS, authorization="Bearer secret")[0] == 200
    assert world.refused("GET", PODS) == (401, "Unauthorized")


def test_the_paths_that_are_remembered_are_few(world: World) -> None:
    for number in range(3000):
        _answer(world, f"/api/v1/namespaces/n{number}/pods")
    assert len(world.api.registry.routes) <= 1024


@cases("""
    path | status | content
    /healthz | 200 | text/plain
    /healthz/ping | 200 | text/plain
    /healthz/nosuch | 404 | text/plain
    /healthz/shutdown | 404 | text/plain
    /readyz/shutdown | 200 | text/plain
    /livez/poststarthook/rbac/bootstrap-roles | 200 | text/plain
    /healthz/ | 404 | text/plain
    /metrics/ | 404 | text/plain
    /metrics/slis | 200 | text/plain
    /version/ | 200 | application/json
    /version/more | 404 | application/json
    /openid/v1/jwks/more | 404 | application/json
    /nosuch/more | 404 | text/plain
    """)
def test_below_a_path_that_is_no_resource_there_is_nothing_else(
    world: World, path: str, status: int, content: str
) -> None:
    answer = world.api.handle(Request("GET", path))
    assert isinstance(answer, Response)
    assert (answer.status, answer.content_type.partition(";")[0]) == (status, content)
