"""Unchanged parts of a patched object are not validated again, with the same answer as if they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any
from unittest import mock

import orjson
from hypothesis import given
from hypothesis import strategies as st

from embedded.support import JSON_PATCH, MERGE, STRATEGIC
from embedded_kubernetes import patch, schema
from embedded_kubernetes import schema_source as source
from embedded_kubernetes.builtin import metadata
from embedded_kubernetes.resource import Object

from ..examples import examples
from .stored import Stored, patches


@cache
def stored() -> Stored:
    return Stored()


def _typed(name: tuple[str, str]) -> source.Type:
    resource = stored().served(name).resource
    model = source.model_name(resource.group, resource.version, resource.kind)
    assert model is not None
    return source.Type("struct", struct=model)


def _anew(merge: Any) -> Any:
    """Return the merge, with a result that shares nothing with the document."""
    return lambda *given, **how: patch.copy_json(merge(*given, **how))


@contextmanager
def judging_everything() -> Iterator[None]:
    merges = ("merge_patch", "strategic_merge_patch")
    check = metadata.check_update
    parts = ("labels", "annotations", "ownerReferences", "finalizers")

    def of_new(now: Object, old: Object, *more: Any, **how: Any) -> Any:
        # All of the stored object counts as new, but its finalizers, which may not be added everywhere.
        news = {name: value for name, value in old.items() if name not in parts[:3]}
        return check(now, news, *more, **how)

    with (
        mock.patch.multiple(patch, **{name: _anew(getattr(patch, name)) for name in merges}),
        mock.patch.object(metadata, "check_update", of_new),
    ):
        yield


@given(st.data())
@examples(100)
def test_a_merge_is_answered_as_if_the_whole_outcome_were_judged(data: st.DataObject) -> None:
    world = stored().world
    name = data.draw(st.sampled_from(sorted(stored().paths)))
    path = data.draw(st.sampled_from(stored().paths[name]))
    served = stored().served(name)
    below = ["/status"] if served.resource.status else []
    below += [
        f"/{each.name}" for each in served.resource.subresources if "patch" in each.verbs and each.name != "scale"
    ]
    url = path + data.draw(st.sampled_from(["", "", *below])) + "?dryRun=All"
    sent = orjson.dumps(data.draw(patches(world.get(path), _typed(name))))
    kind = data.draw(st.sampled_from([MERGE, STRATEGIC]))
    before = [record.data for record in served.table.scan("")]
    status, answer = world.call("PATCH", url, sent, kind=kind)
    with judging_everything():
        assert world.call("PATCH", url, sent, kind=kind) == (status, answer)
    assert [record.data for record in served.table.scan("")] == before


def test_what_a_kinds_rules_add_further_down_is_seen_as_a_change() -> None:
    world = stored().world
    pods, services = (f"/api/v1/namespaces/default/{plural}/a?dryRun=All" for plural in ("pods", "services"))
    status, answer = world.call("PATCH", pods, {"spec": {"hostNetwork": True}}, kind=MERGE)
    assert status == 422
    assert "containers[0].ports" in answer["message"]
    made = world.patch(services, {"spec": {"type": "NodePort"}})
    assert all(port["nodePort"] for port in made["spec"]["ports"])


def test_what_is_stored_is_what_the_rules_make_of_it() -> None:
    """Otherwise an unchanged part would have to be validated again, as it could still be in another form."""
    seen = 0
    for served in stored().world.api.registry.tables():
        for record in served.table.scan(""):
            obj = served.stored.decode(record.data)
            wanted = deepcopy(obj)
            assert schema.check(served.resource, obj) == []
            served.resource.default(obj)
            assert obj == wanted, record.key
            seen += 1
    assert seen > 40


@given(st.data())
@examples(50)
def test_a_merge_leaves_the_document_alone_and_shares_what_the_patch_does_not_name(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(stored().paths)))
    doc = stored().world.get(stored().paths[name][0])
    change = data.draw(patches(doc, _typed(name)))
    before, unnamed = deepcopy(doc), doc.keys() - change.keys()
    new = patch.merge_patch(doc, deepcopy(change))
    assert doc == before
    assert all(new[part] is doc[part] for part in unnamed)


def test_a_json_patch_of_a_shared_document_leaves_no_trace_when_it_is_refused() -> None:
    world = stored().world
    before = world.get("/api/v1/namespaces/default/pods/a")
    steps = [{"op": "remove", "path": "/spec/containers/0/ports"}, {"op": "test", "path": "/kind", "value": "No"}]
    assert world.call("PATCH", "/api/v1/namespaces/default/pods/a", steps, kind=JSON_PATCH)[0] == 422
    assert world.get("/api/v1/namespaces/default/pods/a") == before
