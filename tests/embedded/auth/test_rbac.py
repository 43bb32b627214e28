"""What bindings grant, and in which namespace."""

from __future__ import annotations

from tests.embedded.support import NAMESPACES, named

from .people import ANN, RBAC, Guarded, rule


def test_a_binding_means_the_role_of_its_own_namespace_and_accounts_of_the_one_it_names(
    server: Guarded,
) -> None:
    tokens = {}
    for namespace, verb, other in (("one", "list", "two"), ("two", "deletecollection", "one")):
        server.made(NAMESPACES, named(namespace))
        server.made(f"{NAMESPACES}/{namespace}/serviceaccounts", named("robot"))
        path = f"{NAMESPACES}/{namespace}/serviceaccounts/robot/token"
        tokens[namespace] = server.made(path, {"spec": {}})["status"]["token"]
        at = f"{RBAC}/namespaces/{namespace}"
        server.made(f"{at}/roles", named("worker", rules=[rule(verb, "pods")]))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker"}
        subjects = [ANN, {"kind": "ServiceAccount", "name": "robot", "namespace": other}]
        server.made(f"{at}/rolebindings", named("work", roleRef=role, subjects=subjects))

    def may(token: str) -> list[tuple[str, str]]:
        asked = [(method, namespace) for method in ("GET", "DELETE") for namespace in ("one", "two")]
        return [each for each in asked if server.by(token, each[0], f"{NAMESPACES}/{each[1]}/pods")[0] != 403]

    assert may("ann") == [("GET", "one"), ("DELETE", "two")]
    assert may(tokens["two"]) == [("GET", "one")]
    assert may(tokens["one"]) == [("DELETE", "two")]
