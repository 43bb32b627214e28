"""Every namespace has its default service account."""

from __future__ import annotations

from embedded.support import ACCOUNTS, World, named
from embedded_kubernetes.accounts import ServiceAccounts


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
