"""Names and types of expressions, and errors that CEL's own checker does not find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apimachinery.celtypes import FUNCTIONS
from embedded_kubernetes.cel import formats, library, lists
from embedded_kubernetes.cel.authorizer import METHODS
from embedded_kubernetes.cel.macros import OWN, expanded
from embedded_kubernetes.cel.names import Names, inlined, mentions, missing_field, problems
from embedded_kubernetes.cel.program import CelError, checked
from embedded_kubernetes.cel.signatures import signatures

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
    "Object{a: [1, 'x'], b: {'c': 1, 'd': true}}" | ["1:15: expected type 'int' but found 'string'",
        "1:38: expected type 'int' but found 'bool'"]
    "'a'.matches('[')" | ['1:13: invalid matches argument']
    duration('1 day') < duration('1h') | ['1:10: invalid duration argument']
    timestamp('2020-13-01T00:00:00Z') == null | ['1:11: invalid timestamp argument']
    "[JSONPatch{op: 'add', nosuch: 1}]" | ["1:29: undefined field 'nosuch'"]
    '[JSONPatch{op: 1}]' | ["1:14: expected type of field 'op' is 'string' but provided type is 'int'"]
    has(object) | ['1:5: invalid argument to has() macro']
    '[1].all(1, true)' | ['1:9: argument must be a simple name']
    '[1].map(1, true)' | ['1:9: argument is not an identifier']
    object.`a-b` == object.`c` | ["1:8: unsupported syntax: '`'", "1:24: unsupported syntax: '`'"]
    1.x | ["1:2: type 'int' does not support field selection"]
    1.all(x, x) | ["1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or
        dynamic)"]
    object.x[ | ["1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', '?',
        'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"]
    nosuch().x | ["1:7: undeclared reference to 'nosuch' (in container '')"]
    'nosuch.x + {1: 1}' | ["1:1: undeclared reference to 'nosuch' (in container '')"]
    quantity('1').isLessThan('2') | ["1:25: found no matching overload for 'isLessThan' applied to
        'kubernetes.Quantity.(string)'"]
    authorizer.check('get') | ["1:17: found no matching overload for 'check' applied to
        'kubernetes.authorization.Authorizer.(string)'"]
    "'a'.startsWith(1)" | ["1:15: found no matching overload for 'startsWith' applied to 'string.(int)'"]
    "'a'.reverse()" | ["1:12: found no matching overload for 'reverse' applied to 'string.()'"]
    "'a'.substring('b')" | ["1:14: found no matching overload for 'substring' applied to 'string.(string)'"]
    "[1].slice('a', 1)" | ["1:10: found no matching overload for 'slice' applied to '(string, int)'"]
    "'a'.indexOf(1)" | ["1:12: found no matching overload for 'indexOf' applied to 'string.(int)'"]
    "['a'].sum()" | ["1:10: found no matching overload for 'sum' applied to 'list(string).()'"]
    sets.contains(1, 2) | ["1:14: found no matching overload for 'sets.contains' applied to '(int, int)'"]
    quantity('1').x | ["1:14: unexpected failed resolution of 'kubernetes.Quantity'"]
    ip('::1').x | ["1:10: type 'net.IP' does not support field selection"]
    math.greatest(1, 2) | ["1:1: undeclared reference to 'math' (in container '')", "1:14: undeclared reference to
        'greatest' (in container '')"]
    cel.bind(x, 1, x) | ["1:1: undeclared reference to 'cel' (in container '')", "1:9: undeclared reference to 'bind'
        (in container '')", "1:10: undeclared reference to 'x' (in container '')", "1:16: undeclared reference to
        'x' (in container '')"]
    1 < 2.5 && [1, 'a'] == [] | ["1:16: expected type 'int' but found 'string'"]
    size('a') < 2.5 && 1 < 'a' | ["1:22: found no matching overload for '_<_' applied to '(int, string)'"]
    """)
def test_what_is_wrong_is_told_with_its_place_in_cel_gos_words(expression: str, said: list[str]) -> None:
    with pytest.raises(CelError) as error:
        checked(expression, Names(patches=True))
    lines = [line for line in str(error.value).split("\n") if line.startswith("ERROR")]
    assert lines == [f"ERROR: <input>:{each}" for each in said]


