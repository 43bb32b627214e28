"""The writing verbs against the model: lists and watches then show their answers, once and in order."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from embedded.support import JSON_PATCH, MERGE, NODES, World, config_map, named, owner, pod
from embedded_kubernetes.requests import Request, Response, Stream

from ..examples import model_test
from .reads import Reads
from .store_model import LABELS, ZONE, Json, Model, stamped

#: In the order of keys, default-b/x comes before default/x.
NAMESPACES = ("default", "default-b")
NAMES = ("x", "x-1")
HISTORY = 9
#: Kind -> its group, and the namespaces of its objects.
KINDS = {"pods": ("", NAMESPACES), "configmaps": ("", NAMESPACES), "storageclasses": ("storage.k8s.io", ("",))}
OWNERS: list[tuple[str, ...]] = [(), (), ("o1",), ("o2", "o1")]

KEYS = [(kind, ns, name) for kind, (_, spaces) in KINDS.items() for ns in spaces for name in NAMES]
KEY, POD_KEY = st.sampled_from(KEYS), st.sampled_from([key for key in KEYS if key[0] == "pods"])
SHAPE = st.integers(0, len(LABELS) - 1)
Key = tuple[str, str, str]


def stored_key(key: Key) -> str:
    return "/".join(part for part in key[1:] if part)


class ApiMachine(Reads):
    """Writes of a server.

    After each write the object is read back into the model, so that every other way of reading must agree with it.
    """

    @initialize()
    def start(self) -> None:
        self.world = World(history=HISTORY, controllers=False)
        self.store = self.world.store
        self.world.post(NODES, named("n2", labels={ZONE: "z"}))
        self.world.namespace("default-b")
        registry = self.world.api.registry
        self.served = {kind: registry.stored((group, kind)) for kind, (group, _) in KINDS.items()}
        self.models = {kind: Model(HISTORY) for kind in KINDS}
        self.places = [(kind, ns) for kind, (_, found) in KINDS.items() for ns in dict.fromkeys(("", *found))]

    def teardown(self) -> None:
        if sys.exception() is None:
            self.read_everything()

    def ask(self, kind: str, namespace: str, query: str) -> Response | Stream:
        return self.world.api.handle(Request("GET", self.collection(kind, namespace), query.lstrip("&")))

    def collection(self, kind: str, namespace: str) -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.served[kind].resource.path}{within}/{kind}"

    # -- writes ------------------------------------------------------------------------------------------

    def stands(self, key: Key) -> Json | None:
        """Return the model's object under the key."""
        return self.models[key[0]].now.get(stored_key(key))

    def path(self, key: Key) -> str:
        return f"{self.collection(*key[:2])}/{key[2]}"

    def fetch(self, key: Key) -> Json | None:
        status, obj = self.world.call("GET", self.path(key))
        if status == 404:
            return None
        del obj["kind"], obj["apiVersion"]
        return obj

    def write(self, method: str, key: Key, body: Any, *, below: str = "", **more: Any) -> tuple[int, Any]:
        """Send a write, and find by a GET that it did nothing, or made one change with the next version."""
        kind, namespace, _ = key
        path = self.collection(kind, namespace) if method == "POST" and not below else self.path(key)
        before, version = self.stands(key), self.store.rv
        status, answer = self.world.call(method, path + below, body, **more)
        after = self.fetch(key)
        if self.store.rv == version:
            assert after == before, "an object changed without a new version"
            return status, answer
        assert status < 300, "a write that was refused was carried out"
        if method == "DELETE" and kind == "pods" and before is not None and after is None:
            # A deletion of a pod has two versions: first the pod is marked, then it is removed.
            self.mark(key, before, answer)
            version += 1
        assert self.store.rv == version + 1, "a write took more versions than it has changes"
        if after is not None:
            assert after["metadata"]["resourceVersion"] == str(self.store.rv)
            assert before is None or after != stamped(before, self.store.rv), "an update changed nothing"
        self.models[kind].write(self.store.rv, stored_key(key), after)
        return status, answer

    def mark(self, key: Key, before: Json, answer: Json) -> None:
        marked = {name: value for name, value in answer.items() if name not in ("kind", "apiVersion")}
        assert {**marked, "metadata": None} == {**before, "metadata": None}
        added = {"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"}
        assert {k: v for k, v in marked["metadata"].items() if k not in added} == {
            k: v for k, v in before["metadata"].items() if k not in added
        }
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
        self.models[key[0]].write(int(marked["metadata"]["resourceVersion"]), stored_key(key), marked)

    def check_answer(self, key: Key, answer: Json) -> None:
        found = {name: value for name, value in answer.items() if name not in ("kind", "apiVersion")}
        assert found == self.stands(key)

    @rule(key=KEY, shape=SHAPE, gated=st.booleans(), finalizer=st.booleans(), owners=st.sampled_from(OWNERS))
    def create(self, key: Key, shape: int, gated: bool, finalizer: bool, owners: tuple[str, ...] = ()) -> None:
        kind, namespace, name = key
        metadata: Json = {"labels": LABELS[shape]}
        if namespace:
            metadata["namespace"] = namespace
        if finalizer:
            metadata["finalizers"] = ["example.com/hold"]
        if owners:
            metadata["ownerReferences"] = [owner(named(uid, uid=uid)) for uid in owners]
        if kind == "pods":
            spec = {"schedulingGates": [{"name": "hold"}]} if gated else {}
            body = pod(name, spec=spec, **metadata)
        elif kind == "configmaps":
            body = config_map(name, **metadata)
        else:
            body = named(name, **metadata, provisioner="p")
        taken = self.stands(key) is not None
        status, answer = self.write("POST", key, body)
        if taken:
            assert (status, answer["reason"]) == (409, "AlreadyExists")
        else:
            assert status == 201
            self.check_answer(key, answer)

    @rule(key=KEY, shape=SHAPE, behind=st.sampled_from([0, 0, 1]), keeps=st.booleans())
    def put(self, key: Key, shape: int, behind: int, keeps: bool) -> None:
        """Update an object as it was read; the update is refused if that read is outdated."""
        old = self.stands(key)
        if old is None:
            self.create(key, shape, False, keeps)
            return
        metadata = {**old["metadata"], "labels": LABELS[shape]}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) - behind)
        if not keeps:
            metadata.pop("finalizers", None)
        version = self.store.rv
        status, answer = self.write("PUT", key, {**old, "metadata": metadata})
        if behind:
            assert (status, answer["reason"], self.store.rv) == (409, "Conflict", version)
            return
        assert status == 200
        if self.stands(key) is not None:
            self.check_answer(key, answer)
            assert answer["metadata"].get("labels", {}) == LABELS[shape]

    @rule(key=KEY, shape=SHAPE, kind=st.sampled_from([MERGE, JSON_PATCH]))
    def patch(self, key: Key, shape: int, kind: str) -> None:
        labels = LABELS[shape]
        body: Any = {"metadata": {"labels": {"app": labels.get("app"), "tier": labels.get("tier")}}}
        if kind == JSON_PATCH:
            body = [{"op": "add", "path": "/metadata/labels", "value": labels}]
        if self.stands(key) is None:
            assert self.write("PATCH", key, body, kind=kind)[0] == 404
            self.create(key, shape, False, False)
        status, answer = self.write("PATCH", key, body, kind=kind)
        assert status == 200
        self.check_answer(key, answer)
        found = answer["metadata"].get("labels", {})
        assert {label: value for label, value in found.items() if label != ZONE} == labels

    @rule(key=KEY, grace=st.sampled_from([None, 0, 30]), strange=st.booleans())
    def delete(self, key: Key, grace: int | None, strange: bool) -> None:
        old = self.stands(key)
        body: Json = {} if grace is None else {"gracePeriodSeconds": grace}
        if strange:
            body["preconditions"] = {"uid": "somebody-else"}
        status, _ = self.write("DELETE", key, body)
        after = self.stands(key)
        if old is None:
            assert status == 404
        elif strange:
            assert status == 409 and after == old
        else:
            assert status in (200, 202)
            assert after is None or "deletionTimestamp" in after["metadata"]
            held = bool(old["metadata"].get("finalizers"))
            if key[0] != "pods" or grace == 0 or not old["spec"].get("nodeName"):
                assert (after is not None) is held

    @rule(
        key=POD_KEY,
        node=st.sampled_from(["n1", "n2"]),
        uid=st.sampled_from(["", "right", "wrong"]),
        notes=st.sampled_from([{}, {"who": "me"}]),
    )
    def bind(self, key: Key, node: str, uid: str, notes: Json) -> None:
        """Bind to n1, which does not exist, which the server accepts, or to n2, whose zone its pods get as a label."""
        old = self.stands(key)
        metadata: Json = {"name": key[2], "annotations": notes} if notes else {"name": key[2]}
        if uid:
            metadata["uid"] = old["metadata"]["uid"] if old is not None and uid == "right" else "another"
        body = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        status, _ = self.write("POST", key, body, below="/binding")
        if old is None:
            assert status == 404
            return
        before, spec = old["metadata"], old["spec"]
        after = self.stands(key)
        assert after is not None
        if (
            spec.get("nodeName")
            or spec.get("schedulingGates")
            or before.get("deletionTimestamp")
            or metadata.get("uid", before["uid"]) != before["uid"]
        ):
            assert status == 409 and after == old
            return
        expected = stamped(old, self.store.rv)["metadata"]
        if notes:
            expected["annotations"] = {**before.get("annotations", {}), **notes}
        if node == "n2":
            expected["labels"] = {**before.get("labels", {}), ZONE: "z"}
        assert status == 201
        assert after["metadata"] == expected
        assert after["spec"] == {**spec, "nodeName": node}
        conditions = {each["type"]: each["status"] for each in after["status"]["conditions"]}
        assert conditions["PodScheduled"] == "True"

    @rule(key=POD_KEY)
    def lift_gates(self, key: Key) -> None:
        if self.stands(key) is not None:
            status, _ = self.write("PATCH", key, {"spec": {"schedulingGates": None}}, kind=MERGE)
            assert status == 200

    @rule(back=st.integers(0, 6), seconds=st.integers(0, 90))
    def time_passes_and_history_goes(self, back: int, seconds: int) -> None:
        self.world.now += seconds
        rv = self.version(back)
        self.store.compact(rv)
        for model in self.models.values():
            model.compact(rv)

    @invariant()
    def tables_equal_the_models(self) -> None:
        if any(model.changes for model in self.models.values()):
            self.check_tables()


TestApiModel = model_test(ApiMachine, examples=60, steps=45)


class LongerMachine(ApiMachine):
    """The same machine for longer runs."""


TestApiModelAtLength = model_test(LongerMachine, examples=300, steps=60)
TestApiModelAtLength.pytestmark.append(pytest.mark.wide)
