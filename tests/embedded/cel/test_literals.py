"""Literals that a real server refuses though CEL's checker lets them pass."""

from __future__ import annotations

import pytest

from embedded_kubernetes.cel.names import Names
from embedded_kubernetes.cel.program import CelError, checked

from ..support import cases


@cases("""
    expression | said
    "[1, 'a']" | ["1:5: expected type 'int' but found 'string'"]
    "['a', 1, 2.0]" | ["1:7: expected type 'string' but found 'int'"]
    object.x in [1, object.y] | ["1:23: expected type 'int' but found 'dyn'"]
    "[[1], ['a']]" | ["1:7: expected type 'list(int)' but found 'list(string)'"]
    "[{'a': 1}, {'a': 'b'}]" | ["1:12: expected type 'map(string, int)' but found 'map(string, string)'"]
    '[null, 1]' | ["1:8: expected type 'null' but found 'int'"]
    "[duration('1s'), 1]" | ["1:18: expected type 'duration' but found 'int'"]
    "[quantity('1'), 1]" | ["1:17: expected type 'kubernetes.Quantity' but found 'int'"]
    "{'a': 1, 2: 'b'}" | ["1:10: expected type 'string' but found 'int'", "1:13: expected type 'int' but found
        'string'"]
    "[1].map(x, [x, 'a'])" | ["1:16: expected type 'int' but found 'string'"]
    "[1].all(i, v, v in [1, 'a'])" | ["1:24: expected type 'int' but found 'string'"]
    "Object{a: [1, 'x'], b: {'c': 1, 'd': true}}" | ['1:15: expected', '1:38: expected']
    "'a'.matches('[')" | ['1:13: invalid matches argument']
    duration('1 day') < duration('1h') | ['1:10: invalid duration argument']
    timestamp('2020-13-01T00:00:00Z') == null | ['1:11: invalid timestamp argument']
    "[JSONPatch{op: 'add', nosuch: 1}]" | ["1:29: undefined field 'nosuch'"]
    '[JSONPatch{op: 1}]' | ["1:14: expected type of field 'op' is 'string' but provided type is 'int'"]
    """)
def test_what_is_wrong_is_told_with_its_place(expression: str, said: list[str]) -> None:
    with pytest.raises(CelError) as error:
        checked(expression, Names(patches=True))
    lines = [line for line in str(error.value).split("\n") if line.startswith("ERROR")]
    assert len(lines) == len(said)
    assert all(line.startswith(f"ERROR: <input>:{each}") for line, each in zip(lines, said, strict=True))


@cases("""
    expression
    "'%s %d %s'.format(['a', 1, [1, 'a']])"
    "[dyn(1), dyn('a')]"
    '[object.x, object.y]'
    '[[], [1]]'
    '[?optional.of(1), 2]'
    "{?'a': object.?x, 'b': object.y}"
    "[JSONPatch{op: 'add', path: object.p, value: 1}, JSONPatch{op: 'remove', path: '/a'}]"
    "Object{spec: Object.spec{a: 1, b: 'x', c: [Object.spec.c{d: 1, e: 'x'}]}}"
    "'a'.matches(object.x) && duration('1h30m') > duration('-1.5s')"
    timestamp('2020-01-01T00:00:00.5+01:00')
    """)
def test_what_is_right_is_let_pass(expression: str) -> None:
    assert checked(expression, Names(patches=True))


def test_constants_that_can_be_evaluated_are_let_pass() -> None:
    assert checked("int('1') == 1 && string(-9223372036854775807) != '' && double('1.5') < 2.0", Names())
