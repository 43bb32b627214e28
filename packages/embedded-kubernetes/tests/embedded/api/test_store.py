"""The store's guarantees to writers, beyond the model test of the verbs."""

from __future__ import annotations

import gc

import orjson
import pytest

from embedded.support import Object, World, config_map
from embedded_kubernetes.store import Superseded, restamped

KIND = ("", "configmaps")


def thing(world: World, name: str = "x", **metadata: object) -> Object:
    return config_map(name, namespace="a", uid=world.store.uid(), **metadata)


def test_only_the_newest_record_of_an_object_is_replaced_or_removed(world: World) -> None:
    store, obj = world.store, thing(world)
    first = store.insert(KIND, obj)
    second = store.replace(KIND, first, obj)
    assert (first.rv + 1, second.rv) == (second.rv, store.rv)
    for stale in (
        lambda: store.insert(KIND, obj),
        lambda: store.replace(KIND, first, obj),
        lambda: store.remove(KIND, first),
    ):
        with pytest.raises(Superseded):
            stale()
    last = store.remove(KIND, second)
    assert (last.rv, orjson.loads(last.data)["metadata"]["resourceVersion"]) == (store.rv, str(store.rv))
    with pytest.raises(Superseded):
        store.remove(KIND, second)
    assert store.rv == second.rv + 1


def test_a_restamped_encoding_differs_in_its_version_only(world: World) -> None:
    record = world.store.insert(KIND, thing(world, annotations={"copy": '{"metadata":{"resourceVersion":"2"}}'}))
    again, plain = (orjson.loads(data) for data in (restamped(record, 123456), record.data))
    assert again["metadata"].pop("resourceVersion") == "123456"
    assert plain["metadata"].pop("resourceVersion") == str(record.rv)
    assert again == plain


def test_the_key_of_an_object_never_changes(world: World) -> None:
    old = world.store.insert(KIND, thing(world))
    with pytest.raises(ValueError, match="cannot become a/y"):
        world.store.replace(KIND, old, thing(world, "y"))


def test_stored_objects_are_out_of_the_cyclic_collectors_sight(world: World) -> None:
    record = world.store.insert(KIND, thing(world))
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(world.store.tables[KIND].history[-1])
