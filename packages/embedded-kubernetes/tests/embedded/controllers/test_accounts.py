"""Every namespace has its default service account and the certificate of the server."""

from __future__ import annotations

from embedded.support import ACCOUNTS, MAPS, PODS, World, named
from embedded_kubernetes.accounts import RootCertificates, ServiceAccounts


def test_old_and_new_namespaces_get_the_account_and_one_that_a_client_made_is_left_as_it_is() -> None:
    world = World(nodes="n1")
    assert not world.names(ACCOUNTS), "a bare server makes none"
    world.namespace("own")
    own = world.post(ACCOUNTS.replace("default", "own"), named("default", labels={"mine": "yes"}))
    world.controllers = [ServiceAccounts(world.api)]
    world.settle()
    assert world.names(ACCOUNTS) == ["default"]
    world.namespace("team")
    world.settle()
    assert world.names(ACCOUNTS.replace("default", "team")) == ["default"]
    assert world.get(f"{ACCOUNTS.replace('default', 'own')}/default") == own


def test_a_deleted_account_comes_back_unless_its_namespace_goes() -> None:
    world = World(nodes="n1")
    world.controllers = [ServiceAccounts(world.api)]
    world.namespace("team")
    world.settle()
    before = world.get(f"{ACCOUNTS}/default")["metadata"]["uid"]
    world.delete(f"{ACCOUNTS}/default")
    world.settle()
    assert world.get(f"{ACCOUNTS}/default")["metadata"]["uid"] != before
    world.delete("/api/v1/namespaces/team")
    world.settle()
    assert not world.is_there("/api/v1/namespaces/team")


def test_the_certificate_is_published_and_a_change_of_it_is_undone() -> None:
    world = World()
    world.api.authority = b"PEM"
    world.controllers = [RootCertificates(world.api)]
    world.namespace("team")
    world.settle()
    path = MAPS.replace("default", "team") + "/kube-root-ca.crt"
    assert world.get(path)["data"] == {"ca.crt": "PEM"}
    world.patch(path, {"data": {"ca.crt": "other"}, "metadata": {"labels": {"a": "b"}}})
    world.settle()
    assert (world.get(path)["data"], world.get(path)["metadata"]["labels"]) == ({"ca.crt": "PEM"}, {"a": "b"})
    world.delete(path)
    world.settle()
    assert world.is_there(path)


def test_pods_have_the_default_account_unless_they_name_another() -> None:
    world = World()
    world.api.registry.defaults_accounts = True
    world.pod("p")
    world.pod("q", spec={"serviceAccountName": "own"})
    accounts = [pod["spec"]["serviceAccountName"] for pod in world.get(PODS)["items"]]
    assert accounts == ["default", "own"]
