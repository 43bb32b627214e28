"""Every namespace has its default service account."""

from __future__ import annotations

from embedded_kubernetes.accounts import ServiceAccounts
from tests.embedded.support import ACCOUNTS, World, named


def test_old_and_new_namespaces_get_the_account_and_a_bare_server_makes_none() -> None:
    world = World(nodes="n1")
    assert not world.names(ACCOUNTS)
    world.controllers = [ServiceAccounts(world.api)]
    world.settle()
    assert world.names(ACCOUNTS) == ["default"]
    world.namespace("team")
    world.settle()
    assert world.names(ACCOUNTS.replace("default", "team")) == ["default"]


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


def test_an_account_that_a_client_made_first_is_left_as_it_is() -> None:
    world = World(nodes="n1")
    world.post(ACCOUNTS, named("default", labels={"mine": "yes"}))
    world.controllers = [ServiceAccounts(world.api)]
    world.settle()
    assert world.get(f"{ACCOUNTS}/default")["metadata"]["labels"] == {"mine": "yes"}
