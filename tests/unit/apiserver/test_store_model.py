"""The store against a model that keeps every past state whole."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_scheduler.apiserver.store import Compacted, Event, Record, Store, Superseded, restamped

THINGS = ("", "things")
NAMESPACES = ("a", "a-b", "b")
NAMES = ("x", "x-1", "y", "z")
NODES = ("", "n1", "n2")


def fields(obj: dict[str, Any]) -> dict[str, str]:
    metadata = obj["metadata"]
    return {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "spec.nodeName": obj["spec"]["nodeName"],
    }


def new_store(history: int = 12) -> Store:
    numbers = itertools.count(1)
    store = Store(clock=lambda: 0.0, uid=lambda: f"uid-{next(numbers)}", history=history)
    store.add_table(
        THINGS,
        namespaced=True,
        field_names=("metadata.name", "metadata.namespace", "spec.nodeName"),
        extract=fields,
        indexed=("spec.nodeName",),
    )
    return store


def thing(store: Store, namespace: str, name: str, node: str = "", owner: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": namespace, "name": name, "uid": store.uid()}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    return {"kind": "Thing", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": node}}


class StoreModel(RuleBasedStateMachine):
    """Every write is made to the store and to a dict; every past state of the dict is remembered by version."""

    @initialize()
    def start(self) -> None:
        self.store = new_store()
        self.table = self.store.tables[THINGS]
        self.events: list[Event] = []
        self.table.subscribers.append(self.events.append)
        self.state: dict[str, dict[str, Any]] = {}
        self.past: dict[int, dict[str, dict[str, Any]]] = {self.store.rv: {}}

    def wrote(self, record: Record) -> None:
        assert record.rv == self.store.rv
        self.past[record.rv] = dict(self.state)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(NAMES),
        node=st.sampled_from(NODES),
        owner=st.sampled_from(("", "o1", "o2")),
    )
    def insert(self, namespace: str, name: str, node: str, owner: str) -> None:
        obj = thing(self.store, namespace, name, node, owner)
        if f"{namespace}/{name}" in self.state:
            version = self.store.rv
            with pytest.raises(Superseded):
                self.store.insert(THINGS, obj)
            assert self.store.rv == version
            return
        record = self.store.insert(THINGS, obj)
        self.state[record.key] = orjson.loads(record.data)
        self.wrote(record)

    @precondition(lambda self: self.state)
    @rule(data=st.data(), node=st.sampled_from(NODES), owner=st.sampled_from(("", "o1", "o2")))
    def replace(self, data: st.DataObject, node: str, owner: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.state)))
        old = self.table.records[key]
        obj = thing(self.store, old.namespace, old.name, node, owner)
        record = self.store.replace(THINGS, old, obj)
        self.state[key] = orjson.loads(record.data)
        self.wrote(record)
        version = self.store.rv
        with pytest.raises(Superseded):
            self.store.replace(THINGS, old, obj)
        with pytest.raises(Superseded):
            self.store.remove(THINGS, old)
        assert self.store.rv == version

    @precondition(lambda self: self.state)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.state)))
        old = self.table.records[key]
        last = self.store.remove(THINGS, old)
        expected = self.state.pop(key)
        expected = {**expected, "metadata": {**expected["metadata"], "resourceVersion": str(last.rv)}}
        assert orjson.loads(last.data) == expected
        self.wrote(last)

    @rule(back=st.integers(0, 5))
    def compact(self, back: int) -> None:
        self.store.compact(self.store.rv - back)

    @invariant()
    def every_state_that_history_reaches_can_be_listed(self) -> None:
        for version, state in self.past.items():
            if version < self.table.compacted:
                with pytest.raises(Compacted):
                    self.table.scan("", at=version)
                with pytest.raises(Compacted):
                    self.table.since(version)
                continue
            listed = {record.key: orjson.loads(record.data) for record in self.table.scan("", at=version)}
            assert listed == state
            assert list(listed) == sorted(state)
            for namespace in NAMESPACES:
                within = [key for key in sorted(state) if key.startswith(f"{namespace}/")]
                assert [record.key for record in self.table.scan(namespace, at=version)] == within
                for after in ("", f"{namespace}/x", f"{namespace}/x-1"):
                    left = [key for key in within if key > after]
                    found = [record.key for record in self.table.scan(namespace, after=after, at=version)]
                    assert found == left
                    assert self.table.remaining(namespace, after, at=version) == len(left)

    @invariant()
    def events_since_a_version_lead_from_its_state_to_the_present(self) -> None:
        for version, state in self.past.items():
            if version < self.table.compacted:
                continue
            replayed = dict(state)
            for event in self.table.since(version):
                assert event.rv > version
                if event.type == "DELETED":
                    del replayed[event.record.key]
                else:
                    assert (event.type == "ADDED") == (event.record.key not in replayed)
                    replayed[event.record.key] = orjson.loads(event.record.data)
            assert replayed == self.state

    @invariant()
    def indexes_agree_with_the_objects(self) -> None:
        assert list(self.table.keys) == sorted(self.state)
        for node in NODES[1:]:
            held = [key for key in sorted(self.state) if self.state[key]["spec"]["nodeName"] == node]
            found = self.table.having(2, node)
            assert found is not None and [record.key for record in found] == held
        owners: dict[str, set[Any]] = {}
        for key, obj in self.state.items():
            for reference in obj["metadata"].get("ownerReferences", ()):
                owners.setdefault(reference["uid"], set()).add((THINGS, key))
        assert self.store.dependents == owners

    @invariant()
    def subscribers_saw_every_version_once_and_in_order(self) -> None:
        assert [event.rv for event in self.events] == [version for version in self.past if version > 1]
        assert len(self.table.history) <= self.table.limit


StoreModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestStoreModel = StoreModel.TestCase


def test_a_restamped_encoding_differs_in_its_version_only() -> None:
    store = new_store()
    obj = thing(store, "a", "x")
    obj["metadata"]["annotations"] = {"copy": '{"metadata":{"resourceVersion":"2"}}'}
    record = store.insert(THINGS, obj)
    restamp = orjson.loads(restamped(record, 123456))
    assert restamp["metadata"].pop("resourceVersion") == "123456"
    plain = orjson.loads(record.data)
    assert plain["metadata"].pop("resourceVersion") == str(record.rv)
    assert restamp == plain


def test_the_key_of_an_object_never_changes() -> None:
    store = new_store()
    old = store.insert(THINGS, thing(store, "a", "x"))
    with pytest.raises(ValueError, match="cannot become a/y"):
        store.replace(THINGS, old, thing(store, "a", "y"))


def test_stored_objects_are_out_of_the_cyclic_collectors_sight() -> None:
    import gc

    store = new_store()
    record = store.insert(THINGS, thing(store, "a", "x"))
    event = store.tables[THINGS].history[-1]
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(event)
