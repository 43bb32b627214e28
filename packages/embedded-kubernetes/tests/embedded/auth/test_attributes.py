"""Attributes of a request by its method, path and query."""

from __future__ import annotations

import pytest

from embedded_kubernetes.auth.attributes import NoRequest, attributes_of
from embedded_kubernetes.requests import Request

from .people import Guarded


def asked(request: str) -> str:
    """Return verb, resource with group, namespace and name in one text, or verb and path."""
    method, _, url = request.partition(" ")
    path, _, query = url.partition("?")
    found = attributes_of(method, path, Request(method, path, query).parameters)
    if not found.of_resource:
        return f"{found.verb} {found.path}"
    group = f".{found.group}" if found.group else ""
    return f"{found.verb} {found.combined}{group} {found.namespace or '-'} {found.name or '-'}"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("fieldSelector=metadata.name%3Dp", "p"),
        ("fieldSelector=metadata.name%3D%3Dp", "p"),
        ("fieldSelector=metadata.name!%3Dp", "-"),
        ("fieldSelector=spec.nodeName%3Dn,metadata.name%3Dp", "p"),
        ("fieldSelector=metadata.name%3Dp,broken", "-"),
        ("fieldSelector=metadata.name%3Da/b", "-"),
        ("fieldSelector=metadata.name%3D..", "-"),
        ("fieldSelector=metadata.namespace%3Dp", "-"),
        ("fieldSelector=metadata.name%3Dp&limit=5", "p"),
        ("fieldSelector=metadata.name%3Dp&limit=five", "-"),
        ("fieldSelector=metadata.name%3Dp&labelSelector=a%3Db", "p"),
        ("fieldSelector=metadata.name%3Dp&labelSelector=a%20b", "-"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_list_is_by_name_if_its_selector_lets_one_name_through(query, name, verb):
    watch = "&watch=1" if verb == "watch" else ""
    assert asked(f"GET /api/v1/namespaces/a/pods?{query}{watch}") == f"{verb} pods a {name}"


def test_a_path_that_ends_with_a_verb_is_no_request():
    with pytest.raises(NoRequest):
        asked("GET /api/v1/watch")
    answer = Guarded().send("GET", "/api/v1/watch?a=<b>")
    assert answer.status == 500
    assert answer.body == (
        b'Internal Server Error: "/api/v1/watch?a=&lt;b&gt;": failed to create RequestInfo: '
        b"unable to determine kind and namespace from url, /api/v1/watch?a=&lt;b&gt;\n"
    )
