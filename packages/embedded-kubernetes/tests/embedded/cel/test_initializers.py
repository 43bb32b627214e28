"""Object initializers become maps, and the rest of an expression is unchanged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from embedded_kubernetes.cel.initializers import TYPE, as_maps, misplaced, plain
from embedded_kubernetes.cel.program import program

from ..support import cases


@cases("""
    expression | value
    Object{} | {"type": Object}
    'Object {a : 1 , b: [2]}' | {"type": Object, a: 1, b: [2]}
    "Object{spec: Object.spec{x: {'k': object.y}}}" | {"type": Object, spec: {"type": Object.spec, x: {k: 7}}}
    '[JSONPatch{op: "add", value: true ? 1 : 2}]' | [{"type": JSONPatch, op: add, value: 1}]
    'Object{a: object.l.map(x, Object.a{b: x})}' | {"type": Object, a: [{"type": Object.a, b: 1}]}
    'Object{?a: object.?nosuch, ?y: object.?y}' | {"type": Object, y: 7}
    'Object{a__dash__b: 1, __namespace__: 2}' | {"type": Object, a-b: 1, namespace: 2}
    "Object{a: 'Object{b: 1}'} // Object{c: 1}" | {"type": Object, a: 'Object{b: 1}'}
    """)
def test_an_initializer_is_a_map_that_says_its_type(expression, value) -> None:
    assert program(expression).evaluate({"object": {"y": 7, "l": [1]}}) == value


@given(st.text(alphabet="aO.{}[]():,'\"\\ \n/?1", max_size=30))
def test_what_has_no_initializer_stays_letter_by_letter(text: str) -> None:
    assert as_maps(text).text == text


def test_names_of_types_have_to_be_their_fields_paths() -> None:
    good = {TYPE: "Object", "spec": {TYPE: "Object.spec", "l": [{TYPE: "Object.spec.l"}], "m": {"a": 1}}}
    assert misplaced(good) == ""
    assert plain(good) == {"spec": {"l": [{}], "m": {"a": 1}}}
    several = {TYPE: "Object", "a": {TYPE: "Object.x"}, "m": {"k": {TYPE: "Object.m"}, "l": [{TYPE: "Object.y"}]}}
    assert [line.partition(",")[0] for line in misplaced(several).split("\n")] == [
        'unexpected type name "Object.x"',
        'unexpected type name "Object.y"',
    ]
    bad = {TYPE: "Object", "spec": {TYPE: "Object.spec", "l": [{TYPE: "Object.l"}]}}
    assert 'unexpected type name "Object.l", expected "Object.spec.l"' in misplaced(bad)