@pytest.mark.parametrize(
    ("expression", "name"), [("jsonpatch.escapeKey('a')", "jsonpatch"), ("Object{a: 1}", "Object")]
)
def test_what_only_patches_are_made_of_is_known_to_them_alone(expression: str, name: str) -> None:
    assert checked(expression, Names(patches=True))
    with pytest.raises(CelError, match=f"undeclared reference to '{name}'"):
        checked(expression, Names())


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
    "int('1') == 1 && string(-9223372036854775807) != '' && double('1.5') < 2.0"
    """)
def test_what_is_right_is_let_pass(expression: str) -> None:
    assert checked(expression, Names(patches=True))


@cases("""
    expression | kind
    quantity('1').add(1) | kubernetes.Quantity
    semver('1.2.3') | kubernetes.Semver
    url('https://a').getQuery() | map(string, list(string))
    cidr('10.0.0.0/8').ip() | net.IP
    authorizer.group('').resource('pods').check('get') | kubernetes.authorization.Decision
    authorizer.requestResource | kubernetes.authorization.ResourceCheck
    format.date().validate('x') | optional_type(list(string))
    '[1].sum()' | int
    '[[1]].flatten()' | list(int)
    "['a'].slice(0, 1)" | list(string)
    "['a'].distinct().sortBy(x, x.size())" | list(string)
    object.x.flatten() | list(dyn)
    object.x.sum() | dyn
    """)
def test_types_are_those_of_a_real_server(expression: str, kind: str) -> None:
    assert checked(expression, Names()) == kind


def test_the_same_functions_are_known_with_as_many_parameters() -> None:
    evaluated = {
        (function.name, len(function.parameters), function.is_method)
        for function in (*FUNCTIONS, *library.FUNCTIONS, *lists.FUNCTIONS, *formats.FUNCTIONS)
    }
    evaluated |= {(method.name, method.parameters + 1, True) for method in METHODS}
    evaluated.add(("jsonpatch.escapeKey", 1, False))
    known = {(name, len(one.parameters), one.is_method) for name, found in signatures() for one in found}
    # These are rewritten, in one way to be checked and in another to be evaluated.
    anew = {f"{OWN}{name}" for name in ("indexOf", "lastIndexOf", "charAt", "substring", "slice", "sortedBy")}
    anew |= {"distinct", "flatten", "slice"}
    assert {each for each in known if each[0] not in anew} == {each for each in evaluated if each[0] not in anew}


@pytest.mark.parametrize("expression", ["[1].all(1, v, true)", "all(i, v, true)", "[1].sortBy('x', 1)"])
def test_what_is_no_loop_is_none(expression: str) -> None:
    with pytest.raises(CelError):
        checked(expression, Names())


@given(st.text(alphabet="al.(,)[]{}'\"\\ \n/?1", max_size=30))
def test_what_calls_none_of_them_stays_letter_by_letter(text: str) -> None:
    assert expanded(text).text == text


def test_a_message_may_not_ask_who_may_do_what() -> None:
    assert "undeclared reference to 'authorizer'" in problems("authorizer.path('/')", Names(authorizer=False))


def test_the_type_of_a_variable_is_that_of_its_expression() -> None:
    known = Names(variables={"a": "bool"})
    assert checked("variables.a", known) == "bool"
    assert checked("variables . a ? 'x' : 'y'", known) == "string"
    assert inlined("[variables.a, variables.b]", {"a": "1"}) == "[(1), variables.b]"
    with pytest.raises(CelError, match="undefined field 'b'"):
        checked("variables.b", known)


def test_mentions_tell_variables_from_fields() -> None:
    found = [mention.path for mention in mentions("a.b + c[d].e - 'f' // g")]
    assert found == [("a", "b"), ("c",), ("d",)]


@pytest.mark.parametrize(
    ("expression", "name"),
    [("object.a.b.c", "b"), ("oldObject.metadata.x", "metadata"), ("object.a.nosuch", "nosuch"), ("1", "")],
)
def test_a_field_of_what_has_none_is_found(expression: str, name: str) -> None:
    values = {"object": {"a": "text"}, "oldObject": None}
    assert missing_field(expression, values)[0] == name
