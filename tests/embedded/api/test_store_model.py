"""The store, its lists and its watches against a list of changes that is replayed for every question."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import orjson
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from embedded_kubernetes import reading
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.registry import Registry
from embedded_kubernetes.requests import Request, Response, Stream, refusal
from embedded_kubernetes.resource import Resource
from embedded_kubernetes.store import Record, Store, Superseded, restamped
from tests.support.stateful import model_test

from .reads import Reads
from .store_model import LABELS, Json, Model, stamped

THINGS = ("", "things")
#: In key order, "a-b/x" comes before "a/x".
NAMESPACES = ("a", "a-b", "b")
KEYS = [
    *(("things", namespace, name) for namespace in NAMESPACES for name in ("x", "x-1")),
    *(("boxes", "", name) for name in ("x", "y")),
]
NODES = ("", "n1", "n2")
OWNERS: tuple[tuple[str, ...], ...] = ((), ("o1",), ("o2", "o1"))
SHAPES = list(itertools.product(LABELS, NODES, OWNERS))
#: Events that each table keeps.
HISTORY = 9

#: Which key is written, and what comes to stand there.
WRITE = st.integers(0, len(KEYS) * len(SHAPES) - 1)


def fields(obj: dict[str, Any]) -> dict[str, str]:
    metadata = obj["metadata"]
    return {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
        "spec.nodeName": obj["spec"]["nodeName"],
    }


def kind(name: str, plural: str, *, namespaced: bool) -> Resource:
    return Resource(
        group="",
        version="v1",
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced=namespaced,
        field_names=("metadata.name", "metadata.namespace", "spec.nodeName"),
        fields=fields,
    )


THING, BOX = kind("Thing", "things", namespaced=True), kind("Box", "boxes", namespaced=False)


def new_store(history: int = HISTORY) -> Store:
    numbers = itertools.count(1)
    return Store(clock=lambda: 0.0, uid=lambda: f"uid-{next(numbers)}", history=history)


class StoreMachine(Reads):
    """Writes go straight to the store; reads go through the verbs, as those of clients."""

    @initialize()
    def start(self) -> None:
        self.store = new_store()
        registry = self.registry = Registry(self.store, [THING, BOX])
        self.served = {"things": registry.stored(THINGS), "boxes": registry.stored(("", "boxes"))}
        self.models = {"things": Model(HISTORY), "boxes": Model(HISTORY)}
        self.places = [("things", ""), *(("things", name) for name in NAMESPACES), ("boxes", "")]

    def teardown(self) -> None:
        if sys.exception() is None:
            self.read_everything()

    def ask(self, kind: str, namespace: str, query: str) -> Response | Stream:
        request = Request("GET", f"/api/v1/{kind}", query.lstrip("&"))
        verb = reading.watch if "watch=1" in query else reading.list_objects
        try:
            return verb(self.registry, self.served[kind], namespace, request)
        except ApiError as error:
            return refusal(error)

    # -- writes ------------------------------------------------------------------------------------------

    def thing(self, kind: str, namespace: str, name: str, shape: int) -> Json:
        labels, node, owners = SHAPES[shape]
        metadata: Json = {"name": name, "uid": self.store.uid()}
        if namespace:
            metadata["namespace"] = namespace
        if labels:
            metadata["labels"] = labels
        if owners:
            metadata["ownerReferences"] = [{"uid": uid} for uid in owners]
        return {"metadata": metadata, "spec": {"nodeName": node}}

    def wrote(self, kind: str, record: Record, obj: Json | None) -> None:
        """A write takes the next version, whatever its kind."""
        newest = max((change.rv for each in self.models.values() for change in each.changes), default=1)
        assert record.rv == self.store.rv == newest + 1
        self.models[kind].write(record.rv, record.key, obj and stamped(obj, record.rv))

    @rule(what=WRITE)
    def write(self, what: int) -> None:
        """Insert what is not there, and replace what is: both once only."""
        shape, place = divmod(what, len(KEYS))
        kind, namespace, name = KEYS[place]
        old = self.served[kind].table.get(namespace, name)
        assert (old is None) is ((f"{namespace}/{name}" if namespace else name) not in self.models[kind].now)
        obj = self.thing(kind, namespace, name, shape)
        named = {"kind": "Thing", "apiVersion": "v1", **obj}
        if old is None:
            self.wrote(kind, self.store.insert(("", kind), named), obj)
        else:
            self.wrote(kind, self.store.replace(("", kind), old, named), obj)
            with pytest.raises(Superseded):
                self.store.replace(("", kind), old, named)
            with pytest.raises(Superseded):
                self.store.remove(("", kind), old)
        with pytest.raises(Superseded):
            self.store.insert(("", kind), named)

    #: Twice as often as any other step: what reads do depends on what was written.
    write_on = rule(what=WRITE)(lambda self, what: self.write(what))

    @rule(what=st.integers(0, len(KEYS) - 1))
    def remove(self, what: int) -> None:
        kind, namespace, name = KEYS[what]
        old = self.served[kind].table.get(namespace, name)
        if old is None:
            return
        last = self.store.remove(("", kind), old)
        assert orjson.loads(last.data) == stamped(self.models[kind].now[old.key], last.rv)
        self.wrote(kind, last, None)
        with pytest.raises(Superseded):
            self.store.remove(("", kind), old)

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        rv = self.version(back)
        self.store.compact(rv)
        for model in self.models.values():
            model.compact(rv)

    @invariant()
    def tables_equal_the_models(self) -> None:
        if any(model.changes for model in self.models.values()):
            self.check_tables()


TestStoreModel = model_test(StoreMachine, examples=230, steps=50)


def thing(store: Store, namespace: str, name: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": store.uid()}
    return {"kind": "Thing", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": ""}}


def things(store: Store) -> Store:
    """The store, with the table of things."""
    Registry(store, [THING])
    return store


def test_a_restamped_encoding_differs_in_its_version_only() -> None:
    store = things(new_store())
    obj = thing(store, "a", "x")
    obj["metadata"]["annotations"] = {"copy": '{"metadata":{"resourceVersion":"2"}}'}
    record = store.insert(THINGS, obj)
    restamp = orjson.loads(restamped(record, 123456))
    assert restamp["metadata"].pop("resourceVersion") == "123456"
    plain = orjson.loads(record.data)
    assert plain["metadata"].pop("resourceVersion") == str(record.rv)
    assert restamp == plain


def test_the_key_of_an_object_never_changes() -> None:
    store = things(new_store())
    old = store.insert(THINGS, thing(store, "a", "x"))
    with pytest.raises(ValueError, match="cannot become a/y"):
        store.replace(THINGS, old, thing(store, "a", "y"))


def test_stored_objects_are_out_of_the_cyclic_collectors_sight() -> None:
    import gc

    store = things(new_store())
    record = store.insert(THINGS, thing(store, "a", "x"))
    event = store.tables[THINGS].history[-1]
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(event)
